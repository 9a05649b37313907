"""What README says about agents that ask, done as it stands there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from bot.settings.load import parse_settings
from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.processes import ROOT
from tests.kit.world import World, config, url_of

README = (ROOT / "README.md").read_text()
HERE = "http://127.0.0.1:8787"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


def block(kind: str, words: str) -> str:
    """The example of a kind that has these words."""
    blocks: list[str] = re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)
    (found,) = [each for each in blocks if words in each]
    return found


async def said(*command: str, environ: Mapping[str, str] = {}, cwd: Path = ROOT) -> str:
    """What a command prints; it has to end well."""
    env = {**os.environ, "no_proxy": "127.0.0.1", **environ}
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=env, cwd=cwd)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_python_is_answered(stage: World) -> None:
    program = block("python", "clarify.ask(")
    async with stage.bot() as bot, asyncio.TaskGroup() as group:
        environ = {"CLARIFY_URL": url_of(bot), "PYTHONPATH": str(ROOT)}
        asking = group.create_task(said(sys.executable, "-c", program, environ=environ))
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Which retirement age")).ts, label="67")
        assert await asking == f"67 user:slack/T0LOCAL/{FOLAKE}\n"


@needs_curl
async def test_curl_is_answered(stage: World) -> None:
    async with stage.bot() as bot, asyncio.TaskGroup() as group:
        asked = block("sh", '"Which release?"').replace(HERE, url_of(bot))
        asking = group.create_task(said("bash", "-c", asked))
        await stage.workspace.click(FOLAKE, AGENTS, (await stage.card("Which release?")).ts, label="4.2")
        assert json.loads(await asking)["answer"] == "4.2"


@needs_curl
async def test_form_is_filled_in(stage: World) -> None:
    async with stage.bot() as bot, asyncio.TaskGroup() as group:
        asked = block("sh", '"schema"').replace(HERE, url_of(bot))
        asking = group.create_task(said("bash", "-c", asked))
        card = await stage.card("How shall 4.2 be rolled out?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        await stage.modal(FOLAKE)
        outcome = await stage.workspace.submit_view(FOLAKE, {"Percent of customers": "5"})
        assert outcome.ok
        assert 'The answer is then an object, `{"percent": 5, "region": "eu"}`' in README
        assert json.loads(await asking)["answer"] == {"percent": 5, "region": "eu"}


async def test_address_for_claude_has_the_tools(stage: World) -> None:
    (address,) = re.findall(rf"`claude mcp add --transport http clarify {HERE}(/\S+)`", README)
    async with stage.bot() as bot, Client(url_of(bot) + address) as client:
        assert "ask_human" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_agents_are_installed(agent: str, tmp_path: Path) -> None:
    """The files that are written, and the MCP server that they name."""
    (line,) = [each for each in block("sh", "--install").splitlines() if f"hook {agent}" in each]
    programs, project = tmp_path / "bin", tmp_path / "project"
    for folder in (programs, project):
        folder.mkdir()
    program = programs / "clarify"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m bot.cli "$@"\n')
    program.chmod(0o755)
    environ = {"HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / ".codex"), "PYTHONPATH": str(ROOT)}
    await said(
        "bash", "-c", line, cwd=project, environ=environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    )
    hooks: dict[str, Any]
    server: dict[str, Any]
    if agent == "codex":
        hooks = json.loads((tmp_path / ".codex" / "hooks.json").read_text())["hooks"]
        server = tomllib.loads((tmp_path / ".codex" / "config.toml").read_text())["mcp_servers"]["clarify"]
        assert server["default_tools_approval_mode"] == "approve"
    else:
        settings = json.loads((project / ".claude" / "settings.json").read_text())
        hooks, server = (
            settings["hooks"],
            json.loads((project / ".mcp.json").read_text())["mcpServers"]["clarify"],
        )
        assert settings["permissions"]["allow"] == ["mcp__clarify"]
    assert f"hook {agent}" in json.dumps(hooks["PermissionRequest"])
    started = StdioServerParameters(command=server["command"], args=server["args"], env=environ)
    async with Client(started) as client:
        assert "ask_approval" in {tool.name for tool in (await client.list_tools()).tools}


def test_configuration_of_who_may_ask_is_read(stage: World) -> None:
    more = block("toml", "max_open")
    text = config(stage.producer.url, more=more.replace("[http]\n", '[http]\nlisten = "127.0.0.1:0"\n'))
    environ = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "MAILER_TOKEN": "t" * 32}
    settings = parse_settings(text, file=stage.file, environ=environ)
    mailer = settings.producers[1]
    assert (mailer.name, mailer.max_open, mailer.agents) == ("mailer", 100, ("mailer", "mailer-*"))
    assert list(settings.http.origins) == ["https://inspector.example.com"]
