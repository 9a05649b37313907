"""`clarify mcp --install`: what coding agents' files need, shown, and merged with what stands there."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]


def installed(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        [sys.executable, "-m", "bot.cli", "mcp", "--install", *words],
        cwd=folder,
        env={"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return ended


def read(file: Path) -> Any:
    return json.loads(file.read_text())


SERVER = {"command": sys.executable, "args": ["-m", "bot.cli", "mcp"]}


def test_shown_is_not_written(tmp_path: Path) -> None:
    said = installed(tmp_path, "claude-code", "--url", "http://127.0.0.1:9000", "--dry-run").stdout
    assert "mcp__clarify" in said
    assert "http://127.0.0.1:9000" in said
    assert "[mcp_servers.clarify]" in installed(tmp_path, "codex", "--dry-run").stdout
    assert list(tmp_path.iterdir()) == []


def test_claude_code_may_call_the_tools_unasked(tmp_path: Path) -> None:
    said = installed(tmp_path, "claude-code").stdout
    for file in (".mcp.json", ".claude/settings.json"):
        assert f"Wrote {tmp_path / file}:\n" in said
    assert read(tmp_path / ".mcp.json") == {"mcpServers": {"clarify": {"type": "stdio"} | SERVER}}
    assert "mcp__clarify" in read(tmp_path / ".claude/settings.json")["permissions"]["allow"]


def test_what_claude_code_has_is_kept(tmp_path: Path) -> None:
    mcp, settings = tmp_path / ".mcp.json", tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    old = {"command": "old", "env": {"CLARIFY_URL": "http://127.0.0.1:1"}}
    mcp.write_text(json.dumps({"mcpServers": {"other": {"command": "x"}, "clarify": old}, "more": [1]}))
    before = {"permissions": {"deny": ["Bash"], "allow": ["Read"]}, "hooks": {}, "model": "opus"}
    settings.write_text(json.dumps(before))
    settings.chmod(0o600)
    installed(tmp_path, "claude-code")
    ours = {"type": "stdio", "env": old["env"]} | SERVER
    assert read(mcp) == {"mcpServers": {"other": {"command": "x"}, "clarify": ours}, "more": [1]}
    after = read(settings)
    assert after["permissions"] == {"deny": ["Bash"], "allow": ["Read", "mcp__clarify"]}
    assert (after["hooks"], after["model"]) == ({}, "opus")
    assert settings.stat().st_mode & 0o777 == 0o600
    texts = [mcp.read_text(), settings.read_text()]
    assert installed(tmp_path, "claude-code").stdout.count("is up to date") == 2
    assert [mcp.read_text(), settings.read_text()] == texts


@pytest.mark.parametrize(
    "before",
    [
        "",
        "# mine\nmodel = 'gpt-5'\n",
        "model = 'gpt-5'\n[mcp_servers.other]\ncommand = 'x' # kept\n\n[tui]\nnotifications = true",
        "[mcp_servers.clarify]\ncommand = 'old'\nstartup_timeout_sec = 20\n[mcp_servers.clarify.env]\nA = 'b'\n[tui]\na = 1\n",
        "[tui]\na = [\n  [1],\n]\n[mcp_servers.'clarify'] # here\ncommand = 'old'\n",
    ],
)
def test_what_codex_has_is_kept(tmp_path: Path, before: str) -> None:
    file = tmp_path / "home/.codex/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(before)
    installed(tmp_path, "codex")
    was, now = tomllib.loads(before), tomllib.loads(file.read_text())
    ours = now["mcp_servers"].pop("clarify")
    there = was.setdefault("mcp_servers", {}).pop("clarify", {})
    assert now == was
    assert ours["command"] == sys.executable
    assert ours["default_tools_approval_mode"] == "approve"
    assert ours["tool_timeout_sec"] > 60
    assert {name: ours[name] for name in there if name != "command"} == {
        name: value for name, value in there.items() if name != "command"
    }
    text = file.read_text()
    assert "is up to date" in installed(tmp_path, "codex").stdout
    assert file.read_text() == text


@pytest.mark.parametrize("before", ["[mcp_servers]\nclarify = {command = 'old'}\n", "no toml"])
def test_what_cannot_be_merged_is_left_and_said(tmp_path: Path, before: str) -> None:
    file = tmp_path / "home/.codex/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(before)
    said = installed(tmp_path, "codex", code=2).stderr
    assert "the file was not changed. Add this by hand:\n[mcp_servers.clarify]\n" in said
    assert file.read_text() == before
    (tmp_path / ".mcp.json").write_text("[]")
    assert "must be a JSON object" in installed(tmp_path, "claude-code", code=2).stderr
    assert (tmp_path / ".mcp.json").read_text() == "[]"


def test_usage(tmp_path: Path) -> None:
    installed(tmp_path, "cursor", code=2)
    installed(tmp_path, code=2)
    ended = subprocess.run(
        [sys.executable, "-m", "bot.cli", "mcp", "--url", "ftp://x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "is not an HTTP address" in ended.stderr) == (2, True)
