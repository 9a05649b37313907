"""An agent that cannot be connected to: it posts its questions, and reads the answers from our stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from bot.app import Bot
from tests.kit.world import World, config, controls, question, said
from tests.unit.bot.web.serving import PATIENCE, serving
from workspace.seed import AGENTS, FOLAKE

URL = "http://127.0.0.1:1"


class Agent:
    """As an agent's author writes one: two requests."""

    def __init__(self, client: httpx.AsyncClient, scene: World) -> None:
        self._client = client
        self._scene = scene
        self._sent = 0
        self.last: str | None = None

    async def post(self, event: dict[str, Any]) -> None:
        response = await self.send(event)
        assert response.status_code == 202, response.text

    async def send(self, event: dict[str, Any]) -> httpx.Response:
        self._sent += 1
        envelope = {
            "@context": "https://aaep-protocol.org/context/v1",
            "event_id": f"evt_{self._sent:016x}",
            "timestamp": self._scene.clock.now().isoformat(),
            "producer": {"agent_id": "planner-agent"},
        }
        return await self._client.post("/aaep/v1/messages", json=envelope | event)

    async def asks(self, token: str, **fields: Any) -> None:
        await self.post(question(token, accepted_response_kinds=["yes_no"], **fields))

    async def goes_on(self) -> None:
        await self.post(
            {"type": "aaep:agent.state.changed", "session_id": "sess_one"}
            | {"from_state": "awaiting_input", "to_state": "working"}
        )

    async def reads(self) -> dict[str, Any]:
        """The next reply on a connection of its own, from where the last one ended."""
        headers = {"Last-Event-ID": self.last} if self.last else {}
        async with (
            asyncio.timeout(PATIENCE),
            self._client.stream("GET", "/aaep/v1/events", headers=headers) as response,
        ):
            async for line in response.aiter_lines():
                if line.startswith("id: "):
                    self.last = line.removeprefix("id: ")
                elif line.startswith("data: "):
                    found: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    return found
        raise AssertionError("the stream ended")


@pytest.fixture
def pushing(stage: World) -> str:
    """A configuration with a producer that pushes."""
    stage.environ["PLANNER_TOKEN"] = "planner-token"
    text = config(URL)
    before = f'url = "{URL}"\ndialect = "auto"\n'
    assert before in text
    return text.replace(before, 'token_env = "PLANNER_TOKEN"\n')


@asynccontextmanager
async def agent(stage: World, bot: Bot, port: int = 0) -> AsyncIterator[Agent]:
    """The agent, and the bot's HTTP door that it knows."""
    headers = {"Authorization": "Bearer planner-token"}
    async with (
        serving(bot.http_app(512), port=port) as server,
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=PATIENCE) as client,
    ):
        yield Agent(client, stage)


async def test_question_posted_is_answered_in_the_stream(stage: World, pushing: str) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        await planner.asks("rpl_1")
        reading = asyncio.ensure_future(planner.reads())
        card = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        reply = await reading
        assert (reply["type"], reply["reply_token"], reply["response"]) == (
            "clarification.reply",
            "rpl_1",
            True,
        )
        assert reply["decided_by"].endswith(FOLAKE)
        await planner.goes_on()
        shown = await stage.now_says(card, "the agent has resumed")
        assert f"<@{FOLAKE}>" in said(shown)
    assert stage.record()["status"] == "resolved"


async def test_p4_answer_waits_for_an_agent_that_does_not_read_and_outlives_our_restart(
    stage: World, pushing: str
) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        await planner.asks("rpl_1")
        card = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        await stage.until(lambda: stage.record()["status"] == "answered")
    assert stage.record()["aaep"]["reply"] == "sending"
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        reply = await planner.reads()
        assert (reply["reply_token"], reply["response"]) == ("rpl_1", False)
        await stage.until(lambda: stage.record()["aaep"]["reply"] == "delivered")


