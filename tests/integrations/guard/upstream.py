"""An MCP server made with the official SDK, that notes each call in a file: `python upstream.py FILE`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

JOURNAL = Path(sys.argv[1])
server = MCPServer("prod")


def note(tool: str, **arguments: Any) -> str:
    with JOURNAL.open("a") as journal:
        journal.write(json.dumps([tool, arguments]) + "\n")
    return f"{tool} done"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def get_user(name: str) -> str:
    """Reads a user."""
    return note("get_user", name=name)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def delete_user(name: str, purge: bool = False) -> str:
    """Deletes a user for good."""
    return note("delete_user", name=name, purge=purge)


@server.tool()
def transfer(amount: int, to: str) -> str:
    """Moves money."""
    return note("transfer", amount=amount, to=to)


@server.tool()
def delete_slowly(name: str) -> str:
    """Deletes a user, and takes its time."""
    note("delete_slowly", name=name)
    time.sleep(300)
    return "done"


@server.tool()
def drop_table(name: str) -> str:
    """Drops a table."""
    return note("drop_table", name=name)


if __name__ == "__main__":
    server.run()
