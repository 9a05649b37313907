"""Agents that ask over HTTP, in one process: real routes, real ledgers, a real router."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from bot.ask.questions import Reading
from bot.storage.ledger import DatabaseLedger
from bot.web.clarifications import clarification_routes
from bot.web.guard import Callers
from bot.web.server import build_app
from core.clarification import Ask, Clarification, Decider, Question
from core.hub import Hub
from core.router import Router
from core.workflow import Scopes, Speaker
from tests.kit.clocks import ManualClock
from tests.kit.databases import issues_in
from tests.kit.ledgers import change_record, write_records
from tests.kit.until import until
from tests.unit.bot.web.serving import serving

ID = "CLR-42-001"
LONG = 60.0  # seconds for what is bound to come
TOKENS = {"planner": SecretStr("t-planner"), "other": SecretStr("t-other")}
ARCHITECT = Decider("agent:architect", "responder")
QUESTION: dict[str, Any] = {
    "from": "engineer",
    "to": "architect",
    "issue": 42,
    "topic": "storage",
    "question": "Which database?",
}
WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect"]
clarify_max_rounds = 2

[[steps]]
agent = "writer"
can_clarify = ["architect"]
clarify_blocking_allowed = false
"""


@dataclass
class World:
    app: FastAPI
    client: httpx.AsyncClient
    hub: Hub
    ledger: DatabaseLedger
    router: Router
    clock: ManualClock
    folder: Path

    async def ask(self, headers: dict[str, str] | None = None, **changes: object) -> httpx.Response:
        return await self.client.post("/clarifications", json=QUESTION | changes, headers=headers)

    async def answer(self, clarification: str, text: str = "PostgreSQL") -> Clarification:
        return await self.hub.answer(clarification, text, ARCHITECT)


@asynccontextmanager
async def opened(
    ledger: DatabaseLedger, folder: Path, most_waiting: int = 1000, speakers: dict[str, Speaker] | None = None
) -> AsyncIterator[World]:
    (folder / "workflows").mkdir(exist_ok=True)
    (folder / "workflows" / "feature.toml").write_text(WORKFLOW)
    clock = ManualClock()
    router = Router(ledger, clock, timedelta(minutes=30), lambda _: None)
    hub = Hub(router=router, ledger=ledger, scopes=Scopes(folder / "workflows"), clock=clock, via="http")
    callers = Callers(TOKENS, speakers)
    routes = clarification_routes(
        hub=hub, ledger=ledger, callers=callers, most_waiting=most_waiting, reading=Reading()
    )
    app = build_app([routes], callers)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://bot.test",
        headers={"Authorization": "Bearer t-planner"},
    ) as client:
        yield World(app, client, hub, ledger, router, clock, folder)


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[World]:
    async with opened(ledger, tmp_path) as made:
        yield made


async def by_event(world: World, producer: str) -> str:
    """A question that a producer's session asked by an event."""
    asked = Question(received_at=world.clock.now(), producer=producer, session_id="s", reply_token="t1")
    ask = Ask("agent", "Go on?", "human", None, True, asked)
    return (await world.router.open(7, ask)).record.id


async def test_ask_is_written_and_located(world: World) -> None:
    answer = await world.ask(context="see ADR 7", blocking=False)

    assert answer.status_code == 201
    assert answer.headers["Location"] == f"/clarifications/{ID}"
    body = answer.json()
    assert {
        "id": ID,
        "from": "engineer",
        "status": "pending",
        "round": 1,
        "maxRounds": 2,
    }.items() <= body.items()
    assert (body["created"], body["staleAfter"]) == ("2026-11-21T09:00:00.000Z", "2026-11-21T09:30:00.000Z")
    record = await world.hub.find(ID)
    assert (record.question, record.asked.context, record.asked.via) == (
        "Which database?",
        "see ADR 7",
        "http",
    )
    assert not record.blocking
    assert (await world.client.get(answer.headers["Location"])).json() == body


