"""What a bot keeps in files: ledgers, and the storage in SQLite's. Blocking.

To back it up the storage is copied first, in one snapshot, then each ledger under its lock. So a copied ledger may have a
question that the copied storage lacks: it is added there as processed, as otherwise the question would be asked again when
its producer repeats it. In the opposite order, the storage could count a question as processed that is in no ledger.

To restore it the storage comes last: killed before, the same call (with `replace`) does it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from bot.errors import BackupError, StorageUnavailable
from bot.producers import inbox
from bot.retention.backup import DATABASE, LEDGERS, NUMBERS_LEFT_OUT, Manifest, Restored, leave_out
from bot.storage import beside
from bot.storage.tx import Tx
from core.archive import ARCHIVE, issue_in
from core.clarification import US, Clarification
from core.files import is_odd, make_folder, read_regular, replacing
from core.ledgerfiles import LedgerFiles
from core.records import FORGOTTEN, Raw, decode, parse
from core.records import SEAL_KEY as KEY

_T = TypeVar("_T")


class InFiles:
    """`bot.retention.backup.Kept` in files. `database`: SQLite's, which need not be there."""

    def __init__(self, ledger: LedgerFiles, database: Path) -> None:
        self._ledger = ledger
        self._database = database

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        version = None
        if self._database.exists():
            version = beside.copy(self._database, to / DATABASE)
            with beside.looking(to / DATABASE) as tx:
                self._ledger.claim(inbox.last_issue(tx))
        numbers = dict(_copy_ledgers(self._ledger, to / LEDGERS))
        _copy_key(self._ledger, to / KEY)
        if version is not None:
            known = (each for record in _records(to / LEDGERS) for each in _known_events(record))
            with beside.changing(to / DATABASE, current=False) as tx:
                inbox.note_known(tx, known, max(numbers, default=0))
        return version, numbers

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        ledger, database, name = self._ledger, self._database, f"before-restore-{now:%Y%m%dT%H%M%S}"
        with beside.alone(database):
            there = [
                *(path for paths in ledger.by_issue().values() for path in paths),
                *beside.parts(database),
            ]
            if there and not replace:
                raise BackupError(
                    f"{there[0]} already exists. To move it and the others aside, add --replace."
                )
            _rename_ledgers(ledger, name)
            beside.rename_to(database, name)
            _put_ledgers(folder, ledger, manifest)
            _put_key(folder / KEY, ledger.private / KEY)
            if manifest.storage_version is not None:
                with beside.putting_back(folder / DATABASE, database, another=copy) as tx:
                    leave_out(tx, now)
        return Restored(manifest, f"files with {name} in their names" if there else None)

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        found = self._ledger.by_issue()
        for number, paths in found.items() if issue is None else [(issue, found.get(issue, []))]:
            for path in paths:
                try:
                    yield number, path.name, decode(read_regular(path), number)["clarifications"]
                except ValueError:
                    yield number, path.name, None

    @contextmanager
    def looking(self) -> Iterator[Tx | None]:
        if not self._database.exists():
            yield None
            return
        with beside.looking(self._database, current=True) as tx:
            yield tx

    def forget(
        self,
        issues: Sequence[int],
        change: Callable[[Raw], bool],
        rows: Callable[[Tx], _T],
        is_done: Callable[[_T], bool],
    ) -> _T | None:
        for issue in issues:
            self._ledger.rewrite(issue, change)
        if not self._database.exists():
            return None
        with beside.changing(self._database) as tx:
            result = rows(tx)
        emptied = beside.empty_log(self._database)
        beside.ring(self._database)
        if not emptied and is_done(result):
            raise StorageUnavailable(
                f"It was deleted, but {self._database}-wal still holds it while another process reads the database. "
                "Run the same command again."
            )
        return result

    def set_aside(self, issues: Sequence[int]) -> list[str]:
        folder = self._ledger.directory
        return [path.name for issue in issues for path in folder.glob(f"issue-{issue}.json.unreadable-*")]


def _copy_key(ledger: LedgerFiles, to: Path) -> None:
    """Copy the key of the seals: without it, unsent answers would count as another program's."""
    with suppress(FileNotFoundError), replacing(to, read_regular(ledger.private / KEY), to.parent):
        pass


def _copy_ledgers(ledger: LedgerFiles, to: Path) -> Iterator[tuple[int, int]]:
    """Each issue under its lock, so that a file that moves between the two folders is there once; yields the highest
    number given out in each.
    """
    make_folder(to / ARCHIVE)
    issues, done = set(ledger.by_issue()), set()
    while issues:
        for issue in sorted(issues):
            with ledger.hold(issue):
                for path in (*ledger.by_issue().get(issue, ()), *_quarantined(ledger.directory, issue)):
                    shutil.copyfile(path, to / path.relative_to(ledger.directory))
                yield issue, ledger.numbers.highest(issue)
        done |= issues
        issues = set(ledger.by_issue()) - done  # new ones


def _quarantined(directory: Path, issue: int) -> list[Path]:
    return sorted(path for path in directory.glob(f"issue-{issue}.json.unreadable-*") if not is_odd(path))


def _records(ledgers: Path) -> Iterator[Clarification]:
    for path in (*ledgers.glob("issue-*.json"), *(ledgers / ARCHIVE).glob("issue-*.json")):
        try:
            items = decode(path.read_bytes(), issue_in(path.name))["clarifications"]
        except ValueError:
            continue  # it is in the backup as it is
        yield from (record for item in items if (record := parse(item)) is not None)


def _known_events(record: Clarification) -> Iterator[inbox.KnownEvent]:
    """The events that asked the questions of a record's rounds."""
    asked = record.asked.model_dump(mode="json", by_alias=True)
    words = [entry.body for entry in record.thread if entry.type == "question" and entry.from_ != US]
    rounds: list[Mapping[str, Any]] = [*asked.get("earlier", ()), asked]
    for number, each in enumerate(rounds):
        named = (each.get("producer"), each.get("eventId"), each.get("sessionId"))
        if not all(isinstance(name, str) for name in named):
            continue
        question = words[number] if len(words) == len(rounds) else FORGOTTEN
        yield inbox.KnownEvent(
            inbox.Session(
                each["producer"],
                each["sessionId"],
                each.get("agentId") or record.from_,
                each.get("agentName"),
                record.issue_number,
            ),
            each["eventId"],
            token=each.get("replyToken"),
            question=None if question == FORGOTTEN else question,
            at=record.created,
        )


def _rename_ledgers(ledger: LedgerFiles, name: str) -> None:
    for issue, paths in ledger.by_issue().items():
        for path in paths:
            ledger.move(issue, path, ledger.directory / name / path.relative_to(ledger.directory))


def _put_ledgers(folder: Path, ledger: LedgerFiles, manifest: Manifest) -> None:
    for file in manifest.ledgers:
        source = folder / file.path
        target = ledger.directory / Path(file.path).relative_to(LEDGERS)
        ledger.put(file.issue or 0, target, source.read_bytes())
    for issue, number in manifest.numbers.items():
        with ledger.hold(issue):
            given_out = max(number, ledger.numbers.highest(issue))
            ledger.numbers.note(issue, given_out + NUMBERS_LEFT_OUT)


def _put_key(source: Path, key: Path) -> None:
    if source.exists():  # backups of earlier releases have none
        with replacing(key, source.read_bytes(), key.parent):
            pass
