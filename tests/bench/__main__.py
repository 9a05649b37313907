"""`python -m tests.bench [--quick] [--only NAME …]`: measures, and prints a table.

Every figure that is a ratio is measured beside its baseline, in turn with it, in the same run. `--quick` only shows
that everything runs: its figures say nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bot.logs import configure_logging
from tests.bench import (
    budget,
    contention,
    hooks,
    receipts,
    replay,
    searching,
    speeds,
    starting,
    tasks,
    throughput,
)
from tests.bench.seeding import Seed
from tests.bench.table import Row, table

Measure = Callable[[Path], Awaitable[list[Row]]]


def measures(*, quick: bool) -> dict[str, Measure]:
    """By name, in the order of the table."""
    past = Seed(open=20) if quick else Seed(open=10_000, decided=100_000)
    many, processes = (2, 2) if quick else (50, 8)
    size = contention.Size(rounds=1 if quick else 7, seconds=0.1 if quick else 2.0, processes=processes)
    decisions = 1000 if quick else 100_000
    flood = throughput.Size(rounds=1 if quick else 5, questions=2 if quick else 600)
    replayed = replay.Size(questions=20, outside=5) if quick else replay.Size(questions=50_000, outside=2000)
    return {
        "budget": partial(budget.budget, times=many),
        "budget-postgres": partial(budget.on_postgres, times=many),
        "throughput": partial(throughput.throughput, size=flood),
        "post": partial(speeds.posted, questions=4 * many),
        "reply": partial(speeds.replied, clicks=8 * many, open=20 * many),
        "question": partial(speeds.taken, questions=4 * many),
        "tasks": partial(
            tasks.tasks, times=4 * many, polled=2 if quick else 1000, seconds=0.1 if quick else 40.0
        ),
        "callback": partial(speeds.called_back, clicks=4 * many),
        "receipt": partial(receipts.receipts, times=40 * many),
        "verify": partial(receipts.verified, count=40 if quick else 100_000),
        "search": partial(searching.on_sqlite, count=decisions, times=9),
        "search-postgres": partial(searching.on_postgres, count=decisions, times=9),
        "replay": partial(replay.replayed, size=replayed),
        "kills": partial(speeds.after_kills, kills=1 if quick else 20),
        "start": partial(starting.start, rounds=1 if quick else 3, past=past, settles=0.0 if quick else 2.0),
        "import": partial(starting.imports, rounds=1 if quick else 9),
        "hook": partial(hooks.started, rounds=2 if quick else 31),
        "shared": partial(contention.contended, size=size),
    }


def main() -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed bot is compiled
    arguments = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = list(measures(quick=True))
    arguments.add_argument("--quick", action="store_true", help="a smoke run; its figures say nothing")
    arguments.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    arguments.add_argument("--folder", type=Path, help="where to write; the disk decides the durable figures")
    chosen = arguments.parse_args()
    rows = asyncio.run(_run(chosen.only, chosen.folder, quick=chosen.quick))
    sys.stdout.write(table(rows) + "\n")
    return 0 if chosen.quick or all(row.met is not False for row in rows) else 1


async def _run(names: list[str], folder: Path | None, *, quick: bool) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="clarify-bench-", dir=folder) as base:
        for name, measure in measures(quick=quick).items():
            if name not in names:
                continue
            sys.stderr.write(f"{name} …\n")
            configure_logging("warning")
            found = await measure(Path(base))
            sys.stderr.write(f"{table(found)}\nload {os.getloadavg()[0]:.1f}\n")
            rows += found
    return rows


if __name__ == "__main__":
    sys.exit(main())
