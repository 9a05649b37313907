"""Whether a bot runs on a storage: it holds a lock for as long as it lives."""

from __future__ import annotations

import fcntl
from pathlib import Path


def bot_runs(storage: Path) -> bool:
    """Looked at through a shared lock, so that two that look do not take each other for a bot. Creates nothing."""
    try:
        with Path(f"{storage}.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # never started here, or not for us to see
    return False
