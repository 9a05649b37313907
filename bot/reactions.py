"""Who acts, and what the surface does next: values that cross between the desks and Slack's side. Knows no formats."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot import inert, phrases
from bot.errors import SlackError
from core.clarification import Clarification, NotOpen, Superseded
from core.errors import AnswerRejected, BadInput, LedgersAway, LockTimeout, NotFound

_log = logging.getLogger("clarify.desk")
View = dict[str, Any]
PEOPLE_UNKNOWN = "Slack did not say who you are just now, so nothing was taken. Please try again in a moment."


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in Slack, by what does not change: the team that they are at home in, and their user id."""

    team: str
    user: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody may not answer, and who may (as configured)."""

    why: str
    answerers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the surface does next.

    `text` is for the person alone. `view` is shown to them; `errors` are put beside a submitted modal's fields.
    With `recorded` false nothing was kept of what they did, and Slack must not be told that it was; with `busy`
    telling the person is enough, once it is known that the words arrived.
    `record` is the clarification as answered, where it was.
    """

    text: str | None = None
    view: View | None = None
    errors: Mapping[str, str] | None = None
    recorded: bool = True
    busy: bool = False
    record: Clarification | None = None


def explained(error: Exception, clarification_id: str) -> Reaction:
    """What a person is told of an error (pure but for the log). Contents never reach the log."""
    text: str
    recorded = True
    match error:
        case Superseded():
            text = phrases.STALE_CARD
        case NotOpen():
            text = phrases.closed(error.record)
        case AnswerRejected() | BadInput():
            text = inert.escape(str(error))
        case NotFound():
            text = phrases.unknown_clarification(clarification_id)
        case LedgersAway():
            text, recorded = phrases.LEDGERS_AWAY, False
        case LockTimeout():
            text, recorded = phrases.BUSY, False
        case SlackError():
            text, recorded = PEOPLE_UNKNOWN, False
        case _:
            text, recorded = phrases.storage_failed(), False
    if not recorded:
        _log.warning("nothing was recorded for %s: %s", clarification_id, error)
    return Reaction(text, recorded=recorded, busy=isinstance(error, LockTimeout))
