"""Pages through apprise: to a service on loopback, that may refuse, hang or be away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from bot.integrations.apprise.pager import ApprisePager
from bot.oncall.outside import Outside, PagerText
from bot.show.outbox import Delivered, GivenUp, RetryLater
from bot.telemetry import Telemetry
from tests.kit.builders import counted
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.oncall.crew_parties import Receiver, receiving

KEY = "s3cret-key"
PAGE = PagerText("2 questions wait", "Deploy <now> & *here*? \\n {{x}} ${Y} :smile:\nsecond line")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


def address(port: int) -> str:
    return f"json://127.0.0.1:{port}/{KEY}?+X-Key={KEY}"


def pager(receiver: Receiver, more: str = "") -> ApprisePager:
    return ApprisePager(address(receiver.port) + more)


async def test_page_arrives_as_plain_text(receiver: Receiver) -> None:
    assert await pager(receiver).send(PAGE) == Delivered()
    (body,) = receiver.bodies
    assert (body["title"], body["message"], body["type"]) == (*PAGE, "warning")
    await pager(receiver, "&format=html").send(
        PagerText("title", "<b>Deploy</b>*now*[here](http://x.example)?")
    )
    assert "&lt;b&gt;Deploy&lt;/b&gt;*now*" in receiver.bodies[1]["message"]
    assert "<a " not in receiver.bodies[1]["message"]


@pytest.mark.parametrize(
    ("status", "url", "outcome"),
    [
        (401, "", RetryLater("the service rejected it or cannot be reached")),
        (500, "", RetryLater("the service rejected it or cannot be reached")),
        (200, f"json://127.0.0.1:1/{KEY}", RetryLater("the service rejected it or cannot be reached")),
        (200, f"nonsense://{KEY}", GivenUp("its value is not an address that apprise understands")),
        (200, "json://", GivenUp("its value is not an address that apprise understands")),
    ],
)
async def test_failure_is_told_without_the_address(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int, url: str, outcome: RetryLater | GivenUp
) -> None:
    caplog.set_level(logging.WARNING, logger="urllib3")  # as the bot's own logging has it
    caplog.set_level(logging.DEBUG)
    receiver.status = status
    assert await ApprisePager(url or address(receiver.port)).send(PAGE) == outcome
    assert KEY not in caplog.text


async def test_several_addresses_all_have_to_take_it(receiver: Receiver) -> None:
    async with receiving() as other:
        both = pager(receiver, f", {address(other.port)}")
        other.status = 500
        assert isinstance(await both.send(PAGE), RetryLater)
        other.status = 200
        assert await both.send(PAGE) == Delivered()
        assert (len(receiver.bodies), len(other.bodies)) == (2, 2)


async def test_service_that_hangs_is_not_waited_for_and_so_are_few(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.integrations.apprise.pager._MOST_HANGING", 1)
    receiver.hold = asyncio.Event()
    slow, before = pager(receiver), set(threading.enumerate())
    outside = Outside({"SLOW": slow}, Telemetry(ManualClock()), limit=0.3)
    assert await outside.send("SLOW", PAGE) == RetryLater("no answer within 0.3 s")
    assert await outside.send("SLOW", PAGE) == RetryLater("1 earlier alerts are still being sent")
    assert counted(outside.telemetry.pages) == {("outside", "failed"): 2}
    async with receiving() as good:
        assert await pager(good).send(PAGE) == Delivered(), "it holds nothing else up"
    assert all(each.daemon for each in set(threading.enumerate()) - before), (
        "none holds up the end of the bot"
    )
    receiver.hold.set()
    await until(lambda: slow._hanging == 0)
