"""Coding agents' hooks: an event on standard input, a person in Slack, the agent's decision on standard output."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from bot.app import Bot
from bot.ask.tools import TOOLS
from core.questions import NewQuestion
from core.workflow import Speaker
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import World, config, controls, said, url_of
from workspace.controls import ControlError
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE
from workspace.state import Message

BASH = {"command": "npm test", "description": "Run the tests"}


def event(name: str = "PermissionRequest", **fields: Any) -> dict[str, Any]:
    """A hook event as Claude Code and Codex send it."""
    return {
        "session_id": "abc123",
        "transcript_path": "/home/me/.claude/projects/abc123.jsonl",
        "cwd": "/home/me/shop",
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": "Bash",
        "tool_input": BASH,
    } | fields


class Hooks:
    """Starts hooks of a bot."""

    def __init__(self, bot: Bot | None = None) -> None:
        """None: one that is away."""
        self.url = url_of(bot) if bot else "http://127.0.0.1:9"
        self._bot = bot

    @property
    def bot(self) -> Bot:
        assert self._bot is not None
        return self._bot

    async def start(self, sent: object, *more: str, agent: str = "claude-code") -> Process:
        """`sent`: the event, or any bytes."""
        command = (sys.executable, "-m", "bot.cli", "hook", agent, *more)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=os.environ | {"CLARIFY_URL": self.url}
        )
        assert process.stdin is not None
        process.stdin.write(sent if isinstance(sent, bytes) else json.dumps(sent).encode())
        process.stdin.close()
        return process

    async def decided(self, process: Process) -> Any:
        """The hook's own output; None: it printed nothing."""
        out, err = await process.communicate()
        assert process.returncode == 0, err
        assert bool(out) != bool(err), (out, err)
        return json.loads(out)["hookSpecificOutput"] if out else None

    async def decided_in_words(self, process: Process) -> Any:
        """The hook's own output where it also says why."""
        out, err = await process.communicate()
        assert (process.returncode, bool(err)) == (0, True)
        return json.loads(out)["hookSpecificOutput"]


@pytest.fixture
async def hooks(stage: World) -> AsyncIterator[Hooks]:
    async with stage.bot() as bot:
        yield Hooks(bot)


async def press(stage: World, card: Message, label: str) -> None:
    outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)
    assert outcome.ok, outcome


@pytest.mark.parametrize("name", ["PermissionRequest", "PreToolUse"])
async def test_edited_command_is_the_new_input(stage: World, hooks: Hooks, name: str) -> None:
    process = await hooks.start(event(name))
    card = await stage.card("Run a shell command")
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    entered = {"Your decision": "Accept", "command": "npm run lint"}
    assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
    found = await hooks.decided(process)
    edited = BASH | {"command": "npm run lint"}
    if name == "PreToolUse":
        assert (found["permissionDecision"], found["updatedInput"]) == ("allow", edited)
    else:
        assert found["decision"] == {"behavior": "allow", "updatedInput": edited}


async def test_what_is_redacted_is_run_as_it_was(stage: World) -> None:
    text = config(stage.producer.url, more='[[producers]]\nname = "coder"\nredact = ["sk-[a-z]+"]\n')
    given = {"command": "curl -H sk-secret", "description": "Try it"}
    async with stage.bot(text) as bot:
        process = await Hooks(bot).start(event(tool_input=given))
        card = await stage.card("curl -H [redacted]")
        await press(stage, card, "Answer…")
        assert "the agent uses its original value" in json.dumps((await stage.modal(FOLAKE)).payload)
        with pytest.raises(ControlError):  # there is no such field
            await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "command": "ls"})
        await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "description": "Try"})
        found = await Hooks(bot).decided(process)
    assert found["decision"]["updatedInput"] == given | {"description": "Try"}


@pytest.mark.parametrize(
    ("given", "entered", "edited"),
    [
        ({"command": "ls"}, {"command": "echo [redacted]"}, {"command": "echo [redacted]"}),
        ({"options": {"n": 1}}, {"options": '{"n": true}'}, {"options": {"n": True}}),
        ({"options": {"n": 1}}, {"options": '{"n": 1.0}'}, {"options": {"n": 1.0}}),
        ({"n": 1}, {"n": "1.0"}, {"n": 1.0}),
        ({"id": 2**60 + 1, "n": 1}, {"n": "2"}, {"id": 2**60 + 1, "n": 2}),
        ({"id": 2**60 + 1}, {"id": "1152921504606846979"}, {"id": 2**60 + 3}),
        ({"sk-secret": "ls"}, {"[redacted]": "pwd"}, {"sk-secret": "pwd"}),
    ],
)
async def test_accepted_edit_is_what_runs(
    stage: World, given: dict[str, Any], entered: dict[str, str], edited: dict[str, Any]
) -> None:
    """What is redacted beside it stays as it was."""
    text = config(stage.producer.url, more='[[producers]]\nname = "coder"\nredact = ["sk-[a-z]+"]\n')
    beside = {"token": "sk-other", "list": ["a", "sk-third"]}
    async with stage.bot(text) as bot:
        process = await Hooks(bot).start(event(tool_name="Use", tool_input=given | beside))
        card = await stage.card("Use the tool")
        await press(stage, card, "Answer…")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept"} | entered)).ok
        found = await Hooks(bot).decided(process)
    assert json.dumps(found["decision"]["updatedInput"]) == json.dumps(edited | beside)
    assert len(stage.record()["aaep"]["edits"]) == 1


