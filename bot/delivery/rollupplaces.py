"""Which questions a roll-up card holds, by where in Slack it stands: a reply in its thread is about them."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from bot.delivery.inflight import InFlight
from bot.delivery.rollups import Rollups
from bot.routing import Group
from bot.storage.store import Store


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """Where a roll-up card stands in Slack, and the clarifications that it holds."""

    channel: str
    ts: str
    holds: tuple[str, ...]


class RollupPlaces:
    """Where roll-up cards stand. Raises StorageUnavailable: it is not known now."""

    def __init__(self, store: Store, in_flight: InFlight, rollups: Rollups) -> None:
        self._store = store
        self._in_flight = in_flight
        self._rollups = rollups

    async def held_at(self, channel: str, ts: str) -> tuple[str, ...] | None:
        """The clarifications that the roll-up card at a place holds now; None where it is none."""
        while True:
            # A reply can be here before it is known that the card arrived.
            change = self._in_flight.next_change() if self._in_flight.any_in(channel) else None
            row = await self._store.read_one(
                "select * from messages where kind = 'rollup' and channel = ? and ts = ?", channel, ts
            )
            if row is not None:
                return self._held(row)
            if change is None:
                return None
            await change.wait()

    async def open_rollups(self) -> list[RollupPlace]:
        """The roll-up cards that may still change."""
        rows = await self._store.read(
            "select * from messages where kind = 'rollup' and final = 0 and failed is null and ts is not null"
        )
        return [RollupPlace(row["channel"], row["ts"], self._held(row)) for row in rows]

    def _held(self, row: sqlite3.Row) -> tuple[str, ...]:
        body = json.loads(row["body"] or "{}")
        group = Group(body.get("agent", ""), body.get("channel") or row["target"])
        return tuple(each.id for each in self._rollups.held(group))
