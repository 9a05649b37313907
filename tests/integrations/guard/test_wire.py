"""What passes a guard, line by line: no client and no server gets a call past its rule, or made twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from bot.api import Request, Response
from bot.integrations.guard.calls import Calls
from bot.web import server
from tests.integrations.guard.kit import RULES, Guarded, call, told
from tests.kit.stdio import FILE, Json
from tests.kit.until import until
from tests.kit.world import World, config, controls, said
from workspace.seed import FOLAKE


@pytest.fixture
async def guarded(stage: World) -> AsyncIterator[Guarded]:
    async with Guarded.running(stage) as made:
        yield made


def line(message: object) -> bytes:
    return json.dumps(message).encode() + b"\n"


DELETE: Json = {"jsonrpc": "2.0", **call(7, "delete_user", name="ann")}
HIDDEN = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"delete_user","arguments":%b}}\n'
SMUGGLED = {
    "batch": line([DELETE]),
    "name twice": b'{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call","params":{"name":"get_user"}}\n',
    "tool twice": HIDDEN.replace(b'"name":"delete_user"', b'"name":"get_user","name":"delete_user"') % b"{}",
    "NaN": HIDDEN % b'{"amount":NaN}',
    "Infinity": HIDDEN % b'{"amount":1e999}',
    "inexact number": HIDDEN % b'{"amount":0.10000000000000000000000000001}',
    "bad UTF-8": HIDDEN % b'{"name":"\xff"}',
    "UTF-16": json.dumps(DELETE).encode("utf-16") + b"\n",
    "comment": b"/* */" + line(DELETE),
    "two messages": line(DELETE).strip() + line(DELETE),
    "notification": line({"jsonrpc": "2.0", "method": "tools/call", "params": DELETE["params"]}),
    "null id": line(DELETE | {"id": None}),
    "float id": line(DELETE | {"id": 7.5}),
    "our id": line(DELETE | {"id": "clarify:1"}),
    "method in other case": line(DELETE | {"method": "Tools/Call"}),
    "method with a space": line(DELETE | {"method": "tools/call "}),
    "member in other case": line(
        {"jsonrpc": "2.0", "id": 7, "method": "ping", "Method": "tools/call", "params": {}}
    ),
    "response and request": line(DELETE | {"result": {}}),
    "parameter in other case": line(DELETE | {"params": {"name": "get_user", "Name": "delete_user"}}),
    "tool that is no text": line(DELETE | {"params": {"name": ["delete_user"]}}),
    "arguments that are a list": line(DELETE | {"params": {"name": "delete_user", "arguments": []}}),
    "parameters that are a list": line(DELETE | {"params": ["delete_user"]}),
    "unknown method": line(DELETE | {"method": "tools/callMany"}),
    "another version": line(DELETE | {"jsonrpc": "1.0"}),
    "nested too deeply": HIDDEN % (b'{"a":' * 30_000 + b"1" + b"}" * 30_000),
}


async def test_nothing_is_smuggled_past_a_rule(guarded: Guarded) -> None:
    async with guarded.wire() as wire:
        for name, data in SMUGGLED.items():
            wire.write(data)
            if name in {
                "name twice",
                "NaN",
                "inexact number",
                "method in other case",
                "parameter in other case",
            }:
                assert "error" in await wire.said(7), "its client waits for it"
        assert told(await wire.answer(call("last", "get_user", name="ann"))) == "get_user done"
    heard = [each for each in guarded.heard() if not str(each.get("id")).startswith("clarify:")]
    assert heard == [{"jsonrpc": "2.0", **call("last", "get_user", name="ann")}]
    assert guarded.states() == []


@pytest.mark.parametrize("other", ["allow", "ask"])
async def test_unknown_methods_pass_only_where_all_else_is_allowed(stage: World, other: str) -> None:
    rules = RULES + f'other = "{other}"\n'
    async with Guarded.running(stage, rules=rules) as guarded, guarded.wire() as wire:
        answers = [
            await wire.answer({"id": method, "method": method, "params": {}})
            for method in ("acme/stats", "ping", "Tools/Call", "TOOLS/LIST")
        ]
    passed = ["result" in each for each in answers]
    assert passed == [other == "allow", True, False, False]


async def test_client_that_cancels_withdraws_and_a_later_accept_makes_no_call(
    stage: World, guarded: Guarded
) -> None:
    async with guarded.wire() as wire:
        wire.send(call(7, "delete_user", name="ann"))
        card = await guarded.card("Call delete_user on prod")
        wire.send({"method": "notifications/cancelled", "params": {"requestId": 7}})
        await until(lambda: guarded.states() == ["ended"])
        after = await stage.now_says(card, "Withdrawn: “the agent no longer waits”")
        assert "Accept" not in controls(after)
        assert told(await wire.answer(call(8, "get_user"))) == "get_user done"
        assert wire.is_silent(7)
    assert guarded.made() == [["get_user", {}]]
    assert not any(each.get("method") == "notifications/cancelled" for each in guarded.heard())


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
async def test_client_that_leaves_withdraws(stage: World, guarded: Guarded, number: int | None) -> None:
    async with guarded.wire() as wire:
        wire.send(call(7, "delete_user", name="ann"))
        card = await guarded.card("Call delete_user on prod")
        if number is not None:
            wire.process.send_signal(number)
    await stage.now_says(card, "Withdrawn: “the agent no longer waits”")
    assert (guarded.states(), guarded.made()) == (["ended"], [])


async def test_accept_after_the_client_was_killed_sends_nothing_and_says_so(
    stage: World, guarded: Guarded
) -> None:
    async with guarded.wire() as wire:
        wire.send(call(7, "delete_user", name="ann"))
        card = await guarded.card("Call delete_user on prod")
        wire.process.kill()
        await wire.process.wait()
    await guarded.press(FOLAKE, card, "Accept")
    await until(lambda: guarded.states() == ["accepted"])
    await guarded.a_minute_passes()
    assert "the agent no longer waits" in said(await stage.message("Not sent"))
    assert (guarded.states(), guarded.made()) == (["ended"], [])


async def test_guard_that_was_killed_after_it_sent_leaves_the_call_in_doubt_and_both_hear_of_it(
    stage: World,
) -> None:
    async with Guarded.running(stage, "mute") as guarded:
        async with guarded.wire() as wire:
            wire.send(call(7, "delete_user", name="ann"))
            card = await guarded.card("Call delete_user on prod")
            await guarded.press(FOLAKE, card, "Accept")
            await until(lambda: guarded.made() == [["delete_user", {"name": "ann"}]])
            wire.process.kill()
            await wire.process.wait()
        assert guarded.states() == ["sent"]
        await guarded.a_minute_passes()
        assert guarded.states() == ["doubt"]
        assert "Look whether it took effect" in said(await stage.message("In doubt"))
        async with guarded.wire() as wire:
            again = await wire.answer(call(1, "delete_user", name="ann"))
            assert again["result"]["isError"] is True
            assert told(again).startswith("An earlier call of delete_user: In doubt")
            assert len(guarded.states()) == 1
            wire.send(call(2, "delete_user", name="ann"))
            await until(lambda: guarded.states() == ["doubt", "held"])
        assert len(guarded.made()) == 1


SLOW = """
import signal, threading

