"""`python -m tests.soak [--minutes 10]`: a bot under load with faults; memory, file handles and threads stay flat.

Prints a table; exit code 1 if something grows. A run of less than some minutes shows only that it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from bot.logs import configure_logging
from tests.soak.course import soaked
from tests.soak.figures import lines, table


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=2.0, help="questions a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder:
        course = asyncio.run(soaked(Path(folder), options.minutes * 60, options.rate, options.seed))
    found = lines(course.samples)
    sys.stdout.write(
        f"{len(course.asked)} questions, all answered; {course.clicks} clicks, {course.faults} faults, "
        f"{options.minutes:g} minutes\n\n{table(found)}\n"
    )
    return 0 if all(line.is_flat for line in found) else 1


if __name__ == "__main__":
    sys.exit(main())