@pytest.mark.parametrize(
    ("changes", "status", "error", "field"),
    [
        ({"to": "writer"}, 403, "SCOPE_VIOLATION", None),
        ({"from": "writer"}, 403, "SCOPE_VIOLATION", None),
        ({"from": " HUMAN "}, 403, "SCOPE_VIOLATION", None),
        ({"from": "<@U0123ABCD>", "to": "human"}, 403, "SCOPE_VIOLATION", None),
        ({"from": "\u200b"}, 422, "BAD_INPUT", "from"),
        ({"question": "  "}, 422, "BAD_INPUT", "question"),
        ({"context": "x" * 4097}, 422, "BAD_INPUT", "context"),
        ({"issue": "42"}, 422, "BAD_INPUT", "issue"),
        ({"blocking": "yes"}, 422, "BAD_INPUT", "blocking"),
        ({"colour": "red"}, 422, "BAD_INPUT", "colour"),
    ],
)
async def test_ask_refuses_with_a_reason(
    world: World, changes: dict[str, Any], status: int, error: str, field: str | None
) -> None:
    answer = await world.ask(**changes)

    body = answer.json()
    assert (answer.status_code, body["error"], body.get("field")) == (status, error, field)
    assert body["message"]
    assert issues_in(world.folder / "clarify.db") == []


async def test_rounds_go_on_until_people_have_it(world: World) -> None:
    path = f"/clarifications/{ID}/follow-up"
    await world.ask()
    early = await world.client.post(path, json={"question": "Which version?"})
    await world.answer(ID)
    second = await world.client.post(path, json={"question": "Which version?"})
    await world.answer(ID, "17")
    third = await world.client.post(path, json={"question": "Really?"})
    again = await world.ask(question="Are you sure?")

    assert (early.status_code, early.json()["error"]) == (409, "ILLEGAL_TRANSITION")
    assert (second.status_code, second.json()["round"], second.json()["status"]) == (201, 2, "pending")
    assert [each["body"] for each in second.json()["thread"]] == [
        "Which database?",
        "PostgreSQL",
        "Which version?",
    ]
    assert (third.status_code, third.json()["error"]) == (409, "MAX_ROUNDS_EXCEEDED")
    assert (again.status_code, again.json()["error"]) == (409, "MAX_ROUNDS_EXCEEDED")
    assert (await world.hub.find(ID)).status == "escalated"


@pytest.mark.parametrize(
    ("topic", "headers", "changes", "became"),
    [
        ("storage", {}, {}, "the same"),
        ("storage", {}, {"topic": "  Storage "}, "the same"),
        ("", {}, {"topic": " "}, "the same"),
        ("storage", {"Idempotency-Key": "k2"}, {}, "another"),
        ("storage", {"Authorization": "Bearer t-other"}, {}, "another"),
        ("storage", {}, {"question": "Which cache?"}, "KEY_REUSED"),
        ("storage", {}, {"topic": "archive"}, "KEY_REUSED"),
        ("storage", {}, {"to": "human"}, "KEY_REUSED"),
    ],
)
async def test_key_makes_asking_twice_one_question_and_swallows_no_other(
    world: World, topic: str, headers: dict[str, str], changes: dict[str, str], became: str
) -> None:
    key = {"Idempotency-Key": "k1"}
    asked = await world.ask(key, topic=topic)
    again = await world.ask(key | headers, **({"topic": topic} | changes))
    assert (asked.status_code, again.status_code) == (201, 409 if became == "KEY_REUSED" else 201)
    assert again.json().get("error") == ("KEY_REUSED" if became == "KEY_REUSED" else None)
    assert (again.json() == asked.json()) == (became == "the same")
    assert len((await world.ledger.read(42)).records) == (2 if became == "another" else 1)


