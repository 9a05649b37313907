"""Many questions at once: the roll-up card, its list, and the question which question was meant. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.views import consent, inert
from bot.views.blockkit import OPTION
from bot.views.codec import Press, action_id
from bot.views.parts import ANSWER, NEXT, PREVIOUS, SHOW_ALL, Button, Dialog, Select, Words, button
from bot.views.rounds import NAME_LIMIT, Round, round_of
from core.aaep import Confirmation
from core.clarification import Clarification

PAGE_SIZE = 20
ROLLUP_ROWS = 5
WHICH = "Which question is this an answer to?"
_ROW, _LISTED = 300, 200
_WHICH_BUTTONS, _WHICH_MOST = 10, 100
_GRAVE = Dialog(
    consent.MEANT_THIS,
    "Some of these are of high risk or cannot be undone. Read what you chose in full on its card first.",
    consent.MEANT,
    consent.CANCEL,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One question on one line, with its button."""

    text: str
    button: Button


@dataclass(frozen=True, slots=True)
class Rollup:
    """Many open questions of one agent. `text` is escaped."""

    text: str
    heading: str
    facts: tuple[Words, ...]
    rows: tuple[Row, ...]
    buttons: tuple[Button, ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list; `press` is empty where nothing is open."""

    press: str
    rows: tuple[Row, ...]
    note: str
    buttons: tuple[Button, ...]


@dataclass(frozen=True, slots=True)
class Which:
    """The question which question was meant. `text` is escaped, `lines` is plain text (empty beside a menu)."""

    text: str
    lines: str
    buttons: tuple[Button, ...]
    selects: tuple[Select, ...]


def rollup(records: Sequence[Clarification], count: int, oldest: datetime | None, agent: str) -> Rollup:
    """One card in place of many.

    Args:
        records: the most urgent ones first; the first five get a row. None: nothing is open any more.
        count: how many are open in all.
        oldest: the earliest deadline, if any has one.
        agent: the agent's name.
    """
    named = inert.clip(inert.line(agent) or "An agent", NAME_LIMIT)
    if not records:
        text = f"{named}: no open questions are left here."
        return Rollup(
            inert.fallback(text), f"{named}: no open questions", (Words("All of them are closed"),), (), ()
        )
    heading = f"{named}: {count} open question{'s' if count > 1 else ''}"
    facts = [Words(f"The first must be answered by {inert.deadline(oldest)}", live=True)] if oldest else []
    facts.append(Words("Each can be answered here or under Show all; none gets a card of its own for now"))
    shown = [round_of(record) for record in records[:ROLLUP_ROWS]]
    deadline = f" The first must be answered by {inert.utc(oldest)}." if oldest else ""
    listed = "\n".join(f"{inert.line(each.record.id)}: {_said(each, _ROW)}" for each in shown)
    more = f"\nand {count - len(shown)} more." if count > len(shown) else ""
    text = f"{heading}.{deadline} Press Show all to see and answer them.\n{listed}{more}"
    anchor = shown[0]
    all_of_them = button(
        anchor.record, anchor.number, "list", SHOW_ALL, arg="1", spoken=f"Show all of {named}"
    )
    return Rollup(
        text=inert.fallback(text),
        heading=inert.clip(heading, 150),
        facts=tuple(facts),
        rows=tuple(_row(each, n) for n, each in enumerate(shown)),
        buttons=(all_of_them,),
    )


def listing(records: Sequence[Clarification], page: int, total: int) -> Listing:
    """Page `page` (from 1) of `total` open questions; `records` are those of this page, at most 20."""
    if not records:
        return Listing("", (), "Nothing is open here any more.", ())
    pages = max(1, -(-total // PAGE_SIZE))
    page = min(max(1, page), pages)
    anchor = records[0]
    buttons = []
    if page > 1:
        buttons.append(button(anchor, anchor.round, "page", PREVIOUS, n=1, arg=str(page - 1)))
    if page < pages:
        buttons.append(button(anchor, anchor.round, "page", NEXT, n=2, arg=str(page + 1)))
    return Listing(
        press=Press("list", anchor.id, anchor.round, str(page)).pack(),
        rows=tuple(_row(round_of(record), n) for n, record in enumerate(records[:PAGE_SIZE])),
        note=f"{total} open questions · page {page} of {pages}",
        buttons=tuple(buttons),
    )


def which(records: Sequence[Clarification], text_id: str) -> Which:
    """Which of several open questions a reply belongs to; `text_id` names the reply that waits.

    Few get a button each, more a menu of at most a hundred.
    """
    shown = [round_of(record) for record in records[:_WHICH_MOST]]
    room = max(20, min(_LISTED, 3000 // max(1, len(shown)) - 30))
    labels = [f"{n}. {_said(each, _ROW)}" for n, each in enumerate(shown, 1)]
    lines = "\n".join(
        f"{n}. {inert.line(each.record.id)}: {_said_gravely(each, room)}" for n, each in enumerate(shown, 1)
    )
    few = len(shown) <= _WHICH_BUTTONS
    values = [Press("which", each.record.id, each.number, text_id).pack() for each in shown]
    grave = [_asks_twice(each) for each in shown]
    buttons = tuple(
        Button(
            inert.clip(label, 30),
            action_id("which", n),
            value,
            inert.clip(label, OPTION),
            dialog=consent.reply_dialog(wanted) if wanted else None,
        )
        for n, (label, value, wanted) in enumerate(zip(labels, values, grave, strict=True))
    )
    width = min(OPTION, 6000 // max(1, len(shown)))
    options = tuple((inert.clip(label, width), value) for label, value in zip(labels, values, strict=True))
    again = _GRAVE if any(grave) else None
    menu = (Select("Choose a question", action_id("which"), options, again),)
    return Which(
        text=inert.fallback(f"{WHICH}\n{lines}"),
        lines=lines if few else "",
        buttons=buttons if few else (),
        selects=() if few else menu,
    )


def _row(shown: Round, n: int) -> Row:
    label = button(shown.record, shown.number, "answer", ANSWER, n=n, spoken=f"Answer {shown.record.id}")
    return Row(f"{inert.clip(inert.line(shown.record.id), 40)}: {_said(shown, _ROW)}", label)


def _asks_twice(shown: Round) -> Confirmation | None:
    """What must not be decided by one press."""
    wanted = shown.asked.confirmation
    return wanted if wanted is not None and wanted.asks_twice else None


def _said_gravely(shown: Round, limit: int) -> str:
    """The question, after how grave it is where consent is asked."""
    wanted = shown.asked.confirmation
    said = f"{consent.risk_words(wanted)} {inert.line(shown.question)}" if wanted else ""
    return inert.clip(said, limit) if said else _said(shown, limit)


def _said(shown: Round, limit: int) -> str:
    return inert.clip(inert.line(shown.question) or "(blank)", limit)