ends, call, on_signals = threading.Event(), clarify.Client.call, clarify._on_signals

def noted(handler):
    on_signals(handler)
    if handler is signal.SIG_IGN:
        threading.Timer(0.5, ends.set).start()

def slow(client, given, *more, **others):
    found = call(client, given, *more, **others)
    if given.path.endswith("/send"):
        ends.wait()
    return found

clarify._on_signals, clarify.Client.call = noted, slow
"""


async def test_client_that_leaves_while_the_bot_marks_a_call_as_sent_leaves_no_doubt(
    guarded: Guarded,
) -> None:
    async with guarded.wire(guarded.changed(SLOW)) as wire:
        wire.send(call(7, "delete_user", name="ann"))
        await guarded.press(FOLAKE, await guarded.card("Call delete_user on prod"), "Accept")
        await until(lambda: guarded.states() == ["sent"])
        await wire.end()
    assert guarded.made() == [["delete_user", {"name": "ann"}]]
    await until(lambda: guarded.states() == ["done"])


async def test_guard_that_the_bot_lets_wait_no_longer_looks_every_two_seconds(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[float](), Calls._look

    async def noted(calls: Calls, request: Request) -> Response:
        looks.append(time.monotonic())
        return await look(calls, request)

    monkeypatch.setattr(server, "_MOST_WAITING", 0)
    monkeypatch.setattr(Calls, "_look", noted)
    async with Guarded.running(stage) as guarded, guarded.wire() as wire:
        wire.send(call(7, "delete_user", name="ann"))
        await until(lambda: len(looks) > 1)
        assert looks[1] - looks[0] > 1
        await guarded.press(FOLAKE, await guarded.card("Call delete_user on prod"), "Accept")
        assert told(await wire.said(7)) == "delete_user done"


async def test_tools_of_a_server_with_more_than_a_thousand_are_all_judged(stage: World) -> None:
    async with Guarded.running(stage, "many") as guarded, guarded.wire() as wire:
        for tool in ("get_user", "get_999"):
            assert told(await wire.answer(call(tool, tool))) == f"{tool} done"


async def test_server_that_ends_in_a_call_leaves_it_in_doubt(stage: World) -> None:
    async with Guarded.running(stage, "dies") as guarded, guarded.wire() as wire:
        wire.send(call(7, "delete_user", name="ann"))
        await guarded.press(FOLAKE, await guarded.card("Call delete_user on prod"), "Accept")
        assert told(await wire.said(7)).startswith("In doubt: the call was sent")
        assert await wire.process.wait() == 3
        await until(lambda: guarded.states() == ["doubt"])
        await stage.message("In doubt")


async def test_server_that_answers_before_it_is_called_is_not_believed(stage: World) -> None:
    async with Guarded.running(stage, "rude") as guarded, guarded.wire() as wire:
        wire.send(call(40, "delete_user", name="ann"))
        card = await guarded.card("Call delete_user on prod")
        assert wire.is_silent(40)
        await guarded.press(FOLAKE, card, "Accept")
        assert told(await wire.said(40)) == "delete_user done"
        assert guarded.made() == [["delete_user", {"name": "ann"}]]


async def test_tool_that_changed_asks_once_and_the_card_shows_how(stage: World) -> None:
    async with Guarded.running(stage, "grows") as guarded:
        async with guarded.wire() as wire:
            assert told(await wire.answer(call(1, "get_user"))) == "get_user done"
            await wire.answer({"id": 2, "method": "tools/list"})
            wire.send(call(3, "get_user"))
            card = await guarded.card("Call get_user on prod")
            assert '-  \\"description\\": \\"Version 1.\\"' in said(card) or "Version 2." in said(card)
            assert "changed since a person last saw it" in said(card)
            await guarded.press(FOLAKE, card, "Accept")
            assert told(await wire.said(3)) == "get_user done"
            assert told(await wire.answer(call(4, "get_user"))) == "get_user done"
        assert len(guarded.made()) == 3


async def test_bot_that_is_away_lets_nothing_pass(stage: World) -> None:
    async with Guarded.running(stage) as guarded:
        command = guarded.changed("clarify._GONE = 0.5")
    async with guarded.wire(command) as wire:
        for tool in ("get_user", "delete_user"):
            answer = await wire.answer(call(tool, tool))
            assert answer["result"]["isError"] is True
            assert "cannot be reached" in told(answer)
    assert guarded.made() == []


INSTALLED = (sys.executable, "-m", "bot.cli")


@pytest.mark.parametrize("program", [FILE[:-1], INSTALLED], ids=["one file", "installed"])
async def test_dry_run_says_what_becomes_of_each_tool_and_calls_nothing(
    guarded: Guarded, program: tuple[str, ...]
) -> None:
    words = [*program, "guard", "prod", "--url", guarded.url, "--dry-run", "--", *guarded.server]
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert [each.split("\t") for each in out.decode().splitlines()] == [
        ["allow", "get_user", 'allow "get_*"'],
        ["ask", "delete_user", 'ask "delete_*"'],
        ["ask", "transfer", 'ask "transfer" where amount > 1000'],
        ["deny", "drop_table", 'deny "drop_*"'],
    ]
    assert guarded.made() == []


async def test_dry_run_without_a_bot_fails(guarded: Guarded) -> None:
    words = [*guarded.changed("clarify._GONE = 0.5")]
    words[words.index(guarded.url)] = "http://127.0.0.1:9"
    words.insert(words.index("--"), "--dry-run")
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    _, why = await process.communicate()
    assert (process.returncode, b"cannot be reached" in why) == (1, True)


async def test_calls_in_doubt_are_listed(stage: World) -> None:
    async with Guarded.running(stage, "dies") as guarded:
        async with guarded.wire() as wire:
            wire.send(call(7, "delete_user", name="ann"))
            await guarded.press(FOLAKE, await guarded.card("Call delete_user on prod"), "Accept")
            await wire.process.wait()
        await until(lambda: guarded.states() == ["doubt"])
        words = [*FILE[:-1], "guard", "doubts", "--url", guarded.url]
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert out.decode().startswith("CLR-100001-001\tprod\tdelete_user\t")


async def test_bot_that_restarts_while_a_call_waits_still_has_it_made_once(stage: World, port: int) -> None:
    listening = f'[http]\nlisten = "127.0.0.1:{port}"\n'
    async with Guarded.running(stage, rules=listening + RULES) as guarded:
        command = [each.replace(guarded.url, f"http://127.0.0.1:{port}") for each in guarded.command]
    async with guarded.wire(command) as wire:
        async with stage.bot(config(stage.producer.url, more=listening + RULES)):
            wire.send(call(7, "delete_user", name="ann"))
            card = await guarded.card("Call delete_user on prod")
        async with stage.bot(config(stage.producer.url, more=listening + RULES)):
            await guarded.press(FOLAKE, card, "Accept")
            assert told(await wire.said(7)) == "delete_user done"
            await until(lambda: guarded.states() == ["done"])
    assert guarded.made() == [["delete_user", {"name": "ann"}]]
