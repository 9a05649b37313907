"""What the modals show, decided: the answer form, and everything of a clarification in full. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bot.views import consent, inert
from bot.views.blockkit import OPTION, SECTION, json_size
from bot.views.card import options
from bot.views.codec import Press
from bot.views.parts import NEXT, PREVIOUS, Button, Words, button, pieces
from bot.views.rounds import Round, closed_words, default_words, escalation_words, reply_words, words
from bot.views.submission import (
    CHOICES_BLOCK,
    DECISION_BLOCK,
    FREETEXT_BLOCK,
    NO_VALUE,
    NONE_VALUE,
    NUMERIC_BLOCK,
    RATIONALE_BLOCK,
    YES_NO_BLOCK,
    YES_VALUE,
    fields,
    types_choices,
)
from core import answers
from core.aaep import Confirmation
from core.router import BODY_LIMIT

MODAL_TEXT_LIMIT = 3000  # plain_text_input takes no more
_BETWEEN_AGENTS = f"Up to {BODY_LIMIT:,} characters."
_REASON_HINT = f"The agent gets it with your decision. Up to {MODAL_TEXT_LIMIT:,} characters."
PAGE_BLOCKS = 90
PAGE_BYTES = 200_000  # of a view's 250 KB
_NONE = "None of these"
_LABELS = {
    CHOICES_BLOCK: "Your choice",
    YES_NO_BLOCK: "Yes or no",
    NUMERIC_BLOCK: "A number",
    FREETEXT_BLOCK: "Your answer",
}
_HINTS = {
    NUMERIC_BLOCK: "A point before decimals, like 1200 or 12.5.",
    FREETEXT_BLOCK: f"Up to {MODAL_TEXT_LIMIT:,} characters; for a longer answer, reply in the thread.",
}


@dataclass(frozen=True, slots=True)
class Input:
    """One input block; `element` is the type of its Block Kit element, `options` are (text, value)."""

    block_id: str
    label: str
    element: str
    optional: bool
    hint: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """The answer modal: what was asked in full, a line on how to fill it in, the inputs."""

    press: str
    sections: tuple[str, ...]
    context: tuple[Words, ...]
    guide: str
    inputs: tuple[Input, ...]
    text_limit: int = MODAL_TEXT_LIMIT


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a modal that shows everything."""

    press: str
    sections: tuple[str, ...]
    note: str
    buttons: tuple[Button, ...]


def answer_form(shown: Round) -> Form:
    """The form for a round's question."""
    asked = shown.asked
    inputs = fields(asked)
    wanted = asked.confirmation
    filled = (
        _decision_inputs(wanted)
        if wanted
        else tuple(_input(shown, block, several=len(inputs) > 1) for block in inputs)
    )
    parts = consent.whole_words(wanted) if wanted else [words(shown.question)]
    if types_choices(asked) or any(inert.size(label) > OPTION for label in shown.labels):
        parts.append(shown.numbered)
    if context := inert.plain(asked.context or "").strip():
        parts.append(f"Context: {context}")
    all_sections = [piece for part in parts for piece in pieces(part, SECTION)]
    taken = sum(json_size(each.options) for each in filled)
    sections = next(_pages(all_sections, PAGE_BYTES - taken))
    more = Words("There is more: close this and press View full on the card.")
    until = Words(f"Answer by {inert.deadline(asked.expires_at)}", live=True) if asked.expires_at else None
    default = default_words(asked, 1000)
    return Form(
        press=Press("answer", shown.record.id, shown.number).pack(),
        sections=sections,
        context=tuple(
            filter(
                None,
                (
                    more if len(sections) < len(all_sections) else None,
                    until,
                    Words(default) if default else None,
                ),
            )
        ),
        guide="Fill in exactly one of these." if len(inputs) > 1 and not wanted else "",
        inputs=filled,
        text_limit=MODAL_TEXT_LIMIT if _is_events(shown) else BODY_LIMIT,
    )


def full_page(shown: Round, page: int) -> Page:
    """Page `page` (from 1; the nearest where there is no such page) of everything about a clarification."""
    every = [piece for part in _everything(shown) for piece in pieces(part, SECTION)]
    found = list(_pages(every))
    page = min(max(1, page), len(found))
    buttons = []
    if page > 1:
        buttons.append(button(shown.record, shown.number, "view", PREVIOUS, n=1, arg=str(page - 1)))
    if page < len(found):
        buttons.append(button(shown.record, shown.number, "view", NEXT, n=2, arg=str(page + 1)))
    return Page(
        press=Press("view", shown.record.id, shown.number, str(page)).pack(),
        sections=found[page - 1],
        note=f"Page {page} of {len(found)}" if len(found) > 1 else "",
        buttons=tuple(buttons),
    )


