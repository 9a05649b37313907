"""The shape of `clarify.toml`: one frozen model per table, every key and value checked.

Durations are written "30m", "1h30m", "0s" and read as `timedelta`. Relative paths count from the folder of the
configuration file.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import regex
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bot import integrations
from bot.errors import ConfigurationError
from bot.settings.addresses import WebUrl, callback_url, link_pattern
from core.approvals import MOST_APPROVALS, RISKS, Reason, Risk
from core.clarification import HUMAN, FourEyes, Requester, agent_key
from core.escalation import Hours
from core.workflow import Speaker, is_named

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)(ms|[wdhms])")
_LONGEST = timedelta(days=3650)


def duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    text = value.strip() if isinstance(value, str) else ""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError('expected a duration of zero or more, such as "30m", "1h30m", "0s" or "30d"')
    try:
        total = sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError:
        total = _LONGEST * 2
    if total > _LONGEST:
        raise ValueError("expected a duration of at most ten years")
    return total


def file_mode(value: object) -> int:
    if type(value) is int and value == 0o600:
        return value  # the default
    if not isinstance(value, str) or not re.fullmatch(r"0?6[046][04]", value):
        raise ValueError(
            'expected a mode in quotes: "0600", or "0660" where others of a group write ledgers too'
        )
    return int(value, 8)


def _matching(form: str, expected: str) -> Callable[[str], str]:
    """Returns a check that a text has this form; `expected` may repeat it as {value}."""

    def check(value: str) -> str:
        if not re.fullmatch(form, value):
            raise ValueError(expected.format(value=value))
        return value

    return check


channel_id = _matching(
    "[CG][A-Z0-9]+",
    '"{value}" is not a channel ID; expected C… or G… (Slack shows it in the channel\'s details)',
)
user_id = _matching(
    "[UW][A-Z0-9]+",
    '"{value}" is not a user ID; expected U… or W… (Slack shows it in the profile, "Copy member ID")',
)
person = _matching(
    r"[UW][A-Z0-9]+|[^\s@]+@[^\s@]+",
    '"{value}" is neither a user ID (U… or W…) nor an e-mail address',
)
user_group_id = _matching("S[A-Z0-9]+", '"{value}" is not a user group ID; expected S…')
# Never repeats the value: it may be a secret put in the wrong place.
environment_name = _matching(
    "[A-Z_][A-Z0-9_]*",
    "expected the name of an environment variable (capital letters, digits, _), not the secret itself",
)
short_name = _matching(
    "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
    "expected 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit",
)


def role(value: str) -> str:
    if not value.strip() or len(value) > 80 or not value.isprintable() or agent_key(value) == HUMAN:
        raise ValueError(
            'expected the role that agents ask, 1 to 80 characters; not "human", which means everyone'
        )
    return value


def glob(value: str) -> str:
    if not value or value != value.strip():
        raise ValueError('expected a pattern such as "retirement-*"; leave the key out for all agents')
    if value.count("[") > value.count("]"):
        raise ValueError('unclosed "[" in the pattern; write "[[]" for the character itself')
    return value


def regular_expression(value: str) -> str:
    try:
        regex.compile(value)
    except regex.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return value


def time_zone(value: str) -> str:
    if value == "UTC":
        return value
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f'unknown time zone "{value}"; expected a name such as "Europe/Berlin"') from error
    return value


def hours_of_week(value: str) -> str:
    Hours.read(value)
    return value


IN_SLACK = frozenset({"thread", "dm", "group", "channel"})
"""The kinds of a step's targets that are in Slack. Others are integrations that page people outside."""
OF_AN_INTEGRATION = "an integration's"
"""The key of `OnCallSettings.source`, which no file can have: `bot.settings.load` puts it there."""


def parse_target(value: str) -> tuple[str, str]:
    """Returns the kind and the name of a step's target: "apprise:PAGER" → ("apprise", "PAGER"), "dm" → ("dm", "")."""
    kind, _, name = value.partition(":")
    return kind, name


def notify_target(value: str) -> str:
    if value in {"thread", "dm"}:
        return value
    kind, rest = parse_target(value)
    if kind == "group":
        user_group_id(rest)
    elif kind == "channel":
        channel_id(rest)
    elif integrations.is_pager(kind):
        environment_name(rest)
    else:
        outside = " or ".join(f'"{each}:VARIABLE"' for each in integrations.PAGERS)
        raise ValueError(f'expected "thread", "dm", "group:S…", "channel:C…" or {outside}')
    return value


