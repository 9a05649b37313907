"""What stands on somebody's Home tab: a snapshot of the facts in, sections in pages out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from bot.audience import Audience, audience_of
from bot.home.codec import Section
from bot.home.facts import Admitted, AgentLine, DutyLine, Fleet, ReadyLine
from core.clarification import HUMAN
from core.index import Summary

_T = TypeVar("_T")
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
class Snapshot:
    """All facts at one moment, the same for everybody.

    `questions`: what people can answer, those with the least time left first. `paged`: whom the pages of
    escalated ones were sent to. `answers`: the newest first. `number` grows with each snapshot of newer facts.
    `audiences`: those of which it has to be known whether somebody is among them.
    """

    number: int
    questions: Sequence[Summary] = ()
    audiences: frozenset[Audience] = frozenset()
    paged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    duties: tuple[DutyLine, ...] = ()
    answers: tuple[Answered, ...] = ()


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
    ready: Page[ReadyLine]
    duty: Page[DutyLine]
    answers: Page[Answered]
    unsure: bool = False
    stranger: bool = False

    @property
    def questions(self) -> tuple[Summary, ...]:
        """The questions that are shown, each once."""
        return tuple({each.id: each for each in (*self.inbox.items, *self.taken.items)}.values())


def by_time_left(questions: Collection[Summary]) -> list[Summary]:
    """Those that run out first come first, those that never do last, older ones before younger ones."""
    items = list(questions)
    # Numbers sort many times faster than moments, and the loop waits while thousands are sorted.
    left = [each.expires_at.timestamp() if each.expires_at else float("inf") for each in items]
    asked = [each.created.timestamp() for each in items]
    order = sorted(range(len(items)), key=asked.__getitem__)
    order.sort(key=left.__getitem__)
    return [items[at] for at in order]


def chosen(snapshot: Snapshot, user: str, admitted: Admitted, pages: Mapping[str, int]) -> Chosen:
    """What `user` sees of the facts, on the pages that they turned to; a page that is gone becomes the last one."""
    inbox = [each for each in snapshot.questions if _waits_for(user, each, snapshot, admitted)]
    answers = [each for each in snapshot.answers if each.audience in admitted.audiences or each.user == user]
    everything = _sees_everything(user, snapshot)
    stranger = not (admitted.audiences or admitted.unsure or inbox or everything)
    agents = [each for each in snapshot.fleet.agents if everything or each.audience in admitted.audiences]
    ready = [each for each in snapshot.fleet.ready if everything or each.audience in admitted.audiences]

    def page(section: Section, items: Sequence[_T]) -> Page[_T]:
        return _page(items, pages.get(section, 1), PAGE_SIZES[section])

    return Chosen(
        user=user,
        inbox=page("inbox", inbox),
        taken=page("taken", [each for each in inbox if each.taken_by == user]),
        agents=page("agents", agents),
        ready=page("ready", ready),
        duty=page("duty", snapshot.duties),
        answers=page("answers", answers),
        unsure=admitted.unsure,
        stranger=stranger and bool(snapshot.fleet.agents or snapshot.questions),
    )


def _waits_for(user: str, question: Summary, snapshot: Snapshot, admitted: Admitted) -> bool:
    """Whether they may answer it, or it is theirs by being on call."""
    return (
        audience_of(question) in admitted.audiences
        or user in (question.taken_by, question.handed_to)
        or user in snapshot.paged.get(question.id, ())
    )


def _sees_everything(user: str, snapshot: Snapshot) -> bool:
    """Whether they have to know how all agents stand: to decide at night what blocks what."""
    return any(user in each.users for each in snapshot.duties) or any(
        user in users for users in snapshot.paged.values()
    )


def _page(items: Sequence[_T], number: int, size: int) -> Page[_T]:
    pages = max(1, -(-len(items) // size))
    number = min(max(1, number), pages)
    return Page(tuple(items[(number - 1) * size : number * size]), number, pages, len(items))
