"""Node with the packages of package-lock.json, for the Node snippets of docs/, MCP's conformance suite and clients/clarify.ts.

`python3 -m tests.kit.node [FOLDER]` installs them, and those of another folder's package-lock.json; it needs nothing installed.
Where the machine's Node is too old for them, npm brings a newer one. Where there is no npm, tests that need it are skipped.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent
HOW_TO = "no npm: install the packages nodejs and npm"
_OLDEST, _NEWER = (22, 18), "node@22"  # the first that runs TypeScript as it is; what npm brings instead


def installed() -> Path:
    """Returns the program, with the packages beside this file. Installs what is missing.

    Raises:
        FileNotFoundError, CalledProcessError: see `packages`.
    """
    theirs = shutil.which("node")
    own = packages(FOLDER, *([] if _is_new_enough(theirs) else [_NEWER])) / ".bin/node"
    return own if own.exists() else Path(theirs or "node")


def packages(folder: Path, *more: str) -> Path:
    """Returns the packages of a folder's package-lock.json, and `more`. Installs what is missing, one process at a time.

    Raises:
        FileNotFoundError: there is no npm. CalledProcessError: npm cannot install them.
    """
    if shutil.which("npm") is None:
        raise FileNotFoundError(HOW_TO)
    with _alone(folder):
        if not _are_installed(folder):
            _npm(folder, "ci")
            if more:
                _npm(
                    folder, "install", "--no-save", *more
                )  # it removes what it does not know: also the mark below
            shutil.copy(folder / "package-lock.json", folder / "node_modules/installed")
    return folder / "node_modules"


def are_installed(folder: Path) -> bool:
    """Returns whether the packages of a folder's package-lock.json are there. Waits for a process that installs them."""
    with _alone(folder):
        return _are_installed(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _are_installed(folder: Path) -> bool:
    done = folder / "node_modules/installed"
    return done.exists() and done.read_bytes() == (folder / "package-lock.json").read_bytes()


def _npm(folder: Path, *words: str) -> None:
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(["npm", *words, *quiet], cwd=folder, check=True, capture_output=True, text=True)


def _is_new_enough(node: str | None) -> bool:
    if node is None:
        return False
    said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, said.strip().removeprefix("v").split(".")[:2])) >= _OLDEST
