from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace

import pytest

from bot.home.facts import Viewer
from tests.unit.bot.home.parties import World


class ViewersInMemory:
    """As `bot.delivery.homes.Homes`, which has tests of its own: simulated time does not wait for a disk."""

    def __init__(self) -> None:
        self.kept: dict[str, Viewer] = {}

    async def all(self) -> list[Viewer]:
        return list(self.kept.values())

    async def seen(self, viewer: Viewer) -> None:
        self.kept[viewer.user] = viewer

    async def shows(self, user: str, digest: str | None) -> None:
        if user in self.kept:
            self.kept[user] = replace(self.kept[user], digest=digest)

    async def turned(self, user: str, pages: Mapping[str, int]) -> None:
        self.kept[user] = replace(self.kept[user], pages=dict(pages))

    async def forget(self, users: Collection[str]) -> None:
        for user in users:
            self.kept.pop(user, None)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A publisher at work, in simulated time."""
    world = World(ViewersInMemory())
    running = asyncio.create_task(world.home.run())
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
