"""Tells all endpoints of what happens to clarifications."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import structlog

from bot.delivery.outbox import Outbox
from bot.delivery.store import Store
from bot.errors import StorageUnavailable
from bot.http import ANSWER_TIMEOUT
from bot.webhooks.courier import Courier
from bot.webhooks.model import NAMES, Endpoint, Look
from bot.webhooks.news import last_change
from core.clock import Clock
from core.errors import LedgersAway, LedgerUnreadable, LockTimeout
from core.index import Summary, summarize
from core.ledger import Raw, parse

_log = structlog.get_logger("clarify.webhooks")
_RETRY, _AWAY = 1.0, 5.0  # seconds
_BATCH = 64


class Ledgers(Protocol):
    """`core.ledger.FileLedger`."""

    def issues(self) -> Iterator[int]: ...
    async def read(self, issue: int) -> list[Raw]: ...


class Webhooks:
    """`note` every record as it is written; `restore` once, then `run` until cancelled, then `close`.

    `told` gets "webhook" and each outcome: sent, later, never (given up).
    """

    def __init__(
        self,
        *,
        endpoints: Sequence[Endpoint],
        records: Ledgers,
        store: Store,
        clock: Clock,
        rng: random.Random,
        told: Callable[[str, str], None] = lambda _kind, _outcome: None,
        new_id: Callable[[], str] = lambda: f"msg_{uuid.uuid4().hex}",
        timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._endpoints = {each.id: each for each in endpoints}
        self._records = records
        self._outbox = Outbox(store)
        self._clock = clock
        self._new_id = new_id
        self._looks: deque[Look] = deque()
        self._noted: set[str] | None = (
            set()
        )  # while the ledgers are compared: what is newer than what is read
        self._wake = asyncio.Event()
        self._queueing = False
        self._couriers = {
            each.id: Courier(
                each,
                outbox=self._outbox,
                clock=clock,
                rng=rng,
                told=lambda outcome: told("webhook", outcome),
                timeout=timeout,
            )
            for each in self._endpoints.values()
        }

    @property
    def idle(self) -> bool:
        """Whether nothing can be done now: what is left waits for its time."""
        busy = self._looks or self._queueing or self._noted is not None
        return not busy and all(each.resting for each in self._couriers.values())

    def note(self, summary: Summary) -> None:
        """A clarification as it is now, after each change. Cheap; `run` does the rest."""
        if self._noted is not None:
            self._noted.add(summary.id)
        self._looks.append(Look(summary, self._clock.now()))
        self._wake.set()

    async def restore(self) -> None:
        """From now on what happens is told: to be called before anything is noted.

        Raises:
            StorageUnavailable: it is not known what was told.
        """
        self._since, dropped = await self._outbox.begin(self._clock.now(), self._endpoints.values())
        if dropped:
            _log.warning("events for endpoints that are not configured any more were dropped", events=dropped)

    async def run(self) -> None:
        """Queue what is noted, compare the ledgers once with what was told, send."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue(), name="webhooks: queue")
            group.create_task(self._compare(), name="webhooks: what was missed")
            for each in self._couriers.values():
                group.create_task(each.run(), name="webhooks: courier")

    async def close(self) -> None:
        """After `run`: the last of what was noted is queued; what cannot be is found on the next start."""
        try:
            while self._looks:
                await self._queue_some()
        except StorageUnavailable as error:
            _log.warning("events are queued on the next start", events=len(self._looks), reason=str(error))

    async def waiting(self) -> Mapping[str, int]:
        """How many events are queued, by the host of the endpoint."""
        found: dict[str, int] = {}
        for each in self._endpoints.values():
            found[each.label] = found.get(each.label, 0) + await self._outbox.waiting(each)
        return found

    async def _queue(self) -> None:
        while True:
            self._wake.clear()
            if not self._looks:
                await self._wake.wait()
            try:
                await self._queue_some()
            except StorageUnavailable as error:
                _log.warning("events have to wait", events=len(self._looks), reason=str(error))
                await self._clock.sleep(_RETRY)

    async def _queue_some(self) -> None:
        """The next of what was noted. What the storage refuses comes again; who is cancelled leaves it to the storage,
        which does it all the same: noted again, older looks after newer ones would tell the newer anew.
        """
        batch = [self._looks.popleft() for _ in range(min(_BATCH, len(self._looks)))]
        ids = [self._new_id() for _ in range((len(NAMES) + 1) * len(batch))]
        self._queueing = True
        try:
            queued = await self._outbox.note(batch, self._endpoints.values(), ids)
        except StorageUnavailable:
            self._looks.extendleft(reversed(batch))
            raise
        finally:
            self._queueing = False
        for courier in self._couriers.values() if queued else ():
            courier.wake()

    async def _compare(self) -> None:
        """Find what was written, by us or by others, and never told. What is noted meanwhile is newer than that."""
        left = await self._all_issues()
        while left:
            left = [issue for issue in left if not await self._compared(issue)]
            if left:
                await self._clock.sleep(_RETRY)
        self._noted = None

    async def _all_issues(self) -> list[int]:
        while True:
            try:
                return await asyncio.to_thread(lambda: sorted(self._records.issues()))
            except LedgersAway as error:
                _log.warning("the ledgers are compared later", reason=str(error))
                await self._clock.sleep(_AWAY)

    async def _compared(self, issue: int) -> bool:
        try:
            items = await self._records.read(issue)
        except LockTimeout:
            return False
        except LedgerUnreadable as error:
            _log.error("a ledger cannot be compared", issue=issue, reason=str(error))
            return True
        now, noted = self._clock.now(), self._noted or set()
        for record in [record for item in items if (record := parse(item)) is not None]:
            summary, changed = summarize(record), last_change(record)
            if record.id not in noted and (summary.needs_something or changed >= self._since):
                self._looks.append(Look(summary, now, changed))
                self._wake.set()
        return True
