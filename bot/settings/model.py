"""The shape of `clarify.toml`: one frozen model per table, every key and value checked.

Durations are written "30m", "1h30m", "0s" and read as `timedelta`. Relative paths count from the
folder of the configuration file, whether it was named or found.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import regex
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from core.approvals import MOST, RISKS, Risk
from core.clarification import HUMAN, agent_key
from core.hours import Hours
from core.workflow import Speaker

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
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


def channel_id(value: str) -> str:
    if not re.fullmatch(r"[CG][A-Z0-9]+", value):
        raise ValueError(
            f'"{value}" is not a channel ID; expected C… or G… (Slack shows it in the channel\'s details)'
        )
    return value


def user_id(value: str) -> str:
    if not re.fullmatch(r"[UW][A-Z0-9]+", value):
        raise ValueError(
            f'"{value}" is not a user ID; expected U… or W… (Slack shows it in the profile, "Copy member ID")'
        )
    return value


def user_group_id(value: str) -> str:
    if not re.fullmatch(r"S[A-Z0-9]+", value):
        raise ValueError(f'"{value}" is not a user group ID; expected S…')
    return value


def pagerduty_id(value: str) -> str:
    if not re.fullmatch(r"[A-Z0-9]{1,40}", value):
        raise ValueError(
            f'"{value}" is not a schedule ID; expected P… (the end of the schedule\'s web address)'
        )
    return value


def environment_name(value: str) -> str:
    """Never repeats the value: it may be the secret itself, put in the wrong place."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError(
            "expected the name of an environment variable (capital letters, digits, _), not the secret itself"
        )
    return value


def short_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("expected 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit")
    return value


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


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEKLY = re.compile(rf"({'|'.join(_WEEKDAYS)}) ([01]\d|2[0-3]):([0-5]\d)")


def weekly(value: str) -> str:
    value = value.capitalize()
    if not _WEEKLY.fullmatch(value):
        raise ValueError('expected a day and a time, such as "Mon 09:00"')
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


PAGERS = ("apprise",)
"""Kinds of pagers outside Slack; a step names one as `KIND:VARIABLE`, the environment variable with its address. For a new
kind add its name here, how its address is judged to `bot.settings.environment`, how it sends to `bot.oncall.outside`.
"""


def parse_target(value: str) -> tuple[str, str]:
    """The kind and the name of a step's target: "apprise:PAGER" → ("apprise", "PAGER"), "dm" → ("dm", "")."""
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
    elif kind in PAGERS:
        environment_name(rest)
    else:
        outside = " or ".join(f'"{each}:VARIABLE"' for each in PAGERS)
        raise ValueError(f'expected "thread", "dm", "group:S…", "channel:C…" or {outside}')
    return value


def http_url(value: str) -> str:
    """Return the URL without a trailing slash. Its text is not repeated: it may hold a password."""
    try:
        parts = urlsplit(value)
        port_fits = parts.port is None or parts.port > 0
    except ValueError as error:
        raise ValueError("expected a base URL such as https://agents.example.com:8080") from error
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or not port_fits
        or re.search(r"\s", value)
    ):
        raise ValueError("expected a base URL that starts with http:// or https:// and has a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or password (use token_env for a secret)")
    if parts.query or parts.fragment:
        raise ValueError("expected a base URL without ? and #")
    return value.rstrip("/")


def web_origin(value: str) -> str:
    """What browsers send as `Origin`: scheme, host and port alone, in lower case."""
    parts = urlsplit(http_url(value))
    origin = f"{parts.scheme}://{parts.netloc}"
    if value != origin.lower():
        raise ValueError("expected an origin such as https://agents.example.com: no path, in lower case")
    return value


def is_web_address(value: str) -> bool:
    """Whether it begins with http:// or https:// and has a host; it may have a user, a password or a query."""
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def name_key(name: str) -> str:
    """The same for a name however its letters are stored, in any case and spacing. Accents count: they tell people apart."""
    return unicodedata.normalize("NFC", " ".join(unicodedata.normalize("NFC", name).split()).lower())


def feed_url(value: str) -> str | None:
    """The address to fetch a calendar's feed from; None: it is none, or what it says would be read by others on its way."""
    url = re.sub(r"^webcals?://", "https://", value)
    if not is_web_address(url) or re.search(r"\s", url):
        return None
    return url if url.startswith("https://") or is_loopback(url_host(url)) else None


