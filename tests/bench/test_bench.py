from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("only", "rows"),
    [
        pytest.param(["--only", "throughput", "post"], 5, marks=pytest.mark.ci),
        pytest.param([], 102, marks=pytest.mark.long),
    ],
)
def test_bench_runs_and_prints_every_row(tmp_path: Path, only: list[str], rows: int) -> None:
    """Its figures are nothing to assert: they belong to the machine and to what else it does."""
    command = [sys.executable, "-m", "tests.bench", "--quick", "--folder", str(tmp_path), *only]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == rows + 2, done.stdout
    assert list(tmp_path.iterdir()) == []
