# ruff: noqa: PLC0415 - imports only what the command needs
"""Runs the commands that agents start: those of `clarify.py`, and their `--install`."""

from __future__ import annotations

from collections.abc import Sequence


def run(words: Sequence[str]) -> int:
    """Runs a command of `clarify.py`, with its name first; `--install`, and so its `--help`, are here."""
    import clarify

    name, *options = words
    given = {each.partition("=")[0] for each in options}
    if name in {"hook", "mcp"} and given & {"--install", "--dry-run", "-h", "--help"}:
        from bot.cli import install

        return install.run(name, options)
    return clarify.main(words)
