"""One Socket Mode connection: reads envelopes, sends acknowledgements, says when it is about to end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

_log = logging.getLogger("clarify.slack.socket")
Json = dict[str, Any]
_MOST_REMEMBERED = 100


class HelloMissing(Exception):
    """Slack took the connection and did not say hello."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What Slack hands over: `kind` is events_api, interactive or slash_commands."""

    id: str
    kind: str
    payload: Json
    retry_attempt: int = 0
    retry_reason: str = ""


class Connection:
    """`received` is told each envelope, `leaving` once when Slack announces the end. Neither may block."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        received: Callable[[Envelope], None],
        leaving: Callable[[Connection, str], None],
    ) -> None:
        self._socket = socket
        self._received = received
        self._leaving = leaving
        self._hello = asyncio.Event()
        self._left = False
        self.count: int | None = (
            None  # of all connections of the app, this one among them, as Slack's hello says
        )
        self._sent: deque[tuple[float, str]] = deque(maxlen=_MOST_REMEMBERED)
        self.reading = asyncio.create_task(self._read(), name="slack socket reader")

    @property
    def usable(self) -> bool:
        """Whether Slack sends its envelopes here: greeted, not leaving, not closed."""
        return self._hello.is_set() and not self._left and not self._socket.closed

    @property
    def stands(self) -> bool:
        """Whether Slack counts it: not closed, by either side."""
        return not self._socket.closed

    def leave(self) -> None:
        """Another one takes its place."""
        self._left = True

    async def greeted(self, patience: float) -> None:
        """Returns when Slack said hello, or sent something else, or kept the connection `patience` seconds without.

        Raises:
            HelloMissing: it ended the connection first.
        """
        hello = asyncio.create_task(self._hello.wait(), name="slack socket hello")
        try:
            await asyncio.wait({hello, self.reading}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hello.cancel()
        if not self._hello.is_set() and not self._socket.closed:
            _log.warning("no hello within %g s; taking the open connection as it is", patience)
            self._hello.set()
        if not self.usable:
            raise HelloMissing("Slack ended a new connection before its hello")

    async def send(self, text: str, until: float) -> bool:
        """Whether it could be handed to the socket; of use to Slack `until` then, on the loop's clock."""
        if self._socket.closed:
            return False
        try:
            await self._socket.send_str(text)
        except (ConnectionError, aiohttp.ClientError):
            return False
        self._sent.append((until, text))
        return True

    def unsure(self, now: float) -> list[tuple[float, str]]:
        """What was sent and would still be of use: if the connection broke, it may not have arrived."""
        return [(until, text) for until, text in self._sent if until > now]

    async def close(self) -> None:
        await self._socket.close()
        await asyncio.wait({self.reading})

    async def _read(self) -> None:
        """Until the socket ends, by either side, or by a ping that nobody answers."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(message.data)
            elif message.type is aiohttp.WSMsgType.ERROR:
                _log.warning("a connection to Slack broke: %s", type(message.data).__name__)

    def _take(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            _log.warning("Slack sent %d characters that are no JSON object", len(text))
        elif message.get("type") == "hello":
            count = message.get("num_connections")
            self.count = count if isinstance(count, int) else None
            self._hello.set()
        elif message.get("type") == "disconnect":
            if not self._left:
                self._left = True
                self._leaving(self, str(message.get("reason")))
        elif (envelope := _envelope(message)) is not None:
            self._hello.set()
            self._received(envelope)


def _envelope(message: Json) -> Envelope | None:
    ident, kind, payload = message.get("envelope_id"), message.get("type"), message.get("payload")
    if not isinstance(ident, str) or not isinstance(kind, str) or not isinstance(payload, dict):
        _log.warning("Slack sent an envelope without id, type or payload: %s", str(kind)[:40])
        return None
    attempt = message.get("retry_attempt")
    return Envelope(
        ident,
        kind,
        payload,
        attempt if isinstance(attempt, int) else 0,
        str(message.get("retry_reason") or ""),
    )
