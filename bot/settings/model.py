"""The shape of `clarify.toml`: one frozen model per table, every key checked.

Durations are written "30m", "1h30m", "0s" and read as `timedelta`. Relative paths count from the
folder of the configuration file, whether it was named or found.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from bot.settings.values import (
    channel_id,
    duration,
    environment_name,
    glob,
    http_url,
    is_loopback,
    listen_address,
    notify_target,
    resolved_path,
    short_name,
    time_zone,
    url_host,
    user_group_id,
    user_id,
)

Duration = Annotated[timedelta, BeforeValidator(duration)]
ConfigPath = Annotated[Path, AfterValidator(resolved_path)]
ChannelId = Annotated[str, AfterValidator(channel_id)]
UserId = Annotated[str, AfterValidator(user_id)]
UserGroupId = Annotated[str, AfterValidator(user_group_id)]
EnvironmentName = Annotated[str, AfterValidator(environment_name)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
Name = Annotated[str, AfterValidator(short_name)]

DEADLOCK_ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")


class Table(BaseModel):
    """A table of the file: unknown keys refused, never changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class SlackSettings(Table):
    mode: Literal["socket", "http"] = "socket"
    identity: Literal["slack_id", "email"] = "slack_id"
    fallback_channel: ChannelId | None = None


class HttpSettings(Table):
    listen: Annotated[str, AfterValidator(listen_address)] = "127.0.0.1:8787"

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
    def everybody_in_channel(self) -> bool:
        """Whether the full members of the workspace who are in the channel may answer."""
        return "members" in self.answerers

    @property
    def answerer_users(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] in "UW")

    @property
    def answerer_groups(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] == "S")


class LedgerSettings(Table):
    directory: ConfigPath = Path(".agentx/state/clarifications")
    workflows: ConfigPath = Path(".agentx/workflows")
    archive_after: Duration = timedelta(days=30)


class StorageSettings(Table):
    path: ConfigPath = Path("clarify.db")
    keep: Duration | None = None


class MonitorSettings(Table):
    sla: Annotated[Duration, Field(gt=timedelta(0))] = timedelta(minutes=30)
    alarm: bool = True
    deadlock_order: tuple[str, ...] = DEADLOCK_ORDER


class PacingSettings(Table):
    posts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class StepSettings(Table):
    """One step of the escalation policy; `after` counts from the escalation."""

    after: Duration
    notify: Annotated[tuple[Annotated[str, AfterValidator(notify_target)], ...], Field(min_length=1)]
    every: Annotated[Duration, Field(gt=timedelta(0))] | None = None


class RotationSettings(Table):
    """Whose turn it is: `users` take turns of `shift` length from `start`, in `timezone`."""

    start: datetime
    shift: Annotated[Duration, Field(gt=timedelta(0))]
    users: Annotated[tuple[UserId, ...], Field(min_length=1)]
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"

    @field_validator("start", mode="before")
    @classmethod
    def _midnight(cls, start: object) -> object:
        if isinstance(start, date) and not isinstance(start, datetime):
            return datetime(start.year, start.month, start.day)  # noqa: DTZ001  local time of `timezone`
        return start


class OnCallSettings(Table):
    name: Name
    users: Annotated[tuple[UserId, ...], Field(min_length=1)] | None = None
    group: UserGroupId | None = None
    rotation: RotationSettings | None = None
    steps: Annotated[tuple[StepSettings, ...], Field(min_length=1)] = (
        StepSettings(after=timedelta(0), notify=("thread", "dm"), every=timedelta(minutes=5)),
    )

    @model_validator(mode="after")
    def _one_source_and_ordered_steps(self) -> OnCallSettings:
        given = [key for key in ("users", "group", "rotation") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of users, group, rotation; got {', '.join(given) or 'none'}"
            )
        for index, (earlier, later) in enumerate(zip(self.steps, self.steps[1:], strict=False), start=1):
            if later.after <= earlier.after:
                raise ValueError(f"steps[{index}].after: expected later than the step before it")
        return self

    @property
    def named_users(self) -> tuple[str, ...]:
        """The users that the file names, without those of a user group."""
        return self.rotation.users if self.rotation is not None else self.users or ()


class WebhookSettings(Table):
    """Checked as far as it is settled; the rest of the table is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    url: HttpUrl
    secret_env: EnvironmentName | None = None


class ResponderSettings(Table):
    """How a role answers, by exactly one of three ways; the rest of the table is kept as it is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    command: Any = None
    http: Any = None
    people: Any = None
    token_env: EnvironmentName | None = None

    @model_validator(mode="after")
    def _one_way(self) -> ResponderSettings:
        given = [key for key in ("command", "http", "people") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of command, http, people; got {', '.join(given) or 'none'}"
            )
        return self


class Configuration(Table):
    """The whole file."""

    slack: SlackSettings
    http: HttpSettings
    ledger: LedgerSettings
    storage: StorageSettings
    monitor: MonitorSettings
    pacing: PacingSettings
    producers: tuple[ProducerSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    on_call: tuple[OnCallSettings, ...] = ()
    identities: dict[UserId, Annotated[str, Field(min_length=1, max_length=256)]] = {}
    webhooks: tuple[WebhookSettings, ...] = ()
    responders: dict[str, ResponderSettings] = {}
    github: dict[str, Any] | None = None


class Secrets(Table):
    """What the environment gave. Never written anywhere: `SecretStr` shows as stars."""

    bot_token: SecretStr
    app_token: SecretStr | None = None
    signing_secret: SecretStr | None = None
    by_variable: dict[str, SecretStr] = {}


class Settings(Configuration):
    """The file, the environment, and where the file is."""

    file: Path
    slack_api_url: str
    secrets: Secrets

    def producer_token(self, producer: ProducerSettings) -> SecretStr | None:
        """The bearer token of a producer, or None where it has none."""
        return None if producer.token_env is None else self.secrets.by_variable[producer.token_env]

    def on_call_named(self, name: str) -> OnCallSettings:
        return next(on_call for on_call in self.on_call if on_call.name == name)

    def route_for(self, agent_id: str) -> RouteSettings:
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
