"""An MCP server that says whatever a file has it say: `python hostile.py JOURNAL FILE`.

The file is read at each message. It holds the lines to write, by the method of what was heard; `$id` stands for its id. While it has
`deaf`, nothing more is read.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

JOURNAL, SAID = map(Path, sys.argv[1:])

for line in sys.stdin:
    message = json.loads(line)
    with JOURNAL.open("a") as journal:
        journal.write(line)
    while "deaf" in json.loads(SAID.read_text()):
        time.sleep(0.01)
    if "id" in message:
        for said in json.loads(SAID.read_text()).get(message.get("method"), []):
            sys.stdout.write(said.replace("$id", json.dumps(message["id"])) + "\n")
        sys.stdout.flush()
