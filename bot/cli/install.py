# ruff: noqa: T201 - it shows people what it changes
"""`clarify hook AGENT --install` and `clarify mcp --install AGENT`: merges our settings into a coding agent's own files. Also what
the shell completes of the commands that agents start.

It writes no secrets: the token comes from CLARIFY_TOKEN in the agent's environment.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clarify
from core.files import replacing

_NAME = "clarify"
_FOLDERS = {
    "claude-code": (".claude", "CLAUDE_CONFIG_DIR"),
    "codex": (".codex", "CODEX_HOME"),
    "copilot": (".copilot", "COPILOT_HOME"),
}
_VARIABLES = ("CLARIFY_URL", "CLARIFY_TOKEN", "CLARIFY_PRODUCER")
_LONGEST_CALL = 120  # seconds: a call takes 60 at most
_HOOKS = {"claude-code": "settings.json", "codex": "hooks.json", "copilot": "hooks/clarify.json"}
_AFTERWARDS = {
    "claude-code": ("PostToolUse", "PostToolUseFailure", "ElicitationResult", "SessionEnd"),
    "codex": ("PostToolUse", "Stop"),
    "copilot": ("SessionEnd",),  # its hook after a tool does not show the input that people saw
}
_NOT_RUN = "clarify hook could not run, so this call is denied. Fix the error above, if any. clarify needs Python 3.11 or newer."
_QUICK = 10  # seconds for hooks that only withdraw questions
_TRUST = "Codex runs only trusted hooks: start codex, enter /hooks, and trust this one."
_SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_HEADER = re.compile(r"^[ \t]*\[[^\]\n]*\]+[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_OURS = re.compile(rf"""[ \t]*\[\s*mcp_servers\s*\.\s*(?:{_NAME}|"{_NAME}"|'{_NAME}')\s*\][^\n]*""")


class CannotMerge(Exception):
    """A file cannot be merged and is unchanged; the message says which and why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One file, and a function that merges what it needs into its text (raises ValueError)."""

    path: Path
    merged: Callable[[str], str]

    def merge(self, *, write: bool) -> tuple[str, str]:
        """Merges what is needed into the file, and replaces the file as a whole; returns its text before and after.

        Raises:
            CannotMerge: the file cannot be read, understood or written.
        """
        try:
            before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            after = self.merged(before)
            if write and after != before:
                path = self.path.resolve()
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, after.encode(), path.parent, 0o644):
                    pass
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise CannotMerge(f"{self.path}: {why}") from error
        return before, after


def run(name: str, words: Sequence[str]) -> int:
    """Runs `clarify hook` or `clarify mcp` with `--install` or `--help`. Returns the exit code: 0 installed, 2 not."""
    parser = hook_parser() if name == "hook" else mcp_parser()
    arguments = parser.parse_args(words)
    if not arguments.install:
        parser.error("--dry-run works only with --install")
    if name == "hook":
        _check_hook(parser, arguments)
        parts = [_hooks(arguments)]
    else:
        parts = _claude_code(arguments.url) if arguments.install == "claude-code" else _codex(arguments.url)
    troubles = [why for part in parts if (why := _put(part, write=not arguments.dry_run))]
    for why in troubles:
        print(f"clarify {name}: {why}", file=sys.stderr)
    if name == "hook" and arguments.agent == "codex" and not troubles:
        print(_TRUST)
    return 2 if troubles else 0


def _put(part: _Part, *, write: bool) -> str | None:
    """Writes one file, or only shows the change, and says so. Returns why it cannot."""
    try:
        before, after = part.merge(write=write)
    except CannotMerge as error:
        return f"{error}; the file was not changed. Add this by hand:\n{part.merged('')}"
    if before == after:
        print(f"{part.path} is up to date.")
        return None
    name = str(part.path)
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="")
    print("\n".join([f"{'Wrote' if write else 'Would write'} {name}:", *changes]))
    return None


def hook_parser() -> argparse.ArgumentParser:
    """Returns the parser of `clarify hook`, with the options of `--install`."""
    parser = clarify.hook_parser()
    group = parser.add_argument_group("to install the hook")
    add = group.add_argument
    add(
        "--install",
        action="store_true",
        help="add the hook to the agent's settings, and show what was written",
    )
    add("--dry-run", action="store_true", help="show what would be written, and write nothing")
    add("--project", action="store_true", help="use this folder's settings instead of yours")
    add("--tools", metavar="MATCHER", help="ask before these tools, in every permission mode")
    return parser


def mcp_parser() -> argparse.ArgumentParser:
    """Returns the parser of `clarify mcp`, with the options of `--install`."""
    parser = clarify.mcp_parser()
    add = parser.add_argument_group("to install the server").add_argument
    where = "add the server to the agent's settings (Claude Code: in this folder), let the agent call its tools, and show what was written"
    add("--install", choices=["claude-code", "codex"], help=where)
    add("--dry-run", action="store_true", help="show what would be written, and write nothing")
    return parser


PARSERS = {
    "ask": lambda: clarify.shell_parser("ask"),
    "approve": lambda: clarify.shell_parser("approve"),
    "hook": hook_parser,
    "mcp": mcp_parser,
    "guard": clarify.guard_parser,
}


def completions(command: str, words: Sequence[str], incomplete: str) -> list[tuple[str, str]]:
    """Returns what may follow `words` of a command of argparse's: options, or the choices of an option or argument."""
    actions = PARSERS[command]()._actions  # noqa: SLF001 - argparse has no other list of them
    by_option = {option: each for each in actions for option in each.option_strings}
    before = by_option.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        found = [(str(each), "") for each in before.choices or ()]
    elif incomplete.startswith("-"):
        found = [(option, each.help or "") for option, each in by_option.items() if option.startswith("--")]
    else:
        found = [(str(each), "") for one in actions if not one.option_strings for each in one.choices or ()]
    return [(value, about) for value, about in found if value.startswith(incomplete)]