async def test_codex_gets_no_edits(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(event(), agent="codex")
    card = await stage.card("Run a shell command")
    assert stage.record()["aaep"]["editable"] is False
    await press(stage, card, "Accept")
    assert (await hooks.decided(process))["decision"] == {"behavior": "allow"}


async def test_everybody_who_approved_is_named(stage: World) -> None:
    text = config(stage.producer.url).replace("[[routes]]", "[[routes]]\napprovals = 2")
    async with stage.bot(text) as bot:
        hooks = Hooks(bot)
        process = await hooks.start(event("PreToolUse"))
        card = await stage.card("Run a shell command")
        for user in (FOLAKE, ADE):
            assert (await stage.workspace.click(user, AGENTS, card.ts, label="Accept")).ok
        names = f"user:slack/T0LOCAL/{FOLAKE} and user:slack/T0LOCAL/{ADE}"
        reason = (await hooks.decided(process))["permissionDecisionReason"]
        assert reason == f"Approved in Slack by {names}."


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_subagent_that_asks_is_named(stage: World, agent: str) -> None:
    """It asks on the route of the agent that it works for, unless it has its own."""
    text = config(stage.producer.url, more='[[producers]]\nname = "local"\nagents = ["c*"]\n')
    route = f'[[routes]]\nagent = "Explore, for *"\nchannel = "{FALLBACK}"\n'
    async with stage.bot(f"{text}\n{route}") as bot:
        hooks = Hooks(bot)
        explores, plans = [
            await hooks.start(event(agent_id=f"a{number}", agent_type=kind), agent=agent)
            for number, kind in enumerate(("Explore", "Plan"))
        ]
        plan = await stage.card(f"Plan, for {agent}")
        assert "Subagent: a1" in said(plan)
        await press(stage, plan, "Accept")
        assert (await hooks.decided(plans))["decision"] == {"behavior": "allow"}
        explore = await stage.card(f"Explore, for {agent}", FALLBACK)
        ends = await hooks.start(
            event("PostToolUse", tool_response={}), agent=agent
        )  # of the agent's own call
        await ends.communicate()
        assert controls(stage.workspace.message(FALLBACK, explore.ts))
        ends = await hooks.start(event("SessionEnd" if agent == "claude-code" else "Stop"), agent=agent)
        await ends.communicate()
        await stage.now_says(explore, "the session ended")
        assert await hooks.decided(explores) is None


async def test_main_thread_of_any_type_is_no_subagent(stage: World, hooks: Hooks) -> None:
    """As in `claude --agent Explore`: an `agent_id` alone says that a subagent asks."""
    process = await hooks.start(event(agent_type="Explore"))
    await press(stage, await stage.card("Run a shell command"), "Accept")
    await hooks.decided(process)
    assert stage.record()["from"] == "claude-code"


def waiting(stage: World) -> int:
    """How many calls wait for the first question, wherever they came in."""
    return sum(len(bot.agents.questions._waiting.get("CLR-100001-001", ())) for bot in stage.bots)


async def test_one_call_seen_by_two_hooks_is_one_card(stage: World, hooks: Hooks) -> None:
    first = await hooks.start(event())
    card = await stage.card("Run a shell command")
    second = await hooks.start(event("PreToolUse"))
    await until(lambda: waiting(stage) == 2)
    await press(stage, card, "Accept")
    assert (await hooks.decided(first))["decision"] == {"behavior": "allow"}
    assert (await hooks.decided(second))["permissionDecision"] == "allow"
    assert len(stage.cards()) == 1
    again = await hooks.start(event())
    await stage.until(lambda: len(stage.cards()) == 2)
    again.send_signal(signal.SIGTERM)
    assert await hooks.decided(again) is None


async def test_hooks_that_start_together_are_one_card(stage: World, hooks: Hooks) -> None:
    together = [await hooks.start(event(name)) for name in ("PermissionRequest", "PreToolUse") * 2]
    await until(lambda: waiting(stage) == 4)
    await press(stage, await stage.card("Run a shell command"), "Accept")
    assert all(await asyncio.gather(*(hooks.decided(each) for each in together)))
    assert len(stage.cards()) == 1


@pytest.mark.parametrize(
    ("first", "second", "cards"),
    [
        ({"tool_use_id": "toolu_1"}, {"tool_use_id": "toolu_1"}, 1),
        ({"tool_use_id": "toolu_1"}, {}, 1),  # Claude Code's PermissionRequest has none
        ({"tool_use_id": "toolu_1"}, {"tool_use_id": "toolu_2"}, 2),
        ({}, {"tool_input": BASH | {"timeout": 1}}, 2),
        ({"tool_input": {"n": 1}}, {"tool_input": {"n": True}}, 2),
        ({}, {"session_id": "another"}, 2),
        ({}, {"cwd": "/home/me/another"}, 2),
    ],
)
async def test_only_the_same_call_is_the_same_card(
    stage: World, hooks: Hooks, first: dict[str, Any], second: dict[str, Any], cards: int
) -> None:
    one = await hooks.start(event("PreToolUse", **first))
    card = await stage.until(lambda: stage.cards() and stage.cards()[0])
    other = await hooks.start(event(**second))
    await until(lambda: sum(map(len, stage.bots[0].agents.questions._waiting.values())) == 2)
    await stage.until(lambda: len(stage.cards()) == cards)
    await press(stage, card, "Accept")
    assert (await hooks.decided(one))["permissionDecision"] == "allow"
    if cards == 2:
        assert other.returncode is None
        other.send_signal(signal.SIGTERM)
    assert bool(await hooks.decided(other)) == (cards == 1)


async def test_call_that_is_one_of_several_that_wait_is_asked_for_itself(stage: World, hooks: Hooks) -> None:
    several = [await hooks.start(event("PreToolUse", tool_use_id=f"toolu_{n}")) for n in (1, 2)]
    await stage.until(lambda: len(stage.cards()) == 2)
    third = await hooks.start(event())
    await stage.until(lambda: len(stage.cards()) == 3)
    for each in (*several, third):
        each.send_signal(signal.SIGTERM)
        await each.communicate()


async def test_no_answer_is_of_an_earlier_call(stage: World, hooks: Hooks) -> None:
    """Also where the list that a hook reads does not reach back so far."""

    async def decided(label: str, **fields: Any) -> Any:
        before = {each.ts for each in stage.cards()}
        process = await hooks.start(event(**fields))
        card = await stage.until(
            lambda: next((each for each in stage.cards() if each.ts not in before), None)
        )
        await press(stage, card, label)
        return (await hooks.decided(process))["decision"]["behavior"]

    assert await decided("Accept") == "allow"
    assert await decided("Reject") == "deny"
    asking = Speaker("local")
    for number in range(101):
        new = NewQuestion(question=f"Number {number}?", session="abc123", timeout=3600)
        record, _ = await hooks.bot.agents.questions.ask(new, asking)
        await hooks.bot.agents.questions.withdraw(record.id, "local")
    again = await hooks.start(event())
    await until(
        lambda: again.returncode is not None or sum(map(len, hooks.bot.agents.questions._waiting.values()))
    )
    assert again.returncode is None
    again.send_signal(signal.SIGTERM)
    assert await hooks.decided(again) is None


async def test_answer_that_comes_while_a_hook_joins_is_not_its_own(stage: World, hooks: Hooks) -> None:
    """It has read that the question waits, and then has to wait for its turn."""
    first = await hooks.start(event())
    card = await stage.card("Run a shell command")
    asked = hooks.bot.agents.questions
    listed = asked.listed

    async def slowly(*args: Any, **more: Any) -> Any:
        states = await listed(*args, **more)
        await press(stage, card, "Accept")
        await asked.until_settled("CLR-100001-001", "local", 60)
        return states

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked, "listed", slowly)
        second = await hooks.start(event("PreToolUse"))
        assert (await hooks.decided(first))["decision"] == {"behavior": "allow"}
        await stage.until(lambda: len(stage.cards()) == 2)
    second.send_signal(signal.SIGTERM)
    assert (await hooks.decided_in_words(second))["permissionDecision"] == "deny"