def _everything(shown: Round) -> Iterator[str]:
    asked = shown.asked
    again = f" · round {shown.number}" if shown.number > 1 or not shown.is_current else ""
    yield f"{shown.agent} · {inert.clip(shown.record.id, 40)}{again}"
    if asked.confirmation:
        yield from consent.whole_words(asked.confirmation)
    else:
        yield words(shown.question)
    if shown.labels:
        yield "Choices:\n" + shown.numbered
    if asked.context:
        yield f"Context: {words(asked.context)}"
    if asked.summary_detailed:
        yield f"{'Summary' if asked.confirmation else 'Details'}: {words(asked.summary_detailed)}"
    if shown.topic:
        yield f"Topic: {shown.topic}"
    if asked.default_response is not None or shown.stage == "open":
        yield default_words(asked, 10**9)
    if asked.expires_at:
        yield f"Answer by {inert.utc(asked.expires_at)}" if shown.stage == "open" else ""
    yield escalation_words(shown, SECTION)
    if shown.stage == "answered":
        when = f" on {inert.utc(shown.answered_at)}" if shown.answered_at else ""
        yield f"Answered by {shown.answered_by}{when}:\n{shown.answer_label}"
        yield shown.reason
        yield reply_words(asked)
    if shown.stage == "closed":
        yield closed_words(shown, 10**9)
    yield from _history(shown)


def _history(shown: Round) -> Iterator[str]:
    thread = shown.record.thread
    if len(thread) > 1:
        yield "Thread:"
        for entry in thread:
            head = f"{inert.utc(entry.timestamp)} · {entry.type} · {inert.clip(inert.line(entry.from_), 256)}"
            yield f"{head}\n{words(entry.body)}"


def _pages(sections: list[str], most: int = PAGE_BYTES) -> Iterator[tuple[str, ...]]:
    """Sections in pages that Slack takes as one view each, of at most `most` bytes; at least one page."""
    page: list[str] = []
    room = most
    for section in sections:
        cost = json_size(section) + 100
        if page and (len(page) == PAGE_BLOCKS or cost > room):
            yield tuple(page)
            page, room = [], most
        page.append(section)
        room -= cost
    yield tuple(page)


def _decision_inputs(wanted: Confirmation) -> tuple[Input, ...]:
    """The decision, with nothing chosen beforehand, and room for a reason."""
    offered = tuple((consent.LABELS[decision], decision) for decision in wanted.allowed)
    return (
        Input(DECISION_BLOCK, "Your decision", "radio_buttons", False, options=offered),  # noqa: FBT003
        Input(RATIONALE_BLOCK, "Reason", "plain_text_input", True, _REASON_HINT),  # noqa: FBT003
    )


def _input(shown: Round, block: str, *, several: bool) -> Input:
    found: tuple[tuple[str, str], ...] = ()
    element = {NUMERIC_BLOCK: "number_input", FREETEXT_BLOCK: "plain_text_input"}.get(block, "radio_buttons")
    if block == YES_NO_BLOCK:
        found = (("Yes", YES_VALUE), ("No", NO_VALUE))
    elif block == CHOICES_BLOCK and types_choices(shown.asked):
        element = "plain_text_input"
    elif block == CHOICES_BLOCK:
        found = _choice_options(shown)
        element = _choice_element(shown, several=several)
    if several and element in ("radio_buttons", "static_select"):
        found = (*found, (_NONE, NONE_VALUE))
    hint = _HINTS.get(block, "")
    if block == FREETEXT_BLOCK and not _is_events(shown):
        hint = _BETWEEN_AGENTS
    if block == CHOICES_BLOCK and element == "plain_text_input":
        hint = answers.hint_to_choose(shown.asked)
    return Input(block, _label(shown, block), element, several, hint, found)


def _is_events(shown: Round) -> bool:
    """Whether a producer's event asked it: the limits are AAEP's then."""
    return shown.asked.reply_token is not None


def _label(shown: Round, block: str) -> str:
    return "Your choices" if block == CHOICES_BLOCK and shown.asked.multi_select else _LABELS[block]


def _choice_element(shown: Round, *, several: bool) -> str:
    labels = shown.labels
    few = len(labels) <= (9 if several else 10) and all(inert.size(label) <= OPTION for label in labels)
    if shown.asked.multi_select:
        return "checkboxes" if few else "multi_static_select"
    return "radio_buttons" if few else "static_select"


def _choice_options(shown: Round) -> tuple[tuple[str, str], ...]:
    """Labels as they are where all fit and differ; else numbered."""
    labels = shown.labels
    short = all(inert.size(label) <= OPTION for label in labels)
    distinct = len({label.casefold() for label in (*labels, _NONE)}) > len(labels)
    texts = labels if short and distinct else options(shown)
    return tuple((text, str(n)) for n, text in enumerate(texts))
