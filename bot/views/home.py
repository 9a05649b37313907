"""The Home tab in words and controls, ready for its template, and what a press on it carries. Pure.

Agents' words stand in plain text; what is live (people, moments) is the bot's own. A press is packed as
`1|answer|CLR-42-001|1`, or `1|page|inbox|2`; action_ids are `home.<verb>.<n>`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar, cast, get_args

from bot.errors import BadPress
from bot.routing import Audience, audience_of
from bot.views import inert, phrases
from bot.views.codec import LIMIT, VERSION, Press
from bot.views.parts import ANSWER, NEXT, PREVIOUS, VIEW_FULL, Button, Words
from bot.views.rounds import BLANK, NAME_LIMIT
from core.agents import AgentStatus, ReadyItem
from core.clarification import HUMAN, ID
from core.index import Summary

_T = TypeVar("_T")
HomeVerb = Literal["answer", "view", "page"]
Section = Literal["inbox", "taken", "agents", "ready", "duty", "answers"]
SECTIONS: tuple[Section, ...] = get_args(Section)
CALLBACK = "home"
ACTIONS = re.compile(r"home\..+")
_NUMBER = re.compile(r"[0-9]{1,9}")
# Blocks of a view: at most 100. A question takes two, a line one, each section a heading and a row of buttons,
# and there may be two notes above: 22 + 12 + 17 + 12 + 10 + 10 + 2 = 85.
PAGE_SIZES: Mapping[Section, int] = {
    "inbox": 10,
    "taken": 5,
    "agents": 15,
    "ready": 10,
    "duty": 8,
    "answers": 8,
}
UNSURE = "Slack did not say just now which questions you may answer: this may not be all of them."
STRANGER = (
    "You are not among those who answer agents here. Questions that you are paged for show up in your inbox."
)
HEADINGS: Mapping[Section, str] = {
    "inbox": "My inbox",
    "taken": "What I took",
    "agents": "Agents",
    "ready": "Ready queue",
    "duty": "On call",
    "answers": "Recent answers",
}
_NOTHING: Mapping[Section, str] = {
    "inbox": "Nothing waits for you.",
    "taken": "Nothing on your plate.",
    "agents": "No agent that you answer is at work.",
    "ready": "No session that you answer is at work.",
    "duty": "No on-call policy is configured.",
    "answers": "No answers yet.",
}
_QUESTION, _SAID, _ID, _SESSION, _USERS, _LISTED = 300, 120, 40, 14, 20, 5
_INDENT = "\u2003"  # an em space: Slack trims ordinary ones
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class HomePress:
    """One press. `subject`: a clarification's id, or for `page` a section; `number`: its round, or the page from 1."""

    verb: HomeVerb
    subject: str
    number: int

    def pack(self) -> str:
        """The press as text of at most 150 characters.

        Raises:
            BadPress: longer than that, or a field that could not be read back.
        """
        text = "|".join((VERSION, self.verb, self.subject, str(self.number)))
        HomePress.unpack(text)
        return text

    @classmethod
    def unpack(cls, text: str) -> HomePress:
        """Read what `pack` wrote.

        Raises:
            BadPress: anything else; the message never repeats the content.
        """
        parts = text.split("|")
        if len(text) > LIMIT or not text.isascii() or len(parts) != 4 or parts[0] != VERSION:
            raise BadPress(
                f"A control of the Home tab is not of version {VERSION}: it is of another release."
            )
        _, verb, subject, number = parts
        named = subject in SECTIONS if verb == "page" else ID.fullmatch(subject) is not None
        if verb not in get_args(HomeVerb) or not named or not _NUMBER.fullmatch(number):
            raise BadPress("A control of the Home tab names nothing that is there; expected 1|page|inbox|2.")
        return cls(cast("HomeVerb", verb), subject, int(number))

    def on_question(self) -> Press:
        """The same as a control on a card would carry it.

        Raises:
            BadPress: it turns a page, and is about no question.
        """
        if self.verb == "page":
            raise BadPress("A control that turns pages is about no question.")
        return Press(self.verb, self.subject, self.number, "1" if self.verb == "view" else "")


