"""The event log of a producer, and the SSE streams that read from it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

from bot.demo.protocol import Subscription, frame


class Logged(NamedTuple):
    """One event as it was sent: its place in the log, its id and type, the SSE frame."""

    place: int
    event_id: str
    type: str
    frame: bytes


class Streams:
    """`keep`: events kept for resuming. `changed` is notified of everything that somebody may wait for."""

    def __init__(self, *, keep: int, heartbeat: float) -> None:
        self.changed = asyncio.Condition()
        self.next_place = 0
        self.readers: list[web.Request] = []
        self._log: deque[Logged] = deque(maxlen=keep)
        self._heartbeat = heartbeat

    async def append(self, data: str, *, event_id: str, event_type: str) -> None:
        async with self.changed:
            self._log.append(Logged(self.next_place, event_id, event_type, frame(event_id, data)))
            self.next_place += 1
            self.changed.notify_all()

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def cut(self) -> None:
        """Abort the connections of all readers."""
        for request in [*self.readers]:
            if request.transport is not None:
                request.transport.abort()

    async def serve(
        self, request: web.Request, subscription: Subscription, *, is_open: Callable[[], bool]
    ) -> web.StreamResponse:
        """Stream to one reader until it leaves or the subscription is no longer open."""
        place = self._place_after(request.headers.get("Last-Event-ID"), subscription)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        self.readers.append(request)
        await self.tell()
        try:
            while is_open() and request.transport is not None:
                for logged in [entry for entry in self._log if entry.place >= place]:
                    place = logged.place + 1
                    if subscription.wants(logged.type):
                        await response.write(logged.frame)
                if not await self._something_after(place, lambda: not is_open() or request.transport is None):
                    await response.write(b": heartbeat\n\n")
        except ConnectionResetError:
            return response  # the subscriber left; it comes back with Last-Event-ID
        finally:
            self.readers.remove(request)
        return response

    def _place_after(self, last_event_id: str | None, subscription: Subscription) -> int:
        """Where to go on: after the last event seen; all that is kept when that one is not kept any more."""
        if last_event_id is None:
            return subscription.start
        return next((logged.place + 1 for logged in self._log if logged.event_id == last_event_id), 0)

    async def _something_after(self, place: int, is_over: Callable[[], bool]) -> bool:
        """Wait for an event, or the end of the stream; False when it stayed quiet for a heartbeat."""
        try:
            async with asyncio.timeout(self._heartbeat), self.changed:
                await self.changed.wait_for(lambda: self.next_place > place or is_over())
        except TimeoutError:
            return False
        return True