async def test_question_of_a_hook_that_was_killed_may_be_joined(stage: World, hooks: Hooks) -> None:
    killed = await hooks.start(event())
    card = await stage.card("Run a shell command")
    await until(lambda: waiting(stage) == 1)
    killed.kill()
    await killed.wait()
    await until(lambda: waiting(stage) == 0)
    again = await hooks.start(event())
    await until(lambda: waiting(stage) == 1)
    await press(stage, card, "Accept")
    assert (await hooks.decided(again))["decision"] == {"behavior": "allow"}
    assert len(stage.cards()) == 1


async def test_silence_never_allows(stage: World, hooks: Hooks) -> None:
    ways: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
        ("PermissionRequest", (), None),
        ("PreToolUse", (), "deny"),
        ("PreToolUse", ("--on-silence", "pass"), None),
        ("PermissionRequest", ("--on-silence", "deny"), "deny"),
    )
    processes: list[Process] = []
    for name, more, _ in ways:
        # Long enough for the card to be posted first: one that is withdrawn before is never shown.
        given = event(name, session_id=str(len(processes)))
        processes.append(await hooks.start(given, "--timeout", "5", *more))
        await stage.until(lambda: len(stage.cards()) == len(processes))
    for process, (_, _, decision) in zip(processes, ways, strict=True):
        out, err = await process.communicate()
        assert process.returncode == 0
        assert b"no decision within 5 s" in err
        found = json.loads(out)["hookSpecificOutput"] if out else {}
        assert (found.get("permissionDecision") or found.get("decision", {}).get("behavior")) == decision
    for card in stage.cards():
        assert not controls(await stage.now_says(card, "Withdrawn: “no one answered in time”"))


async def test_interrupt_takes_the_card_away(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(event())
    card = await stage.card("Run a shell command")
    process.send_signal(signal.SIGINT)
    assert await hooks.decided(process) is None
    assert not controls(await stage.now_says(card, "Withdrawn: “decided at the terminal”"))


async def test_busy_bot_is_told_that_nobody_waits_any_more(stage: World, hooks: Hooks) -> None:
    """Its response with the question's id is late, and nothing else tells which one to withdraw."""
    asked = 0

    async def late(request: web.Request) -> web.Response:
        nonlocal asked
        async with httpx.AsyncClient(base_url=hooks.url, trust_env=False) as http:
            sent: Any = {"content": await request.read(), "headers": {"Content-Type": "application/json"}}
            found = await http.request(request.method, request.path_qs, **sent)
        if request.method == "POST":
            asked += 1
            await asyncio.sleep(6)
        return web.Response(body=found.content, status=found.status_code, content_type="application/json")

    async with served(late) as url:
        process = await hooks.start(event(), "--url", url)
        card = await stage.card("Run a shell command")
        process.send_signal(signal.SIGTERM)
        assert await hooks.decided(process) is None
        assert asked == 2
        assert not controls(await stage.now_says(card, "Withdrawn: “decided at the terminal”"))


async def test_agent_that_ends_while_its_hook_reads_the_event_is_asked_nothing(
    stage: World, hooks: Hooks
) -> None:
    agents = """
import os, subprocess, sys
begun, begins = os.pipe()
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(begins)], pass_fds=[begins])
os.read(begun, 1)
"""
    hook = f"""
import os, sys, time, clarify
agent = os.getppid()

class Input:
    def read(self):
        os.write(int(sys.argv[1]), b"!")
        while os.getppid() == agent:
            time.sleep(0.01)
        return {json.dumps(event()).encode()!r}

sys.stdin = type("", (), {{"buffer": Input()}})
sys.exit(clarify.main(["hook", "claude-code", "--timeout", "8"]))
"""
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", agents, hook),
        stdout=PIPE,
        stderr=PIPE,
        env=os.environ | {"CLARIFY_URL": hooks.url},
    )
    assert await agent.communicate() == (b"", b"clarify hook: decided at the terminal\n")
    async with httpx.AsyncClient(base_url=hooks.url, trust_env=False) as http:
        assert (await http.get("/questions")).json()["questions"] == []