def http_url(value: str) -> str:
    """Returns the URL without a trailing slash. Errors do not repeat it: it may contain a password."""
    if not is_web_address(value) or re.search(r"\s", value):
        raise ValueError(
            "expected a base URL that starts with http:// or https:// and has a host, such as https://agents.example.com:8080"
        )
    parts = urlsplit(value)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or password (use token_env for a secret)")
    if parts.query or parts.fragment:
        raise ValueError("expected a base URL without ? and #")
    return value.rstrip("/")


def web_origin(value: str) -> str:
    """Returns what browsers send as `Origin`: only scheme, host and port, in lower case."""
    parts = urlsplit(http_url(value))
    origin = f"{parts.scheme}://{parts.netloc}"
    if value != origin.lower():
        raise ValueError("expected an origin such as https://agents.example.com: no path, in lower case")
    return value


def is_web_address(value: str) -> bool:
    """Returns whether it begins with http:// or https:// and has a host; user, password and query are allowed."""
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def name_key(name: str) -> str:
    """Returns a key that ignores a name's case, spacing and Unicode form, but not its accents: they tell people
    apart.
    """
    return unicodedata.normalize("NFC", " ".join(unicodedata.normalize("NFC", name).split()).lower())


def hook_url(value: str) -> str:
    """Returns a web address. Errors do not repeat it: its path or query is often the secret."""
    if (
        not is_web_address(value)
        or re.search(r"\s", value)
        or urlsplit(value).username is not None
        or urlsplit(value).fragment
    ):
        raise ValueError(
            "expected a URL that starts with http:// or https:// and has a host, without # and a user name"
        )
    return value


def _callback_pattern(value: str) -> str:
    """Returns a URL that callbacks may lead to, in one spelling."""
    pattern = callback_url(value)
    if pattern.query:
        raise ValueError("expected a URL without ?; any query is allowed")
    return pattern.text


def _link_pattern(value: str) -> str:
    """Returns an entry of `links`, in one spelling."""
    return link_pattern(value).text


def url_host(url: str) -> str:
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    fits = port.isascii() and port.isdigit() and int(port) <= 65535
    if not fits or not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+", host):
        raise ValueError('expected "host:port" with a port from 0 (any) to 65535, such as "127.0.0.1:8787"')
    return value


def resolved_path(value: Path, info: ValidationInfo) -> Path:
    """Returns an absolute path, relative to the `folder` in the validation context; without one, the path itself."""
    folder = (info.context or {}).get("folder")
    path = value.expanduser()
    return path if folder is None else Path(folder) / path


def _folder_or_false(value: object, info: ValidationInfo) -> Path | Literal[False]:
    if isinstance(value, str | Path):
        return resolved_path(Path(value), info)
    if value is not False:
        raise ValueError("expected a path, or false: no files")
    return value


def _argv(value: object) -> object:
    """Splits a command like a shell; no shell runs it."""
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"cannot be split into words: {error}") from error
    return value


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _places(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if not re.fullmatch(r"[CGSUW][A-Z0-9]+", each):
            raise ValueError(f'"{each}" is not a channel (C…), a user group (S…) or a user (U…)')
    if sum(each[0] in "CG" for each in value) > 1:
        raise ValueError("expected one channel at most")
    return value


def keep_token_private(key: str, url: str, variable: str) -> None:
    """Refuses to send the token of `variable` to another host without encryption."""
    host = url_host(url)
    if url.startswith("http://") and not is_loopback(host):
        raise ValueError(
            f"{key}: would send the token of {variable} unencrypted to {host}; expected https://, or a loopback host"
        )


WebAddress = Annotated[str, AfterValidator(hook_url)]
Duration = Annotated[timedelta, BeforeValidator(duration)]
LongerThanNothing = Annotated[Duration, Field(gt=timedelta(0))]
ConfigPath = Annotated[Path, AfterValidator(resolved_path)]
FolderOrFalse = Annotated[Path | Literal[False], BeforeValidator(_folder_or_false)]
ChannelId = Annotated[str, AfterValidator(channel_id)]
UserId = Annotated[str, AfterValidator(user_id)]
UserGroupId = Annotated[str, AfterValidator(user_group_id)]
EnvironmentName = Annotated[str, AfterValidator(environment_name)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
Name = Annotated[str, AfterValidator(short_name)]
Role = Annotated[str, AfterValidator(role)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), Field(min_length=1)]
Places = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1), AfterValidator(_places)]


