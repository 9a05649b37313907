"""The files of a ledger folder: which are ledgers, what they hold, how they are locked, read, replaced and moved, and the archive
of finished ones. Blocking.

The file format and its rules are the Clarification Protocol's (architecture §5): unknown fields are kept, records are never
removed, writes replace the file atomically. A file that does not parse under the lock is quarantined. What only this project
knows of a record stands in one object there, `aaep`: the current round, without its parts, and with those before it as
`earlier`. What other programs add stays as it is: unknown fields, and items that are no records of the issue.

Finished ledgers are moved to `archive/`. What is written to an archived ledger first restores the whole file, since other
implementations number records by the list's length. A file is always in at least one of the two places; if it is in both,
the live one counts.

Other programs write in the folder too: files that are not ledgers are neither opened nor changed. A ledger is a regular file
with a valid issue number. Symlinks are ignored: replacing one would break it, and it may point to a file its creator may not
read. Numbers from 100001 up are ours: such a file counts only if we gave out its number, so that no other program decides
which number comes next.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import to_json

from core.clarification import DONE, ID, PARTS, Clarification, Confirmation, Record, Round
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout
from core.files import (
    NOT_REGULAR,
    folder_mode,
    is_odd,
    make_folder,
    quarantine,
    read_regular,
    reason,
    replacing,
    sync,
    try_to_write,
)
from core.locks import Locks
from core.records import Halved, Raw, forgotten, parse, read_json

_log = logging.getLogger("clarify.ledger")
ARCHIVE = "archive"
FIRST_RESERVED = 100_001
HIGHEST = 999_999_999
_LIVE = re.compile(r"issue-([0-9]+)\.json")
_ARCHIVED = re.compile(r"issue-([0-9]+)(?:[._-].*)?\.json")
_MOST_LOGGED = 1000  # ignored names, so that each is logged once
_NOT_OURS = f"numbers from {FIRST_RESERVED} up are reserved for sessions without an issue, and clarify-bot did not assign this one"
PATIENCE = 10.0  # seconds to lock a ledger for commands that move or rewrite whole files
_NAMED = re.compile(r"issue-[0-9].*\.json")
_DRAFT = re.compile(r"issue-([0-9]{1,9})(?:[._-].*)?\.json\.[0-9]+\.[0-9a-f]{32}")
_QUARANTINED = re.compile(r"issue-([0-9]{1,9})\.json\.unreadable-.+")
State = str
"""Modification time and inode: they change with every write of a file, in place or not."""
Check = Callable[[], None]
"""Raises LockTimeout if the ledger's lock was lost."""


