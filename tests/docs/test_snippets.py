"""Every snippet of README and docs/ does what it says, as it stands there; what cannot run says why."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mcp import Client
from typer.testing import CliRunner

import clarify
from bot.cli.app import app
from bot.commands import grammar
from bot.integrated import commands_of
from bot.settings.load import parse_settings
from bot.signing import pem_of
from bot.web.health import Readiness
from core.workflow import Scopes
from tests.docs.references import ROOT, pages
from tests.docs.snippets import ASKS, AUDIT, BOLT, SHELL, TYPESCRIPT, VERIFIES, Snippet, run_by, snippets
from tests.kit import node
from tests.kit.processes import command
from tests.kit.world import World, config, url_of
from tests.scenario.test_decision_log import logged
from tests.unit.bot.cli.kit import Prompt
from workspace.controls import controls
from workspace.seed import AGENTS, FOLAKE
from workspace.state import Message, View

HERE = "http://127.0.0.1:8787"
BASE = {
    "[slack]": '[slack]\nfallback_channel = "C9"\n',
    "[[routes]]": '[[routes]]\nchannel = "C1"\n',
}
OF_A_TEST = {
    "url": "postgresql://u@127.0.0.1/db",
    "ical": "webcal://calendar.example.com/basic.ics",
    "key": pem_of(Ed25519PrivateKey.generate()).decode(),
}
SETS_UP = ("Answer…", "View full", "Take", "Reject", "No")  # of a card's buttons: not its first choice
ENTERED = {
    "Percent of customers": "5",
    "Percent": "5",
    "answer.freetext": "PostgreSQL",
    "answer.numeric": "5",
}
AGENT_TO_AGENT = ROOT / "docs/agents/agent-to-agent.md"


def test_every_snippet_is_run_or_says_why_not() -> None:
    assert [str(each) for each in snippets() if not each.is_skipped and each.runner is None] == []


def test_snippets_of_the_readme_are_short() -> None:
    long = [
        str(each)
        for each in snippets()
        if each.page.name == "README.md" and each.text.strip().count("\n") >= 6
    ]
    assert long == []
    assert (ROOT / "README.md").read_text().count("\n") <= 150


# -- configuration


@pytest.mark.parametrize("snippet", run_by("toml"), ids=str)
def test_configuration_is_read(snippet: Snippet, tmp_path: Path) -> None:
    if "[[steps]]" in snippet.text:
        (tmp_path / "feature.toml").write_text(snippet.text)
        assert Scopes(tmp_path).allowed("engineer") == ("architect", "product-manager")
        return
    text = "".join(each for header, each in BASE.items() if header not in snippet.text) + snippet.text
    for name in set(re.findall(r'^on_call = "(\w+)"', text, re.MULTILINE)):
        if f'name = "{name}"' not in text:
            text += f'\n[[on_call]]\nname = "{name}"\nusers = ["U1"]\n'
    named = re.findall(r'(?:(\w+)_env = |apprise:)"?(\w+)', text)
    environ = {name: OF_A_TEST.get(kind, "json://127.0.0.1:9/key") for kind, name in named}
    environ |= {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_SIGNING_SECRET": "s"}
    parse_settings(text, file=tmp_path / "clarify.toml", environ=environ)


@pytest.mark.parametrize("snippet", run_by("json"), ids=str)
def test_json_is_read(snippet: Snippet) -> None:
    value = json.loads(snippet.text)
    if "degraded" in value:
        Readiness.model_validate(value, strict=True)


# -- the shell


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ledger in it, as somebody who follows the pages has."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    folder = tmp_path / "project"
    workflows = folder / ".agentx/workflows"
    workflows.mkdir(parents=True)
    monkeypatch.chdir(folder)
    (workflow,) = [each.text for each in run_by("toml") if "[[steps]]" in each.text]
    (workflows / "feature.toml").write_text(workflow)
    typed("request", "--from", "engineer", "--to", "human", "--issue", "42", "--topic", "launch", "Launch?")
    prompt = Prompt(folder)
    over = prompt.event(43, session_id="sess_4711")
    typed("abandon", over.id)
    return folder


def typed(*words: str) -> str:
    """What a command says that has to go well."""
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, (words, done.output)
    return done.output


@pytest.mark.parametrize("snippet", run_by(SHELL), ids=str)
def test_commands_are_run(snippet: Snippet, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in snippet.commands:
        if words[0] == "export":
            for each in words[1:]:
                monkeypatch.setenv(*each.split("=", 1))
        else:
            typed(*words[1:])
    for file in ("hooks.json", "config.toml") if "hook codex" in snippet.text else ():
        assert (project.parent / ".codex" / file).is_file()
    if "hook claude-code --install --project" in snippet.text:
        assert "hook claude-code" in (project / ".claude/settings.json").read_text()


PLACEHOLDERS = {
    "ID": "CLR-42-001",
    "WORD": "answer",
    "FILE": "clarify.toml",
    "NAME": "x",
    "FOLDER": "x",
    "@ade": "<@U0ADE>",
}


def inline(start: str) -> list[tuple[str, str]]:
    """Commands within sentences: the page, and the command."""
    found = []
    for page in pages():
        prose = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for text in re.findall(rf"`({start} [^`]+)`", prose):
            words = " ".join(PLACEHOLDERS.get(each, each) for each in text.split())
            found.append((str(page.relative_to(ROOT)), words))
    return found


def test_words_for_slack_within_sentences_are_understood() -> None:
    wrong = [
        (page, text)
        for page, text in inline("/clarify")
        if text.removeprefix("/clarify ") not in grammar.VERBS
        and isinstance(grammar.parse(text, commands_of(())), grammar.Hint)
    ]
    assert wrong == []


def test_commands_within_sentences_exist() -> None:
    names = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    wrong = [
        (page, text)
        for page, text in inline("clarify")
        if (word := text.split()[1]) not in names and not word.startswith("--")
    ]
    assert wrong == []


# -- what asks people


async def answering(stage: World) -> None:
    """Somebody who answers each card: the first choice, Yes or Accept; a form with what is in `ENTERED`."""
    done: set[str] = set()

    def next_card() -> Message | None:
        return next((each for each in stage.cards() if each.ts not in done and labels(each)), None)

    while True:
        card: Message = await stage.until(next_card, 600)
        done.add(card.ts)
        choices = [each for each in labels(card) if each not in SETS_UP]
        if choices:
            outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=choices[0])
        else:
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
            view = await stage.until(partial(filled_in, stage))
            fields = {name for each in controls(view.payload["blocks"]) for name in each.names()}
            entered = {name: value for name, value in ENTERED.items() if name in fields}
            outcome = await stage.workspace.submit_view(FOLAKE, entered)
        assert outcome.ok, outcome


def filled_in(stage: World) -> View | None:
    """The form that is open, once it can be sent."""
    return next((each for each in stage.workspace.views(FOLAKE)[-1:] if each.payload.get("submit")), None)


def labels(card: Message) -> list[str]:
    return [
        each.element["text"]["text"] for each in controls(card.blocks) if each.element["type"] == "button"
    ]


async def with_somebody(stage: World, work: Coroutine[Any, Any, Any]) -> Any:
    """What comes of the work while somebody answers; whatever goes wrong there ends it."""
    person, working = asyncio.create_task(answering(stage)), asyncio.create_task(work)
    try:
        done, _ = await asyncio.wait({person, working}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert done, "nobody was asked what the snippet waits for"
        return done.pop().result()
    finally:
        for task in (person, working):
            task.cancel()
        await asyncio.gather(person, working, return_exceptions=True)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
async def test_snippets_that_ask_are_answered(stage: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, one after the other, of one bot: what a later one waits for, an earlier one asked."""
    workflows = stage.folder / ".agentx/workflows"
    workflows.mkdir(parents=True)
    (workflow,) = [each.text for each in run_by("toml") if "[[steps]]" in each.text]
    (workflows / "feature.toml").write_text(workflow)
    said: dict[str, str] = {}
    async with stage.bot(config(stage.producer.url, more='\n[[producers]]\nname = "mailer"\n')) as bot:
        monkeypatch.setenv("CLARIFY_URL", url_of(bot))
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        shutil.copy(ROOT / "clarify.py", stage.folder)
        monkeypatch.chdir(stage.folder)

        async def each_of_them() -> None:
            for snippet in run_by(ASKS):
                run = run_python if snippet.kind == "python" else run_shell
                said[str(snippet)] = await run(snippet.text.replace(HERE, url_of(bot)))

        await with_somebody(stage, each_of_them())
    assert {where: text for where, text in said.items() if not text.strip() or '"error"' in text} == {}
    for expected in (
        "\n4.1\n",
        f"65 user:slack/T0LOCAL/{FOLAKE}",
        "sending {",
        '"answer":{"percent":5,"region":"eu"}',
        '"decision":"accept"',
        "\nDeploying to eu\n",
        "\nRolling out to 5 %\n",
        "\nDeploying\n",
    ):
        assert any(expected in text for text in said.values()), expected


