from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse

from workspace.demo.producer import DemoProducer

Fields = dict[str, object]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REQUEST = {
    "type": "subscription.request",
    "aaep_version": "1.0.0",
    "subscriber_id": "test",
    "capabilities": {
        "supports_clarification_reply": True,
        "event_filters": {"exclude": ["aaep:agent.output.streaming"]},
    },
}
QUESTION: Fields = {
    "type": "aaep:agent.awaiting.clarification",
    "session_id": "sess_1",
    "question": "Go on?",
    "reply_token": "rpl_1",
    "timeout_seconds": 60,
    "accepted_response_kinds": ["yes_no"],
}


@pytest.fixture
async def producer() -> AsyncIterator[DemoProducer]:
    async with DemoProducer("planner", now=lambda: NOW, keep=5) as started:
        yield started


@pytest.fixture
async def http(producer: DemoProducer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=producer.url, timeout=5) as client:
        yield client


async def subscribe(http: httpx.AsyncClient) -> tuple[str, str]:
    response = await http.post("/aaep/v1/subscriptions", json=REQUEST)
    assert response.status_code == 201, response.text
    return response.json()["subscription_id"], response.headers["Location"]


async def read(
    http: httpx.AsyncClient, where: str, count: int, after: str | None = None
) -> list[dict[str, Any]]:
    headers = {} if after is None else {"Last-Event-ID": after}
    events: list[dict[str, Any]] = []
    async with aconnect_sse(http, "GET", where, headers=headers) as source:
        async for sse in source.aiter_sse():
            events.append(json.loads(sse.data))
            assert sse.id == events[-1]["event_id"]
            if len(events) == count:
                break
    return events


def answer(subscription: str, **changes: object) -> dict[str, object]:
    reply: dict[str, object] = {
        "type": "clarification.reply",
        "reply_token": "rpl_1",
        "response": True,
        "subscription_id": subscription,
        "timestamp": "2026-03-01T12:00:01Z",
        "decided_by": "user:slack/T1/U1",
    }
    return {key: value for key, value in (reply | changes).items() if value is not None}


async def test_producer_streams_what_was_asked_for(producer: DemoProducer, http: httpx.AsyncClient) -> None:
    await producer.emit({"type": "aaep:agent.progress.updated", "session_id": "sess_0"})
    _, where = await subscribe(http)
    await producer.emit({"type": "aaep:agent.output.streaming", "session_id": "sess_1"})
    sent = await producer.emit(QUESTION)
    (event,) = await read(http, where, 1)
    assert event == sent
    assert event["timestamp"] == "2026-03-01T12:00:00Z"


async def test_producer_resumes_after_the_last_event_seen(
    producer: DemoProducer, http: httpx.AsyncClient
) -> None:
    _, where = await subscribe(http)
    sent = [await producer.emit({"type": "x:y", "session_id": "sess_1"}) for _ in range(3)]
    assert await read(http, where, 2) == sent[:2]
    assert await read(http, where, 1, after=sent[1]["event_id"]) == sent[2:]


async def test_producer_replays_all_it_keeps_after_an_evicted_event(
    producer: DemoProducer, http: httpx.AsyncClient
) -> None:
    _, where = await subscribe(http)
    sent = [await producer.emit({"type": "x:y", "session_id": "sess_1"}) for _ in range(8)]
    assert await read(http, where, 5, after=sent[0]["event_id"]) == sent[3:]


async def test_producer_takes_one_valid_reply(producer: DemoProducer, http: httpx.AsyncClient) -> None:
    subscription, _ = await subscribe(http)
    await producer.emit(QUESTION)
    first = await http.post("/aaep/v1/replies", json=answer(subscription))
    second = await http.post("/aaep/v1/replies", json=answer(subscription))
    assert (first.status_code, second.status_code) == (204, 400)
    assert second.json()["error"] == "unknown_token"
    assert second.json()["message"]
    assert (await producer.wait_for_reply("rpl_1", timeout=1))["response"] is True
    assert [refusal.error for refusal in producer.refusals] == ["unknown_token"]


