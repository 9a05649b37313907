# ruff: noqa: T201 - it shows people what it changes
"""`clarify hook … --install`: adds the hook to a coding agent's settings, and keeps what is there."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from bot.cli.mcp import FOLDERS, home_of

_SETTINGS = {"claude-code": "settings.json", "codex": "hooks.json"}
_AFTERWARDS = {
    "claude-code": ("PostToolUse", "PostToolUseFailure", "SessionEnd"),
    "codex": ("PostToolUse", "Stop"),
}
_TIMEOUTS = {"claude-code": 540.0, "codex": 60.0}
_QUICK = 10  # seconds for hooks that only withdraw
_TRUST = "Codex runs only trusted hooks: start codex, enter /hooks, and trust this one."


def install(arguments: Any) -> int:
    """Show the change, and make it unless `--dry-run`. Returns the exit code."""
    agent = arguments.agent
    folder = Path.cwd() / FOLDERS[agent][0] if arguments.project else home_of(agent)
    file = folder / _SETTINGS[agent]
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    settings = _read(before)
    if settings is None:
        why = "the file must be a JSON object, and its `hooks` an object; nothing was changed"
        print(f"clarify hook: {file}: {why}", file=sys.stderr)
        return 2
    _merge(settings["hooks"], arguments)
    after = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), str(file), str(file), lineterm="")
    print("\n".join(lines) or f"{file} is up to date.")
    if not arguments.dry_run and after != before:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.new")
        draft.write_text(after, encoding="utf-8")
        if file.exists():
            shutil.copymode(file, draft)
        draft.replace(file.resolve())
    if arguments.agent == "codex":
        print(_TRUST)
    return 0


def _read(text: str) -> dict[str, Any] | None:
    """The settings, with `hooks`; None: they are not to be understood."""
    try:
        settings = json.loads(text or "{}")
    except ValueError:
        return None
    is_ours = isinstance(settings, dict) and isinstance(settings.setdefault("hooks", {}), dict)
    return settings if is_ours else None


def _merge(hooks: dict[str, Any], arguments: Any) -> None:
    """Put our hooks in place of those of an earlier time; all others stay as they are."""
    marker = f"hook {arguments.agent}"
    for name, groups in list(hooks.items()):
        if not isinstance(groups, list):
            continue
        for group in groups:
            if isinstance(group, dict) and isinstance(group.get("hooks"), list):
                group["hooks"] = [each for each in group["hooks"] if not _is_ours(each, marker)]
        hooks[name] = [group for group in groups if not isinstance(group, dict) or group.get("hooks")]
        if not hooks[name]:
            del hooks[name]
    timeout = arguments.timeout or _TIMEOUTS[arguments.agent]
    command = _command(arguments, arguments.on_silence)
    asks: dict[str, tuple[str, str]] = {"PermissionRequest": ("*", command)}
    if arguments.tools:
        # Said, so that it is known of an event that cannot be read, too: silence there would run the tool.
        asks["PreToolUse"] = (arguments.tools, _command(arguments, arguments.on_silence or "deny"))
    for name, (matcher, asking) in asks.items():
        ours = {"type": "command", "command": asking, "timeout": int(timeout) + 30}
        hooks.setdefault(name, []).append({"matcher": matcher, "hooks": [ours]})
    for name in _AFTERWARDS[arguments.agent]:
        ours = {"type": "command", "command": command, "timeout": _QUICK}
        hooks.setdefault(name, []).append({"hooks": [ours]})


def _is_ours(hook: Any, marker: str) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and marker in command and ("clarify" in command or "bot.cli" in command)


def _command(arguments: Any, on_silence: str | None) -> str:
    """The command that the agent runs: this very program, from any folder."""
    program = Path(sys.argv[0]).absolute()
    words = [sys.executable, "-m", "bot.cli"] if program.name == "__main__.py" else [str(program)]
    words += ["hook", arguments.agent]
    if arguments.timeout is not None:
        words += ["--timeout", f"{arguments.timeout:g}"]
    if on_silence:
        words += ["--on-silence", on_silence]
    if arguments.url:
        words += ["--url", arguments.url]
    if arguments.server_name:
        words += ["--server-name", arguments.server_name]
    if arguments.escalate:
        words.append("--escalate")
    return shlex.join(words)
