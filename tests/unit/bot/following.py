"""What follows the ledgers and tells others outside: beside real ledgers and a real storage, over several lives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer, Ask, Clarification, Decider, answered, opened
from core.ledger import OfIssue
from tests.kit.clocks import ManualClock

SLA = timedelta(minutes=30)
ADA = Decider("user:slack/T1/U1", "slack", "T1", "U1")


class Follower(Protocol):
    def record_changed(self, record: Clarification) -> None: ...

    async def run(self) -> None: ...


_F = TypeVar("_F", bound=Follower)


class Following(Generic[_F]):
    """A follower's surroundings. `made` makes the next one; `begin` is its `restore`."""

    follower: _F

    def __init__(self, clock: ManualClock, ledger: DatabaseLedger) -> None:
        self.clock = clock
        self.ledger = ledger
        self.store = ledger.store
        self._sequence: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def begin(self, follower: _F) -> None:
        raise NotImplementedError

    async def live(self, follower: _F) -> None:
        """As when the bot starts: a new follower, which knows what the storage and the ledgers say."""
        self.follower = follower
        await self.begin(follower)
        self._task = asyncio.create_task(follower.run())

    async def kill(self) -> None:
        """Nothing more is done, not even what a clean end does."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def write(self, record: Clarification) -> Clarification:
        """Into the ledger, without a word to anybody."""
        await self.ledger.transact(OfIssue(record.issue_number), lambda book: book.put(record))
        return record

    async def put(self, record: Clarification) -> Clarification:
        """Written, and told of."""
        await self.write(record)
        self.follower.record_changed(record)
        return record

    def question(
        self, issue: int = 42, question: str = "Which database?", topic: str = "db"
    ) -> Clarification:
        self._sequence[issue] = number = self._sequence.get(issue, 0) + 1
        ask = Ask("engineer", question, "architect", topic, True, self.clock.now(), via="shell")
        return opened(issue, number, ask, self.clock.now(), SLA)

    def answered(self, record: Clarification, text: str = "Postgres") -> Clarification:
        return answered(record, Answer(text, text), ADA, self.clock.now())

    async def ask(
        self, issue: int = 42, question: str = "Which database?", topic: str = "db"
    ) -> Clarification:
        return await self.put(self.question(issue, question, topic))

    async def answer(self, record: Clarification, text: str = "Postgres") -> Clarification:
        return await self.put(self.answered(record, text))
