"""A publisher with its parties: a fleet of open questions, a Slack that answers as told, viewers in a dict or SQLite."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

from bot.audience import Audience
from bot.home.facts import Admitted, DutyLine, Fleet
from bot.home.gathering import Answers, Gathering, Questions
from bot.home.making import Maker
from bot.home.ports import Viewers
from bot.home.publisher import HomePublisher
from bot.people import Person
from bot.render import Renderer
from bot.slackapi import Outcome, Sent
from core.clarification import Clarification
from core.errors import NotFound
from core.index import Summary
from tests.clocks import START, ManualClock

ADE, BEA = "U0ADE", "U0BEA"


def summary(seq: int = 1, **more: Any) -> Summary:
    """An open question of the planner that never expires; `more` replaces fields."""
    fields: dict[str, Any] = {
        "id": f"CLR-42-{seq:03d}",
        "issue": 42,
        "status": "pending",
        "round": 1,
        "digest": f"d{seq}",
        "created": START + timedelta(seconds=seq),
        "expires_at": None,
        "producer": "planner",
        "agent_id": "planner",
        "session_id": "sess_1",
        "reply": None,
        "adoptable": False,
        "from_": "planner",
        "to": "human",
        "topic": f"Topic {seq}",
    }
    return Summary(**(fields | more))


async def inline(work: Callable[..., Any], *arguments: Any) -> Any:
    """In place of a thread: the simulated time stands still meanwhile."""
    return work(*arguments)


class NoRecords:
    """The topics stand in for the questions."""

    async def find(self, clarification_id: str, issue: int) -> Clarification:
        raise NotFound(clarification_id)


class KnownQuestions(Questions):
    def __init__(self) -> None:
        super().__init__(NoRecords())

    async def words(self, summaries: Any) -> dict[str, str]:
        return {each.id: each.topic for each in summaries}


class Everybody:
    """Everybody may answer everybody, but those in `refused` nobody; `unsure` people are not known."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.unsure: set[str] = set()

    async def admitted(self, person: Person, audiences: Collection[Audience]) -> Admitted:
        if person.user in self.unsure:
            return Admitted(frozenset(), unsure=True)
        return Admitted(frozenset() if person.user in self.refused else frozenset(audiences))


class Slack:
    """Takes every view, but where `answers` holds something else for a person; `held` ones wait for their event."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.published: list[tuple[float, str, dict[str, Any]]] = []
        self.answers: dict[str, deque[Outcome | Exception]] = defaultdict(deque)
        self.slow: dict[str, float] = {}

    async def publish(self, user: str, view: dict[str, Any]) -> Outcome:
        self.published.append((self._clock.now().timestamp(), user, view))
        if seconds := self.slow.get(user):
            await self._clock.sleep(seconds)
        if not self.answers[user]:
            return Sent(user, "")
        answer = self.answers[user].popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def times(self, user: str | None = None) -> list[float]:
        return [at for at, who, _ in self.published if user in (None, who)]

    def users(self) -> list[str]:
        return [who for _, who, _ in self.published]

    def last(self, user: str) -> str:
        """All that somebody's tab says now."""
        return words([view for _, who, view in self.published if who == user][-1])


def words(view: Any) -> str:
    """All that a view says, joined by newlines."""
    return "\n".join(_texts(view))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value["text"]
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


class World:
    """Everything in simulated time."""

    def __init__(self, viewers: Viewers) -> None:
        self.clock = ManualClock()
        self.open: list[Summary] = []
        self.duties: list[DutyLine] = []
        self.paged: dict[str, frozenset[str]] = {}
        self.answers = Answers()
        self.access = Everybody()
        self.slack = Slack(self.clock)
        self.snapshots = 0
        self.fleet: Fleet | Exception = Fleet()
        self.gathering_takes = 0.0  # seconds
        self.drift = 0.0  # what the monotonic clock loses against the other
        self.viewers = viewers
        self.home = self.publisher()

    def publisher(self) -> HomePublisher:
        """A new one, as after a restart."""
        return HomePublisher(
            gathering=Gathering(
                index=self.open,
                answers=self.answers,
                fleet=self._fleet,
                duties=self._duties,
                paged=lambda clarification: self.paged.get(clarification, frozenset()),
                shows=lambda _: True,
                offload=inline,
            ),
            maker=Maker(access=self.access, questions=KnownQuestions(), renderer=Renderer(), offload=inline),
            publish=self.slack.publish,
            viewers=self.viewers,
            clock=self.clock,
            seconds=lambda: (self.clock.now() - START).total_seconds() * (1 - self.drift),
        )

    def change(self) -> None:
        """One more question is open."""
        self.open.append(summary(len(self.open) + 1))
        self.home.touch()

    async def _fleet(self, known: Sequence[Summary]) -> Fleet:
        self.snapshots += 1
        if self.gathering_takes:
            await self.clock.sleep(self.gathering_takes)
        if isinstance(self.fleet, Exception):
            raise self.fleet
        return self.fleet

    async def _duties(self) -> list[DutyLine]:
        return self.duties