class LedgerFiles:
    """The ledger files in `directory` and its `archive`. `mode`: of new files; existing ones keep theirs.

    Our private folder in `directory` shows that this is the right directory: while it is missing, as on an unmounted disk,
    nothing is created. `expected`: ledgers were written there before, so an empty folder is the wrong one.
    """

    def __init__(self, directory: Path, *, mode: int = 0o600, expected: bool = False) -> None:
        self.directory = directory
        self._mode = mode
        self._locks = Locks(directory, mode)
        self.private = self._locks.private
        if not expected:
            self.make()
        self.numbers = Numbers(self.private)
        self.listing = Folder(directory, self.numbers)
        self.archive = Archive(directory, self.numbers, folder_mode(mode))

    def make(self) -> None:
        """Create the folder, and our private one in it.

        Raises:
            OSError: the disk refused.
        """
        make_folder(self.directory, folder_mode(self._mode))
        make_folder(self.private)

    def path(self, issue: int) -> Path:
        return self.directory / f"issue-{issue}.json"

    def is_there(self) -> bool:
        """Whether the folder is there. A restored copy without our private folder is recognized by its ledgers."""
        try:
            if self.private.is_dir():
                return True
            folders = [each for each in (self.directory, self.archive.folder) if each.is_dir()]
            if not any(_NAMED.fullmatch(path.name) for each in folders for path in each.iterdir()):
                return False
            make_folder(self.private)
        except OSError:
            return False
        return True

    def require(self) -> None:
        """Raises LedgersAway unless the folder is there."""
        if not self.is_there():
            raise LedgersAway(self.directory)

    def trouble(self) -> str | None:
        """Why no ledger can be written now, after trying to; None if one can."""
        if not self.is_there():
            return str(LedgersAway(self.directory))
        try:
            if not os.access(self.directory, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.directory).f_flag & os.ST_RDONLY
                why = "the file system is read-only" if read_only else "this user has no write permission"
                return f"The folder with the ledgers, {self.directory}, cannot be written: {why}."
            try_to_write(self.private)
        except OSError as error:
            return f"The folder with the ledgers, {self.directory}, cannot be written: {reason(error)}."
        return None

    def identity(self) -> tuple[int, int] | None:
        """The folder's device and inode; None if it is missing."""
        try:
            state = self.directory.stat()
        except OSError:
            return None
        return (state.st_dev, state.st_ino) if self.is_there() else None

    @contextmanager
    def hold(self, issue: int, timeout: float = PATIENCE) -> Iterator[Check]:
        """Lock a ledger.

        Raises:
            LockTimeout: not locked within `timeout` seconds.
        """
        with self._locks.hold(issue, timeout) as held:

            def check() -> None:
                if not held.is_there():
                    raise LockTimeout(issue, timeout, "someone who took it over while this process slept")

            yield check

    def state(self, issue: int) -> State | None:
        """The state of a live ledger; None if there is none."""
        try:
            return state_of(f"{self.directory}/issue-{issue}.json")
        except FileNotFoundError:
            return None

    def open(self, issue: int, check: Check) -> Raw:
        """The content of a locked ledger. Quarantines what is no regular file, or does not parse.

        Raises:
            LedgerUnreadable: it cannot be read.
        """
        path = self.path(issue)
        try:
            content = read_regular(path)
        except FileNotFoundError:
            return self._archived(issue) or {"issueNumber": issue, "clarifications": []}
        except OSError as error:
            if is_odd(path):
                raise LedgerUnreadable(issue, path, NOT_REGULAR, quarantine(path)) from error
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error
        try:
            return decode(content, issue)
        except ValueError as error:
            check()  # without the lock, another process may be half way through writing it
            raise LedgerUnreadable(issue, path, str(error), quarantine(path)) from None

    def _archived(self, issue: int) -> Raw | None:
        try:
            return self.archive.read(issue)
        except OSError as error:
            path = self.archive.path(issue)
            raise LedgerUnreadable(issue, path, error.strerror or "cannot be read", None) from error

    @contextmanager
    def replacing(self, issue: int, path: Path, content: bytes, *, durable: bool = True) -> Iterator[str]:
        """As `core.files.replacing`, but raises LedgerUnwritable if the disk refuses."""
        try:
            with replacing(path, content, self.private, self._mode, durable=durable) as draft:
                yield draft
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error

    def by_issue(self) -> dict[int, list[Path]]:
        """All ledgers by issue: the live file first, then the archived ones."""
        found: dict[int, list[Path]] = {}
        for issue, path in [*sorted(self.listing.ledgers()), *sorted(self.archive.files())]:
            found.setdefault(issue, []).append(path)
        return found

    def rewrite(self, issue: int, change: Callable[[Raw], bool], timeout: float) -> None:
        """Let `change` edit the content of each file of an issue that can be read, live and archived; it returns whether to write
        it.

        Raises:
            LockTimeout: another process holds the ledger. LedgerUnwritable: the disk refused; earlier files are written.
        """
        with self.hold(issue, timeout) as check:
            self.drop_drafts(issue)
            for path in self.by_issue().get(issue, []):
                try:
                    raw = decode(read_regular(path), issue)
                except ValueError:
                    continue
                if change(raw):
                    with self.replacing(issue, path, encode(raw)):
                        check()

    def drafts(self) -> dict[int, list[Path]]:
        """What is being written, by issue; or was, when its process was killed.

        Raises:
            OSError: our private folder cannot be read.
        """
        found: dict[int, list[Path]] = {}
        for path in self.private.iterdir():
            if match := _DRAFT.fullmatch(path.name):
                found.setdefault(int(match[1]), []).append(path)
        return found

    def drop_drafts(self, issue: int) -> None:
        """Removes what was left half written of a locked ledger."""
        for path in self.drafts().get(issue, []):
            path.unlink(missing_ok=True)

    def set_aside(self, issue: int) -> list[Path]:
        """The quarantined files of an issue."""
        return sorted(self.directory.glob(f"issue-{issue}.json.unreadable-*"))

    def everything(self) -> Iterator[tuple[int, Path]]:
        """Every file with its issue: live, archived and quarantined. Empty if the folder is missing."""
        if not self.is_there():
            return
        yield from self.listing.ledgers()
        yield from self.archive.files()
        for path in self.directory.glob("issue-*.json.unreadable-*"):
            if match := _QUARANTINED.fullmatch(path.name):
                yield int(match[1]), path

    def move_all(self, name: str) -> Path | None:
        """Move every file into the new folder `name`, and return that; None if there are no files.

        Raises:
            LockTimeout: another process holds a ledger; other files may be moved already. OSError: the disk refused.
        """
        target = self.directory / name
        for issue, path in list(self.everything()):
            to = target / path.relative_to(self.directory)
            with self.hold(issue) as check:
                make_folder(to.parent)
                check()
                path.rename(to)
                sync(path.parent)
        return target if target.exists() else None

    def close(self) -> None:
        """Release the resources; no ledger may be locked any more."""
        self._locks.close()


