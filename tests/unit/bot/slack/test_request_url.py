"""Whose Slack's requests are, what they carry, what is answered when; and when events may have been lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from slack_sdk.signature import SignatureVerifier

from bot.slack.app import MissedEvents, NotTaken, RequestUrl
from bot.slack.socket import Envelope, Json
from tests.kit.clocks import ManualClock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RETRIED, DROPPED = {"retried": True}, {"dropped": True}


@pytest.mark.parametrize(
    ("arrived", "looks"),
    [
        ([(1, {})], []),
        ([(239, {})], []),
        ([(240, {})], [240]),  # a silence: shorter than the five minutes after which Slack gives an event up
        ([(3 * 86_400, {})], [3 * 86_400]),
        ([(n * 180, {}) for n in range(100)], []),  # a busy line
        ([(1, RETRIED)], [1]),
        ([(n, RETRIED) for n in range(1, 122)], [1, 61, 121]),  # looks are a minute apart
        (
            [(0, RETRIED), (1, RETRIED), (60, {}), (120, {})],
            [0, 60],
        ),  # seen right after a look, and not forgotten
        (
            [(0, DROPPED), (30, RETRIED), (60, {})],
            [60],
        ),  # what is left out for a minute is looked for after it
        (
            [(-3600, {}), (0, {})],
            [0],
        ),  # a clock set back: an hour without a sound, as far as anybody can tell
    ],
)
def test_gap_shows_on_what_comes_next(arrived: list[tuple[int, dict[str, bool]]], looks: list[int]) -> None:
    missed = MissedEvents()
    missed.opened(NOON)

    assert [at for at, how in arrived if missed.arrived(NOON + timedelta(seconds=at), **how)] == looks


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
AT = int(NOW.timestamp())
SECRET = "made-up-signing-secret"
DONE = {"text": "done"}
EVENT = {"type": "event_callback", "event_id": "Ev1", "event": {"type": "message", "text": "confidential"}}
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"


def headers(body: bytes, *, at: int = AT, content_type: str = JSON, **more: str) -> dict[str, str]:
    return {
        TIMESTAMP: str(at),
        SIGNATURE: str(SignatureVerifier(SECRET).generate_signature(timestamp=str(at), body=body)),
        "content-type": content_type,
    } | {name.replace("_", "-"): value for name, value in more.items()}


def text(payload: object) -> bytes:
    return json.dumps(payload).encode()


class App:
    """Takes what is let through; may be held, may fail."""

    def __init__(self) -> None:
        self.seen: list[Envelope] = []
        self.entered = asyncio.Event()
        self.looks = 0
        self.free = asyncio.Event()
        self.free.set()
        self.broken = False

    async def handle(self, delivery: Envelope) -> Json:
        self.seen.append(delivery)
        self.entered.set()
        await self.free.wait()
        if self.broken:
            raise RuntimeError("confidential")
        return DONE

    def look(self) -> None:
        self.looks += 1


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
async def url(app: App, clock: ManualClock) -> AsyncIterator[RequestUrl]:
    made = made_url(app, clock)
    await made.start(app.handle)
    yield made
    app.free.set()
    await made.stop()


def made_url(app: App, clock: ManualClock, drain: float = 5) -> RequestUrl:
    return RequestUrl(signing_secret=SECRET, on_gap=app.look, clock=clock, drain=drain)


async def send(url: RequestUrl, payload: object, **more: Any) -> int:
    body = text(payload)
    return await status(url, headers(body, **more), body)


async def status(url: RequestUrl, headers: dict[str, str], body: bytes) -> int:
    try:
        await url.respond(headers, body)
    except NotTaken as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    "changes",
    [
        {TIMESTAMP: None},
        {SIGNATURE: None},
        {TIMESTAMP: "soon"},
        {TIMESTAMP: str(AT - 301)},
        {TIMESTAMP: str(AT - 1)},
        {SIGNATURE: ""},
        {SIGNATURE: "v0=" + "é" * 64},
        {SIGNATURE: "v0=" + "0" * 64},
    ],
)
async def test_request_that_is_not_signed_by_slack_is_refused(
    url: RequestUrl, app: App, changes: dict[str, str | None]
) -> None:
    body = text(EVENT)
    given = {k: v for k, v in (headers(body) | changes).items() if v is not None}
    with structlog.testing.capture_logs() as logs:
        assert await status(url, given, body) == 401
    assert not app.seen
    assert [line["log_level"] for line in logs] == ["warning"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b""),
        (JSON, b"{"),
        (JSON, b"[" * 100_000),
        (FORM, b""),
        (FORM, b"payload=" + b"%7B%22a%22%3A" * 50_000),
        (FORM, b"&".join(b"a%d=1" % n for n in range(200))),
    ],
)
async def test_signed_request_that_cannot_be_read_is_400(
    url: RequestUrl, app: App, content_type: str, body: bytes
) -> None:
    with structlog.testing.capture_logs() as logs:
        assert await status(url, headers(body, content_type=content_type), body) == 400
    assert not app.seen
    assert [line["log_level"] for line in logs] == ["warning"]


@pytest.mark.parametrize(
    ("number", "delivery"),
    [
        ("2", Envelope(EVENT, 2, "http_timeout")),
        ("0", Envelope(EVENT)),
        ("²", Envelope(EVENT)),
    ],
)
async def test_retry_is_told_from_a_first_try(
    url: RequestUrl, app: App, number: str, delivery: Envelope
) -> None:
    await send(url, EVENT, x_slack_retry_num=number, x_slack_retry_reason="http_timeout")
    assert app.seen == [delivery]


async def test_p4_end_of_the_connection_does_not_tear_a_click_in_two(url: RequestUrl, app: App) -> None:
    app.free.clear()
    request = asyncio.create_task(send(url, {"type": "block_actions"}))
    await asyncio.wait_for(app.entered.wait(), 60)
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    stopping = asyncio.create_task(url.stop())
    done, _ = await asyncio.wait({stopping}, timeout=0.05)
    assert not done  # it is still in work
    app.free.set()
    await asyncio.wait_for(stopping, 60)


async def test_stop_does_not_wait_for_ever(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    url = made_url(app, clock, drain=0.01)
    await url.start(app.handle)
    app.free.clear()
    request = asyncio.create_task(send(url, EVENT))
    await asyncio.wait_for(app.entered.wait(), 60)
    await asyncio.wait_for(url.stop(), 60)
    assert "not finished 0.01 s after stopping: message" in caplog.text
    assert await request == 503


async def test_p10_events_that_slack_leaves_out_are_looked_for(
    url: RequestUrl, app: App, clock: ManualClock
) -> None:
    limited = {"type": "app_rate_limited", "team_id": "T1", "minute_rate_limited": AT // 60}
    assert await send(url, limited) == 200
    await clock.advance(60)
    await send(url, EVENT, at=AT + 60)
    assert app.looks == 1
    assert app.seen == [Envelope(EVENT)]


async def test_requests_that_are_not_slacks_do_not_end_a_silence(
    url: RequestUrl, app: App, clock: ManualClock
) -> None:
    await clock.advance(600)
    assert await status(url, {}, b"{}") == 401
    assert app.looks == 0
    await send(url, EVENT, at=AT + 600)
    assert app.looks == 1


async def test_p9_nothing_that_was_sent_is_logged(url: RequestUrl, app: App) -> None:
    with structlog.testing.capture_logs() as logs:
        app.broken = True
        assert await send(url, EVENT) == 500
        await status(url, {TIMESTAMP: "confidential", SIGNATURE: "confidential"}, b"confidential")
        body = b"payload=confidential"
        await status(url, headers(body, content_type=FORM), body)
        await url.stop()
        await send(url, EVENT)
    assert len(logs) == 4
    assert "confidential" not in str([{k: v for k, v in line.items() if k != "exc_info"} for line in logs])
