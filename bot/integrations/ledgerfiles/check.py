"""Checks the folder of the ledger files: who can write it, who holds a marker, which files are ignored or cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from bot.checks import CheckResult, first_of, right, wrong
from core.archive import ARCHIVE, Folder, Ignored, Numbers
from core.files import read_regular
from core.ledgerfiles import LedgerFiles
from core.ledgerformat import decode, why_invalid
from core.locks import PRIVATE, held_markers

_LEDGERS = "ledger.directory"
_LONGEST_LOCK = 3.0  # seconds


def check_folder(folder: Path, mode: int, *, expected: bool) -> Iterator[CheckResult]:
    """Yields what is right and wrong with the folder. `expected`: it is to be there already."""
    with closing(LedgerFiles(folder, mode=mode, expected=expected)) as files:
        trouble = files.trouble(thorough=True)
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


def _ignored(directory: Path) -> Iterator[CheckResult]:
    """Reports files that are named like a ledger but ignored: they may hold a question."""
    numbers, found = Numbers(directory / PRIVATE), list[Ignored]()
    for folder in (Folder(directory, numbers), Folder(directory / ARCHIVE, numbers, archived=True)):
        with suppress(OSError):  # the line about the folder says so
            found += folder.ignored()
    fix = "move it away, or rename it to issue-NUMBER.json; until then its questions are ignored"
    yield from (wrong(_LEDGERS, f"{each.path} is ignored: {each.why}", fix) for each in found)


def _unreadable(directory: Path) -> Iterator[CheckResult]:
    """Reports ledger files and records that cannot be read."""
    for issue, path in sorted(Folder(directory, Numbers(directory / PRIVATE)).ledgers()):
        try:
            items = decode(read_regular(path), issue)["clarifications"]
        except (OSError, ValueError) as error:
            fix = (
                "fix it, or move it away; otherwise it is set aside, and what others wrote into it is ignored"
            )
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
