"""Who stands in on call: overrides of the turns, kept in the storage."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime

from bot.delivery.store import Store
from core.clock import Clock
from core.escalation import Override


class Duty:
    """Every method raises StorageUnavailable when the storage did not do it. `changed()` is told of every change."""

    def __init__(self, store: Store, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._clock = clock
        self._changed = changed

    async def take(self, policy: str, user: str, until: datetime) -> Override:
        """`user` takes over from now on."""
        return await self.hand(policy, user, until, user)

    async def hand(self, policy: str, user: str, until: datetime, by: str) -> Override:
        """`by` has `user` take over from now on; durable when this returns."""
        made = Override(user, self._clock.now(), until, by)
        since = made.since.timestamp()

        def work(db: sqlite3.Connection) -> None:
            db.execute("delete from overrides where until <= ?", (since,))
            db.execute(
                "insert into overrides (policy, user, since, until, made_by) values (?, ?, ?, ?, ?)",
                (policy, user, since, until.timestamp(), by),
            )

        await self._store.write(work)
        self._changed()
        return made

    async def list(self, policy: str) -> tuple[Override, ...]:
        """The overrides of a policy that are not known to be over, in the order of making."""
        rows = await self._store.read("select * from overrides where policy = ? order by id", policy)
        return tuple(
            Override(row["user"], _moment(row["since"]), _moment(row["until"]), row["made_by"])
            for row in rows
        )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
