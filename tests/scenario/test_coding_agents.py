"""Coding agents as people run them, with clarify's plugin and hooks; their models are scripted. See `tests.kit.coding_agents`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from bot.web import tools
from tests.kit import coding_agents
from tests.kit.models import Model, calls, scripted
from tests.kit.terminals import on_terminal
from tests.kit.until import until
from tests.kit.world import World, config, said, url_of
from tests.scenario.test_hooks import press
from workspace.seed import AGENTS, FOLAKE

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
        self.environ = {"PATH": path, "HOME": str(home), **environ}

    async def start(self, *words: str, **environ: str) -> Process:
        return await asyncio.create_subprocess_exec(
            self._program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=self.project,
            env=self.environ | environ,
        )

    async def run(self, *words: str, **environ: str) -> str:
        """Returns what it prints, once it has ended well."""
        return await ended(await self.start(*words, **environ))

    def at_a_terminal(self, *words: str) -> AbstractAsyncContextManager[Process]:
        """Runs it where a person would sit."""
        return on_terminal(self._program, *words, cwd=self.project, environ=self.environ)


async def clarify(agent: Agent, *words: str) -> None:
    """Runs `clarify` where the agent works."""
    command = (sys.executable, "-m", "bot.cli", *words)
    await ended(
        await asyncio.create_subprocess_exec(
            *command, cwd=agent.project, env=agent.environ, stdout=PIPE, stderr=PIPE
        )
    )


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
def claude(tmp_path: Path, repository: Path, model: Model) -> Agent:
    """Claude Code with a scripted model. Git finds the repository at github.com/acme/clarify-bot."""
    agent = Agent(
        program("claude"),
        tmp_path / "claude",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL="1",
        DISABLE_AUTOUPDATER="1",
        ANTHROPIC_API_KEY="scripted",
        ANTHROPIC_BASE_URL=model.url,
    )
    github = f'[url "file://{repository}"]\n\tinsteadOf = https://github.com/acme/clarify-bot.git\n'
    (agent.home / ".gitconfig").write_text(github)
    return agent


Install = Callable[..., Awaitable[Agent]]


@pytest.fixture
def install(claude: Agent) -> Install:
    """Returns Claude Code with the plugin, installed as docs/agents/claude-code.md says. Takes the plugin's options."""

    async def installed(**options: str) -> Agent:
        given = [word for name, value in options.items() for word in ("--config", f"{name}={value}")]
        await claude.run("plugin", "install", "clarify", "--marketplace", "acme/clarify-bot", *given)
        return claude

    return installed


@pytest.mark.parametrize("folder", [ROOT, PLUGIN])
async def test_plugin_and_marketplace_are_valid(claude: Agent, folder: Path) -> None:
    assert "Validation passed" in await claude.run("plugin", "validate", "--strict", str(folder))


async def test_one_line_installs_the_plugin_with_the_one_file(install: Install) -> None:
    listed = json.loads(await (await install()).run("plugin", "list", "--json"))
    (ours,) = [each for each in listed if each["id"] == "clarify@clarify-bot"]
    assert ours["enabled"]
    installed = Path(ours["installPath"]) / "clarify.py"
    assert not installed.is_symlink()
    assert installed.read_bytes() == (ROOT / "clarify.py").read_bytes()


async def test_project_offers_the_plugin_to_everyone_who_works_in_it(claude: Agent) -> None:
    await claude.run("plugin", "marketplace", "add", "acme/clarify-bot", "--scope", "project")
    await claude.run("plugin", "install", "clarify@clarify-bot", "--scope", "project")
    assert json.loads((claude.project / ".claude/settings.json").read_text()) == {
        "extraKnownMarketplaces": {
            "clarify-bot": {"source": {"source": "github", "repo": "acme/clarify-bot"}}
        },
        "enabledPlugins": {"clarify@clarify-bot": True},
    }


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
    (own,) = ours.pop("PreToolUse")  # where `clarify mcp --install` writes a permission
    assert own["matcher"] == f"{TOOLS}.*"
    for groups in (*written.values(), *ours.values()):
        for hook in groups[0]["hooks"]:
            hook["words"] = hook.pop("command").partition(" hook ")[2]
    assert ours == written


