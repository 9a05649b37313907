"""How long a search of many decisions takes, on either database, and how long the event loop waits meanwhile."""

from __future__ import annotations

import asyncio
import random
import string
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from bot.decisions.query import Search
from bot.decisions.search import PAGE, Sees, deciders_of, find, words_of
from bot.storage import sqlite, tables
from bot.storage.opening import open_storage
from bot.storage.tx import Tx
from core.summary import DecidedBy
from tests.bench.table import Row, median, ms, quantile
from tests.kit.databases import Server

_GOAL = 300.0  # milliseconds
_CHANNELS = 200
_BATCH = 1000
_EVERYWHERE = "newsletter"
_RECEIPT = "x" * 1500  # about as long as one of a usual approval
_ALL = frozenset(f"C{n:09}" for n in range(_CHANNELS))
_ONE = frozenset({"C000000007"})
_MANY = _ALL | {f"C{n:09}" for n in range(1000, 3000)}
_CASES = (
    ("a word that occurs nowhere, 1 of 200 channels", Search(("nowhere1",)), Sees("U1", _ONE)),
    ("a word that occurs nowhere, all channels", Search(("nowhere1",)), Sees("U1", _ALL)),
    ("a word that occurs nowhere, 2,200 channels", Search(("nowhere1",)), Sees("U1", _MANY)),
    ("a word in every one, 1 of 200 channels", Search((_EVERYWHERE,)), Sees("U1", _ONE)),
    ("a word in every one, all channels", Search((_EVERYWHERE,)), Sees("U1", _ALL)),
    ("a word in every one, no channel", Search((_EVERYWHERE,)), Sees("U1")),
    (
        "three words, a person, an agent, 90 days",
        Search((_EVERYWHERE, "nowhere1", "e"), ("U000000001",), "mail", timedelta(days=90)),
        Sees("U1", _ALL),
    ),
    ("a word in every one, in the shell", Search((_EVERYWHERE,)), None),
)


def _decisions(count: int) -> Iterator[dict[str, Any]]:
    """About 160 characters of question and 40 of answer each, over 200 channels and two years."""
    rng = random.Random(7)  # noqa: S311 - the same words each time
    words = ["".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9))) for _ in range(3000)]
    now = datetime.now(UTC).timestamp()
    for seq in range(1, count + 1):
        question, answer = " ".join(rng.choices(words, k=22)), " ".join(rng.choices(words, k=6))
        user = f"U{rng.randrange(50):09}"
        who = DecidedBy(f"user:slack/T000000001/{user}", user)
        yield {
            "seq": seq,
            "clarification": f"CLR-{seq}-001",
            "at": now - (count - seq) * 630 - rng.random(),
            "agent": "mailer",
            "outcome": "answered",
            "decided_by": who.name,
            "deciders": deciders_of([who]),
            "channel": f"C{rng.randrange(_CHANNELS):09}",
            "ts": "1780000000.000100",
            "question": question,
            "answer": answer,
            "words": words_of(("mailer", "Mailer"), (question, answer, _EVERYWHERE, f"CLR-{seq}-001")),
        }


def _fill(tx: Tx, count: int) -> None:
    every = _decisions(count)
    while some := list(islice(every, _BATCH)):
        names = ", ".join(some[0])
        values = ", ".join(f":{name}" for name in some[0])
        tx.many(f"insert into decision_texts ({names}) values ({values})", some)  # noqa: S608 - our own names
        tx.many(
            "insert into decisions (seq, kind, at, entry, jti, receipt) values (:seq, 'decision', :at, :entry, :jti, :receipt)",
            [
                {key: each[key] for key in ("seq", "at")}
                | {"entry": _RECEIPT[:500], "jti": f"{each['clarification']}/1", "receipt": _RECEIPT}
                for each in some
            ],
        )


async def _measured(name: str, storage: Path, url: str | None, count: int, times: int) -> list[Row]:
    rows = []
    for what, search, sees in _CASES:
        look = partial(find, storage, url, search, datetime.now(UTC), sees=sees, most=PAGE + 1)
        took: list[float] = []
        waits: list[float] = []
        for _ in range(times):
            done = asyncio.Event()
            beating = asyncio.create_task(_beats(done, waits))
            began = time.perf_counter()
            await asyncio.to_thread(look)
            took.append(time.perf_counter() - began)
            done.set()
            await beating
        row = f"search of {count:,} on {name}: {what}, median of {times}"
        told = f"{ms(took)}; the event loop waited {quantile(waits, 0.99) * 1e3:.1f} ms (p99)"
        rows.append(Row(row, median(took) * 1e3, "{:.0f} ms", told, goal=_GOAL))
    return rows


async def _beats(done: asyncio.Event, waits: list[float]) -> None:
    """Notes by how much a sleep of a millisecond is late."""
    while not done.is_set():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        waits.append(time.perf_counter() - began - 0.001)


async def on_sqlite(folder: Path, count: int, times: int) -> list[Row]:
    """On a file that a bot holds open."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "clarify.db"
        store = await open_storage(path)
        with sqlite.transaction(path) as tx:
            _fill(tx, count)
        try:
            return await _measured("SQLite", path, None, count, times)
        finally:
            await store.close()


async def on_postgres(folder: Path, count: int, times: int) -> list[Row]:
    """On a server of our own, connecting included, without statistics of the tables."""
    with tempfile.TemporaryDirectory(prefix="pg", dir=folder) as place:
        server = await asyncio.to_thread(Server, Path(place))
        try:
            url = await asyncio.to_thread(server.new)
            await asyncio.to_thread(tables.InPostgres(url).change, partial(_fill, count=count))
            return await _measured("PostgreSQL", folder / "none.db", url, count, times)
        finally:
            await asyncio.to_thread(server.stop)
