# ruff: noqa: S608 - only our own text is put into statements
"""The feed's rows: what changed, in order, and how far each consumer is (`bot.feed`).

`bot.storage.ledger` writes a change in the transaction that writes its record, and for what consumers are to hear of it besides
(`tell`). Without consumers there is none.

Where several bots write, numbers are given out in one order and committed in another. So changes are ordered by transaction,
then by number, and a reader takes only those of transactions that none still running can come before (`Store.horizon`). A
record that a later transaction has written already counts as of that one: so its revisions stay in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Self

from bot.storage.store import Store
from bot.storage.tx import Row, Tx

OPEN = "open/"  # what a change means that tells one consumer, named behind it, of an open clarification
_MOST_FAILURES = 20


class Position(NamedTuple):
    """The position of a change in the feed."""

    written: int
    seq: int

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls(row["written"], row["seq"])


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A write of a clarification. `what`: see `core.ledger.change`."""

    place: Position
    clarification: str
    revision: int
    what: str
    at: datetime

    @classmethod
    def of(cls, row: Row) -> Self:
        at = datetime.fromtimestamp(row["at"], UTC)
        return cls(Position.of(row), row["clarification"], row["revision"], row["what"], at)


def note(tx: Tx, clarification: str, what: str, at: datetime) -> None:
    """Stores that a record was written in this transaction."""
    tx.run(
        f"""insert into changes (written, clarification, revision, what, at)
            select {tx.place}, id, revision, :what, :at from clarifications
            where id = :id and exists (select 1 from consumers)""",
        id=clarification,
        what=what,
        at=at.timestamp(),
    )


async def following(store: Store, place: Position, most: int) -> tuple[list[RecordChange], bool]:
    """Returns the next changes after a position, and whether there are more that cannot be read yet.

    Raises:
        StorageUnavailable: they cannot be read now.
    """
    rows = await store.find(
        f"""select written, seq, clarification, revision, what, at, written < {store.horizon} as settled from changes
            where (written, seq) > (:written, :seq) order by written, seq limit :most""",
        most=most,
        **place._asdict(),
    )
    settled = [RecordChange.of(row) for row in rows if row["settled"]]
    return settled, len(settled) < len(rows)


def places(tx: Tx) -> Mapping[str, Position]:
    """Returns up to where each consumer is."""
    return {row["name"]: Position.of(row) for row in tx.rows("select name, written, seq from consumers")}


def begin(tx: Tx, consumer: str, horizon: str) -> Position:
    """Puts a consumer at the end of what there is."""
    last = tx.one(
        f"select written, seq from changes where written < {horizon} order by written desc, seq desc limit 1"
    )
    place = Position(0, 0) if last is None else Position.of(last)
    move(tx, consumer, place)
    return place


def note_open(tx: Tx, consumer: str, now: datetime) -> None:
    """Has a consumer begin anew: stores a change for each clarification that needs something, of which it alone is told."""
    tx.run(
        f"""insert into changes (written, clarification, revision, what, at)
            select {tx.place}, id, revision, :what, :at from clarifications where live = 1 order by issue, number""",
        what=OPEN + consumer,
        at=now.timestamp(),
    )


def lag(tx: Tx, place: Position, most: int) -> tuple[int, datetime | None]:
    """Returns how many changes follow a place, counted up to `most`, and since when the first of them waits."""
    row = tx.one(
        """select count(*) as n from
           (select 1 from changes where (written, seq) > (:written, :seq) limit :most) as later""",
        most=most,
        **place._asdict(),
    )
    first = tx.one(
        "select at from changes where (written, seq) > (:written, :seq) order by written, seq limit 1",
        **place._asdict(),
    )
    since = None if first is None else datetime.fromtimestamp(first["at"], UTC)
    return (0 if row is None else int(row["n"])), since


def move(tx: Tx, consumer: str, place: Position) -> None:
    """Notes that a consumer has passed the changes up to a place; deletes what all have passed."""
    tx.run(
        """insert into consumers (name, written, seq) values (:name, :written, :seq)
           on conflict (name) do update set written = excluded.written, seq = excluded.seq""",
        name=consumer,
        **place._asdict(),
    )
    _delete_passed(tx)


def _delete_passed(tx: Tx) -> None:
    last = tx.one("select written, seq from consumers order by written, seq limit 1")
    if last is None:
        tx.run("delete from changes")
    else:
        tx.run("delete from changes where (written, seq) <= (:written, :seq)", **Position.of(last)._asdict())


def drop(tx: Tx, consumers: Sequence[str]) -> None:
    """Forgets consumers, and what only they had still before them."""
    for each in consumers:
        tx.run("delete from consumers where name = :name", name=each)
        tx.run("delete from failed_changes where consumer = :name", name=each)
    _delete_passed(tx)


def note_failure(tx: Tx, consumer: str, change: RecordChange | None, why: str, at: datetime) -> None:
    """`change`: None: the consumer lagged too far, and begins again."""
    tx.run(
        """insert into failed_changes (consumer, clarification, revision, what, why, at)
           values (:consumer, :clarification, :revision, :what, :why, :at)
           on conflict (consumer, clarification, revision) do update set why = excluded.why, at = excluded.at""",
        consumer=consumer,
        clarification="" if change is None else change.clarification,
        revision=0 if change is None else change.revision,
        what="" if change is None else change.what,
        why=why,
        at=at.timestamp(),
    )


def forget_failures(tx: Tx, before: datetime) -> None:
    tx.run("delete from failed_changes where at < :before", before=before.timestamp())


async def failures(store: Store, since: datetime) -> list[Row]:
    """Returns the latest that consumers could not take, and why. Without a clarification, one began again with what is open.

    Raises:
        StorageUnavailable: it cannot be read now.
    """
    return await store.read(
        """select consumer, clarification, why from failed_changes where at >= :since
           order by at desc, revision desc limit :most""",
        since=since.timestamp(),
        most=_MOST_FAILURES,
    )
