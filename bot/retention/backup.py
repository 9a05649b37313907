"""A copy of everything, taken while the bot runs, from which it goes on: no question lost, no answer sent twice.

The storage is copied first, as it is at one moment, then each ledger under its lock. So a ledger may know a question
that the copy of the storage does not: it is noted there as taken in, or its producer's next telling would ask it again.
The other way round, a question would be taken for worked off that no ledger has. Blocking.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.errors import BackupError
from bot.producers.inbox import FIRST_RESERVED_ISSUE
from bot.retention.manifest import DATABASE, LEDGERS, NAME, Manifest, described
from core.clarification import US, Clarification
from core.files import is_odd, make_folder, make_private, read_regular, replacing, sync_folder
from core.ledger import ARCHIVE, HIGHEST, FileLedger, issue_in
from core.records import FORGOTTEN, decode, parse
from core.records import SEAL_KEY as KEY

_BUSY_SECONDS = 10.0


def backup(upkeep: FileLedger, database: Path, folder: Path, *, now: datetime, release: str) -> Manifest:
    """Copy the ledgers and the storage into `folder`, which is not there yet, or empty.

    Raises:
        BackupError: it is there already, or the disk refused; nothing is left of it.
        LockTimeout: somebody else holds a ledger.
    """
    if folder.exists() and any(folder.iterdir()):
        raise BackupError(f"{folder} is not empty: a backup has a folder of its own.")
    draft = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        make_folder(draft)
        manifest = _copy(upkeep, database, draft, now, release)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise BackupError(f"{folder} cannot be written: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def _copy(upkeep: FileLedger, database: Path, draft: Path, now: datetime, release: str) -> Manifest:
    version = None
    if database.exists():
        make_private(draft / DATABASE)
        version = _copy_storage(database, draft / DATABASE)
        upkeep.claim(_last_issue(draft / DATABASE))
    numbers = dict(_copy_ledgers(upkeep, draft / LEDGERS))
    _copy_key(upkeep, draft / KEY)
    if version is not None:
        _reconcile(draft / DATABASE, _records(draft / LEDGERS))
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    for path in files:
        path.chmod(0o600)
        _sync(path)
    manifest = Manifest(
        made=now,
        release=release,
        storage_version=version,
        numbers=numbers,
        files=tuple(described(draft, path) for path in files),
    )
    (draft / NAME).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
    (draft / NAME).chmod(0o600)
    _sync(draft / NAME)
    sync_folder(draft)
    return manifest


def _copy_storage(database: Path, to: Path) -> int:
    """All of one moment, whoever writes meanwhile; one file, without a log beside it."""
    try:
        with (
            closing(
                sqlite3.connect(f"{database.resolve().as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS)
            ) as source,
            closing(sqlite3.connect(to, isolation_level=None)) as target,
        ):
            source.backup(target)
            target.execute("pragma journal_mode = delete")
            problem = target.execute("pragma quick_check").fetchone()[0]
            if problem != "ok":
                raise BackupError(f"{database} is damaged: {problem}.")
            return int(target.execute("pragma user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise BackupError(f"{database} could not be copied: {error}.") from error


def _copy_key(upkeep: FileLedger, to: Path) -> None:
    """What our own answers are known by: without it, those on their way would be another writer's."""
    with suppress(FileNotFoundError), replacing(to, read_regular(upkeep.private / KEY), to.parent):
        pass


def _last_issue(database: Path) -> int:
    """The reserved number that was given out last, as far as the storage knows; 0: none."""
    with closing(sqlite3.connect(database)) as db:
        row = db.execute(
            "select value from counters where name = 'issue' and value <= ?", (HIGHEST,)
        ).fetchone()
    return int(row[0]) if row else 0


def _copy_ledgers(upkeep: FileLedger, to: Path) -> Iterator[tuple[int, int]]:
    """Each issue under its lock, so that a file that moves between the two folders is there once; yields the highest
    number given out in each.
    """
    make_folder(to / ARCHIVE)
    issues, done = set(upkeep.files()), set()
    while issues:
        for issue in sorted(issues):
            with upkeep.held(issue):
                for path in (*upkeep.files().get(issue, ()), *_asides(upkeep.directory, issue)):
                    shutil.copyfile(path, to / path.relative_to(upkeep.directory))
                yield issue, upkeep.numbers.highest(issue)
        done |= issues
        issues = set(upkeep.files()) - done  # new ones


def _asides(directory: Path, issue: int) -> list[Path]:
    return sorted(path for path in directory.glob(f"issue-{issue}.json.unreadable-*") if not is_odd(path))


def _records(ledgers: Path) -> Iterator[Clarification]:
    for path in (*ledgers.glob("issue-*.json"), *(ledgers / ARCHIVE).glob("issue-*.json")):
        try:
            items = decode(path.read_bytes(), issue_in(path.name))["clarifications"]
        except ValueError:
            continue  # it is in the backup as it is
        yield from (record for item in items if (record := parse(item)) is not None)


def _reconcile(database: Path, records: Iterator[Clarification]) -> None:
    """Have the copied storage know what the ledgers hold."""
    highest = 0
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("begin")
        for record in records:
            highest = max(highest, record.issue_number)
            for row in _taken_in(record):
                db.execute(_INBOX, row)
                db.execute(_SESSION, row)
        if highest >= FIRST_RESERVED_ISSUE:
            db.execute(_COUNTER, (highest,))
        db.execute("commit")


def _taken_in(record: Clarification) -> Iterator[dict[str, Any]]:
    """The events that asked a record's rounds, as rows of the inbox."""
    asked = record.asked.model_dump(mode="json", by_alias=True)
    words = [entry.body for entry in record.thread if entry.type == "question" and entry.from_ != US]
    rounds: list[Mapping[str, Any]] = [*asked.get("earlier", ()), asked]
    for number, each in enumerate(rounds):
        named = (each.get("producer"), each.get("eventId"), each.get("sessionId"))
        if not all(isinstance(name, str) for name in named):
            continue
        yield {
            "producer": named[0],
            "event": named[1],
            "session": named[2],
            "issue": record.issue_number,
            "token": each.get("replyToken"),
            "words": _digest(words[number]) if len(words) == len(rounds) else None,
            "at": record.created.timestamp(),
            "agent": each.get("agentId") or record.from_,
            "name": each.get("agentName"),
        }


def _digest(question: str) -> str | None:
    """As the inbox has it."""
    return None if question == FORGOTTEN else hashlib.blake2b(question.encode(), digest_size=12).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_INBOX = """
  insert or ignore into inbox (producer, event_id, session_id, issue, token, words, received_at, at, live, state)
  values (:producer, :event, :session, :issue, :token, :words, :at, :at, 0, 'done')"""
_SESSION = """
  insert into sessions (producer, session_id, agent_id, agent_name, issue)
  values (:producer, :session, :agent, :name, :issue)
  on conflict do update set issue = coalesce(sessions.issue, excluded.issue)"""
_COUNTER = """
  insert into counters values ('issue', ?) on conflict (name) do update set value = max(value, excluded.value)"""
