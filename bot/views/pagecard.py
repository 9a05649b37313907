"""What a page shows, decided: what has to be taken, all that is needed to decide it, and the controls.

Pure. A page about one question carries the question's own controls, as its card does; a page about several lists
them. Agents' words are plain text here; only `Words(…, live=True)` is mrkdwn, all of it the bot's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.views import inert
from bot.views.blockkit import BUTTON, MESSAGE_BUDGET, SECTION
from bot.views.card import MENU, open_card, options
from bot.views.codec import LINK_ACTION
from bot.views.notices import safe_url
from bot.views.pagecodec import PagePress, PageVerb, action_id
from bot.views.pagesheet import (
    Matter,
    Sheet,
    closing_words,
    heading,
    item_words,
    left_words,
    more_words,
    state_words,
    why_words,
)
from bot.views.parts import VIEW_FULL, Budget, Button, Select, Words, button, pieces
from bot.views.rounds import Round, round_of, words
from core.clarification import Clarification

TAKE, HAND, SNOOZE, NOT_MINE, SHOW, OPEN = (
    "Take",
    "Hand to…",
    "Snooze",
    "Not mine",
    "Show",
    "Go to the question",
)
OPEN_OTHER = "Go to the message"  # a handoff, an error: no question
LISTED = 20
_QUESTION, _LEAST_WHY = 2500, 300


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a page about several; `button` opens it."""

    text: str
    button: Button | None


@dataclass(frozen=True, slots=True)
class PageCard:
    """The parts of a page in the order in which they are shown; empty ones are left out."""

    heading: str
    alert: tuple[Words, ...] = ()
    sections: tuple[str, ...] = ()
    topic: tuple[Words, ...] = ()
    choices: tuple[str, ...] = ()
    context: tuple[Words, ...] = ()
    why: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    facts: tuple[Words, ...] = ()
    selects: tuple[Select, ...] = ()
    buttons: tuple[Button, ...] = ()
    controls: tuple[Button, ...] = ()
    hint: tuple[Words, ...] = ()


def page_card(sheet: Sheet, text: str) -> PageCard:
    """The page; `text` is the message's fallback, which counts against the same budget."""
    matter = sheet.only
    if matter is None:
        return _list_card(sheet)
    if matter.record is not None and not sheet.covered and matter.state != "closed" and matter.record.is_open:
        return _question_card(sheet, matter, matter.record, text)
    return _matter_card(sheet, matter, text)


def _question_card(sheet: Sheet, matter: Matter, record: Clarification, text: str) -> PageCard:
    shown = round_of(record)
    whole, alert = why_words(matter), _alert(sheet)
    why = inert.clip(whole, _room_for_why(shown, text))
    own = " ".join((why, *(each.text for each in alert), "x" * 400))
    card = open_card(shown, "normal", text + own, None)
    left = left_words(shown.asked.expires_at, sheet.sent_at)
    return PageCard(
        heading=heading(sheet),
        alert=alert,
        sections=card.question,
        topic=card.topic,
        choices=card.choices,
        context=card.context,
        why=pieces(why, SECTION),
        facts=(*card.facts, *((Words(left),) if left else ())),
        selects=card.selects,
        buttons=(*_answers(card.buttons, record, cut=why != whole), *_link(matter)),
        controls=_controls(sheet),
        hint=card.hint,
    )


def _room_for_why(shown: Round, text: str) -> int:
    """What the question's own needs leave: its menu is not cut, its words hardly below a screenful."""
    menu = min(MENU, sum(map(inert.size, options(shown))))
    return max(_LEAST_WHY, min(SECTION, MESSAGE_BUDGET - inert.size(text) - menu - _QUESTION))


def _answers(buttons: tuple[Button, ...], record: Clarification, *, cut: bool) -> tuple[Button, ...]:
    """The question's own controls; with View full where anything was cut."""
    if not cut or any(each.label == VIEW_FULL for each in buttons):
        return buttons
    return (*buttons, _view_full(record))


def _matter_card(sheet: Sheet, matter: Matter, text: str) -> PageCard:
    """Something without a question, or one that takes no answer any more."""
    over = matter.state == "closed" or sheet.covered
    alert, why = _alert(sheet), "" if over and matter.record is not None else why_words(matter)
    budget = Budget.beside(text)
    budget.spend(heading(sheet), *(each.text for each in alert))
    said = [matter.body]
    if matter.record is not None:
        said = [matter.record.question, "" if matter.record.is_open else closing_words(matter)]
    *shown, why = budget.fit([*(words(each) if each.strip() else "" for each in said), why])
    sections = tuple(piece for each in shown for piece in pieces(each, SECTION))
    cut = (_view_full(matter.record),) if budget.cut and matter.record is not None else ()
    return PageCard(
        heading=heading(sheet),
        alert=alert,
        sections=sections,
        why=pieces(why, SECTION),
        buttons=(*cut, *_link(matter)),
        controls=_controls(sheet),
    )


def _list_card(sheet: Sheet) -> PageCard:
    live = not sheet.covered
    items = tuple(
        Item(
            item_words(each),
            _control(sheet.page, "show", f"{SHOW} {each.clarification or ''}".strip(), each.incident, number)
            if live
            else None,
        )
        for number, each in enumerate(sheet.matters)
    )
    more = more_words(sheet)
    return PageCard(
        heading=heading(sheet),
        alert=_alert(sheet),
        items=items,
        facts=(Words(more),) if more else (),
        controls=_controls(sheet),
    )


def _alert(sheet: Sheet) -> tuple[Words, ...]:
    called = [inert.mention(user) for user in sheet.mentions if inert.is_user(user)][:20]
    for_whom = [Words(f"For {', '.join(called)}", live=True)] if called and not sheet.is_closed else []
    return (*for_whom, *state_words(sheet))


def _controls(sheet: Sheet) -> tuple[Button, ...]:
    """What somebody has can only be handed on: nobody else takes or snoozes it."""
    if sheet.covered or sheet.is_closed:
        return ()
    matter = sheet.only
    state = matter.state if matter is not None else "live"
    take, hand = _control(sheet.page, "take", TAKE), _control(sheet.page, "hand", HAND)
    if state == "taken":
        return (hand,)
    if state == "snoozed":
        return take, hand
    return take, hand, _control(sheet.page, "snooze", SNOOZE), _control(sheet.page, "notmine", NOT_MINE)


def _control(page: int, verb: PageVerb, label: str, incident: int = 0, n: int | None = None) -> Button:
    return Button(inert.clip(label, BUTTON), action_id(verb, n), PagePress(verb, page, incident).pack())


def _link(matter: Matter) -> tuple[Button, ...]:
    url = safe_url(matter.link)
    return (Button(OPEN if matter.record else OPEN_OTHER, LINK_ACTION, "", url=url),) if url else ()


def _view_full(record: Clarification) -> Button:
    return button(record, record.round, "view", VIEW_FULL, arg="1", spoken=f"View all of {record.id}")
