from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.node import installed, packages

try:
    print(installed(), *map(packages, map(Path, sys.argv[1:])))  # noqa: T201 - what CI is told
except subprocess.CalledProcessError as error:
    raise SystemExit(error.stderr) from None
