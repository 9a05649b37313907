# ruff: noqa: PLC0415 - which command is wanted decides what is imported
"""The `clarify` command.

`clarify hook` is started by coding agents before each of their steps, `clarify mcp` with each of their sessions: they are
there before typer, and what the other commands need, would be imported.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.cli.running`."""
    if sys.argv[1:2] == ["hook"]:
        from bot.cli import hook

        sys.exit(hook.main(sys.argv[2:]))
    if sys.argv[1:2] == ["mcp"]:
        from bot.cli import mcp

        sys.exit(mcp.main(sys.argv[2:]))
    from bot.cli.app import main as others

    others()
