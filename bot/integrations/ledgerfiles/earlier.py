"""Reads ledger files that are older than a new, empty database. The bot decides which of their records count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import structlog

from bot.api import Earlier, Tx
from bot.integrations.ledgerfiles.bridge import BEHIND, FOLDER, REMEMBER, remembered
from bot.integrations.ledgerfiles.folder import FolderSettings, owner_of
from core.clarification import ID, Clarification
from core.errors import ClarifyError, LedgersAway
from core.files import read_regular, reason
from core.ledgeracts import Seen, is_too_long, name_of, named
from core.ledgerfiles import HIGHEST, LedgerFiles, Stray, decode, read_item
from core.records import Raw

_log = structlog.get_logger("clarify.ledger")
_LOCK = 2.0  # seconds


def earlier(settings: FolderSettings) -> Earlier | None:
    """Returns the content of the files, live and archived, or None if there is no folder or it cannot be read. If its disk is mounted
    only later, the folder counts as another installation's. Blocking.
    """
    with closing(settings.files()) as files:
        try:
            return _FolderReading(files).read() if files.is_there() else None
        except (LedgersAway, OSError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            _log.warning("no earlier ledgers are taken in", reason=why)
            return None


class _FolderReading:
    def __init__(self, files: LedgerFiles) -> None:
        self._files = files
        self._records: list[Clarification] = []
        self._highest: dict[int, int] = {}
        self._usual: dict[int, list[tuple[str, Raw]]] = {}  # in files that the bridge writes, by issue

    def read(self) -> Earlier:
        for issue, paths in self._files.by_issue().items():
            is_live = self._files.state(issue) is not None
            usual = self._files.path(issue) if is_live else self._files.archive.path(issue)
            self._usual[issue] = []
            for path in sorted(paths, key=lambda each: each != usual):
                self._read(issue, path, is_usual=path == usual)
        return Earlier(
            records=self._records, highest=self._highest, former=owner_of(self._files), along=self._remember
        )

    def _read(self, issue: int, path: Path, *, is_usual: bool) -> None:
        for name, item in named(self._items(issue, path)):
            if (match := ID.fullmatch(name)) and int(match[2]) <= HIGHEST:  # higher ones leave no next number
                self._highest[issue] = max(int(match[2]), self._highest.get(issue, 0))
            record = None if isinstance(item, Stray) else read_item(item)
            if record is None or name != name_of(item) or (not record.rounds and is_too_long(item)):
                continue  # the bridge reports it later
            self._records.append(record.model_copy(update={"id": name}))
            if is_usual:
                self._usual[issue].append((name, item))

    def _items(self, issue: int, path: Path) -> list[Any]:
        """Returns the records in a file, or none if it cannot be read: the bridge reports that later."""
        try:
            items: list[Any] = self._decoded(issue, path)["clarifications"]
        except (ClarifyError, OSError, ValueError) as error:
            _log.warning("ledger skipped", file=path.name, reason=str(error))
            return []
        return items

    def _decoded(self, issue: int, path: Path) -> Raw:
        try:
            return decode(read_regular(path), issue)
        except ValueError:
            if path != self._files.path(issue):
                raise
            with self._files.hold(
                issue, _LOCK
            ) as check:  # another program may be half way through writing it
                return self._files.open(issue, check)

    def _remember(self, tx: Tx, taken: Mapping[str, Clarification]) -> None:
        # From now on the folder should be ours, even if the bot is killed before it is.
        tx.many(REMEMBER, [*self._bases(taken), remembered(FOLDER, [], None)])

    def _bases(self, taken: Mapping[str, Clarification]) -> Iterator[Mapping[str, object]]:
        issues = {record.issue_number for record in taken.values()}
        for issue in issues & self._usual.keys():
            items = {name: item for name, item in self._usual[issue] if name in taken}
            base = {name: _as_read(item, taken[name]) for name, item in items.items()}
            # The bridge writes the file again, with the records as they count.
            yield remembered(issue, [base], BEHIND)


def _as_read(item: Raw, record: Clarification) -> Seen:
    """Returns the record as the bridge has read it from the file: only the part that was imported."""
    if len(record.thread) < len(item["thread"]):
        item = {**item, "status": record.status, "thread": item["thread"][: len(record.thread)]}
    return Seen.of(item)
