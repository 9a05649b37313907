"""Where the pages of incidents stand in Slack: which messages to bring up to date, which are covered by newer ones."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from bot.delivery.store import Store


class Shown:
    """Every method raises StorageUnavailable if nothing could be read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_incidents(self, incidents: Iterable[int]) -> list[tuple[str, str, bool]]:
        """The messages that are about incidents, pages and the cards of handoffs, and may still have to change: lane,
        key, whether to post it.
        """
        rows = await self._store.read(
            """select distinct m.key, m.target, m.channel, m.ts from json_each(?1) wanted
               join page_items i on i.incident = wanted.value join page_sendings s on s.page = i.page
               join messages m on m.key = s.message where m.final = 0 and m.failed is null
               union
               select m.key, m.target, m.channel, m.ts from json_each(?1) wanted
               join incidents x on x.id = wanted.value and x.kind = 'handoff'
               join messages m on m.key = 'notice:' || substr(x.key, instr(x.key, ':') + 1)
               where m.kind = 'handoff' and m.final = 0 and m.failed is null""",
            json.dumps(list(incidents)),
        )
        return [_lane(row) for row in rows]

    async def older(self, key: str) -> list[tuple[str, str, bool]]:
        """The messages before `key` to the same target, about something that it is about."""
        rows = await self._store.read(
            """select distinct m.key, m.target, m.channel, m.ts from page_sendings new
               join page_items i on i.page = new.page join page_items j on j.incident = i.incident
               join page_sendings old on old.page = j.page and old.via = 'slack' and old.target = new.target
               join messages m on m.key = old.message
               where new.message = ? and old.page < new.page and m.final = 0 and m.failed is null""",
            key,
        )
        return [_lane(row) for row in rows]

    async def is_covered(self, key: str, *, posted: bool) -> bool:
        """Whether newer pages to the same target are about all that is open of `key`'s.

        One that is `posted` is covered by what is there, too; another by what is on its way.
        """
        row = await self._store.read_one(
            """select count(*) as open, coalesce(sum(exists (
                 select 1 from page_items j join page_sendings s on s.page = j.page
                 left join messages m on m.key = s.message
                 where j.incident = i.incident and s.via = 'slack' and s.target = mine.target
                   and j.page > i.page and m.failed is null and (m.ts is not null or not ?))), 0) as covered
               from page_sendings mine join page_items i on i.page = mine.page
               join incidents x on x.id = i.incident
               where mine.message = ? and x.closed_at is null""",
            int(posted),
            key,
        )
        return row is not None and row["open"] > 0 and row["open"] == row["covered"]

    async def sending_of(self, key: str) -> tuple[int, str] | None:
        """The page and the target of a message."""
        row = await self._store.read_one("select page, target from page_sendings where message = ?", key)
        return (row["page"], row["target"]) if row else None

    async def mentions(self, key: str) -> tuple[str, ...]:
        """Whom a message calls by name."""
        row = await self._store.read_one("select mentions from page_sendings where message = ?", key)
        return tuple(json.loads(row["mentions"])) if row else ()

    async def is_posted(self, key: str) -> bool:
        row = await self._store.read_one("select ts from messages where key = ?", key)
        return row is not None and row["ts"] is not None

    async def sent_at_restart(self) -> list[str]:
        """The messages that are there, though it is not written down that they were sent."""
        rows = await self._store.read(
            """select s.message from page_sendings s join messages m on m.key = s.message
               where s.state in ('wanted', 'late') and m.ts is not null"""
        )
        return [row["message"] for row in rows]


def _lane(row: sqlite3.Row) -> tuple[str, str, bool]:
    """What is still being posted stays in the lane in which that was begun: two lanes would both post it."""
    if row["ts"] is None:
        return row["target"], row["key"], True
    return row["channel"] or row["target"], row["key"], False