class SettingsTable(BaseModel):
    """A table of the file: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class SlackSettings(SettingsTable):
    """How the bot connects to Slack."""

    mode: Literal["socket", "http"] = "socket"
    """How Slack reaches the bot: "socket" needs `SLACK_BOT_TOKEN` and `SLACK_APP_TOKEN`; "http" needs
    `SLACK_SIGNING_SECRET` instead of the latter, and an `https://` address that Slack can reach.
    """
    identity: Literal["slack_id", "email"] = "slack_id"
    """How agents see who decided: "slack_id" as `user:slack/TEAM/USER`, "email" as `user:ADDRESS`."""
    fallback_channel: ChannelId | None = None
    """Where questions go if no route matches or the route's channel fails, and where the bot reports problems.
    """


class HttpSettings(SettingsTable):
    """The HTTP server: `/questions`, `/mcp`, `/clarifications`, `/aaep/v1`, `/livez`, `/readyz`, `/metrics`, `/openapi.json`; with
    `mode = "http"` also `/slack/events`.
    """

    listen: Annotated[str, AfterValidator(listen_address)] = "127.0.0.1:8787"
    """Where the HTTP server listens. Port 0 picks any free port."""
    origins: tuple[Annotated[str, AfterValidator(web_origin)], ...] = ()
    """Web pages that may call `/mcp` without a token, in addition to those that the bot's own machine serves."""

    @property
    def is_asked_for(self) -> bool:
        """Whether the configuration requires the server. At the default address it is only a convenience."""
        return "listen" in self.model_fields_set

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])


class LedgerSettings(SettingsTable):
    """Ledger files, which the bot shares with other programs; see docs/agents/agent-to-agent.md."""

    directory: FolderOrFalse = Path(".agentx/state/clarifications")
    """The folder for the ledger files, one `issue-N.json` for each issue. The bot keeps them in sync with the database, and
    imports what other programs add. false: no files. With PostgreSQL, there are none unless a folder is set.
    """
    workflows: ConfigPath = Path(".agentx/workflows")
    """The folder with the workflow files, which define which agent may ask which."""
    archive_after: Duration = timedelta(days=30)
    """Ledger files whose clarifications have all been closed for this long move to `archive/`."""
    mode: Annotated[int, BeforeValidator(file_mode)] = 0o600
    """Mode of new ledger files; "0660" if programs in the same group write them. Existing files keep theirs.
    """


class StorageSettings(SettingsTable):
    """The database with all questions and decisions: a SQLite file, or PostgreSQL."""

    path: ConfigPath = Path("clarify.db")
    """The SQLite file."""
    url_env: EnvironmentName | None = None
    """The variable with PostgreSQL's address. Replaces `path`."""
    listen_url_env: EnvironmentName | None = None
    """The variable with PostgreSQL's direct address, if `url_env` leads to a pooling proxy."""
    keep: Duration | None = None
    """How long closed questions and other finished things are kept; by default, for ever. The bot needs them to recognize
    duplicates.
    """


DEADLOCK_ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")
# AAEP's own, then others found in the wild.
ErrorCategory = Literal[
    "transient",
    "permanent",
    "requires_user",
    "unknown",
    "network",
    "timeout",
    "authorization",
    "invalid_input",
    "internal",
    "policy",
]
# Have a name of their own; any other category, or none, is `unknown`.
_APART = frozenset({"transient", "permanent", "requires_user", "unknown", "network", "timeout"})