def hook_url(value: str) -> str:
    """A web address; its text is not repeated, since its path or query is often the secret."""
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
    """Absolute, counted from the folder in the validation context (`folder`), or as it is without one."""
    folder = (info.context or {}).get("folder")
    path = value.expanduser()
    return path if folder is None else Path(folder) / path


def _argv(value: object) -> object:
    """A command as a shell would split it; no shell runs it."""
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


_LOGIN = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})"
_REPO = re.compile(rf"{_LOGIN}/(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,100}}")
_MENTION = re.compile(rf"@{_LOGIN}(?:/{_LOGIN})?")


def _repo(value: str) -> str:
    if not _REPO.fullmatch(value):
        raise ValueError('expected "owner/name", as in the address of the repository')
    return value


def _mention(value: str) -> str:
    if not _MENTION.fullmatch(value):
        raise ValueError('expected "@user" or "@organisation/team"')
    return value


def _keep_token_private(key: str, url: str, variable: str) -> None:
    """Refuse to send the token of `variable` to another host without encryption."""
    host = url_host(url)
    if url.startswith("http://") and not is_loopback(host):
        raise ValueError(
            f"{key}: would send the token of {variable} unencrypted to {host}; expected https://, or a loopback host"
        )


Duration = Annotated[timedelta, BeforeValidator(duration)]
LongerThanNothing = Annotated[Duration, Field(gt=timedelta(0))]
ConfigPath = Annotated[Path, AfterValidator(resolved_path)]
ChannelId = Annotated[str, AfterValidator(channel_id)]
UserId = Annotated[str, AfterValidator(user_id)]
UserGroupId = Annotated[str, AfterValidator(user_group_id)]
EnvironmentName = Annotated[str, AfterValidator(environment_name)]
HttpUrl = Annotated[str, AfterValidator(http_url)]
Name = Annotated[str, AfterValidator(short_name)]
Role = Annotated[str, AfterValidator(role)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), Field(min_length=1)]
Places = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1), AfterValidator(_places)]


