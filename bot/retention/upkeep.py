"""What the bot does by itself about what it keeps: archives and sweeps daily, erases what was forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from slack_sdk.web.async_client import AsyncWebClient

from bot.delivery.erasing import Erasing
from bot.delivery.retained import Retained
from bot.retention.keeping import Retention
from bot.storage.store import Store
from core.clock import Clock
from core.index import Summary
from core.ledger import FileLedger


class Sends(Protocol):
    """`bot.delivery.delivery.Delivery`."""

    def send(self, target: str, key: str, *, post: bool = True) -> None: ...


class Keeping:
    """`index` is filled before `run`. `forgotten`: have what is kept in memory read again."""

    def __init__(
        self,
        *,
        ledger: FileLedger,
        store: Store,
        storage: Path,
        index: Iterable[Summary],
        client: AsyncWebClient,
        delivery: Sends,
        forgotten: Callable[[], Awaitable[None]],
        clock: Clock,
        archive_after: timedelta,
        keep: timedelta | None,
    ) -> None:
        self._retention = Retention(
            ledger=ledger,
            retained=Retained(store),
            index=index,
            clock=clock,
            archive_after=archive_after,
            keep=keep,
        )
        self._erasing = Erasing(
            store=store,
            client=client,
            clock=clock,
            storage=storage,
            redraw=lambda target, key: delivery.send(target, key, post=False),
            forgotten=forgotten,
        )

    async def run(self) -> None:
        """Both, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retention.run(), name="retention")
            group.create_task(self._erasing.run(), name="erasing")
