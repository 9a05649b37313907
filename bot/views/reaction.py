"""How the bot reacts in Slack to a click, command, modal or message, and the error messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.errors import RepliesUnread, SlackError
from bot.views import inert, phrases
from core.clarification import Clarification
from core.errors import (
    AnswerRejected,
    BadInput,
    LedgerInDoubt,
    LedgersAway,
    LockTimeout,
    NotCounted,
    NotFound,
    Tampered,
)
from core.transitions import ArgumentsChanged, NotOpen, Superseded

View = dict[str, Any]
# The message for an error, and whether something may have been recorded.
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
class Tell:
    """A message to the person alone, as `blocks` if there are any. Without text, the card shows it."""

    text: str = ""
    blocks: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Nothing was recorded, and Slack must not get an acknowledgement. With `busy`, telling the person is enough once
    the message is known to have arrived.
    """

    text: str
    blocks: list[dict[str, Any]] | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class OpenModal:
    """Shows a modal, or another page of one."""

    view: View


@dataclass(frozen=True, slots=True)
class FieldErrors:
    """What to correct in a submitted modal: block_id → message."""

    errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Their answer is in `record`. The card shows it, but hardly an approval that needs more, so `text` says that.

    `left_out`: without something that they attached, which `text` says, too.
    """

    record: Clarification
    left_out: bool = False

    @property
    def text(self) -> str:
        if self.left_out:
            return f"{phrases.accepted(self.record)} {phrases.LEFT_OUT}"
        return phrases.accepted(self.record) if self.record.is_open else ""


Told = Tell | Unrecorded
Reaction = Told | OpenModal | FieldErrors | Recorded


def explained(error: Exception, clarification_id: str) -> Told:
    """Returns what to tell a person about an error. Logs it, without contents."""
    text, recorded = next(
        ((text, recorded) for kind, text, recorded in _FIXED if isinstance(error, kind)), ("", True)
    )
    match error:
        case _ if text:
            pass
        case NotOpen():
            text = phrases.closed(error.record)
        case AnswerRejected() | BadInput() | NotCounted() | Tampered():
            text = inert.escape(str(error))
        case NotFound():
            text = phrases.unknown_clarification(clarification_id)
        case _:
            text, recorded = phrases.STORAGE_FAILED, False
    if recorded:
        return Tell(text)
    _log.warning("nothing recorded for %s: %s", clarification_id, error)
    return Unrecorded(text, busy=isinstance(error, LockTimeout | RepliesUnread))
