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
from tests.bench import budget, searching, speeds, starting, throughput
from tests.bench.seeding import Seed
from tests.bench.table import Row, table

_SIZES = (Seed(open=0), Seed(open=1000), Seed(open=10_000), Seed(open=10, decided=100_000))
Measure = Callable[[Path], Awaitable[list[Row]]]


def measures(*, quick: bool) -> dict[str, Measure]:
    """By name, in the order of the table."""
    past = Seed(open=20) if quick else Seed(open=10_000, decided=100_000)
    many = 2 if quick else 50
    decisions = 1000 if quick else 100_000
    flood = throughput.Size(rounds=1 if quick else 5, questions=2 if quick else 600)
    return {
        "budget": partial(budget.budget, times=many),
        "budget-postgres": partial(budget.on_postgres, times=many),
        "throughput": partial(throughput.throughput, size=flood),
        "post": partial(speeds.posted, questions=4 * many),
        "reply": partial(speeds.replied, clicks=8 * many, open=20 * many),
        "question": partial(speeds.taken, questions=4 * many),
        "search": partial(searching.on_sqlite, count=decisions, times=9),
        "search-postgres": partial(searching.on_postgres, count=decisions, times=9),
        "sizes": partial(
            starting.sizes, pasts=_SIZES[:1] if quick else _SIZES, settles=0.0 if quick else 2.0
        ),
        "start": partial(starting.start, rounds=1 if quick else 3, past=past, settles=0.0 if quick else 2.0),
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
