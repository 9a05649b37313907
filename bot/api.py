"""What an integration may use of the bot: nothing else of it is promised, and nothing else may be imported, but `core`.

An integration tells another system of clarifications. It is a package with one `Integration`; `docs/develop/integrations.md`
builds one from nothing. What it raises is logged and told by `clarify check` and `/readyz`, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from bot.ask.questions import Asked
from bot.checks import CheckResult, first_of, right, warning, wrong
from bot.commands.grammar import SlackCommand
from bot.commands.slackhost import Sight, SlackHost
from bot.errors import StorageUnavailable
from bot.feed import Consumer, Mirror
from bot.http import (
    ANSWER_TIMEOUT,
    NETWORK,
    NOT_SENT,
    HttpAnswer,
    HttpClient,
    clean,
    in_own_thread,
    json_body,
    retry_after,
    words,
)
from bot.intake.earlier import NOT_EMPTY, Earlier
from bot.intake.entries import NOT_NOW, Counted
from bot.intake.telling import Teller
from bot.mailing import EventFollower, Follower, Host, Message, Post, outcome_of
from bot.oncall.outside import OutsidePager, PagerText
from bot.oncall.source import AHEAD, BEFORE, OnCallSource, Shift, SourceError, Timetable, whole
from bot.people.access import Person
from bot.retention.local import Erased, LocalFiles
from bot.settings.environment import read_environment, signing_key
from bot.settings.model import (
    ChannelId,
    Configuration,
    Duration,
    EnvironmentName,
    HttpUrl,
    Name,
    SettingsTable,
    WebAddress,
    is_loopback,
    is_web_address,
    keep_token_private,
    time_zone,
    url_host,
)
from bot.show.outbox import Backoff, Delivered, GivenUp, Outbox, Outcome, RetryLater
from bot.show.posting import signature
from bot.storage.changes import Position, RecordChange, following
from bot.storage.outside import reading
from bot.storage.store import Acting, Store, until_stored
from bot.storage.tx import Tx
from bot.views.blockkit import Context, Draft, Header, Section, Words, code, fixed, plain_words
from bot.views.blockkit import Part as Block
from bot.views.inert import (
    as_name,
    as_value,
    clip,
    escaped_line,
    is_user,
    line,
    mention,
    named,
    plain,
    size,
    split_live,
)
from bot.views.notices import listed
from bot.views.numerals import in_words
from bot.views.tables import Cell, Column, Table
from clarify import strict_json
from core.clarification import Clarification
from core.clock import Clock
from core.ledger import Ledger
from core.records import Subject
from core.summary import Seen
from core.workflow import Speaker

__all__ = [
    "AHEAD",
    "ANSWER_TIMEOUT",
    "BEFORE",
    "NETWORK",
    "NOT_EMPTY",
    "NOT_NOW",
    "NOT_SENT",
    "Acting",
    "Asked",
    "Backoff",
    "Block",
    "Cell",
    "ChannelId",
    "CheckResult",
    "Column",
    "Configuration",
    "Consumer",
    "Context",
    "Counted",
    "Delivered",
    "Draft",
    "Duration",
    "Earlier",
    "EnvironmentName",
    "Erased",
    "EventFollower",
    "Figures",
    "Follower",
    "GivenUp",
    "Header",
    "Host",
    "HttpAnswer",
    "HttpClient",
    "HttpUrl",
    "Integration",
    "Job",
    "Known",
    "LocalFiles",
    "Message",
    "Mirror",
    "Name",
    "OnCall",
    "OnCallSource",
    "Outbox",
    "Outcome",
    "OutsidePager",
    "PagerText",
    "Paging",
    "Person",
    "Position",
    "Post",
    "RecordChange",
    "Report",
    "Request",
    "Response",
    "RetryLater",
    "Route",
    "RouteRefused",
    "Secrets",
    "Section",
    "SettingsTable",
    "ShellHost",
    "Shift",
    "Sight",
    "SlackCommand",
    "SlackHost",
    "SourceError",
    "StorageUnavailable",
    "Store",
    "Subject",
    "Table",
    "Tables",
    "Teller",
    "Timetable",
    "Tx",
    "WebAddress",
    "Words",
    "as_name",
    "as_value",
    "clean",
    "clip",
    "code",
    "escaped_line",
    "first_of",
    "fixed",
    "following",
    "in_own_thread",
    "in_words",
    "is_loopback",
    "is_user",
    "is_web_address",
    "json_body",
    "keep_token_private",
    "line",
    "listed",
    "mention",
    "named",
    "outcome_of",
    "plain",
    "plain_words",
    "read_environment",
    "reading",
    "retry_after",
    "right",
    "signature",
    "signing_key",
    "size",
    "split_live",
    "strict_json",
    "time_zone",
    "until_stored",
    "url_host",
    "warning",
    "whole",
    "words",
    "wrong",
]

Secrets = Callable[[str], str]
"""Returns the secret in an environment variable that the integration's settings name."""


