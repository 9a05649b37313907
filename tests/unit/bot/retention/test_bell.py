"""The file by which another process tells the bot that something was forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.erasing import Erasing, bell, ring
from bot.storage.store import Store
from tests.kit.clocks import ManualClock
from tests.kit.until import until


@pytest.mark.parametrize("folder", ["data", "node_modules", ".venv"])
async def test_ring_is_heard_wherever_the_storage_is(tmp_path: Path, folder: str) -> None:
    """Some names of folders are left out by who watches files, unless told otherwise."""
    storage = tmp_path / folder / "clarify.db"
    storage.parent.mkdir()
    heard = asyncio.Event()

    async def forgotten() -> None:
        heard.set()

    store = await Store.open(storage)
    erasing = Erasing(
        store=store,
        client=AsyncWebClient(),
        clock=ManualClock(),
        storage=storage,
        redraw=lambda _target, _key: None,
        forgotten=forgotten,
    )
    task = asyncio.create_task(erasing.run())
    try:
        await until(lambda: bell(storage).exists())
        async with asyncio.timeout(20):
            while not heard.is_set():
                await asyncio.to_thread(ring, storage)
                await asyncio.wait([asyncio.ensure_future(heard.wait())], timeout=1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
