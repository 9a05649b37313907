"""A ledger held by another implementation, in another process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RIVAL = Path(__file__).with_name("rival.py")


@contextmanager
def rival_holds(folder: Path, issue: int = 42) -> Iterator[None]:
    """Held from when it is entered until it is left."""
    holder = subprocess.Popen(
        [sys.executable, str(_RIVAL), str(folder), str(issue)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
    finally:
        holder.communicate(timeout=10)