def state_of(path: str | Path) -> State:
    """Raises FileNotFoundError."""
    found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of ten thousand in a row, a Path costs more than this
    return f"{found.st_mtime_ns}:{found.st_ino}"


class Archive:
    """The folder `archive/` in the ledger folder. Blocking. Hold the issue's lock to change files."""

    def __init__(self, ledgers: Path, numbers: Numbers, mode: int = 0o700) -> None:
        self.folder = ledgers / ARCHIVE
        self._mode = mode
        self.listing = Folder(self.folder, numbers, archived=True)

    def path(self, issue: int) -> Path:
        """The usual place of an archived ledger, from which it is restored."""
        return self.folder / f"issue-{issue}.json"

    def files(self) -> Iterator[tuple[int, Path]]:
        """Every archived file with its issue; an issue has several if other programs started it anew."""
        try:
            yield from self.listing.ledgers()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("cannot read the archive %s: %s", self.folder, error.strerror)

    def read(self, issue: int) -> Raw | None:
        """An archived ledger; None if there is none that parses.

        Raises:
            OSError: it exists and cannot be read.
        """
        try:
            return decode(read_regular(self.path(issue)), issue)
        except FileNotFoundError:
            return None
        except ValueError:
            return None  # it stays for people to look into; the numbering continues from the recorded one

    def put(self, issue: int, live: Path, raw: Raw) -> Path:
        """Move the ledger `live`, which contains `raw`, here. Keeps what is already here of the same issue.

        Raises:
            OSError: the disk refused; the file is in its old place, or in both.
        """
        make_folder(self.folder, self._mode)
        target = self.path(issue)
        if target.exists() and not _holds(raw, self.read(issue)):
            target = self._beside(issue)
        if not target.exists():
            os.link(live, target)
            sync(self.folder)
        if target.samefile(live):
            live.unlink()  # renaming a hard link to itself does nothing
        else:
            live.replace(target)  # replaces an earlier state of it, left by a kill
        sync(live.parent)
        return target

    def drop(self, issue: int, live: Raw) -> None:
        """Remove an archived ledger whose records are all in the live file (`live`). If the disk refuses it stays: the live
        one counts.
        """
        try:
            if _holds(live, self.read(issue)):
                self.path(issue).unlink(missing_ok=True)
        except OSError as error:
            _log.warning(
                "%s was restored but stays in the archive: %s", self.path(issue).name, error.strerror
            )

    def _beside(self, issue: int) -> Path:
        number = 2
        while (path := self.folder / f"issue-{issue}.{number}.json").exists():
            number += 1
        return path


def _holds(raw: Raw, other: Raw | None) -> bool:
    """Whether every record of `other` is in `raw`, by id and creation time, as ids may have been reused."""
    return other is not None and _names(other) <= _names(raw)


def _names(raw: Raw) -> set[tuple[str, str]]:
    return {
        (identity(item), str(item.get("created")) if isinstance(item, dict) else "")
        for item in raw["clarifications"]
    }


class Ignored(NamedTuple):
    """A file that has a ledger's name but is not one, and why."""

    path: Path
    why: str


