from __future__ import annotations

import subprocess

from tests.kit.node import installed

try:
    print(installed())  # noqa: T201 - what CI is told
except subprocess.CalledProcessError as error:
    raise SystemExit(error.stderr) from None