def test_signal_counts_once_wherever_it_arrives() -> None:
    """Python loses an exception that is raised in a destructor."""
    script = """
import os, signal, clarify

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

ending = clarify._Ending(60, lambda: False)
ending.begin()
Finalized()
os.kill(os.getpid(), signal.SIGTERM)
try:
    ending.check()
except clarify._Interrupted:
    print("withdraws")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "withdraws\n"), done.stderr


async def test_end_of_the_agent_takes_the_card_away(stage: World, hooks: Hooks) -> None:
    words = json.dumps(event())
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-m', 'bot.cli', 'hook', 'claude-code'], input={words!r}.encode())"
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=os.environ | {"CLARIFY_URL": hooks.url}, stderr=PIPE
    )
    card = await stage.card("Run a shell command")
    agent.kill()
    await agent.wait()
    await stage.now_says(card, "Withdrawn: “decided at the terminal”")


@pytest.mark.parametrize(
    ("ends", "words"),
    [("PostToolUse", "decided at the terminal"), ("SessionEnd", "the session ended")],
)
async def test_what_comes_after_takes_the_card_away(
    stage: World, hooks: Hooks, ends: str, words: str
) -> None:
    process = await hooks.start(event())
    card = await stage.card("Run a shell command")
    other = await hooks.start(event("PostToolUse", tool_input={"command": "something else"}))
    await other.communicate()
    assert controls(stage.workspace.message(AGENTS, card.ts))
    after = await hooks.start(event(ends, tool_response={"stdout": ""}))
    await after.communicate()
    await stage.now_says(card, f"Withdrawn: “{words}”")
    assert await hooks.decided(process) is None


async def test_only_the_cards_of_the_call_that_ran_are_taken_away(stage: World, hooks: Hooks) -> None:
    several = [
        await hooks.start(
            event("PreToolUse", tool_use_id=each, tool_input={"file_path": each}, tool_name=name)
        )
        for name, each in (("Read", "toolu_1"), ("Write", "toolu_2"))
    ] + [await hooks.start(event("PreToolUse", tool_use_id=each)) for each in ("toolu_3", "toolu_4")]
    await stage.until(lambda: len(stage.cards()) == 4)
    ran = await hooks.start(event("PostToolUse", tool_use_id="toolu_3"))
    await ran.communicate()
    assert (await hooks.decided_in_words(several[2]))["permissionDecision"] == "deny"
    assert [each.returncode for each in several] == [None, None, 0, None]
    over = await hooks.start(event("SessionEnd"))
    await over.communicate()
    for each in (several[0], several[1], several[3]):
        assert (await hooks.decided_in_words(each))["permissionDecision"] == "deny"


async def test_end_of_a_session_takes_all_its_cards_away(stage: World, hooks: Hooks) -> None:
    """As many as there are, on several pages of the list."""
    asking = Speaker("local")
    keys = ["hook-0-1", *(f"hook-what-any-asked-{number}" for number in range(45)), "of-another"]
    for key in keys:
        new = NewQuestion(action="Run", agent="claude-code", session="abc123", key=key, timeout=3600)
        await hooks.bot.agents.questions.ask(new, asking)
    over = await hooks.start(event("SessionEnd"))
    await over.communicate()
    async with httpx.AsyncClient(base_url=hooks.url, trust_env=False) as http:
        listed = (await http.get("/questions", params={"status": "waiting"})).json()
    assert [each["key"] for each in listed["questions"]] == ["of-another"]


async def test_bot_that_is_away_holds_nobody_up() -> None:
    process = await Hooks().start(event("PreToolUse"))
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert b"cannot be reached" in err


@pytest.mark.parametrize("text", ["<p>Log in</p>", "[]", '{"questions": 7}'])
async def test_server_that_is_no_bot_decides_nothing(text: str) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type="application/json")

    async with served(answer) as url:
        process = await Hooks().start(event("PreToolUse"), "--url", url)
        out, err = await process.communicate()
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert f"The server at {url} is not clarify-bot.".encode() in err


@pytest.mark.parametrize(
    ("agent", "found"),
    [
        ("claude-code", {"id": "CLR-1-002"}),
        ("claude-code", {"kind": "form"}),
        ("claude-code", {"asked": {"arguments": {"command": "ls"}}}),
        ("codex", {"answer": {"decision": "accept", "arguments": {"command": "rm -r /"}}}),
    ],
)
async def test_approval_of_another_call_decides_nothing(agent: str, found: dict[str, Any]) -> None:
    given = {"command": "npm test"}
    state = {"id": "CLR-1-001", "kind": "approval", "status": "waiting", "decided_by": "x"}
    accepted = {"answer": {"decision": "accept", "arguments": given}, "asked": {"arguments": given}}

    decided: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/questions" and request.method == "GET":
            return web.json_response({"questions": [], "next": None})
        if request.method == "POST":
            return web.json_response(state, status=201)
        return web.json_response(state | accepted | {"status": "answered"} | decided)

    async with served(answer) as url:
        for more, behavior in (({}, "allow"), (found, "deny")):
            decided |= more
            sent = event("PreToolUse", tool_input=given)
            process = await Hooks().start(sent, "--url", url, agent=agent)
            out, _ = await process.communicate()
            assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == behavior


async def test_call_waits_for_a_decision_as_long_as_one_of_its_hooks_does(stage: World, hooks: Hooks) -> None:
    first = await hooks.start(event("PreToolUse"))
    card = await stage.card("Run a shell command")
    second, third = await hooks.start(event()), await hooks.start(event(), "--timeout", "3")
    await until(lambda: waiting(stage) == 3)
    first.send_signal(signal.SIGTERM)
    assert (await hooks.decided_in_words(first))["permissionDecision"] == "deny"
    assert await hooks.decided(third) is None
    assert controls(stage.workspace.message(AGENTS, card.ts))
    second.send_signal(signal.SIGTERM)
    assert await hooks.decided(second) is None
    assert not controls(await stage.now_says(card, "Withdrawn: “decided at the terminal”"))


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
@pytest.mark.parametrize("sent", [b"", b"not JSON", b"[]", b"{}", b"[" * 200_000])
async def test_what_is_no_event_is_left_to_the_agent(sent: bytes, agent: str) -> None:
    process = await Hooks().start(sent, agent=agent)
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"")
    assert b"cannot read the event" in err
    process = await Hooks().start(sent, "--on-silence", "deny", agent=agent)
    out, _ = await process.communicate()
    assert (process.returncode, out) == (2, b"")


@pytest.mark.parametrize(
    ("name", "decision"),
    [("PermissionRequest", None), ("PreToolUse", "deny"), ("Elicitation", None), ("Notification", None)],
)
@pytest.mark.parametrize("broken", [b'"tool_input": {"command": "\xff"}}', b'"x": ' + b"[" * 200_000])
async def test_event_that_breaks_off_is_decided_by_its_name(
    name: str, decision: str | None, broken: bytes
) -> None:
    process = await Hooks().start(f'{{"hook_event_name": "{name}", "tool_name": "Bash", '.encode() + broken)
    out, err = await process.communicate()
    assert process.returncode == 0
    assert b"cannot read the event" in err
    found = json.loads(out)["hookSpecificOutput"] if out else {}
    assert found.get("permissionDecision") == decision


async def test_call_that_nobody_could_read_is_not_let_through(hooks: Hooks) -> None:
    nested: Any = {}
    for _ in range(900):
        nested = {"in": nested}
    process = await hooks.start(event("PreToolUse", tool_input=nested))
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize("tool", [each.name for each in TOOLS])
@pytest.mark.parametrize("server", ["clarify", "people"])
async def test_own_tools_are_allowed_without_a_card(tool: str, server: str) -> None:
    more = () if server == "clarify" else ("--server-name", server)
    hooks = Hooks()  # nobody is asked
    process = await hooks.start(
        event(tool_name=f"mcp__{server}__{tool}", tool_input={"question": "x"}), *more
    )
    assert (await hooks.decided(process))["decision"] == {"behavior": "allow"}


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("mcp__clarify__delete_everything", ()),
        ("mcp__clarify__shell__exec", ()),
        ("mcp__clarify__ask_human__exec", ()),
        ("mcp__clarify__", ()),
        ("mcp__people__ask_human", ()),
        ("mcp__clarify__ask_human", ("--server-name", "people")),
    ],
)
async def test_every_other_tool_is_asked_about(
    stage: World, hooks: Hooks, tool: str, more: tuple[str, ...]
) -> None:
    process = await hooks.start(event(tool_name=tool, tool_input={"question": "x"}), *more)
    await press(stage, await stage.card(tool), "Reject")
    assert (await hooks.decided(process))["decision"]["behavior"] == "deny"


def asked_of_user(question: str, header: str, *labels: str, several: bool = False) -> dict[str, Any]:
    offered = [{"label": each, "description": f"About {each}"} for each in labels]
    return {"question": question, "header": header, "options": offered, "multiSelect": several}


async def test_person_sees_all_that_the_agent_says_of_its_question(stage: World, hooks: Hooks) -> None:
    asked = asked_of_user("Which database?", "Database", "PostgreSQL", "SQLite")
    asked["options"][0]["preview"] = "create table …"
    process = await hooks.start(event(tool_name="AskUserQuestion", tool_input={"questions": [asked]}))
    card = await stage.card("Which database?")
    assert "PostgreSQL, preview: create table …" in said(card)
    await press(stage, card, "SQLite")
    found = (await hooks.decided(process))["decision"]["updatedInput"]
    assert found == {"questions": [asked], "answers": {"Which database?": "SQLite"}}


SEVERAL = {
    "questions": [
        asked_of_user("Which features?", "Features", "Search", "SSO", "Export", several=True),
        asked_of_user("Which layout?", "Layout", "Sidebar", "Tabs"),
        asked_of_user("Which name?", "Name", "shop", "store"),
    ]
}
OPEN = "(The person did not answer this question.)"


@pytest.mark.parametrize(
    ("entered", "answers"),
    [
        (
            {"Features": ["Search", "Export"], "Layout": "Tabs", "Name: in your own words": "kiosk"},
            ("Search, Export", "Tabs", "kiosk"),
        ),
        (
            {
                "Features": ["Search", "SSO"],
                "Features: in your own words": "and dark mode",
                "Layout": "Sidebar",
                "Layout: in your own words": "but on the right",
            },
            ("Search, SSO, and dark mode", "Sidebar, but on the right", OPEN),
        ),
    ],
)
async def test_several_questions_are_one_form(
    stage: World, hooks: Hooks, entered: dict[str, Any], answers: tuple[str, ...]
) -> None:
    """What was picked and what was written both reach the agent, which also learns what was left open."""
    process = await hooks.start(event(tool_name="AskUserQuestion", tool_input=SEVERAL))
    card = await stage.card("Which features?")
    await press(stage, card, "Answer…")
    assert "About Export" in json.dumps((await stage.modal(FOLAKE)).payload)
    assert (await stage.workspace.submit_view(FOLAKE, entered)).ok
    found = (await hooks.decided(process))["decision"]
    expected = dict(zip(("Which features?", "Which layout?", "Which name?"), answers, strict=True))
    assert found == {"behavior": "allow", "updatedInput": SEVERAL | {"answers": expected}}
    for value in entered.values():
        for words in value if isinstance(value, list) else [value]:
            assert words in said(await stage.now_says(card, "Answered"))


async def test_form_with_nothing_filled_in_is_no_answer(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(event(tool_name="AskUserQuestion", tool_input=SEVERAL))
    card = await stage.card("Which features?")
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    refused = await stage.workspace.submit_view(FOLAKE, {})
    assert [*refused.errors.values()] == ["Fill in at least one field to answer."]
    await stage.workspace.post(FOLAKE, AGENTS, "{}", card.ts)
    await stage.whisper(FOLAKE, "Fill in at least one field to answer.")
    assert process.returncode is None
    assert (await stage.workspace.submit_view(FOLAKE, {"Name": "shop"})).ok
    found = (await hooks.decided(process))["decision"]["updatedInput"]["answers"]
    assert found == {"Which features?": OPEN, "Which layout?": OPEN, "Which name?": "shop"}


@pytest.mark.parametrize("size", [16_048, 200_000])
async def test_end_of_a_long_plan_can_be_read(stage: World, hooks: Hooks, size: int) -> None:
    last = "LAST STEP: drop the table"
    allowed = [{"tool": "Bash", "prompt": "run anything"}]
    given = {"plan": "1. Add a table\n".ljust(size - len(last), "x") + last, "allowedPrompts": allowed}
    process = await hooks.start(event(tool_name="ExitPlanMode", tool_input=given))
    card = await stage.card("Carry out this plan")
    assert stage.record()["aaep"]["arguments"] == given
    await press(stage, card, "View full")
    whole = json.dumps((await stage.modal(FOLAKE)).payload)
    while "Next" in controls(stage.workspace.view(FOLAKE)):
        assert (await stage.workspace.click_in_view(FOLAKE, label="Next")).ok
        whole += json.dumps(stage.workspace.view(FOLAKE).payload)
    assert last in whole
    assert "run anything" in whole
    process.send_signal(signal.SIGTERM)
    await process.communicate()


@pytest.mark.parametrize(
    ("tool", "given", "why"),
    [
        ("ExitPlanMode", {"plan": "x" * 262_144}, b"at most 262144"),
        ("Write", {"file_path": "/" + "x" * 16_384, "content": "y"}, b"16,384 characters"),
        (
            "AskUserQuestion",
            {"questions": [{"question": "x" * 16_385, "options": [{"label": "y"}]}]},
            b"16,384 characters",
        ),
        (
            "AskUserQuestion",
            {"questions": [{"question": "Which?", "options": [{"label": "y"}], "about": "x" * 65_536}]},
            b"at most 65,536",
        ),
    ],
)
async def test_what_cannot_be_shown_whole_gets_no_decision(
    stage: World, hooks: Hooks, tool: str, given: dict[str, Any], why: bytes
) -> None:
    process = await hooks.start(event("PreToolUse", tool_name=tool, tool_input=given))
    out, err = await process.communicate()
    assert process.returncode == 0
    assert why in err
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert not stage.cards()


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "branch": {"type": "string", "title": "Branch", "minLength": 3},
        "copies": {"type": "integer", "title": "Copies", "minimum": 1},
        "region": {"type": "string", "title": "Region", "enum": ["eu", "us"]},
    },
    "required": ["branch"],
}


def elicitation(name: str = "Elicitation", **fields: Any) -> dict[str, Any]:
    """An MCP server's request to the user, as Claude Code hands it on, or what came of it."""
    asked = {"message": "Where shall it go?", "mode": "form", "requested_schema": SCHEMA}
    common = {name: each for name, each in event().items() if not name.startswith("tool_")}
    about = asked if name == "Elicitation" else {"action": "accept", "content": {"branch": "main"}}
    return common | {"hook_event_name": name, "mcp_server_name": "github"} | about | fields


