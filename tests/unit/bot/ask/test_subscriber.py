"""Connections to servers that behave, misbehave and die."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from bot.ask import subscriber
from bot.ask.subscriber import SILENCE
from tests.kit.until import until
from tests.unit.bot.ask.parties import (
    Party,
    RawServer,
    Serve,
    Writer,
    answer,
    event,
    frame,
    planner,
    question,
    stream,
    until_ticking,
)

FIRST = "evt_0000000000000001"
SECOND = "evt_0000000000000002"


def events_then(*parts: bytes, hold: bool = True) -> Serve:
    async def serve(request: str, writer: Writer) -> None:
        if request.startswith("GET /events "):
            await stream(writer, *parts, hold=hold)
        else:
            await answer(writer, "404 Not Found")

    return serve


async def test_subscriber_backs_off_and_comes_back() -> None:
    failures = [b"503 Service Unavailable", b"500 Internal Server Error", b"404 Not Found"]

    async def serve(request: str, writer: Writer) -> None:
        if failures:
            await answer(writer, failures.pop().decode())
        else:
            await stream(writer, frame(event()))

    async with RawServer(serve) as server, Party(planner(server.url)) as party:
        await party.until_got(FIRST)
        assert party.state()["last_error"] is None
        waits = [seconds for seconds in party.clock.slept if seconds != SILENCE]
        assert len(waits) == 3
        assert all(wait <= 0.5 * 2**attempt for attempt, wait in enumerate(waits, 1))


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_subscriber_retries_a_refused_token_slowly(status: str) -> None:
    async def serve(_request: str, writer: Writer) -> None:
        await answer(writer, status)

    with capture_logs() as logs:
        async with RawServer(serve) as server, Party(planner(server.url, "auto", "secret")) as party:
            await party.producers.first_contact(5)
            await until(lambda: party.clock.slept)
            assert party.clock.slept[-1] >= 60
            assert party.state()["last_error"] == f"refuses our token (HTTP {status[:3]})"
            assert len(server.requests) == 1
    assert "secret" not in str(logs)


async def test_subscriber_honours_the_stream_retry_field() -> None:
    serve = events_then(b"retry: 4000\n\n", frame(event()), hold=False)
    async with RawServer(serve) as server, Party(planner(server.url)) as party:
        await party.until_got(FIRST)
        await until(lambda: 4.0 in party.clock.slept)


async def test_subscriber_never_takes_its_token_to_another_host() -> None:
    async with RawServer(events_then()) as elsewhere:

        async def serve(_request: str, writer: Writer) -> None:
            await answer(writer, "307 Temporary Redirect", Location=elsewhere.url + "/events")

        async with RawServer(serve) as server, Party(planner(server.url, "auto", "secret")) as party:
            await until_ticking(party.clock, 5, lambda: len(server.requests) >= 3)
            assert "redirects to 127.0.0.1 (HTTP 307)" in party.state()["last_error"]
        assert elsewhere.requests == []


async def test_subscriber_drops_a_torn_frame_and_takes_a_whole_one_without_its_end() -> None:
    whole = frame(question(), sse_id="evt_1")[:-1]
    bodies = [whole, frame(question(2))[:-40], frame(event(n=3))]

    async def serve(_request: str, writer: Writer) -> None:
        await stream(writer, bodies.pop(0), hold=not bodies)

    async with RawServer(serve) as server, Party(planner(server.url)) as party:
        await party.until_got("evt_0000000000000003")
        assert party.box.ids() == [FIRST, "evt_0000000000000003"]
        assert await party.box.cursor("planner") is None
        assert [trouble.key for trouble in party.troubles] == ["unreadable:sess_2c91a7b4d23f1e88"]


async def test_subscriber_probes_a_silent_producer_and_keeps_it() -> None:
    async with RawServer(events_then(frame(event()))) as server, Party(planner(server.url)) as party:
        await party.until_got(FIRST)
        await until(lambda: SILENCE in party.clock.slept)
        await until_ticking(party.clock, SILENCE, lambda: len(server.heads("GET /healthz")) >= 3)
        assert party.state()["connections"] == 1
        assert party.state()["connected"]


async def test_subscriber_gives_up_a_silent_connection_whose_producer_is_gone() -> None:
    alive = True

    async def serve(request: str, writer: Writer) -> None:
        if request.startswith("GET /healthz") and not alive:
            writer.transport.abort()
        elif request.startswith("GET /events"):
            await stream(writer, frame(event(n=len(server.heads("GET /events")))))

    async with RawServer(serve) as server, Party(planner(server.url)) as party:
        await party.until_got(FIRST)
        alive = False
        await until(lambda: SILENCE in party.clock.slept)
        await until_ticking(party.clock, SILENCE, lambda: server.heads("GET /healthz"))
        await party.until_got(SECOND)
        assert party.state()["connections"] == 2


ACCEPTED = {"type": "subscription.accepted", "aaep_version": "1.0.0", "producer": {"agent_id": "a"}}


async def test_subscriber_resumes_the_same_subscription_and_asks_anew_when_it_is_gone() -> None:
    gone = False

    async def serve(request: str, writer: Writer) -> None:
        shaken = len(server.heads("POST /base/aaep/v1/subscriptions"))
        if request.startswith("POST"):
            body = json.dumps({**ACCEPTED, "subscription_id": f"sub_{shaken}", "honored_capabilities": {}})
            await answer(writer, "201 Created", body, Location=f"/base/aaep/v1/stream/sub_{shaken}")
        elif gone and "sub_1" in request:
            await answer(writer, "410 Gone")
        elif "sub_1" in request:
            await stream(writer, frame(event(), sse_id="evt_1"), hold=False)
        else:
            await stream(writer, frame(event(n=2), sse_id="evt_2"))

    async with RawServer(serve) as server, Party(planner(server.url + "/base", "standard")) as party:
        await until_ticking(party.clock, 0.5, lambda: len(server.heads("GET")) >= 3)
        assert len(server.heads("POST")) == 1
        gone = True
        await party.until_got(SECOND)
        first, second = server.heads("GET")[:2]
        assert "last-event-id" not in first.lower()
        assert "last-event-id: evt_1" in second.lower()
        assert "last-event-id: evt_1" in server.heads("GET /base/aaep/v1/stream/sub_2")[0].lower()
        assert len(server.heads("POST")) == 2


def standard_producer(*parts: bytes, **honoured: object) -> Serve:
    async def serve(request: str, writer: Writer) -> None:
        if request.startswith("POST"):
            body = json.dumps({**ACCEPTED, "subscription_id": "sub_1", "honored_capabilities": honoured})
            await answer(writer, "201 Created", body)
        else:
            await stream(writer, *parts)

    return serve


@pytest.mark.parametrize(
    ("cursor", "header"),
    [
        ("evt_1", "evt_1"),
        (" é1 ", "é1"),
        ("evt\r\nX-Injected: 1", None),
        (None, None),
    ],
)
async def test_subscriber_resumes_after_any_cursor(cursor: str | None, header: str | None) -> None:
    async with RawServer(standard_producer(frame(event()))) as server:
        async with Party(planner(server.url, "standard"), cursor=cursor) as party:
            await party.until_got(FIRST)
        lines = [
            line for line in server.heads("GET")[0].split("\r\n") if line.lower().startswith("last-event-id")
        ]
        assert lines == ([f"Last-Event-ID: {header}"] if header else [])
        assert "Injected" not in server.heads("GET")[0]


async def test_subscriber_resumes_only_once_what_it_read_is_stored() -> None:
    async def serve(request: str, writer: Writer) -> None:
        if request.startswith("POST"):
            body = json.dumps({**ACCEPTED, "subscription_id": "sub_1", "honored_capabilities": {}})
            await answer(writer, "201 Created", body)
        else:
            await stream(writer, frame(event(), sse_id="evt_1"), hold=len(server.heads("GET")) > 1)

    async with RawServer(serve) as server, Party(planner(server.url, "standard")) as party:
        party.box.gate.clear()
        await until(lambda: party.state()["last_error"])
        resuming = len(party.clock.slept)
        await until_ticking(party.clock, 0.5, lambda: len(party.clock.slept) > resuming)
        assert len(server.heads("GET")) == 1
        party.box.gate.set()
        await until(lambda: len(server.heads("GET")) == 2)
        assert "Last-Event-ID: evt_1" in server.heads("GET")[1]


async def test_subscriber_is_caught_up_once_the_replay_is_stored() -> None:
    replay = b"".join(frame(event(n=n)) for n in range(500))
    async with RawServer(events_then(replay)) as server, Party(planner(server.url)) as party:
        await until(lambda: party.state()["connected"] or party.clock.slept)
        await party.producers.first_contact(5)
        assert len(party.box.got) == 500


@pytest.mark.parametrize(("bound", "most"), [("_MAX_ITEMS", 10), ("_MAX_BYTES", 100_000)])
async def test_subscriber_holds_a_producer_back_whose_events_cannot_be_stored(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(subscriber, bound, most)
    body = b"".join(frame(event(n=n, padding="x" * 10_000)) for n in range(1, 1001))
    async with RawServer(events_then(body)) as server, Party(planner(server.url)) as party:
        party.box.gate.clear()
        await until(lambda: party.state()["backlog"] >= 10)
        await asyncio.sleep(0.2)  # what it reads at once is there
        assert party.state()["backlog"] < 500
        party.box.gate.set()
        await party.until_got(f"evt_{1000:016x}")
        assert len(party.box.ids()) == 1000