class Table(BaseModel):
    """A table of the file: unknown keys refused, never changed after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class SlackSettings(Table):
    mode: Literal["socket", "http"] = "socket"
    identity: Literal["slack_id", "email"] = "slack_id"
    fallback_channel: ChannelId | None = None


class HttpSettings(Table):
    """`origins`: web pages that may call `/mcp`."""

    listen: Annotated[str, AfterValidator(listen_address)] = "127.0.0.1:8787"
    origins: tuple[Annotated[str, AfterValidator(web_origin)], ...] = ()

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


class LedgerSettings(Table):
    """`mode`: of new ledgers."""

    directory: ConfigPath = Path(".agentx/state/clarifications")
    workflows: ConfigPath = Path(".agentx/workflows")
    archive_after: Duration = timedelta(days=30)
    mode: Annotated[int, BeforeValidator(file_mode)] = 0o600


class StorageSettings(Table):
    """`keep`: how long rows of finished things stay; None: for ever. Duplicates are recognized by them.

    `url_env` names the variable with PostgreSQL's address, which then replaces `path` and the folder of the ledgers;
    `listen_url_env` the one with its direct address, where a pooling proxy stands in between.
    """

    path: ConfigPath = Path("clarify.db")
    url_env: EnvironmentName | None = None
    listen_url_env: EnvironmentName | None = None
    keep: Duration | None = None


DEADLOCK_ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")
# AAEP's own, then those found in the wild.
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
# They name themselves; any other category, and none, is `unknown`.
_APART = frozenset({"transient", "permanent", "requires_user", "unknown", "network", "timeout"})


class MonitorSettings(Table):
    """`heartbeat_env` names a variable whose value, a URL, is called every `heartbeat_every` while all is well."""

    sla: LongerThanNothing = timedelta(minutes=30)
    alarm: bool = True
    deadlock_order: tuple[str, ...] = DEADLOCK_ORDER
    page_errors: tuple[ErrorCategory, ...] = ("requires_user", "permanent", "unknown")
    heartbeat_env: EnvironmentName | None = None
    heartbeat_every: LongerThanNothing = timedelta(minutes=1)

    @field_validator("deadlock_order")
    @classmethod
    def _told_apart(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < len(order) or not all(name.strip() for name in order):
            raise ValueError("expected each agent once, the most upstream first")
        return order

    def pages_error(self, category: str | None) -> bool:
        """Whether a session that ended with an error of this category pages on-call."""
        if category in self.page_errors:
            return True
        return category not in _APART and "unknown" in self.page_errors


class PacingSettings(Table):
    posts_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0


class ShellTable(Table):
    """`consent`: whether `clarify answer` may accept a confirmation."""

    consent: bool = False


class ProducerSettings(Table):
    """A producer. `max_open`: how many questions may wait that it asked directly; `redact`: what is replaced in those before
    anything is stored or shown.
    """

    name: Name
    url: HttpUrl | None = None
    token_env: EnvironmentName | None = None
    dialect: Literal["auto", "standard", "minimal", "push"] = "auto"
    agents: tuple[Annotated[str, AfterValidator(glob)], ...] | None = None
    max_open: Annotated[int, Field(ge=1)] = 100
    redact: tuple[Annotated[str, AfterValidator(regular_expression)], ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> ProducerSettings:
        if self.url is None and self.dialect not in {"auto", "push"}:
            raise ValueError(
                f'url: required with dialect "{self.dialect}"; only a producer that pushes has none'
            )
        if self.url is not None and self.dialect == "push":
            raise ValueError('url: not used with dialect "push" (the producer connects to us); leave it out')
        if self.url is not None and self.token_env is not None:
            _keep_token_private("url", self.url, self.token_env)
        return self

    @property
    def speaker(self) -> Speaker:
        """Which agents may speak through it."""
        return Speaker(self.name, self.agents)

    @property
    def pushes(self) -> bool:
        """Whether this producer connects to us instead of us to it."""
        return self.url is None


class ApprovalsSettings(Table):
    """How many different people have to accept an action, by its risk. One of high risk needs no fewer than others."""

    low: Annotated[int, Field(ge=1, le=MOST)] = 1
    medium: Annotated[int, Field(ge=1, le=MOST)] = 1
    high: Annotated[int, Field(ge=1, le=MOST)] = 1

    @property
    def by_risk(self) -> dict[Risk, int]:
        return {risk: getattr(self, risk) for risk in RISKS}

    @property
    def most(self) -> int:
        return max(self.by_risk.values())


def _of_every_risk(value: object) -> object:
    """One number for all."""
    return dict.fromkeys(RISKS, value) if isinstance(value, int) and not isinstance(value, bool) else value


class RouteSettings(Table):
    """Where questions of an agent go. `approvals` and `risk_at_least` are lower bounds of what agents say.

    `broadcast`: which questions of a session are shown in the channel, too, beside its thread: all that are open, or
    only the first, the others once they escalate.
    """

    agent: Annotated[str, AfterValidator(glob)] | None = None
    channel: ChannelId
    answerers: tuple[str, ...] = ("members",)
    verbosity: Literal["terse", "normal", "detailed"] = "normal"
    on_call: str | None = None
    approvals: Annotated[ApprovalsSettings, BeforeValidator(_of_every_risk)] = ApprovalsSettings()
    risk_at_least: Risk | None = None
    broadcast: Literal["all", "first"] = "all"

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
        """What figures call it: its pattern, and `*` without one, as then it takes every agent."""
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


class StepSettings(Table):
    """One step of the escalation policy; `after` counts from the escalation. `hours`: outside of them it is passed over."""

    after: Duration
    notify: Annotated[tuple[Annotated[str, AfterValidator(notify_target)], ...], Field(min_length=1)]
    every: LongerThanNothing | None = None
    hours: Annotated[str, AfterValidator(hours_of_week)] | None = None


class RotationSettings(Table):
    """Whose turn it is: `users` take turns of `shift` length from `start`, in `timezone`."""

    start: datetime
    shift: LongerThanNothing
    users: Annotated[tuple[UserId, ...], Field(min_length=1)]
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"

    @field_validator("start", mode="before")
    @classmethod
    def _midnight(cls, start: object) -> object:
        if isinstance(start, date) and not isinstance(start, datetime):
            return datetime(start.year, start.month, start.day)  # noqa: DTZ001  local time of `timezone`
        return start


_SOURCES = ("users", "group", "rotation", "ical_env", "pagerduty")


class PagerDutySettings(Table):
    """A schedule there. `token_env` names the variable with a token that may read it; `api_url` is another one in Europe."""

    schedule: Annotated[str, AfterValidator(pagerduty_id)]
    token_env: EnvironmentName
    api_url: HttpUrl = "https://api.pagerduty.com"

    @model_validator(mode="after")
    def _token_stays_private(self) -> PagerDutySettings:
        _keep_token_private("api_url", self.api_url, self.token_env)
        return self


class OnCallSettings(Table):
    """Whose turn it is, from exactly one source, and the steps.

    `ical_env` names the variable with the address of an iCalendar feed; with it, or with `pagerduty`, `users` stand in
    while the source names nobody, and `people` says who in Slack somebody is whom e-mail address and name do not find.
    `timezone`: of the steps' hours, and of what the source says without one. `pick`: of a group, everybody or the first who is present.
    `take_timeout`: taken, but neither answered nor handed over for this long, paging resumes.
    """

    name: Name
    users: Annotated[tuple[UserId, ...], Field(min_length=1)] | None = None
    group: UserGroupId | None = None
    rotation: RotationSettings | None = None
    ical_env: EnvironmentName | None = None
    pagerduty: PagerDutySettings | None = None
    people: dict[Annotated[str, Field(min_length=1)], UserId] = Field(default_factory=dict)
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    pick: Literal["all", "first_present"] = "all"
    take_timeout: LongerThanNothing = timedelta(minutes=15)
    steps: Annotated[tuple[StepSettings, ...], Field(min_length=1)] = (
        StepSettings(after=timedelta(0), notify=("thread", "dm"), every=timedelta(minutes=5)),
    )

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
        others = [key for key in given if key != "users"] if self.feed is not None else given
        if len(others) != 1:
            raise ValueError(
                f"expected exactly one of {', '.join(_SOURCES)}; got {', '.join(given) or 'none'}"
            )
        if self.people and self.feed is None:
            raise ValueError("people: only used with ical_env or pagerduty; leave it out")
        if self.group is None and self.pick != "all":
            raise ValueError(f'pick: only used with group; "{self.pick}" picks among its members')
        for index, (earlier, later) in enumerate(zip(self.steps, self.steps[1:], strict=False), start=1):
            if later.after <= earlier.after:
                raise ValueError(f"steps[{index}].after: expected later than the step before it")
        return self

    @property
    def feed(self) -> Literal["calendar", "PagerDuty"] | None:
        """Where it is kept who is on call, if somewhere else; None: it is in the file, or in Slack."""
        if self.ical_env is not None:
            return "calendar"
        return "PagerDuty" if self.pagerduty is not None else None

    @property
    def feed_env(self) -> str | None:
        """The variable with the feed's address, or with the token for it."""
        return self.pagerduty.token_env if self.pagerduty is not None else self.ical_env

    @property
    def zone(self) -> str:
        """The time zone that people of this policy live by: its own, else its rotation's."""
        if self.rotation is None or "timezone" in self.model_fields_set:
            return self.timezone
        return self.rotation.timezone

    @property
    def named_users(self) -> tuple[str, ...]:
        """The users that the file names, without those of a user group. With a feed they stand in."""
        return self.rotation.users if self.rotation is not None else self.users or ()

    @property
    def listed(self) -> frozenset[str]:
        """The users that the file names one by one: they may be paged, and then answer, whoever they are."""
        return frozenset((*self.named_users, *self.people.values()))

    @property
    def pagers(self) -> dict[str, str]:
        """The environment variables with pagers' addresses that the steps name, and of which kind each is."""
        targets = [parse_target(target) for step in self.steps for target in step.notify]
        return {name: kind for kind, name in targets if kind in PAGERS}


