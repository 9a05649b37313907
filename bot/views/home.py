"""The Home tab's text and controls. Agents' text is plain text; mentions and dates are the bot's own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from bot.routing import audience_of
from bot.views import inert, phrases
from bot.views.blockkit import (
    ANSWER,
    VIEW_FULL,
    Actions,
    Button,
    Context,
    Header,
    Input,
    Part,
    Section,
    View,
    Words,
    button,
    plain_words,
    sections,
    turning,
)
from bot.views.codec import (
    HOME_CALLBACK,
    HOME_PRESS,
    LONGEST_SEARCH,
    SEARCH_ACTION,
    HomePress,
    HomeSection,
    HomeVerb,
)
from bot.views.lists import QuestionRow, decision_row
from bot.views.markdown import plain
from bot.views.numerals import in_words
from bot.views.wording import (
    ID_LIMIT,
    listed_words,
    name_of,
    until_words,
)
from core.clarification import Clarification
from core.index import AgentNode, ReadyItem
from core.summary import ListPage, Seen, several

SECTIONS: tuple[HomeSection, ...] = get_args(HomeSection)
# A view has at most 100 blocks. A question takes three, a decision two, a line one, each section a heading and a row of buttons,
# and there may be two notes above.
PAGE_SIZES: Mapping[HomeSection, int] = {
    "inbox": 10,
    "taken": 5,
    "agents": 15,
    "ready": 10,
    "duty": 8,
    "answers": 8,
}
UNSURE = "Slack did not say which questions you may answer, so this list may be incomplete."
STRANGER = "You don't answer any agents here. Questions you are paged about appear in your inbox."
HEADINGS: Mapping[HomeSection, str] = {
    "inbox": "My inbox",
    "taken": "Claimed by me",
    "agents": "Agents",
    "ready": "Ready queue",
    "duty": "On call",
    "answers": "Recent decisions",
}
_NOTHING: Mapping[HomeSection, str] = {
    "inbox": "No questions are waiting for you.",
    "taken": "You haven't claimed any questions.",
    "agents": "None of the agents you answer is running.",
    "ready": "None of the sessions you answer is running.",
    "duty": "No on-call policy is configured.",
    "answers": "No decisions yet.",
}
_SEARCH = Input(
    "search",
    "Search decisions in your channels",
    "plain_text_input",
    action_id=SEARCH_ACTION,
    most=LONGEST_SEARCH,
    placeholder="rotate keys since 30d",
    multiline=False,
    sends=True,
)
_QUESTION, _SAID, _SESSION, _USERS, _LISTED = 300, 120, 14, 20, 5
_INDENT = "\u2003"  # an em space: Slack trims ordinary ones
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class DutyLine:
    """Who is on call by one policy: `users` are Slack ids, `source` says why."""

    policy: str
    users: tuple[str, ...]
    source: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one person sees. People who are on call or were paged see all agents and sessions; others see those whose
    questions they may answer. `stranger`: the person may answer nothing, so the agents are omitted. `locale`: the person's.
    """

    user: str
    inbox: ListPage[Seen]
    taken: ListPage[Seen]
    agents: ListPage[AgentNode]
    ready: ListPage[ReadyItem]
    duty: ListPage[DutyLine]
    answers: ListPage[QuestionRow]
    unsure: bool = False
    stranger: bool = False
    locale: str = ""


def home(shown: Chosen) -> View:
    """Returns a person's Home tab."""
    several = Counter(each.name or each.agent for each in shown.ready.items)
    made: list[Part] = list(sections(UNSURE if shown.unsure else "", STRANGER if shown.stranger else ""))
    made += _part(shown, "inbox", _questions("inbox", shown.inbox, shown.user))
    made += _part(shown, "taken", _questions("taken", shown.taken, shown.user))
    if not shown.stranger:
        made += _part(shown, "agents", [Context(tuple(_agent(each))) for each in shown.agents.items])
        ready = [_ready(each, told_apart=several[each.name or each.agent] > 1) for each in shown.ready.items]
        made += _part(shown, "ready", [Context((Words(each),)) for each in ready])
    made += _part(shown, "duty", [Context(tuple(_duty(each))) for each in shown.duty.items])
    if not shown.stranger:
        rows = [part for each in shown.answers.items for part in decision_row(each)]
        made += _part(shown, "answers", rows)
        made.append(_SEARCH)
    return View(tuple(made), HOME_CALLBACK, HOME_PRESS, kind="home")