async def test_typescript_snippets_are_answered(stage: World, node_program: Path) -> None:
    """All at once; and `tsc` finds nothing wrong with them."""
    folder = stage.folder / "programs"
    folder.mkdir()
    shutil.copy(ROOT / "clients/clarify.ts", folder)
    shutil.copy(ROOT / "tests/clients/tsconfig.json", folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(node.FOLDER / "node_modules")
    programs = run_by(TYPESCRIPT)
    async with stage.bot() as bot:

        async def run(place: int, text: str) -> str:
            file = folder / f"{place}.ts"
            file.write_text(text.replace(HERE, url_of(bot)))
            return await run_shell(f"CLARIFY_URL={url_of(bot)} {node_program} --no-warnings {file}")

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*(run(place, each.text) for place, each in enumerate(programs)))

        said = await with_somebody(stage, all_of_them())
    assert await run_shell(f"{node_program} {folder}/node_modules/typescript/bin/tsc -p {folder}") == ""
    by = f"user:slack/T0LOCAL/{FOLAKE}"
    expected = [
        f"65 {by}",
        "sending { list: 'customers', subject: 'June' }",
        "deleting { olderThan: '90d' }",
        "eu answered",
    ]
    assert said == [f"{each}\n" for each in (*expected, "4.1", "5 eu", "5", "yes", "Blue")]


