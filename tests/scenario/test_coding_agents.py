"""Coding agents as people run them, with clarify's plugin and hooks; their models are scripted. See `tests.kit.coding_agents`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import coding_agents
from tests.kit.models import Model, scripted

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "clients/claude-code"
TOOLS = "mcp__plugin_clarify_clarify__"  # Claude Code's prefix for the tools of the plugin's server


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    async with scripted() as made:
        yield made


class Agent:
    """A coding agent with a home folder of its own, which works in `project`."""

    def __init__(self, program: Path, home: Path, **environ: str) -> None:
        self.home = home
        self.project = home / "project"
        self.project.mkdir(parents=True)
        self._program = program
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environ = {"PATH": path, "HOME": str(home), **environ}

    async def start(self, *words: str, **environ: str) -> Process:
        return await asyncio.create_subprocess_exec(
            self._program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.project,
            env=self._environ | environ,
        )

    async def run(self, *words: str, **environ: str) -> str:
        """Returns what it prints, once it has ended well."""
        return await ended(await self.start(*words, **environ))


async def ended(process: Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, (out, err)
    return out.decode()


def program(name: str) -> Path:
    try:
        return coding_agents.program(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def claude(tmp_path: Path) -> Agent:
    return Agent(
        program("claude"),
        tmp_path / "claude",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        ANTHROPIC_API_KEY="scripted",
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The part of this repository that the plugin is made of, as a repository of its own."""
    folder = tmp_path / "acme"
    for name in (".claude-plugin", "clients/claude-code"):
        shutil.copytree(ROOT / name, folder / name, symlinks=True)
    shutil.copy(ROOT / "clarify.py", folder)
    git = ("git", "-c", "user.name=Ann", "-c", "user.email=ann@acme.example", "-C", str(folder))
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "The plugin")):
        subprocess.run([*git, *words], check=True)
    return folder


@pytest.fixture
async def with_plugin(claude: Agent, repository: Path) -> Agent:
    """Claude Code with the plugin, installed as docs/agents/claude-code.md says."""
    github = f'[url "file://{repository}"]\n\tinsteadOf = https://github.com/acme/clarify-bot.git\n'
    (claude.home / ".gitconfig").write_text(github)
    await claude.run("plugin", "install", "clarify", "--marketplace", "acme/clarify-bot")
    return claude


@pytest.mark.parametrize("folder", [ROOT, PLUGIN])
async def test_plugin_and_marketplace_are_valid(claude: Agent, folder: Path) -> None:
    assert "Validation passed" in await claude.run("plugin", "validate", "--strict", str(folder))


async def test_one_line_installs_the_plugin_with_the_one_file(with_plugin: Agent) -> None:
    listed = json.loads(await with_plugin.run("plugin", "list", "--json"))
    (ours,) = [each for each in listed if each["id"] == "clarify@clarify-bot"]
    assert ours["enabled"]
    installed = Path(ours["installPath"]) / "clarify.py"
    assert not installed.is_symlink()
    assert installed.read_bytes() == (ROOT / "clarify.py").read_bytes()


def test_plugin_has_the_release_of_the_bot() -> None:
    manifest: dict[str, Any] = json.loads((PLUGIN / ".claude-plugin/plugin.json").read_text())
    assert f'\nversion = "{manifest["version"]}"\n' in (ROOT / "pyproject.toml").read_text()


def test_plugin_has_the_hooks_that_install_writes(tmp_path: Path) -> None:
    words = ("hook", "claude-code", "--install", "--project", "--server-name", "plugin_clarify_clarify")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "bot.cli", *words], cwd=tmp_path, env=environ, check=True, capture_output=True
    )
    written = json.loads((tmp_path / ".claude/settings.json").read_text())["hooks"]
    ours = json.loads((PLUGIN / "hooks/hooks.json").read_text())["hooks"]
    for groups in (*written.values(), *ours.values()):
        for hook in groups[0]["hooks"]:
            whole = f"{hook.pop('command')} {shlex.join(hook.pop('args', []))}"
            hook["words"] = whole.partition(" hook ")[2].strip()
    assert ours == written
