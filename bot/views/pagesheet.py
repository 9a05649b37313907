"""What a page has to tell, before it is laid out: values, and the words that its blocks and its text share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from bot.views import inert
from bot.views.locale import directed
from bot.views.parts import Words
from bot.views.rounds import NAME_LIMIT, closed_words, has_one_side, round_of
from core import answers
from core.clarification import Clarification

State = Literal["live", "taken", "snoozed", "closed"]
_NOTES: dict[State, str] = {"live": "", "taken": " · taken", "snoozed": " · snoozed", "closed": " · closed"}
_ROW, _FACT, _HEADING = 220, 300, 150
_BARE = 2000


@dataclass(frozen=True, slots=True)
class Matter:
    """One incident of a page; `kind` as in `bot.oncall.incidents`. `who` is the Slack user who took it, or whom it was handed to; `asleep_by` and
    `until` tell of a snooze. `record` where it is about a question that could be read; `link` is a web address.
    """

    incident: int
    kind: str
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
        return replace(self, record=record and directed(_without_holder(record)), link=link)

    def bare(self) -> Matter:
        """The id and the beginning of what is asked, as plain text: what can always be shown."""
        record = self.record
        asked = f"{record.question[:_BARE]}\n{answers.hint(record.asked)}" if record is not None else ""
        title = f"{self.clarification} needs a human" if self.clarification else "Something needs a human"
        return replace(self, title=title, reason="See the log", body=asked, record=None, link=None)


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


def _without_holder(record: Clarification) -> Clarification:
    """A page tells itself who has it; the ledger still names who let the time of a take pass."""
    if record.aaep is None:
        return record
    aaep = record.aaep.model_copy(update={"taken_by": None, "handed_to": None})
    return record.model_copy(update={"aaep": aaep})


def heading(sheet: Sheet) -> str:
    """One line: what it is, and how it stands."""
    matter = sheet.only
    if matter is None:
        many = f"{sheet.left} of {sheet.count}" if sheet.left < sheet.count else str(sheet.count)
        return f"{many} need a human" if sheet.left else f"{sheet.count} needed a human · closed"
    note = _NOTES[matter.state]
    title = inert.line(matter.title) or "Something needs a human"
    if matter.kind == "escalated" and matter.record is not None:
        agent = inert.clip(round_of(matter.record).agent, NAME_LIMIT)
        title = f"{matter.name}: {agent} {'needed' if matter.state == 'closed' else 'needs'} you"
    elif matter.clarification and matter.clarification not in title:
        title = f"{matter.clarification}: {title}"
    return inert.clip(title, _HEADING - 12) + note


def state_words(sheet: Sheet) -> list[Words]:
    """Who has it, until when it sleeps, how it ended, where it goes on."""
    matter = sheet.only
    found = standing_words(matter) if matter is not None else []
    if sheet.covered and not sheet.is_closed:
        found.append(Words("Paged again below."))
    return found


def why_words(matter: Matter) -> str:
    """Why somebody is paged: of a question its escalation, with both sides' positions."""
    record = matter.record
    reason = matter.reason
    if matter.kind == "escalated" and record is not None:
        entry = next((each for each in reversed(record.thread) if each.type == "escalation"), None)
        said = entry.body.strip() if entry is not None else ""
        reason = (said.partition("\n")[0] if has_one_side(round_of(record)) else said) or reason
    reason = inert.plain(reason).strip()
    return f"Why: {reason}" if reason else ""


def left_words(ends: datetime | None, sent_at: datetime) -> str:
    """How much time was left when the page was sent; empty where there is no limit."""
    if ends is None:
        return ""
    minutes = int((ends - sent_at).total_seconds() // 60)
    if minutes < 1:
        return "Less than a minute was left when this was sent"
    left = (
        f"{minutes} min"
        if minutes < 120
        else f"{minutes // 60} h"
        if minutes < 2880
        else f"{minutes // 1440} days"
    )
    return f"{left} left when this was sent"


def more_words(sheet: Sheet) -> str:
    """What is not listed, and where it is; empty where all is."""
    more = sheet.count - len(sheet.matters)
    if more <= 0 or sheet.only is not None:
        return ""
    return f"And {more} more: “/clarify” and the Home tab list all questions that are open."


def item_words(matter: Matter) -> str:
    """A matter on one line."""
    record = matter.record
    said = inert.line(record.question if record is not None else matter.body or matter.reason)
    known = matter.name if record is None else f"{matter.name} · {round_of(record).agent}"
    notes = _NOTES[matter.state]
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


def standing_words(matter: Matter) -> list[Words]:
    """Who has it, until when it sleeps, or how it ended; none while it is in nobody's hands."""
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
        verb = "Taken" if matter.kind == "handoff" else "Seen"
        return [Words(f"{verb} by {who}", live=True)] if who else [Words("Closed")]
    if shown.stage != "answered":
        return [Words(closed_words(shown, _FACT))] if shown.stage == "closed" else [Words("Closed")]
    by = Words(f"Answered by {inert.mention(shown.slack_user)}", live=True) if shown.slack_user else None
    found = [by or Words(f"Answered by {shown.answered_by}")]
    return [*found, Words(inert.date(shown.answered_at), live=True)] if shown.answered_at else found
