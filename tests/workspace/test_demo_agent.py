from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import httpx
import pytest

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


async def no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


async def play(answers: Answers, *, fails: bool = False) -> list[dict[str, Any]]:
    """The events of one whole session, each question answered."""
    numbers, seen = count(1), list[dict[str, Any]]()
    asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def watch(direction: str, message: Any, _refused: str) -> None:
        if direction == "agent→bot" and "sequence_number" in message:
            seen.append(message)
            if "reply_token" in message:
                asked.put_nowait(message)

    async def answer(http: httpx.AsyncClient, subscription: str) -> None:
        while True:
            event = await asked.get()
            kind, said = ("confirmation", "decision") if "action" in event else ("clarification", "response")
            reply = {
                "type": f"{kind}.reply",
                said: answers(event),
                "reply_token": event["reply_token"],
                "subscription_id": subscription,
                "timestamp": "2026-01-01T00:00:00Z",
            }
            (await http.post("/aaep/v1/replies", json=reply)).raise_for_status()

    async with (
        DemoProducer("deployer", watch=watch) as producer,
        httpx.AsyncClient(base_url=producer.url) as http,
        asyncio.TaskGroup() as group,
    ):
        accepted = (await http.post("/aaep/v1/subscriptions", json=HANDSHAKE)).json()
        answering = group.create_task(answer(http, accepted["subscription_id"]))
        async with asyncio.timeout(60):
            await release(Session(producer, "sess_1", no_pause, lambda: str(next(numbers))), 1, fails=fails)
        answering.cancel()
    return seen


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
