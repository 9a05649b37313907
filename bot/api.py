"""What an integration may use of the bot: nothing else of it is promised, and nothing else may be imported, but `core`.

An integration tells another system of clarifications. It is a package with one `Integration`; `docs/develop/integrations.md`
builds one from nothing. What it raises is logged and told by `clarify check` and `/readyz`, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bot.checks import CheckResult, first_of, right, warning, wrong
from bot.errors import StorageUnavailable
from bot.feed import Consumer, Observer
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
from bot.mailing import EventFollower, Follower, Host, Post, outcome_of
from bot.oncall.outside import OutsidePager, PagerText
from bot.oncall.source import AHEAD, BEFORE, OnCallSource, Shift, SourceError, Timetable, whole
from bot.outbox import Backoff, Delivered, GivenUp, Message, Outbox, Outcome, RetryLater
from bot.posting import signature
from bot.retention.local import Erased, LocalFiles
from bot.settings.environment import read_environment, signing_key
from bot.settings.model import (
    Configuration,
    EnvironmentName,
    HttpUrl,
    Name,
    SettingsTable,
    WebAddress,
    is_loopback,
    is_web_address,
    keep_token_private,
    url_host,
)
from bot.storage.changes import Position, RecordChange, following
from bot.storage.outside import reading
from bot.storage.store import Acting, Store, until_stored
from bot.storage.tx import Tx
from bot.views.inert import as_name, as_value, clip, line, plain, size
from bot.views.notices import listed
from core.records import Subject

__all__ = [
    "AHEAD",
    "ANSWER_TIMEOUT",
    "BEFORE",
    "NETWORK",
    "NOT_EMPTY",
    "NOT_NOW",
    "NOT_SENT",
    "Acting",
    "Backoff",
    "CheckResult",
    "Configuration",
    "Consumer",
    "Counted",
    "Delivered",
    "Earlier",
    "EnvironmentName",
    "Erased",
    "EventFollower",
    "Follower",
    "GivenUp",
    "Host",
    "HttpAnswer",
    "HttpClient",
    "HttpUrl",
    "Integration",
    "LocalFiles",
    "Message",
    "Name",
    "Observer",
    "OnCall",
    "OnCallSource",
    "Outbox",
    "Outcome",
    "OutsidePager",
    "PagerText",
    "Paging",
    "Position",
    "Post",
    "RecordChange",
    "RetryLater",
    "Secrets",
    "SettingsTable",
    "Shift",
    "SourceError",
    "StorageUnavailable",
    "Store",
    "Subject",
    "Tables",
    "Teller",
    "Timetable",
    "Tx",
    "WebAddress",
    "as_name",
    "as_value",
    "clean",
    "clip",
    "first_of",
    "following",
    "in_own_thread",
    "is_loopback",
    "is_web_address",
    "json_body",
    "keep_token_private",
    "line",
    "listed",
    "outcome_of",
    "plain",
    "read_environment",
    "reading",
    "retry_after",
    "right",
    "signature",
    "signing_key",
    "size",
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
        label: what people are told it is, such as "calendar".
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
            of the feed that keeps itself what it owes; or an `Observer`, which brings something in step and stores nothing of a
            change.
        check: checks the settings for `clarify check`, from them and the secrets that they name. It may use the network, but
            must change nothing.
        keeps: returns where others keep what it told them about a `Subject` that is being forgotten, such as `acme/shop#7`.
        earlier: returns records that are older than a new, empty database, from the settings. Blocking.
        files: returns how to move aside or erase the files that it keeps on this machine, from the settings.
        tables: its tables, if it has any.
        on_call: says who is on call.
        paging: pages people outside Slack.
    """

    name: str
    settings: Any = None
    default_on: Callable[[Configuration], Any] | None = None
    follows: Callable[[Host, Any], Follower | Consumer | Observer] | None = None
    check: Callable[[Any, Secrets], AsyncIterator[CheckResult]] | None = None
    keeps: Callable[[Tx, Subject], Iterable[str]] | None = None
    earlier: Callable[[Any], Earlier | None] | None = None
    files: Callable[[Any], LocalFiles] | None = None
    tables: Tables | None = None
    on_call: OnCall | None = None
    paging: Paging | None = None