class Folder:
    """A folder of ledger files, live or archived; archived names may carry a suffix."""

    def __init__(self, path: Path, numbers: Numbers, *, archived: bool = False) -> None:
        self.path = path
        self._numbers = numbers
        self._names = _ARCHIVED.fullmatch if archived else _LIVE.fullmatch
        self._logged: set[str] = set()

    def ledgers(self) -> Iterator[tuple[int, Path]]:
        """Each ledger with its issue. Logs each ignored file once.

        Raises:
            OSError: the folder cannot be read.
        """
        for name, found in self._looked_at():
            if isinstance(found, Ignored):
                self._log_ignored(found)
            else:
                yield found, self.path / name

    def ignored(self) -> list[Ignored]:
        """Files that are named like a ledger but are ignored.

        Raises:
            OSError: the folder cannot be read.
        """
        return sorted(found for _, found in self._looked_at() if isinstance(found, Ignored))

    def issue_of(self, name: str) -> int | None:
        """The issue of a ledger by its file name, even if it is gone; None if it is not a ledger."""
        match = self._names(name)
        if match is None:
            return None
        found = self._judged(match, is_file=not is_odd(self.path / name))
        if isinstance(found, Ignored):
            self._log_ignored(found)
            return None
        return found

    def _looked_at(self) -> Iterator[tuple[str, int | Ignored]]:
        """Yields the entries that are named like a ledger, each with its issue or why it is ignored."""
        with os.scandir(self.path) as found:
            entries = list(found)  # the caller may stop half way
        for entry in entries:
            if match := self._names(entry.name):
                yield entry.name, self._judged(match, is_file=entry.is_file(follow_symlinks=False))

    def _judged(self, match: re.Match[str], *, is_file: bool) -> int | Ignored:
        """The issue of a ledger with this name, or why it is ignored."""
        digits = match[1]
        if not is_file:
            why = f"it is {NOT_REGULAR}"
        elif digits.startswith("0"):
            why = "issues are numbered from 1, without leading zeros"
        elif len(digits) > len(str(HIGHEST)):
            why = f"its number is higher than {HIGHEST}"
        else:
            issue = int(digits)
            if issue < FIRST_RESERVED or self._numbers.is_given_out(issue):
                return issue
            why = _NOT_OURS
        return Ignored(self.path / match.string, why)

    def _log_ignored(self, ignored: Ignored) -> None:
        name = ignored.path.name
        if name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            _log.warning("%s is ignored: %s", ignored.path, ignored.why)


class Numbers:
    """Remembers in the private `folder` which numbers were given out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._given_out: set[int] = set()

    def path(self, issue: int) -> Path:
        return self._folder / f"issue-{issue}.seq"

    def is_given_out(self, issue: int) -> bool:
        """Whether we ever wrote a ledger of that issue."""
        if issue not in self._given_out and self.path(issue).exists():
            self._given_out.add(issue)
        return issue in self._given_out

    def give_out(self, issue: int) -> None:
        """Record that the ledger of an issue is ours, before it is created.

        Raises:
            OSError: the disk refused.
        """
        os.close(os.open(self.path(issue), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._given_out.add(issue)


_NAME = 60  # characters of an id that are shown


def _placed(model: type[Record], *path: str) -> dict[str, tuple[str, ...]]:
    """Returns where a round has each field of one of its parts, by both of its names."""
    fields = model.model_fields.items()
    return {name: path for field, info in fields for name in (field, info.alias or field)}


_NESTED = frozenset({*PARTS, "wanted"})
_PATHS = {name: path for part, model in PARTS.items() for name, path in _placed(model, part).items()}
_PATHS |= _placed(Confirmation, "question", "wanted")
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


class Stray(Raw):
    """An object in a ledger that is not one of its records: its id belongs to another issue, or is used twice. `field`:
    the wrong field. The object stays unchanged.
    """

    def __init__(self, item: Raw, field: str = "id") -> None:
        super().__init__(item)
        self.field = field


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """An invalid record. `name`: its id, or its position in the file if it has none; `fields`: the invalid ones;
    `is_over`: its own status says that it is finished.
    """

    issue: int
    name: str
    fields: tuple[str, ...]
    agent_id: str | None
    is_over: bool


def decode(content: bytes, issue: int | None = None) -> Raw:
    """Decodes a ledger. With `issue`, marks objects that are not its records (see `Stray`).

    Raises:
        ValueError: not a ledger; the message says why, without content.
    """
    raw, is_halved = read_json(content)
    if not isinstance(raw, dict) or not isinstance(raw.get("clarifications"), list):
        raise ValueError('expected an object with a list "clarifications"')  # noqa: TRY004 - one error for "no ledger"
    if issue is not None:
        raw["clarifications"] = list(_marked(issue, raw["clarifications"], is_halved=is_halved))
    return raw


def _marked(issue: int, items: list[Any], *, is_halved: bool) -> Iterator[Any]:
    """Yields the items with strays marked. If several have the same id, the first one counts, as in every lookup."""
    taken: set[str] = set()
    for item in items:
        match = ID.fullmatch(name) if (name := identity(item)) else None
        if match is None:
            yield item
        elif int(match[1]) != issue or name in taken:
            yield Stray(item)
        elif item.get("issueNumber", item.get("issue_number", issue)) not in (issue, str(issue)):
            yield Stray(item, "issueNumber")
        else:
            yield Halved(item) if is_halved else item
        taken.add(name)


def encode(raw: Raw) -> bytes:
    """Returns the contents of a ledger file."""
    try:
        return to_json(raw, indent=2)  # the same output as json, many times faster with an indent
    except ValueError:
        # See `core.records.packed`.
        return json.dumps(raw, indent=2).encode()


def as_item(raw: Raw) -> Raw:
    """Returns the JSON of a record as a ledger holds it."""
    item = {name: each for name, each in raw.items() if name != "rounds"}
    if rounds := raw.get("rounds"):
        *earlier, current = map(_flat, rounds)
        item["aaep"] = {**current, "earlier": earlier}
    return Halved(item) if isinstance(raw, Halved) else item


def as_raw(item: Raw) -> Raw:
    """Returns an item of a ledger as our record's JSON. A broken earlier round counts as empty."""
    raw = {name: each for name, each in item.items() if name not in {"aaep", "rounds"}}
    asked = item.get("aaep")
    if isinstance(asked, dict):
        current = {name: each for name, each in asked.items() if name != "earlier"}
        past = asked.get("earlier")
        raw["rounds"] = [*map(_past, past if isinstance(past, list) else []), _in_parts(current)]
    elif asked is not None:
        raw["rounds"] = None  # it is no record then
    return Halved(raw) if isinstance(item, Halved) else raw


