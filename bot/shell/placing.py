"""A file that a command was asked to write: there whole when the command ends well, else as it was before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from bot.errors import ClarifyBotError
from core.files import reason


@contextmanager
def placed(path: Path) -> Iterator[BinaryIO]:
    """Write what shall stand at `path`; it takes its place when the block ends well. Blocking.

    A new file is for whoever asked alone. The mode of a file that is there stays, and so does a link to it. What is no file (a device, a pipe) is written to.

    Raises:
        ClarifyBotError: the disk refused.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
        else:
            yield from _replaced(path.resolve())
    except OSError as error:
        raise ClarifyBotError(f"{path} cannot be written: {reason(error)}.") from error


def _replaced(path: Path) -> Iterator[BinaryIO]:
    draft = path.with_name(f".{path.name[:200]}.{uuid4().hex}")
    try:
        with os.fdopen(
            os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb"
        ) as file:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
