"""`python -m tests.soak`: what is wrong after a storm over one bot on SQLite, or over several on PostgreSQL. See storm.py.

Exit code 1 if anything is. What grows shows in some minutes without an end of the process:
`--replicas 1 --minutes 10 --kinds "socket cut,agent away,Slack"`.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
from pathlib import Path

from bot.logs import configure_logging
from tests.soak.storm import ALL, ALONE, stormed


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=3, help="1: on SQLite")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.5, help="questions a second")
    parser.add_argument("--calm", type=float, default=3.0, help="seconds between two faults")
    parser.add_argument("--minutes", type=float, default=math.inf, help="at most, until all goes well again")
    parser.add_argument("--kinds", default="", help="of faults, with commas between them; all unless said")
    parser.add_argument("--keep", type=Path, help="a folder to work in, which stays")
    options = vars(parser.parse_args())
    configure_logging("error")
    every = ALL if options["replicas"] > 1 else ALONE
    options["kinds"] = tuple(filter(None, options["kinds"].split(","))) or every
    kept, seed = options.pop("keep"), options.pop("seed")
    with tempfile.TemporaryDirectory(prefix="storm", ignore_cleanup_errors=True) as made:
        folder = kept or Path(made)
        folder.mkdir(exist_ok=True)
        wrong, report = asyncio.run(stormed(folder, seed, **options))
    sys.stdout.write("\n".join([f"seed {seed}", report, f"{len(wrong)} wrong", *wrong]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
