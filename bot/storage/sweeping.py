"""Deletes old rows in small steps: each table's owner defines by a `Sweep` which rows, `sweep` deletes them.

Row ids are part of names elsewhere (`notice:17`, `page:3:…`), and SQLite reuses the highest id once its row is gone. So
the row with the highest id stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bot.storage.store import Row, Store, Tx

_BATCH = 200  # rows of one transaction


@dataclass(frozen=True, slots=True)
class Sweep:
    """Which rows of one table are deleted once nobody needs them.

    `find` takes `:after` (the name of the last row seen, at first `first`), `:horizon` and `:most`; it selects `name`,
    and the columns that show whether something open needs the row: `clarification`, `producer` and `session_id`, or ids
    anywhere in `said`. `delete` (several statements, in their order) takes `:names`. `timeless`: rows without a time of
    their own are noted when they are first found over, and go once that was before the horizon.
    """

    table: str
    find: str
    delete: Sequence[str]
    timeless: bool = False
    first: object = ""


async def sweep(
    store: Store, rule: Sweep, is_needed: Callable[[Row], bool], *, horizon: float, now: float
) -> int:
    """Delete what was over before `horizon` and is not needed, in small transactions, between which other writers have
    their turn; returns how many rows of the table went. Times are seconds since 1970.

    Raises:
        StorageUnavailable: what was deleted by then is gone.
    """
    gone, after = 0, rule.first
    while rows := await store.read(rule.find, after=after, horizon=horizon, most=_BATCH):
        after = rows[-1]["name"]
        names = [row["name"] for row in rows if not is_needed(row)]
        if names:
            gone += await store.write(_deleting(rule, names, horizon, now))
    return gone


def _deleting(rule: Sweep, names: Sequence[object], horizon: float, now: float) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        going = _ripe(tx, rule.table, names, horizon, now) if rule.timeless else names
        count = 0
        for statement in rule.delete if going else ():
            count = tx.run(statement, names=going)
        return count

    return work


def _ripe(tx: Tx, table: str, names: Sequence[object], horizon: float, now: float) -> Sequence[object]:
    """Of rows that are over those that were so before `horizon`; the others are noted."""
    tx.many(
        "insert into over (kind, name, since) values (:kind, :name, :now) on conflict (kind, name) do nothing",
        [{"kind": table, "name": name, "now": now} for name in names],
    )
    rows = tx.rows(
        "delete from over where kind = :kind and since < :horizon and name in :names returning name",
        kind=table,
        horizon=horizon,
        names=names,
    )
    return [row["name"] for row in rows]
