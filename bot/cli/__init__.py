# ruff: noqa: PLC0415 - imports only what the command needs
"""The `clarify` command.

Coding agents start `clarify hook` before each of their steps, and `clarify mcp` with each session, so these two run without
importing typer and the other commands' modules.
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
