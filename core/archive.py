"""Ledgers that nobody needs any more: whole files in `archive/`, beside the live ones.

A record written to an archived ledger brings it back, all of it, before it is numbered: others number by length.
A file is always in at least one of both places; in both, the live one counts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from core.book import Raw, decode, identity, parse
from core.clarification import DONE, UNDELIVERED, Clarification
from core.files import make_folder, read_regular, sync_folder
from core.folder import Folder
from core.numbering import Numbers

_log = logging.getLogger("clarify.ledger")
FOLDER = "archive"


def closed_at(record: Clarification) -> datetime | None:
    """When it was over, whatever was told or written about it last; None: it is not, or its reply is on its way."""
    if record.status not in DONE or record.asked.reply in UNDELIVERED or record.is_adoptable:
        return None
    moments = [record.created, record.resolved_at, *(entry.timestamp for entry in record.thread)]
    return max(moment for moment in (*moments, record.asked.went_on_at) if moment is not None)


def is_over(items: Iterable[object], now: datetime, after: timedelta) -> bool:
    """Whether all that a ledger holds is closed, and has been for `after`. One that cannot be read may be open."""
    for item in items:
        if not isinstance(item, dict) or item.get("status") not in list(DONE):
            return False  # without reading the rest of it: so it is with nearly all that are not over
        record = parse(item)
        over = closed_at(record) if record is not None else None
        if over is None or now - over < after:
            return False
    return True


class Archive:
    """The folder `archive/` in the ledgers' folder. Blocking; what changes files is for who holds the issue's lock."""

    def __init__(self, ledgers: Path, numbers: Numbers, mode: int = 0o700) -> None:
        self.folder = ledgers / FOLDER
        self._mode = mode
        self.shelf = Folder(self.folder, numbers, archived=True)

    def path(self, issue: int) -> Path:
        """Where an archived ledger is as a rule, and comes back from."""
        return self.folder / f"issue-{issue}.json"

    def files(self) -> Iterator[tuple[int, Path]]:
        """Every archived file with its issue; of one issue there may be several, where others began anew."""
        try:
            yield from self.shelf.ledgers()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("the archive %s cannot be read: %s", self.folder, error.strerror)

    def read(self, issue: int) -> Raw | None:
        """An archived ledger; None: there is none, or none that could come back.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            return decode(read_regular(self.path(issue)), issue)
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # it stays where it is, for whoever looks into it; numbers go on as they were noted

    def put(self, issue: int, live: Path, raw: Raw) -> Path:
        """Move the ledger `live`, which holds `raw`, here. What is here of the same issue is not lost.

        Raises:
            OSError: the disk refused; the file is in its old place, or in both.
        """
        make_folder(self.folder, self._mode)
        target = self.path(issue)
        if target.exists() and not _holds(raw, self.read(issue)):
            target = self._beside(issue)
        if not target.exists():
            os.link(live, target)
            sync_folder(self.folder)
        if target.samefile(live):
            live.unlink()  # to rename it would do nothing
        else:
            live.replace(target)  # an earlier state of the same, left by a kill
        sync_folder(live.parent)
        return target

    def drop(self, issue: int, live: Raw) -> None:
        """The ledger came back: what is here of it is in the live file, which holds `live`, too. Where the disk
        refuses it stays: the live one counts.
        """
        try:
            if _holds(live, self.read(issue)):
                self.path(issue).unlink(missing_ok=True)
        except OSError as error:
            _log.warning(
                "%s came back and stays in the archive, too: %s", self.path(issue).name, error.strerror
            )

    def _beside(self, issue: int) -> Path:
        number = 2
        while (path := self.folder / f"issue-{issue}.{number}.json").exists():
            number += 1
        return path


def _holds(raw: Raw, other: Raw | None) -> bool:
    """Whether every record of `other` is in `raw` too; an id alone does not say so: others may have begun anew."""
    return other is not None and _names(other) <= _names(raw)


def _names(raw: Raw) -> set[tuple[str, str]]:
    return {
        (identity(item), str(item.get("created")) if isinstance(item, dict) else "")
        for item in raw["clarifications"]
    }
