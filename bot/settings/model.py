"""The shape of `clarify.toml`: one frozen model per table, every key checked.

Durations are written "30m", "1h30m", "0s" and read as `timedelta`. Relative paths count from the
folder of the configuration file, whether it was named or found.
"""

from __future__ import annotations

import re
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, field_validator, model_validator

from bot.settings.github import GithubSettings
from bot.settings.monitor import MonitorSettings
from bot.settings.oncall import OnCallSettings
from bot.settings.responders import ResponderSettings
from bot.settings.table import (
    ChannelId,
    ConfigPath,
    Duration,
    EnvironmentName,
    HttpUrl,
    Name,
    Table,
    UserId,
)
from bot.settings.values import file_mode, glob, is_loopback, listen_address, role, url_host
from bot.settings.webhooks import WebhookSettings
from core.clarification import HUMAN, agent_key
from core.workflow import Speaker

Role = Annotated[str, AfterValidator(role)]


class SlackSettings(Table):
    mode: Literal["socket", "http"] = "socket"
    identity: Literal["slack_id", "email"] = "slack_id"
    fallback_channel: ChannelId | None = None


class HttpSettings(Table):
    listen: Annotated[str, AfterValidator(listen_address)] = "127.0.0.1:8787"

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody wants the server at this address; the default one is a convenience."""
        return "listen" in self.model_fields_set

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


class ProducerSettings(Table):
    name: Name
    url: HttpUrl | None = None
    token_env: EnvironmentName | None = None
    dialect: Literal["auto", "standard", "minimal", "push"] = "auto"
    agents: tuple[Annotated[str, AfterValidator(glob)], ...] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> ProducerSettings:
        if self.url is None and self.dialect not in {"auto", "push"}:
            raise ValueError(
                f'url: required with dialect "{self.dialect}"; only a producer that pushes has none'
            )
        if self.url is not None and self.dialect == "push":
            raise ValueError('url: not used with dialect "push" (the producer connects to us); leave it out')
        if self.url is not None and self.token_env is not None and self.url.startswith("http://"):
            host = url_host(self.url)
            if not is_loopback(host):
                raise ValueError(
                    f"url: would send the token of {self.token_env} unencrypted to {host}; "
                    "expected https://, or a loopback host"
                )
        return self

    @property
    def speaker(self) -> Speaker:
        """Which agents may speak through it."""
        return Speaker(self.name, self.agents)

    @property
    def pushes(self) -> bool:
        """Whether this producer connects to us instead of us to it."""
        return self.url is None


class RouteSettings(Table):
    agent: Annotated[str, AfterValidator(glob)] | None = None
    channel: ChannelId
    answerers: tuple[str, ...] = ("members",)
    verbosity: Literal["terse", "normal", "detailed"] = "normal"
    on_call: str | None = None

    @field_validator("answerers")
    @classmethod
    def _answerers(cls, answerers: tuple[str, ...]) -> tuple[str, ...]:
        if not answerers:
            raise ValueError('nobody could answer; expected "members", users (U…) or user groups (S…)')
        for answerer in answerers:
            if answerer != "members" and not re.fullmatch(r"[UWS][A-Z0-9]+", answerer):
                raise ValueError(f'"{answerer}" is none of "members", a user id (U…), a user group id (S…)')
        return answerers

    @property
    def answerer_users(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] in "UW")

    @property
    def answerer_groups(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] == "S")


class LedgerSettings(Table):
    """`mode`: of new ledgers."""

    directory: ConfigPath = Path(".agentx/state/clarifications")
    workflows: ConfigPath = Path(".agentx/workflows")
    archive_after: Duration = timedelta(days=30)
    mode: Annotated[int, BeforeValidator(file_mode)] = 0o600


class StorageSettings(Table):
    """`keep`: how long rows of what is over stay; None: for ever. Duplicates are known by them."""

    path: ConfigPath = Path("clarify.db")
    keep: Duration | None = None


class ShellTable(Table):
    """`consent`: whether `clarify answer` may accept what an agent asks consent for."""

    consent: bool = False


class PacingSettings(Table):
    posts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class Configuration(Table):
    """The whole file."""

    slack: SlackSettings
    http: HttpSettings
    ledger: LedgerSettings
    storage: StorageSettings
    monitor: MonitorSettings
    pacing: PacingSettings
    shell: ShellTable
    producers: tuple[ProducerSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    on_call: tuple[OnCallSettings, ...] = ()
    identities: dict[UserId, Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        default_factory=dict
    )
    webhooks: tuple[WebhookSettings, ...] = ()
    responders: dict[Role, ResponderSettings] = Field(default_factory=dict)
    github: GithubSettings | None = None


class Secrets(Table):
    """What the environment gave. Never written anywhere: `SecretStr` shows as stars."""

    bot_token: SecretStr
    app_token: SecretStr | None = None
    signing_secret: SecretStr | None = None
    by_variable: dict[str, SecretStr] = Field(default_factory=dict)


class Settings(Configuration):
    """The file, the environment, where the file is, and its text (`source`)."""

    file: Path
    source: str
    slack_api_url: str
    secrets: Secrets

    def producer_token(self, producer: ProducerSettings) -> SecretStr | None:
        """The bearer token of a producer, or None where it has none."""
        return None if producer.token_env is None else self.secrets.by_variable[producer.token_env]

    @property
    def heartbeat_url(self) -> SecretStr | None:
        """What is called while all is well (may hold a secret), or None where nobody watches."""
        variable = self.monitor.heartbeat_env
        return None if variable is None else self.secrets.by_variable[variable]

    @property
    def must_listen(self) -> bool:
        """Whether somebody counts on the HTTP server; otherwise it is a convenience."""
        pushes = any(producer.pushes for producer in self.producers)
        return self.http.is_asked_for or self.slack.mode == "http" or pushes

    def on_call_named(self, name: str) -> OnCallSettings:
        return next(on_call for on_call in self.on_call if on_call.name == name)

    def responder_for(self, role: str) -> ResponderSettings | None:
        """How a role answers, however its name is spelled; None: nobody is configured to."""
        if role in self.responders:
            return self.responders[role]
        key = agent_key(role)
        return next((each for name, each in self.responders.items() if agent_key(name) == key), None)

    def route_for(self, agent_id: str, to: str = HUMAN) -> RouteSettings:
        """Where an agent's question goes, and who answers it there; one put to people who answer for a role: to them."""
        route = self._route_of(agent_id)
        responder = self.responder_for(to) if to != HUMAN else None
        if responder is None or responder.kind != "people":
            return route
        return route.model_copy(
            update={"channel": responder.channel or route.channel, "answerers": responder.answerers}
        )

    def _route_of(self, agent_id: str) -> RouteSettings:
        """Return the first route whose glob matches (case counts), else the default, else the fallback channel."""
        for route in self.routes:
            if route.agent is not None and fnmatchcase(agent_id, route.agent):
                return route
        for route in self.routes:
            if route.agent is None:
                return route
        if self.slack.fallback_channel is None:
            raise LookupError(
                "neither a default route nor slack.fallback_channel: refused when the file was read"
            )
        return RouteSettings(channel=self.slack.fallback_channel)
