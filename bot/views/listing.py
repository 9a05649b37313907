"""What a command answers with, laid out: a heading, words, rows of clarifications with their buttons. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bot.views import inert
from bot.views.codec import Press
from bot.views.codec import action_id as press_id
from bot.views.listcodec import ListPress, action_id
from bot.views.parts import ANSWER, NEXT, PREVIOUS, VIEW_FULL, Button, Words
from bot.views.rounds import BLANK, Round, closed_words, holder_words, round_of
from core.clarification import Clarification

PAGE_SIZE = 8
LINES = 10
TAKE = "Take"
_QUESTION, _LABEL, _NAME, _READ_ALOUD = 200, 120, 100, 4000
_LINK = re.compile(r"https?://[^\s<>|]{1,300}")


@dataclass(frozen=True, slots=True)
class Row:
    """One clarification: its question as plain text, facts about it, what can be done; `aloud`: the same, escaped."""

    words: str
    facts: tuple[Words, ...]
    buttons: tuple[Button, ...]
    aloud: str


@dataclass(frozen=True, slots=True)
class Listing:
    """An answer to a command. `text` is the fallback, escaped; `words` stand above the rows."""

    text: str
    heading: str
    words: tuple[Words, ...] = ()
    rows: tuple[Row, ...] = ()
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """What a person may do with a clarification, and where its card is."""

    answer: bool = False
    take: bool = False
    link: str | None = None


def said(words: str, *, heading: str = "", live: bool = True) -> Listing:
    """Words alone. `live`: a phrase of ours, with mentions and dates; else plain text."""
    words = words if live else inert.plain(words)
    text = inert.clip_escaped(inert.utc_dates(words), 4000) if live else inert.fallback(words)
    spoken = f"{heading}\n{text}" if heading else text
    pieces = inert.split(words, 2900)
    return Listing(
        inert.clip_escaped(spoken, 4000), heading, tuple(Words(each, live=live) for each in pieces)
    )


def listing(
    heading: str, rows: Sequence[Row], *, page: int, total: int, query: str, notes: Iterable[str] = ()
) -> Listing:
    """Page `page` (from 1) of `total` clarifications; `query` asks for the list again; `notes` are plain text."""
    pages = max(1, -(-total // PAGE_SIZE))
    where = f"Page {page} of {pages}" if pages > 1 else ""
    said_above = [note for note in (*notes, where) if note]
    aloud = "\n".join([inert.fallback("\n".join([heading, *said_above])), *(row.aloud for row in rows)])
    return Listing(
        text=inert.clip_escaped(aloud, _READ_ALOUD),
        heading=inert.clip(heading, 150),
        words=(Words("\n".join(said_above)),) if said_above else (),
        rows=tuple(rows),
        buttons=_turning(page, pages, query),
    )


def choice_of(heading: str, records: Sequence[Clarification], query: str) -> Listing:
    """Clarifications to choose from, at most a page: nothing can be done with them here."""
    rows = [row(each, Offer(), n) for n, each in enumerate(records[:PAGE_SIZE])]
    return listing(heading, rows, page=1, total=len(rows), query=query)


def page_of(page: int, total: int) -> int:
    """The page that there is, nearest to the one asked for."""
    return min(max(1, page), max(1, -(-total // PAGE_SIZE)))


def row(record: Clarification, offer: Offer, n: int) -> Row:
    """One clarification in a list; `n` tells its buttons apart from those of other rows."""
    shown = round_of(record)
    words = inert.clip(inert.line(shown.question) or BLANK, _QUESTION)
    name = inert.line(record.id)
    state = _state(shown)
    facts = (Words(_linked(name, offer.link), live=True), Words(shown.agent), Words(state, live=True))
    aloud = f"{inert.fallback(f'{name}, {shown.agent}')}, {inert.utc_dates(state)}: {inert.fallback(words)}"
    return Row(words, facts, _buttons(shown, offer, n), aloud)


def unread(clarification_id: str, topic: str) -> Row:
    """One whose ledger cannot be read now."""
    words = inert.clip(inert.line(topic) or BLANK, _QUESTION)
    note = "its ledger cannot be read now"
    return Row(
        words,
        (Words(clarification_id), Words(note)),
        (),
        inert.fallback(f"{clarification_id}, {note}: {words}"),
    )


def _buttons(shown: Round, offer: Offer, n: int) -> tuple[Button, ...]:
    record, number = shown.record, shown.number
    view = Press("view", record.id, number, "1").pack()
    found = [Button(VIEW_FULL, press_id("view", n), view, inert.clip(f"View {record.id} in full", 75))]
    if shown.stage != "open":
        return tuple(found)
    if offer.answer:
        value = Press("answer", record.id, number).pack()
        found.insert(0, Button(ANSWER, press_id("answer", n), value, inert.clip(f"Answer {record.id}", 75)))
    if offer.take:
        value = ListPress("take", record.id).pack()
        found.append(Button(TAKE, action_id("take", n), value, inert.clip(f"Take {record.id}", 75)))
    return tuple(found)


def _state(shown: Round) -> str:
    """How it stands, as our own mrkdwn."""
    record, asked = shown.record, shown.asked
    if shown.stage == "answered":
        by = inert.mention(shown.slack_user) if shown.slack_user else _clean(shown.answered_by, _NAME)
        return f"answered by {by}: “{_clean(shown.answer_label, _LABEL)}”"
    if shown.stage == "closed":
        return _clean(closed_words(shown, _LABEL), 2 * _LABEL)
    parts = [f"escalated ({asked.escalated_for})" if asked.escalated_for else "escalated"]
    if record.status != "escalated":
        parts = ["reminded" if asked.nudges else "open"]
    parts.append(f"asked {inert.date(record.asked_last)}")
    if asked.expires_at is not None:
        parts.append(f"until {inert.date(asked.expires_at)}")
    if held := holder_words(shown):
        parts.append(held)
    return " · ".join(parts)


def _linked(name: str, link: str | None) -> str:
    return f"<{link}|{inert.escape(name)}>" if link and _LINK.fullmatch(link) else inert.escape(name)


def _clean(text: str, limit: int) -> str:
    return inert.clip_escaped(inert.escape(inert.line(text)), limit)


def board(heading: str, lines: Sequence[str], *, page: int, query: str) -> Listing:
    """Page `page` (from 1) of `lines`, which are mrkdwn of ours; `query` asks for it again."""
    pages = max(1, -(-len(lines) // LINES))
    page = min(max(1, page), pages)
    shown = "\n".join(lines[(page - 1) * LINES : page * LINES])
    whole = said(shown, heading=f"{heading} · page {page} of {pages}" if pages > 1 else heading)
    return replace(whole, buttons=_turning(page, pages, query))


def _turning(page: int, pages: int, query: str) -> tuple[Button, ...]:
    found = []
    if page > 1:
        found.append(Button(PREVIOUS, action_id("page", 1), ListPress("page", query, page - 1).pack()))
    if page < pages:
        found.append(Button(NEXT, action_id("page", 2), ListPress("page", query, page + 1).pack()))
    return tuple(found)
