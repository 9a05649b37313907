# ruff: noqa: T201 - it shows people what it changes
"""`clarify mcp`: the tools for an agent that starts it (see `bot.cli.stdio`); with `--install`, what its configuration needs.

What stands in its files is kept. Secrets are not written: the token comes from CLARIFY_TOKEN in the agent's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAME = "clarify"
FOLDERS = {"claude-code": (".claude", "CLAUDE_CONFIG_DIR"), "codex": (".codex", "CODEX_HOME")}
_VARIABLES = ("CLARIFY_URL", "CLARIFY_TOKEN", "CLARIFY_PRODUCER")
_LONGEST_CALL = 120  # seconds: a call takes 60 at most


def main(words: Sequence[str]) -> int:
    """Run `clarify mcp`; returns the exit code: 0 fine, 1 trouble, 2 usage."""
    arguments = _parser().parse_args(words)
    if arguments.write and arguments.install is None:
        print("clarify mcp: --write works only with --install", file=sys.stderr)
        return 2
    try:
        if arguments.install is not None:
            return _install(parts(arguments.install, arguments.url), write=arguments.write)

        from bot.cli.stdio import serve  # noqa: PLC0415 - the SDK, which takes most of a second

        serve(arguments.url)
    except ValueError as error:
        print(f"clarify mcp: {error}", file=sys.stderr)
        return 2
    return 0


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


def _install(needed: Sequence[Part], *, write: bool) -> int:
    troubles = 0
    for part in needed:
        if not write:
            print(f"{part.path}:\n{part.needed}")
            continue
        try:
            print(f"Wrote {part.path}." if part.write() else f"{part.path} is up to date.")
        except CannotMerge as error:
            troubles += 1
            print(
                f"clarify mcp: {error}; nothing was written. Add this by hand:\n{part.needed}",
                file=sys.stderr,
            )
    return 1 if troubles else 0


class CannotMerge(Exception):
    """A file cannot be merged; the message says which and why. Nothing was written to it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One file: what it needs, as it is written there, and how that is merged into its text."""

    path: Path
    needed: str
    merged: Callable[[str], str]

    def write(self) -> bool:
        """Merge it into the file, which is replaced as a whole; whether that changed anything.

        Raises:
            CannotMerge: the file cannot be read, understood or written.
        """
        try:
            before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            after = self.merged(before)
            if after == before:
                return False
            _replace(self.path.resolve(), after)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotMerge(f"{self.path}: {why}") from error
        return True


def claude_code(url: str | None, folder: Path) -> list[Part]:
    """For Claude Code in a project's folder: the server, and the rule that lets it call the tools unasked."""
    server = {"type": "stdio"} | _command(url)
    rules = {"permissions": {"allow": [f"mcp__{NAME}"]}, "enabledMcpjsonServers": [NAME]}
    return [
        _json_part(folder / ".mcp.json", {"mcpServers": {NAME: server}}),
        _json_part(folder / ".claude" / "settings.json", rules),
    ]


def codex(url: str | None, home: Path) -> list[Part]:
    """For Codex, in its home folder: the server, whose tools it may call unasked."""
    table = _command(url) | {
        "env_vars": list(_VARIABLES),
        "tool_timeout_sec": _LONGEST_CALL,
        "default_tools_approval_mode": "approve",
    }
    return [Part(home / "config.toml", _toml(table), lambda text: _with_table(text, table))]


def home_of(client: str) -> Path:
    """The folder in which a coding agent keeps its user's settings; its own variable moves that."""
    name, variable = FOLDERS[client]
    return Path(os.environ.get(variable) or Path.home() / name)


def parts(client: str, url: str | None) -> list[Part]:
    """What `claude-code` (in this folder) or `codex` needs."""
    if client == "claude-code":
        return claude_code(url, Path.cwd())
    return codex(url, home_of("codex"))


def _command(url: str | None) -> dict[str, Any]:
    """The command that the agent runs: by its name where that finds this very program."""
    program = Path(sys.argv[0]).absolute()
    found = shutil.which(NAME)
    words = ["mcp"] + (["--url", url] if url else [])
    if program.name == "__main__.py":
        return {"command": sys.executable, "args": ["-m", "bot.cli", *words]}
    is_known = found is not None and Path(found).resolve() == program.resolve()
    return {"command": NAME if is_known else str(program), "args": words}


def _json_part(path: Path, wanted: Mapping[str, Any]) -> Part:
    def merged(text: str) -> str:
        there = json.loads(text) if text.strip() else {}
        if not isinstance(there, dict):
            raise ValueError("the file must be a JSON object")  # noqa: TRY004 - of the file
        together = _together(there, wanted)
        return text if together == there else _json(together)

    return Part(path, _json(wanted), merged)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _together(there: Any, wanted: Any, place: str = "") -> Any:
    """What is there with what is wanted; our own server is replaced, lists grow."""
    if place == f".mcpServers.{NAME}":
        return {**(there if isinstance(there, dict) else {}), **wanted}
    if isinstance(wanted, Mapping):
        if not isinstance(there, dict):
            raise ValueError(f"{place} must be an object")  # noqa: TRY004
        grown = dict(there)
        for name, value in wanted.items():
            empty: Any = [] if isinstance(value, list) else {}
            grown[name] = _together(there.get(name, empty), value, f"{place}.{name}")
        return grown
    if not isinstance(there, list):
        raise ValueError(f"{place} must be a list")  # noqa: TRY004
    return there + [each for each in wanted if each not in there]


def _toml(table: Mapping[str, Any]) -> str:
    lines = [f"[mcp_servers.{NAME}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


_HEADER = re.compile(r"^[ \t]*\[+[^\]\n]*\]+[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_OURS = re.compile(rf"""[ \t]*\[\s*mcp_servers\s*\.\s*(?:{NAME}|"{NAME}"|'{NAME}')\s*\][^\n]*""")


def _with_table(text: str, table: Mapping[str, Any]) -> str:
    """The file with our table: appended, or in place of the one that is there, whose other keys stay.

    Raises:
        ValueError: it is no TOML, or our server stands in it in a way that cannot be replaced.
    """
    before = tomllib.loads(text)
    servers = before.get("mcp_servers", {})
    there: dict[str, Any] = servers.get(NAME, {})
    together = {**there, **table}
    if together == there:
        return text
    if there:
        after = _replaced(text, _toml({k: v for k, v in together.items() if not isinstance(v, dict)}))
    else:
        after = (
            text + ("" if not text or text.endswith("\n") else "\n") + ("\n" if text else "") + _toml(table)
        )
    expected = {**before, "mcp_servers": {**servers, NAME: together}}
    if tomllib.loads(after) != expected:
        raise ValueError(f"mcp_servers.{NAME} cannot be merged")
    return after


def _replaced(text: str, section: str) -> str:
    headers = list(_HEADER.finditer(text))
    for place, header in enumerate(headers):
        if _OURS.fullmatch(header[0]):
            end = headers[place + 1].start() if place + 1 < len(headers) else len(text)
            return text[: header.start()] + section + ("\n" if end < len(text) else "") + text[end:]
    return text


def _replace(path: Path, text: str) -> None:
    """Write a file so that it is there as it was, or as it shall be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).chmod(mode)
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
