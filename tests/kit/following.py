"""The feed with a consumer that tells others outside: beside real records and a real storage, over several lives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

from bot.feed import Consumer, Feed
from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer, Ask, Clarification, Decider, Question
from core.ledger import OfIssue, OfRecord
from core.transitions import answered, opened
from tests.kit.clocks import ManualClock

SLA = timedelta(minutes=30)
ADA = Decider("user:slack/T1/U1", "slack", "T1", "U1")


class Follower(Consumer, Protocol):
    async def run(self) -> None: ...


_F = TypeVar("_F", bound=Follower)


class Following(Generic[_F]):
    """A consumer's surroundings."""

    follower: _F
    feed: Feed

    def __init__(self, clock: ManualClock, ledger: DatabaseLedger) -> None:
        self.clock = clock
        self.ledger = ledger
        ledger.clock = clock
        self.store = ledger.store
        self._sequence: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def live(self, follower: _F, keep: timedelta | None = None) -> None:
        """As when the bot starts: a new consumer, which knows what the storage says."""
        self.follower = follower
        self.feed = Feed(
            consumers=[follower],
            ledger=self.ledger,
            store=self.store,
            clock=self.clock,
            sign=self.sign,
            keep=keep,
        )
        await self.feed.begin()
        self._task = asyncio.create_task(self.feed.run())

    async def sign(self, record: Clarification) -> bool:
        if not await self.ledger.owes_receipt(record):
            return False
        await self.ledger.transact(OfRecord(record.id), lambda book: book.put(book.get(record.id), owed=True))
        return True

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
        """Written, and told of if the bot runs."""
        await self.write(record)
        if self._task is not None:
            self.feed.record_changed(record)
        return record

    def question(
        self, issue: int = 42, question: str = "Which database?", topic: str = "db"
    ) -> Clarification:
        self._sequence[issue] = number = self._sequence.get(issue, 0) + 1
        ask = Ask(
            "engineer",
            question,
            "architect",
            topic,
            True,
            Question(received_at=self.clock.now(), via="shell"),
        )
        return opened(issue, number, ask, self.clock.now(), SLA)

    def answered(self, record: Clarification, text: str = "Postgres") -> Clarification:
        return answered(record, Answer(text, text), ADA, self.clock.now())

    async def ask(
        self, issue: int = 42, question: str = "Which database?", topic: str = "db"
    ) -> Clarification:
        return await self.put(self.question(issue, question, topic))

    async def answer(self, record: Clarification, text: str = "Postgres") -> Clarification:
        return await self.put(self.answered(record, text))
