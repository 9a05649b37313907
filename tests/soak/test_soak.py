from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


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


@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(
            "--seed 1 --replicas 2 --questions 8 --rate 4 --faults 1 --calm 1 --kinds killed",
            marks=pytest.mark.ci,
        ),
        pytest.param("--seed 1", marks=pytest.mark.long),
    ],
    ids=["one killed", "1,000 questions, 200 faults"],
)
def test_storm_over_replicas_loses_nothing_and_asks_and_answers_nothing_twice(size: str) -> None:
    command = [sys.executable, "-m", "tests.soak.storm", *size.split()]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