async def test_mcp_server_gets_what_a_person_fills_in(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(elicitation())
    card = await stage.card("Where shall it go?")
    for words in ("MCP server: github", "/home/me/shop"):
        assert words in said(card)
    await press(stage, card, "Answer…")
    await stage.modal(FOLAKE)
    wrong = await stage.workspace.submit_view(FOLAKE, {"Branch": "x"})
    assert "3 characters" in json.dumps(wrong.errors)
    assert (await stage.workspace.submit_view(FOLAKE, {"Branch": "main", "Region": "eu"})).ok
    found = await hooks.decided(process)
    content = {"branch": "main", "region": "eu"}
    assert found == {"hookEventName": "Elicitation", "action": "accept", "content": content}
    assert stage.record()["from"] == "claude-code"


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {}}, None])
@pytest.mark.parametrize(
    ("label", "answer"), [("Accept", {"action": "accept", "content": {}}), ("Reject", {"action": "decline"})]
)
async def test_mcp_server_that_asks_for_nothing_but_leave_gets_it_or_not(
    stage: World, hooks: Hooks, schema: Any, label: str, answer: dict[str, Any]
) -> None:
    process = await hooks.start(elicitation(message="Delete 32 files?", requested_schema=schema))
    await press(stage, await stage.card("Delete 32 files?"), label)
    assert await hooks.decided(process) == {"hookEventName": "Elicitation"} | answer