async def run_shell(text: str) -> str:
    environ = {**os.environ, "no_proxy": "127.0.0.1"}
    bash = await asyncio.create_subprocess_exec(
        "bash", "-euc", text.replace("curl ", "curl -sS "), stdout=PIPE, stderr=STDOUT, env=environ
    )
    out, _ = await bash.communicate()
    assert bash.returncode == 0, out
    return out.decode()


async def run_python(text: str) -> str:
    printed: list[str] = []
    code = compile(text, "snippet", "exec")
    await asyncio.to_thread(exec, code, {"__name__": "snippet", "print": printing(printed)})
    return "\n".join(printed)


def printing(lines: list[str]) -> Callable[..., None]:
    """For `print`: the bot in this process writes its log to standard output."""
    return lambda *words: lines.append(" ".join(map(str, words)))


async def test_agent_of_the_pages_is_answered(stage: World, port: int) -> None:
    (snippet,) = run_by("agent")
    program = snippet.text.replace("port=8080", f"port={port}").replace("asyncio.run(main())", "")
    printed: list[str] = []
    names: dict[str, Any] = {"print": printing(printed)}
    exec(compile(program, str(snippet), "exec"), names)  # noqa: S102 - our own
    async with stage.bot(config(f"http://127.0.0.1:{port}")):
        await with_somebody(stage, names["main"]())
    assert printed == [f"65 decided by user:slack/T0LOCAL/{FOLAKE}"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("snippet", run_by(VERIFIES), ids=str)
async def test_decision_is_verified_as_the_pages_say(
    stage: World, snippet: Snippet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot() as bot:
        await with_somebody(stage, asyncio.to_thread(clarify.approve, "Send the newsletter", url=url_of(bot)))
        await logged(stage, 1)
        for name, value in stage.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        monkeypatch.chdir(stage.folder)
        text = snippet.text.replace("CLR-42-001", "CLR-100001-001")
        said = await run_shell(text.replace(HERE, url_of(bot)))
    assert said.startswith("Verified: CLR-100001-001/1 “Send the newsletter” approved by user:slack/T0LOCAL/")


async def test_newsletter_of_this_month_is_found(stage: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/security/audit.md says, though it is not March."""
    (snippet,) = run_by(AUDIT)
    async with stage.bot() as bot:
        monkeypatch.setenv("CLARIFY_URL", url_of(bot))
        await with_somebody(stage, asyncio.to_thread(clarify.approve, "Send the newsletter"))
        await logged(stage, 1)
    found = await command(stage.file, "search", "newsletter", env=os.environ | stage.environ)
    assert all(each in found.out for each in ("CLR-100001-001", "Send the newsletter", FOLAKE)), found
    monkeypatch.chdir(stage.folder)
    file = stage.folder / "audit.jsonl"
    done = await command(
        stage.file, "export", "--since", "366d", "-o", str(file), env=os.environ | stage.environ
    )
    assert done.code == 0, done
    (answer,) = [
        line for each in file.read_text().splitlines() if (line := json.loads(each))["type"] == "answer"
    ]
    printed: list[str] = []
    program = snippet.text.replace("2026-03", answer["timestamp"][:7])
    exec(compile(program, str(snippet), "exec"), {"print": printing(printed)})  # noqa: S102 - our own
    at = answer["timestamp"]
    assert printed == [f"{answer['clarification']} {at} accept user:slack/T0LOCAL/{FOLAKE} in slack signed"]


async def test_bolt_app_of_the_pages_is_tested() -> None:
    (snippet,) = run_by(BOLT)
    names: dict[str, Any] = {}
    exec(compile(snippet.text, str(snippet), "exec"), names)  # noqa: S102 - our own
    await names["test_greeting_is_answered"]()


def test_responder_of_the_pages_answers(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (snippet,) = run_by("responder")
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"from": "engineer"}'))
    exec(compile(snippet.text, str(snippet), "exec"), {})  # noqa: S102 - our own
    assert capsys.readouterr().out == "Use PostgreSQL, engineer.\n"


async def test_address_for_mcp_clients_has_the_tools(stage: World) -> None:
    addresses = {
        address
        for each in snippets()
        for address in re.findall(rf"claude mcp add --transport http clarify {HERE}(/\S+)", each.text)
    }
    async with stage.bot() as bot:
        for address in addresses:
            async with Client(url_of(bot) + address) as client:
                assert "ask_human" in {tool.name for tool in (await client.list_tools()).tools}
    assert addresses == {"/mcp"}
