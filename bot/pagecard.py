"""What a page shows, decided: what has to be taken, all that is needed to decide it, and the controls.

Pure. A page about one question carries the question's own controls, as its card does; a page about several lists
them. Agents' words are plain text here; only `Words(…, live=True)` is mrkdwn, all of it the bot's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from bot import inert
from bot.blockkit import SECTION
from bot.card import open_card
from bot.codec import LINK_ACTION
from bot.notices import safe_url
from bot.paging.codec import PagePress, PageVerb, action_id
from bot.parts import VIEW_FULL, Budget, Button, Select, Words, button, pieces
from bot.rounds import NAME_LIMIT, closed_words, round_of, words
from core.clarification import Clarification

TAKE, HAND, SNOOZE, NOT_MINE, SHOW, OPEN = "Take", "Hand to…", "Snooze", "Not mine", "Show", "Open in Slack"
LISTED = 10
State = Literal["live", "taken", "snoozed", "closed"]
_ROW, _FACT, _HEADING = 220, 300, 150


@dataclass(frozen=True, slots=True)
class Matter:
    """One incident of a page. `who` is the Slack user who took it, or whom it was handed to; `asleep_by` and
    `until` tell of a snooze. `record` where it is about a question that could be read; `link` is a web address.
    """

    incident: int
    title: str
    reason: str
    body: str = ""
    state: State = "live"
    who: str | None = None
    handed: bool = False
    asleep_by: str | None = None
    until: datetime | None = None
    expires_at: datetime | None = None
    clarification: str | None = None
    record: Clarification | None = None
    link: str | None = None

    @property
    def name(self) -> str:
        """What people call it by: the clarification's id, else its title."""
        return inert.clip(inert.line(self.clarification or self.title) or "Something", _HEADING)

    def with_question(self, record: Clarification | None, link: str | None) -> Matter:
        return replace(self, record=record, link=link)

    def bare(self) -> Matter:
        """Without others' words: what can always be shown."""
        return replace(
            self, title="Something needs a human", reason="See the log", body="", record=None, link=None
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page as it is to be shown. `matters` are the first that are listed, open ones first; `count` is all of
    them, `left` those that are not closed, `is_awaited` tells whether any of these is in nobody's hands. `covered`: a
    newer page to the same place is about all of it.
    """

    page: int
    sent_at: datetime
    matters: tuple[Matter, ...]
    count: int
    left: int
    covered: bool = False
    mentions: tuple[str, ...] = ()
    is_awaited: bool = True

    @property
    def only(self) -> Matter | None:
        """What the page is about, where it is about one thing."""
        return self.matters[0] if self.count == 1 and self.matters else None

    @property
    def is_closed(self) -> bool:
        return self.left == 0

    def bare(self) -> Sheet:
        """For the case that the words cannot be laid out."""
        return replace(self, matters=tuple(each.bare() for each in self.matters))


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


def heading(sheet: Sheet) -> str:
    """One line: what it is, and how it stands."""
    matter = sheet.only
    if matter is None:
        many = f"{sheet.left} of {sheet.count}" if sheet.left < sheet.count else str(sheet.count)
        return f"{many} need a human" if sheet.left else f"{sheet.count} needed a human · closed"
    note = {"live": "", "taken": " · taken", "snoozed": " · snoozed", "closed": " · closed"}[matter.state]
    title = inert.line(matter.title) or "Something needs a human"
    if matter.record is not None and matter.clarification:
        agent = inert.clip(round_of(matter.record).agent, NAME_LIMIT)
        verb = "needed you" if matter.state == "closed" else "needs you"
        title = f"{matter.name}: {agent} {verb}" if matter.record.status != "answered" else title
    return inert.clip(title, _HEADING - 12) + note


def state_words(sheet: Sheet) -> list[Words]:
    """Who has it, until when it sleeps, how it ended, where it goes on."""
    matter = sheet.only
    found = list(_standing(matter)) if matter is not None else []
    if sheet.covered and not sheet.is_closed:
        found.append(Words("Paged again below."))
    return found


def why_words(matter: Matter) -> str:
    """Why somebody is paged: of a question its escalation, with both sides' positions."""
    record = matter.record
    entry = None
    if record is not None and record.status == "escalated":
        entry = next((each for each in reversed(record.thread) if each.type == "escalation"), None)
    reason = inert.plain(entry.body if entry is not None and entry.body.strip() else matter.reason).strip()
    return f"Why: {reason}" if reason else ""


def left_words(ends: datetime | None, sent_at: datetime) -> str:
    """How much time was left when the page was sent; empty where there is no limit."""
    if ends is None:
        return ""
    minutes = int((ends - sent_at).total_seconds() // 60)
    if minutes < 1:
        return "Less than a minute was left when this was sent"
    if minutes < 120:
        return f"{minutes} min left when this was sent"
    return f"{minutes // 60} h left when this was sent" if minutes < 2880 else f"{minutes // 1440} days left"


def item_words(matter: Matter) -> str:
    """A matter on one line."""
    record = matter.record
    said = inert.line(record.question if record is not None else matter.body or matter.reason)
    known = matter.name if record is None else f"{matter.name} · {round_of(record).agent}"
    notes = {"live": "", "taken": " · taken", "snoozed": " · snoozed", "closed": " · closed"}[matter.state]
    return inert.clip(f"{known}{notes}: {said}" if said else f"{known}{notes}", _ROW)


def closing_words(matter: Matter) -> str:
    """How something that is closed ended, without who."""
    record = matter.record
    if record is None:
        return "Closed"
    shown = round_of(record)
    if shown.stage == "answered":
        return f"Answer: {shown.answer_label}"
    return closed_words(shown, _FACT) if shown.stage == "closed" else "Closed"


def _standing(matter: Matter) -> list[Words]:
    who = inert.mention(matter.who) if matter.who and inert.is_user(matter.who) else None
    if matter.state == "closed":
        return _ending(matter, who)
    if matter.state == "snoozed" and matter.until is not None:
        by = (
            f" by {inert.mention(matter.asleep_by)}"
            if inert.is_user(matter.asleep_by) and matter.asleep_by
            else ""
        )
        return [Words(f"Snoozed until {inert.date(matter.until)}{by}", live=True)]
    if matter.state == "taken":
        return [Words(f"Taken by {who}", live=True) if who else Words("Taken")]
    return [Words(f"Handed to {who}", live=True)] if who and matter.handed else []


def _ending(matter: Matter, who: str | None) -> list[Words]:
    record = matter.record
    shown = round_of(record) if record is not None else None
    if shown is None:
        return [Words(f"Seen by {who}", live=True)] if who else [Words("Closed")]
    if shown.stage != "answered":
        return [Words(closed_words(shown, _FACT))] if shown.stage == "closed" else [Words("Closed")]
    by = Words(f"Answered by {inert.mention(shown.slack_user)}", live=True) if shown.slack_user else None
    found = [by or Words(f"Answered by {shown.answered_by}")]
    return [*found, Words(inert.date(shown.answered_at), live=True)] if shown.answered_at else found


def _question_card(sheet: Sheet, matter: Matter, record: Clarification, text: str) -> PageCard:
    shown = round_of(record)
    why, alert = inert.clip(why_words(matter), SECTION), _alert(sheet)
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
        buttons=(*card.buttons, *_link(matter)),
        controls=_controls(sheet),
        hint=card.hint,
    )


def _matter_card(sheet: Sheet, matter: Matter, text: str) -> PageCard:
    """Something without a question, or one that takes no answer any more."""
    over = matter.state == "closed" or sheet.covered
    alert, why = _alert(sheet), "" if over and matter.record is not None else why_words(matter)
    budget = Budget.beside(text)
    budget.spend(heading(sheet), *(each.text for each in alert))
    said = [matter.body]
    if matter.record is not None:
        said = [matter.record.question, closing_words(matter) if matter.state == "closed" else ""]
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
    more = sheet.count - len(sheet.matters)
    return PageCard(
        heading=heading(sheet),
        alert=_alert(sheet),
        items=items,
        facts=(Words(f"And {more} more."),) if more > 0 else (),
        controls=_controls(sheet),
    )


def _alert(sheet: Sheet) -> tuple[Words, ...]:
    called = [inert.mention(user) for user in sheet.mentions if inert.is_user(user)][:20]
    for_whom = [Words(f"For {', '.join(called)}", live=True)] if called and not sheet.is_closed else []
    return (*for_whom, *state_words(sheet))


def _controls(sheet: Sheet) -> tuple[Button, ...]:
    """While somebody has it others can take it over; nobody snoozes what is in somebody's hands."""
    if sheet.covered or sheet.is_closed:
        return ()
    matter = sheet.only
    state = matter.state if matter is not None else "live"
    take, hand = _control(sheet.page, "take", TAKE), _control(sheet.page, "hand", HAND)
    if state in {"taken", "snoozed"}:
        return take, hand
    return take, hand, _control(sheet.page, "snooze", SNOOZE), _control(sheet.page, "notmine", NOT_MINE)


def _control(page: int, verb: PageVerb, label: str, incident: int = 0, n: int | None = None) -> Button:
    return Button(inert.clip(label, 75), action_id(verb, n), PagePress(verb, page, incident).pack())


def _link(matter: Matter) -> tuple[Button, ...]:
    url = safe_url(matter.link)
    return (Button(OPEN, LINK_ACTION, "", url=url),) if url else ()


def _view_full(record: Clarification) -> Button:
    return button(record, record.round, "view", VIEW_FULL, arg="1", spoken=f"View all of {record.id}")
