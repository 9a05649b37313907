"""The MCP Inspector (npm: @modelcontextprotocol/inspector), with which people look at a server. Its command knows tasks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest

from bot.web import tools
from tests.kit import node
from tests.kit.stdio import FILE
from tests.kit.world import World, url_of
from workspace.seed import ADE, AGENTS


@pytest.mark.ci
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_inspector_waits_for_a_person(
    stage: World,
    node_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    transport: str,
    era: str,
) -> None:
    tasks = list[str]()
    monkeypatch.setattr(tools.Polled, "_SHORTEST", 50)  # milliseconds
    monkeypatch.setattr(tools.Polled, "note", lambda _, task: tasks.append(task))
    async with stage.bot() as bot:
        server = [f"{url_of(bot)}/mcp"] if transport == "http" else ["--", *FILE]
        call = ("--method", "tools/call", "--tool-name", "ask_approval", "--tool-arg", "action=Deploy 1.2")
        inspector = await asyncio.create_subprocess_exec(
            str(node_program),
            str(node.FOLDER / "node_modules/.bin/mcp-inspector"),
            *("--cli", "--protocol-era", era, *call, "-e", f"CLARIFY_URL={url_of(bot)}", *server),
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
        )
        ending = asyncio.create_task(inspector.communicate())
        card = await stage.card("Deploy 1.2")
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
        said = json.loads((await ending)[0])
        assert said["structuredContent"]["answer"] == {"decision": "accept", "arguments": {}}
        await stage.until(lambda: stage.record()["aaep"]["reply"] == "confirmed")
        assert len(stage.cards()) == 1
    assert bool(tasks) == (era == "modern")
