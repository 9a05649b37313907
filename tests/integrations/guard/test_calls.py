"""What the bot allows whoever forwards a call: to send it once, after an Accept, and what becomes of it afterwards."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from bot.api import strict_json
from bot.app import Bot
from bot.errors import StorageUnavailable
from bot.integrations.guard import calls
from bot.web import server
from core.errors import NotFound
from tests.integrations.guard.kit import RULES
from tests.kit.databases import found_in
from tests.kit.processes import command
from tests.kit.until import until
from tests.kit.world import World, config, environment, said, url_of
from workspace.seed import AGENTS, FOLAKE

TOOL = {"name": "delete_user", "description": "Deletes.", "inputSchema": {"type": "object"}}
ONE, OTHER = "1" * 20, "2" * 20
DIGEST = "d" * 43


class Caller:
    def __init__(self, stage: World, bot: Bot, http: httpx.AsyncClient) -> None:
        self.stage = stage
        self.bot = bot
        self.http = http

    @property
    def guard(self) -> calls.Calls:
        return next(each for each in self.bot.feed.consumers if isinstance(each, calls.Calls))

    async def hold(self, call: str = "c" * 20, **more: Any) -> httpx.Response:
        body = {"call": call, "tool": TOOL, "arguments": {"name": "ann"}} | more
        return await self.http.post("/guard/prod/calls", json=body)

    async def held(self, **more: Any) -> str:
        answer = await self.hold(**more)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def sent(self) -> str:
        call = await self.held()
        await self.press("Accept")
        assert (await self.look(call, wait=20))["status"] == "accepted"
        assert await self.send(call) == 200
        return call

    def states(self) -> list[Any]:
        return found_in(self.stage.rows, "select state from guard_calls order by asked_at")

    def owed(self) -> list[Any]:
        return found_in(self.stage.rows, "select owed from guard_calls order by asked_at")

    async def press(self, label: str) -> None:
        card = await self.stage.card("Call delete_user on prod")
        assert (await self.stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok

    async def look(self, call: str, wait: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = (await self.http.get(f"/guard/prod/calls/{call}?wait={wait}")).json()
        return found

    async def send(self, call: str, sender: str = ONE) -> int:
        path = f"/guard/prod/calls/{call}/send"
        return (await self.http.post(path, json={"sender": sender})).status_code

    async def done(self, call: str, sender: str = ONE, **more: Any) -> dict[str, Any]:
        path = f"/guard/prod/calls/{call}/done"
        found: dict[str, Any] = (await self.http.post(path, json={"sender": sender} | more)).json()
        return found


@asynccontextmanager
async def calling(stage: World, rules: str = RULES, more: str = "") -> AsyncIterator[Caller]:
    async with (
        stage.bot(config(stage.producer.url, more=more + rules)) as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        yield Caller(stage, bot, http)


@pytest.fixture
async def caller(stage: World) -> AsyncIterator[Caller]:
    async with calling(stage) as made:
        yield made


async def test_only_an_accept_lets_a_call_be_sent_and_only_by_the_first(caller: Caller) -> None:
    call = await caller.held()
    assert await caller.send(call) == 409
    await caller.press("Accept")
    state = await caller.look(call, wait=20)
    assert (state["status"], state["arguments"]) == ("accepted", {"name": "ann"})
    assert [await caller.send(call, each) for each in (ONE, ONE, OTHER)] == [200, 200, 409]
    assert (await caller.http.delete(f"/guard/prod/calls/{call}")).status_code == 409
    assert (await caller.done(call, OTHER, result_sha256=DIGEST))["status"] == "sent"
    assert (await caller.done(call, ONE, result_sha256=DIGEST, is_error=False))["status"] == "done"
    assert await caller.send(call) == 409


async def test_cancellation_that_comes_before_sent_wins(caller: Caller) -> None:
    call = await caller.held()
    await caller.press("Accept")
    assert (await caller.look(call, wait=20))["status"] == "accepted"
    assert (await caller.http.delete(f"/guard/prod/calls/{call}")).json()["status"] == "cancelled"
    assert await caller.send(call) == 409
    assert (await caller.look(call))["status"] == "cancelled"
    assert "Accepted, but" in said(await caller.stage.message("Not sent"))


async def test_metrics_say_how_often_each_rule_asks_and_what_people_said(caller: Caller) -> None:
    await caller.held(call="a" * 20)
    await caller.press("Accept")
    tool = {"name": "transfer", "inputSchema": {"type": "object"}}
    await caller.held(call="b" * 20, tool=tool, arguments={"amount": 5000})
    shown = 'clarify_guard_calls{guard="prod",outcome="accepted",rule="ask \\"delete_*\\""} 1.0'
    for _ in range(100):
        text = (await caller.http.get("/metrics")).text
        if shown in text:
            break
        await caller.look("CLR-100001-001", wait=1)
    assert shown in text
    assert 'outcome="undecided",rule="ask \\"transfer\\" where amount > 1000"} 1.0' in text
    assert 'clarify_guard_decision_seconds{guard="prod",rule="ask \\"delete_*\\""}' in text
    assert 'clarify_guard_doubts{guard="prod"} 0.0' in text


async def test_result_that_comes_late_ends_the_doubt(caller: Caller) -> None:
    call = await caller.held()
    await caller.press("Accept")
    await caller.look(call, wait=20)
    await caller.send(call)
    assert (await caller.done(call))["status"] == "doubt"
    assert (await caller.done(call, result_sha256=DIGEST))["status"] == "done"


async def test_repeated_request_is_the_same_call(caller: Caller) -> None:
    assert await caller.held() == await caller.held()
    assert await caller.held(call="e" * 20) != await caller.held()


async def test_silence_sends_nothing(stage: World) -> None:
    async with calling(stage, RULES + 'timeout = "1s"\n') as caller:
        call = await caller.held()
        state = await caller.look(call, wait=25)
        assert (state["status"], state["reason"]) == (
            "refused",
            "No one decided in time. The call was not made.",
        )
        assert await caller.send(call) == 409


REDACTING = """
[[producers]]
name = "pusher"
redact = ["s3cret"]
"""


@pytest.mark.parametrize(
    ("change", "said_"),
    [
        ({"arguments": {"password": "s3cret"}}, "could not see `arguments` whole"),
        ({"tool": TOOL | {"name": "delete_s3cret"}}, "could not see `action` whole"),
        ({"arguments": {"text": "x" * 300_000}}, "`arguments` is invalid"),
    ],
)
async def test_call_that_cannot_be_shown_whole_is_refused(
    stage: World, change: dict[str, Any], said_: str
) -> None:
    rules = RULES.replace('["local"]', '["pusher"]')
    async with calling(stage, rules, REDACTING) as caller:
        answer = await caller.hold(**change)
        assert answer.status_code == 422
        assert said_ in answer.json()["message"]
    assert stage.issues() == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"call": "short"}, 400),
        ({"tool": {"name": "x"}}, 400),
        ({"arguments": []}, 400),
        ({"agent": 1}, 400),
        ({"arguments": {"a": 1, "b": 2}, "tool": TOOL | {"inputSchema": {"required": ["c"]}}}, 422),
    ],
)
async def test_request_that_cannot_be_read_is_refused(caller: Caller, change: Any, status: int) -> None:
    assert (await caller.hold(**change)).status_code == status


async def test_tool_whose_schema_cannot_be_read_is_asked_about_without_editing(caller: Caller) -> None:
    await caller.held(tool=TOOL | {"inputSchema": {"$ref": "https://example.org/schema"}})
    await caller.press("Accept")


async def test_guard_is_for_its_producers_alone(stage: World) -> None:
    async with calling(stage, RULES.replace('["local"]', '["someone"]')) as caller:
        assert (await caller.hold()).json()["error"] == "NO_GUARD"
        assert (await caller.http.get("/guard/none")).status_code == 404


async def test_log_says_what_became_of_a_call(stage: World) -> None:
    async with calling(stage) as caller:
        call = await caller.held()
        await caller.press("Accept")
        await caller.look(call, wait=20)
        await caller.send(call)
        await caller.done(call, result_sha256=DIGEST, is_error=True)
        env = environment(stage.workspace) | stage.environ
        stage.configure(config(stage.producer.url, more=RULES))
        kinds = "select kind from decisions order by seq"
        await until(lambda: found_in(stage.rows, kinds) == ["decision", "executed"])
        log = stage.folder / "log.jsonl"
        log.write_text((await command(stage.file, "log", env=env)).out)
        last = json.loads(log.read_text().splitlines()[-1])["claims"]
        assert (last["jti"], last["result_sha256"], last["is_error"]) == (f"{call}/1", DIGEST, True)
        assert (await command(stage.file, "verify", "--log", str(log), env=env)).code == 0
        assert call in (await command(stage.file, "search", "delete_user", env=env)).out


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_LOOK", 0.1)


@pytest.fixture
def killed_early(caller: Caller) -> Iterator[pytest.MonkeyPatch]:
    """Threads get no notices until this is undone, as if the bot was killed before."""

    async def thread(*_: Any) -> None:
        raise StorageUnavailable("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caller.guard.host.teller, "thread", thread)
        yield patch


@pytest.mark.usefixtures("_looks_often")
async def test_people_hear_of_a_doubt_though_the_bot_was_killed_before_it_told_them(
    caller: Caller, killed_early: pytest.MonkeyPatch
) -> None:
    call = await caller.sent()
    await caller.done(call)
    assert caller.states() == ["doubt"]
    killed_early.undo()
    assert "Look whether it took effect" in said(await caller.stage.message("In doubt"))
    await until(lambda: caller.owed() == [None])


@pytest.mark.usefixtures("_looks_often")
async def test_people_hear_that_nothing_was_sent_though_the_bot_was_killed_before_it_told_them(
    caller: Caller, killed_early: pytest.MonkeyPatch
) -> None:
    call = await caller.held()
    await caller.press("Accept")
    await caller.look(call, wait=20)
    await until(lambda: found_in(caller.stage.rows, "select outcome from guard_calls") == ["accepted"])
    await caller.http.delete(f"/guard/prod/calls/{call}")
    assert caller.states() == ["ended"]
    killed_early.undo()
    assert "Accepted, but" in said(await caller.stage.message("Not sent"))
    await until(lambda: caller.owed() == [None])


async def test_agent_whose_response_is_lost_hears_of_a_doubt_again(caller: Caller) -> None:
    await caller.done(await caller.sent())
    first, again = [(await caller.hold("e" * 20)).json()["status"] for _ in range(2)]
    assert (first, again) == ("doubt", "doubt")
    assert (await caller.hold("f" * 20)).json()["status"] == "held"


async def test_record_that_cannot_be_used_keeps_no_other_call_waiting(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = await caller.held(), await caller.held(call="e" * 20)
    questions = caller.guard.host.questions
    withdraw = questions.withdraw

    async def broken(call: str, *given: str) -> Any:
        if call == bad:
            raise NotFound(call)
        return await withdraw(call, *given)

    monkeypatch.setattr(questions, "withdraw", broken)
    await caller.guard.end_lost(caller.stage.clock.now() + timedelta(seconds=61))
    assert (await caller.look(good))["status"] == "refused"


@pytest.mark.parametrize("wait", ["26", "-1", "x", "9" * 5000])
async def test_wait_that_is_no_number_of_seconds_is_refused(caller: Caller, wait: str) -> None:
    call = await caller.held()
    answer = await caller.http.get(f"/guard/prod/calls/{call}?wait={wait}")
    assert (answer.status_code, answer.json()["error"]) == (400, "BAD_INPUT")


async def test_calls_that_wait_share_the_places_of_all_that_wait(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_WAITING", 1)
    async with calling(stage) as caller:
        call = await caller.held()
        waiting = asyncio.create_task(caller.look(call, wait=25))
        await until(lambda: caller.guard.host.questions._waiting.get(call))
        async with asyncio.timeout(15):
            assert (await caller.look(call, wait=25))["status"] == "held"
            asked = await caller.http.get(f"/questions/{call}?wait=25")
        assert asked.headers["Retry-After"]
        assert not waiting.done()
        await caller.http.delete(f"/guard/prod/calls/{call}")
        assert (await waiting)["status"] == "refused"


async def test_large_body_is_read_beside_the_event_loop(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[bool]()

    def noted(body: bytes) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return strict_json(body)

    monkeypatch.setattr(calls, "strict_json", noted)
    for size in (1, 40_000):
        tool = TOOL | {"description": "x" * size}
        assert (await caller.http.post("/guard/prod/tools", json={"tools": [tool]})).status_code == 200
    assert threads == [True, False]


def named(*numbers: int) -> dict[str, Any]:
    return {"tools": [TOOL | {"name": f"get_{number}"} for number in numbers]}


async def test_too_many_tools_are_refused_and_those_beyond_the_room_count_as_changed(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def verdicts(*numbers: int) -> list[str]:
        answer = await caller.http.post("/guard/prod/tools", json=named(*numbers))
        return [each["verdict"] for each in answer.json()["tools"].values()]

    assert (await caller.http.post("/guard/prod/tools", json=named(*range(1001)))).status_code == 400
    assert found_in(caller.stage.rows, "select count(*) from guard_tools") == [0]
    monkeypatch.setattr(calls, "_MOST_KNOWN", 3)
    monkeypatch.setattr(calls, "_AT_ONCE", 2)
    assert await verdicts(1, 2, 3, 4) == ["allow", "allow", "allow", "ask"]
    assert await verdicts(3, 4) == ["allow", "ask"]
    assert found_in(caller.stage.rows, "select count(*) from guard_tools") == [3]
    await caller.held(tool=named(4)["tools"][0])
    assert "changed" not in said(await caller.stage.card("Call get_4 on prod"))


async def test_no_statement_reads_all_calls(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    if caller.stage.database is not None:
        pytest.skip("its planner reads a small table whole")
    store, heard = caller.guard.host.store, list[tuple[str, dict[str, Any]]]()

    def noted(original: Callable[..., Any], sql: str, **values: Any) -> Any:
        heard.append((sql, values))
        return original(sql, **values)

    for name in ("read", "read_one", "run"):
        monkeypatch.setattr(store, name, partial(noted, getattr(store, name)))
    await caller.done(await caller.sent())
    await caller.hold("e" * 20)
    await caller.http.get("/guard/doubts")
    await caller.http.get("/metrics")
    await caller.guard.settle_owed()
    await caller.guard.end_lost(caller.stage.clock.now() + timedelta(seconds=61))
    asked = [(sql, values) for sql, values in heard if "guard_calls" in sql]
    with closing(sqlite3.connect(caller.stage.folder / "clarify.db")) as db:
        plans = [
            (sql, row[3]) for sql, values in asked for row in db.execute(f"explain query plan {sql}", values)
        ]
    assert len(asked) > 8
    assert [each for each in plans if each[1].startswith("SCAN")] == []
