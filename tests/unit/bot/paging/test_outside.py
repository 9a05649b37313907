from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from bot.errors import PagerError
from bot.paging.outside import Outside
from tests.clocks import until
from tests.unit.bot.paging.crew_parties import Receiver, receiving

KEY = "s3cret-key"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


def outside(address: str, limit: float = 15.0) -> Outside:
    return Outside({"PAGER_URL": SecretStr(address)}, limit=limit)


def address(port: int) -> str:
    return f"json://127.0.0.1:{port}/{KEY}?+X-Key={KEY}"


async def problem_of(pager: Outside, variable: str = "PAGER_URL") -> str:
    with pytest.raises(PagerError) as caught:
        await pager.send(variable, "title", "body")
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in repr(error)
        error = error.__cause__ or error.__context__
    return str(caught.value)


async def test_outside_send_arrives_as_plain_text(receiver: Receiver) -> None:
    words = "Deploy <now> & *here*? \\n {{x}} ${Y} :smile:\nsecond line"

    await outside(address(receiver.port)).send("PAGER_URL", "2 questions wait", words)

    (body,) = receiver.bodies
    assert (body["title"], body["message"], body["type"]) == ("2 questions wait", words, "warning")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
async def test_outside_refused_raises_without_the_address(receiver: Receiver, status: int) -> None:
    receiver.status = status

    assert "did not take it" in await problem_of(outside(address(receiver.port)))
    assert len(receiver.bodies) == 1


async def test_outside_nobody_listens_raises_without_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # not listening: connections are refused
        assert "did not take it" in await problem_of(outside(address(taken.getsockname()[1])))


async def test_outside_slow_is_not_waited_for_and_holds_nothing_up(receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    pager = outside(address(receiver.port), limit=0.3)

    assert await problem_of(pager) == "PAGER_URL: no answer within 0.3 s"

    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("pager"))
    receiver.hold.set()
    await until(lambda: pager._hanging == 0)
    receiver.hold = None
    await Outside({"PAGER_URL": SecretStr(address(receiver.port))}).send("PAGER_URL", "again", "body")
    assert receiver.bodies[-1]["title"] == "again"


async def test_outside_hanging_sendings_are_bounded(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.paging.outside._MOST_HANGING", 1)
    receiver.hold = asyncio.Event()
    pager = outside(address(receiver.port), limit=0.2)
    await problem_of(pager)

    assert "1 earlier" in await problem_of(pager)

    receiver.hold.set()
    await until(lambda: pager._hanging == 0)


async def test_outside_one_that_hangs_does_not_hold_up_another(receiver: Receiver) -> None:
    async with receiving() as slow:
        slow.hold = asyncio.Event()
        pager = Outside({"SLOW": SecretStr(address(slow.port)), "GOOD": SecretStr(address(receiver.port))})
        hanging = asyncio.create_task(pager.send("SLOW", "title", "body"))
        await until(lambda: slow.bodies)

        await pager.send("GOOD", "title", "body")

        assert receiver.bodies
        assert not hanging.done()
        slow.hold.set()
        await hanging


@pytest.mark.parametrize("wrong", [f"nonsense://{KEY}", f"{KEY}", "json://", f"http//{KEY}"])
async def test_outside_no_address_for_apprise(wrong: str) -> None:
    assert await problem_of(outside(wrong)) == "PAGER_URL does not hold an address that apprise understands"


async def test_outside_variable_not_set() -> None:
    assert await problem_of(outside("json://127.0.0.1:1"), "OTHER") == "OTHER is not set"


async def test_outside_several_addresses_all_have_to_take_it(receiver: Receiver) -> None:
    async with receiving() as other:
        other.status = 500
        both = f"{address(receiver.port)}, {address(other.port)}"

        assert "did not take it" in await problem_of(outside(both))

        other.status = 200
        await outside(both).send("PAGER_URL", "title", "body")
        assert (len(receiver.bodies), len(other.bodies)) == (2, 2)


async def test_outside_words_stay_plain_where_the_service_wants_html(receiver: Receiver) -> None:
    html = outside(address(receiver.port) + "&format=html")

    await html.send("PAGER_URL", "title", "<b>Deploy</b> *now* [here](http://x.example)?")

    (body,) = receiver.bodies
    assert "&lt;b&gt;Deploy&lt;/b&gt;" in body["message"]
    assert "*now*" in body["message"]
    assert "<a " not in body["message"]


async def test_outside_logs_hold_no_address(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="urllib3")  # as the bot's own logging has it
    caplog.set_level(logging.DEBUG)
    pager = outside(address(receiver.port))
    await pager.send("PAGER_URL", "title", "body")
    receiver.status = 500

    await problem_of(pager)
    await problem_of(outside(f"nonsense://{KEY}"))

    assert KEY not in caplog.text