async def test_key_counts_for_rounds_and_after_them(world: World) -> None:
    path, key = f"/clarifications/{ID}/follow-up", {"Idempotency-Key": "k2"}
    await world.ask({"Idempotency-Key": "k1"})
    await world.answer(ID)
    for _ in range(2):
        asked = await world.client.post(path, json={"question": "Which version?"}, headers=key)
        assert (asked.status_code, asked.json()["round"]) == (201, 2)
    await world.answer(ID, "17")
    first = await world.ask({"Idempotency-Key": "k1"})
    assert (first.status_code, first.json()["status"]) == (201, "answered")
    for _ in range(2):
        last = await world.client.post(path, json={"question": "Really?"}, headers={"Idempotency-Key": "k3"})
        assert (last.status_code, last.json()["error"]) == (409, "MAX_ROUNDS_EXCEEDED")
    (record,) = (await world.ledger.read(42)).records
    bodies = [entry.body for entry in record.thread if entry.type == "question"]
    assert bodies == ["Which database?", "Which version?", "Really?"]


@pytest.mark.parametrize("path", ["CLR-42-001", "CLR-999999999999999-999"])
async def test_look_finds_nothing(world: World, path: str) -> None:
    answer = await world.client.get(f"/clarifications/{path}", params={"wait": 60})
    assert (answer.status_code, answer.json()["error"]) == (404, "NOT_FOUND")


async def waiting(world: World, **params: int) -> asyncio.Task[httpx.Response]:
    task = asyncio.create_task(world.client.get(f"/clarifications/{ID}", params={"wait": 60, **params}))
    await until(lambda: world.ledger._waiting)
    return task


async def test_look_waits_for_the_answer_through_other_changes(world: World) -> None:
    await world.ask()
    task = await waiting(world)
    await world.router.hold_back(ID, "not now")
    await world.answer(ID)

    body = (await asyncio.wait_for(task, LONG)).json()
    assert (body["status"], body["answer"], body["decidedBy"]) == (
        "answered",
        "PostgreSQL",
        "agent:architect",
    )
    assert (await world.client.get(f"/clarifications/{ID}", params={"wait": 60})).json() == body


async def test_look_waits_for_the_next_round(world: World) -> None:
    await world.ask()
    task = await waiting(world, after_round=1)
    await world.answer(ID)
    await world.hub.follow_up(ID, "Which version?")
    assert (await asyncio.wait_for(task, LONG)).json()["round"] == 2


async def test_look_waits_for_any_change_also_one_of_another_program(world: World) -> None:
    revision = (await world.ask()).json()["revision"]
    task = await waiting(world, revision=revision)
    async with aclosing(world.ledger.changes()) as changes:
        await anext(changes)
        change_record(world.folder, 42, lambda raw: raw.update(topic="Storage, again"))
        await anext(changes)
        body = (await asyncio.wait_for(task, LONG)).json()
    assert (body["topic"], body["revision"]) == ("Storage, again", revision + 1)
    at_once = await world.client.get(f"/clarifications/{ID}", params={"wait": 60, "revision": revision + 1})
    assert at_once.json() == body


async def test_look_ends_at_shutdown_as_it_is(world: World) -> None:
    await world.ask()
    task = await waiting(world)
    world.app.state.stopping.set()
    answer = await asyncio.wait_for(task, LONG)
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert not world.ledger._waiting


async def test_look_tells_when_too_many_wait(ledger: DatabaseLedger, tmp_path: Path) -> None:
    async with opened(ledger, tmp_path, most_waiting=1) as world:
        await world.ask()
        task = await waiting(world)
        refused = await world.client.get(f"/clarifications/{ID}", params={"wait": 60})
        assert (refused.status_code, refused.json()["error"]) == (503, "BUSY")
        await world.answer(ID)
        assert (await asyncio.wait_for(task, LONG)).status_code == 200


