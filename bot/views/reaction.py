"""What the bot does in Slack after a person's click, command, window or message, and the words for what went wrong."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.errors import RepliesUnread, SlackError
from bot.views import inert, phrases
from core.clarification import ArgumentsChanged, Clarification, NotOpen, Superseded
from core.errors import (
    AnswerRejected,
    BadInput,
    LedgerInDoubt,
    LedgersAway,
    LockTimeout,
    NotCounted,
    NotFound,
)

View = dict[str, Any]
# What is always said of an error, and whether something may have been recorded.
_FIXED: tuple[tuple[type[Exception], str, bool], ...] = (
    (ArgumentsChanged, phrases.ARGUMENTS_CHANGED, True),
    (Superseded, phrases.STALE_CARD, True),
    (LedgerInDoubt, phrases.NOT_SURE, True),
    (LedgersAway, phrases.LEDGERS_AWAY, False),
    (LockTimeout, phrases.BUSY, False),
    (RepliesUnread, phrases.REPLIES_UNREAD, False),
    (SlackError, phrases.PEOPLE_UNKNOWN, False),
)
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the surface does next.

    `text` is for the person alone, laid out as `blocks` where there are some. `view` is shown to them; `errors` are put beside a submitted modal's fields.
    With `recorded` false nothing was kept of what they did, and Slack must not be told that it was; with `busy`
    telling the person is enough, once it is known that the words arrived.
    `record` is the clarification as answered, where it was.
    """

    text: str = ""
    blocks: list[dict[str, Any]] | None = None
    view: View | None = None
    errors: Mapping[str, str] | None = None
    recorded: bool = True
    busy: bool = False
    record: Clarification | None = None


def explained(error: Exception, clarification_id: str) -> Reaction:
    """What a person is told of an error (pure but for the log). Contents never reach the log."""
    text, recorded = next(
        ((text, recorded) for kind, text, recorded in _FIXED if isinstance(error, kind)), ("", True)
    )
    match error:
        case _ if text:
            pass
        case NotOpen():
            text = phrases.closed(error.record)
        case AnswerRejected() | BadInput() | NotCounted():
            text = inert.escape(str(error))
        case NotFound():
            text = phrases.unknown_clarification(clarification_id)
        case _:
            text, recorded = phrases.STORAGE_FAILED, False
    if not recorded:
        _log.warning("nothing recorded for %s: %s", clarification_id, error)
    return Reaction(text, recorded=recorded, busy=isinstance(error, LockTimeout | RepliesUnread))
