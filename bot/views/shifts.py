"""Direct messages about turns on call. At a change of shift, who comes on call hears for how long, what is open and what the
others noted; who leaves hears who took over. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.views import inert
from bot.views.blockkit import (
    OPEN,
    Budget,
    Context,
    Draft,
    Header,
    Part,
    Section,
    Words,
    fitted,
    plain_words,
)
from bot.views.lists import linked
from bot.views.page import OPEN_OTHER, PageItem, item_words, standing_words
from bot.views.wording import capital

LISTED = 10  # open items in one message
_HEADING = "On call"
_POLICY, _NOTE = 60, 500
_MOST = 45  # parts


@dataclass(frozen=True, slots=True)
class Note:
    """A comment that someone left in the thread of an open question or handoff; `about`: what people call that."""

    user: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class ShiftBegins:
    """Someone comes on call by a policy, until `until` if that is known. `after`: who leaves; `beside`: who else is on call;
    `by`: who arranged it, if another person did. `items`: the first open ones of `count`. `why`: why it is not who the
    calendar or PagerDuty names, in plain words.
    """

    policy: str
    until: datetime | None
    after: Sequence[str]
    beside: Sequence[str]
    by: str | None
    items: Sequence[PageItem]
    count: int
    notes: Sequence[Note]
    why: str = ""


@dataclass(frozen=True, slots=True)
class ShiftEnds:
    """Someone leaves a policy, and `by` are on call now. `held`: what they claimed and still hold, by name."""

    policy: str
    by: Sequence[str]
    held: Sequence[str]


def shift_card(begins: Sequence[ShiftBegins], ends: Sequence[ShiftEnds], now: datetime) -> Draft:
    """Returns the one message about all policies that change for a person. What does not fit is left out, which it says."""
    turns = [Section(Words(_end_words(end), live=True)) for end in ends]
    turns += [Section(Words(_begin_words(begin), live=True)) for begin in begins]
    entries = list(turns)
    for begin in begins:
        entries += [Section(_item_words(item, now)) for item in begin.items]
        entries += [Section(Words(_note_words(note), live=True)) for note in begin.notes]
    count = len(turns) + sum(begin.count + len(begin.notes) for begin in begins)

    def build(budget: Budget) -> tuple[Part, ...]:
        shown: list[Section] = []
        for each in entries[:_MOST]:
            budget.spend(each.words.text)
            if budget.left < 0:
                break
            shown.append(each)
        rest = "There is more. “/clarify oncall” and “/clarify stale” list it."
        return Header(_HEADING), *shown, Context(plain_words("" if len(shown) == count else rest))

    return fitted("shift", build)


def _item_words(item: PageItem, now: datetime) -> Words:
    """Returns an open item."""
    words = item_words(item, now).text + ("" if standing_words(item) else " · Unclaimed")
    if item.link:
        words += f" · {linked(OPEN if item.record is not None else OPEN_OTHER, item.link)}"
    return Words(words, live=True)


def _begin_words(begin: ShiftBegins) -> str:
    until = f" until {inert.date(begin.until)}" if begin.until is not None else ""
    after = f", after {_people(begin.after)}" if begin.after else ""
    words = [f"You are on call for {_policy(begin.policy)}{until}{after}."]
    if begin.by is not None:
        words.append(f"{inert.mention(begin.by)} handed it over.")
    if begin.why:
        words.append(f"{inert.escape(inert.line(capital(begin.why), _NOTE))}.")
    if begin.beside:
        words.append(f"On call with you: {_people(begin.beside)}.")
    words.append(f"Open now: {begin.count}." if begin.count else "Nothing is open.")
    return " ".join(words)


def _end_words(end: ShiftEnds) -> str:
    policy = _policy(end.policy)
    words = f"You are no longer on call for {policy}: {_people(end.by)} took over."
    if not end.by:
        words = f"Your shift for {policy} is over. No one is on call now; pages go to the fallback channel."
    if end.held:
        words += f" You still hold {inert.escape(', '.join(end.held))}."
    return words


def _note_words(note: Note) -> str:
    about, text = inert.escape(inert.line(note.about, _POLICY)), inert.escape(inert.clip(note.text, _NOTE))
    return f"Note by {inert.mention(note.user)} on {about}: {text}"


def _policy(name: str) -> str:
    return inert.escaped_line(name, _POLICY)


def _people(users: Iterable[str]) -> str:
    return ", ".join(map(inert.mention, users))
