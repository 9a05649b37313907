"""Node with the packages of package-lock.json, for the Node snippets of docs/, MCP's conformance suite and clients/clarify.ts.

`python -m tests.kit.node [FOLDER]` installs them, and those of another folder's package-lock.json. Where the machine's Node is
too old for them, npm brings a newer one. Where there is no npm, tests that need it are skipped.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
HOW_TO = "no npm: install the packages nodejs and npm"
_OLDEST, _NEWER = (22, 18), "node@22"  # the first that runs TypeScript as it is; what npm brings instead
_MODULES = FOLDER / "node_modules"


def installed(folder: Path = FOLDER) -> Path:
    """Returns the program, with the packages beside this file and those of `folder`. Installs what is missing, one process at a
    time.

    Raises:
        FileNotFoundError: there is no npm. CalledProcessError: npm cannot install them.
    """
    if shutil.which("npm") is None:
        raise FileNotFoundError(HOW_TO)
    for each in {FOLDER, folder}:
        with (each / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = each / "node_modules/installed"
            if not done.exists() or done.read_bytes() != (each / "package-lock.json").read_bytes():
                _npm(each, "ci")
                if each == FOLDER and not _is_new_enough(shutil.which("node")):
                    _npm(each, "install", "--no-save", _NEWER)
                shutil.copy(each / "package-lock.json", done)
    own = _MODULES / ".bin/node"
    return own if own.exists() else Path(shutil.which("node") or "node")


def _npm(folder: Path, *words: str) -> None:
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    subprocess.run(["npm", *words, *quiet], cwd=folder, check=True, capture_output=True, text=True)


def _is_new_enough(node: str | None) -> bool:
    if node is None:
        return False
    said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    return tuple(map(int, said.strip().removeprefix("v").split(".")[:2])) >= _OLDEST