async def test_p2_question_posted_again_has_one_card_and_its_answer_comes_again(
    stage: World, pushing: str
) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        await planner.asks("rpl_1")
        card = await stage.card("Shall I go on?")
        reading = asyncio.ensure_future(planner.reads())
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        before = await reading
        await stage.until(lambda: stage.record()["aaep"]["reply"] == "delivered")
        planner.last = None  # it was killed, and begins anew
        await planner.asks("rpl_1", event_id="evt_0000000000000001")
        assert await planner.reads() == before
        assert len(stage.cards()) == 1


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"reply_token": None}, "reply_token"),
    ({"type": "aaep:agent.awaiting.clarifcation"}, "type"),
    ({"question": "Shall I stop?"}, "event_id"),
    ({"event_id": "evt_2", "question": "Shall I stop?"}, "reply_token"),
]


async def test_p1_broken_question_is_refused_with_field_and_reason_and_a_repetition_is_told(
    stage: World, pushing: str
) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        asked = question("rpl_1", accepted_response_kinds=["yes_no"], event_id="evt_1")
        await planner.post(asked)
        assert (await planner.send(asked)).json()["status"] == "duplicate"
        for changes, field in BROKEN:
            fields = {key: value for key, value in (asked | changes).items() if value is not None}
            answer = await planner.send(fields)
            assert (answer.status_code, answer.json()["field"]) == (422, field), changes
            assert answer.json()["message"]
        await stage.card("Shall I go on?")
        await planner.asks("rpl_2", question="And now?")
        await stage.card("And now?")
        assert len(stage.cards()) == 2


async def test_confirmation_posted_is_decided_in_the_stream(stage: World, pushing: str) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        await planner.post(
            {
                "type": "aaep:agent.awaiting.confirmation",
                "session_id": "sess_one",
                "urgency": "critical",
                "action": "Restart the cache",
                "consequence": "Slow for a minute",
                "risk_level": "low",
                "irreversible": False,
                "reply_token": "rpl_c",
                "timeout_seconds": 600,
                "default_decision": "reject",
            }
        )
        card = await stage.card("Restart the cache")
        reading = asyncio.ensure_future(planner.reads())
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")
        reply = await reading
        assert (reply["type"], reply["decision"]) == ("confirmation.reply", "reject")


async def test_step_of_the_agents_clock_kills_no_new_question(stage: World, pushing: str) -> None:
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        await planner.asks("rpl_1")
        await stage.card("Shall I go on?")
        set_back = (stage.clock.now() - timedelta(hours=2)).isoformat()
        await planner.asks("rpl_2", session="sess_two", question="And now?", timestamp=set_back)
        card = await stage.card("And now?")
        assert controls(card) == ["Yes", "No", "Take"], said(card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await planner.reads())["reply_token"] == "rpl_2"


@pytest.mark.parametrize("back", [timedelta(hours=2), timedelta(seconds=400)])
async def test_no_question_of_a_slow_clock_arrives_dead(stage: World, pushing: str, back: timedelta) -> None:
    """Also the first ones after a start, while nothing is known of the agent's clock."""
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        for number in range(3):
            slow = (stage.clock.now() - back).isoformat()
            words = f"Question {number}?"
            await planner.asks(
                f"rpl_{number}", session=f"sess_{number}", question=words, timestamp=slow, timeout_seconds=300
            )
            card = await stage.card(words)
            assert controls(card) == ["Yes", "No", "Take"], said(card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await planner.reads())["reply_token"] == "rpl_2"


async def test_question_kept_back_while_we_were_away_is_as_old_as_it_says(stage: World, pushing: str) -> None:
    """It has what is left of its time."""
    async with stage.bot(pushing) as bot, agent(stage, bot) as planner:
        kept_back = (stage.clock.now() - timedelta(minutes=4)).isoformat()
        await planner.asks("rpl_1", timestamp=kept_back, timeout_seconds=300)
        await stage.card("Shall I go on?")
        left = datetime.fromisoformat(stage.record()["aaep"]["expiresAt"]) - stage.clock.now()
        assert left < timedelta(minutes=2)
