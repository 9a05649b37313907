"""Backup, restore and forgetting for a bot that keeps everything in files. Blocking.

A backup copies the storage first, in one snapshot, then each ledger under its lock. So a copied ledger may contain a
question that the copied storage lacks. That question is then recorded as processed; otherwise it would be asked again
when its producer repeats it. In the opposite order, the storage could count a question as processed that is in no
ledger.

A restore puts the storage last: if it is killed before, the same call (with `replace`) starts over.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from bot.errors import BackupError, StorageUnavailable
from bot.producers import inbox
from bot.retention.backup import DATABASE, LEDGERS, NUMBERS_LEFT_OUT, Manifest, Restored, leave_out
from bot.retention.rows import InStorage, still_in_the_log
from bot.storage import beside
from bot.storage.sqlite import tell_changed
from bot.storage.tx import Tx
from core.archive import ARCHIVE, issue_in
from core.clarification import US, Clarification
from core.files import is_odd, make_folder, read_regular, replacing
from core.ledgerfiles import LedgerFiles
from core.records import FORGOTTEN, Raw, decode, parse
from core.records import SEAL_KEY as KEY

_T = TypeVar("_T")


@dataclass(eq=False)
class InFiles:
    """`bot.retention.backup.Kept` in files. `database`: SQLite's file, which need not exist."""

    ledger: LedgerFiles
    database: Path

    def copy(self, to: Path) -> tuple[int | None, dict[int, int]]:
        version = None
        if self.database.exists():
            version = beside.copy(self.database, to / DATABASE)
            with beside.read_only(to / DATABASE) as tx:
                self.ledger.claim(inbox.last_issue(tx))
        numbers = dict(_copy_ledgers(self.ledger, to / LEDGERS))
        _copy_key(self.ledger, to / KEY)
        if version is not None:
            known = (each for record in _records(to / LEDGERS) for each in _known_events(record))
            with beside.transaction(to / DATABASE, current=False) as tx:
                inbox.note_known(tx, known, max(numbers, default=0))
        return version, numbers

    def put(self, folder: Path, manifest: Manifest, *, now: datetime, replace: bool, copy: bool) -> Restored:
        ledger, database, name = self.ledger, self.database, f"before-restore-{now:%Y%m%dT%H%M%S}"
        with beside.exclusive(database):
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
                    leave_out(tx, now, copy=copy)
        return Restored(manifest, f"files with {name} in their names" if there else None)

    def ledgers(self, issue: int | None = None) -> Iterator[tuple[int, str, list[Any] | None]]:
        found = self.ledger.by_issue()
        for number, paths in found.items() if issue is None else [(issue, found.get(issue, []))]:
            for path in paths:
                try:
                    yield number, path.name, decode(read_regular(path), number)["clarifications"]
                except ValueError:
                    yield number, path.name, None

    def read_only(self) -> AbstractContextManager[Tx | None]:
        return InStorage(self.database).read_only()

    def forget(
        self,
        issues: Sequence[int],
        change: Callable[[Raw], bool],
        rows: Callable[[Tx], _T],
        is_done: Callable[[_T], bool],
    ) -> _T | None:
        for issue in issues:
            self.ledger.rewrite(issue, change)
        if not self.database.exists():
            return None
        with beside.transaction(self.database) as tx:
            result = rows(tx)
        emptied = beside.empty_log(self.database)
        tell_changed(self.database)
        if not emptied and is_done(result):
            raise StorageUnavailable(still_in_the_log(self.database))
        return result

    def set_aside(self, issues: Sequence[int]) -> list[str]:
        folder = self.ledger.directory
        return [path.name for issue in issues for path in folder.glob(f"issue-{issue}.json.unreadable-*")]


def _copy_key(ledger: LedgerFiles, to: Path) -> None:
    """Copies the key of the seals: without it, unsent answers would count as another program's."""
    with suppress(FileNotFoundError), replacing(to, read_regular(ledger.private / KEY), to.parent):
        pass


def _copy_ledgers(ledger: LedgerFiles, to: Path) -> Iterator[tuple[int, int]]:
    """Copies each issue under its lock, so that a file being archived is copied once. Yields the highest number given
    out in each.
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
        issues = set(ledger.by_issue()) - done  # begun meanwhile


def _quarantined(directory: Path, issue: int) -> list[Path]:
    return sorted(path for path in directory.glob(f"issue-{issue}.json.unreadable-*") if not is_odd(path))


def _records(ledgers: Path) -> Iterator[Clarification]:
    for path in (*ledgers.glob("issue-*.json"), *(ledgers / ARCHIVE).glob("issue-*.json")):
        try:
            items = decode(path.read_bytes(), issue_in(path.name))["clarifications"]
        except ValueError:
            continue  # it is copied unchanged
        yield from (record for item in items if (record := parse(item)) is not None)


def _known_events(record: Clarification) -> Iterator[inbox.KnownEvent]:
    """Yields the events that asked the record's questions, one per round."""
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
    if source.exists():  # backups of earlier releases have no key
        with replacing(key, source.read_bytes(), key.parent):
            pass
