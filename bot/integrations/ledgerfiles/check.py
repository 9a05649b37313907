"""Checks the folder of the ledger files: who can write to it, who holds a marker, and which files are ignored or unreadable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from bot.api import NOT_EMPTY, CheckResult, Secrets, StorageUnavailable, first_of, reading, right, wrong
from bot.integrations.ledgerfiles.folder import FolderSettings, owner_of
from core.files import read_regular, why_not_creatable
from core.ledgerfiles import ARCHIVE, Folder, Ignored, Numbers, decode, why_invalid
from core.locks import PRIVATE, held_markers

_LEDGERS = "ledger.directory"
_LONGEST_LOCK = 3.0  # seconds


def check_folder(settings: FolderSettings, secret: Secrets) -> Iterator[CheckResult]:
    """Yields the results of all checks of the folder. Blocking."""
    folder, is_first = settings.folder, settings.url_env is None and not settings.storage.exists()
    with closing(settings.files()) as files:
        # The first start creates it.
        is_new = is_first and not files.private.is_dir()
        trouble = why_not_creatable(files.private) if is_new else files.trouble()
    if is_new and not folder.exists() and trouble is None:
        yield right(_LEDGERS, f"{folder} will be created")
        return
    if trouble is not None:
        fix = "mount its disk, or make it writable for this user; until then the files stay as they are"
        yield wrong(_LEDGERS, trouble.removesuffix("."), fix)
        return
    yield right(_LEDGERS, f"{folder} can be written")
    for marker, holder in held_markers(folder, _LONGEST_LOCK):
        yield wrong(
            _LEDGERS, f"{marker} is held by {holder}", "stop that program; until then the file stays as it is"
        )
    yield from first_of([*_ignored(folder), *_unreadable(folder)], _LEDGERS, "problems like these")
    yield from _open_to_others(folder)
    yield from _of_others(settings, secret)


def _ignored(directory: Path) -> Iterator[CheckResult]:
    """Reports ignored files that are named like a ledger file: they may contain a question."""
    numbers, found = Numbers(directory / PRIVATE), list[Ignored]()
    for folder in (Folder(directory, numbers), Folder(directory / ARCHIVE, numbers, archived=True)):
        with suppress(OSError):  # another result reports this
            found += folder.ignored()
    fix = "move it away, or rename it to issue-NUMBER.json; until then its questions are ignored"
    yield from (wrong(_LEDGERS, f"{each.path} is ignored: {each.why}", fix) for each in found)


def _unreadable(directory: Path) -> Iterator[CheckResult]:
    """Reports ledger files and records that cannot be read."""
    for issue, path in sorted(Folder(directory, Numbers(directory / PRIVATE)).ledgers()):
        try:
            items = decode(read_regular(path), issue)["clarifications"]
        except (OSError, ValueError) as error:
            fix = "fix it, or move it away; otherwise it is set aside, and what others wrote to it is ignored"
            yield wrong(_LEDGERS, f"{path.name} cannot be read: {error}", fix)
            continue
        for position, item in enumerate(items, 1):
            if (odd := why_invalid(issue, position, item)) is not None:
                text = f"{odd.name} in {path.name} cannot be read: see {', '.join(odd.fields)}"
                yield wrong(_LEDGERS, text, "fix it; until then no one sees or answers it")


def _open_to_others(folder: Path) -> Iterator[CheckResult]:
    """Reports who else can write or read the files: a writer cannot speak for a person, but a reader sees everything."""
    mode = folder.stat().st_mode
    found = [path for _, path in Folder(folder, Numbers(folder / PRIVATE)).ledgers()]
    read = sum(bool(path.stat().st_mode & 0o004) for path in found)
    if mode & 0o002:
        fix = f"chmod o-w {folder}; for agents of a group: chmod 2770, and [ledger] mode"
        yield wrong(_LEDGERS, f"everyone on this machine can write to {folder}", fix)
    elif mode & 0o020:
        text = f"its group can write to {folder}. A ledger entry never counts as a person's decision"
        yield right(_LEDGERS, text)
    if read:
        text = f"everyone on this machine can read {read} of the ledgers"
        yield right(_LEDGERS, text, f"unless you want that: chmod o-r {folder}/issue-*.json")


def _of_others(settings: FolderSettings, secret: Secrets) -> Iterator[CheckResult]:
    """Reports the folder's owner, if that is another installation."""
    url = None if settings.url_env is None else secret(settings.url_env)
    try:
        with closing(settings.files()) as files, reading(settings.storage, url) as tx:
            owner = owner_of(files)
            ours = tx.one("select id from installation") if tx is not None else None
            is_new = tx is None or tx.one(NOT_EMPTY) is None
    except (OSError, StorageUnavailable):
        return  # other results report this
    if not owner or (ours is not None and owner == ours["id"]):
        return
    text = f"{settings.folder} belongs to another installation of clarify-bot ({owner})"
    if is_new:
        yield right(_LEDGERS, f"{text}; the first start on this new database imports its files")
    else:
        fix = "give each installation a folder of its own: change [ledger] directory"
        yield wrong(_LEDGERS, f"{text}; its records are left alone", fix)