CONSENT: Fields = {
    "type": "aaep:agent.awaiting.confirmation",
    "session_id": "sess_1",
    "action": "Delete it.",
    "consequence": "It is gone.",
    "reply_token": "rpl_1",
    "timeout_seconds": 60,
    "default_decision": "reject",
}
DECIDED: Fields = {"type": "confirmation.reply", "response": None, "decision": "accept"}
NUMBER: Fields = {"accepted_response_kinds": ["numeric"]}
TEXT: Fields = {"accepted_response_kinds": ["freetext"]}
EITHER: Fields = {"accepted_response_kinds": ["yes_no", "numeric"]}
ANY: Fields = {"accepted_response_kinds": None}
CHOICES = ANY | {"choices": [{"value": "a", "label": "A"}, {"value": "b", "label": "B"}]}
OPTIONS = ANY | {"options": ["Staging", "Production"]}
ONLY_REJECT = CONSENT | {"allowed_replies": ["reject"]}


def only(response: object) -> Fields:
    return {"response": response}


# What differs from the question, what from the reply to it, and the error: "" where it is taken.
JUDGED: list[tuple[Fields, Fields, str]] = [
    ({}, {"reply_token": "rpl_9"}, "unknown_token"),
    ({}, {"subscription_id": "sub_9"}, "unknown_subscription"),
    ({}, DECIDED, "invalid_reply"),
    ({}, {"timestamp": "2026-13-01T12:00:00Z"}, "invalid_reply"),
    ({}, {"decided_by": "u" * 257}, "invalid_reply"),
    ({}, {"confidence": 2}, "invalid_reply"),
    ({"timeout_seconds": 0}, {}, "expired"),
    ({"correlation_id": "corr"}, {}, "invalid_reply"),
    ({"correlation_id": "corr"}, {"correlation_id": "corr"}, ""),
    ({}, only("yes"), "invalid_response"),
    *[(NUMBER, only(value), "") for value in (1, 1.5, -3)],
    *[(NUMBER, only(value), "invalid_response") for value in ("1", True)],
    *[(TEXT, only(value), "") for value in ("a", "x" * 16384)],
    *[(TEXT, only(value), "invalid_response") for value in ("", "x" * 16385, True, 1)],
    (ANY, only(True), "invalid_response"),
    *[(CHOICES, only(value), "") for value in ("a", "b")],
    *[(CHOICES, only(value), "invalid_response") for value in ("A", "c", "")],
    (OPTIONS, only("staging"), "invalid_response"),
    *[(EITHER, only(value), "") for value in (True, 5)],
    (CONSENT, DECIDED, ""),
    (CONSENT, DECIDED | {"decision": "reject", "decision_rationale": "Too early."}, ""),
    (ONLY_REJECT, DECIDED | {"decision": "reject"}, ""),
    (ONLY_REJECT, DECIDED, "invalid_response"),
    (CONSENT, DECIDED | {"decision": True}, "invalid_response"),
    (CONSENT, DECIDED | {"decision": None}, "invalid_reply"),
    (CONSENT, {}, "invalid_reply"),
]


async def test_producer_judges_replies(producer: DemoProducer, http: httpx.AsyncClient) -> None:
    subscription, _ = await subscribe(http)
    taken = 0
    for event, reply, error in JUDGED:
        whole = event if "type" in event else QUESTION | event
        await producer.emit({key: value for key, value in whole.items() if value is not None})
        got = await http.post("/aaep/v1/replies", json=answer(subscription, **reply))
        taken += not error
        assert (got.status_code, got.content and got.json()["error"]) == (
            (400, error) if error else (204, b"")
        ), (event, reply)
        assert len(producer.replies) == taken
        producer.void("rpl_1")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({**REQUEST, "aaep_version": "2.0.0"}, "version_unsupported"),
        ({**REQUEST, "capabilities": {}}, "capabilities_incompatible"),
    ],
)
async def test_producer_rejects_subscriptions(http: httpx.AsyncClient, request_: object, reason: str) -> None:
    response = await http.post("/aaep/v1/subscriptions", json=request_)
    assert response.status_code == 400
    assert response.json()["type"] == "subscription.rejected"
    assert response.json()["reason_code"] == reason