def _part(shown: Chosen, section: HomeSection, rows: Sequence[Part]) -> Iterator[Part]:
    page: ListPage[Any] = getattr(shown, section)
    heading = HEADINGS[section] + (f" ({page.total})" if page.total else "")
    if page.pages > 1:
        heading += f", page {page.number} of {page.pages}"
    turns = turning(
        page,
        lambda to: HomePress("page", section, to),
        f"page of {HEADINGS[section]}",
        2 * SECTIONS.index(section) + 1,
    )
    yield Header(in_words(heading, shown.locale))
    yield from rows or [Context((Words(_NOTHING[section]),))]
    yield Actions(turns)


def _questions(section: HomeSection, page: ListPage[Seen], user: str) -> list[Part]:
    first = 100 * SECTIONS.index(section)
    return [part for n, each in enumerate(page.items, first) for part in _question(each, n, user)]


def _question(question: Seen, n: int, user: str) -> tuple[Part, Part]:
    again = f", round {question.round}" if question.round > 1 else ""
    state, whole = _state(question, user), question if isinstance(question, Clarification) else None
    agent = (whole.asked.agent_name if whole else None) or audience_of(question).agent
    facts = (
        Words(f"{_id(question.id)} · {name_of(agent)}{again}"),
        # Everything beside a question is mrkdwn.
        Words(until_words(question.expires_at).text, live=True),
        *((Words(state, live=True),) if state else ()),
    )
    buttons = _press("answer", question, ANSWER, n), _press("view", question, VIEW_FULL, n)
    said = (whole and whole.question) or question.short_topic
    words = listed_words(whole.current, said, _QUESTION) if whole else inert.quoted(plain(said), _QUESTION)
    return Section(Words(words), fields=facts), Actions(buttons)


def _press(verb: HomeVerb, question: Seen, label: str, n: int) -> Button:
    press = HomePress(verb, question.id, question.round)
    return button(press, label, f"{label.rstrip('…')} {_id(question.id)}", n=n)


def _state(question: Seen, user: str) -> str:
    """Returns the holder, if there is one; in the bot's own words."""
    escalated = "Escalated" if question.status == "escalated" else ""
    holder = ""
    if question.claimed_by is not None:
        holder = (
            "Claimed by you" if question.claimed_by == user else f"Claimed by {_who(question.claimed_by)}"
        )
    elif question.offered_to is not None:
        holder = "Handed to you" if question.offered_to == user else f"Handed to {_who(question.offered_to)}"
    return " · ".join(filter(None, (escalated, holder)))


def _agent(line: AgentNode) -> Iterator[Words]:
    nested = _INDENT * min(line.depth, _DEEPEST) + ("└ " if line.depth else "")
    state = phrases.waiting(line.status, line.on, lambda names: several(list(map(name_of, names)), _LISTED))
    ids = line.blocked_by or line.asked
    about = f" ({several(list(map(_id, ids)), _LISTED)})" if ids else ""
    yield Words(f"{nested}{name_of(line.name or line.agent)}: {state}{about}")
    if line.since is not None:
        yield Words(f"since {inert.date(line.since)}", live=True)


def _ready(line: ReadyItem, *, told_apart: bool) -> str:
    """Names a session by its agent, and by its id if the agent has several: most ids are random."""
    session = inert.as_value(line.session_id or "", _SESSION) if told_apart else ""
    named = name_of(line.name or line.agent) + (f", session {session}" if session else "")
    if not line.blocked_by:
        return f"🟢 ready: {named}"
    return f"⛔ blocked: {named}; waiting for {several(list(map(_id, line.blocked_by)), _LISTED)}"


def _duty(line: DutyLine) -> Iterator[Words]:
    users = [inert.mention(user) for user in line.users if inert.is_user(user)]
    yield Words(f"{name_of(line.policy)}:")
    yield Words(several(users, _USERS) or "no one", live=True)
    yield from plain_words(inert.line(line.source, _SAID))
    if line.until is not None:
        yield Words(f"until {inert.date(line.until)}", live=True)


def _who(user: str) -> str:
    return inert.mention(user) if inert.is_user(user) else "someone else"


def _id(text: str) -> str:
    return inert.line(text, ID_LIMIT)
