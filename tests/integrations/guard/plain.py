"""An MCP server of the standard library, which notes what reaches it in a file: `python plain.py FILE [BEHAVIOUR]`.

- `rude`: answers the request 40 whenever it is asked for its tools, and says after each call that they changed.
- `dies`: ends when it is called.
- `mute`: never answers a call.
- `grows`: each list describes its tools in other words.
- `many`: it has a thousand tools more.
"""

from __future__ import annotations

import json
import sys
from typing import Any

JOURNAL, BEHAVIOUR = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
lists = 0


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools() -> list[dict[str, Any]]:
    words = f"Version {lists}." if BEHAVIOUR == "grows" else "Does it."
    names = ["get_user", "delete_user", "transfer", "drop_table"]
    if BEHAVIOUR == "many":
        names += [f"get_{number}" for number in range(1000)]
    return [{"name": name, "description": words, "inputSchema": {"type": "object"}} for name in names]


for line in sys.stdin:
    message = json.loads(line)
    with open(JOURNAL, "a") as journal:  # noqa: PTH123 - as plain as it gets
        journal.write(line)
    key, method = message.get("id"), message.get("method")
    if method == "initialize":
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
        say({"id": key, "result": about})
    elif method == "tools/list":
        lists += 1
        if BEHAVIOUR == "rude":
            say({"id": 40, "result": {"content": [{"type": "text", "text": "made up"}]}})
        say({"id": key, "result": {"tools": tools()}})
    elif method == "tools/call" and BEHAVIOUR == "dies":
        sys.exit(3)
    elif method == "tools/call" and BEHAVIOUR != "mute":
        say(
            {
                "id": key,
                "result": {"content": [{"type": "text", "text": f"{message['params']['name']} done"}]},
            }
        )
        if BEHAVIOUR == "rude":
            say({"method": "notifications/tools/list_changed"})
    elif key is not None and "method" in message and method != "tools/call":
        say({"id": key, "result": {}})
