from __future__ import annotations

import json
from typing import Any

import pytest
from multidict import CIMultiDict

from bot.ask.client import (
    NoHandshake,
    NotConnected,
    Subscription,
    address,
    handshake_answer,
    minimal,
    stream_answer,
    subscription_request,
)
from bot.http import HttpAnswer, HttpStream
from tests.unit.bot.ask.parties import NOW

ACCEPTED = {
    "type": "subscription.accepted",
    "subscription_id": "sub_8a4f",
    "aaep_version": "1.0.0",
    "producer": {"agent_id": "planner"},
    "honored_capabilities": {"languages": ["en-US"]},
}


def answer(status: int, body: object = None, **headers: str) -> HttpAnswer:
    text = body if isinstance(body, str) else json.dumps(body) if body is not None else ""
    return HttpAnswer(
        status, CIMultiDict({k.replace("_", "-"): v for k, v in headers.items()}), text.encode()
    )


@pytest.mark.parametrize(
    ("base", "events"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/events"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/events"),
        ("https://agents.example/planner", "https://agents.example/planner/events"),
        ("https://agents.example/planner/?x=1#y", "https://agents.example/planner/events"),
    ],
)
def test_address_is_below_the_base(base: str, events: str) -> None:
    assert str(minimal(base, "sub_1").events) == events
    assert str(address(base, "/events")) == events


@pytest.mark.parametrize(
    ("location", "events"),
    [
        ("/aaep/v1/events?subscription_id=sub_8a4f", "http://p:1/aaep/v1/events?subscription_id=sub_8a4f"),
        ("http://p:1/elsewhere?s=1", "http://p:1/elsewhere?s=1"),
        ("events?s=1", "http://p:1/x/aaep/v1/events?s=1"),
        (None, "http://p:1/x/aaep/v1/events?subscription_id=sub_8a4f"),
        ("http://evil:1/events", "http://p:1/x/aaep/v1/events?subscription_id=sub_8a4f"),
        ("https://p:1/events", "http://p:1/x/aaep/v1/events?subscription_id=sub_8a4f"),
        ("//evil/events", "http://p:1/x/aaep/v1/events?subscription_id=sub_8a4f"),
        ("http://[", "http://p:1/x/aaep/v1/events?subscription_id=sub_8a4f"),
    ],
)
def test_handshake_location_stays_at_the_producer(location: str | None, events: str) -> None:
    headers = {"location": location} if location else {}
    result = handshake_answer(answer(201, ACCEPTED, **headers), "http://p:1/x/", "auto", NOW)
    assert isinstance(result, Subscription)
    assert (str(result.events), str(result.replies)) == (events, "http://p:1/x/aaep/v1/replies")
    assert (result.id, result.dialect, result.filtered) == ("sub_8a4f", "standard", False)


@pytest.mark.parametrize(
    ("given", "auto", "standard"),
    [
        (answer(404), NoHandshake, NotConnected),
        (answer(405), NoHandshake, NotConnected),
        (answer(400, {"error": "unsupported message type"}), NoHandshake, NotConnected),
        (answer(501, "<html>"), NoHandshake, NotConnected),
        (answer(200, "<html>"), NoHandshake, NotConnected),
        (answer(503), NotConnected, NotConnected),
        (answer(302, location="http://evil/"), NotConnected, NotConnected),
        (answer(401), NotConnected, NotConnected),
        (
            answer(400, {"type": "subscription.rejected", "reason_code": "unknown"}),
            NotConnected,
            NotConnected,
        ),
    ],
)
def test_handshake_falls_back_only_where_there_is_none(given: HttpAnswer, auto: type, standard: type) -> None:
    assert isinstance(handshake_answer(given, "http://p", "auto", NOW), auto)
    assert isinstance(handshake_answer(given, "http://p", "standard", NOW), standard)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            answer(
                429, {"type": "subscription.rejected", "reason_code": "rate_limit", "retry_after_seconds": 90}
            ),
            NotConnected("rejected the subscription: rate_limit", retry_after=90.0),
        ),
        (
            answer(
                403,
                {
                    "type": "subscription.rejected",
                    "reason_code": "authorization_denied",
                    "reason_message": "a\nb",
                },
            ),
            NotConnected("rejected the subscription: authorization_denied (a b)", unauthorized=True),
        ),
        (answer(401), NotConnected("refuses our token (HTTP 401)", unauthorized=True)),
        (
            answer(503, retry_after="2.5"),
            NotConnected("answers subscription.request with HTTP 503", retry_after=2.5),
        ),
    ],
)
def test_handshake_refusal_says_why(given: HttpAnswer, expected: NotConnected) -> None:
    assert handshake_answer(given, "http://p", "standard", NOW) == expected


def test_subscription_request_has_the_fields_of_its_schema_only() -> None:
    request = subscription_request("0.1.0")
    assert set(request) == {
        "type", "aaep_version", "subscriber_id", "subscriber_name", "subscriber_version", "capabilities",
    }  # fmt: skip
    capabilities: dict[str, Any] = request["capabilities"]
    assert capabilities["supports_clarification_reply"] is True
    assert capabilities["supports_confirmation_reply"] is True
    assert capabilities["event_filters"]["exclude"] == [
        "aaep:agent.output.streaming",
        "aaep:agent.progress.updated",
    ]


async def nothing() -> bytes:
    return b""


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (200, {"Content-Type": "text/event-stream; charset=utf-8"}, None),
        (200, {}, None),
        (200, {"Content-Type": "text/html"}, "sends text/html instead of"),
        (
            200,
            {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"},
            "sends events with the encoding gzip",
        ),
        (204, {}, "HTTP 204"),
        (401, {}, "refuses our token"),
        (307, {"Location": "https://evil.example/x"}, "redirects to evil.example"),
        (503, {"Retry-After": "5"}, "HTTP 503"),
    ],
)
def test_stream_answer_names_what_is_wrong(status: int, headers: dict[str, str], reason: str | None) -> None:
    result = stream_answer(HttpStream(status, CIMultiDict(headers), nothing), NOW)
    assert (reason is None) == (result is None)
    assert result is None or (reason or "") in result.reason
