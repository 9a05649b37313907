"""One writer per ledger: a kernel lock among our processes, then the marker file that all implementations honour.

The marker `issue-{N}.json.lock` is the Clarification Protocol's lock (architecture §5.2): whoever creates it
exclusively holds the ledger; older than 30 s by mtime it counts as orphaned. Ours is put there by `link`, so it
never exists without its content; its mtime is refreshed while held, so that a long hold is never robbed.
Because our own processes exclude each other by a kernel lock, which dies with its process, a marker of ours that is
found while holding the kernel lock belongs to a dead process and is removed at once.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from core.clock import iso
from core.errors import LedgerUnwritable, LockTimeout

_log = logging.getLogger("clarify.ledger")
AGENT = "clarify-bot"
ORPHANED_AFTER = 30.0
_REFRESH_EVERY = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 0.002, 0.05


@dataclass(frozen=True, slots=True)
class _Marker:
    """A marker of ours. The open handle keeps its inode number from being given to somebody else's marker."""

    path: Path
    handle: int

    def is_there(self) -> bool:
        """Whether the file at `path` is still ours."""
        try:
            return self.path.stat().st_ino == os.fstat(self.handle).st_ino
        except FileNotFoundError:
            return False


class Locks:
    """Locks of the ledgers in one directory. Blocking: to be used in worker threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._private = directory / ".clarify"
        self._held: set[_Marker] = set()
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
        with self.hold_file(f"issue-{issue}", issue, timeout):
            yield

    @contextmanager
    def hold_file(self, name: str, issue: int, timeout: float) -> Iterator[None]:
        """Hold `{name}.json`, as `hold` does; `issue` names it in errors."""
        deadline = time.monotonic() + timeout
        kernel = FileLock(self._private / f"{name}.lock", thread_local=False)
        try:
            kernel.acquire(timeout=max(0.0, timeout), poll_interval=_FIRST_WAIT)
        except Timeout:
            raise LockTimeout(issue, timeout, "another process of ours") from None
        except OSError as error:
            raise LedgerUnwritable(issue, error.strerror or "lock file") from error
        try:
            marker = self._take_marker(name, issue, deadline, timeout)
            try:
                yield
            finally:
                self._drop_marker(marker)
        finally:
            kernel.release()

    def _take_marker(self, name: str, issue: int, deadline: float, timeout: float) -> _Marker:
        path = self._directory / f"{name}.json.lock"
        wait = _FIRST_WAIT
        while True:
            marker = self._create_marker(issue, path)
            if marker is not None:
                self._remember(marker)
                return marker
            recovered = _recover(path)
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockTimeout(issue, timeout, _holder(path))
            if not recovered:
                time.sleep(min(wait, left))
                wait = min(wait * 2, _LONGEST_WAIT)

    def _create_marker(self, issue: int, path: Path) -> _Marker | None:
        draft = self._private / f"{path.name}.{os.getpid()}.{uuid.uuid4().hex}"
        content = {"pid": os.getpid(), "timestamp": iso(datetime.now(UTC)), "agent": AGENT}
        try:
            handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise LedgerUnwritable(issue, error.strerror or "marker file") from error
        try:
            os.write(handle, json.dumps(content).encode())
            os.link(draft, path)
        except OSError as error:
            os.close(handle)
            if isinstance(error, FileExistsError):
                return None
            raise LedgerUnwritable(issue, error.strerror or "marker file") from error
        finally:
            draft.unlink(missing_ok=True)
        return _Marker(path, handle)

    def _drop_marker(self, marker: _Marker) -> None:
        with self._guard:
            self._held.discard(marker)
        try:
            if marker.is_there():
                marker.path.unlink(missing_ok=True)
        finally:
            os.close(marker.handle)

    def _remember(self, marker: _Marker) -> None:
        with self._guard:
            self._held.add(marker)
            if self._refresher is None:
                self._refresher = threading.Thread(target=self._refresh, name="ledger-markers", daemon=True)
                self._refresher.start()

    def _refresh(self) -> None:
        while not self._wake.wait(_REFRESH_EVERY):
            with self._guard:
                for marker in self._held:
                    try:
                        os.utime(marker.handle)
                    except OSError as error:
                        _log.warning(
                            "the marker %s cannot be refreshed: %s", marker.path.name, error.strerror
                        )

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
