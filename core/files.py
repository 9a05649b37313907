"""Reads and writes files that other programs use too: replaced whole, quarantined if unreadable. Blocking, but for `Changes`."""

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
_BLOCK = 65_536  # bytes
_LARGEST = 64 * 1024**2  # bytes of a file that is read
STEP, DEBOUNCE = 20, 200  # ms: how long a watch collects further changes


def read_regular(path: Path) -> bytes:
    """Returns the content of a file. If others put a pipe, a device or a link in its place, it neither blocks nor follows it.

    Raises:
        OSError: it is missing, not a regular file, larger than 64 MiB, or cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, NOT_REGULAR)
        if state.st_size > _LARGEST:
            raise OSError(errno.EFBIG, f"larger than {_LARGEST // 1024**2} MiB")
        content = os.read(handle, state.st_size + 1)
        while more := os.read(handle, _BLOCK):
            content += more
        return content
    finally:
        os.close(handle)


def is_odd(path: Path) -> bool:
    """Whether `path` exists and is not a regular file."""
    try:
        return not stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def replacing(
    path: Path, content: bytes, drafts: Path, mode: int = 0o600, *, durable: bool = True
) -> Iterator[str]:
    """Replace a file atomically, and if it is to be `durable`, even across a crash. It keeps its mode and group; a new one gets `mode`, whatever the umask,
    and the group of a setgid folder.

    Yields the path of the draft, in the folder `drafts` on the same file system; it replaces the file when the block
    ends.

    Raises:
        OSError: the disk refused; the file is unchanged.
    """
    # Ledgers are written so often that Path objects cost noticeably.
    draft = f"{drafts}/{path.name}.{os.getpid()}.{os.urandom(16).hex()}"
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            _share(handle, path, mode)
            _write(handle, content)
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        yield draft
        os.replace(draft, path)  # noqa: PTH105
        if durable:
            sync(path.parent)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)  # noqa: PTH108
        raise


def _share(handle: int, path: Path, mode: int) -> None:
    """Give a draft the mode and group that the file at `path` has, or will get."""
    group: int | None = None
    try:
        old = path.lstat()
    except FileNotFoundError:
        folder = path.parent.stat()
        group = folder.st_gid if folder.st_mode & stat.S_ISGID else None
    else:
        mode, group = stat.S_IMODE(old.st_mode), old.st_gid
    if group is not None and group != os.fstat(handle).st_gid:
        try:
            os.fchown(handle, -1, group)
        except OSError as error:
            _log.warning("%s: cannot keep its group %d: %s", path, group, error.strerror)
    os.fchmod(handle, mode)


def _write(handle: int, content: bytes) -> None:
    """Write everything: a disk that is nearly full takes only a part at first."""
    left = memoryview(content)
    while left:
        left = left[os.write(handle, left) :]


def folder_mode(mode: int) -> int:
    """The mode of a folder whose files have `mode`: users who may read the files may enter it."""
    return mode | (mode & 0o444) >> 2


def make_folder(path: Path, mode: int = 0o700) -> None:
    """Create a folder and its missing parents with `mode`, regardless of the umask. Existing ones keep theirs.

    Raises:
        OSError: it cannot be created.
    """
    for folder in (*reversed(path.parents), path):
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            if folder.is_dir():
                continue
            raise
        folder.chmod(mode | folder.stat().st_mode & stat.S_ISGID)


def why_not_creatable(path: Path) -> str | None:
    """Returns why `make_folder` or a new file at `path` would fail, or None, without creating anything."""
    above = next(each for each in path.absolute().parents if each.exists())
    if not above.is_dir():
        return f"{above} is not a folder"
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above} is not writable for this user"


def make_private(path: Path) -> None:
    """Make the database at `path` (created if missing) and its side files readable by us alone. SQLite creates later side
    files with the same mode.

    Raises:
        OSError: it cannot be created.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            if each.stat().st_mode & 0o077:
                each.chmod(0o600)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            _log.warning("%s belongs to another user, and others can read it: %s", each, error.strerror)


def quarantine(path: Path) -> Path | None:
    """Rename a file that cannot be parsed, and return its new path; None if it cannot be renamed."""
    quarantined = path.with_name(f"{path.name}.unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S%f}")
    try:
        path.rename(quarantined)
    except OSError as error:
        _log.error("cannot quarantine %s: %s", path.name, error.strerror)
        return None
    return quarantined


def reason(error: OSError) -> str:
    """Returns the reason for a disk error in words."""
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


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
