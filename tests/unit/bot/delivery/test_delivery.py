"""What is put where, whatever comes between. Real storage, real delivery."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from bot.app import Bot
from bot.delivery.messages import Fresh
from bot.errors import StorageUnavailable
from bot.storage.store import Store
from core.clarification import escalated
from core.index import summarize
from tests.kit.builders import NOW, record
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.slack.kit import settings


async def test_rollup_that_could_not_be_stored_at_first_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await Store.open(tmp_path / "clarify.db")
    bot = Bot(settings(tmp_path), store, ManualClock(NOW, auto=True), random.Random(1))  # noqa: S311 - jitter
    want, refused = bot.messages.want, list[str]()

    async def full_once(fresh: Iterable[Fresh]) -> None:
        wanted = list(fresh)
        if any(each.kind == "rollup" for each in wanted) and not refused:
            refused.extend(each.key for each in wanted)
            raise StorageUnavailable("full")
        await want(wanted)

    monkeypatch.setattr(bot.messages, "want", full_once)
    sent: list[str] = []
    monkeypatch.setattr(bot.delivery.lanes, "put", lambda _, key, *__, **___: sent.append(key))
    for seq in range(1, 23):
        bot.delivery.record_changed(summarize(record(seq=seq)))
    running = asyncio.create_task(bot.delivery.run())
    await until(lambda: refused and refused[0] in sent)
    assert await bot.messages.get(refused[0]) is not None
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    bot.ledger.close()


async def test_card_of_a_round_before_is_brought_up_to_date_when_people_do_not_see_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents may settle what people were shown and ask further, before anybody looks: its controls have to go."""
    store = await Store.open(tmp_path / "clarify.db")
    bot = Bot(settings(tmp_path), store, ManualClock(NOW, auto=True), random.Random(1))  # noqa: S311 - jitter
    sent: list[str] = []
    monkeypatch.setattr(bot.delivery.lanes, "put", lambda _, key, *__, **___: sent.append(key))
    asked = record(to="architect").model_copy(update={"aaep": None})
    running = asyncio.create_task(bot.delivery.run())
    bot.delivery.record_changed(summarize(escalated(asked, "stale", "Nobody answered.", NOW)))
    await until(lambda: sent == ["card:CLR-42-001:1"])
    bot.delivery.record_changed(summarize(asked.model_copy(update={"round": 2})))
    await until(lambda: len(sent) == 2)
    assert set(sent) == {"card:CLR-42-001:1"}
    assert await bot.messages.get("card:CLR-42-001:2") is None
    assert not bot.rollups.has_place("CLR-42-001")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    bot.ledger.close()
