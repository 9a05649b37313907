"""What a nudge says: a reminder, in the question's thread and in the channel, to those who may answer. Pure.

It takes no answer itself: that is the card's, and the thread's. Agents' words are plain text here; only
`Words(…, live=True)` is mrkdwn, all of it the bot's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.views import consent, inert
from bot.views.blockkit import SECTION
from bot.views.parts import Words, pieces
from bot.views.rounds import NAME_LIMIT, Round, closed_words, default_words, round_of, sentence, words
from core import answers
from core.clarification import Clarification

_BEGINNING, _DEFAULT = 300, 200
_MENTIONS = 20  # more would be a list of names, not a call


@dataclass(frozen=True, slots=True)
class Nudge:
    """The parts of a nudge in the order in which they are shown; `text` is escaped, but for who is called."""

    text: str
    heading: str
    call: tuple[Words, ...]
    sections: tuple[str, ...]
    facts: tuple[Words, ...]
    hint: tuple[Words, ...]


def nudge(record: Clarification, answerers: Sequence[str]) -> Nudge:
    """The reminder of an open question that nobody has answered.

    Args:
        record: as found in the ledger.
        answerers: of its route, as configured: `members` are not called, users (U…) and groups (S…) are.
    """
    shown = round_of(record)
    heading = f"{shown.agent} still waits · {inert.clip(record.id, 40)}"
    question = inert.clip(words(shown.question), _BEGINNING)
    until = _until(shown.asked.expires_at)
    default = default_words(shown.asked, _DEFAULT)
    hint = _hint(shown)
    called = _called(answerers)
    stakes = _stakes(shown)
    spoken = [
        f"{shown.agent} still waits for an answer ({inert.clip(record.id, 40)}): {question}",
        stakes,
        sentence(inert.utc_dates(until.text)),
        sentence(default) if default else "",
        hint,
    ]
    text = inert.fallback("\n".join(filter(None, spoken)), inert.TEXT_LIMIT - inert.size(called) - 1)
    return Nudge(
        text=f"{called} {text}" if called else text,
        heading=heading,
        call=(Words(called, live=True),) if called else (),
        sections=(*pieces(question, SECTION), *pieces(stakes, SECTION)),
        facts=(until, Words(default)) if default else (until,),
        hint=(Words(hint),),
    )


def nudge_over(record: Clarification, number: int | None) -> Nudge:
    """What the reminder of round `number` says once that takes no answer any more: how it ended."""
    shown = round_of(record, number)
    question = inert.clip(words(shown.question), _BEGINNING)
    ended = "answered" if shown.stage == "answered" else "closed"
    if shown.stage == "answered" and shown.slack_user:
        facts = [Words(f"Answered by {inert.mention(shown.slack_user)}", live=True)]
    elif shown.stage == "answered":
        facts = [Words(f"Answered by {shown.answered_by}")]
    else:
        facts = [Words(closed_words(shown, _BEGINNING))]
    answer = f"Answer: {inert.clip(shown.answer_label, _BEGINNING)}" if shown.answer_label else ""
    spoken = inert.fallback(f"{shown.agent} asked ({inert.clip(record.id, 40)}): {question}", 1500)
    how = sentence(facts[0].text) if facts[0].live else inert.fallback(sentence(facts[0].text), 1000)
    return Nudge(
        text="\n".join(filter(None, (spoken, how, inert.fallback(answer, 1000)))),
        heading=f"{shown.agent} · {inert.clip(record.id, 40)} · {ended}",
        call=(),
        sections=pieces(question, SECTION),
        facts=(*facts, *((Words(answer),) if answer else ())),
        hint=(),
    )


def rollup_nudge_over(agent: str) -> Nudge:
    """What the reminder of a roll-up card says once none of its questions waits there."""
    named = inert.clip(inert.line(agent) or "An agent", NAME_LIMIT)
    over = "None of these questions waits on the common card any more"
    return Nudge(
        inert.fallback(f"{named}: {sentence(over)}"), f"{named} · closed", (), (), (Words(over),), ()
    )


def rollup_nudge(agent: str, count: int, oldest: datetime | None, answerers: Sequence[str]) -> Nudge:
    """The reminder of `count` open questions of an agent that share one roll-up card.

    Args:
        agent: its name.
        count: how many share the card.
        oldest: the earliest deadline, if any has one.
        answerers: of its route, as configured.
    """
    named = inert.clip(inert.line(agent) or "An agent", NAME_LIMIT)
    several = f"{count} question{'' if count == 1 else 's'}"
    until = _until(oldest, "The first must be answered by")
    hint = "Answer on their common card, under Show all."
    called = _called(answerers)
    said = f"{named} still waits for answers to {several}."
    text = inert.fallback(f"{said}\n{sentence(inert.utc_dates(until.text))}\n{hint}")
    return Nudge(
        text=f"{called} {text}" if called else text,
        heading=f"{named} still waits · {several}",
        call=(Words(called, live=True),) if called else (),
        sections=(),
        facts=(until,),
        hint=(Words(hint),),
    )


def _called(answerers: Sequence[str]) -> str:
    named = [
        inert.mention(each) if inert.is_user(each) else inert.group(each)
        for each in dict.fromkeys(answerers)
        if inert.is_user(each) or inert.is_group(each)
    ]
    return " ".join(named[:_MENTIONS])


def _until(expires: datetime | None, words_before: str = "Answer by") -> Words:
    return (
        Words(f"{words_before} {inert.deadline(expires)}", live=True) if expires else Words("No time limit")
    )


def _stakes(shown: Round) -> str:
    """How grave a confirmation is; what silence does is told of every question."""
    wanted = shown.asked.confirmation
    return " ".join((consent.risk_words(wanted), consent.warning_words(wanted))).strip() if wanted else ""


def _hint(shown: Round) -> str:
    hint = answers.hint(shown.asked)
    return f"Answer on its card, or in this thread: {hint[0].lower()}{hint[1:]}"
