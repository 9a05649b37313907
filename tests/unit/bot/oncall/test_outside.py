"""What leaves the bot beside Slack: pages through apprise, the alert that Slack is away, the heartbeat."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from bot.errors import NotLeading, PagerError, SlackRefusedError, SlackUnreachableError
from bot.oncall.outside import Heartbeat, Outside, SlackOutageAlert, outside_pagers
from bot.telemetry import Telemetry
from tests.kit.builders import counted
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.oncall.crew_parties import Receiver, receiving, settings

KEY = "s3cret-key"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


def outside(address: str, limit: float = 15.0) -> Outside:
    return Outside(
        {"PAGER_URL": "apprise"}, {"PAGER_URL": SecretStr(address)}, Telemetry(ManualClock()), limit=limit
    )


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

    pager = outside(address(receiver.port))
    await pager.send("PAGER_URL", "2 questions wait", words)

    (body,) = receiver.bodies
    assert counted(pager.telemetry.pages) == {("outside", "sent"): 1}
    assert (body["title"], body["message"], body["type"]) == ("2 questions wait", words, "warning")


@pytest.mark.parametrize(
    ("status", "url", "variable", "problem"),
    [
        (401, "", "PAGER_URL", "rejected it or cannot be reached"),
        (500, "", "PAGER_URL", "rejected it or cannot be reached"),
        (200, f"json://127.0.0.1:1/{KEY}", "PAGER_URL", "rejected it or cannot be reached"),
        (200, f"nonsense://{KEY}", "PAGER_URL", "PAGER_URL is not an address that apprise understands"),
        (200, "json://", "PAGER_URL", "PAGER_URL is not an address that apprise understands"),
        (200, "", "OTHER", "OTHER is not set"),
    ],
)
async def test_outside_failure_is_told_and_counted_without_the_address(
    receiver: Receiver, status: int, url: str, variable: str, problem: str
) -> None:
    receiver.status = status
    pager = outside(url or address(receiver.port))
    assert problem in await problem_of(pager, variable)
    assert counted(pager.telemetry.pages) == {("outside", "failed"): 1}


async def test_outside_several_addresses_all_have_to_take_it(receiver: Receiver) -> None:
    async with receiving() as other:
        other.status = 500
        both = f"{address(receiver.port)}, {address(other.port)}"

        assert "rejected it or cannot be reached" in await problem_of(outside(both))

        other.status = 200
        await outside(both).send("PAGER_URL", "title", "body")
        assert (len(receiver.bodies), len(other.bodies)) == (2, 2)


async def test_outside_slow_is_not_waited_for_and_holds_nothing_up(receiver: Receiver) -> None:
    receiver.hold = asyncio.Event()
    pager = outside(address(receiver.port), limit=0.3)

    assert await problem_of(pager) == "PAGER_URL: no answer within 0.3 s"

    assert all(t.daemon for t in threading.enumerate() if t.name.startswith("pager"))
    receiver.hold.set()
    await until(lambda: pager._hanging == 0)
    receiver.hold = None
    await outside(address(receiver.port)).send("PAGER_URL", "again", "body")
    assert receiver.bodies[-1]["title"] == "again"


async def test_outside_hanging_sendings_are_bounded(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.oncall.outside._MOST_HANGING", 1)
    receiver.hold = asyncio.Event()
    pager = outside(address(receiver.port), limit=0.2)
    await problem_of(pager)

    assert "1 earlier" in await problem_of(pager)

    receiver.hold.set()
    await until(lambda: pager._hanging == 0)


async def test_outside_one_that_hangs_does_not_hold_up_another(receiver: Receiver) -> None:
    async with receiving() as slow:
        slow.hold = asyncio.Event()
        secrets = {"SLOW": SecretStr(address(slow.port)), "GOOD": SecretStr(address(receiver.port))}
        pager = Outside(dict.fromkeys(secrets, "apprise"), secrets, Telemetry(ManualClock()))
        hanging = asyncio.create_task(pager.send("SLOW", "title", "body"))
        await until(lambda: slow.bodies)

        await pager.send("GOOD", "title", "body")

        assert receiver.bodies
        assert not hanging.done()
        slow.hold.set()
        await hanging


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


ON_CALL = """
[[on_call]]
name = "a"
users = ["U1"]
steps = [
  {after = "0s", notify = ["dm", "apprise:ONE"]},
  {after = "5m", notify = ["apprise:TWO", "apprise:ONE"]},
]
[[on_call]]
name = "b"
users = ["U1"]
steps = [{after = "0s", notify = ["apprise:TWO", "apprise:THREE"]}]
"""


class Outage:
    """Slack as the bot sees it, pagers outside, and two clocks."""

    def __init__(self, *targets: str) -> None:
        self.clock = ManualClock()
        self.monotonic = 1000.0
        self.socket = True
        self.slack: Exception | None = None
        self.dead: set[str] = set()
        self.sent: list[tuple[str, str]] = []
        self.bodies: list[str] = []
        self.alert = SlackOutageAlert(
            targets=targets,
            send_outside=self.send,
            connected=lambda: self.socket,
            probe=self.probe,
            clock=self.clock,
            seconds=lambda: self.monotonic,
        )

    async def probe(self) -> None:
        if self.slack is not None:
            raise self.slack

    async def send(self, variable: str, title: str, body: str) -> None:
        if variable in self.dead:
            raise PagerError(f"{variable}: dead")
        self.sent.append((variable, title))
        self.bodies.append(body)

    async def after(self, seconds: float) -> list[str]:
        """What was sent in so many seconds, looking every fifteen."""
        self.sent.clear()
        end = self.monotonic + seconds
        while self.monotonic < end:
            self.monotonic = min(end, self.monotonic + 15)
            await self.alert.look()
        return [f"{variable}: {title}" for variable, title in self.sent]


DOWN = SlackUnreachableError()
ALARM, BACK = "clarify-bot cannot reach Slack", "clarify-bot reaches Slack again"


@pytest.mark.parametrize(
    ("slack", "socket", "words"),
    [
        (DOWN, True, "Slack does not answer"),
        (DOWN, False, "Slack does not answer"),
        (None, False, "connection for clicks"),
        (SlackRefusedError(code="token_revoked"), True, "token_revoked"),
    ],
)
async def test_outage_told_once_per_outage_and_when_it_is_over(
    slack: Exception | None, *, socket: bool, words: str
) -> None:
    world = Outage("ONE", "TWO")
    assert await world.after(600) == []

    world.slack, world.socket = slack, socket
    assert await world.after(180) == []
    assert await world.after(30) == [f"ONE: {ALARM}", f"TWO: {ALARM}"]
    assert words in world.bodies[0]
    assert world.alert.is_raised
    assert await world.after(3600) == []

    world.slack, world.socket = None, True
    assert await world.after(15) == [f"ONE: {BACK}", f"TWO: {BACK}"]
    assert await world.after(600) == []
    assert not world.alert.is_raised

    world.slack = DOWN
    assert await world.after(300) == [f"ONE: {ALARM}", f"TWO: {ALARM}"]


async def test_outage_what_was_not_taken_is_tried_again_while_it_lasts() -> None:
    world = Outage("ONE", "TWO")
    world.slack, world.dead = DOWN, {"TWO"}
    assert await world.after(600) == [f"ONE: {ALARM}"]

    world.dead = set()
    assert await world.after(30) == [f"TWO: {ALARM}"]


async def test_outage_only_those_who_were_told_hear_that_it_is_over() -> None:
    world = Outage("ONE", "TWO")
    world.slack, world.dead = DOWN, {"TWO"}
    await world.after(600)
    world.slack, world.dead = None, set()
    assert await world.after(15) == [f"ONE: {BACK}"]


async def test_outage_a_clock_that_is_set_makes_no_outage() -> None:
    world = Outage("ONE")
    world.slack = DOWN
    await world.after(30)

    await world.clock.advance(86400)

    assert await world.after(60) == []


def test_outside_pagers_are_those_of_all_policies_each_once(tmp_path: Path) -> None:
    found = settings(
        tmp_path, ON_CALL, ONE="json://127.0.0.1:1", TWO="json://127.0.0.1:2", THREE="json://127.0.0.1:3"
    )

    assert outside_pagers(found) == dict.fromkeys(("ONE", "TWO", "THREE"), "apprise")


MINUTE = timedelta(minutes=1)
Start = Callable[[str, "Health"], None]


class Health:
    def __init__(self) -> None:
        self.good = True

    async def __call__(self) -> bool:
        return self.good


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def start(clock: ManualClock) -> AsyncIterator[Start]:
    tasks: list[asyncio.Task[None]] = []

    def begin(url: str, health: Health) -> None:
        beat = Heartbeat(SecretStr(url), MINUTE, clock, health)
        tasks.append(asyncio.create_task(beat.run()))

    yield begin
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def next_beat(clock: ManualClock) -> None:
    await until(lambda: clock.sleeping)
    await clock.advance(60)
    await until(lambda: clock.sleeping)


def url_of(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/ping/{KEY}?via=clarify"


async def test_heartbeat_beats_every_minute_while_healthy(
    receiver: Receiver, clock: ManualClock, start: Start
) -> None:
    health = Health()
    start(url_of(receiver), health)
    await until(lambda: clock.sleeping)
    assert receiver.paths == [f"/ping/{KEY}?via=clarify"]

    await next_beat(clock)
    assert len(receiver.paths) == 2

    health.good = False
    await next_beat(clock)
    await next_beat(clock)
    assert len(receiver.paths) == 2

    health.good = True
    await next_beat(clock)
    assert len(receiver.paths) == 3


async def test_heartbeat_trouble_is_logged_once_without_the_address(
    receiver: Receiver, clock: ManualClock, start: Start
) -> None:
    receiver.status = 500
    with capture_logs() as logs:
        start(url_of(receiver), Health())
        await next_beat(clock)
        await next_beat(clock)
        receiver.status = 200
        await next_beat(clock)
        await next_beat(clock)

    assert [(entry["event"], entry.get("reason")) for entry in logs] == [
        ("heartbeat failed", "HTTP 500"),
        ("heartbeat works again", None),
    ]
    assert KEY not in str(logs)
    assert len(receiver.paths) == 5


async def test_heartbeat_goes_on_with_an_address_that_is_none(clock: ManualClock, start: Start) -> None:
    url = f"http://[{KEY}"
    with capture_logs() as logs:
        start(url, Health())
        await next_beat(clock)

    (entry,) = logs
    assert KEY not in str(entry)


async def test_outside_send_of_a_bot_that_does_not_lead_sends_nothing(receiver: Receiver) -> None:
    def acting() -> NoReturn:
        raise NotLeading

    secrets = {"PAGER_URL": SecretStr(address(receiver.port))}
    pager = Outside({"PAGER_URL": "apprise"}, secrets, Telemetry(ManualClock()), acting=acting)
    assert "does not lead" in await problem_of(pager)
    assert not receiver.bodies