def _flat(asked: Raw) -> Raw:
    """Returns a round's JSON without its parts: the names of their fields are unique."""
    own: Raw = {name: each for name, each in asked.items() if name not in PARTS}
    for part in PARTS:
        own |= asked.get(part, {})
    own |= own.pop("wanted", {})
    return own


def _in_parts(asked: Raw) -> Raw:
    found: Raw = {}
    for name, each in asked.items():
        if name in _NESTED:  # another program's field: a flat round has no parts
            continue
        place = found
        for part in _PATHS.get(name, ()):
            place = place.setdefault(part, {})
        place[name] = each
    return found


def _past(asked: object) -> object:
    past = _in_parts(asked) if isinstance(asked, dict) else asked
    try:
        Round.model_validate(past)
    except ValidationError:
        return {"question": {"kinds": []}}
    return past


def read_item(item: object) -> Clarification | None:
    """Returns the record of an item of a ledger; None: it is none."""
    return parse(as_raw(item)) if isinstance(item, dict) else None


def blanked(item: object) -> Raw:
    """Returns an item of a ledger without its contents; unchanged if it has none (`core.records.forgotten`)."""
    raw = as_raw(item) if isinstance(item, dict) else {}
    gone = forgotten(raw)
    return as_item(gone) if gone != raw or not isinstance(item, dict) else item


def identity(item: object) -> str:
    """Returns the id of an item, as written; empty: it has none."""
    return str(item.get("id")) if isinstance(item, dict) else ""


def why_invalid(issue: int, position: int, item: object) -> InvalidRecord | None:
    """Returns why an item of a ledger (`position` from 1) is not a record, without its contents, or None if it is one."""
    fields = {item.field} if isinstance(item, Stray) else set()
    try:
        Clarification.model_validate(as_raw(item) if isinstance(item, dict) else item)
    except ValidationError as error:
        fields |= {_field(problem["loc"]) for problem in error.errors()}
    if not fields:
        return None
    raw: Raw = item if isinstance(item, dict) else {}
    named, agent = raw.get("id"), raw.get("from")
    name = named[:_NAME] if isinstance(named, str) and named.strip() else f"record {position}"
    return InvalidRecord(
        issue,
        f"{name} (record {position})" if isinstance(item, Stray) else name,
        tuple(sorted(fields)),
        agent if isinstance(agent, str) else None,
        raw.get("status") in list(DONE),
    )


def _field(path: tuple[int | str, ...]) -> str:
    """Returns the path of an invalid field, without unusual keys: they may be contents."""
    if path[:1] == ("rounds",):
        path = ("aaep", *(part for part in path[2:] if part not in _NESTED))
    known = [str(part) for part in path if isinstance(part, int) or _FIELD.fullmatch(part)]
    return ".".join(known[:3]) or "record"
