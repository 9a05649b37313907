"""What an integration may use of the bot: nothing else of it is promised, and nothing else may be imported, but `core`.

An integration tells another system of clarifications. It is a package with one `Integration`; `docs/develop/integrations.md`
builds one from nothing. What it raises is logged and told by `clarify check` and `/readyz`, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bot.checks import CheckResult, right, warning, wrong
from bot.feed import Consumer
from bot.http import (
    ANSWER_TIMEOUT,
    NETWORK,
    NOT_SENT,
    HttpAnswer,
    HttpClient,
    json_body,
    retry_after,
    words,
)
from bot.mailing import Announcer, Follower, Host, Mailer, Message, Post, outcome_of
from bot.outbox import Backoff, Delivered, GivenUp, Outbox, Outcome, RetryLater
from bot.posting import Posted, signature
from bot.settings.environment import signing_key
from bot.settings.model import (
    ChannelId,
    Duration,
    EnvironmentName,
    HttpUrl,
    Name,
    SettingsTable,
    WebAddress,
    keep_token_private,
)
from bot.storage.changes import RecordChange
from bot.storage.store import Acting, Store
from bot.storage.tx import Tx
from bot.views.inert import clip, line, plain, size
from core.records import Subject

__all__ = [
    "ANSWER_TIMEOUT",
    "NETWORK",
    "NOT_SENT",
    "Acting",
    "Announcer",
    "Backoff",
    "ChannelId",
    "CheckResult",
    "Consumer",
    "Delivered",
    "Duration",
    "EnvironmentName",
    "Follower",
    "GivenUp",
    "Host",
    "HttpAnswer",
    "HttpClient",
    "HttpUrl",
    "Integration",
    "Mailer",
    "Message",
    "Name",
    "Outbox",
    "Outcome",
    "Post",
    "Posted",
    "RecordChange",
    "RetryLater",
    "Secrets",
    "SettingsTable",
    "Store",
    "Subject",
    "Tx",
    "WebAddress",
    "clip",
    "json_body",
    "keep_token_private",
    "line",
    "outcome_of",
    "plain",
    "retry_after",
    "right",
    "signature",
    "signing_key",
    "size",
    "warning",
    "words",
    "wrong",
]

Secrets = Callable[[str], str]
"""Returns the secret in an environment variable that the integration's settings name."""


@dataclass(frozen=True, kw_only=True)
class Integration:
    """One integration. Only `name` and `settings` are required; leave out what it does not do.

    Args:
        name: of its table in clarify.toml.
        settings: what the table holds: a `SettingsTable`, for `[name]`, or `tuple[SettingsTable, ...]`, for `[[name]]`.
            Variables in keys that end in `_env` must be set.
        follows: makes what follows the changes of clarifications, from the bot and the settings: a `Follower`, or a `Consumer`
            of the feed that keeps itself what it owes.
        check: checks the settings for `clarify check`, from them and the secrets that they name. It may use the network, but
            must change nothing.
        keeps: returns where others keep what it told them about a `Subject` that is being forgotten, such as `acme/shop#7`.
    """

    name: str
    settings: Any
    follows: Callable[[Host, Any], Follower | Consumer] | None = None
    check: Callable[[Any, Secrets], AsyncIterator[CheckResult]] | None = None
    keeps: Callable[[Tx, Subject], Iterable[str]] | None = None
