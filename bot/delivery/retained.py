"""What the storage keeps of things that are over, and for how long: rows that nobody needs any more go.

A rule finds, in pages, the rows of one table that may go; Python leaves out those that something open needs; what is
left is deleted in small transactions, between which other writers have their turn. Rows without a time of their own
are noted when they are first found over, and go once that was long enough ago.

Ids of rows are parts of names elsewhere (`notice:17`, `page:3:…`), and SQLite gives out the highest one anew once its
row is gone: that row stays.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.storage.store import Store

BATCH = 200
_PAGES_AT_ONCE = 128  # of 4 KiB, given back to the file system in one go
_ID = re.compile(r"CLR-\d+-\d+")


@dataclass(frozen=True, slots=True)
class Needed:
    """What something open, or not settled, still needs: ids of clarifications, sessions as (producer, session id)."""

    clarifications: Collection[str] = field(default_factory=frozenset)
    sessions: Collection[tuple[str, str]] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class _Rule:
    """`find` takes the name of the last row seen, the horizon and a limit, and gives `name` and what `_is_needed`
    looks at. `delete` (several statements, in order) takes :names as JSON.
    """

    table: str
    find: str
    delete: Sequence[str]
    timeless: bool = False
    first: object = ""


_DEDUPLICATION = _Rule(
    "inbox",
    """select id as name, producer, session_id from inbox where id > ?1 and id < (select max(id) from inbox)
       and state <> 'new' and received_at < ?2 and coalesce(expires_at, 0) < ?2
       order by id limit ?3""",
    ("delete from inbox where id in (select value from json_each(:names)) and state <> 'new'",),
    first=0,
)
_SHOWN = _Rule(
    "messages",
    """select key as name, clarification from messages where key > ?1 and kind <> 'page'
       and ts is not null and cast(ts as real) < ?2 and intent_at is null
       and (final = 1 or failed is not null or clarification is not null) order by key limit ?3""",
    ("delete from messages where key in (select value from json_each(:names)) and intent_at is null",),
)
_NEVER_SHOWN = _Rule(
    "messages",
    """select key as name, clarification from messages where key > ?1 and kind <> 'page'
       and ts is null and intent_at is null and (failed is not null or (kind = 'card' and clarification is not null)
         or (kind <> 'rollup' and session_id is not null and (producer, session_id) not in (
              select producer, session_id from sessions)))
       order by key limit ?3""",
    (
        "delete from messages where key in (select value from json_each(:names)) and ts is null and intent_at is null",
    ),
    timeless=True,
)
_TRIES = _Rule(
    "replies",
    """select clarification || ' ' || token as name, clarification from replies
       where clarification || ' ' || token > ?1 order by name limit ?3""",
    ("delete from replies where clarification || ' ' || token in (select value from json_each(:names))",),
    timeless=True,
)
_PUSHED = _Rule(
    "pushed_replies",
    """select id as name, producer, session_id from pushed_replies where id > ?1
       and coalesce(written_at, expires_at) < ?2 and (state = 'confirmed' or expires_at < ?2)
       order by id limit ?3""",
    ("delete from pushed_replies where id in (select value from json_each(:names))",),
    first=0,
)
_TEXTS = _Rule(
    "texts",
    "select id as name, body as said from texts where id > ?1 order by id limit ?3",
    ("delete from texts where id in (select value from json_each(:names))",),
    timeless=True,
)
_ONCES = _Rule(
    "onces",
    "select key as name, key as said from onces where key > ?1 order by key limit ?3",
    ("delete from onces where key in (select value from json_each(:names))",),
    timeless=True,
)
_HEARD = _Rule(
    "slack_events",
    """select event_id as name from slack_events where event_id > ?1 and state = 'done'
       order by event_id limit ?3""",
    ("delete from slack_events where event_id in (select value from json_each(:names)) and state = 'done'",),
    timeless=True,
)
_INCIDENTS = _Rule(
    "incidents",
    """select id as name, clarification from incidents i where id > ?1 and id < (select max(id) from incidents)
       and closed_at < ?2 and kind <> 'ledger' and not exists (
         select 1 from page_items p join page_sendings s on s.page = p.page
         where p.incident = i.id and s.state in ('wanted', 'late'))
       order by id limit ?3""",
    (
        "delete from incident_log where incident in (select value from json_each(:names))",
        "delete from page_items where incident in (select value from json_each(:names))",
        "delete from incidents where id in (select value from json_each(:names))",
    ),
    first=0,
)
_PAGES = _Rule(
    "pages",
    """select id as name from pages g where id > ?1 and id < (select max(id) from pages) and at < ?2
       and not exists (select 1 from page_items p where p.page = g.id) order by id limit ?3""",
    (
        """delete from messages where key in (select message from page_sendings
           where message is not null and page in (select value from json_each(:names)))""",
        "delete from page_sendings where page in (select value from json_each(:names))",
        "delete from pages where id in (select value from json_each(:names))",
    ),
    first=0,
)
_STAND_INS = _Rule(
    "overrides",
    """select id as name from overrides where id > ?1 and id < (select max(id) from overrides)
       and until < ?2 order by id limit ?3""",
    ("delete from overrides where id in (select value from json_each(:names))",),
    first=0,
)
_HOMES = _Rule(
    "homes",
    "select user_id as name from homes where user_id > ?1 and opened_at < ?2 order by user_id limit ?3",
    ("delete from homes where user_id in (select value from json_each(:names))",),
)
_SESSIONS = _Rule(
    "sessions",
    """select json_array(producer, session_id) as name, producer, session_id from (
         select producer, session_id from sessions
         except select producer, session_id from inbox
         except select producer, session_id from messages where session_id is not null)
       where json_array(producer, session_id) > ?1 order by name limit ?3""",
    (
        """delete from sessions where (producer, session_id) in (
             select json_extract(value, '$[0]'), json_extract(value, '$[1]') from json_each(:names))
           and (producer, session_id) not in (select producer, session_id from inbox)""",
    ),
)
_ERASED = _Rule(
    "erasures",
    """select channel || ' ' || ts as name from erasures where channel || ' ' || ts > ?1 and state <> 'wanted'
       order by name limit ?3""",
    ("delete from erasures where channel || ' ' || ts in (select value from json_each(:names))",),
    timeless=True,
)
# In this order: what is kept keeps what it belongs to.
_RULES = (
    _DEDUPLICATION,
    _SHOWN,
    _NEVER_SHOWN,
    _TRIES,
    _PUSHED,
    _TEXTS,
    _ONCES,
    _HEARD,
    _INCIDENTS,
    _PAGES,
    _STAND_INS,
    _HOMES,
    _SESSIONS,
    _ERASED,
)


class Retained:
    """Every method raises StorageUnavailable if the storage cannot be used now; what was deleted by then is gone."""

    def __init__(self, store: Store, batch: int = BATCH) -> None:
        self._store = store
        self._batch = batch

    async def sweep(self, horizon: float, now: float, needed: Needed) -> Counter[str]:
        """Delete what was over before `horizon` and is not needed; how many rows of each table went. Seconds since
        1970.
        """
        gone: Counter[str] = Counter()
        for rule in _RULES:
            gone[rule.table] += await self._apply(rule, horizon, now, needed)
        await self._give_back()
        return +gone

    async def _apply(self, rule: _Rule, horizon: float, now: float, needed: Needed) -> int:
        gone, after = 0, rule.first
        while True:
            rows = await self._store.read(rule.find, after, horizon, self._batch)
            if not rows:
                return gone
            after = rows[-1]["name"]
            names = [row["name"] for row in rows if not _is_needed(dict(row), needed)]
            gone += await self._store.write(_deleting(rule, names, horizon, now))

    async def _give_back(self) -> None:
        """Make the file smaller, a little at a time; only one that was begun so can be."""
        mode = await self._store.read_one("pragma auto_vacuum")
        while mode is not None and mode[0] == 2:
            before = await self._free()
            if before:
                await self._store.write(_vacuum)
            if not before or await self._free() >= before:
                return

    async def _free(self) -> int:
        row = await self._store.read_one("pragma freelist_count")
        return 0 if row is None else int(row[0])


def _deleting(
    rule: _Rule, names: Sequence[object], horizon: float, now: float
) -> Callable[[sqlite3.Connection], int]:
    def work(db: sqlite3.Connection) -> int:
        going = _ripe(db, rule.table, names, horizon, now) if rule.timeless else list(names)
        count = 0
        for statement in rule.delete if going else ():
            count = db.execute(statement, {"names": json.dumps(going)}).rowcount
        return count

    return work


def _ripe(
    db: sqlite3.Connection, table: str, names: Sequence[object], horizon: float, now: float
) -> list[object]:
    """Of rows that are over those that were so before `horizon`; the others are noted."""
    known = {"kind": table, "names": json.dumps(list(names)), "now": now, "horizon": horizon}
    db.execute(
        """insert into over (kind, name, since) select :kind, value, :now from json_each(:names) where true
           on conflict do nothing""",
        known,
    )
    rows = db.execute(
        """delete from over where kind = :kind and since < :horizon
           and name in (select value from json_each(:names)) returning name""",
        known,
    ).fetchall()
    return [row["name"] for row in rows]


def _vacuum(db: sqlite3.Connection) -> None:
    db.execute(f"pragma incremental_vacuum({_PAGES_AT_ONCE})").fetchall()


def _is_needed(row: Mapping[str, Any], needed: Needed) -> bool:
    if row.get("clarification") in needed.clarifications:
        return True
    if (row.get("producer"), row.get("session_id")) in needed.sessions:
        return True
    return any(each in needed.clarifications for each in _ID.findall(str(row.get("said", ""))))