async def test_caller_with_most_that_wait_makes_room_for_another(
    ledger: DatabaseLedger, tmp_path: Path
) -> None:
    async with opened(ledger, tmp_path, most_waiting=2) as world:
        await world.ask()
        theirs = await world.ask({"Authorization": "Bearer t-other"}, issue=43)
        tasks = [await waiting(world), await waiting(world)]
        await until(lambda: len(world.ledger._waiting) == 2)
        other = asyncio.create_task(
            world.client.get(
                theirs.headers["Location"], params={"wait": 60}, headers={"Authorization": "Bearer t-other"}
            )
        )
        first = await asyncio.wait_for(tasks[0], LONG)
        assert (first.status_code, first.json()["status"]) == (200, "pending")
        await world.answer(ID)
        await world.answer(theirs.json()["id"])
        assert {(await asyncio.wait_for(each, LONG)).json()["status"] for each in (tasks[1], other)} == {
            "answered"
        }


async def test_gone_callers_leave_their_place(world: World) -> None:
    await world.ask()
    async with (
        serving(world.app) as server,
        httpx.AsyncClient(
            base_url=server.url, headers=world.client.headers, timeout=LONG, trust_env=False
        ) as client,
    ):
        task = asyncio.create_task(client.get(f"/clarifications/{ID}", params={"wait": 60}))
        await until(lambda: world.ledger._waiting)
        task.cancel()
        await until(lambda: not world.ledger._waiting)


async def test_producers_see_their_own_sessions_and_what_agents_asked(world: World) -> None:
    mine, others = await by_event(world, "planner"), await by_event(world, "other")
    await world.ask({"Authorization": "Bearer t-other"})

    assert (await world.client.get(f"/clarifications/{mine}")).status_code == 200
    hidden = await world.client.get(f"/clarifications/{others}")
    assert (hidden.status_code, hidden.json()["error"]) == (404, "NOT_FOUND")
    asked = await world.client.post(f"/clarifications/{others}/follow-up", json={"question": "And?"})
    assert asked.status_code == 404
    mine_too = await world.client.post(f"/clarifications/{mine}/follow-up", json={"question": "And?"})
    assert (mine_too.status_code, mine_too.json()["error"]) == (400, "BAD_INPUT")
    listed = (await world.client.get("/clarifications")).json()
    assert [each["id"] for each in listed["clarifications"]] == [mine, ID]
    assert "t1" not in json.dumps(listed)


async def test_list_goes_page_by_page(world: World) -> None:
    for issue in (42, 9, 42, 100):
        await world.ask(issue=issue, topic=f"t{issue}")
    await world.answer(ID)
    pages, after = [], None
    while True:
        params: dict[str, Any] = {"limit": 2} | ({"after": after} if after else {})
        body = (await world.client.get("/clarifications", params=params)).json()
        pages.append([each["id"] for each in body["clarifications"]])
        if (after := body["next"]) is None:
            break
    assert pages == [["CLR-9-001", ID], ["CLR-42-002", "CLR-100-001"]]

    async def ids(**params: Any) -> list[str]:
        found = (await world.client.get("/clarifications", params=params)).json()["clarifications"]
        return [each["id"] for each in found]

    assert await ids(issue=42) == [ID, "CLR-42-002"]
    assert await ids(status="answered") == [ID]
    assert await ids(status="open", issue=42) == ["CLR-42-002"]


async def test_list_leaves_out_what_cannot_be_read(world: World) -> None:
    await world.ask()
    write_records(world.folder, 7, {"id": "CLR-7-001"})
    body = (await world.client.get("/clarifications")).json()
    assert ([each["id"] for each in body["clarifications"]], body["unreadable"]) == ([ID], ["CLR-7-001"])


async def test_nobody_answers_over_http(world: World) -> None:
    await world.ask()
    for method, path in (("POST", f"/clarifications/{ID}/answer"), ("PUT", f"/clarifications/{ID}")):
        assert (await world.client.request(method, path, json=QUESTION)).status_code in {404, 405}
