"""The API for integrations. An integration may import only this module and `core`; everything else can change at any time.

An integration connects the bot with another system. It is a package with one `Integration`; `docs/develop/integrations.md`
builds one from scratch. Errors that it raises are logged and reported by `clarify check` and `/readyz`, and stop nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from bot.ask.questions import Asked
from bot.checks import CheckResult, first_of, right, warning, wrong
from bot.commands.grammar import SlackCommand
from bot.commands.lists import Sight, SlackHost
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
from bot.intake.entries import NOT_EMPTY, NOT_NOW, Counted, Earlier
from bot.intake.notices import Teller
from bot.mailing import EventFollower, Follower, Host, Message, Post, outcome_of
from bot.oncall.feeds import AHEAD, BEFORE, OnCallSource, Shift, SourceError, Timetable, whole
from bot.oncall.outside import OutsidePager, PagerText
from bot.people.access import Person
from bot.retention.forget import Erased, LocalFiles
from bot.settings.load import read_environment, signing_key
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
from bot.show.outbox import Backoff, Delivered, GivenUp, Outbox, Outcome, RetryLater, signature
from bot.storage.changes import Position, RecordChange, following
from bot.storage.opening import reading
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
from bot.views.locale import in_words
from bot.views.notices import listed
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
    "Metric",
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
"""Returns the value of an environment variable that the integration's settings name."""


@dataclass(frozen=True, kw_only=True)
class OnCall:
    """Says who is on call, for the `[[on_call]]` policies that have its key.

    Args:
        settings: the type of the key's value.
        about: describes the key's value in the documentation.
        label: its name in messages, such as "calendar".
        source: creates the source of one policy, from the key's value, the policy's time zone, and the secrets.
        fits: for a key that ends in `_env`: returns whether the variable's value is usable; and the words for what is expected.
    """

    settings: Any
    about: str
    label: str
    source: Callable[[Any, str, Secrets], OnCallSource]
    fits: tuple[Callable[[str], bool], str] = (bool, "not be empty")


@dataclass(frozen=True, kw_only=True)
class Paging:
    """Pages people outside Slack, for policy steps with `notify = "NAME:VARIABLE"`.

    Args:
        service: returns the service that a variable's value leads to, such as "PagerDuty", or None. Sends nothing.
        pager: creates the pager for a variable's value.
    """

    service: Callable[[str], str | None]
    pager: Callable[[str], OutsidePager]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a producer that may call the bot, as it does for `/questions`. `path`: the values of the names in the route's
    path; `ends`: returns when the server stops, the caller hangs up, or too many wait: then nothing may wait for it any more.
    What waits takes one of the places that all callers of the bot share, for as long as it awaits `ends`.
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
class Metric:
    """A metric of an integration in `/metrics`, named `clarify_INTEGRATION_NAME`: what it is about, the names of its labels, and its
    present value by the labels' values. Labels must hold nothing that agents or people say.
    """

    name: str
    about: str
    labels: Sequence[str]
    values: Mapping[tuple[str, ...], float]


Job = Callable[[datetime], Awaitable[datetime]]
"""Does what is due at the given time, and returns when to call it again. The bot may call it sooner, after a start, a leader change
or a failure, so it must check what it has already done. With replicas, only the leader calls it.
"""


Known = Callable[[], Iterable[Seen]]
"""Returns all open clarifications; call it in a thread."""


class Watcher(Protocol):
    """Keeps something in sync with the clarifications. It can read what it did before, so it stores nothing between runs.

    The leading bot runs it. So does a shell command that changes questions between agents while no bot is running.
    """

    def record_changed(self, record: Seen) -> None:
        """Notes that a clarification changed."""

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - as `core.hub` calls it
        """Notes that a responder began or ended work on a clarification's round."""

    async def run(self) -> None:
        """Syncs at once and after each change, until cancelled."""

    async def close(self) -> None:
        """Syncs once more before the process ends."""


@dataclass(frozen=True, kw_only=True)
class ShellHost:
    """What a shell command can use: the clarifications, and the route's name of each (empty if there are no routes)."""

    ledger: Ledger
    clock: Clock
    route: Callable[[Clarification], str]


@dataclass(frozen=True)
class Report:
    """The output of a shell command: `data` with --json, otherwise `parts`. `unreadable`: clarifications that are left out."""

    data: object
    parts: Sequence[Table | Cell | str]
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The integration's tables, defined in files `0001_….sql` in its folder. Put the changes of a later release into the next file.

    Write the files in SQLite's dialect; the bot translates them for PostgreSQL (`bot/storage/schema.py`). Table names begin with the
    integration's name. A row about a clarification refers to it with `references clarifications on delete cascade`.

    Args:
        leave_out: removes outdated rows from a backup that is being restored.
    """

    leave_out: Callable[[Tx], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Integration:
    """One integration. Only `name` is required; leave out what it does not do.

    Args:
        name: the name of its table in clarify.toml, of its key in `[[on_call]]`, and of its pagers.
        settings: the type of its table: a `SettingsTable` for `[name]`, or `tuple[SettingsTable, ...]` for `[[name]]`.
            Variables named by keys that end in `_env` must be set.
        default_on: for an integration that needs no table: returns its settings from the whole configuration, or None if it is off.
        follows: creates the object that follows the changes of clarifications, from the bot and the settings: a `Follower`; a
            `Consumer` of the feed, which stores its unsent messages itself; or a `Mirror`, which keeps something in sync and
            stores nothing about a change.
        check: runs the checks for `clarify check`, with the settings and the secrets that they name. It may use the network, but
            must change nothing.
        keeps: returns the places where other systems keep what it sent about a `Subject` that is being forgotten, such as
            `acme/shop#7`.
        earlier: returns records that are older than a new, empty database, from the settings. Blocking.
        files: returns how to move aside or erase the files that it stores on this machine, from the settings.
        tables: its tables, if it has any.
        on_call: says who is on call.
        paging: pages people outside Slack.
        commands: its commands in Slack.
        job: creates the job that it runs at certain times, from the bot in Slack and the settings.
        channels: returns the channels that its settings name, by key. The bot must be in them.
        watches: creates a watcher that keeps something in sync with the clarifications, from the whole configuration.
        routes: creates its routes in the HTTP server, for producers only, from the bot and the settings.
        metrics: returns what `/metrics` shows of it, from the bot and the settings.
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
    metrics: Callable[[Host, Any], Awaitable[Sequence[Metric]]] | None = None