@pytest.fixture
async def at_work(install: Install, stage: World, model: Model) -> AsyncIterator[Agent]:
    """Claude Code with the plugin, a scripted model and a bot."""
    claude = await install()
    async with stage.bot() as bot:
        claude.environ["CLARIFY_URL"] = url_of(bot)
        yield claude


async def test_person_lets_claude_run_a_command(at_work: Agent, stage: World, model: Model) -> None:
    model.will(calls("Bash", command="touch made", description="Make a file"))
    process = await at_work.start("-p", "Make it")
    card = await stage.card("Run a shell command")
    assert "touch made" in said(card)
    assert not (at_work.project / "made").exists()
    await press(stage, card, "Accept")
    assert "Done." in await ended(process)
    assert (at_work.project / "made").exists()


async def test_person_stops_claude_and_says_why(at_work: Agent, stage: World, model: Model) -> None:
    model.will(calls("Bash", command="touch made", description="Make a file"))
    process = await at_work.start("-p", "Make it")
    card = await stage.card("Run a shell command")
    await stage.workspace.post(FOLAKE, AGENTS, "reject: run the linter first", card.ts)
    await ended(process)
    assert "run the linter first" in model.results[-1]
    assert not (at_work.project / "made").exists()


@pytest.mark.ci
async def test_claude_asks_people_with_the_tools_of_the_plugin(
    at_work: Agent, stage: World, model: Model
) -> None:
    """The hook lets the plugin's own tools through."""
    model.will(calls(f"{TOOLS}ask_human", question="Which port?"))
    process = await at_work.start("-p", "Find the port")
    await stage.workspace.post(FOLAKE, AGENTS, "8080", (await stage.card("Which port?")).ts)
    await ended(process)
    assert "8080" in model.results[-1]
    assert len(stage.cards()) == 1


@pytest.mark.ci
async def test_options_of_the_plugin_say_where_the_bot_is(
    install: Install, stage: World, model: Model
) -> None:
    stage.environ["CODER_TOKEN"] = "s3cret"
    text = config(stage.producer.url, more='[[producers]]\nname = "coder"\ntoken_env = "CODER_TOKEN"\n')
    async with stage.bot(text) as bot:
        claude = await install(url=url_of(bot), token="s3cret")
        model.will(
            calls("Bash", command="touch made", description="Make a file"),
            calls(f"{TOOLS}ask_human", 2, question="Which port?"),
        )
        process = await claude.start("-p", "Make it")
        await press(stage, await stage.card("Run a shell command"), "Accept")
        await stage.workspace.post(FOLAKE, AGENTS, "8080", (await stage.card("Which port?")).ts)
        await ended(process)
    assert (claude.project / "made").exists()
    assert "8080" in model.results[-1]


def welcome(claude: Agent) -> None:
    """Answers what Claude Code asks when it is first started at a terminal."""
    file = claude.home / ".claude.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    kept |= {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": ["scripted"]}}
    kept.setdefault("projects", {}).setdefault(str(claude.project), {})["hasTrustDialogAccepted"] = True
    file.write_text(json.dumps(kept))


@pytest.mark.ci
async def test_person_lets_claude_run_a_command_in_manual_mode(
    at_work: Agent, stage: World, model: Model
) -> None:
    welcome(at_work)
    model.will(calls("Bash", command="touch made", description="Make a file"))
    async with at_work.at_a_terminal("--permission-mode", "manual", "Make it"):
        card = await stage.card("Run a shell command")
        assert not (at_work.project / "made").exists()
        await press(stage, card, "Accept")
        await until((at_work.project / "made").exists)


