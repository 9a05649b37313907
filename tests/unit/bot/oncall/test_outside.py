"""What leaves the bot beside Slack: pages to pagers outside, the alert that Slack is away, the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from bot.errors import NotLeading, SlackRefusedError, SlackUnreachableError
from bot.oncall.outside import Heartbeat, Outside, PagerText, SlackOutageAlert
from bot.show.outbox import Delivered, GivenUp, Outcome, RetryLater
from bot.telemetry import Telemetry
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.oncall.crew_parties import Receiver, receiving

KEY = "s3cret-key"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


class Broken:
    async def send(self, page: PagerText) -> Outcome:
        raise KeyError(KEY)


async def test_pager_that_is_broken_or_of_a_bot_that_does_not_lead_took_nothing() -> None:
    def acting() -> NoReturn:
        raise NotLeading

    page = PagerText("title", "body")
    assert await Outside({"P": Broken()}, Telemetry(ManualClock())).send("P", page) == RetryLater("KeyError")
    outcome = await Outside({"P": Broken()}, Telemetry(ManualClock()), acting=acting).send("P", page)
    assert isinstance(outcome, RetryLater)
    assert "does not lead" in outcome.reason


class Outage:
    """Slack as the bot sees it, pagers outside, and two clocks."""

    def __init__(self, *targets: str) -> None:
        self.clock = ManualClock()
        self.monotonic = 1000.0
        self.socket = True
        self.slack: Exception | None = None
        self.dead: set[str] = set()
        self.never: set[str] = set()
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

    async def send(self, variable: str, page: PagerText) -> Outcome:
        if variable in self.dead:
            return RetryLater("dead")
        self.sent.append((variable, page.title))
        self.bodies.append(page.body)
        return GivenUp("no address") if variable in self.never else Delivered()

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
    world.slack = None
    assert await world.after(15) == [f"ONE: {BACK}"], "only who was told hears that it is over"

    world.slack = DOWN
    assert await world.after(600) == [f"ONE: {ALARM}"]
    world.dead, world.never = set(), {"TWO"}
    assert await world.after(30) == [f"TWO: {ALARM}"], "once: it will never take it"


async def test_outage_a_clock_that_is_set_makes_no_outage() -> None:
    world = Outage("ONE")
    world.slack = DOWN
    await world.after(30)

    await world.clock.advance(86400)

    assert await world.after(60) == []


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
