"""Much that one caller asks of the bot delays no other caller, no hook and no click."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi.responses import JSONResponse

import core.questions
from bot.ask.questions import Questions, Reading
from bot.web import questions as door
from core.clarification import Clarification, parse_id
from core.ledger import Contents, Ledger
from core.questions import NewQuestion
from tests.kit.until import until
from tests.kit.world import World, config, own_url_of
from workspace.seed import ADE, AGENTS

PRODUCERS = """
[[producers]]
name = "heavy"
token_env = "HEAVY_TOKEN"

[[producers]]
name = "light"
token_env = "LIGHT_TOKEN"
"""
LISTS = 20
LARGE = {"rows": [{"to": f"ann{number}@example.com"} for number in range(1500)]}


class Held:
    """Reads records; those of `issues` only when the test lets one of their readers go on."""

    def __init__(self, ledger: Ledger) -> None:
        self.issues = set[int]()
        self.waiting: list[asyncio.Future[None]] = []
        self.most = 0
        self._ledger = ledger

    async def find(self, clarification_id: str) -> Clarification:
        await self._turn(parse_id(clarification_id)[0])
        return await self._ledger.find(clarification_id)

    async def read(self, issue: int) -> Contents:
        await self._turn(issue)
        return await self._ledger.read(issue)

    async def _turn(self, issue: int) -> None:
        if issue in self.issues:
            going = asyncio.get_running_loop().create_future()
            self.waiting.append(going)
            self.most = max(self.most, len(self.waiting))
            await going

    async def go_on(self) -> None:
        """Lets the reader go on that has waited longest, once there is one."""
        await until(lambda: self.waiting)
        self.waiting.pop(0).set_result(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class Scene:
    """A bot with two callers. `arrived`: the lists that were asked for, by producer."""

    def __init__(
        self, heavy: httpx.AsyncClient, light: httpx.AsyncClient, held: Held, reading: Reading
    ) -> None:
        self.heavy = heavy
        self.light = light
        self.held = held
        self.reading = reading
        self.arrived: list[str] = []
        self.ids: list[str] = []

    async def load(self, count: int = LISTS) -> list[asyncio.Task[httpx.Response]]:
        """The lists of the heavy caller, all of them asked for, the first one held at its first record."""
        lists = [asyncio.create_task(self.heavy.get("/questions")) for _ in range(count)]
        await until(lambda: len(self.arrived) == count and self.held.waiting)
        return lists

    async def finish(self, tasks: list[asyncio.Task[httpx.Response]]) -> list[httpx.Response]:
        self.held.issues.clear()
        for each in self.held.waiting:
            each.set_result(None)
        return await asyncio.gather(*tasks)


@pytest.fixture
async def scene(stage: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    async with opened(stage, monkeypatch) as made:
        yield made


@asynccontextmanager
async def opened(stage: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    stage.environ |= {"HEAVY_TOKEN": "t-heavy", "LIGHT_TOKEN": "t-light"}
    async with (
        stage.bot(config(stage.producer.url, more=PRODUCERS)) as bot,
        httpx.AsyncClient(
            base_url=own_url_of(bot), headers={"Authorization": "Bearer t-heavy"}, timeout=60
        ) as heavy,
        httpx.AsyncClient(
            base_url=own_url_of(bot), headers={"Authorization": "Bearer t-light"}, timeout=60
        ) as light,
    ):
        held = Held(bot.base.ledger)
        made = Scene(heavy, light, held, bot.agents.questions.reading)
        for number in range(6):
            asked = await heavy.post(
                "/questions", json={"action": f"Send {number}", "arguments": LARGE, "escalate": False}
            )
            assert asked.status_code == 201, asked.text
            made.ids.append(asked.json()["id"])
        held.issues |= {int(each.split("-")[1]) for each in made.ids}
        monkeypatch.setattr(bot.agents.questions, "ledger", held)
        listed = Questions.listed

        async def noted(questions: Questions, producer: str, *args: Any, **named: Any) -> Any:
            made.arrived.append(producer)
            return await listed(questions, producer, *args, **named)

        monkeypatch.setattr(Questions, "listed", noted)
        yield made


async def test_list_of_another_caller_waits_for_one_record_not_for_all_lists(scene: Scene) -> None:
    asked = (await scene.light.post("/questions", json={"question": "Which branch?"})).json()
    lists = await scene.load()
    light = asyncio.create_task(scene.light.get("/questions"))
    await until(lambda: scene.reading._of_lists.waiting("light"))
    await scene.held.go_on()
    answer = await asyncio.wait_for(light, 30)
    assert [each["id"] for each in answer.json()["questions"]] == [asked["id"]]
    for answer in await scene.finish(lists):
        assert sorted(each["id"] for each in answer.json()["questions"]) == scene.ids


async def test_hook_and_click_wait_for_no_list_at_all(stage: World, scene: Scene) -> None:
    lists = await scene.load()
    fields = {"action": "Run make", "arguments": {"command": "make"}, "session": "s"}
    async with asyncio.timeout(30):
        asked = (await scene.light.post("/questions", json=fields)).json()
        (found,) = (await scene.light.get("/questions", params={"session": "s"})).json()["questions"]
        assert found["id"] == asked["id"]
        assert (await scene.light.get(f"/questions/{asked['id']}")).json()["status"] == "waiting"
        assert (await scene.light.delete(f"/questions/{asked['id']}")).json()["status"] == "withdrawn"
        # The hooks of the caller that lists so much, too.
        own = (await scene.heavy.post("/questions", json=fields | {"session": "h"})).json()
        assert len((await scene.heavy.get("/questions", params={"session": "h"})).json()["questions"]) == 1
        assert (await scene.heavy.delete(f"/questions/{own['id']}")).status_code == 200
        card = await stage.ask()
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    await scene.finish(lists)


async def test_look_ups_of_one_caller_are_read_one_after_the_other(scene: Scene) -> None:
    looks = [asyncio.create_task(scene.heavy.get(f"/questions/{each}")) for each in scene.ids * 3]
    await until(lambda: scene.held.waiting)
    asked = (await scene.light.post("/questions", json={"question": "Which branch?"})).json()
    answer = await asyncio.wait_for(scene.light.get(f"/questions/{asked['id']}"), 30)
    assert answer.json()["status"] == "waiting"
    for _ in looks:
        await scene.held.go_on()
    assert {each.status_code for each in await asyncio.gather(*looks)} == {200}
    assert scene.held.most == 1


async def test_more_lists_than_one_caller_may_have_waiting_are_refused(scene: Scene) -> None:
    lists = await scene.load(LISTS + 1)
    refused = await scene.heavy.get("/questions")
    assert (refused.status_code, refused.json()["error"], refused.headers["Retry-After"]) == (
        429,
        "TOO_MANY_LISTS",
        "2",
    )
    assert {each.status_code for each in await scene.finish(lists)} == {200}


async def test_large_question_is_read_beside_the_loop_and_only_for_a_caller_who_may_ask(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[tuple[str, threading.Thread]] = []

    def noted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any) -> Any:
            where.append((name, threading.current_thread()))
            return work(*given)

        return noting

    digest = vars(NewQuestion)["digest"].fget
    monkeypatch.setattr(door, "exact_json", noted("read", door.exact_json))
    monkeypatch.setattr(core.questions, "_check", noted("checked", core.questions._check))
    monkeypatch.setattr(NewQuestion, "digest", property(noted("digested", digest)))
    monkeypatch.setattr(JSONResponse, "render", noted("written", JSONResponse.render))
    asked = await scene.light.post("/questions", json={"action": "Send all", "arguments": LARGE})
    assert asked.json()["asked"]["arguments"] == LARGE
    looked = await scene.light.get(f"/questions/{asked.json()['id']}")
    assert looked.json()["asked"]["arguments"] == LARGE
    done = ["read", "checked", "digested", "written", "written"]
    assert [name for name, _ in where] == done
    assert threading.main_thread() not in [thread for _, thread in where]
    async with httpx.AsyncClient(base_url=scene.light.base_url) as stranger:
        headers = {"Content-Type": "application/json", "Authorization": "Bearer t-nobody"}
        answer = await stranger.post("/questions", content=b"[" * 100_000, headers=headers)
    assert answer.status_code == 401
    assert [name for name, _ in where] == [*done, "written"]
