"""One file runs at once, without workers; a folder has four."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_xdist_auto_num_workers

HERE = Path(__file__)


@pytest.mark.parametrize(
    ("args", "workers"),
    [
        ([str(HERE)], 0),
        ([f"{HERE}::test_workers", str(HERE.with_name("test_pages.py"))], 0),
        ([str(HERE.parent)], 4),
        ([str(HERE), str(HERE.parent)], 4),
    ],
)
def test_workers(args: list[str], workers: int) -> None:
    named: Any = SimpleNamespace(args=args)
    assert pytest_xdist_auto_num_workers(named) == workers
