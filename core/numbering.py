"""The highest number that was ever given out in an issue, kept beside its ledger: cards carry it, whatever became of
the file. Blocking; to be changed by who holds the issue's lock.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

_log = logging.getLogger("clarify.ledger")


class Numbers:
    """`folder` is private to us."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given_out: set[int] = set()

    def path(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.seq"

    def highest(self, issue: int) -> int:
        """0 where none was noted."""
        try:
            return int(self.path(issue).read_bytes())
        except (FileNotFoundError, ValueError):
            return 0

    def is_given_out(self, issue: int) -> bool:
        """Whether we ever wrote a ledger of that issue."""
        if issue not in self._given_out and self.path(issue).exists():
            self._given_out.add(issue)
        return issue in self._given_out

    def give_out(self, issue: int) -> None:
        """Keep that the ledger of an issue is ours, before it is there.

        Raises:
            OSError: the disk refused.
        """
        os.close(os.open(self.path(issue), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def note(self, issue: int, number: int) -> None:
        """Keep a number that was given out: it stays known if the ledger is cut to nothing."""
        try:
            handle = os.open(self.path(issue), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.pwrite(handle, b"%012d" % number, 0)  # always as long: a kill leaves the old or the new
            finally:
                os.close(handle)
        except OSError as error:
            _log.warning("number %d of issue %d cannot be noted: %s", number, issue, error.strerror)

    def note_all(self, issue: int, content: bytes) -> None:
        """Keep the highest number that some bytes name, if it is higher than what is known."""
        named = map(int, re.findall(rb"CLR-%d-([0-9]{1,9})(?![0-9])" % issue, content))
        self.note(issue, max(self.highest(issue), 0, *named))