def _check_hook(parser: argparse.ArgumentParser, arguments: Any) -> None:
    if not _SERVER_NAME.fullmatch(arguments.server_name):
        parser.error(f"argument --server-name: invalid value: {arguments.server_name!r}")
    if arguments.defer and not (arguments.tools and arguments.agent == "claude-code"):
        parser.error("--defer works only for claude-code, with --tools")
    if arguments.tools and arguments.agent == "copilot":
        parser.error("--tools: Copilot CLI asks before its own rules anyway")


def _hooks(arguments: Any) -> _Part:
    agent = arguments.agent
    folder = _home_of(agent)
    if arguments.project:
        folder = Path.cwd() / (".github" if agent == "copilot" else _FOLDERS[agent][0])
    timeout = arguments.timeout or clarify.HOOK_TIMEOUTS[agent]
    return _Part(folder / _HOOKS[agent], lambda text: _with_hooks(text, arguments, timeout))


def _home_of(client: str) -> Path:
    """Returns a coding agent's folder of user settings, which its own variable can move."""
    name, variable = _FOLDERS[client]
    return Path(os.environ.get(variable) or Path.home() / name)


def _program(*, is_shared: bool) -> list[str]:
    """Returns the command that runs this program from any folder and shell. `is_shared`: by its name, if other shells find
    that, too, since the file goes to other machines.
    """
    program = Path(sys.argv[0]).absolute()
    if program.name == "__main__.py":
        return [sys.executable, "-m", "bot.cli"]
    # An activated environment is in this shell's PATH alone.
    own = os.path.join(os.environ.get("VIRTUAL_ENV", ""), "bin")  # noqa: PTH118 - compared with text
    folders = [each for each in os.environ.get("PATH", "").split(os.pathsep) if each != own]
    found = shutil.which(_NAME, path=os.pathsep.join(folders)) if is_shared else None
    return [_NAME if found is not None and Path(found).resolve() == program.resolve() else str(program)]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _claude_code(url: str | None) -> list[_Part]:
    """Returns the server, and the rule that lets the agent call its tools without asking."""
    server = {"type": "stdio"} | _server(url, is_shared=True)
    rules = {"permissions": {"allow": [f"mcp__{_NAME}"]}, "enabledMcpjsonServers": [_NAME]}
    return [
        _json_part(Path.cwd() / ".mcp.json", {"mcpServers": {_NAME: server}}),
        _json_part(Path.cwd() / ".claude" / "settings.json", rules),
    ]


def _codex(url: str | None) -> list[_Part]:
    table = _server(url, is_shared=False) | {
        "env_vars": list(_VARIABLES),
        "tool_timeout_sec": _LONGEST_CALL,
        "default_tools_approval_mode": "approve",
    }
    return [_Part(_home_of("codex") / "config.toml", lambda text: _with_table(text, table))]


def _server(url: str | None, *, is_shared: bool) -> dict[str, Any]:
    """Returns the server's command."""
    program, *more = _program(is_shared=is_shared)
    return {"command": program, "args": [*more, "mcp", *(["--url", url] if url else [])]}


def _json_part(path: Path, wanted: Mapping[str, Any]) -> _Part:
    def merged(text: str) -> str:
        there = json.loads(text) if text.strip() else {}
        if not isinstance(there, dict):
            raise ValueError("the file must be a JSON object")  # noqa: TRY004 - of the file
        together = _together(there, wanted)
        return text if together == there else _json(together)

    return _Part(path, merged)


