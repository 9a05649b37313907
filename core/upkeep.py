"""What is done to ledger files as files, by hand: rewritten, copied, put back. Blocking, each under its issue's lock.

Nothing is decided here about a clarification: that is `core.router`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from core.archive import Archive
from core.book import Raw, decode, encode
from core.errors import LedgerUnwritable, LockTimeout
from core.files import folder_mode, make_folder, read_regular, reason, replacing, sync_folder
from core.folder import Folder
from core.locks import Held, Locks
from core.numbering import Numbers

PATIENCE = 10.0  # seconds for a ledger that somebody else holds: whoever waits sits at a prompt


class Upkeep:
    """Of the ledgers in `directory`, which exists; to be closed."""

    def __init__(self, directory: Path, patience: float = PATIENCE, mode: int = 0o600) -> None:
        """`mode`: of new ledgers."""
        self.directory = directory
        self._mode = mode
        self._patience = patience
        self._locks = Locks(directory, mode)
        make_folder(directory, folder_mode(mode))
        make_folder(self._locks.private)
        self.numbers = Numbers(self._locks.private)
        self.shelf = Folder(directory, self.numbers)
        self.archive = Archive(directory, self.numbers, folder_mode(mode))

    @property
    def private(self) -> Path:
        """The folder beside the ledgers that is ours alone."""
        return self._locks.private

    def close(self) -> None:
        self._locks.close()

    def files(self) -> dict[int, list[Path]]:
        """All ledgers: by issue, the live file first, then what is archived of it."""
        found: dict[int, list[Path]] = {}
        for issue, path in sorted(self.shelf.ledgers()):
            found.setdefault(issue, []).append(path)
        for issue, path in sorted(self.archive.files()):
            found.setdefault(issue, []).append(path)
        return found

    def claim(self, highest: int) -> None:
        """Take reserved numbers up to `highest` for given out by us."""
        for shelf in (self.shelf, self.archive.shelf):
            shelf.claim(highest)

    def rewrite(self, issue: int, change: Callable[[Raw], bool]) -> list[Path]:
        """Let `change` edit what each file of an issue holds, live and archived; those that it says it did are written.

        Returns:
            The files that cannot be read, and are as they were.

        Raises:
            LockTimeout: somebody else holds the ledger. LedgerUnwritable: the disk refused. Files before it are done.
        """
        unreadable = []
        with self.held(issue) as check:
            for path in self.files().get(issue, []):
                try:
                    raw = decode(read_regular(path), issue)
                except ValueError:
                    unreadable.append(path)
                    continue
                if change(raw):
                    self._write(issue, path, encode(raw), check)
        return unreadable

    def put(self, issue: int, path: Path, content: bytes) -> None:
        """Have a file of an issue, in this folder or its archive, hold `content`.

        Raises:
            LockTimeout, LedgerUnwritable: as `rewrite`.
        """
        with self.held(issue) as check:
            make_folder(path.parent, folder_mode(self._mode))
            self._write(issue, path, content, check)
            self.numbers.note_all(issue, content)

    def move(self, issue: int, path: Path, to: Path) -> None:
        """Move a file of an issue out of the way; `to` is on the same file system."""
        with self.held(issue) as check:
            check()
            make_folder(to.parent)
            path.rename(to)
            sync_folder(path.parent)

    @contextmanager
    def held(self, issue: int) -> Iterator[Callable[[], None]]:
        """Hold a ledger. What is yielded raises LockTimeout once it is not held any more."""
        with self._locks.hold(issue, self._patience) as held:
            yield partial(self._check, issue, held)

    def _check(self, issue: int, held: Held) -> None:
        if not held.is_there():
            raise LockTimeout(issue, self._patience, "somebody who took it over while this process slept")

    def _write(self, issue: int, path: Path, content: bytes, check: Callable[[], None]) -> None:
        try:
            with replacing(path, content, self._locks.private, self._mode):
                check()
        except OSError as error:
            raise LedgerUnwritable(issue, reason(error)) from error