Event = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
]


class WebhookSettings(Table):
    """One webhook; `secret_env` names the variable with the signing secret. `events`: all five, or some of them."""

    url: Annotated[str, AfterValidator(hook_url)]
    secret_env: EnvironmentName
    events: tuple[Event, ...] = ()


class ResponderSettings(Table):
    """How a role answers: in exactly one of three ways.

    `command`: run for each question, which it gets as JSON on its standard input. `http`: a URL that each question is
    posted to, with the bearer token of `token_env`. `people`: a channel, user groups and users in Slack; with a channel
    alone its members answer, without one the question goes to the channel of the agent that asks. `timeout`: of one try
    of a command or an endpoint.
    """

    model_config = ConfigDict(populate_by_name=True)

    command: Argv | None = None
    http: HttpUrl | None = None
    people: Places | None = None
    token_env: EnvironmentName | None = None
    timeout: LongerThanNothing = Field(
        default=timedelta(minutes=2), validation_alias=AliasChoices("timeout", "time_limit")
    )

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
            _keep_token_private("http", self.http, self.token_env)
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


class GithubSettings(Table):
    """The repository to mirror to. `token_env` names the variable with a token that may write issues of `repo`.

    `mention`: whom to mention in an escalation. `comments_per_second` limits all writes there.
    """

    model_config = ConfigDict(populate_by_name=True)

    repo: Annotated[str, AfterValidator(_repo)] = Field(validation_alias=AliasChoices("repo", "repository"))
    token_env: EnvironmentName
    api_url: HttpUrl = "https://api.github.com"
    mention: Annotated[str, AfterValidator(_mention)] | None = None
    comments_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _token_stays_private(self) -> GithubSettings:
        _keep_token_private("api_url", self.api_url, self.token_env)
        return self


