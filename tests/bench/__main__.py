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
    clicks,
    commands,
    contention,
    databases,
    homes,
    intake,
    posts,
    questions,
    skimming,
    starting,
    throughput,
    watching,
)
from tests.bench.clicks import Size
from tests.bench.homes import Storm
from tests.bench.seeding import Seed
from tests.bench.table import Row, table

Measure = Callable[[Path], Awaitable[list[Row]]]


def measures(*, quick: bool) -> dict[str, Measure]:
    """By name, in the order of the table."""
    return _quick() if quick else _full()


def _full() -> dict[str, Measure]:
    return {
        "ack": partial(clicks.acknowledgements, size=Size(rounds=8, clicks=20, open=0)),
        "reply": partial(clicks.replies, size=Size(rounds=20, clicks=20, open=1000)),
        "post": partial(posts.first_card, questions=200),
        "questions": partial(questions.asked, rounds=100, waiting=500),
        "mcp": partial(questions.by_mcp, rounds=200),
        "throughput": partial(throughput.throughput, size=throughput.Size(rounds=5, questions=600)),
        "decided": partial(databases.decided, size=throughput.Size(rounds=5, questions=300)),
        "replicas": partial(databases.replies, size=Size(rounds=20, clicks=20, open=1000)),
        "intake": partial(intake.durable, rounds=7, each=10),
        "skim": partial(skimming.skimmed, rounds=5, events=60_000),
        "paced": partial(posts.paced, questions=100, pace=1.0),
        "import": partial(starting.imports, rounds=9),
        "start": partial(starting.start, rounds=3, past=Seed(open=10_000, archived=100_000), settles=2.0),
        "monitor": partial(watching.triggers, size=watching.Size(10_000, 1000, rounds=8, triggers=250)),
        "clarify": partial(commands.clarify, times=50, past=Seed(open=10_000, stale=100)),
        "shared": partial(contention.contended, size=contention.Size(rounds=7, seconds=2.0, deaths=9)),
        "budget": partial(budget.budget, times=50),
        "budget-postgres": partial(budget.on_postgres, times=50),
        "home": partial(homes.storms, storms=(Storm(viewers=1, seconds=10), Storm(viewers=20, seconds=30))),
    }


def _quick() -> dict[str, Measure]:
    past = Seed(open=20)
    return {
        "ack": partial(clicks.acknowledgements, size=Size(rounds=1, clicks=1, open=0)),
        "reply": partial(clicks.replies, size=Size(rounds=1, clicks=2, open=past.open)),
        "post": partial(posts.first_card, questions=2),
        "questions": partial(questions.asked, rounds=2, waiting=3),
        "mcp": partial(questions.by_mcp, rounds=2),
        "throughput": partial(throughput.throughput, size=throughput.Size(rounds=1, questions=2)),
        "decided": partial(databases.decided, size=throughput.Size(rounds=1, questions=2)),
        "replicas": partial(databases.replies, size=Size(rounds=1, clicks=2, open=past.open)),
        "intake": partial(intake.durable, rounds=1, each=1),
        "skim": partial(skimming.skimmed, rounds=1, events=1000),
        "paced": partial(posts.paced, questions=3, pace=20.0),
        "import": partial(starting.imports, rounds=1),
        "start": partial(starting.start, rounds=1, past=past, settles=0.0),
        "monitor": partial(watching.triggers, size=watching.Size(100, 30, rounds=1, triggers=5)),
        "clarify": partial(commands.clarify, times=1, past=past),
        "shared": partial(
            contention.contended, size=contention.Size(rounds=1, seconds=0.1, deaths=1, processes=2)
        ),
        "budget": partial(budget.budget, times=2),
        "budget-postgres": partial(budget.on_postgres, times=2),
        "home": partial(homes.storms, storms=(Storm(viewers=2, seconds=1, changes=5, quiet=1.0),)),
    }


def main() -> int:
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
