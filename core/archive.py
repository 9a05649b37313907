"""Which files of a folder are ledgers, the archive of finished ones, and the issue numbers given out. Blocking.

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from core.files import NOT_REGULAR, is_odd, make_folder, read_regular, sync
from core.ledgerformat import decode, identity
from core.records import Raw

_log = logging.getLogger("clarify.ledger")
ARCHIVE = "archive"
FIRST_RESERVED = 100_001
HIGHEST = 999_999_999
_LIVE = re.compile(r"issue-([0-9]+)\.json")
_ARCHIVED = re.compile(r"issue-([0-9]+)(?:[._-].*)?\.json")
_MOST_LOGGED = 1000  # ignored names, so that each is logged once
_NOT_OURS = f"numbers from {FIRST_RESERVED} up are reserved for sessions without an issue, and clarify-bot did not assign this one"


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
        with self._readable():
            yield from self.listing.ledgers()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Guards listing it: a missing folder counts as empty, an unreadable one is logged."""
        try:
            yield
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
        for issue, name in self._found():
            yield issue, self.path / name

    def issues(self) -> Iterator[int]:
        """The issue of each ledger; raises and logs as `ledgers` does."""
        for issue, _ in self._found():
            yield issue

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

    def _found(self) -> Iterator[tuple[int, str]]:
        for name, found in self._looked_at():
            if isinstance(found, Ignored):
                self._log_ignored(found)
            else:
                yield found, name

    def _looked_at(self) -> Iterator[tuple[str, int | Ignored]]:
        for match, entry in self._named():
            yield entry.name, self._judged(match, is_file=entry.is_file(follow_symlinks=False))

    def _named(self) -> Iterator[tuple[re.Match[str], os.DirEntry[str]]]:
        """The entries that are named like a ledger."""
        with os.scandir(self.path) as found:
            entries = list(found)  # the caller may stop half way
        for entry in entries:
            if match := self._names(entry.name):
                yield match, entry

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
