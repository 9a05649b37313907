"""What stands in examples/ for coding agents and for the shell, and in Claude Code's plugin, run as it stands there.
Frameworks: see tests/examples; the plugin in Claude Code itself: see test_coding_agents.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent

from tests.kit.node import installed
from tests.kit.served import served
from tests.kit.world import World, config, own_url_of, said, url_of
from tests.scenario.test_hooks import event
from workspace.seed import AGENTS, FOLAKE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PLUGIN = "clients/claude-code"
WRITTEN = [  # by whom, the words that write them, and where our copies of the files are
    ("hook codex --install", ".codex/hooks.json", "codex/hooks.json"),
    ("mcp --install codex", ".codex/config.toml", "codex/config.toml"),
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
    text = text.replace("${CLAUDE_PLUGIN_ROOT}", str(ROOT / PLUGIN))
    return tomllib.loads(text) if name.endswith(".toml") else json.loads(text)


@pytest.mark.parametrize(("words", "file", "ours"), WRITTEN)
def test_settings_are_what_install_writes(
    words: str, file: str, ours: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    """Written over ours, they change nothing; a folder without any gets nothing that is not in ours."""
    shown = (EXAMPLES / ours).read_text()
    here = shown.replace('"clarify hook', f'"{tmp_path}/bin/clarify hook')
    here = here.replace('command = "clarify"', f'command = "{tmp_path}/bin/clarify"')
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


@pytest.mark.parametrize("file", [f"{PLUGIN}/hooks/hooks.json", "examples/codex/hooks.json"])
async def test_hook_of_the_settings_has_people_decide(
    stage: World, file: str, environ: dict[str, str]
) -> None:
    (group,) = read((ROOT / file).read_text(), file)["hooks"]["PermissionRequest"]
    async with stage.bot() as bot:
        process = await start(
            group["hooks"][0]["command"], environ | {"CLARIFY_URL": url_of(bot)}, json.dumps(event())
        )
        card = await stage.card("Run a shell command")
        assert "npm test" in said(card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        out, _ = await process.communicate()
    assert json.loads(out)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}


@pytest.mark.parametrize(
    ("file", "servers"),
    [(f"{PLUGIN}/.mcp.json", "mcpServers"), ("examples/codex/config.toml", "mcp_servers")],
)
async def test_tools_of_the_settings_ask_people(
    stage: World, file: str, servers: str, environ: dict[str, str]
) -> None:
    server = read((ROOT / file).read_text(), file)[servers]["clarify"]
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


# -- workflow engines, which are called back ----------------------------------------------------------------------

TRIGGER = """
const callback = process.env.ENGINE + "/api/v1/waitpoints/tokens/waitpoint_1/callback/s3cret";
export const task = (task) => task;
export const wait = {
  createToken: async () => ({ id: "waitpoint_1", url: callback }),
  forToken: ({ id }) => ({ unwrap: async () => (await fetch(`${process.env.ENGINE}/completed/${id}`)).json() }),
};
"""
RUN = """
import { deploy } from "./trigger_dev_waitpoint.ts";
const done = await deploy.run({ version: "4.2" }, { ctx: { run: { id: "run_1" } } });
console.log(JSON.stringify(done));
"""
EVALUATE = """
const [given, done, more] = JSON.parse(process.argv[1]);
const names = { ...more, $: (node) => ({ first: () => ({ json: done[node] }) }) };
const text = given.replace(/^=/, "").replace(/{{(.*?)}}/gs, (_, each) => {
  const value = new Function(...Object.keys(names), `return (${each})`)(...Object.values(names));
  return String(value);
});
console.log(text);
"""


class Engine:
    """A stand-in for a workflow engine: what was posted to its callbacks, which `completed` waits for."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.body: dict[str, Any] = {}
        self.called = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.paths.append(request.path_qs)
            self.body = await request.json()
            self.called.set()
            return web.json_response({"success": True})
        await self.called.wait()
        return web.json_response(self.body)


