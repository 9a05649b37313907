from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bot.errors import PagerError, SlackRefusedError, SlackUnreachableError
from bot.paging.distress import Distress, outside_targets
from tests.clocks import ManualClock, until
from tests.unit.bot.paging.crew_parties import settings

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


class World:
    """Slack as the bot sees it, pagers outside, and two clocks."""

    def __init__(self, *targets: str) -> None:
        self.clock = ManualClock()
        self.monotonic = 1000.0
        self.socket = True
        self.slack: Exception | None = None
        self.dead: set[str] = set()
        self.sent: list[tuple[str, str]] = []
        self.bodies: list[str] = []
        self.distress = Distress(
            targets=targets,
            outside=self,
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
            await self.distress.look()
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
async def test_distress_told_once_per_outage_and_when_it_is_over(
    slack: Exception | None, *, socket: bool, words: str
) -> None:
    world = World("ONE", "TWO")
    assert await world.after(600) == []

    world.slack, world.socket = slack, socket
    assert await world.after(180) == []
    assert await world.after(30) == [f"ONE: {ALARM}", f"TWO: {ALARM}"]
    assert words in world.bodies[0]
    assert world.distress.in_distress
    assert await world.after(3600) == []

    world.slack, world.socket = None, True
    assert await world.after(15) == [f"ONE: {BACK}", f"TWO: {BACK}"]
    assert await world.after(600) == []
    assert not world.distress.in_distress

    world.slack = DOWN
    assert await world.after(300) == [f"ONE: {ALARM}", f"TWO: {ALARM}"]


async def test_distress_short_outages_do_not_add_up() -> None:
    world = World("ONE")
    for _ in range(10):
        world.slack = DOWN
        assert await world.after(150) == []
        world.slack = None
        assert await world.after(15) == []


async def test_distress_what_was_not_taken_is_tried_again_while_it_lasts() -> None:
    world = World("ONE", "TWO")
    world.slack, world.dead = DOWN, {"TWO"}
    assert await world.after(600) == [f"ONE: {ALARM}"]

    world.dead = set()
    assert await world.after(30) == [f"TWO: {ALARM}"]


async def test_distress_only_those_who_were_told_hear_that_it_is_over() -> None:
    world = World("ONE", "TWO")
    world.slack, world.dead = DOWN, {"TWO"}
    await world.after(600)

    world.slack, world.dead = None, set()

    assert await world.after(15) == [f"ONE: {BACK}"]


async def test_distress_a_clock_that_is_set_makes_no_outage() -> None:
    world = World("ONE")
    world.slack = DOWN
    await world.after(30)

    await world.clock.advance(86400)

    assert await world.after(60) == []


async def test_distress_run_looks_until_cancelled() -> None:
    world = World("ONE")
    world.slack = DOWN
    task = asyncio.create_task(world.distress.run())
    await until(lambda: world.clock.sleeping)
    await world.clock.advance(15)
    assert world.sent == []
    world.monotonic += 200
    await world.clock.advance(15)
    assert world.sent == [("ONE", ALARM)]
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_outside_targets_are_those_of_all_policies_each_once(tmp_path: Path) -> None:
    found = settings(
        tmp_path, ON_CALL, ONE="json://127.0.0.1:1", TWO="json://127.0.0.1:2", THREE="json://127.0.0.1:3"
    )

    assert outside_targets(found) == ("ONE", "TWO", "THREE")