async def test_person_who_closes_the_form_declines(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(elicitation())
    await stage.card("Where shall it go?")
    await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "abandon CLR-100001-001 we give no names")
    assert await hooks.decided(process) == {"hookEventName": "Elicitation", "action": "decline"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mode": "url", "url": "https://auth.example.com"}, b"only forms are asked in Slack"),
        ({"mode": "later"}, b"only forms are asked in Slack"),
        ({"requested_schema": []}, b"only forms are asked in Slack"),
        ({"mcp_server_name": None}, b"it must have mcp_server_name, message and session_id"),
        ({"session_id": None}, b"it must have mcp_server_name, message and session_id"),
        ({"requested_schema": {"properties": {"a": {"type": "object"}}}}, b"`schema.properties.a"),
    ],
)
async def test_what_is_no_form_is_left_to_claude_code(
    stage: World, hooks: Hooks, fields: dict[str, Any], why: bytes
) -> None:
    for more, expected in (((), None), (("--on-silence", "deny"), "cancel")):
        process = await hooks.start(elicitation(**fields), *more)
        out, err = await process.communicate()
        assert (process.returncode, why in err) == (0, True), err
        assert (json.loads(out)["hookSpecificOutput"]["action"] if out else None) == expected
    assert not stage.cards()


async def test_mcp_server_that_nobody_answers_is_answered_at_the_terminal(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(elicitation(), "--timeout", "5")
    card = await stage.card("Where shall it go?")
    assert await hooks.decided(process) is None
    assert not controls(await stage.now_says(card, "Withdrawn: “no one answered in time”"))


async def test_form_that_the_bot_redacts_answers_nobody(stage: World) -> None:
    text = config(stage.producer.url, more='[[producers]]\nname = "coder"\nredact = ["sk-[a-z]+"]\n')
    schema = {"type": "object", "properties": {"sk-a": {"type": "string"}, "b": {"type": "string"}}}
    async with stage.bot(text) as bot:
        process = await Hooks(bot).start(elicitation(requested_schema=schema))
        await press(stage, await stage.card("Where shall it go?"), "Answer…")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"b": "main"})).ok
        assert await Hooks(bot).decided(process) is None


