# ruff: noqa: T201, PLC0415 - it prints usage errors; it imports what the words ask for
"""The commands that agents start: `ask`, `approve`, `hook`, `mcp`. They are in `clarify.py`, but for `--install`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import clarify


def run(words: Sequence[str]) -> int:
    """Run a command, with its name first. Returns the exit code: 0 fine, 1 trouble, 2 usage; others: see `clarify.py`."""
    name, *options = words
    if name == "mcp":
        return _mcp(options)
    if name == "hook" and "--install" in options:
        from bot.cli import install

        return install.hook(options)
    return clarify.main(words)


def _mcp(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    if arguments.write and arguments.install is None:
        print("clarify mcp: --write works only with --install", file=sys.stderr)
        return 2
    if arguments.install is not None:
        from bot.cli import install

        return install.install_tools(arguments.install, arguments.url, write=arguments.write)
    return clarify.main(["mcp", *words])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="clarify mcp",
        description="Serves clarify's MCP tools on standard input and output. Reads the token of the agent's [[producers]] "
        "table from CLARIFY_TOKEN.",
    )
    parser.add_argument("--url", help="the bot's address (default: CLARIFY_URL)")
    parser.add_argument(
        "--install",
        choices=["claude-code", "codex"],
        help="show this client's configuration: for Claude Code in this folder, for Codex in its home folder",
    )
    parser.add_argument("--write", action="store_true", help="with --install: write it to the client's files")
    return parser