@pytest.mark.ci
async def test_hook_before_a_tool_asks_people_in_auto_mode(claude: Agent, stage: World, model: Model) -> None:
    """A terminal's sessions start in it."""
    async with stage.bot() as bot:
        claude.environ |= {"CLARIFY_URL": url_of(bot), "PYTHONPATH": str(ROOT)}
        await clarify(claude, *["hook", "claude-code", "--install", "--project", "--tools", "Bash"])
        welcome(claude)
        model.will(calls("Bash", command="touch made", description="Make a file"))
        async with claude.at_a_terminal("Make it"):
            card = await stage.card("Run a shell command")
            assert not (claude.project / "made").exists()
            await press(stage, card, "Accept")
            await until((claude.project / "made").exists)


@pytest.mark.ci
async def test_claude_asks_its_questions_in_auto_mode_too(at_work: Agent, stage: World, model: Model) -> None:
    welcome(at_work)
    port = {"question": "Which port?", "header": "Port", "multiSelect": False}
    port["options"] = [{"label": each, "description": each} for each in ("8080", "9090")]
    model.will(calls("AskUserQuestion", questions=[port]))
    async with at_work.at_a_terminal("Find the port"):
        await press(stage, await stage.card("Which port?"), "9090")
        await until(lambda: model.results)
    assert '"Which port?"="9090"' in model.results[-1]


ASKER = """
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, ElicitationResult, Resolve
from pydantic import BaseModel, Field

server = MCPServer("asker")

class Place(BaseModel):
    branch: str = Field(title="Branch")
    copies: int = Field(title="Copies", default=1)

def place() -> Elicit[Place]:
    return Elicit("Where shall it go?", Place)

@server.tool()
def deploy(place: Annotated[ElicitationResult[Place], Resolve(place)]) -> str:
    return f"{place.action} {getattr(place, 'data', None)!r}"

server.run()
"""


@pytest.mark.ci
async def test_person_fills_in_the_form_of_an_mcp_server(at_work: Agent, stage: World, model: Model) -> None:
    (at_work.home / "asker.py").write_text(ASKER)
    await at_work.run("mcp", "add", "asker", "--", sys.executable, str(at_work.home / "asker.py"))
    model.will(calls("mcp__asker__deploy"))
    process = await at_work.start("-p", "Deploy it", "--allowedTools=mcp__asker__deploy")
    card = await stage.card("Where shall it go?")
    assert "MCP server: asker" in said(card)
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    assert (await stage.workspace.submit_view(FOLAKE, {"Branch": "main", "Copies": "3"})).ok
    await ended(process)
    assert "accept Place(branch='main', copies=3)" in model.results[-1]


@pytest.fixture(params=["http", "stdio"])
async def person(
    request: pytest.FixtureRequest,
    claude: Agent,
    stage: World,
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Agent]:
    """Claude Code with the tools over `/mcp` or from the plugin, for a session at a terminal. It has a task for each question."""
    monkeypatch.setattr(tools.Polled, "_SHORTEST", 500)  # milliseconds
    async with stage.bot() as bot:
        claude.environ["CLARIFY_URL"] = url_of(bot)
        if request.param == "http":
            await claude.run("mcp", "add", "--transport", "http", "clarify", f"{url_of(bot)}/mcp")
            tool = "mcp__clarify__ask_approval"
        else:
            await claude.run("plugin", "install", "clarify", "--marketplace", "acme/clarify-bot")
            tool = f"{TOOLS}ask_approval"
        welcome(claude)
        model.will(calls(tool, action="Deploy 1.2 to production"))
        yield claude


ALLOWED = "--allowedTools=Bash,mcp__clarify__ask_approval"  # the plugin allows its own tools itself


def background_task(model: Model) -> str:
    """Returns Claude Code's name of the task that its last call became."""
    found = re.search(r"moved to the background as task (\w+)", model.results[-1])
    assert found is not None, model.results
    return found[1]


