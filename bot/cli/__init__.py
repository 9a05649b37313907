# ruff: noqa: PLC0415 - imports only what the command needs
"""The `clarify` command.

Coding agents start `clarify hook` before each of their steps, and `clarify mcp` and `guard` with each session, so these run without
importing typer and the other commands' modules: they are in `clarify.py`, which also runs where the bot is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """Run the command. Exit codes: 0 fine, 1 trouble, 2 configuration or usage; others: see `bot.cli.running`."""
    if sys.argv[1:2] in (["ask"], ["approve"], ["hook"], ["mcp"], ["guard"]):
        sys.exit(run_for_agents(sys.argv[1:]))
    from bot.cli.app import main as others

    others()


def run_for_agents(words: Sequence[str]) -> int:
    """Runs a command of `clarify.py`, with its name first; `--install`, and so its `--help`, are here."""
    import clarify

    name, *options = words
    given = {each.partition("=")[0] for each in options}
    if name in {"hook", "mcp"} and given & {"--install", "--dry-run", "-h", "--help"}:
        from bot.cli import install

        return install.run(name, options)
    return clarify.main(words)