def action_id(verb: HomeVerb, n: int) -> str:
    """The action_id of a control; `n` tells apart several of one verb."""
    return f"{CALLBACK}.{verb}.{n}"


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One agent. `depth` counts from 0: it is nested below the agent that it waits for.

    `on`: whom it is blocked on; `human` stands for people. `since`: since when it is as it is, where known.
    """

    agent: str
    name: str | None
    status: AgentStatus
    depth: int = 0
    on: tuple[str, ...] = ()
    since: datetime | None = None
    clarifications: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DutyLine:
    """Who is on call by one policy: `users` are Slack ids, `source` says why it is they."""

    policy: str
    users: tuple[str, ...]
    source: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that was given. `user` where it was given in Slack; `by` is its name in any case. `to`: see `Audience`."""

    clarification: str
    round: int
    agent: str
    question: str
    answer: str
    at: datetime
    by: str
    user: str | None = None
    to: str = HUMAN

    @property
    def audience(self) -> Audience:
        return Audience(self.agent, self.to)


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """The items of page `number` (from 1) of `pages`; `total` counts those of all pages."""

    items: tuple[_T, ...]
    number: int
    pages: int
    total: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one person sees. Of agents and sessions: all, to who is on call or paged, to others those whose questions
    they may answer. `stranger`: nothing here is theirs, so how the agents stand is left out.
    """

    user: str
    inbox: Page[Summary]
    taken: Page[Summary]
    agents: Page[AgentLine]
    ready: Page[ReadyItem]
    duty: Page[DutyLine]
    answers: Page[Answered]
    unsure: bool = False
    stranger: bool = False

    @property
    def questions(self) -> tuple[Summary, ...]:
        """The questions that are shown, each once."""
        return tuple({each.id: each for each in (*self.inbox.items, *self.taken.items)}.values())


@dataclass(frozen=True, slots=True)
class Row:
    """One thing: its `text` and `facts` where it is a question, with its buttons; otherwise facts on one line."""

    facts: tuple[Words, ...]
    text: str = ""
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One section; `note` stands where there are no rows."""

    heading: str
    rows: tuple[Row, ...]
    note: str
    buttons: tuple[Button, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """The whole tab: `notes` first, then the sections."""

    notes: tuple[str, ...]
    parts: tuple[Part, ...]


def home(shown: Chosen, words: Mapping[str, str]) -> Home:
    """The tab of one person: what they see, and the question of each clarification id (unknown: its topic)."""
    notes = ([UNSURE] if shown.unsure else []) + ([STRANGER] if shown.stranger else [])
    parts = [_part("inbox", shown.inbox, _questions("inbox", shown.inbox, shown.user, words))]
    parts.append(_part("taken", shown.taken, _questions("taken", shown.taken, shown.user, words)))
    if not shown.stranger:
        parts.append(_part("agents", shown.agents, [_agent(each) for each in shown.agents.items]))
        several = Counter(each.name or each.agent for each in shown.ready.items)
        ready = [_ready(each, several[each.name or each.agent] > 1) for each in shown.ready.items]
        parts.append(_part("ready", shown.ready, ready))
    parts.append(_part("duty", shown.duty, [_duty(each) for each in shown.duty.items]))
    if not shown.stranger:
        parts.append(_part("answers", shown.answers, [_answered(each) for each in shown.answers.items]))
    return Home(tuple(notes), tuple(parts))


def _part(section: Section, page: Page[_T], rows: Sequence[Row]) -> Part:
    heading = HEADINGS[section] + (f" ({page.total})" if page.total else "")
    if page.pages > 1:
        heading += f", page {page.number} of {page.pages}"
    buttons = []
    if page.number > 1:
        buttons.append(_turn(section, page.number - 1, PREVIOUS, 1))
    if page.number < page.pages:
        buttons.append(_turn(section, page.number + 1, NEXT, 2))
    return Part(heading, tuple(rows), "" if rows else _NOTHING[section], tuple(buttons))


def _turn(section: Section, number: int, label: str, side: int) -> Button:
    n = 2 * list(HEADINGS).index(section) + side
    value = HomePress("page", section, number).pack()
    return Button(label, action_id("page", n), value, f"{label} page of {HEADINGS[section]}")


def _questions(section: Section, page: Page[Summary], user: str, words: Mapping[str, str]) -> list[Row]:
    first = 100 * list(HEADINGS).index(section)
    return [_question(each, first + n, user, words) for n, each in enumerate(page.items)]


def _question(question: Summary, n: int, user: str, words: Mapping[str, str]) -> Row:
    said = inert.line(words.get(question.id) or question.topic) or BLANK
    again = f", round {question.round}" if question.round > 1 else ""
    facts = [Words(f"{_id(question.id)} · {_name(audience_of(question).agent)}{again}")]
    until = f"Answer by {inert.deadline(question.expires_at)}" if question.expires_at else "No time limit"
    facts.append(Words(until, live=True))
    if state := _state(question, user):
        facts.append(Words(state, live=True))
    return Row(
        tuple(facts),
        inert.clip(said, _QUESTION),
        (_press("answer", question, ANSWER, n), _press("view", question, VIEW_FULL, n)),
    )


def _press(verb: HomeVerb, question: Summary, label: str, n: int) -> Button:
    value = HomePress(verb, question.id, question.round).pack()
    return Button(label, action_id(verb, n), value, f"{label.rstrip('…')} {_id(question.id)}")


def _state(question: Summary, user: str) -> str:
    """Who has it, where somebody has; the bot's own words."""
    escalated = "Escalated" if question.status == "escalated" else ""
    holder = ""
    if question.taken_by is not None:
        holder = "You took this" if question.taken_by == user else f"Taken by {_who(question.taken_by)}"
    elif question.handed_to is not None:
        holder = "Handed to you" if question.handed_to == user else f"Handed to {_who(question.handed_to)}"
    return " · ".join(filter(None, (escalated, holder)))


def _agent(line: AgentLine) -> Row:
    nested = _INDENT * min(line.depth, _DEEPEST) + ("└ " if line.depth else "")
    state = phrases.waiting(line.status, line.on, lambda names: _listed([_name(each) for each in names]))
    about = f" ({_listed([_id(each) for each in line.clarifications])})" if line.clarifications else ""
    facts = [Words(f"{nested}{_name(line.name or line.agent)}: {state}{about}")]
    if line.since is not None:
        facts.append(Words(f"since {inert.date(line.since)}", live=True))
    return Row(tuple(facts))


def _ready(line: ReadyItem, told_apart: bool) -> Row:  # noqa: FBT001 — one caller
    """Name a session by its agent; by its id as well only where the agent has several: most ids are random."""
    session = inert.clip(inert.line(line.session_id or ""), _SESSION) if told_apart else ""
    named = _name(line.name or line.agent) + (f", session {session}" if session else "")
    if not line.blocked_by:
        return Row((Words(f"🟢 ready: {named}"),))
    blocked = _listed([_id(each) for each in line.blocked_by])
    return Row((Words(f"⛔ blocked: {named}; waits for {blocked}"),))


def _duty(line: DutyLine) -> Row:
    users = [inert.mention(user) for user in line.users if inert.is_user(user)]
    more = f" and {len(users) - _USERS} more" if len(users) > _USERS else ""
    facts = [Words(f"{_name(line.policy)}:")]
    facts.append(Words(", ".join(users[:_USERS]) + more if users else "nobody", live=True))
    if source := inert.clip(inert.line(line.source), _SAID):
        facts.append(Words(source))
    if line.until is not None:
        facts.append(Words(f"until {inert.date(line.until)}", live=True))
    return Row(tuple(facts))


def _answered(line: Answered) -> Row:
    question = inert.clip(inert.line(line.question), _SAID) or BLANK
    answer = inert.clip(inert.line(line.answer), _SAID) or BLANK
    said = f"{_id(line.clarification)} · {_name(line.agent)}: {question} → {answer}"
    who = _who(line.user) if inert.is_user(line.user) else inert.escape(inert.clip(inert.line(line.by), 80))
    return Row((Words(said), Words(f"{who or 'somebody'}, {inert.date(line.at)}", live=True)))


def _who(user: str | None) -> str:
    return inert.mention(user) if user and inert.is_user(user) else "somebody else"


def _name(text: str) -> str:
    return inert.clip(inert.line(text), NAME_LIMIT) or "An agent"


def _id(text: str) -> str:
    return inert.clip(inert.line(text), _ID)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
