"""Ensures one writer per ledger: with a kernel lock between our processes, and a marker file that other programs honour, too.

The marker `issue-{N}.json.lock` is the Clarification Protocol's lock (architecture §5.2): the process that creates it
holds the ledger; older than 30 s by mtime it counts as orphaned. Our marker is a hard link to a private file that only
the holder of the kernel lock touches. So it never exists without its content, and its mtime is refreshed while held, so
that no one takes over a long-held lock. The kernel lock dies with its process: if its new holder finds a marker that is that
private file, a dead process of ours left it, and it is taken over.
"""

from __future__ import annotations

import errno
import fcntl
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

from core.clock import iso
from core.errors import LedgerUnwritable, LockTimeout
from core.files import read_regular

_log = logging.getLogger("clarify.ledger")
AGENT = "clarify-bot"
PRIVATE = ".clarify"  # the folder beside the ledgers that is ours alone
ORPHANED_AFTER = 30.0
_REFRESH_EVERY = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.01  # seconds between looks
_LENGTH = 120  # bytes of our markers, so that each overwrites the one before


@dataclass(frozen=True, slots=True, eq=False)
class HeldLock:
    """A held lock. `marker`: its path; `handle`: the open file that is linked there, with inode `number`."""

    marker: str
    handle: int
    number: int

    def is_there(self) -> bool:
        """Whether it is still held: after a long suspend, others may have removed the marker as orphaned."""
        try:
            return os.stat(self.marker).st_ino == self.number  # noqa: PTH116 - as often as this is asked, a Path costs
        except FileNotFoundError:
            return False


class Locks:
    """Locks of the ledgers in one directory. Blocking: use in worker threads. Markers have the `mode` of ledgers, so that
    others can see the holder.
    """

    def __init__(self, directory: Path, mode: int = 0o600) -> None:
        self._directory = directory
        self._mode = mode
        self.private = directory / PRIVATE  # our own, on the ledgers' file system
        self._held: set[HeldLock] = set()
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._refresher: threading.Thread | None = None

    @contextmanager
    def hold(self, issue: int, timeout: float) -> Iterator[HeldLock]:
        """Lock the ledger of `issue`.

        Raises:
            LockTimeout: not locked within `timeout` seconds.
        """
        with self.hold_file(f"issue-{issue}", issue, timeout) as held:
            yield held

    @contextmanager
    def hold_file(self, name: str, issue: int, timeout: float) -> Iterator[HeldLock]:
        """Lock `{name}.json`, as `hold` does; `issue` is for errors."""
        deadline = time.monotonic() + timeout
        private = f"{self.private}/{name}"
        with _kernel_lock(private, issue, deadline, timeout):
            ours = f"{private}.marker"
            try:
                handle = os.open(ours, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise LedgerUnwritable(issue, error.strerror or "marker file") from error
            try:
                os.fchmod(handle, self._mode)
                held = HeldLock(f"{self._directory}/{name}.json.lock", handle, os.fstat(handle).st_ino)
                if not _mark(held, ours, issue, deadline):
                    raise LockTimeout(issue, timeout, _holder(Path(held.marker)))
                self._remember(held)
                try:
                    yield held
                finally:
                    self._drop(held)
            finally:
                os.close(handle)

    def _remember(self, held: HeldLock) -> None:
        with self._guard:
            self._held.add(held)
            if self._refresher is None:
                self._refresher = threading.Thread(target=self._refresh, name="ledger-markers", daemon=True)
                self._refresher.start()

    def _drop(self, held: HeldLock) -> None:
        with self._guard:
            self._held.discard(held)
        if held.is_there():
            with suppress(FileNotFoundError):
                os.unlink(held.marker)  # noqa: PTH108 - as above

    def _refresh(self) -> None:
        while not self._wake.wait(_REFRESH_EVERY):
            with self._guard:
                for held in self._held:
                    try:
                        os.utime(held.handle)
                    except OSError as error:
                        _log.warning("cannot refresh %s: %s", held.marker, error.strerror)

    def close(self) -> None:
        """Stop refreshing markers; nothing may be locked any more."""
        self._wake.set()


@contextmanager
def _kernel_lock(path: str, issue: int, deadline: float, timeout: float) -> Iterator[None]:
    """Exclude our other processes. The lock file is never removed: waiting processes must share one."""
    try:
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerUnwritable(issue, error.strerror or "lock file") from error
    try:
        while not _locked(handle, issue):
            if time.monotonic() >= deadline:
                raise LockTimeout(issue, timeout, "another process of ours")
            time.sleep(_FIRST_WAIT)
        yield
    finally:
        os.close(handle)  # which releases it


def _locked(handle: int, issue: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LedgerUnwritable(issue, error.strerror or "lock file") from error
    return True


def _mark(held: HeldLock, ours: str, issue: int, deadline: float) -> bool:
    """Create our marker; False if another one was there until `deadline`."""
    wait = _FIRST_WAIT
    try:
        _sign(held.handle)
        while not _linked(held, ours):
            recovered = _recover(Path(held.marker))
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not recovered:
                time.sleep(min(wait, left))
                wait = min(wait * 2, _LONGEST_WAIT)
            os.utime(held.handle)  # its age counts from our lock
    except OSError as error:
        raise LedgerUnwritable(issue, error.strerror or "marker file") from error
    return True


def _sign(handle: int) -> None:
    content = f'{{"pid": {os.getpid()}, "timestamp": "{iso(datetime.now(UTC))}", "agent": "{AGENT}"}}'
    if os.pwrite(handle, content.ljust(_LENGTH).encode(), 0) < _LENGTH:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _linked(held: HeldLock, ours: str) -> bool:
    """Returns whether our marker exists now, either created by us or left by one of our dead processes."""
    try:
        os.link(ours, held.marker)
    except FileExistsError:
        return held.is_there()
    return True


def _recover(marker: Path) -> bool:
    """Remove a marker whose holder is dead; returns whether to try again at once."""
    try:
        seen = marker.stat()
        ours = _agent(marker) == AGENT
    except FileNotFoundError:
        return True
    if not ours and time.time() - seen.st_mtime <= ORPHANED_AFTER:
        return False
    # Rename it first: if a live holder created a new marker meanwhile, put that back.
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
        content = json.loads(read_regular(marker))
    except (ValueError, OSError):
        return None
    return content.get("agent") if isinstance(content, dict) else None


def _holder(marker: Path) -> str:
    name = _agent(marker)
    return f"the holder of {marker.name}" + (f" ({name[:80]})" if isinstance(name, str) else "")


def held_markers(directory: Path, seconds: float) -> list[tuple[str, str]]:
    """The markers that are unchanged after `seconds`, each with its holder. Blocking."""
    before = _markers(directory)
    if not before:
        return []
    time.sleep(seconds)
    after = _markers(directory)
    return [
        (marker.name, _named(content))
        for marker, content in sorted(before.items())
        if after.get(marker) == content
    ]


def _markers(directory: Path) -> dict[Path, bytes]:
    found = {}
    for marker in directory.glob("issue-*.json.lock"):
        with suppress(OSError):
            found[marker] = read_regular(marker)
    return found


def _named(content: bytes) -> str:
    """The holder of a marker, by its content."""
    try:
        said = json.loads(content)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return "an unnamed process"
    return f"{str(said.get('agent', 'someone'))[:80]} (process {str(said.get('pid', 'unknown'))[:20]})"