@pytest.mark.parametrize(
    ("ends", "words"),
    [("ElicitationResult", "decided at the terminal"), ("SessionEnd", "the session ended")],
)
async def test_answer_to_an_mcp_server_takes_its_card_away(
    stage: World, hooks: Hooks, ends: str, words: str
) -> None:
    process = await hooks.start(elicitation())
    card = await stage.card("Where shall it go?")
    for other in (
        elicitation("ElicitationResult", mcp_server_name="another"),
        elicitation("ElicitationResult", session_id="another"),
        event("PostToolUse", tool_response={}),
    ):
        await (await hooks.start(other)).communicate()
    assert controls(stage.workspace.message(AGENTS, card.ts))
    after = await hooks.start(elicitation(ends) if ends == "ElicitationResult" else event(ends))
    assert await after.communicate() == (b"", b"")
    await stage.now_says(card, f"Withdrawn: “{words}”")
    assert await hooks.decided(process) is None


async def test_subagents_request_of_an_mcp_server_names_it(stage: World, hooks: Hooks) -> None:
    process = await hooks.start(elicitation(agent_id="a1", agent_type="Explore"))
    card = await stage.card("Explore, for claude-code")
    await (
        await hooks.start(elicitation("ElicitationResult", agent_id="a1", agent_type="Explore"))
    ).communicate()
    await stage.now_says(card, "Withdrawn: “decided at the terminal”")
    assert await hooks.decided(process) is None


INSTALLED = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "copilot": ".github/hooks/clarify.json",
}


@asynccontextmanager
async def installed(folder: Path, agent: str, *more: str) -> AsyncIterator[tuple[Path, str]]:
    command = (sys.executable, "-m", "bot.cli", "hook", agent, "--install", "--project", *more)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=PIPE, env=os.environ | {"PYTHONPATH": str(Path.cwd())}
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    yield folder / INSTALLED[agent], out.decode()


async def test_install_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / ".claude/settings.json"
    file.parent.mkdir()
    mine = {"type": "command", "command": "lint"}
    file.write_text(
        json.dumps({"model": "opus", "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [mine]}]}})
    )
    for _ in range(2):
        async with installed(tmp_path, "claude-code", "--tools", "Bash|Edit", "--timeout", "100") as (
            path,
            _,
        ):
            settings = json.loads(path.read_text())
    assert settings["model"] == "opus"
    theirs, ours = settings["hooks"]["PreToolUse"]
    assert theirs == {"matcher": "Bash", "hooks": [mine]}
    assert (ours["matcher"], ours["hooks"][0]["timeout"]) == ("Bash|Edit", 130)
    assert " hook claude-code --timeout 100 --on-silence deny | " in ours["hooks"][0]["command"]
    (asks,) = settings["hooks"]["PermissionRequest"][0]["hooks"]
    assert asks["command"].endswith(" hook claude-code --timeout 100 || exit 0")
    assert len(settings["hooks"]["PermissionRequest"]) == 1
    assert {"PostToolUse", "ElicitationResult", "SessionEnd"} <= settings["hooks"].keys()
    assert settings["hooks"]["Elicitation"] == settings["hooks"]["PermissionRequest"]


@pytest.mark.parametrize(
    ("options", "path", "activated", "named"),
    [
        (["--project"], True, False, True),
        (["--project"], True, True, False),  # another shell would not find it
        (["--project"], False, False, False),
        ([], True, False, False),
    ],
)
def test_install_names_the_program_without_its_folder_where_settings_are_shared(
    tmp_path: Path, options: list[str], path: bool, activated: bool, named: bool
) -> None:
    program = Path(sys.executable).with_name("clarify")
    environ = {"HOME": str(tmp_path), "PATH": f"{program.parent}:/usr/bin:/bin" if path else "/usr/bin:/bin"}
    if activated:
        environ["VIRTUAL_ENV"] = str(program.parents[1])
    command = [str(program), "hook", "claude-code", "--install", *options]
    subprocess.run(command, cwd=tmp_path, env=environ, check=True)
    settings = json.loads((tmp_path / ".claude/settings.json").read_text())
    (ours,) = settings["hooks"]["PermissionRequest"][0]["hooks"]
    assert ours["command"] == f"{'clarify' if named else program} hook claude-code || exit 0"


async def test_install_says_what_the_server_is_called(tmp_path: Path) -> None:
    async with installed(tmp_path, "claude-code", "--server-name", "people") as (path, _):
        (asks,) = json.loads(path.read_text())["hooks"]["PermissionRequest"]
    assert " hook claude-code --server-name people " in asks["hooks"][0]["command"]


async def test_install_for_codex_says_that_hooks_have_to_be_trusted(tmp_path: Path) -> None:
    async with installed(tmp_path, "codex", "--dry-run") as (path, shown):
        assert not path.exists()
        assert "PermissionRequest" in shown
        assert "trusted" in shown
    async with installed(tmp_path, "codex") as (path, _):
        (asks,) = json.loads(path.read_text())["hooks"]["PermissionRequest"]
        assert asks["hooks"][0]["timeout"] == 90


async def test_install_for_copilot_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / INSTALLED["copilot"]
    file.parent.mkdir(parents=True)
    mine = {"type": "command", "bash": "lint", "timeoutSec": 5}
    file.write_text(json.dumps({"version": 1, "hooks": {"permissionRequest": [mine]}}))
    for _ in range(2):
        async with installed(tmp_path, "copilot", "--timeout", "100") as (path, _):
            settings = json.loads(path.read_text())
    theirs, ours = settings["hooks"]["permissionRequest"]
    assert theirs == mine
    assert (ours["type"], ours["timeoutSec"]) == ("command", 130)
    assert " hook copilot --timeout 100 | " in ours["bash"]
    (ends,) = settings["hooks"]["SessionEnd"]
    assert ends["bash"].endswith(" hook copilot --timeout 100 || exit 0")
    assert settings["version"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("copilot", "--tools", "bash"), b"before its own rules"),
        (("claude-code", "--defer"), b"with --tools"),
        (("codex", "--tools", "Bash", "--defer"), b"only for claude-code"),
    ],
)
def test_install_refuses_what_the_agent_cannot_do(tmp_path: Path, words: tuple[str, ...], why: bytes) -> None:
    command = (sys.executable, "-m", "bot.cli", "hook", *words, "--install", "--project")
    environ = os.environ | {"PYTHONPATH": str(Path.cwd())}
    ended = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert ended.returncode == 2
    assert why in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("agent", "variable", "name"),
    [
        ("codex", "CODEX_HOME", "hooks.json"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json"),
        ("copilot", "COPILOT_HOME", "hooks/clarify.json"),
    ],
)
async def test_install_goes_where_the_agent_keeps_its_settings(
    tmp_path: Path, agent: str, variable: str, name: str
) -> None:
    there = tmp_path / "elsewhere"
    known = os.environ | {"PYTHONPATH": str(Path.cwd()), "HOME": str(tmp_path / "home")}
    for env, folder in (
        (known, tmp_path / "home" / f".{agent.partition('-')[0]}"),
        (known | {variable: str(there)}, there),
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bot.cli", "hook", agent, "--install", cwd=tmp_path, stdout=PIPE, env=env
        )
        await process.communicate()
        assert process.returncode == 0
        assert "hooks" in json.loads((folder / name).read_text())