@pytest.mark.ci
async def test_decision_wakes_an_idle_claude_which_goes_on(person: Agent, stage: World, model: Model) -> None:
    async with person.at_a_terminal(ALLOWED, "Deploy it"):
        card = await stage.card("Deploy 1.2")
        await until(lambda: model.results)
        model.will(calls("Bash", 2, command="touch deployed", description="Deploy"))
        await press(stage, card, "Accept")
        await until((person.project / "deployed").exists)
    assert any(
        "an answer in it is from a person in Slack" in each for each in model.heard
    )  # the server's instructions
    (notice,) = [each for each in model.heard if "<task-notification>" in each]
    assert '"decision":"accept"' in notice
    await until(lambda: stage.record()["status"] == "resolved")


@pytest.mark.ci
async def test_decision_reaches_a_claude_that_was_away(person: Agent, stage: World, model: Model) -> None:
    async with person.at_a_terminal(ALLOWED, "Deploy it"):
        card = await stage.card("Deploy 1.2")
        await until(lambda: model.results)
    await press(stage, card, "Accept")
    await stage.now_says(card, "Not picked up by the agent yet")
    async with person.at_a_terminal(ALLOWED, "--continue"):
        await until(lambda: any('"decision":"accept"' in each for each in model.heard))


@pytest.mark.ci
async def test_claude_stops_the_task_and_its_question_is_withdrawn(
    person: Agent, stage: World, model: Model
) -> None:
    model.will(lambda: calls("TaskStop", 2, task_id=background_task(model)))
    async with person.at_a_terminal(ALLOWED, "Deploy it"):
        await stage.now_says(await stage.card("Deploy 1.2"), "Withdrawn")


@pytest.mark.ci
async def test_claude_without_a_terminal_waits_in_its_calls(
    at_work: Agent, stage: World, model: Model
) -> None:
    """It has no tasks."""
    model.will(
        calls(f"{TOOLS}ask_approval", action="Deploy 1.2 to production", wait=0),
        calls(f"{TOOLS}wait_for_answer", 2, id="CLR-100001-001"),
    )
    process = await at_work.start("-p", "Deploy it")
    card = await stage.card("Deploy 1.2")
    await until(lambda: model.results)
    assert '"status":"waiting"' in model.results[0]
    await press(stage, card, "Accept")
    await ended(process)
    assert '"decision":"accept"' in model.results[1]


@pytest.fixture
async def deferring(claude: Agent, stage: World, model: Model) -> AsyncIterator[Agent]:
    """Claude Code in this project, with a hook that defers."""
    async with stage.bot() as bot:
        claude.environ["CLARIFY_URL"] = url_of(bot)
        claude.environ["PYTHONPATH"] = str(ROOT)
        words = "hook claude-code --install --project --tools Bash --defer --timeout 5"
        await clarify(claude, *words.split())
        yield claude


@pytest.mark.ci
async def test_claude_runs_nothing_behind_a_hook_that_cannot_start(deferring: Agent, model: Model) -> None:
    file = deferring.project / ".claude/settings.json"
    file.write_text(file.read_text().replace(sys.executable, "/no/such/python"))
    model.will(calls("Bash", command="touch made", description="Make a file"))
    await deferring.run("-p", "Make it", "--allowedTools=Bash")
    assert "clarify hook could not run" in model.results[-1]
    assert not (deferring.project / "made").exists()


async def told(process: Process) -> dict[str, Any]:
    """What `claude -p --output-format json` says at its end."""
    found: dict[str, Any] = json.loads(await ended(process))
    return found


