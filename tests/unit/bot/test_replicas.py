"""What a bot knows of the others on its database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot import replicas
from bot.errors import StorageUnavailable
from bot.replicas import Replicas
from bot.storage.opening import open_storage
from tests.kit.clocks import ManualClock
from tests.kit.databases import Server
from tests.kit.until import until

PARTS = (
    *("inbox", "delivery", "duplicates", "incidents", "pages", "home", "people", "producers"),
    *("catch_up", "forgotten", "turned", "channels", "app_removed"),
)


async def test_bot_that_is_not_seen_any_more_may_still_be_connected_with_slack(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_LOOK", 0.02)
    url, clock = postgres_server.new(), ManualClock()
    store, other = await open_storage(url), await open_storage(url)
    unused: dict[str, Any] = dict.fromkeys(PARTS)
    bot = Replicas(store=store, clock=clock, **unused)
    with capture_logs() as logs:
        watching = asyncio.create_task(bot._watch_others())
        leading = asyncio.create_task(other.lead())
        await until(lambda: bot.others() == 1)
        await leading
        await other.close()
        await until(lambda: any(each["event"] == "another replica ended" for each in logs))
    assert bot.others() == 1
    await clock.advance(601)
    assert bot.others() == 0
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await store.close()


class Watched:
    """`DuplicateCleanup` that only count."""

    def __init__(self) -> None:
        self.times = 0

    async def watch_again(self) -> None:
        self.times += 1
        if self.times == 1:
            raise StorageUnavailable("away")


async def test_bot_that_comes_may_have_led_so_what_it_left_is_watched_for_again(
    postgres_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "_LOOK", 0.02)
    url = postgres_server.new()
    store = await open_storage(url)
    await store.lead()
    unused: dict[str, Any] = dict.fromkeys(PARTS)
    duplicates: Any = Watched()
    bot = Replicas(store=store, clock=ManualClock(), **unused | {"duplicates": duplicates})
    watching = asyncio.create_task(bot._watch_others())
    other = await open_storage(url)
    assert not await other.lead(wait=False)
    await until(lambda: bot.others() == 1)
    assert duplicates.times == 2
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await other.close()
    await store.close()