ROOT = Path(__file__).parents[2]
_PYTHON, _CLARIFY = sys.executable, ROOT / "clarify.py"
BROKEN = {  # what keeps a hook from starting: the script that runs in place of `clarify` and `python3`
    "missing": None,
    "not executable": "",
    "old Python": "echo 'SyntaxError: invalid syntax' >&2; exit 1",
    "no such file": f"exec {_PYTHON} /no/such/clarify.py",  # exit code 2
    "empty file": f"exec {_PYTHON} /dev/null",  # exit code 0
    "wrong arguments": f"exec {_PYTHON} {_CLARIFY} hook claude-code --no-such-option",  # exit code 2
    "no module": f"exec {_PYTHON} -m no_such_module",
    "killed": "kill -9 $$",
    "another program": "echo 'clarify 7.1'",
}
INSTALL = [
    "claude-code --tools Bash",
    "claude-code --tools Bash --defer",
    "claude-code --tools Bash --on-silence deny",
    "claude-code --tools Bash --on-silence pass",
    "codex --tools Bash",
    "codex --tools Bash --on-silence deny",
    "copilot",
    "copilot --on-silence pass",
]
BY_HAND = ["clients/claude-code/hooks/hooks.json", "examples/codex/hooks.json", "docs/agents/copilot.md"]


def settings_of(source: str, folder: Path) -> str:
    """The settings that `--install` writes with these words, or that a file of ours shows."""
    if source in BY_HAND:
        text = (ROOT / source).read_text().replace("${CLAUDE_PLUGIN_ROOT}", str(ROOT / "clients/claude-code"))
        return text.partition("```json\n")[2].partition("```")[0] if source.endswith(".md") else text
    program = Path(sys.executable).with_name("clarify")
    environ = os.environ | {"HOME": str(folder), "PATH": f"{program.parent}:/usr/bin:/bin"}
    words = [str(program), "hook", *source.split(), "--install", "--project"]
    subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True)
    return (folder / INSTALLED[source.split(maxsplit=1)[0]]).read_text()


def hooks_in(settings: str) -> list[tuple[str, str]]:
    """The events and commands of an agent's settings."""
    return [
        (name, hook.get("command") or hook["bash"])
        for name, entries in json.loads(settings)["hooks"].items()
        for entry in entries
        for hook in entry.get("hooks", [entry])
    ]


@pytest.mark.parametrize(
    "source",
    [
        *BY_HAND,
        INSTALL[1],
        *(pytest.param(each, marks=pytest.mark.ci) for each in INSTALL if each != INSTALL[1]),
    ],
)
def test_hook_that_cannot_start_lets_nothing_through(source: str, tmp_path: Path) -> None:
    """`PreToolUse` denies, and so does Copilot's hook, which comes before its rules too. Every other hook is silent: exit code 2
    would deny, or send an agent that wants to stop back to work.
    """
    found = hooks_in(settings_of(source, tmp_path))
    chosen = source.partition("--on-silence ")[2]
    for number, (broken, script) in enumerate(BROKEN.items()):
        path = tmp_path / f"bin{number}"
        path.mkdir()
        for name in ("sh", "grep"):
            (path / name).symlink_to(str(shutil.which(name)))
        for name in ("clarify", "python3") if script is not None else ():
            (path / name).write_text(f"#!/bin/sh\n{script}\n")
            (path / name).chmod(0o755 if script else 0o644)
        for name, command in found:
            ended = subprocess.run(
                ["/bin/sh", "-c", command],
                input=json.dumps(event(name)).encode(),
                env={"PATH": str(path)},
                capture_output=True,
                check=False,
            )
            silence = "deny" if name in {"PreToolUse", "permissionRequest"} else "pass"
            if chosen and name in {"PreToolUse", "permissionRequest", "PermissionRequest", "Elicitation"}:
                silence = chosen
            if silence == "deny":
                assert (ended.returncode, ended.stdout) == (2, b""), (broken, name, ended)
                assert b"hook could not run" in ended.stderr
            else:
                said = b"clarify 7.1\n" if broken == "another program" else b""
                assert (ended.returncode, ended.stdout) == (0, said), (broken, name, ended)


@pytest.mark.parametrize("name", ["PreToolUse", "PermissionRequest"])
async def test_shell_between_the_agent_and_its_hook_does_not_keep_the_card(
    stage: World, hooks: Hooks, name: str, tmp_path: Path
) -> None:
    """It outlives the agent that was killed."""
    commands = dict(hooks_in(settings_of("claude-code --tools Bash", tmp_path)))
    agent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import subprocess, sys\n"
        "subprocess.run(['sh', '-c', sys.argv[1]], input=sys.argv[2].encode(), capture_output=True)",
        commands[name],
        json.dumps(event(name)),
        env=os.environ | {"CLARIFY_URL": hooks.url, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
    )
    card = await stage.card("Run a shell command")
    agent.kill()
    await agent.wait()
    await stage.now_says(card, "Withdrawn: “decided at the terminal”")
