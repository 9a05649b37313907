"""What is done with a database in one transaction, whichever it is.

Statements use the SQL that SQLite and PostgreSQL share, with named parameters: `where id = :id`, and `in :ids` for a
list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeVar

_T = TypeVar("_T")
LONGEST_LIST = 512
_LIST = re.compile(r"\bin :(\w+)")
Query = tuple[str, Mapping[str, object]]
Topic = Literal[
    "inbox", "message", "card", "incident", "home", "gap", "people", "replies", "reader", "forgotten"
]
"""What other bots hear of: events came; a message, by its key, or a clarification's cards have to be brought up to date;
something happened to an incident; a person (or none) looks at a Home tab; something from Slack was missed; what was known
of a person, channel or group is out of date; replies of a producer are to be read; somebody reads them; something
was forgotten.
"""

News = tuple[Topic, str]


class Row(Protocol):
    """A row of a query: its columns are read by name."""

    def __getitem__(self, column: str, /) -> Any: ...
    def keys(self) -> Iterable[str]: ...


class Tx:
    """A transaction. Blocking: use it only in the function given to `write`, in the connection's thread."""

    def __init__(
        self,
        db: Any,
        form: Callable[[str], str] = str,
        *,
        tell: Callable[[Any, Topic, str, bool], None] = lambda *_: None,
        queue: Callable[[Any, str], None] = lambda *_: None,
    ) -> None:
        """`form`: a statement as the driver takes it; `tell`, `queue`: how the methods of these names are done where other
        processes work on the same database; else there is nobody to be told, or to queue behind.
        """
        self._db = db
        self._form = form
        self._tell = tell
        self._queue = queue

    def run(self, sql: str, **values: object) -> int:
        """One statement; returns the number of rows that it changed."""
        return int(self._execute(sql, values).rowcount)

    def rows(self, sql: str, **values: object) -> list[Row]:
        """The rows of a query, or of what a statement returns."""
        found: list[Row] = self._execute(sql, values).fetchall()
        return found

    def one(self, sql: str, **values: object) -> Row | None:
        """The first of them."""
        return next(iter(self.rows(sql, **values)), None)

    def many(self, sql: str, rows: Iterable[Mapping[str, object]]) -> int:
        """One statement for each of `rows`; returns the number of rows that all of them changed."""
        cursor = self._db.cursor()
        cursor.executemany(self._form(sql), rows)
        return int(cursor.rowcount)

    def tell(self, topic: Topic, name: object = "", *, leader_only: bool = False) -> None:
        """Once this is committed, the other bots on this database hear of it (`Store.news`). `leader_only`: it is no news
        where we lead.
        """
        self._tell(self._db, topic, str(name), leader_only)

    def queue(self, what: str) -> None:
        """From here to the commit no other bot's transaction is in such a part: rows that are numbered in it can be read in
        the order of their numbers.
        """
        self._queue(self._db, what)

    def parts(self, works: Sequence[Work[Any]], fatal: type[Exception]) -> list[Outcome]:
        """Each work's result, or its exception, which undoes what it did, and only that; one that is `fatal` (the disk, a
        connection, a lock) is raised, since the whole transaction is at stake.
        """
        return [self._part(work, fatal) for work in works]

    def _part(self, work: Work[Any], fatal: type[Exception]) -> Outcome:
        self._db.execute("savepoint part")
        try:
            result = work(self)
        except fatal:
            raise
        except Exception as error:  # noqa: BLE001 - handed to the caller whose work it was
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
    """A statement as SQLite takes it: each list has become as many parameters as it has values.

    They are padded to a power of two, so that there are few forms of one statement. An empty list holds nothing.
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
    """`items` in lists that one statement takes."""
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