class DigestSettings(Table):
    """A digest that is posted once a week, `every` "Mon 09:00" for example."""

    channel: ChannelId
    every: Annotated[str, AfterValidator(weekly)] = "Mon 09:00"
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"

    def last_due(self, now: datetime) -> datetime:
        """The latest moment, not after `now`, at which it was due; in `timezone`, as its week is that of this zone.

        A time that spring leaves out is an hour later, one that comes twice in autumn is the first.
        """
        day, _, at = self.every.partition(" ")
        here = now.astimezone(ZoneInfo(self.timezone))
        date_ = here.date() - timedelta(days=(here.weekday() - _WEEKDAYS.index(day)) % 7)
        due = datetime.combine(date_, time.fromisoformat(at), here.tzinfo)
        return due if due.astimezone(UTC) <= now else due - timedelta(days=7)  # by the wall clock


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
    digest: DigestSettings | None = None
    responders: dict[Role, ResponderSettings] = Field(default_factory=dict)
    github: GithubSettings | None = None

    @property
    def status_file(self) -> Path:
        """Where agents and others read what each agent does: beside the ledgers' folder."""
        return self.ledger.directory.parent / "agent-status.json"

    @property
    def roles_of_people(self) -> list[str]:
        """The roles that people answer for."""
        return [role for role, each in self.responders.items() if each.kind == "people"]

    def responder_for(self, role: str) -> ResponderSettings | None:
        """How a role answers, however its name is spelled; None: nobody is configured to."""
        if role in self.responders:
            return self.responders[role]
        key = agent_key(role)
        return next((each for name, each in self.responders.items() if agent_key(name) == key), None)

    def route_for(self, agent_id: str, to: str = HUMAN, person: str = "") -> RouteSettings:
        """Where an agent's question goes, and who answers it there; one put to people who answer for a role: to them.
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


class Secrets(Table):
    """The secrets from the environment. Never written anywhere: `SecretStr` shows as stars."""

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
    def database_url(self) -> str | None:
        """PostgreSQL's address, which may hold a password; None: SQLite and files."""
        variable = self.storage.url_env
        return None if variable is None else self.secrets.by_variable[variable].get_secret_value()

    @property
    def listen_url(self) -> str | None:
        """Where its notices are heard."""
        variable = self.storage.listen_url_env
        return (
            self.database_url if variable is None else self.secrets.by_variable[variable].get_secret_value()
        )

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


class ShellSettings(Configuration):
    """What the shell needs: the file, and the secrets that are there. `file` is None where there is none.

    `by_variable`: the secrets of all variables that the file names, as far as they are set: some are sent to
    responders, and no command gets to see any. `folder`: what relative paths count from.
    """

    file: Path | None
    folder: Path
    by_variable: Mapping[str, SecretStr]