class MonitorSettings(SettingsTable):
    """When people are reminded and paged."""

    sla: LongerThanNothing = timedelta(minutes=30)
    """Time until the bot reminds the answerers. After the same time again, it pages the person on call."""
    alarm: bool = True
    """Whether the bot wakes at the next due time even if no message arrives."""
    deadlock_order: tuple[str, ...] = DEADLOCK_ORDER
    """Agents, the most upstream one first. If they wait for each other, the first one listed keeps waiting.
    """
    page_errors: tuple[ErrorCategory, ...] = ("requires_user", "permanent", "unknown")
    """Categories of session errors that page the person on call. Categories that AAEP doesn't define count as
    `unknown`.
    """
    heartbeat_env: EnvironmentName | None = None
    """The variable with a URL that the bot calls while all is well, for a service that monitors the bot."""
    heartbeat_every: LongerThanNothing = timedelta(minutes=1)
    """How often the bot calls it."""

    @field_validator("deadlock_order")
    @classmethod
    def _told_apart(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < len(order) or not all(name.strip() for name in order):
            raise ValueError("expected each agent once, the most upstream first")
        return order

    def pages_error(self, category: str | None) -> bool:
        """Returns whether a session that ended with an error of this category pages on-call."""
        if category in self.page_errors:
            return True
        return category not in _APART and "unknown" in self.page_errors


class PacingSettings(SettingsTable):
    """How fast the bot posts."""

    posts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The most posts per second in each channel."""


class ShellTable(SettingsTable):
    """What the `clarify` command may do."""

    consent: bool = False
    """Whether `clarify answer` may accept approvals. If so, every program that runs as you can accept them."""


class CheckpointSettings(SettingsTable):
    """Where the bot posts the head of the log of decisions. Webhooks get it, too."""

    channel: ChannelId
    """The channel to post it in."""
    every: LongerThanNothing = timedelta(hours=24)
    """How often to post it, unless nothing was decided since."""


class TrustSettings(SettingsTable):
    """How decisions are signed, so that anyone can verify them."""

    key_env: EnvironmentName | None = None
    """The variable with the Ed25519 key that signs receipts: PKCS#8 PEM, or its base64. Without it, the bot creates `clarify-signing.pem` next to this file. Replicas need it."""
    issuer: Annotated[str, Field(pattern=r"^[!-~]{1,256}$")] | None = None
    """The signer's name in receipts (`iss`). Default: `urn:clarify:` and the installation's ID."""
    checkpoint: CheckpointSettings | None = None
    """Posts the head of the log regularly, so that you can detect a cut or rewritten history: `{channel = "C…", every = "24h"}`."""
    keep: Duration | None = None
    """How long the log keeps receipts and texts. Their digests stay for twice as long. Default: `keep` of `[storage]`."""


class CallbackSettings(SettingsTable):
    """The addresses that callbacks may call. A string instead of a table is its `url`."""

    url: Annotated[str, AfterValidator(_callback_pattern)]
    """The URL, with `*` for any characters in the path: `https://api.trigger.dev/*`. Scheme, host and port must match exactly;
    any query is allowed. `http://` is allowed only for `127.0.0.1` or `[::1]`.
    """
    private: bool = False
    """Whether its host may resolve to private addresses. The bot never calls loopback and link-local addresses by name."""

    @model_validator(mode="after")
    def _says_private(self) -> CallbackSettings:
        if self.pattern.literal == "private" and not self.private:
            raise ValueError("private: required to be true, as the host is a private address")
        return self

    @property
    def pattern(self) -> WebUrl:
        return callback_url(self.url)


def _callback_table(value: object) -> object:
    """Turns a URL alone into a table."""
    return {"url": value} if isinstance(value, str) else value


class ProducerSettings(SettingsTable):
    """Who may ask: a token, the agents that use it, and their limits; or an AAEP agent that the bot connects to. Agents on
    the bot's machine may ask without a token, unless the tables require one; see docs/agents/http.md.
    """

    name: Name
    """The producer's name. If a question names no agent, it is also the agent's name."""
    url: HttpUrl | None = None
    """The base URL of an AAEP agent that the bot connects to. Leave it out for agents that call the bot."""
    token_env: EnvironmentName | None = None
    """The variable with the bearer token: sent to `url`, or expected from agents that call the bot."""
    dialect: Literal["auto", "standard", "minimal", "push"] = "auto"
    """Which form of AAEP the agent at `url` speaks; see docs/agents/aaep.md."""
    agents: tuple[Annotated[str, AfterValidator(glob)], ...] | None = None
    """Patterns for the agent names that this producer may use; case matters. Its own name is always allowed. Without this
    key, any name is allowed.
    """
    max_open: Annotated[int, Field(ge=1)] = 100
    """How many of its questions may be open at once. The bot refuses any more with 429."""
    redact: tuple[Annotated[str, AfterValidator(regular_expression)], ...] = ()
    """Regular expressions. The bot replaces matching text in a question before it stores or shows anything, and refuses a
    `key` that matches.
    """

    callbacks: tuple[Annotated[CallbackSettings, BeforeValidator(_callback_table)], ...] = ()
    """Allowed addresses for the `callback_url` of its questions. Without this key, none is allowed."""
    callback_secret_env: EnvironmentName | None = None
    """The variable with the secret that signs callbacks: `whsec_…` or any text."""
    links: tuple[Annotated[str, AfterValidator(_link_pattern)], ...] = ()
    """The `https://` addresses in its agents' text that people can click; without this key, none. `*` is allowed only at the
    end, for everything below a folder. Host and port must match exactly; any query and fragment is allowed.
    """
    requested_by: Annotated[str, AfterValidator(person)] | None = None
    """The person its agents work for, by user ID or email address; see `four_eyes` of routes. Overrides `requested_by` in a
    question.
    """

    @model_validator(mode="after")
    def _fits_together(self) -> ProducerSettings:
        if self.url is None and self.dialect not in {"auto", "push"}:
            raise ValueError(
                f'url: required with dialect "{self.dialect}"; only a producer that pushes has none'
            )
        if self.url is not None and self.dialect == "push":
            raise ValueError('url: not used with dialect "push" (the producer connects to us); leave it out')
        if self.url is not None and self.token_env is not None:
            keep_token_private("url", self.url, self.token_env)
        return self

    @property
    def speaker(self) -> Speaker:
        """Which agents may speak through it."""
        return Speaker(self.name, self.agents)

    @property
    def pushes(self) -> bool:
        """Whether this producer connects to us instead of us to it."""
        return self.url is None


class ApprovalsSettings(SettingsTable):
    """How many different people must accept an action, by its risk. High risk never needs fewer people than low or medium."""

    low: Annotated[int, Field(ge=1, le=MOST_APPROVALS)] = 1
    """For low risk."""
    medium: Annotated[int, Field(ge=1, le=MOST_APPROVALS)] = 1
    """For medium risk."""
    high: Annotated[int, Field(ge=1, le=MOST_APPROVALS)] = 1
    """For high risk."""

    @property
    def by_risk(self) -> dict[Risk, int]:
        return {risk: getattr(self, risk) for risk in RISKS}

    @property
    def most(self) -> int:
        return max(self.by_risk.values())


class FourEyesSettings(SettingsTable):
    """When someone other than the person an agent works for must accept."""

    risk: Risk = "low"
    """For actions of this risk or higher."""
    claimed: bool = False
    """Whether a question may name the person its agent works for, if its producer has no `requested_by`."""

    @property
    def rule(self) -> tuple[Risk, FourEyes]:
        return self.risk, "claimed" if self.claimed else "pinned"


def _four_eyes(value: object) -> object:
    """Turns true into a table, and false into none."""
    return ({} if value else None) if isinstance(value, bool) else value


def _of_every_risk(value: object) -> object:
    """Turns one number into the same for all risks."""
    return dict.fromkeys(RISKS, value) if isinstance(value, int) and not isinstance(value, bool) else value


class RouteSettings(SettingsTable):
    """Where an agent's questions go, who may answer them, and who is paged. The first table that matches wins."""

    agent: Annotated[str, AfterValidator(glob)] | None = None
    """Pattern for the agent's name; case matters. Also matches its subagents; "Explore, for *" matches only subagents of
    that name. The first route that matches wins; a route without `agent` matches all others.
    """
    channel: ChannelId
    """Where its questions are posted. Invite the bot there."""
    answerers: tuple[str, ...] = ("members",)
    """Who may answer: `members` (full members who are in the channel), users (`U…`), user groups (`S…`).
    Guests, outsiders and bots may answer only if listed by ID.
    """
    verbosity: Literal["terse", "normal", "detailed"] = "normal"
    """How much detail a card shows."""
    on_call: str | None = None
    """The `[[on_call]]` policy to page."""
    approvals: Annotated[ApprovalsSettings, BeforeValidator(_of_every_risk)] = ApprovalsSettings()
    """How many different people must accept, by risk, or one number for all. Questions can require more,
    never fewer.
    """
    risk_at_least: Risk | None = None
    """The lowest risk that counts: a lower claim by an agent is raised to it."""
    four_eyes: Annotated[FourEyesSettings | None, BeforeValidator(_four_eyes)] = None
    """The person an agent works for (`requested_by` of its producer) can't approve what it asks: `true`, or a table."""
    reason: Reason = "never"
    """When **Accept** needs a reason of at least ten characters: never, for high risk, or always."""
    broadcast: Literal["all", "first"] = "all"
    """Which open questions of a session the channel shows in addition to the thread: all, or only the first. The others
    then appear there if they escalate.
    """

    @field_validator("answerers")
    @classmethod
    def _answerers(cls, answerers: tuple[str, ...]) -> tuple[str, ...]:
        if not answerers:
            raise ValueError('no one could answer; expected "members", users (U…) or user groups (S…)')
        for answerer in answerers:
            if answerer != "members" and not re.fullmatch(r"[UWS][A-Z0-9]+", answerer):
                raise ValueError(f'"{answerer}" is not "members", a user ID (U…) or a user group ID (S…)')
        return answerers

    @property
    def name(self) -> str:
        """Its name in figures: its pattern, or `*` without one."""
        return self.agent or "*"

    @property
    def mentioned(self) -> tuple[str, ...]:
        """Who is reminded of a question."""
        return self.answerers

    @property
    def answerer_users(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] in "UW")

    @property
    def answerer_groups(self) -> tuple[str, ...]:
        return tuple(answerer for answerer in self.answerers if answerer[0] == "S")


