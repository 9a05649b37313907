"""Why something was refused, for whoever was too late: who was first, what they said, or why it is over. Pure."""

from __future__ import annotations

from datetime import datetime

from bot import inert
from bot.rounds import Round, closed_words, round_of, sentence
from bot.shell.times import relative
from core.clarification import NotOpen, Superseded

_QUOTED = 200


def explained(error: Exception, now: datetime) -> str:
    """The error's own words, and what it knows besides."""
    if isinstance(error, Superseded):
        record = error.record
        return f"{record.id} was asked again: it is in round {record.round}. See it with: clarify show {record.id}"
    if isinstance(error, NotOpen):
        return _over(round_of(error.record), now)
    return str(error)


def _over(shown: Round, now: datetime) -> str:
    record = shown.record
    if shown.stage == "answered":
        when = f" ({relative(shown.answered_at, now)})" if shown.answered_at else ""
        said = inert.clip(inert.line(shown.answer_label), _QUOTED)
        return f"{record.id} was already answered by {shown.answered_by}: “{said}”{when}."
    return sentence(f"{record.id} takes no answer any more. {closed_words(shown, _QUOTED)}")
