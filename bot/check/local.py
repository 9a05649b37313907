"""Looks at this machine's side: folders that must be writable, a storage that must be free."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from bot import phrases
from bot.check.findings import Finding, right, wrong
from bot.delivery.peek import connections
from bot.settings.environment import service_of
from bot.settings.model import Settings
from core.ledger import ARCHIVE, HIGHEST, FileLedger, Folder, Ignored, Numbers
from core.locks import PRIVATE, held_markers

_LISTED = 20
_A_LONG_HOLD = 3.0  # seconds


def probe(settings: Settings) -> Iterator[Finding]:
    yield right("configuration", f"{settings.file} is complete")
    yield from _ledgers(settings)
    yield from _ignored(settings)
    yield from _open_to_others(settings)
    yield _storage(settings.storage.path)
    if settings.slack.mode == "socket":
        yield from _slack_app(settings.storage.path)
    yield from _pagers(settings)
    for index, webhook in enumerate(settings.webhooks):
        yield right(f"webhooks[{index}]", f"signed with {webhook.secret_env}; nothing is sent by this check")
    if settings.monitor.heartbeat_env is not None:
        yield right("monitor.heartbeat_env", f"{settings.monitor.heartbeat_env} holds a web address")


def _pagers(settings: Settings) -> Iterator[Finding]:
    """Tell what each notification URL is for; nothing is sent, and nothing of the URL is shown."""
    for index, on_call in enumerate(settings.on_call):
        targets = [
            target for step in on_call.steps for target in step.notify if target.startswith("apprise:")
        ]
        for variable in dict.fromkeys(target.removeprefix("apprise:") for target in targets):
            subject = f"on_call[{index}].steps"
            service = service_of(settings.secrets.by_variable[variable].get_secret_value())
            if service is None:
                mend = "give it a URL as https://github.com/caronc/apprise/wiki describes"
                yield wrong(subject, f"the value of {variable} is no URL that apprise can notify", mend)
            else:
                yield right(subject, f"{variable} notifies through {service}")


def _ledgers(settings: Settings) -> Iterator[Finding]:
    """Look at the folder as the bot would, and at locks that somebody keeps."""
    subject, folder = "ledger.directory", settings.ledger.directory
    if not _knows_questions(settings.storage.path):
        yield _folder(subject, folder)
        return
    ledger = FileLedger(folder, mode=settings.ledger.mode, expected=True)
    try:
        trouble = ledger.trouble(thorough=True)
        if trouble is not None:
            mend = (
                f"mount its disk, or give this user the right to write there; if its ledgers are lost for good, make the "
                f"folder {ledger.private} to begin anew"
            )
            yield wrong(subject, trouble.removesuffix("."), mend)
            return
        yield right(subject, f"{folder} can be written")
        for marker, holder in held_markers(folder, _A_LONG_HOLD):
            yield wrong(
                subject,
                f"{marker} is held by {holder}",
                "end that program: nothing can be recorded meanwhile",
            )
    finally:
        ledger.close()


def _knows_questions(path: Path) -> bool:
    """Whether a bot has shown questions with this storage: then its ledgers have to be there."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            query = "select 1 from messages where clarification is not null limit 1"
            return database.execute(query).fetchone() is not None
    except sqlite3.Error:
        return False  # `_storage` says so


def _folder(key: str, folder: Path) -> Finding:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".check-"):
            pass
    except OSError as error:
        return wrong(
            key, f"{folder} cannot be written: {error.strerror}", "give this user the right to write there"
        )
    return right(key, f"{folder} can be written")


def _ignored(settings: Settings) -> Iterator[Finding]:
    """What is named like a ledger and does not count: others write there, and a question may be in it."""
    directory, last = settings.ledger.directory, _last_issue(settings.storage.path)
    numbers = Numbers(directory / PRIVATE)
    found: list[Ignored] = []
    for folder in (Folder(directory, numbers), Folder(directory / ARCHIVE, numbers, archived=True)):
        with suppress(OSError):  # the line about the folder says so
            found += [each for each in folder.ignored() if not 0 < each.reserved <= last]
    mend = "move it away, or give it the number of an issue, as a regular file; its questions are not seen"
    for each in found[:_LISTED]:
        yield wrong("ledger.directory", f"{each.path} is ignored: {each.why}", mend)
    if len(found) > _LISTED:
        more = len(found) - _LISTED
        yield wrong("ledger.directory", f"{more} more files are ignored for the like", "move them away")


def _open_to_others(settings: Settings) -> Iterator[Finding]:
    """Who else writes and reads ledgers: they speak for no person, but they see all that is asked."""
    folder, subject = settings.ledger.directory, "ledger.directory"
    try:
        mode = folder.stat().st_mode
        found = [path for _, path in Folder(folder, Numbers(folder / PRIVATE)).ledgers()]
        read = sum(bool(path.stat().st_mode & 0o004) for path in found)
    except OSError:
        return  # the line about the folder says so
    if mode & 0o002:
        mend = f"chmod o-w {folder}; for agents of a group: chmod 2770, and [ledger] mode"
        yield wrong(subject, f"everybody on this machine can write in {folder}", mend)
    elif mode & 0o020:
        told = f"its group can write in {folder}: what they write there speaks for no person, and accepts nothing"
        yield right(subject, told)
    if read:
        told = f"everybody on this machine can read {read} of the ledgers, which keep the mode that they have"
        yield Finding(
            ok=True, subject=subject, text=told, mend=f"unless that is meant: chmod o-r {folder}/issue-*.json"
        )


def _last_issue(storage: Path) -> int:
    """The reserved number that was given out last, as far as the storage tells; 0: none, or it does not."""
    try:
        with closing(sqlite3.connect(f"{storage.resolve().as_uri()}?mode=ro", uri=True)) as database:
            row = database.execute("select value from counters where name = 'issue'").fetchone()
    except sqlite3.Error:
        return 0
    return int(row[0]) if row and row[0] <= HIGHEST else 0


def _slack_app(path: Path) -> Iterator[Finding]:
    """What the bot was told when it last connected: to look ourselves would take clicks away from it."""
    told = connections(path)
    if told is None:
        return
    subject, since = "slack app", f"when this bot last connected, at {told.at:%Y-%m-%d %H:%M} UTC"
    if told.others:
        mend = "stop the other one, or give each installation a Slack app of its own, from manifest.yml"
        yield wrong(subject, f"{phrases.OTHER_BOT}: so it was {since}", mend)
    else:
        yield right(subject, f"no other bot was connected with it {since}")


def is_running(path: Path) -> bool:
    """Whether a bot holds this storage now."""
    try:
        with FileLock(f"{path}.lock", timeout=0, mode=0o600):
            return False
    except Timeout:
        return True
    except OSError:
        return False  # told of with the storage


def _storage(path: Path) -> Finding:
    """Try the lock that a running bot holds, then the file itself."""
    try:
        with FileLock(f"{path}.lock", timeout=0):
            return _database(path)
    except Timeout:
        return wrong(
            "storage.path", f"{path} is in use by another instance", "stop that one before you start another"
        )
    except OSError as error:
        return wrong(
            "storage.path",
            f"{path} cannot be locked: {error.strerror}",
            "give this user the right to write there",
        )


def _database(path: Path) -> Finding:
    if not path.exists():
        return right("storage.path", f"{path} is free; it will be created")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True)) as database:
            database.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        return wrong(
            "storage.path", f"{path} cannot be opened: {error}", "restore it from a backup, or move it away"
        )
    return right("storage.path", f"{path} opens, and is free")