@dataclass(frozen=True, kw_only=True)
class OnCall:
    """Says who is on call, for the policies of `[[on_call]]` that have its key.

    Args:
        settings: what the key holds.
        about: what the key holds, for the documentation.
        label: what messages call it, such as "calendar".
        source: makes the source of one policy, from what the key holds, the policy's time zone, and the secrets.
        fits: whether the value of the variable that the key names can be used, if the key ends in `_env`, and what is expected.
    """

    settings: Any
    about: str
    label: str
    source: Callable[[Any, str, Secrets], OnCallSource]
    fits: tuple[Callable[[str], bool], str] = (bool, "not be empty")


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Pages people outside Slack, for the steps of policies with `notify = "NAME:VARIABLE"`.

    Args:
        service: returns the service that the value of a variable leads to, such as "PagerDuty"; None: to none. Sends nothing.
        pager: makes the pager of a variable, from its value.
    """

    service: Callable[[str], str | None]
    pager: Callable[[str], OutsidePager]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a producer that may call the bot, as it does for `/questions`. `path`: the values of the names in the route's
    path; `ends`: returns when the server stops, or the caller hangs up: then nothing may wait for it any more.
    """

    speaker: Speaker
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    ends: Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Response:
    """What a request gets: a status of HTTP, and JSON. What a route raises of `core.errors` is answered as on other routes, and so
    is RouteRefused.
    """

    status: int
    json: object


class RouteRefused(Exception):
    """A route refuses a request: with a status of HTTP, a stable code for programs, and words for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Route:
    """Answers requests with a method at a path below the integration's name: `/NAME/things/{thing}`."""

    method: str
    path: str
    answer: Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Figures:
    """A figure of an integration in `/metrics`, as `clarify_INTEGRATION_NAME`: what it is about, the names of its labels, and its
    present value by the labels' values. Labels must hold nothing that agents or people say.
    """

    name: str
    about: str
    labels: Sequence[str]
    values: Mapping[tuple[str, ...], float]


Job = Callable[[datetime], Awaitable[datetime]]
"""Does what is due at a time, and returns when to call it again. The bot calls it sooner too, after a start, a change of the
leader, or a failure: so it looks at what it did before. With replicas, the leader alone calls it.
"""


Known = Callable[[], Iterable[Seen]]
"""Returns all open clarifications; call it in a thread."""


class Watcher(Protocol):
    """Keeps something in step with the clarifications: what it did is there to be read, so it remembers nothing between runs.
    The bot that leads runs it; so does a command of the shell that changes what agents ask each other while no bot runs.
    """

    def record_changed(self, record: Seen) -> None:
        """Notes that a clarification changed."""

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - as `core.dispatch` calls it
        """Notes that a responder began work on a clarification's round, or ended it."""

    async def run(self) -> None:
        """Does what is owed at once and after each change, until cancelled."""

    async def close(self) -> None:
        """Does what is still owed, once: the process ends."""


@dataclass(frozen=True, kw_only=True)
class ShellHost:
    """What a command of the shell gets: the clarifications, and the name of the route of each (empty: there are no routes)."""

    ledger: Ledger
    clock: Clock
    route: Callable[[Clarification], str]


@dataclass(frozen=True)
class Report:
    """What a command of the shell shows: `data` with --json, else `parts`. `unreadable`: clarifications that are left out."""

    data: object
    parts: Sequence[Table | Cell | str]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Its tables, from files `0001_….sql` in its folder; what a later release changes goes into a next file. They are in SQLite's
    dialect, of which the bot makes PostgreSQL's (`bot/storage/schema.py`). Their names begin with the integration's. A row about a
    clarification refers to it with `references clarifications on delete cascade`.

    Args:
        leave_out: removes from a backup that is being restored what is no longer so.
    """

    leave_out: Callable[[Tx], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Integration:
    """One integration. Only `name` is required; leave out what it does not do.

    Args:
        name: in clarify.toml: of its table, of its key in `[[on_call]]`, of its pagers.
        settings: what its table holds: a `SettingsTable`, for `[name]`, or `tuple[SettingsTable, ...]`, for `[[name]]`.
            Variables in keys that end in `_env` must be set.
        default_on: returns the settings of one that needs no table, from the whole file; None: it is off.
        follows: makes what follows the changes of clarifications, from the bot and the settings: a `Follower`; a `Consumer`
            of the feed that keeps itself what it owes; or a `Mirror`, which brings something in step and stores nothing of a
            change.
        check: checks the settings for `clarify check`, from them and the secrets that they name. It may use the network, but
            must change nothing.
        keeps: returns where others keep what it told them about a `Subject` that is being forgotten, such as `acme/shop#7`.
        earlier: returns records that are older than a new, empty database, from the settings. Blocking.
        files: returns how to move aside or erase the files that it keeps on this machine, from the settings.
        tables: its tables, if it has any.
        on_call: says who is on call.
        paging: pages people outside Slack.
        commands: its commands in Slack.
        job: makes what it does at certain times, from the bot in Slack and the settings.
        channels: returns the channels that its settings name, by key: the bot has to be in them.
        watches: makes what keeps something in step with the clarifications, from the whole file.
        routes: makes its routes in the HTTP server, for producers alone, from the bot and the settings.
        figures: returns what `/metrics` shows of it, from the bot and the settings.
    """

    name: str
    settings: Any = None
    default_on: Callable[[Configuration], Any] | None = None
    follows: Callable[[Host, Any], Follower | Consumer | Mirror] | None = None
    check: Callable[[Any, Secrets], AsyncIterator[CheckResult]] | None = None
    keeps: Callable[[Tx, Subject], Iterable[str]] | None = None
    earlier: Callable[[Any], Earlier | None] | None = None
    files: Callable[[Any], LocalFiles] | None = None
    tables: Tables | None = None
    on_call: OnCall | None = None
    paging: Paging | None = None
    commands: Sequence[SlackCommand] = ()
    job: Callable[[SlackHost, Any], Job] | None = None
    channels: Callable[[Any], Mapping[str, str]] = lambda _: {}
    watches: Callable[[Configuration, Known, Clock], Watcher] | None = None
    routes: Callable[[Host, Any], Sequence[Route]] | None = None
    figures: Callable[[Host, Any], Awaitable[Sequence[Figures]]] | None = None
