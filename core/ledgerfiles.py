"""The files of a ledger folder: which are ledgers, how they are locked, read, replaced and moved, and the archive of finished
ones. Blocking.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records are never
removed, writes replace the file atomically. A file that does not parse under the lock is quarantined.

Finished ledgers are moved to `archive/`. What is written to an archived ledger first restores the whole file, since other
implementations number records by the list's length. A file is always in at least one of the two places; if it is in both,
the live one counts.

Other programs write in the folder too: files that are not ledgers are neither opened nor changed. A ledger is a regular file
with a valid issue number. Symlinks are ignored: replacing one would break it, and it may point to a file its creator may not
read. Numbers from 100001 up are ours: such a file counts only if we gave out its number, so that no other program decides
which number comes next.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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
from core.ledgerformat import decode, encode, identity
from core.locks import Locks
from core.records import Raw

_log = logging.getLogger("clarify.ledger")
ARCHIVE = "archive"
FIRST_RESERVED = 100_001
HIGHEST = 999_999_999
_LIVE = re.compile(r"issue-([0-9]+)\.json")
_ARCHIVED = re.compile(r"issue-([0-9]+)(?:[._-].*)?\.json")
_MOST_LOGGED = 1000  # ignored names, so that each is logged once
_NOT_OURS = f"numbers from {FIRST_RESERVED} up are reserved for sessions without an issue, and clarify-bot did not assign this one"
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

    def trouble(self) -> str | None:
        """Why no ledger can be written now, after trying to; None if one can."""
        if not self.is_there():
            return str(LedgersAway(self.directory))
        try:
            if not os.access(self.directory, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.directory).f_flag & os.ST_RDONLY
                why = "the file system is read-only" if read_only else "this user has no write permission"
                return f"The folder with the ledgers, {self.directory}, cannot be written: {why}."
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
            return self._archived(issue) or {"issueNumber": issue, "clarifications": []}
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

    def by_issue(self) -> dict[int, list[Path]]:
        """All ledgers by issue: the live file first, then the archived ones."""
        found: dict[int, list[Path]] = {}
        for issue, path in [*sorted(self.listing.ledgers()), *sorted(self.archive.files())]:
            found.setdefault(issue, []).append(path)
        return found

    def rewrite(self, issue: int, change: Callable[[Raw], bool], timeout: float) -> None:
        """Let `change` edit the content of each file of an issue that can be read, live and archived; it returns whether to write
        it.

        Raises:
            LockTimeout: another process holds the ledger. LedgerUnwritable: the disk refused; earlier files are written.
        """
        with self.hold(issue, timeout) as check:
            self.drop_drafts(issue)
            for path in self.by_issue().get(issue, []):
                try:
                    raw = decode(read_regular(path), issue)
                except ValueError:
                    continue
                if change(raw):
                    with self.replacing(issue, path, encode(raw)):
                        check()

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


class Archive:
    """The folder `archive/` in the ledger folder. Blocking. Hold the issue's lock to change files."""

    def __init__(self, ledgers: Path, numbers: Numbers, mode: int = 0o700) -> None:
        self.folder = ledgers / ARCHIVE
        self._mode = mode
        self.listing = Folder(self.folder, numbers, archived=True)

    def path(self, issue: int) -> Path:
        """The usual place of an archived ledger, from which it is restored."""
        return self.folder / f"issue-{issue}.json"

    def files(self) -> Iterator[tuple[int, Path]]:
        """Every archived file with its issue; an issue has several if other programs started it anew."""
        try:
            yield from self.listing.ledgers()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("cannot read the archive %s: %s", self.folder, error.strerror)

    def read(self, issue: int) -> Raw | None:
        """An archived ledger; None if there is none that parses.

        Raises:
            OSError: it exists and cannot be read.
        """
        try:
            return decode(read_regular(self.path(issue)), issue)
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # it stays for people to look into; the numbering continues from the recorded one

    def put(self, issue: int, live: Path, raw: Raw) -> Path:
        """Move the ledger `live`, which contains `raw`, here. Keeps what is already here of the same issue.

        Raises:
            OSError: the disk refused; the file is in its old place, or in both.
        """
        make_folder(self.folder, self._mode)
        target = self.path(issue)
        if target.exists() and not _holds(raw, self.read(issue)):
            target = self._beside(issue)
        if not target.exists():
            os.link(live, target)
            sync(self.folder)
        if target.samefile(live):
            live.unlink()  # renaming a hard link to itself does nothing
        else:
            live.replace(target)  # replaces an earlier state of it, left by a kill
        sync(live.parent)
        return target

    def drop(self, issue: int, live: Raw) -> None:
        """Remove an archived ledger whose records are all in the live file (`live`). If the disk refuses it stays: the live
        one counts.
        """
        try:
            if _holds(live, self.read(issue)):
                self.path(issue).unlink(missing_ok=True)
        except OSError as error:
            _log.warning(
                "%s was restored but stays in the archive: %s", self.path(issue).name, error.strerror
            )

    def _beside(self, issue: int) -> Path:
        number = 2
        while (path := self.folder / f"issue-{issue}.{number}.json").exists():
            number += 1
        return path