@pytest.mark.ci
async def test_deferred_call_goes_on_with_the_answer_once(
    deferring: Agent, stage: World, model: Model
) -> None:
    given = {"command": "touch made", "description": "Make a file"}
    model.will(calls("Bash", **given))
    words = ("-p", "--output-format", "json", "--allowedTools=Bash")
    first = await told(await deferring.start(*words, "Make it"))
    assert (first["stop_reason"], first["deferred_tool_use"]["input"]) == ("tool_deferred", given)
    (card,) = stage.cards()
    resume = (*words, "--resume", first["session_id"])
    again = await told(await deferring.start(*resume))  # too early
    assert again["stop_reason"] == "tool_deferred"
    assert not (deferring.project / "made").exists()
    kept = shutil.copytree(deferring.home / ".claude", deferring.home / "backup", symlinks=True)
    await press(stage, card, "Accept")
    await stage.now_says(card, "Not picked up by the agent yet")
    last = await told(await deferring.start(*resume))
    assert last["stop_reason"] == "end_turn"
    assert (deferring.project / "made").exists()
    assert len(stage.cards()) == 1
    assert not list((deferring.home / ".claude").rglob("*.deferred"))
    # The session's folder is restored from a backup, and the session resumed once more.
    (deferring.project / "made").unlink()
    shutil.rmtree(deferring.home / ".claude")
    shutil.copytree(kept, deferring.home / ".claude", symlinks=True)
    again = await told(await deferring.start(*resume))
    assert again["stop_reason"] == "tool_deferred"
    assert not (deferring.project / "made").exists()
    assert len(stage.cards()) == 2


@pytest.fixture
async def copilot(tmp_path: Path, stage: World, model: Model) -> AsyncIterator[Agent]:
    """Copilot CLI with the hook, a scripted model and a bot."""
    agent = Agent(
        program("copilot"),
        tmp_path / "copilot",
        PYTHONPATH=str(ROOT),
        COPILOT_OFFLINE="true",
        COPILOT_PROVIDER_BASE_URL=model.url,
        COPILOT_PROVIDER_TYPE="anthropic",
        COPILOT_PROVIDER_API_KEY="scripted",
        COPILOT_MODEL="claude-sonnet-4",
    )
    async with stage.bot() as bot:
        agent.environ |= {"CLARIFY_URL": url_of(bot)}
        await clarify(agent, "hook", "copilot", "--install", "--timeout", "20")
        yield agent


@pytest.mark.ci
async def test_person_lets_copilot_run_a_command(copilot: Agent, stage: World, model: Model) -> None:
    model.will(calls("bash", command="touch made", description="Make a file"))
    process = await copilot.start("-p", "Make it")
    card = await stage.card("Run a shell command")
    assert "touch made" in said(card)
    await press(stage, card, "Accept")
    await ended(process)
    assert (copilot.project / "made").exists()


async def test_person_stops_copilot_whatever_its_rules_allow(
    copilot: Agent, stage: World, model: Model
) -> None:
    model.will(calls("create", path=str(copilot.project / "made"), file_text="hello"))
    process = await copilot.start("-p", "Make it", "--yolo")
    card = await stage.card("Edit ")
    assert "+hello" in said(card)
    await stage.workspace.post(FOLAKE, AGENTS, "reject: run the linter first", card.ts)
    await ended(process)
    assert "run the linter first" in model.results[-1]
    assert not (copilot.project / "made").exists()


@pytest.mark.ci
@pytest.mark.parametrize("broken", ["the bot is away", "no program"])
async def test_copilot_runs_nothing_that_nobody_decided(copilot: Agent, model: Model, broken: str) -> None:
    if broken == "no program":
        file = copilot.home / ".copilot/hooks/clarify.json"
        file.write_text(file.read_text().replace(sys.executable, "/no/such/python"))
    model.will(calls("bash", command="touch made", description="Make a file"))
    await copilot.run("-p", "Make it", "--yolo", CLARIFY_URL="http://127.0.0.1:9")
    assert "denied" in model.results[-1]
    assert not (copilot.project / "made").exists()


