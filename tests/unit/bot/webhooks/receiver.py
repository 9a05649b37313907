"""A small receiver of webhooks, and a world around it: real storage, real ledgers, a clock that tests move."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from bot.delivery.store import Store
from bot.webhooks.model import Endpoint
from bot.webhooks.webhooks import Ledgers, Webhooks
from core.clarification import Answer, Ask, Clarification, Decider
from core.clock import Clock
from core.index import summarize
from core.ledger import FileLedger
from core.transitions import answered, opened
from tests.clocks import ManualClock, until

SLA = timedelta(minutes=30)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ADA = Decider("user:slack/T1/U1", "slack", "T1", "U1")


@dataclass(frozen=True)
class Got:
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> Any:
        return json.loads(self.body)

    @property
    def event(self) -> str:
        """`requested CLR-42-001`"""
        return f"{self.said['type'].removeprefix('clarification-')} {self.said['data']['clarificationId']}"


@dataclass
class Receiver:
    """Answers as `answers` says, by event or in turn (status, headers; 0 hangs up, -1 never answers); else 204."""

    url: str = ""
    got: list[Got] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    refuses: Callable[[Got], int | None] = lambda _: None
    stall: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.StreamResponse:
        got = Got(dict(request.headers), await request.read())
        self.got.append(got)
        status, headers = self.answers.pop(0) if self.answers else (self.refuses(got) or 204, {})
        if status == -1:
            await self.stall.wait()
        if status <= 0:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        return web.Response(status=status, headers=headers)

    @property
    def events(self) -> list[str]:
        return [got.event for got in self.got]


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?key=s3cret"
    try:
        yield receiver
    finally:
        receiver.stall.set()
        await runner.cleanup()


class World:
    def __init__(self, folder: Path, clock: ManualClock, store: Store, *endpoints: Endpoint) -> None:
        self.folder = folder
        self.clock = clock
        self.store = store
        self.ledger = FileLedger(folder)
        self.records: Ledgers = self.ledger
        self.endpoints = endpoints
        self.timeout = 10.0
        self.told: list[str] = []
        self._ids = itertools.count(1)
        self._sequence: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self.webhooks = self._made()

    def _made(self, clock: Clock | None = None) -> Webhooks:
        return Webhooks(
            endpoints=self.endpoints,
            records=self.records,
            store=self.store,
            clock=clock or self.clock,
            rng=random.Random(1),  # noqa: S311 - no secret
            told=lambda _, outcome: self.told.append(outcome),
            new_id=lambda: f"msg_{next(self._ids)}",
            timeout=self.timeout,
        )

    async def start(self, *, compared: bool = True) -> None:
        """As when the bot starts: new webhooks, which know what the storage and the ledgers say."""
        self.webhooks = self._made()
        await self.webhooks.restore()
        self._task = asyncio.create_task(self.webhooks.run())
        if compared:
            await until(lambda: self.webhooks._noted is None)

    async def kill(self) -> None:
        """Nothing more is done, not even what a clean end does."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def close(self) -> None:
        await self.kill()
        self.ledger.close()
        await self.store.close()

    async def write(self, record: Clarification) -> Clarification:
        """Into the ledger, without a word to anybody."""
        await self.ledger.transact(record.issue_number, lambda book: book.put(record))
        return record

    async def put(self, record: Clarification) -> Clarification:
        """Written, and noted."""
        await self.write(record)
        self.webhooks.note(summarize(record))
        return record

    def question(self, issue: int = 42, **changes: Any) -> Clarification:
        self._sequence[issue] = number = self._sequence.get(issue, 0) + 1
        ask = Ask("engineer", "Which database?", "architect", "storage", True, self.clock.now(), via="http")
        return opened(issue, number, ask, self.clock.now(), SLA)

    async def ask(self, issue: int = 42) -> Clarification:
        return await self.put(self.question(issue))

    def answered(self, record: Clarification) -> Clarification:
        return answered(record, Answer("Postgres", "Postgres"), ADA, self.clock.now())

    async def answer(self, record: Clarification) -> Clarification:
        return await self.put(self.answered(record))

    async def quiet(self) -> None:
        """Nothing can be done now."""
        await until(lambda: self.webhooks.idle)
