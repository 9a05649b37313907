from __future__ import annotations

import subprocess

from tests.kit.coding_agents import FOLDER
from tests.kit.node import packages

try:
    print(packages(FOLDER))  # noqa: T201 - what CI is told
except subprocess.CalledProcessError as error:
    raise SystemExit(error.stderr) from None