@pytest.fixture
async def engine(stage: World) -> AsyncIterator[Engine]:
    made = Engine()
    async with served(made.take) as made.url:
        more = f'[[producers]]\nname = "flow"\ncallbacks = ["{made.url}/*"]\n'
        stage.configure(config(stage.producer.url, more=more))
        yield made


@pytest.fixture(scope="module")
def node() -> Path:
    try:
        return installed()
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("press", "done"), [("Accept", {"deployed": True}), (None, {"deployed": False, "why": "Not today"})]
)
async def test_task_of_trigger_dev_waits_for_people(
    stage: World, engine: Engine, node: Path, press: str | None, done: dict[str, Any]
) -> None:
    sdk = stage.folder / "node_modules/@trigger.dev/sdk"
    sdk.mkdir(parents=True)
    (sdk / "package.json").write_text('{"name": "@trigger.dev/sdk", "type": "module", "main": "index.js"}')
    (sdk / "index.js").write_text(TRIGGER)
    shutil.copy(EXAMPLES / "trigger_dev_waitpoint.ts", stage.folder)
    (stage.folder / "run.mjs").write_text(RUN)
    async with stage.bot() as bot:
        environ = {**os.environ, "CLARIFY_URL": url_of(bot), "ENGINE": engine.url}
        process = await asyncio.create_subprocess_exec(
            node, "--no-warnings", "run.mjs", stdout=PIPE, env=environ, cwd=stage.folder
        )
        card = await stage.card("Deploy 4.2 to production")
        assert not engine.called.is_set()
        if press:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=press)
        else:
            await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "abandon CLR-100001-001 Not today")
        out, _ = await process.communicate()
        assert json.loads(out) == done
    assert engine.paths == ["/api/v1/waitpoints/tokens/waitpoint_1/callback/s3cret"]


@pytest.mark.parametrize(("press", "approved"), [("Accept", "true"), ("Reject", "false")])
async def test_workflow_of_n8n_waits_for_people(
    stage: World, engine: Engine, node: Path, press: str, approved: str
) -> None:
    """What n8n does with it: fills in the expressions, sends the requests, waits at the resume URL, compares."""
    flow = json.loads((EXAMPLES / "n8n_approval.json").read_text())
    nodes = {each["name"]: each["parameters"] for each in flow["nodes"]}
    assert [*nodes] == ["Start", *(each["main"][0][0]["node"] for each in flow["connections"].values())]
    ask, wait, read = nodes["Ask in Slack"], nodes["Until someone decides"], nodes["Read the decision"]
    assert (wait["resume"], wait["httpMethod"]) == ("webhook", "POST")  # the bot posts
    done: dict[str, Any] = {}  # what each node returned

    def filled_in(text: str, **names: Any) -> str:
        assert "$env" not in text  # n8n 2 refuses it unless told otherwise
        given = json.dumps([text.replace("http://127.0.0.1:8787", url_of(bot)), done, names])
        ended = subprocess.run([node, "-e", EVALUATE, given], check=True, capture_output=True, text=True)
        return ended.stdout.strip()

    async with stage.bot() as bot, httpx.AsyncClient() as http:
        execution = {"id": "231", "resumeUrl": f"{engine.url}/webhook-waiting/231?signature=s3cret"}
        url, body = (filled_in(ask[each], **{"$execution": execution}) for each in ("url", "jsonBody"))
        answer = await http.request(
            ask["method"], url, content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 201, answer.text
        done["Ask in Slack"] = answer.json()
        card = await stage.card("Send the newsletter")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=press)
        await engine.called.wait()
        state = (await http.get(filled_in(read["url"]))).json()
        (comparison,) = nodes["Approved?"]["conditions"]["conditions"]
        assert filled_in(comparison["leftValue"], **{"$json": state}) == approved
    assert engine.paths == ["/webhook-waiting/231?signature=s3cret"]
