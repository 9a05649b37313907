"""Files that others read and write as well: replaced whole, set aside when they cannot be read. Blocking."""

from __future__ import annotations

import errno
import logging
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

_log = logging.getLogger("clarify.ledger")
NOT_REGULAR = "not a regular file"


def read_regular(path: Path) -> bytes:
    """What a file holds. Others may have put a pipe, a device or a link in its place: that is neither waited for nor
    followed.

    Raises:
        OSError: there is none, it is no regular file, or it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR)
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def is_odd(path: Path) -> bool:
    """Whether something is there that is no regular file."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def replacing(path: Path, content: bytes, drafts: Path, mode: int = 0o600) -> Iterator[Path]:
    """Put `content` in the place of the file, whose mode stays: others may share it by their group. A new one gets
    `mode`, whatever the umask.

    Yields the draft, in the folder `drafts` on the same file system, when it is on the disk; it takes the file's
    place when the block ends. Whoever reads finds the old content or the new, also after a crash.

    Raises:
        OSError: the disk refused; the file is as it was.
    """
    draft = drafts / f"{path.name}.{os.getpid()}.{uuid.uuid4().hex}"
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with suppress(FileNotFoundError):
                mode = stat.S_IMODE(path.stat().st_mode)
            os.fchmod(handle, mode)
            _write(handle, content)
            os.fsync(handle)
        finally:
            os.close(handle)
        yield draft
        draft.replace(path)
        sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _write(handle: int, content: bytes) -> None:
    """All of it: a disk that gets full takes a part first."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def set_aside(path: Path) -> Path | None:
    """Give a file that cannot be read another name; None if that cannot be done."""
    aside = path.with_name(f"{path.name}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    try:
        path.rename(aside)
    except OSError as error:
        _log.error("%s cannot be set aside: %s", path.name, error.strerror)
        return None
    return aside


def reason(error: OSError) -> str:
    """Why the disk refused, in words."""
    return "the disk is full" if error.errno == errno.ENOSPC else error.strerror or type(error).__name__


def try_to_write(folder: Path) -> None:
    """Write and remove a file.

    Raises:
        OSError: the disk refuses.
    """
    trial = folder / f"trial.{os.getpid()}.{uuid.uuid4().hex}"
    handle = os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write(handle, b"trial")
            os.fsync(handle)
        finally:
            os.close(handle)
    finally:
        trial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """What was renamed, linked or removed in it is on the disk when this returns."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