class PersonalRoute(RouteSettings):
    """A route for the questions that only one of its answerers may answer: an e-mail address or a Slack user id."""

    only: str

    @property
    def mentioned(self) -> tuple[str, ...]:
        return self.answerers if "@" in self.only else (self.only,)


class StepSettings(SettingsTable):
    """One step of an on-call policy."""

    after: Duration
    """When the step is due, counted from the escalation."""
    notify: Annotated[tuple[Annotated[str, AfterValidator(notify_target)], ...], Field(min_length=1)]
    """Who is paged: `thread`, `dm` (the people on call), `group:S…`, `channel:C…`, `apprise:VARIABLE`."""
    every: LongerThanNothing | None = None
    """Repeats the step until someone claims the question."""
    hours: Annotated[str, AfterValidator(hours_of_week)] | None = None
    """The hours in which the step runs; outside of them, it is skipped. Separate several with commas; they may span midnight."""


class RotationSettings(SettingsTable):
    """Users who take turns."""

    start: datetime
    """When the first shift begins, in `timezone`."""
    shift: LongerThanNothing
    """How long a shift lasts."""
    users: Annotated[tuple[UserId, ...], Field(min_length=1)]
    """Who takes turns, in this order."""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    """The time zone of the shifts, which change at the same local time all year."""

    @field_validator("start", mode="before")
    @classmethod
    def _midnight(cls, start: object) -> object:
        if isinstance(start, date) and not isinstance(start, datetime):
            return datetime(start.year, start.month, start.day)  # noqa: DTZ001  local time of `timezone`
        return start


