"""How a calendar is fetched and read: asked whether it changed, redirected, refused, given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from bot.http import HttpClient, HttpStream
from bot.integrations.ical import reader, source
from bot.integrations.ical.source import CalendarSource
from bot.oncall.feeds import SourceError, read
from tests.integrations.ical.test_reader import calendar
from tests.kit.served import served
from tests.unit.bot.ask.parties import RawServer, Writer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ANN = "SUMMARY:Ann\nATTENDEE:mailto:ann@example.com\nDTSTART:20261120T080000Z\nDTEND:20261120T200000Z"


@dataclass
class Served:
    """An HTTP server: what it was asked, and how it answers."""

    url: str = ""
    asked: list[web.Request] = field(default_factory=list)
    response: Callable[[], web.Response] = lambda: web.Response(body=calendar(ANN))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return web.Response(body=calendar(ANN)) if request.path == "/there" else self.response()


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    made = Served()
    async with served(made.handle) as made.url:
        yield made


def of(url: str) -> CalendarSource:
    return CalendarSource("FEED", url, "UTC")


async def refused(url: str, why: str) -> None:
    with pytest.raises(SourceError, match=why) as error:
        await read(of(url), NOW)
    assert "secret" not in str(error.value)


async def test_calendar_is_asked_whether_it_changed_and_read_anew_each_day(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_out, work_out = list[bytes](), source._worked_out

    async def noted(feed: bytes, *rest: Any) -> Any:
        worked_out.append(feed)
        return await work_out(feed, *rest)

    monkeypatch.setattr(source, "_worked_out", noted)
    server.response = lambda: web.Response(body=calendar(ANN), headers={"ETag": '"one"'})
    feed = of(server.url)
    first = await feed.read(NOW)
    assert [each.email for each in first.shifts] == ["ann@example.com"]
    assert await feed.read(NOW) == first
    server.response = lambda: web.Response(status=304)
    assert await feed.read(NOW) == first
    assert [each.headers.get("If-None-Match") for each in server.asked] == [None, '"one"', '"one"']
    assert len(worked_out) == 1, "the same words are not parsed again"
    server.response = lambda: web.Response(body=calendar(ANN))
    assert (await feed.read(NOW + timedelta(days=1))).shifts
    assert "If-None-Match" not in server.asked[-1].headers
    assert len(worked_out) == 2, "what was worked out reaches a month"


async def test_redirects_on_loopback_are_followed(server: Served) -> None:
    server.response = lambda: web.Response(status=302, headers={"Location": "/there"})
    assert (await of(server.url).read(NOW)).shifts


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://calendar.example.com/basic.ics", "without https"),
        ("file:///etc/passwd", "without https"),
        ("/", "too many times"),
    ],
)
async def test_redirects_elsewhere_are_refused(server: Served, location: str, why: str) -> None:
    server.response = lambda: web.Response(status=301, headers={"Location": location})
    await refused(server.url, why)


async def test_redirect_from_the_world_to_this_machine_is_refused(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can change a calendar's address must not make the bot call what listens here."""
    asked: list[str] = []

    async def nothing() -> bytes:
        return b""

    class World(HttpClient):
        """Stands in for a host that no test reaches."""

        @asynccontextmanager
        async def stream(self, method: str, url: str | URL, *_: Any, **__: Any) -> AsyncIterator[HttpStream]:
            asked.append(f"{method} {url}")
            yield HttpStream(302, {"location": server.url}, nothing)

    monkeypatch.setattr(source, "HttpClient", World)
    await refused("webcal://calendar.example.com/secret.ics", "to this machine")
    assert asked == ["GET https://calendar.example.com/secret.ics"]


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (lambda: web.Response(status=404), "HTTP 404: the address may be out of date"),
        (lambda: web.Response(status=500), "HTTP 500$"),
        (lambda: web.Response(body=b"<html>Sign in"), "not iCalendar"),
        (lambda: web.Response(body=b" " * 200), "larger than 0 MB"),
        (lambda: web.Response(body=b"", headers={"Content-Encoding": "gzip"}), "compressed"),
        (lambda: web.Response(status=304), "HTTP 304"),
    ],
)
async def test_answers_that_are_no_calendar_are_refused(
    server: Served, monkeypatch: pytest.MonkeyPatch, response: Callable[[], web.Response], why: str
) -> None:
    monkeypatch.setattr("bot.oncall.feeds._MOST_BYTES", 100)
    server.response = response
    await refused(f"{server.url}/secret.ics", why)


async def test_source_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(source, "_PATIENCE", 0.1)
    async with served(never) as url:
        await refused(url, "no answer")


async def test_version_that_is_no_header_is_not_kept() -> None:
    async def serve(_request: str, writer: Writer) -> None:
        body = calendar(ANN)
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "\xe9"\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        await writer.drain()

    async with RawServer(serve) as server:
        feed = of(server.url)
        assert await feed.read(NOW) == await feed.read(NOW)


async def test_source_that_is_away() -> None:
    await refused("http://127.0.0.1:1/secret", "cannot connect")


async def test_event_of_now_that_cannot_be_read_is_a_fault_unless_someone_else_is_on_call(
    server: Served,
) -> None:
    odd = (
        'SUMMARY:Ben\nDTSTART;TZID="Nowhere, far":20261120T080000\nDTEND;TZID="Nowhere, far":20261120T200000'
    )
    why = "“Ben” of 2026-11-20: its time zone “Nowhere, far” is unknown"
    server.response = lambda: web.Response(body=calendar(odd))
    await refused(server.url, f"does not say who is on call now .{why}")
    server.response = lambda: web.Response(body=calendar(odd, ANN))
    assert (await of(server.url).read(NOW)).faults == (why,)


SECONDS = ";".join(f"{unit}={','.join(map(str, range(60)))}" for unit in ("BYMINUTE", "BYSECOND"))
HOSTILE = f"SUMMARY:Ann\nDTSTART:19700101T080000Z\nDTEND:19700101T090000Z\nRRULE:FREQ=HOURLY;{SECONDS}"


@pytest.mark.parametrize(("computing", "slowest"), [(1, 60), (10, 0)], ids=["computing", "by the clock"])
async def test_work_on_a_feed_ends(
    server: Served, monkeypatch: pytest.MonkeyPatch, computing: int, slowest: int
) -> None:
    begun: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*words: str, **options: Any) -> asyncio.subprocess.Process:
        assert "PLATFORM_ICAL" not in options["env"]
        begun.append(await start(*words, **options))
        return begun[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    monkeypatch.setenv("PLATFORM_ICAL", "https://calendar.example.com/secret")
    monkeypatch.setattr(source, "COMPUTING", computing)
    monkeypatch.setattr(source, "_SLOWEST", slowest)
    server.response = lambda: web.Response(body=calendar(HOSTILE))
    await refused(server.url, "takes too long or too much memory")
    assert [each.returncode is not None for each in begun] == [True]


async def test_reader_that_cannot_start_is_no_fault_of_the_feed(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "__file__", "nothing.py")
    await refused(server.url, "its reader exited with status 2")
