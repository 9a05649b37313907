# ruff: noqa: S608 - only our own text is put into statements
"""Transactions of either database.

Statements use the SQL that SQLite and PostgreSQL share, with named parameters: `where id = :id`, and `in :ids` for a
list.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeVar

_T = TypeVar("_T")
LONGEST_LIST = 512
_LIST = re.compile(r"\bin :(\w+)")
Query = tuple[str, Mapping[str, object]]
Topic = Literal[
    "inbox",
    "message",
    "card",
    "incident",
    "home",
    "gap",
    "people",
    "replies",
    "reader",
    "forgotten",
    "channel",
    "app",
]
"""What bots tell each other, with a name.

- inbox: events arrived; message: one needs an update (its key); card: a clarification's cards need an update
- incident: it changed; home: a person looks at the Home tab; gap: something from Slack was missed
- people: cached data of a person, channel or group is outdated; forgotten: another process forgot something
- channel: the bot may have lost it, or have it again (its id); app: it may have been removed from the workspace
- replies: a producer's replies are ready to be read; reader: a producer is reading them
"""

OF_THE_LEADER: frozenset[Topic] = frozenset({"inbox", "message", "card", "home", "gap", "reader"})
News = tuple[Topic, str]
NUMBERED: Mapping[str, str] = {
    "clarifications": "written",
    "changes": "written",
    "consumers": "written",
}
"""The tables with numbers of transactions (`Tx.stamp`, `Tx.place`), and the column."""


class Row(Protocol):
    """A row of a query; read its columns by name."""

    def __getitem__(self, column: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class Tx:
    """A transaction. Blocking: use it only within the function given to `write`.

    This one is SQLite's, which has one writer at a time; `PostgresTx` is for several.
    """

    stamp = (
        "(select max(number) + 1 from (select coalesce(max(written), 0) as number from clarifications"
        " union all select value from counters where name = 'written') as given)"
    )
    """SQL for the number of this transaction; a later one has a higher number, whatever is deleted."""

    place = "0"
    """SQL for the number by which a change of a row of `clarifications` is ordered before its own (`bot.storage.changes`)."""

    beyond = "1"
    """SQL for a number above those of all changes so far, if they were made in this database."""

    renumbered: Mapping[str, str] = {table: NUMBERED[table] for table in ("changes", "consumers")}
    """Those whose numbers have to be below that."""

    fatal: type[Exception] = sqlite3.OperationalError
    """Trouble with the disk or a lock: it ends the whole transaction."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def _form(self, sql: str) -> str:
        """Returns a statement in the driver's form."""
        return sql

    def run(self, sql: str, **values: object) -> int:
        """Runs a statement. Returns the number of changed rows."""
        return int(self._execute(sql, values).rowcount)

    def rows(self, sql: str, **values: object) -> list[Row]:
        """Returns the rows of a query, or of a `returning` clause."""
        found: list[Row] = self._execute(sql, values).fetchall()
        return found

    def one(self, sql: str, **values: object) -> Row | None:
        """Returns the first row, or None."""
        return next(iter(self.rows(sql, **values)), None)

    def many(self, sql: str, rows: Iterable[Mapping[str, object]]) -> int:
        """Runs a statement once for each of `rows`. Returns the number of changed rows."""
        cursor = self._db.cursor()
        cursor.executemany(self._form(sql), rows)
        return int(cursor.rowcount)

    def tell(self, topic: Topic, name: object = "") -> None:
        """Tells the other bots (`Store.news`) once this is committed; what only the leader needs, unless we lead."""

    def lock(self, name: str, *, wait: bool = False) -> bool:  # noqa: ARG002 - there is one writer
        """Locks a name until the commit. Returns False if another bot holds it; with `wait`, waits for it instead."""
        return True

    def notify(self, channel: str, text: str) -> None:
        """Sends a notice (`Database.notices`) once this is committed."""

    def renumber(self) -> None:
        """Lowers the numbers of transactions below `beyond`, if they are of another database or server, so that what is written
        from now on comes after them. Their order stays.
        """
        each = " union all ".join(
            f"select max({column}) as at from {table}" for table, column in self.renumbered.items()
        )
        row = self.one(f"select max(at) + 1 - {self.beyond} as over from ({each}) as highest")
        over = row["over"] if row is not None else None
        if over is not None and over > 0:
            for table, column in self.renumbered.items():
                self.run(f"update {table} set {column} = {column} - :over", over=over)

    def part(self, work: Work[_T]) -> tuple[_T | None, Exception | None]:
        """Returns the work's result, or its exception, which undoes only that work. Raises a `fatal` one."""
        self._db.execute("savepoint part")
        try:
            result = work(self)
        except self.fatal:
            raise
        except Exception as error:  # noqa: BLE001 - passed to the caller
            self._db.execute("rollback to part")
            self._db.execute("release part")
            return None, error
        self._db.execute("release part")
        return result, None

    def _execute(self, sql: str, values: Mapping[str, object]) -> Any:
        text, flat = bound(sql, values)
        return self._db.execute(self._form(text), flat)


Work = Callable[[Tx], _T]
Outcome = tuple[object, Exception | None]


def bound(sql: str, values: Mapping[str, object]) -> Query:
    """Returns a statement for SQLite, with each list expanded into parameters. Lists are padded to a power of two, to
    keep the number of distinct statements small. An empty list matches nothing.
    """
    names = _lists(sql)
    if not names:
        return sql, values
    sizes, flat = [], dict(values)
    for name in names:
        items: Any = flat.pop(name)
        padded = _padded(list(items))
        sizes.append(len(padded))
        flat.update({f"{name}_{place}": item for place, item in enumerate(padded)})
    return _expanded(sql, tuple(sizes)), flat


def batches(items: Iterable[_T], size: int = LONGEST_LIST) -> Iterator[list[_T]]:
    """Yields `items` in lists short enough for one statement."""
    left = list(items)
    return (left[at : at + size] for at in range(0, len(left), size))


@lru_cache(maxsize=1024)
def _lists(sql: str) -> Sequence[str]:
    return tuple(dict.fromkeys(_LIST.findall(sql)))


@lru_cache(maxsize=1024)
def _expanded(sql: str, sizes: tuple[int, ...]) -> str:
    size = dict(zip(_lists(sql), sizes, strict=True))
    return _LIST.sub(lambda m: f"in ({', '.join(f':{m[1]}_{place}' for place in range(size[m[1]]))})", sql)


def _padded(items: list[object]) -> list[object]:
    if len(items) > LONGEST_LIST:
        raise ValueError(f"{len(items)} values for one list: `batches` makes lists that a statement takes")
    last = items[-1] if items else None  # nothing is in (null)
    return items + [last] * ((1 << max(0, len(items) - 1).bit_length()) - len(items))
