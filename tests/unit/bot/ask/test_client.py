from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any, NoReturn

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict

from bot.ask.client import (
    Accepted,
    NoHandshake,
    NotConnected,
    Refused,
    ReplyOutcome,
    Spoken,
    Subscription,
    TryAgain,
    address,
    classify,
    handshake_answer,
    minimal,
    network_failure,
    send_reply,
    stream_answer,
    subscription_gone,
    subscription_request,
)
from bot.errors import NotLeading
from bot.http import HttpAnswer, HttpClient, HttpStream, MalformedRequest
from tests.unit.bot.ask.parties import NOW, RawServer, Writer, reply

ACCEPTED = {
    "type": "subscription.accepted",
    "subscription_id": "sub_8a4f",
    "aaep_version": "1.0.0",
    "producer": {"agent_id": "planner"},
    "honored_capabilities": {"languages": ["en-US"]},
}


@pytest.mark.parametrize(
    ("status", "dialect", "connected", "outcome"),
    [
        (200, "minimal", True, Accepted(proof=False)),
        (204, "standard", True, Accepted(proof=True)),
        (400, "standard", True, Refused("unknown_token: no such token (HTTP 400)")),
        (401, "standard", True, TryAgain("refuses our token (HTTP 401)", may_have_arrived=False, blocked=True)),
        (403, "minimal", True, TryAgain("refuses our token (HTTP 403)", may_have_arrived=False, blocked=True)),
        (404, "minimal", True, Refused("it does not accept replies (HTTP 404)")),
        (405, "minimal", True, Refused("it does not accept replies (HTTP 405)")),
        (404, "minimal", False, TryAgain("its reply endpoint is not available (HTTP 404)", may_have_arrived=False)),
        (408, "standard", True, TryAgain("asks to try again later (HTTP 408)", may_have_arrived=True)),
        (409, "standard", True, Refused("unknown_token: no such token (HTTP 409)")),
        (422, "minimal", True, Refused("unknown_token: no such token (HTTP 422)")),
        (425, "standard", True, TryAgain("asks to try again later (HTTP 425)", may_have_arrived=False)),
        (429, "minimal", True, TryAgain("asks to try again later (HTTP 429)", may_have_arrived=False)),
        (500, "standard", True, TryAgain("server error at the producer (HTTP 500)", may_have_arrived=True)),
        (503, "minimal", True, TryAgain("server error at the producer (HTTP 503)", may_have_arrived=True)),
    ],
)  # fmt: skip
def test_classify_says_what_an_answer_means(
    status: int, dialect: Spoken, connected: bool, outcome: ReplyOutcome
) -> None:
    given = answer(status, {"error": "unknown_token", "message": "no such\ntoken"})
    assert classify(given, dialect, connected=connected, now=NOW) == outcome


PAGE = "<!DOCTYPE html><title>Sign in</title>"


@pytest.mark.parametrize(
    ("status", "body", "dialect", "proof"),
    [
        (204, "", "standard", True),
        (200, '{"status": "received"}', "standard", True),
        (202, '{"status": "accepted"}', "standard", True),
        (200, PAGE, "standard", None),
        (200, "", "standard", None),
        (202, "ok", "standard", None),
        (200, "{}", "standard", None),
        (200, '{"error": "unknown_token", "status": "failed"}', "standard", None),
        (200, "[1]", "standard", None),
        (200, PAGE, "minimal", None),
        (200, "  <html>", "minimal", None),
        (200, "", "minimal", False),
        (200, "ok", "minimal", False),
    ],
)
def test_only_what_the_protocol_knows_proves_that_a_reply_was_taken(
    status: int, body: str, dialect: Spoken, proof: bool | None
) -> None:
    given = HttpAnswer(status, CIMultiDict({"content-type": "text/html; charset=utf-8"}), body.encode())
    outcome = classify(given, dialect, connected=True, now=NOW)
    if proof is not None:
        assert outcome == Accepted(proof=proof)
        return
    assert isinstance(outcome, TryAgain)
    assert (outcome.may_have_arrived, outcome.blocked) == (True, True)
    assert f"answers with text/html instead of AAEP (HTTP {status})" in outcome.reason


@pytest.mark.parametrize("status", [429, 503])
def test_classify_carries_the_wait(status: int) -> None:
    outcome = classify(answer(status, retry_after="1.5"), "standard", connected=True, now=NOW)
    assert isinstance(outcome, TryAgain)
    assert outcome.retry_after == 1.5


