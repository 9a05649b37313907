from __future__ import annotations

import asyncio

import pytest

from bot.errors import SlackUnreachableError
from bot.slack.haste import LOOK_UPS, HurriedRoster, hurried, unhurried, within
from core.ledger import LOCK_TIMEOUT


async def soon() -> str:
    return "known"


async def late() -> str:
    await asyncio.sleep(30)
    return "too late"


def test_look_ups_and_the_lock_leave_something_of_the_three_seconds() -> None:
    assert LOOK_UPS + LOCK_TIMEOUT <= 2.8


async def test_within_knows_no_limit_where_nobody_waits() -> None:
    assert await within(soon()) == "known"


async def test_look_ups_of_one_interaction_share_one_allowance() -> None:
    with hurried(0.05):
        assert await within(soon()) == "known"
        with pytest.raises(SlackUnreachableError):
            await within(late())
        with pytest.raises(SlackUnreachableError):
            await asyncio.wait_for(within(late()), 60)
        assert await within(soon()) == "known"  # what is known already costs nothing


async def test_allowance_ends_with_its_interaction() -> None:
    with hurried(0.0):
        pass
    assert await within(asyncio.sleep(0.01, "known")) == "known"


async def test_work_after_the_acknowledgement_is_in_no_hurry() -> None:
    with hurried(0.0):
        task = asyncio.create_task(unhurried(within(asyncio.sleep(0.01, "known"))))
        with pytest.raises(SlackUnreachableError):
            await within(asyncio.sleep(0.01))
    assert await task == "known"


class Slow:
    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        await asyncio.sleep(30)
        return ()


async def test_roster_counts_too() -> None:
    with hurried(0.01), pytest.raises(SlackUnreachableError):
        await HurriedRoster(Slow()).on_call("platform")  # type: ignore[arg-type]
