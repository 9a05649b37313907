# ruff: noqa: PLC0415 - imports only what the command needs
"""The `clarify` command.

Coding agents start `clarify hook` before each of their steps, and `clarify mcp` and `guard` with each session, so these run without
importing typer and the other commands' modules: they are in `clarify.py`, which also runs where the bot is not installed.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.cli.running`."""
    if sys.argv[1:2] in (["ask"], ["approve"], ["hook"], ["mcp"], ["guard"]):
        from bot.cli import agents

        sys.exit(agents.run(sys.argv[1:]))
    from bot.cli.app import main as others

    others()
