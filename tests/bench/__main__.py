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
from tests.bench import clicks, intake, posts, skimming, starting
from tests.bench.clicks import Size
from tests.bench.seeding import Seed
from tests.bench.table import Row, table

Measure = Callable[[Path], Awaitable[list[Row]]]


def measures(*, quick: bool) -> dict[str, Measure]:
    """By name, in the order of the table."""
    if quick:
        return {
            "ack": partial(clicks.acknowledgements, size=Size(rounds=1, clicks=2, open=0)),
            "reply": partial(clicks.replies, size=Size(rounds=1, clicks=3, open=20)),
            "post": partial(posts.first_card, questions=5),
            "intake": partial(intake.durable, rounds=1, each=1),
            "skim": partial(skimming.skimmed, rounds=1, events=1000),
            "paced": partial(posts.paced, questions=5, pace=20.0),
            "start": partial(starting.start, rounds=1, past=Seed(open=20, archived=20)),
        }
    return {
        "ack": partial(clicks.acknowledgements, size=Size(rounds=8, clicks=20, open=0)),
        "reply": partial(clicks.replies, size=Size(rounds=20, clicks=20, open=1000)),
        "post": partial(posts.first_card, questions=200),
        "intake": partial(intake.durable, rounds=7, each=10),
        "skim": partial(skimming.skimmed, rounds=5, events=60_000),
        "paced": partial(posts.paced, questions=100, pace=1.0),
        "start": partial(starting.start, rounds=3, past=Seed(open=10_000, archived=100_000)),
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
    configure_logging("warning")
    rows = asyncio.run(_run(measures(quick=chosen.quick), chosen.only, chosen.folder))
    sys.stdout.write(table(rows) + "\n")
    return 0 if chosen.quick or all(row.met is not False for row in rows) else 1


async def _run(measures: dict[str, Measure], names: list[str], folder: Path | None) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="clarify-bench-", dir=folder) as base:
        for name, measure in measures.items():
            if name not in names:
                continue
            sys.stderr.write(f"{name} …\n")
            rows += await measure(Path(base))
            sys.stderr.write(f"{table(rows[-1:])}\nload {os.getloadavg()[0]:.1f}\n")
    return rows


if __name__ == "__main__":
    sys.exit(main())
