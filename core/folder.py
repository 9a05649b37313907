"""Which files in the ledgers' folder are ledgers. Others write there, too: what is none is left alone, and not opened.

A ledger is a regular file with a number that could be given out. A link is none: to replace it would cut it, and
it may lead to what whoever made it may not read. From 100001 up numbers are ours: a file there counts if we gave its
number out, so that nobody else moves what is given out next. Blocking.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from core.files import NOT_REGULAR, is_odd
from core.numbering import Numbers

FIRST_RESERVED = 100_001
HIGHEST = 999_999_999
_LIVE = re.compile(r"issue-([0-9]+)\.json")
_ARCHIVED = re.compile(r"issue-([0-9]+)(?:[._-].*)?\.json")
_TOLD = 1000  # names that are remembered, whatever others write
_NOT_OURS = f"numbers from {FIRST_RESERVED} up are for sessions without an issue, and clarify-bot did not give this one out"
_log = logging.getLogger("clarify.ledger")


class Ignored(NamedTuple):
    """A file that is named like a ledger and is none, with the reason; `reserved`: its number, where that is why."""

    path: Path
    why: str
    reserved: int = 0


def issue_in(name: str) -> int | None:
    """The issue that a ledger's name tells, live or archived; whether it is one, a `Folder` knows."""
    match = _ARCHIVED.fullmatch(name)
    return int(match[1]) if match else None


class Folder:
    """Of one kind of ledgers: the live ones, or those in the archive (`archived`), whose names may say more."""

    def __init__(self, path: Path, numbers: Numbers, *, archived: bool = False) -> None:
        self.path = path
        self._numbers = numbers
        self._name = _ARCHIVED if archived else _LIVE
        self._told: set[str] = set()

    def ledgers(self) -> Iterator[tuple[int, Path]]:
        """Each ledger with its issue. What is ignored is logged once.

        Raises:
            OSError: the folder cannot be read.
        """
        for found in self._looked_at():
            if isinstance(found, Ignored):
                self._tell(found)
            else:
                yield found

    def ignored(self) -> list[Ignored]:
        """What is named like a ledger, and does not count.

        Raises:
            OSError: the folder cannot be read.
        """
        return sorted(found for found in self._looked_at() if isinstance(found, Ignored))

    def issue_of(self, name: str) -> int | None:
        """The issue of the ledger of that name, also if it is gone; None: it is none."""
        match = self._name.fullmatch(name)
        if match is None:
            return None
        path = self.path / name
        found = self._judged(match[1], path, is_file=not is_odd(path))
        if isinstance(found, Ignored):
            self._tell(found)
            return None
        return found[0]

    def _looked_at(self) -> Iterator[tuple[int, Path] | Ignored]:
        with os.scandir(self.path) as found:
            entries = list(found)  # whoever asks may stop half way
        for entry in entries:
            if match := self._name.fullmatch(entry.name):
                is_file = entry.is_file(follow_symlinks=False)
                yield self._judged(match[1], self.path / entry.name, is_file=is_file)

    def _judged(self, digits: str, path: Path, *, is_file: bool) -> tuple[int, Path] | Ignored:
        if not is_file:
            return Ignored(path, f"it is {NOT_REGULAR}")
        if digits.startswith("0"):
            return Ignored(path, "issues are numbered from 1, without leading zeros")
        if len(digits) > len(str(HIGHEST)):
            return Ignored(path, f"its number is higher than {HIGHEST}")
        issue = int(digits)
        if issue >= FIRST_RESERVED and not self._numbers.is_given_out(issue):
            return Ignored(path, _NOT_OURS, issue)
        return issue, path

    def _tell(self, ignored: Ignored) -> None:
        name = ignored.path.name
        if name not in self._told and len(self._told) < _TOLD:
            self._told.add(name)
            _log.warning("%s is ignored: %s", ignored.path, ignored.why)

    def claim(self, highest: int) -> None:
        """Take the reserved numbers up to `highest` for given out: earlier releases kept no note beside the ledgers.

        Raises:
            OSError: the folder cannot be read, or the disk refused.
        """
        for path in self.path.iterdir() if self.path.exists() else ():
            match = self._name.fullmatch(path.name)
            if match is None or len(match[1]) > len(str(HIGHEST)):
                continue
            issue = int(match[1])
            if FIRST_RESERVED <= issue <= highest and not self._numbers.is_given_out(issue):
                self._numbers.give_out(issue)