_SOURCES = ("users", "group", "rotation")


class Source(NamedTuple):
    """Who is on call stands elsewhere: what `key` holds, for the integration `name`. `label`: what people are told it is."""

    key: str
    name: str
    label: str
    value: Any


class OnCallSettings(SettingsTable):
    """An on-call policy: who is on call, from exactly one source, and who is paged when."""

    name: Name
    """The policy's name, for `on_call` in routes."""
    users: Annotated[tuple[UserId, ...], Field(min_length=1)] | None = None
    """The people on call: all of them. With `ical_env` or `pagerduty`: the backup while the source names
    no one.
    """
    group: UserGroupId | None = None
    """Or a Slack user group."""
    rotation: RotationSettings | None = None
    """Or users who take turns."""
    source: InstanceOf[Source] | None = Field(default=None, validation_alias=OF_AN_INTEGRATION, exclude=True)
    """Or what an integration says."""
    people: dict[Annotated[str, Field(min_length=1)], UserId] = Field(default_factory=dict)
    """Slack users for names in the feed, if neither email address nor name finds them."""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    """For the steps' hours, and for times in a feed without a time zone."""
    pick: Literal["all", "first_present"] = "all"
    """With `group`: page everyone, or only the first person who is present."""
    take_timeout: LongerThanNothing = timedelta(minutes=15)
    """How long a claim stops the pages. If the question is then neither answered nor handed over, paging resumes."""
    steps: Annotated[tuple[StepSettings, ...], Field(min_length=1)] = (
        StepSettings(after=timedelta(0), notify=("thread", "dm"), every=timedelta(minutes=5)),
    )
    """Who is paged when: `after` counts from the escalation, `every` repeats the step until someone claims the question.
    Default: the question's thread and the people on call, every five minutes.
    """
    announce: bool = False
    """Whether the bot sends a DM to people whose shift begins or ends."""

    @field_validator("people")
    @classmethod
    def _told_apart(cls, people: dict[str, str]) -> dict[str, str]:
        seen: dict[str, str] = {}
        for name in people:
            if (earlier := seen.setdefault(name_key(name), name)) != name:
                raise ValueError(f'"{name}" is the same name as "{earlier}"; names must be unique')
        return people

    @model_validator(mode="after")
    def _one_source_and_ordered_steps(self) -> OnCallSettings:
        given = [key for key in _SOURCES if getattr(self, key) is not None]
        others = given
        if self.source is not None:
            others = [key for key in given if key != "users"] + [self.source.key]
            given = [*given, self.source.key]
        if len(others) != 1:
            known = ", ".join((*_SOURCES, *integrations.ON_CALL))
            raise ValueError(f"expected exactly one of {known}; got {', '.join(given) or 'none'}")
        if self.people and self.source is None:
            raise ValueError(f"people: only used with {' or '.join(integrations.ON_CALL)}; leave it out")
        if self.group is None and self.pick != "all":
            raise ValueError(f'pick: only used with group; "{self.pick}" picks among its members')
        if self.announce and self.pick != "all":
            raise ValueError(f'announce: not with pick = "{self.pick}": who is present changes all the time')
        for index, (earlier, later) in enumerate(zip(self.steps, self.steps[1:], strict=False), start=1):
            if later.after <= earlier.after:
                raise ValueError(f"steps[{index}].after: expected later than the step before it")
        return self

    @property
    def zone(self) -> str:
        """The time zone of this policy's people: its own, else its rotation's."""
        if self.rotation is None or "timezone" in self.model_fields_set:
            return self.timezone
        return self.rotation.timezone

    @property
    def named_users(self) -> tuple[str, ...]:
        """The users that the file names, without a user group's. With a feed they stand in."""
        return self.rotation.users if self.rotation is not None else self.users or ()

    @property
    def listed(self) -> frozenset[str]:
        """The users that the file names: they may be paged, and may then answer even if the route would not let them."""
        return frozenset((*self.named_users, *self.people.values()))

    @property
    def pagers(self) -> dict[str, str]:
        """The steps' environment variables with pagers' addresses, and the kind of each."""
        targets = [parse_target(target) for step in self.steps for target in step.notify]
        return {name: kind for kind, name in targets if kind not in IN_SLACK}


