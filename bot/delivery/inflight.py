"""Posts that were begun and whose outcome is not known yet: whoever asks for a message's place waits for them."""

from __future__ import annotations

import asyncio


class InFlight:
    """Keyed by message; in memory, filled again from the messages table on start."""

    def __init__(self) -> None:
        self._channels: dict[str, str] = {}
        self._changed = asyncio.Event()

    def begin(self, key: str, channel: str) -> None:
        self._channels[key] = channel

    def end(self, key: str) -> None:
        """Its outcome is known, and stored."""
        if self._channels.pop(key, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def any_in(self, channel: str) -> bool:
        return channel in self._channels.values()

    def next_change(self) -> asyncio.Event:
        """Set when one more outcome is known than now."""
        return self._changed

    async def settled(self) -> None:
        """Returns when every outcome is known."""
        while self._channels:
            await self._changed.wait()