def test_classify_does_not_follow_a_redirect() -> None:
    outcome = classify(answer(307, location="https://evil.example/"), "standard", connected=True, now=NOW)
    assert isinstance(outcome, TryAgain)
    assert "evil.example" in outcome.reason
    assert not outcome.may_have_arrived


@pytest.mark.parametrize(
    ("body", "reason"),
    [(None, "no reason given (HTTP 400)"), ("[1]", "no reason given (HTTP 400)"),
     ({"message": "x" * 400}, "x" * 199 + "… (HTTP 400)"), ("{" * 5000, "no reason given (HTTP 400)")],
)  # fmt: skip
def test_classify_shortens_the_reason(body: object, reason: str) -> None:
    assert classify(answer(400, body), "minimal", connected=True, now=NOW) == Refused(reason)


@pytest.mark.parametrize(
    ("status", "error", "dialect", "gone"),
    [
        (404, "", "standard", True),
        (410, "", "standard", True),
        (400, "unknown_subscription", "standard", True),
        (400, "unknown_token", "standard", False),
        (404, "", "minimal", False),
        (503, "unknown_subscription", "standard", False),
    ],
)
def test_subscription_gone_is_told_from_a_refusal(
    status: int, error: str, dialect: Spoken, gone: bool
) -> None:
    assert subscription_gone(answer(status, {"error": error}), dialect) is gone


NOWHERE = ConnectionKey("agents.example", 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "may_have_arrived"),
    [
        (aiohttp.ClientConnectorError(NOWHERE, OSError(111, "refused")), False),
        (aiohttp.ConnectionTimeoutError(), False),
        (aiohttp.InvalidURL("http://secret"), False),
        (MalformedRequest(), False),
        (aiohttp.SocketTimeoutError(), True),
        (aiohttp.ClientOSError(32, "Broken pipe"), True),
        (aiohttp.ServerDisconnectedError(), True),
        (aiohttp.ClientPayloadError(), True),
        (TimeoutError(), True),
        (OSError(9, "Bad file descriptor"), True),
    ],
)
def test_unsent_knows_whether_it_may_have_arrived(error: Exception, may_have_arrived: bool) -> None:
    outcome = network_failure(error)
    assert outcome.may_have_arrived is may_have_arrived
    assert "secret" not in outcome.reason


async def sent(serve: Any) -> tuple[ReplyOutcome, list[str]]:
    async with RawServer(serve) as server, HttpClient("secret") as http:
        outcome, _ = await send_reply(http, minimal(server.url, "sub_1"), reply(), since=lambda: NOW, now=NOW)
        return outcome, server.requests


async def test_send_reply_does_not_repeat_the_token_or_read_for_ever() -> None:
    async def serve(_request: str, writer: Writer) -> None:
        writer.write(
            b"HTTP/1.1 400 Bad Request\r\n\r\n" + b'{"error": "rpl_0000000000000001 unknown"}' + b" " * 70_000
        )
        await writer.drain()
        await asyncio.Event().wait()

    outcome, _ = await sent(serve)
    assert outcome == Refused("… unknown (HTTP 400)")


@pytest.mark.parametrize("after", [None, NOW + timedelta(seconds=1)], ids=["lost", "another"])
async def test_send_reply_to_a_producer_that_restarts_meanwhile_is_not_refused(
    after: datetime | None,
) -> None:
    """A proxy may have said that there is nothing."""
    since: datetime | None = NOW

    async def serve(_request: str, writer: Writer) -> None:
        nonlocal since
        since = after
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with RawServer(serve) as server, HttpClient("secret") as http:
        to = minimal(server.url, "sub_1")
        outcome, _ = await send_reply(http, to, reply(), since=lambda: since, now=NOW)
    assert outcome == TryAgain("its reply endpoint is not available (HTTP 404)", may_have_arrived=False)


async def test_send_reply_with_a_number_that_json_lacks_is_refused() -> None:
    async with HttpClient(None) as http:
        outcome, _ = await send_reply(
            http,
            minimal("http://127.0.0.1:9", "sub_1"),
            reply(response=float("nan")),
            since=lambda: NOW,
            now=NOW,
        )
    assert isinstance(outcome, Refused)


async def test_send_reply_of_a_bot_that_does_not_lead_sends_nothing() -> None:
    def acting() -> NoReturn:
        raise NotLeading

    async with HttpClient(None) as http:
        outcome, _ = await send_reply(
            http, minimal("http://127.0.0.1:9", "sub_1"), reply(), since=lambda: NOW, now=NOW, acting=acting
        )
    assert outcome == TryAgain("this bot does not lead now", may_have_arrived=False)


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
