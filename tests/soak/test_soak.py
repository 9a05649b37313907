from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LIVES_ON = ["--replicas", "1", "--kinds", "socket cut,agent away,Slack"]
BRIEF = ["--questions", "4", "--rate", "4", "--calm", "0.7"]


def storm(*words: str) -> str:
    command = [sys.executable, "-m", "tests.soak", *words]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(5400)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            [*BRIEF, "--seed", "2", "--replicas", "1", "--faults", "1", "--kinds", "killed"],
            id="one bot killed",
            marks=pytest.mark.ci,
        ),
        pytest.param(
            [*BRIEF, "--replicas", "2", "--faults", "1", "--kinds", "killed"],
            id="one of two killed",
            marks=pytest.mark.ci,
        ),
        pytest.param(["--replicas", "1"], id="one bot", marks=pytest.mark.long),
        pytest.param([], id="three bots", marks=pytest.mark.long),
    ],
)
def test_storm_loses_nothing_and_asks_and_answers_nothing_twice(words: list[str]) -> None:
    storm(*words)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*BRIEF, "--faults", "3"], id="brief", marks=pytest.mark.ci),
        pytest.param(["--minutes", "10", "--faults", "1000"], id="ten minutes", marks=pytest.mark.long),
    ],
)
def test_process_that_lives_on_does_not_grow(words: list[str]) -> None:
    """The brief one only shows that it is measured: its figures say nothing."""
    measured = [
        line.split("|")[1].strip() for line in storm(*LIVES_ON, *words).splitlines() if line[:2] == "| "
    ]
    assert measured[2:] == ["memory, MiB", "file handles", "threads"]