class ResponderSettings(SettingsTable):
    """How a role answers other agents: in exactly one of three ways."""

    command: Argv | None = None
    """A command that gets the question as JSON on its standard input and prints the answer."""
    http: HttpUrl | None = None
    """Or an endpoint that gets the same JSON by POST, and returns `{"answer": …}` or text."""
    people: Places | None = None
    """Or people: one channel, user groups, users. With only a channel, its members answer."""
    token_env: EnvironmentName | None = None
    """The variable with the bearer token for `http`."""
    timeout: LongerThanNothing = timedelta(minutes=2)
    """The time limit for each attempt. If it fails, the bot retries once after 30 s, then pages the person on call."""

    @model_validator(mode="after")
    def _one_way(self) -> ResponderSettings:
        given = [key for key in ("command", "http", "people") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one of command, http, people; got {', '.join(given) or 'none'}"
            )
        if self.token_env is not None and self.http is None:
            raise ValueError("token_env: only sent to an http responder; leave it out")
        if self.token_env is not None and self.http is not None:
            keep_token_private("http", self.http, self.token_env)
        return self

    @property
    def kind(self) -> Literal["command", "http", "people"]:
        """Which of the three ways it is."""
        if self.people is not None:
            return "people"
        return "command" if self.command is not None else "http"

    @property
    def channel(self) -> str | None:
        """Where people are asked; None: where the agent's own questions go."""
        return next((each for each in self.people or () if each[0] in "CG"), None)

    @property
    def answerers(self) -> tuple[str, ...]:
        """Who answers, as a route's `answerers`."""
        return tuple(each for each in self.people or () if each[0] in "SUW") or ("members",)