def _together(there: Any, wanted: Any, place: str = "") -> Any:
    """Merges `wanted` into the existing value: replaces our own server, extends lists."""
    if place == f".mcpServers.{_NAME}":
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
    lines = [f"[mcp_servers.{_NAME}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _with_table(text: str, table: Mapping[str, Any]) -> str:
    """Returns the file with our table appended, or in place of our earlier one, whose other keys stay.

    Raises:
        ValueError: it is not TOML, or it defines our server in a way that cannot be replaced.
    """
    before = tomllib.loads(text)
    servers = before.get("mcp_servers", {})
    there: dict[str, Any] = servers.get(_NAME, {})
    together = {**there, **table}
    if together == there:
        return text
    if there:
        after = _replaced(text, _toml({k: v for k, v in together.items() if not isinstance(v, dict)}))
    else:
        after = (
            text + ("" if not text or text.endswith("\n") else "\n") + ("\n" if text else "") + _toml(table)
        )
    expected = {**before, "mcp_servers": {**servers, _NAME: together}}
    if tomllib.loads(after) != expected:
        raise ValueError(f"mcp_servers.{_NAME} cannot be merged")
    return after


def _replaced(text: str, section: str) -> str:
    headers = list(_HEADER.finditer(text))
    for place, header in enumerate(headers):
        if _OURS.fullmatch(header[0]):
            end = headers[place + 1].start() if place + 1 < len(headers) else len(text)
            return text[: header.start()] + section + ("\n" if end < len(text) else "") + text[end:]
    return text


def _with_hooks(text: str, arguments: Any, timeout: float) -> str:
    """Returns the settings with our hooks in place of our earlier ones; other hooks stay."""
    try:
        settings = json.loads(text or "{}")
    except ValueError:
        settings = None
    if not isinstance(settings, dict) or not isinstance(settings.setdefault("hooks", {}), dict):
        raise ValueError("the file must be a JSON object, and its `hooks` an object")  # noqa: TRY004 - of the file
    hooks: dict[str, Any] = settings["hooks"]
    _take_out_ours(hooks, f"hook {arguments.agent}")
    timeout = int(timeout) + 30
    agent, silence = arguments.agent, arguments.on_silence
    words = _words(arguments, silence)
    if agent == "copilot":
        # Its own rules come afterwards, and could allow the call.
        entries = {"permissionRequest": _hook(agent, words, silence or "deny", timeout)}
        settings.setdefault("version", 1)
    else:
        asking = _hook(agent, words, silence or "pass", timeout)
        entries = {"PermissionRequest": {"matcher": "*", "hooks": [asking]}}
        if agent == "claude-code":
            entries["Elicitation"] = {"matcher": "*", "hooks": [asking]}
    if arguments.tools:
        # Always explicit: without a decision on an unreadable event, PreToolUse would run the tool.
        silence = silence or "deny"
        more = ["--defer"] if arguments.defer else []
        asking = _hook(agent, _words(arguments, silence) + more, silence, timeout)
        entries["PreToolUse"] = {"matcher": arguments.tools, "hooks": [asking]}
    for name in _AFTERWARDS[agent]:
        quiet = _hook(agent, words, "pass", _QUICK)
        entries[name] = quiet if agent == "copilot" else {"hooks": [quiet]}
    for name, entry in entries.items():
        hooks.setdefault(name, []).append(entry)
    return _json(settings)


def _hook(agent: str, words: Sequence[str], silence: str, seconds: int) -> dict[str, Any]:
    """Returns a hook in the agent's format. If it cannot start, whatever the reason, it is as if nobody decided: it denies or passes.

    Agents take exit code 2 for a denial (Codex: if standard error says why) and, where a hook only watches, for a complaint.
    Any other code, and output that is no decision, leaves the call to the agent's own rules.
    """
    command, windows = shlex.join(words), {}
    if silence == "pass":
        command += " || exit 0"  # means the same in any shell, cmd included
    else:
        decision = "behavior" if agent == "copilot" else "hookSpecificOutput"  # each decision begins so
        command += f" | grep '^{{.{decision}' || sh -c 'echo {_NOT_RUN} >&2; exit 2'"
        if agent == "codex":
            line = subprocess.list2cmdline(words)
            windows = {"commandWindows": f"{line} || (echo {_NOT_RUN} 1>&2 & exit 2)"}
    if agent == "copilot":
        return {"type": "command", "bash": command, "timeoutSec": seconds}
    return {"type": "command", "command": command, **windows, "timeout": seconds}


def _take_out_ours(hooks: dict[str, Any], marker: str) -> None:
    for name, groups in list(hooks.items()):
        if not isinstance(groups, list):
            continue
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("hooks"), list):
                group["hooks"] = [each for each in group["hooks"] if not _is_ours(each, marker)]
        hooks[name] = [group for group in groups if not (_is_ours(group, marker) or _is_empty(group))]
        if not hooks[name]:
            del hooks[name]


def _is_empty(group: Any) -> bool:
    return isinstance(group, dict) and not group.get("hooks", True)


def _is_ours(hook: Any, marker: str) -> bool:
    command = (hook.get("command") or hook.get("bash")) if isinstance(hook, dict) else None
    return isinstance(command, str) and marker in command and ("clarify" in command or "bot.cli" in command)


def _words(arguments: Any, on_silence: str | None) -> list[str]:
    """Returns the words of the command that the agent runs as its hook."""
    words = [*_program(is_shared=arguments.project), "hook", arguments.agent]
    if arguments.timeout is not None:
        words += ["--timeout", f"{arguments.timeout:g}"]
    if on_silence:
        words += ["--on-silence", on_silence]
    if arguments.url:
        words += ["--url", arguments.url]
    if arguments.server_name != _NAME:
        words += ["--server-name", arguments.server_name]
    if arguments.escalate:
        words.append("--escalate")
    return words
