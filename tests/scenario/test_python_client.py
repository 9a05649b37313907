"""Python programs ask people with `clarify.py`: answers, ends without one, restarts of the bot, Ctrl-C, cancellation."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from aiohttp import web
from pydantic import BaseModel, Field

import clarify
from tests.kit.clocks import LeapClock
from tests.kit.lives import Life
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import World, config, controls, scene, url_of
from workspace.seed import AGENTS, FOLAKE

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def url(stage: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with stage.bot() as bot:
        monkeypatch.setenv("CLARIFY_URL", url_of(bot))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # for this machine, there is none
        yield url_of(bot)


async def test_answer_says_who_chose_what(stage: World, url: str) -> None:
    choices: list[str | dict[str, str]] = ["65", {"value": "67", "label": "Sixty-seven"}]

    def ask() -> clarify.Answer[Any]:
        return clarify.ask("Which age?", choices=choices, agent="planner", session="s")

    asking = asyncio.create_task(asyncio.to_thread(ask))
    card = await stage.card("Which age?")
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Sixty-seven")
    answer = await asking
    assert (answer.value, answer.label, answer.status) == ("67", "Sixty-seven", "answered")
    assert answer.decided_by is not None
    assert answer.decided_by.startswith("user:slack/")
    assert (answer.state["agent"], answer.state["session"]) == ("planner", "s")
    await stage.now_says(card, "the agent has resumed")


async def test_many_tasks_wait_at_once(stage: World, url: str) -> None:
    asking = [asyncio.create_task(clarify.aio.ask(f"Number {n}?", kind="number")) for n in range(12)]
    cards = [await stage.card(f"Number {n}?") for n in range(12)]
    for n in reversed(range(12)):
        await stage.workspace.post(FOLAKE, AGENTS, str(n), cards[n].ts)
    assert [answer.value for answer in await asyncio.gather(*asking)] == list(range(12))


async def test_what_is_redacted_is_as_it_was_sent_and_edits_are_literal(stage: World) -> None:
    bare = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    sent = {
        "note": "as usual",
        "deep": {"n": [1, {"m": 1}]},
        "password": {"of": ["me", "hunter2"]},
        "hunter3": 1.0,
    }
    async with stage.bot(config(stage.producer.url, more=bare)) as bot:
        asking = asyncio.create_task(
            clarify.aio.approve("Log in", arguments=sent, editable=True, url=url_of(bot))
        )
        card = await stage.card("Log in")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
        await stage.modal(FOLAKE)
        entered = {"note": "[redacted]", "deep": '{"n": [1.0, {"m": true}]}'}
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept"} | entered)).ok
        approval = await asking
    edited = {"note": "[redacted]", "deep": {"n": [1.0, {"m": True}]}}
    assert json.dumps(approval.arguments) == json.dumps(sent | edited)
    shown = {"password": {"of": ["me", "[redacted]"]}, "[redacted]": 1.0}
    assert approval.state["asked"] == {
        "kind": "approval",
        "action": "Log in",
        "risk": {"claimed": "medium", "counted": "medium"},
        "approvals": 1,
        "arguments": {"note": "as usual", "deep": sent["deep"]} | shown,
    }


@pytest.mark.parametrize(
    ("answered", "asked", "sent", "expected"),
    [
        ({"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}),
        ({"a": True}, {"a": 1}, {"a": 1}, {"a": True}),
        ({"a": 1.0}, {"a": 1}, {"a": 1}, {"a": 1.0}),
        ({"a": "[redacted]"}, {"a": "x"}, {"a": "x"}, {"a": "[redacted]"}),
        ({"a": "[redacted]"}, {"a": "[redacted]"}, {"a": 4111}, {"a": 4111}),
        (["new", "[redacted]"], ["[redacted]", "b"], ["secret", "b"], ["new", "[redacted]"]),
        (["[redacted]", "c", "d"], ["[redacted]", "b"], ["secret", "b"], ["secret", "c", "d"]),
        (
            {"b": {"[redacted]": 2}},
            {"b": {"[redacted]": 1, "c": 1}},
            {"b": {"s": 1, "c": 1}},
            {"b": {"s": 2}},
        ),
        ({"c": 1, "new": 2}, {"[redacted]": 1, "c": 1}, {"s": 1, "c": 1}, {"c": 1, "new": 2}),
        ({"a": ["x"]}, {"a": {"x": 1}}, {"a": {"x": 1}}, {"a": ["x"]}),
        ({"a": [2, 3]}, {"a": [1, 3]}, {"a": [1, 3]}, {"a": [2, 3]}),
        ({}, {}, {"a": 1}, {}),
        ({"a": 1}, {"a": 1}, {}, {"a": 1}),
        ([1], [1], [1, 2], [1]),
    ],
)
def test_places_that_were_not_changed_are_as_they_were_sent(
    answered: Any, asked: Any, sent: Any, expected: Any
) -> None:
    assert json.dumps(clarify.unredacted(answered, asked, sent)) == json.dumps(expected)


class Sink:
    """A bot that loses its first response, and then has an Accept of what it was asked first."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        if len(self.bodies) == 1:
            return web.Response(status=503)
        sent = self.bodies[0]["arguments"]
        answer = {"decision": "accept", "arguments": sent}
        return web.json_response(
            {"id": "CLR-100001-001", "status": "answered", "answer": answer, "asked": {"arguments": sent}}
        )


