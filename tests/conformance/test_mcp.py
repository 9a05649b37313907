"""The official conformance suite of MCP (npm: @modelcontextprotocol/conformance), against the bot and our tasks; and a client
of released packages that knows tasks (@modelcontextprotocol/ext-tasks).
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from bot.web import tools
from tests.conformance.fixtures import fixture_server
from tests.kit import node
from tests.kit.world import World, url_of
from workspace.seed import ADE, AGENTS

pytestmark = pytest.mark.ci
BOT = (
    "server-initialize",
    "ping",
    "tools-list",
    "http-header-validation",
    "dns-rebinding-protection",
    "server-stateless",
)
TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
"""All, but `tasks-status-notifications`, which checks nothing: tests/scenario/test_mcp_tasks.py has a listener of our own."""
EXPECTED = Path(__file__).with_name("expected-failures.yml")

Run = Callable[[str, str], Coroutine[None, None, None]]


@pytest.fixture
def conforms(node_program: Path, tmp_path: Path) -> Run:
    """Runs a scenario against the server at an address."""

    async def run(scenario: str, url: str) -> None:
        command = [str(node_program), str(node.FOLDER / "node_modules/.bin/conformance"), "server"]
        command += ["--url", url, "--scenario", scenario, "--expected-failures", str(EXPECTED)]
        suite = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = (await suite.communicate())[0].decode()
        assert suite.returncode == 0, said
        assert re.search(r"^Passed: \d+/\d+", said, re.MULTILINE), said  # it was not left out

    return run


@pytest.mark.parametrize("scenario", BOT)
async def test_bot_conforms(stage: World, conforms: Run, scenario: str) -> None:
    async with stage.bot() as bot:
        await conforms(scenario, f"{url_of(bot)}/mcp")


@pytest.mark.parametrize("scenario", TASKS)
async def test_tasks_conform(conforms: Run, scenario: str) -> None:
    async with fixture_server() as url:
        await conforms(scenario, url)


async def test_client_of_released_packages_waits_for_a_task(
    stage: World, node_program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools.Polled, "_SHORTEST", 50)  # milliseconds
    (tmp_path / "client.mjs").write_text(Path(__file__).with_name("client.mjs").read_text())
    (tmp_path / "node_modules").symlink_to(node.FOLDER / "node_modules")
    async with stage.bot() as bot:
        client = await asyncio.create_subprocess_exec(
            str(node_program), "client.mjs", f"{url_of(bot)}/mcp", cwd=tmp_path, stdout=subprocess.PIPE
        )
        ending = asyncio.create_task(client.communicate())
        card = await stage.card("Send the newsletter")
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")).ok
        said = json.loads((await ending)[0])
    assert said["task"]["status"] == "completed"
    assert said["result"]["structuredContent"]["answer"] == {"decision": "accept", "arguments": {}}
    assert stage.record()["aaep"]["reply"] == "confirmed"
