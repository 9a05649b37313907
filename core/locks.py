"""One writer per ledger: a kernel lock among our processes, then the marker file that all implementations honour.

The marker `issue-{N}.json.lock` is the Clarification Protocol's lock (architecture §5.2): whoever creates it
exclusively holds the ledger; older than 30 s by mtime it counts as orphaned. Ours is put there by `link`, so it
never exists without its content; its mtime is refreshed while held, so that a long hold is never robbed.
Because our own processes exclude each other by a kernel lock, which dies with its process, a marker of ours that is
found while holding the kernel lock belongs to a dead process and is removed at once.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from core.clock import iso
from core.errors import LedgerUnwritable, LockTimeout

AGENT = "clarify-bot"
ORPHANED_AFTER = 30.0
_REFRESH_EVERY = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.05


class Locks:
    """Locks of the ledgers in one directory. Blocking: to be used in worker threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._private = directory / ".clarify"
        self._held: dict[Path, int] = {}
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._refresher: threading.Thread | None = None

    @property
    def private(self) -> Path:
        """The folder for files that no other implementation should see; on the ledgers' file system."""
        return self._private

    @contextmanager
    def hold(self, issue: int, timeout: float) -> Iterator[None]:
        """Hold the ledger of `issue`.

        Raises:
            LockTimeout: not had within `timeout` seconds; nothing is held.
        """
        deadline = time.monotonic() + timeout
        kernel = FileLock(self._private / f"issue-{issue}.lock", thread_local=False)
        try:
            kernel.acquire(timeout=max(0.0, timeout), poll_interval=_FIRST_WAIT)
        except Timeout:
            raise LockTimeout(issue, timeout, "another process of ours") from None
        except OSError as error:
            raise LedgerUnwritable(issue, error.strerror or "lock file") from error
        try:
            marker = self._directory / f"issue-{issue}.json.lock"
            inode = self._take_marker(issue, marker, deadline, timeout)
            try:
                yield
            finally:
                self._drop_marker(marker, inode)
        finally:
            kernel.release()

    def _take_marker(self, issue: int, marker: Path, deadline: float, timeout: float) -> int:
        wait = _FIRST_WAIT
        while True:
            inode = self._create_marker(issue, marker)
            if inode is not None:
                self._remember(marker, inode)
                return inode
            if _recover(marker):
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockTimeout(issue, timeout, _holder(marker))
            time.sleep(min(wait, left))
            wait = min(wait * 2, _LONGEST_WAIT)

    def _create_marker(self, issue: int, marker: Path) -> int | None:
        draft = self._private / f"{marker.name}.{os.getpid()}.{uuid.uuid4().hex}"
        content = {"pid": os.getpid(), "timestamp": iso(datetime.now(UTC)), "agent": AGENT}
        try:
            draft.write_text(json.dumps(content), encoding="utf-8")
            os.link(draft, marker)
            return marker.stat().st_ino
        except (FileExistsError, FileNotFoundError):
            return None
        except OSError as error:
            raise LedgerUnwritable(issue, error.strerror or "marker file") from error
        finally:
            draft.unlink(missing_ok=True)

    def _drop_marker(self, marker: Path, inode: int) -> None:
        with self._guard:
            self._held.pop(marker, None)
        with suppress(FileNotFoundError):
            if marker.stat().st_ino == inode:
                marker.unlink()

    def _remember(self, marker: Path, inode: int) -> None:
        with self._guard:
            self._held[marker] = inode
            if self._refresher is None:
                self._refresher = threading.Thread(target=self._refresh, name="ledger-markers", daemon=True)
                self._refresher.start()

    def _refresh(self) -> None:
        while not self._wake.wait(_REFRESH_EVERY):
            with self._guard:
                for marker, inode in self._held.items():
                    with suppress(FileNotFoundError):
                        if marker.stat().st_ino == inode:
                            os.utime(marker)

    def close(self) -> None:
        """Stop refreshing; nothing may be held any more."""
        self._wake.set()


def _recover(marker: Path) -> bool:
    """Remove a marker whose holder is dead; whether it is worth trying again at once."""
    try:
        seen = marker.stat()
        ours = _agent(marker) == AGENT
    except FileNotFoundError:
        return True
    if not ours and time.time() - seen.st_mtime <= ORPHANED_AFTER:
        return False
    # Renamed first: if a live holder put a new marker there since, it is found out and put back.
    taken = marker.with_name(f".{marker.name}.orphan.{uuid.uuid4().hex}")
    try:
        marker.rename(taken)
    except FileNotFoundError:
        return True
    found = taken.stat()
    if found.st_ino != seen.st_ino or found.st_mtime != seen.st_mtime:
        with suppress(FileExistsError):
            os.link(taken, marker)
    taken.unlink(missing_ok=True)
    return True


def _agent(marker: Path) -> str | None:
    try:
        content = json.loads(marker.read_text(encoding="utf-8"))
    except (ValueError, FileNotFoundError):
        return None
    return content.get("agent") if isinstance(content, dict) else None


def _holder(marker: Path) -> str:
    name = _agent(marker)
    return f"the holder of {marker.name}" + (f" ({name[:80]})" if isinstance(name, str) else "")
