"""Locks, reads, replaces and moves the files of a ledger folder. Blocking.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records are never
removed, writes replace the file atomically. A file that does not parse under the lock is quarantined.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from core.archive import Archive, Folder, Numbers
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout
from core.files import (
    NOT_REGULAR,
    folder_mode,
    is_odd,
    make_folder,
    quarantine,
    read_regular,
    reason,
    replacing,
    sync,
    try_to_write,
)
from core.ledgerformat import decode, encode
from core.locks import Locks
from core.records import Raw

PATIENCE = 10.0  # seconds to lock a ledger for commands that move or rewrite whole files
_NAMED = re.compile(r"issue-[0-9].*\.json")
_DRAFT = re.compile(r"issue-([0-9]{1,9})(?:[._-].*)?\.json\.[0-9]+\.[0-9a-f]{32}")
_QUARANTINED = re.compile(r"issue-([0-9]{1,9})\.json\.unreadable-.+")
State = str
"""Modification time and inode: they change with every write of a file, in place or not."""
Check = Callable[[], None]
"""Raises LockTimeout if the ledger's lock was lost."""


class LedgerFiles:
    """The ledger files in `directory` and its `archive`. `mode`: of new files; existing ones keep theirs.

    Our private folder in `directory` shows that this is the right directory: while it is missing, as on an unmounted disk,
    nothing is created. `expected`: ledgers were written there before, so an empty folder is the wrong one.
    """

    def __init__(self, directory: Path, *, mode: int = 0o600, expected: bool = False) -> None:
        self.directory = directory
        self._mode = mode
        self._locks = Locks(directory, mode)
        self.private = self._locks.private
        if not expected:
            self.make()
        self.numbers = Numbers(self.private)
        self.listing = Folder(directory, self.numbers)
        self.archive = Archive(directory, self.numbers, folder_mode(mode))

    def make(self) -> None:
        """Create the folder, and our private one in it.

        Raises:
            OSError: the disk refused.
        """
        make_folder(self.directory, folder_mode(self._mode))
        make_folder(self.private)

    def path(self, issue: int) -> Path:
        return self.directory / f"issue-{issue}.json"

    def is_there(self) -> bool:
        """Whether the folder is there. A restored copy without our private folder is recognized by its ledgers."""
        try:
            if self.private.is_dir():
                return True
            folders = [each for each in (self.directory, self.archive.folder) if each.is_dir()]
            if not any(_NAMED.fullmatch(path.name) for each in folders for path in each.iterdir()):
                return False
            make_folder(self.private)
        except OSError:
            return False
        return True

    def require(self) -> None:
        """Raises LedgersAway unless the folder is there."""
        if not self.is_there():
            raise LedgersAway(self.directory)

    def trouble(self, *, thorough: bool = False) -> str | None:
        """Why no ledger can be written now; None if no reason is known. `thorough` tries to write."""
        if not self.is_there():
            return str(LedgersAway(self.directory))
        try:
            if not os.access(self.directory, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.directory).f_flag & os.ST_RDONLY
                why = "the file system is read-only" if read_only else "this user has no write permission"
                return f"The folder with the ledgers, {self.directory}, cannot be written: {why}."
            if thorough:
                try_to_write(self.private)
        except OSError as error:
            return f"The folder with the ledgers, {self.directory}, cannot be written: {reason(error)}."
        return None

    def identity(self) -> tuple[int, int] | None:
        """The folder's device and inode; None if it is missing."""
        try:
            state = self.directory.stat()
        except OSError:
            return None
        return (state.st_dev, state.st_ino) if self.is_there() else None

    @contextmanager
    def hold(self, issue: int, timeout: float = PATIENCE) -> Iterator[Check]:
        """Lock a ledger.

        Raises:
            LockTimeout: not locked within `timeout` seconds.
        """
        with self._locks.hold(issue, timeout) as held:

            def check() -> None:
                if not held.is_there():
                    raise LockTimeout(issue, timeout, "someone who took it over while this process slept")

            yield check

    def state(self, issue: int) -> State | None:
        """The state of a live ledger; None if there is none."""
        try:
            return state_of(f"{self.directory}/issue-{issue}.json")
        except FileNotFoundError:
            return None

    def open(self, issue: int, check: Check) -> Raw:
        """The content of a locked ledger. Quarantines what is no regular file, or does not parse.

        Raises:
            LedgerUnreadable: it cannot be read.
        """
        path = self.path(issue)
        try:
            content = read_regular(path)
        except FileNotFoundError:
            return self._archived(issue) or _empty(issue)
        except OSError as error:
            if is_odd(path):
                raise LedgerUnreadable(issue, path, NOT_REGULAR, quarantine(path)) from error
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        try:
            return decode(content, issue)
        except ValueError as error:
            check()  # without the lock, another process may be half way through writing it
            raise LedgerUnreadable(issue, path, str(error), quarantine(path)) from None

    def _archived(self, issue: int) -> Raw | None:
        try:
            return self.archive.read(issue)
        except OSError as error:
            path = self.archive.path(issue)
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error

    @contextmanager
    def replacing(self, issue: int, path: Path, content: bytes, *, durable: bool = True) -> Iterator[str]:
        """As `core.files.replacing`, but raises LedgerUnwritable if the disk refuses."""
        try:
            with replacing(path, content, self.private, self._mode, durable=durable) as draft:
                yield draft
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error

    def issues(self) -> Iterator[int]:
        """The issues that have a live ledger.

        Raises:
            LedgersAway: the folder is missing.
        """
        self.require()
        yield from self.listing.issues()

    def by_issue(self) -> dict[int, list[Path]]:
        """All ledgers by issue: the live file first, then the archived ones."""
        found: dict[int, list[Path]] = {}
        for issue, path in [*sorted(self.listing.ledgers()), *sorted(self.archive.files())]:
            found.setdefault(issue, []).append(path)
        return found

    def rewrite(self, issue: int, change: Callable[[Raw], bool], timeout: float = PATIENCE) -> list[Path]:
        """Let `change` edit the content of each file of an issue, live and archived; it returns whether to write it.

        Returns:
            The files that cannot be read, unchanged.

        Raises:
            LockTimeout: another process holds the ledger. LedgerUnwritable: the disk refused; earlier files are written.
        """
        unreadable = []
        with self.hold(issue, timeout) as check:
            self.drop_drafts(issue)
            for path in self.by_issue().get(issue, []):
                try:
                    raw = decode(read_regular(path), issue)
                except ValueError:
                    unreadable.append(path)
                    continue
                if change(raw):
                    with self.replacing(issue, path, encode(raw)):
                        check()
        return unreadable

    def drafts(self) -> dict[int, list[Path]]:
        """What is being written, by issue; or was, when its process was killed.

        Raises:
            OSError: our private folder cannot be read.
        """
        found: dict[int, list[Path]] = {}
        for path in self.private.iterdir():
            if match := _DRAFT.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return found

    def drop_drafts(self, issue: int) -> None:
        """Removes what was left half written of a locked ledger."""
        for path in self.drafts().get(issue, []):
            path.unlink(missing_ok=True)

    def set_aside(self, issue: int) -> list[Path]:
        """The quarantined files of an issue."""
        return sorted(self.directory.glob(f"issue-{issue}.json.unreadable-*"))

    def everything(self) -> Iterator[tuple[int, Path]]:
        """Every file with its issue: live, archived and quarantined. Empty if the folder is missing."""
        if not self.is_there():
            return
        yield from self.listing.ledgers()
        yield from self.archive.files()
        for path in self.directory.glob("issue-*.json.unreadable-*"):
            if match := _QUARANTINED.fullmatch(path.name):
                yield int(match[1]), path

    def move_all(self, name: str) -> Path | None:
        """Move every file into the new folder `name`, and return that; None if there are no files.

        Raises:
            LockTimeout: another process holds a ledger; other files may be moved already. OSError: the disk refused.
        """
        target = self.directory / name
        for issue, path in list(self.everything()):
            to = target / path.relative_to(self.directory)
            with self.hold(issue) as check:
                make_folder(to.parent)
                check()
                path.rename(to)
                sync(path.parent)
        return target if target.exists() else None

    def close(self) -> None:
        """Release the resources; no ledger may be locked any more."""
        self._locks.close()


def state_of(path: str | Path) -> State:
    """Raises FileNotFoundError."""
    found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of ten thousand in a row, a Path costs more than this
    return f"{found.st_mtime_ns}:{found.st_ino}"


def _empty(issue: int) -> Raw:
    return {"issueNumber": issue, "clarifications": []}