async def test_what_is_approved_is_what_was_passed_whatever_becomes_of_it_meanwhile() -> None:
    sink, arguments = Sink(), {"to": ["ann"], "deep": {"count": 1}}
    async with served(sink.handle) as url:
        asking = asyncio.create_task(clarify.aio.approve("Send it", arguments=arguments, url=url))
        await until(lambda: sink.bodies)
        arguments["to"].append("everyone")  # type: ignore[attr-defined]
        arguments["deep"]["count"] = 1204  # type: ignore[index]
        approval = await asking
    assert approval.arguments == {"to": ["ann"], "deep": {"count": 1}}
    assert sink.bodies[0] == sink.bodies[1]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (date(2026, 12, 1), "date"),
        (b"x", "bytes"),
        ({"a"}, "set"),
        ({1: "a"}, "int as a name"),
    ],
)
@pytest.mark.parametrize("how", ["sync", "asyncio"])
async def test_nobody_is_asked_about_arguments_that_are_not_json(value: Any, what: str, how: str) -> None:
    sink = Sink()
    async with served(sink.handle) as url:
        more: dict[str, Any] = {"arguments": {"a": {"b": [1, value]}}, "url": url}
        asks: Any = clarify.aio.approve
        if how == "sync":
            asks = lambda *a, **k: asyncio.to_thread(lambda: clarify.approve(*a, **k))  # noqa: E731
        with pytest.raises(ValueError, match="is no JSON value") as wrong:
            await asks("Send it", **more)
        with pytest.raises(ValueError, match="`default` is no JSON value"):
            await clarify.aio.ask("How many?", default=float("nan"), url=url)
        with pytest.raises(ValueError, match="`timeout` must be a number of seconds"):
            await clarify.aio.ask("How many?", timeout=float("nan"), url=url)
    assert str(wrong.value) == f"`arguments.a.b[1]` is no JSON value ({what}). Convert it first."
    assert sink.bodies == []


class Plan(BaseModel):
    """What a plan needs."""

    name: str = Field(title="Name")
    start: date | None = Field(default=None, title="Start")
    size: Literal["small", "large"] = Field(title="Size")


@pytest.mark.parametrize("how", ["sync", "asyncio"])
async def test_form_comes_back_as_the_model(stage: World, url: str, how: str) -> None:
    def ask() -> clarify.Answer[Plan]:
        return clarify.ask("Plan it", schema=Plan)

    asking = asyncio.ensure_future(
        asyncio.to_thread(ask) if how == "sync" else clarify.aio.ask("Plan it", schema=Plan)
    )
    card = await stage.card("Plan it")
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Answer…")
    await stage.modal(FOLAKE)
    assert (
        await stage.workspace.submit_view(FOLAKE, {"Name": "A", "Start": "2026-12-01", "Size": "large"})
    ).ok
    answer = await asking
    plan: Plan = answer.value
    assert plan == Plan(name="A", start=date(2026, 12, 1), size="large")


async def test_form_may_be_a_schema_and_its_default_a_model(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(600)) as stage, stage.bot() as bot:
        usual = Plan(name="as last time", size="small")
        about: dict[str, Any] = {"timeout": 60, "url": url_of(bot)}
        answer = await clarify.aio.ask("Plan it", schema=Plan, default=usual, **about)
        assert (answer.value, answer.status) == (usual, "expired")
        plain = {"name": "as last time", "size": "small"}
        same = await clarify.aio.ask("Plan that", schema=Plan.model_json_schema(), default=plain, **about)
        assert (same.value, same.state["default"]) == (plain, plain)


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_question_that_is_too_large_is_refused_at_once(url: str, how: str) -> None:
    """The bot hangs up before it has read it all, as if it were away."""
    more: Any = {"arguments": {"text": "x" * 31_000_000}, "timeout": 60}
    if how == "sync":
        asking: Any = asyncio.to_thread(clarify.approve, "Send it", **more)
    else:
        asking = clarify.aio.approve("Send it", **more)
    with pytest.raises(clarify.BadQuestion, match=r"31000\d{3} bytes of JSON; at most 1048576") as refused:
        await asyncio.wait_for(asking, 20)
    assert (refused.value.status, refused.value.code) == (413, "TOO_LARGE")


async def test_cancelled_task_withdraws(stage: World, url: str) -> None:
    asking = asyncio.create_task(clarify.aio.ask("Still needed?", kind="yes_no"))
    card = await stage.card("Still needed?")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not controls(await stage.now_says(card, "Withdrawn"))


async def test_ctrl_c_withdraws(stage: World, url: str) -> None:
    program = "import clarify; clarify.ask('Still needed?', kind='yes_no')"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, env=dict(os.environ), stderr=subprocess.PIPE
    )
    card = await stage.card("Still needed?")
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert b"KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT
    assert not controls(await stage.now_says(card, "Withdrawn"))


@pytest.mark.parametrize("how", ["sync", "asyncio"])
async def test_bot_is_killed_while_the_question_waits(stage: World, port: int, how: str) -> None:
    stage.configure(config(stage.producer.url, more=f'[http]\nlisten = "127.0.0.1:{port}"\n'))
    more: dict[str, Any] = {"choices": ["a", "b"], "url": f"http://127.0.0.1:{port}"}
    async with Life.of(stage) as life:
        work = (
            clarify.aio.ask("Which?", **more)
            if how == "asyncio"
            else asyncio.to_thread(lambda: clarify.ask("Which?", **more))
        )
        asking = asyncio.ensure_future(work)
        card = await stage.card("Which?")
        await life.killed()
    async with Life.of(stage):
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="b")
        assert (await asking).value == "b"
        await stage.now_says(card, "the agent has resumed")
        assert len(stage.cards()) == 1


def test_import_is_light() -> None:
    """A hook starts for each call of a tool."""
    program = "import sys; import clarify; clarify.Client(); print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"asyncio", "ssl", "http", "urllib.request", "logging", "socket", "bot"} & set(found)
