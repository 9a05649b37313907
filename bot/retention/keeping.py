"""Once a day: ledgers that are over go to the archive, rows of the storage that nobody needs any more go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

import structlog

from bot.delivery.retained import Needed, Retained
from bot.errors import StorageUnavailable
from core.clock import Clock
from core.errors import ClarifyError, LedgersAway
from core.index import Summary, session_of
from core.ledger import FileLedger
from core.records import is_over

_log = structlog.get_logger("clarify.retention")
_DAY = timedelta(days=1)


class Retention:
    """`index`: what still needs something. `keep`: how long the storage keeps what is over; None: for ever."""

    def __init__(
        self,
        *,
        ledger: FileLedger,
        retained: Retained,
        index: Iterable[Summary],
        clock: Clock,
        archive_after: timedelta,
        keep: timedelta | None,
    ) -> None:
        self._ledger = ledger
        self._retained = retained
        self._index = index
        self._clock = clock
        self._archive_after = archive_after
        self._keep = keep

    async def run(self) -> None:
        """At once and then daily, until cancelled."""
        while True:
            await self.tidy()
            await self._clock.sleep(_DAY.total_seconds())

    async def tidy(self) -> None:
        """All of it once. What does not succeed is logged, and tried again the next time."""
        await self._archive()
        if self._keep is not None:
            await self._sweep(self._keep)

    async def _archive(self) -> None:
        now, moved = self._clock.now(), 0
        try:
            issues = await asyncio.to_thread(lambda: list(self._ledger.issues()))
        except LedgersAway as error:
            _log.warning("nothing is archived", reason=str(error))
            return
        for issue in issues:
            try:
                moved += await self._shelve(issue, now)
            except ClarifyError as error:
                _log.warning("a ledger stays where it is", issue=issue, reason=str(error))
        if moved:
            _log.info("archived", ledgers=moved)

    async def _shelve(self, issue: int, now: datetime) -> bool:
        """Looked at without the lock first: most are not over, and nobody waits for them."""
        over = partial(is_over, now=now, after=self._archive_after)
        return over(await self._ledger.read(issue)) and await self._ledger.shelve(issue, over)

    async def _sweep(self, keep: timedelta) -> None:
        now = self._clock.now()
        needed = Needed(
            frozenset(each.id for each in self._index), frozenset(session_of(each) for each in self._index)
        )
        try:
            gone = await self._retained.sweep((now - keep).timestamp(), now.timestamp(), needed)
        except StorageUnavailable as error:
            _log.warning("the storage keeps what is over", reason=str(error))
            return
        if gone:
            _log.info("rows that nobody needs went", **gone)
