"""What stands in examples/ for coding agents and for the shell, run as it stands there. Frameworks: see tests/examples."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent

from bot.workspace.seed import AGENTS, FOLAKE
from tests.kit.world import World, config, own_url_of, said, url_of
from tests.scenario.test_hooks import event

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WRITTEN = [  # by whom, the words that write them, and where our copies of the files are
    ("hook claude-code --install --project", ".claude/settings.json", "claude_code/settings.json"),
    ("mcp --install claude-code --write", ".claude/settings.json", "claude_code/settings.json"),
    ("mcp --install claude-code --write", ".mcp.json", "claude_code/mcp.json"),
    ("hook codex --install", ".codex/hooks.json", "codex/hooks.json"),
    ("mcp --install codex --write", ".codex/config.toml", "codex/config.toml"),
]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """`clarify` is on the PATH, and the home folder is empty."""
    program = tmp_path / "bin" / "clarify"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom bot.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "CODEX_HOME"}
    path = f"{program.parent}:{os.environ['PATH']}"
    return kept | {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}


def read(text: str, name: str) -> Any:
    return tomllib.loads(text) if name.endswith(".toml") else json.loads(text)


@pytest.mark.parametrize(("words", "file", "ours"), WRITTEN)
def test_settings_are_what_install_writes(
    words: str, file: str, ours: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    """Written over ours, they change nothing; a folder without any gets nothing that is not in ours."""
    shown = (EXAMPLES / ours).read_text()
    here = shown.replace('"clarify hook', f'"{tmp_path}/bin/clarify hook')
    written = tmp_path / file
    for before in (here, None):
        written.parent.mkdir(parents=True, exist_ok=True)
        if before is None:
            written.unlink()
        else:
            written.write_text(before)
        subprocess.run(
            ["clarify", *words.split()], cwd=tmp_path, env=environ, check=True, capture_output=True
        )
        found = read(written.read_text(), ours)
        expected = read(here, ours)
        assert found == (expected if before else {name: expected[name] for name in found})


async def start(command: str, environ: dict[str, str], text: str = "") -> Process:
    process = await asyncio.create_subprocess_shell(command, stdin=PIPE, stdout=PIPE, env=environ, cwd=ROOT)
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.close()
    return process


@pytest.mark.parametrize("file", ["claude_code/settings.json", "codex/hooks.json"])
async def test_hook_of_the_settings_has_people_decide(
    stage: World, file: str, environ: dict[str, str]
) -> None:
    (group,) = json.loads((EXAMPLES / file).read_text())["hooks"]["PermissionRequest"]
    async with stage.bot() as bot:
        command = group["hooks"][0]["command"]
        process = await start(command, environ | {"CLARIFY_URL": url_of(bot)}, json.dumps(event()))
        card = await stage.card("Run a shell command")
        assert "npm test" in said(card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        out, _ = await process.communicate()
    assert json.loads(out)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}


@pytest.mark.parametrize(
    ("file", "servers"), [("claude_code/mcp.json", "mcpServers"), ("codex/config.toml", "mcp_servers")]
)
async def test_tools_of_the_settings_ask_people(
    stage: World, file: str, servers: str, environ: dict[str, str]
) -> None:
    server = read((EXAMPLES / file).read_text(), file)[servers]["clarify"]
    async with stage.bot() as bot:
        program = shutil.which(server["command"], path=environ["PATH"])
        assert program is not None
        given = StdioServerParameters(
            command=program, args=server["args"], env=environ | {"CLARIFY_URL": url_of(bot)}
        )
        async with Client(stdio_client(given)) as client:
            asking = asyncio.create_task(client.call_tool("ask_human", {"question": "Which port?"}))
            await stage.workspace.post(FOLAKE, AGENTS, "8080", (await stage.card("Which port?")).ts)
            (content,) = (await asking).content
    assert isinstance(content, TextContent)
    assert "8080" in content.text


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize(("press", "code"), [("Yes", 0), ("No", 1), (None, 2)])
async def test_shell_script_exits_as_people_decide(
    stage: World, press: str | None, code: int, environ: dict[str, str]
) -> None:
    async with stage.bot() as bot:
        process = await start(f"sh {EXAMPLES / 'ask.sh'}", environ | {"CLARIFY_URL": url_of(bot)})
        card = await stage.card("Deploy 4.2 to production?")
        if press:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=press)
        else:
            words = "abandon CLR-100001-001 nobody deploys today"
            await stage.workspace.command(FOLAKE, AGENTS, "/clarify", words)
        out, _ = await process.communicate()
        again = await start(f"sh {EXAMPLES / 'ask.sh'}", environ | {"CLARIFY_URL": url_of(bot)})
        assert (await again.wait(), process.returncode, len(stage.cards())) == (code, code, 1)
    assert json.loads(out)["id"] == "CLR-100001-001"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_shell_script_waits_on_while_the_bot_starts_anew(
    stage: World, port: int, environ: dict[str, str]
) -> None:
    listen = f'[http]\nlisten = "127.0.0.1:{port}"\n'
    stage.configure(config(stage.producer.url, more=listen))
    async with stage.bot() as bot:
        process = await start(f"sh {EXAMPLES / 'ask.sh'}", environ | {"CLARIFY_URL": own_url_of(bot)})
        card = await stage.card("Deploy 4.2 to production?")
    async with stage.bot():
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await process.communicate()
        await stage.now_says(card, "the agent has resumed")
    assert (process.returncode, len(stage.cards())) == (0, 1)
