from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.figures import Sample, lines, table

MIB = 2**20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("minutes", [0.05, pytest.param(10, marks=pytest.mark.long)])
def test_soak_runs_and_every_question_is_answered(minutes: float) -> None:
    """Its figures are nothing to assert: they belong to runs of ten minutes."""
    command = [sys.executable, "-m", "tests.soak", "--minutes", str(minutes), "--rate", "3"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert "all answered" in done.stdout, done.stderr
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[4:]] == [
        "memory, MiB",
        "file handles",
        "threads",
    ]


@pytest.mark.parametrize(
    ("memory", "handles", "flat"),
    [
        ([50, 100, 100], [10, 20, 20], [True, True, True]),
        ([50, 100, 104], [10, 20, 24], [True, True, True]),
        ([50, 100, 106], [10, 20, 25], [False, False, True]),
    ],
)
def test_lines_compare_the_last_third_with_the_second(
    memory: list[int], handles: list[int], flat: list[bool]
) -> None:
    samples = [
        Sample(float(n), memory[n // 4] * MIB + (500 * MIB if n % 4 == 0 else 0), handles[n // 4], 3)
        for n in range(12)
    ]
    found = lines(samples)
    assert [line.is_flat for line in found] == flat
    assert ("GROWS" in table(found)) is not all(flat)


def test_lines_of_a_run_that_short_say_nothing() -> None:
    with pytest.raises(ValueError, match="short"):
        lines([Sample(0.0, 1, 1, 1)])
