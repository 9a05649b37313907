"""Whatever proves that Slack is back ends the waiting; other answers do not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bot.slack.calls import NETWORK_ERRORS
from bot.slack.pulse import Pulse
from bot.slack.web import web_client
from bot.workspace import Workspace
from tests.clocks import ManualClock
from tests.unit.bot.slack.kit import settings


async def test_rest_lasts_as_long_as_was_said_while_nothing_changes() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    resting = asyncio.create_task(pulse.rest(30))
    pulse.felt()  # it was never away
    await clock.advance(29)
    assert not resting.done()
    await clock.advance(2)
    assert resting.done()


async def test_rest_ends_when_slack_is_back_and_not_before_a_second() -> None:
    clock, back = ManualClock(), 0

    def came() -> None:
        nonlocal back
        back += 1

    pulse = Pulse(clock, came)
    pulse.missed()
    early, late = asyncio.create_task(pulse.rest(30)), asyncio.create_task(pulse.rest(600))
    await clock.advance(0.5)
    pulse.felt()
    pulse.felt()
    await clock.advance(0.1)
    assert not early.done()
    await clock.advance(0.5)
    assert early.done()
    assert late.done()
    assert back == 1


@pytest.mark.parametrize(
    ("fault", "is_back"),
    [("", True), ("refuse:channel_not_found", True), ("429:5", True), ("5xx:503", False), ("drop", False)],
)
async def test_every_call_tells_whether_slack_answers(
    ws: Workspace, tmp_path: Path, fault: str, is_back: bool
) -> None:
    came: list[bool] = []
    pulse = Pulse(ManualClock(), lambda: came.append(True))
    made = settings(tmp_path)
    client = web_client(made.model_copy(update={"slack_api_url": ws.api_url}), pulse)
    pulse.missed()
    if fault:
        ws.faults.add("auth.test", fault)
    with suppress(*NETWORK_ERRORS):
        await client.auth_test()
    assert came == [True] * is_back