@pytest.mark.ci
async def test_copilot_asks_people_with_the_tools(copilot: Agent, stage: World, model: Model) -> None:
    """The hook lets them through."""
    server = (sys.executable, "-m", "bot.cli", "mcp")  # `clarify mcp`, as docs/agents/copilot.md says
    await copilot.run("mcp", "add", "clarify", "--", *server)
    model.will(calls("clarify-ask_human", question="Which port?"))
    process = await copilot.start("-p", "Find the port")
    await stage.workspace.post(FOLAKE, AGENTS, "8080", (await stage.card("Which port?")).ts)
    await ended(process)
    assert "8080" in model.results[-1]
    assert len(stage.cards()) == 1


_CODEX = """
model = "gpt-5"
model_provider = "scripted"
approval_policy = "on-request"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"

[projects."{project}"]
trust_level = "trusted"

"""


@pytest.fixture
async def codex(tmp_path: Path, stage: World, model: Model) -> AsyncIterator[Agent]:
    """Codex with the tools, the hook, a scripted model and a bot."""
    agent = Agent(program("codex"), tmp_path / "codex", PYTHONPATH=str(ROOT))
    file = agent.home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_text(_CODEX.format(url=model.url, project=agent.project))
    async with stage.bot() as bot:
        agent.environ |= {"CLARIFY_URL": url_of(bot)}
        await clarify(agent, "mcp", "--install", "codex")
        await clarify(agent, "hook", "codex", "--install")
        yield agent


COMMAND = calls(
    "exec_command", cmd="touch made", sandbox_permissions="require_escalated", justification="Make a file"
)
TRUSTED = "--dangerously-bypass-hook-trust"  # in place of a person who types /hooks


async def test_person_lets_codex_run_a_command(codex: Agent, stage: World, model: Model) -> None:
    model.will(COMMAND)
    async with codex.at_a_terminal(TRUSTED, "Make it"):
        card = await stage.card("Run a shell command")
        assert "touch made" in said(card)
        assert not (codex.project / "made").exists()
        await press(stage, card, "Accept")
        await until((codex.project / "made").exists)


@pytest.mark.ci
async def test_person_stops_codex_and_says_why(codex: Agent, stage: World, model: Model) -> None:
    model.will(COMMAND)
    async with codex.at_a_terminal(TRUSTED, "Make it"):
        card = await stage.card("Run a shell command")
        await stage.workspace.post(FOLAKE, AGENTS, "reject: run the linter first", card.ts)
        await until(lambda: model.results)
    assert "run the linter first" in model.results[-1]
    assert not (codex.project / "made").exists()


async def test_codex_runs_nothing_behind_a_hook_that_cannot_start(codex: Agent, model: Model) -> None:
    await clarify(codex, "hook", "codex", "--install", "--tools", "Bash")
    file = codex.home / ".codex/hooks.json"
    file.write_text(file.read_text().replace(sys.executable, "/no/such/python"))
    model.will(calls("exec_command", cmd="touch made"))
    await codex.run("exec", "--skip-git-repo-check", TRUSTED, "Make it")
    assert "clarify hook could not run" in model.results[-1]
    assert not (codex.project / "made").exists()


@pytest.mark.ci
async def test_codex_waits_in_its_calls(codex: Agent, stage: World, model: Model) -> None:
    """It has no tasks."""
    model.will(
        calls("mcp__clarify.ask_approval", action="Deploy 1.2 to production", wait=0),
        calls("mcp__clarify.wait_for_answer", 2, id="CLR-100001-001"),
    )
    process = await codex.start("exec", "--skip-git-repo-check", TRUSTED, "Deploy it")
    card = await stage.card("Deploy 1.2")
    await until(lambda: model.results)
    assert '"status":"waiting"' in model.results[0]
    await press(stage, card, "Accept")
    await ended(process)
    assert '"decision":"accept"' in model.results[1]
    assert len(stage.cards()) == 1
