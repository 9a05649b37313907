from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from core.aaep import parse_event
from core.clock import SystemClock
from workspace.demo.agent import Question, Session, clean_up, release
from workspace.demo.producer import DemoProducer
from workspace.demo.reviewer import ROLE

Answers = Callable[[dict[str, Any]], object]
HANDSHAKE = {
    "type": "subscription.request",
    "aaep_version": "1.0.0",
    "subscriber_id": "test",
    "capabilities": {"supports_clarification_reply": True},
}


def sensible(event: dict[str, Any]) -> object:
    """Answer by the first kind that the question accepts; accept what is to be confirmed."""
    if "action" in event:
        return "accept"
    match event["accepted_response_kinds"][0]:
        case "yes_no":
            return True
        case "multiple_choice":
            return event["choices"][1]["value"]
        case "numeric":
            return 20
        case _:
            return "Hello, it is faster now."


def answer_to(event: dict[str, Any], answers: Answers) -> dict[str, object]:
    match event["type"]:
        case "aaep:agent.awaiting.clarification":
            return {"type": "clarification.reply", "response": answers(event)}
        case "aaep:agent.awaiting.confirmation":
            return {"type": "confirmation.reply", "decision": answers(event)}
        case _:
            return {}


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


class Seen:
    """What a subscriber read so far."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()

    async def add(self, event: dict[str, Any]) -> None:
        async with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)


@asynccontextmanager
async def subscriber(producer: DemoProducer, answers: Answers) -> AsyncIterator[Seen]:
    """Read all events and answer each question."""
    seen = Seen()
    async with httpx.AsyncClient(base_url=producer.url) as http:
        accepted = await http.post("/aaep/v1/subscriptions", json=HANDSHAKE)

        async def read() -> None:
            async with aconnect_sse(http, "GET", accepted.headers["Location"]) as source:
                async for sse in source.aiter_sse():
                    event = json.loads(sse.data)
                    await seen.add(event)
                    if said := answer_to(event, answers):
                        reply = said | {
                            "reply_token": event["reply_token"],
                            "subscription_id": accepted.json()["subscription_id"],
                            "timestamp": "2026-01-01T00:00:00Z",
                        }
                        (await http.post("/aaep/v1/replies", json=reply)).raise_for_status()

        reading = asyncio.create_task(read())
        try:
            await producer.wait_for_subscriber(timeout=5)
            yield seen
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def play(answers: Answers, *, fails: bool = False) -> list[dict[str, Any]]:
    """One whole session with a subscriber that answers."""
    numbers = count(1)
    async with DemoProducer("deployer") as producer, subscriber(producer, answers) as seen:
        session = Session(producer, "sess_1", no_pause, lambda: str(next(numbers)))
        async with asyncio.timeout(60):
            await release(session, 1, fails=fails)
            await seen.until(lambda: len(seen.events) == session.sequence)
    return seen.events


async def test_agent_asks_in_every_way_and_goes_on_with_the_answers() -> None:
    seen = await play(sensible)
    questions = [event for event in seen if event["type"].endswith("awaiting.clarification")]
    assert [event["accepted_response_kinds"] for event in questions] == [
        ["yes_no"],
        ["freetext"],  # of another agent
        ["multiple_choice"],
        ["yes_no"],  # soon too late
        ["multiple_choice"],  # several
        ["numeric"],
    ]
    assert [event["extensions"]["agentx"].get("to") for event in questions[:3]] == [None, ROLE, None]
    assert len(questions[2]["choices"]) == 3
    assert questions[3]["timeout_seconds"] == 60
    assert questions[4]["multi_select"] is True
    actions = [event["risk_level"] for event in seen if event["type"].endswith("awaiting.confirmation")]
    assert actions == ["low"]
    assert [event["type"] for event in seen].count("aaep:agent.handoff.requested") == 1
    told = " ".join(event.get("summary_normal", "") for event in seen)
    for part in (
        "4.1 runs on canary",
        "20% of customers have it",
        "Got the answer: yes",
    ):
        assert part in told
    assert seen[0]["type"] == "aaep:agent.session.started"
    assert seen[-1]["type"] == "aaep:agent.session.completed"


async def test_agent_keeps_to_the_protocol_and_ends_with_an_error_when_it_should() -> None:
    seen = await play(sensible, fails=True)
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    assert len({event["event_id"] for event in seen}) == len(seen)
    for event in seen:
        assert parse_event(event, SystemClock().now()).problems == ()
    tool, error = seen[-2:]
    assert (tool["type"], tool["status"]) == ("aaep:agent.tool.completed", "error")
    assert error["type"] == "aaep:agent.session.errored"
    assert error["error_uri"].startswith("https://")


async def test_agent_asks_again_on_the_same_topic_when_the_number_is_impossible() -> None:
    given = iter([250, 50])
    seen = await play(
        lambda event: next(given) if event.get("accepted_response_kinds") == ["numeric"] else sensible(event)
    )
    asked = [event for event in seen if event.get("accepted_response_kinds") == ["numeric"]]
    assert [event["extensions"]["agentx"]["topic"] for event in asked] == ["percentage of customers"] * 2
    assert asked[1]["question"].startswith("250% is not possible.")


async def test_agent_goes_on_when_nobody_answers() -> None:
    """With the default, and without one with None; silence is no consent."""
    async with DemoProducer() as producer:
        session = Session(producer, "sess_1", no_pause, lambda: "1")
        question = Question("t", "Go?", ("yes_no",), timeout_seconds=0)
        assert await session.ask(question) is None
        assert await session.ask(replace(question, default="no", default_value=False)) is False
        assert await session.confirm(replace(clean_up("4.1"), timeout_seconds=0)) is False
        assert session.sequence == 9


@pytest.mark.parametrize(("decision", "times"), [("accept", 1), ("reject", 0)])
async def test_agent_cleans_up_only_with_consent(decision: str, times: int) -> None:
    seen = await play(lambda event: decision if "action" in event else sensible(event))
    (asked,) = [event for event in seen if event["type"].endswith("awaiting.confirmation")]
    assert (asked["risk_level"], asked["irreversible"], asked["default_decision"]) == ("low", False, "reject")
    told = [event.get("summary_normal") for event in seen]
    assert told.count("318 files deleted") == times
    assert seen[-1]["type"] == "aaep:agent.session.completed"