def _holds(raw: Raw, other: Raw | None) -> bool:
    """Whether every record of `other` is in `raw`, by id and creation time, as ids may have been reused."""
    return other is not None and _names(other) <= _names(raw)


def _names(raw: Raw) -> set[tuple[str, str]]:
    return {
        (identity(item), str(item.get("created")) if isinstance(item, dict) else "")
        for item in raw["clarifications"]
    }


class Ignored(NamedTuple):
    """A file that has a ledger's name but is not one, and why."""

    path: Path
    why: str


class Folder:
    """A folder of ledger files, live or archived; archived names may carry a suffix."""

    def __init__(self, path: Path, numbers: Numbers, *, archived: bool = False) -> None:
        self.path = path
        self._numbers = numbers
        self._names = _ARCHIVED.fullmatch if archived else _LIVE.fullmatch
        self._logged: set[str] = set()

    def ledgers(self) -> Iterator[tuple[int, Path]]:
        """Each ledger with its issue. Logs each ignored file once.

        Raises:
            OSError: the folder cannot be read.
        """
        for name, found in self._looked_at():
            if isinstance(found, Ignored):
                self._log_ignored(found)
            else:
                yield found, self.path / name

    def ignored(self) -> list[Ignored]:
        """Files that are named like a ledger but are ignored.

        Raises:
            OSError: the folder cannot be read.
        """
        return sorted(found for _, found in self._looked_at() if isinstance(found, Ignored))

    def issue_of(self, name: str) -> int | None:
        """The issue of a ledger by its file name, even if it is gone; None if it is not a ledger."""
        match = self._names(name)
        if match is None:
            return None
        found = self._judged(match, is_file=not is_odd(self.path / name))
        if isinstance(found, Ignored):
            self._log_ignored(found)
            return None
        return found

    def _looked_at(self) -> Iterator[tuple[str, int | Ignored]]:
        """Yields the entries that are named like a ledger, each with its issue or why it is ignored."""
        with os.scandir(self.path) as found:
            entries = list(found)  # the caller may stop half way
        for entry in entries:
            if match := self._names(entry.name):
                yield entry.name, self._judged(match, is_file=entry.is_file(follow_symlinks=False))

    def _judged(self, match: re.Match[str], *, is_file: bool) -> int | Ignored:
        """The issue of a ledger with this name, or why it is ignored."""
        digits = match[1]
        if not is_file:
            why = f"it is {NOT_REGULAR}"
        elif digits.startswith("0"):
            why = "issues are numbered from 1, without leading zeros"
        elif len(digits) > len(str(HIGHEST)):
            why = f"its number is higher than {HIGHEST}"
        else:
            issue = int(digits)
            if issue < FIRST_RESERVED or self._numbers.is_given_out(issue):
                return issue
            why = _NOT_OURS
        return Ignored(self.path / match.string, why)

    def _log_ignored(self, ignored: Ignored) -> None:
        name = ignored.path.name
        if name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            _log.warning("%s is ignored: %s", ignored.path, ignored.why)


class Numbers:
    """Remembers in the private `folder` which numbers were given out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given_out: set[int] = set()

    def path(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.seq"

    def is_given_out(self, issue: int) -> bool:
        """Whether we ever wrote a ledger of that issue."""
        if issue not in self._given_out and self.path(issue).exists():
            self._given_out.add(issue)
        return issue in self._given_out

    def give_out(self, issue: int) -> None:
        """Record that the ledger of an issue is ours, before it is created.

        Raises:
            OSError: the disk refused.
        """
        os.close(os.open(self.path(issue), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._given_out.add(issue)