class Configuration(SettingsTable):
    """The whole file."""

    slack: SlackSettings
    http: HttpSettings
    ledger: LedgerSettings
    storage: StorageSettings
    monitor: MonitorSettings
    pacing: PacingSettings
    shell: ShellTable
    trust: TrustSettings
    producers: tuple[ProducerSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    on_call: tuple[OnCallSettings, ...] = ()
    identities: dict[UserId, Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        default_factory=dict
    )
    responders: dict[Role, ResponderSettings] = Field(default_factory=dict)

    @property
    def state_folder(self) -> Path:
        """The folder with files for other programs: that of the ledgers' folder, or where it would be."""
        folder = self.ledger.directory or self.ledger.workflows.parent / "state" / "clarifications"
        return folder.parent

    @property
    def ledger_folder(self) -> Path | None:
        """The folder with the ledger files; None: there are none."""
        is_wanted = self.storage.url_env is None or "directory" in self.ledger.model_fields_set
        return self.ledger.directory or None if is_wanted else None

    @property
    def roles_of_people(self) -> list[str]:
        """The roles that people answer for."""
        return [role for role, each in self.responders.items() if each.kind == "people"]

    def responder_for(self, role: str) -> ResponderSettings | None:
        """Returns how a role answers, ignoring case and spelling variants of its name; None if it is not configured."""
        key = agent_key(role)
        return next((each for name, each in self.responders.items() if agent_key(name) == key), None)

    def requester_of(self, producer: str | None) -> Requester | None:
        """Returns whom a producer's agents work for, as configured."""
        found = (each.requested_by for each in self.producers if each.name == producer)
        return next((Requester(by=each, pinned=True) for each in found if each is not None), None)

    def route_for(self, agent_id: str, to: str = HUMAN, person: str = "") -> RouteSettings:
        """Returns where a question goes and who answers it: for a role that people answer for, those people.
        `person`: the only one of them who may answer.
        """
        route = self._route_of(agent_id)
        if person:
            route = PersonalRoute(**dict(route), only=person)
        responder = self.responder_for(to) if to != HUMAN else None
        if responder is None or responder.kind != "people":
            return route
        return route.model_copy(
            update={"channel": responder.channel or route.channel, "answerers": responder.answerers}
        )

    def _route_of(self, agent_id: str) -> RouteSettings:
        """Returns the first route whose glob matches (case counts), else the default, else the fallback channel."""
        named = (each for each in self.routes if each.agent and is_named(agent_id, each.agent))
        default = (each for each in self.routes if each.agent is None)
        if (route := next(chain(named, default), None)) is not None:
            return route
        if self.slack.fallback_channel is None:
            raise LookupError(
                "neither a default route nor slack.fallback_channel: refused when the file was read"
            )
        return RouteSettings(channel=self.slack.fallback_channel)


class ShellSettings(Configuration):
    """The file, where it is (`file`: None without one), and the secrets that it names, as far as they are set: what the shell
    needs.

    `by_variable`: the secrets, by environment variable. Some are sent to responders; commands never see them. Never written
    anywhere: `SecretStr` prints stars. `folder`: the base of relative paths.
    """

    file: Path | None
    folder: Path
    by_variable: dict[str, SecretStr]

    @property
    def database_url(self) -> str | None:
        """PostgreSQL's address, which may contain a password; None: SQLite and files.

        Raises:
            ConfigurationError: its variable is not set.
        """
        if (variable := self.storage.url_env) is None:
            return None
        if variable not in self.by_variable:
            problem = f"storage.url_env: {variable} is not set in the environment"
            raise ConfigurationError([f"{self.file}: {problem}"])
        return self.by_variable[variable].get_secret_value()


class Settings(ShellSettings):
    """What the bot needs: all secrets of the file are set.

    `source`: the file's text. `integrations`: what the tables of integrations hold, by name; `broken_integrations`: why others
    cannot be used.
    """

    file: Path
    source: str
    slack_api_url: str
    integrations: Mapping[str, Any]
    broken_integrations: Mapping[str, str]

    @property
    def bot_token(self) -> SecretStr:
        return self.by_variable["SLACK_BOT_TOKEN"]

    @property
    def app_token(self) -> SecretStr | None:
        return self.by_variable.get("SLACK_APP_TOKEN")

    @property
    def signing_secret(self) -> SecretStr | None:
        return self.by_variable.get("SLACK_SIGNING_SECRET")

    def secret(self, variable: str) -> str:
        """Returns the secret in an environment variable that the file names."""
        return self.by_variable[variable].get_secret_value()

    @property
    def channels_of_integrations(self) -> list[tuple[tuple[str, str], str]]:
        """The channels in which integrations post, each with its key."""
        found = ((name, integrations.load(name).channels(table)) for name, table in self.integrations.items())
        return [((name, key), channel) for name, channels in found for key, channel in channels.items()]

    def producer_token(self, producer: ProducerSettings) -> SecretStr | None:
        """Returns a producer's bearer token, if it has one."""
        return None if producer.token_env is None else self.by_variable[producer.token_env]

    @property
    def listen_url(self) -> str | None:
        """The address for listening to PostgreSQL's notices."""
        variable = self.storage.listen_url_env
        return self.database_url if variable is None else self.secret(variable)

    @property
    def heartbeat_url(self) -> SecretStr | None:
        """The URL to call while all is well (may contain a secret), if there is one."""
        variable = self.monitor.heartbeat_env
        return None if variable is None else self.by_variable[variable]

    @property
    def must_listen(self) -> bool:
        """Whether the configuration requires the HTTP server; otherwise it is only a convenience."""
        pushes = any(producer.pushes for producer in self.producers)
        return self.http.is_asked_for or self.slack.mode == "http" or pushes

    def on_call_named(self, name: str) -> OnCallSettings:
        return next(on_call for on_call in self.on_call if on_call.name == name)

    def policy(self, name: str | None) -> OnCallSettings | None:
        """Returns an on-call policy, or None if it is no longer configured."""
        return next((each for each in self.on_call if each.name == name), None)
