# ruff: noqa: PLC0415 - imports only what the command needs
"""The `clarify` command.

Coding agents start `clarify hook` before each of their steps, and `clarify mcp` with each session, so these two run without
importing typer and the other commands' modules: they are in `clarify.py`, which also runs where the bot is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.cli.running`."""
    if sys.argv[1:2] == ["hook"]:
        sys.exit(hook(sys.argv[2:]))
    if sys.argv[1:2] in (["ask"], ["approve"]):
        import clarify

        sys.exit(clarify.main())
    if sys.argv[1:2] == ["mcp"]:
        from bot.cli import mcp

        sys.exit(mcp.main(sys.argv[2:]))
    from bot.cli.app import main as others

    others()


def hook(words: Sequence[str]) -> int:
    """Run `clarify hook`. Returns the exit code."""
    if "--install" in words:
        from bot.cli import install

        return install.hook(words)
    import clarify

    return clarify.main(["hook", *words])
