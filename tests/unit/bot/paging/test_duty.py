from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.delivery.store import Store
from bot.paging.duty import Duty
from core.escalation import Override, in_force
from tests.clocks import ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_duty_take_and_hand_are_listed_in_the_order_of_making(store: Store, clock: ManualClock) -> None:
    duty = Duty(store, clock)
    now = clock.now()

    taken = await duty.take("platform", "U1", now + 8 * HOUR)
    await clock.advance(60)
    handed = await duty.hand("platform", "U2", now + HOUR, "U1")
    await duty.take("data", "U3", now + HOUR)

    assert taken == Override("U1", now, now + 8 * HOUR, "U1")
    assert await duty.list("platform") == (taken, handed)
    assert in_force(await duty.list("platform"), clock.now()) == handed
    assert in_force(await duty.list("platform"), now + 2 * HOUR) == taken


async def test_duty_survives_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    store = await Store.open(tmp_path / "other.db")
    made = await Duty(store, clock).take("platform", "U1", clock.now() + HOUR)
    await store.close()

    again = await Store.open(tmp_path / "other.db")

    assert await Duty(again, clock).list("platform") == (made,)
    await again.close()


async def test_duty_forgets_what_is_over(store: Store, clock: ManualClock) -> None:
    duty = Duty(store, clock)
    await duty.take("platform", "U1", clock.now() + HOUR)
    await clock.advance(3600)

    made = await duty.take("platform", "U2", clock.now() + HOUR)

    assert await duty.list("platform") == (made,)


async def test_duty_tells_of_a_change_once_it_is_kept(store: Store, clock: ManualClock) -> None:
    told: list[int] = []
    duty = Duty(store, clock, changed=lambda: told.append(1))
    await duty.take("platform", "U1", clock.now() + HOUR)
    assert told == [1]
