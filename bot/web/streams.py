"""Server-Sent Events (WHATWG HTML, section 9.2) as an answer that knows what was handed to the connection."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot.errors import StorageError
from core.clock import Clock

HEARTBEAT = 15.0
_OPENING = b": connected\n\n"  # no field: some readers take a frame of any for an event
_BEAT = b": heartbeat\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (
        b"x-accel-buffering",
        b"no",
    ),  # a proxy that collects an answer before it passes it on would hold replies back
]
_log = structlog.get_logger("clarify.http")


class Source(Protocol):
    """What a stream says. `more` is set when there may be some."""

    more: asyncio.Event

    async def next(self) -> bytes:
        """The next frames; none if there are none now."""
        ...

    async def wrote(self) -> None:
        """The frames that `next` gave were handed to the connection."""
        ...

    def close(self) -> None: ...


class EventStream(Response):
    """Streams a source until the reader leaves, the server stops, or the storage fails (the reader comes again)."""

    def __init__(self, source: Source, *, stopping: asyncio.Event, clock: Clock) -> None:
        super().__init__()
        self._source = source
        self._stopping = stopping
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        left = asyncio.ensure_future(_left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send(_part(_OPENING))
            await self._stream(send, left)
            if (
                not left.done() or left.exception() is not None
            ):  # the latter: too large a body, where none belongs
                await send({"type": "http.response.body", "body": b""})
        except StorageError as error:
            _log.warning("a stream of replies ends", reason=str(error))
            await send({"type": "http.response.body", "body": b""})
        finally:
            left.cancel()
            self._source.close()

    async def _stream(self, send: Send, left: asyncio.Future[None]) -> None:
        while not (left.done() or self._stopping.is_set()):
            frames = await self._source.next()
            if frames:
                await send(_part(frames))
                await asyncio.sleep(0)  # a connection that is gone takes everything, but has told so by now
                if not left.done():
                    await self._source.wrote()
            elif await self._quiet(left):
                await send(_part(_BEAT))

    async def _quiet(self, left: asyncio.Future[None]) -> bool:
        """Waits for something to happen; whether nothing did for so long that the reader has to be told so."""
        beat = asyncio.ensure_future(self._clock.sleep(HEARTBEAT))
        more = asyncio.ensure_future(self._source.more.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        waits: set[asyncio.Future[Any]] = {left, beat, more, stopping}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (beat, more, stopping):
                wait.cancel()
        return done == {beat}


async def _left(receive: Receive) -> None:
    """Returns once the reader is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _part(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}
