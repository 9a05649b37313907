"""Socket Mode, Slack's side: connections, envelopes, acknowledgements. With a request URL, HTTP in its place.

Source: docs.slack.dev, "Using Socket Mode". Each envelope goes to any one of up to ten connections and is to
be acknowledged, over any of them, within `Options.ack_timeout`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType, web

from .context import Ack, Context
from .requests import Requests, Response
from .state import Json

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 10
TICKET_LIFETIME = 30.0


@dataclass(eq=False)
class Connection:
    """One open socket. `half_open`: it neither sends nor answers, yet TCP stays up."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport | None
    id: str
    half_open: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Retry:
    """Which attempt at an envelope this is, and why the one before failed."""

    envelope_id: str
    attempt: int = 0
    reason: str = ""


class Link:
    """All Socket Mode connections, and the envelopes that wait for their acknowledgement."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tickets: dict[str, float] = {}
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._next = 0
        self.connections: list[Connection] = []
        self.refused_upgrades = 0
        self.requests = Requests(context)
        self._reject = 0

    def new_ticket(self) -> str:
        """A ticket for one connection, good for 30 seconds."""
        ticket = self._context.state.next_id("ticket-")
        self._tickets[ticket] = self._context.now() + TICKET_LIFETIME
        return ticket

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /link/?ticket=…`: one connection, from its upgrade to its end."""
        expires = self._tickets.pop(request.query.get("ticket", ""), None)
        if self._reject > 0 or expires is None or expires < self._context.now():
            self._reject = max(0, self._reject - 1)
            self.refused_upgrades += 1
            self._context.changes.notify("record")
            raise web.HTTPForbidden(text="invalid ticket")
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        connection = Connection(socket, request.transport, self._context.state.next_id("conn-"))
        if len(self.connections) >= MAX_CONNECTIONS:
            await self._send(connection, {"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close()
            return socket
        self.connections.append(connection)
        self._context.changes.notify("record")
        try:
            await self._send(connection, self._hello())
            await self._read(connection)
        finally:
            self.connections.remove(connection)
            self._context.changes.notify("record")
        return socket

    async def deliver(
        self, kind: str, payload: Json, *, accepts_response: bool = False, retry: Retry | None = None
    ) -> Ack:
        """Send one envelope to one connection, or one request, and wait for its answer; the outcome is recorded."""
        retry = retry or Retry(self._context.state.next_id("env-"))
        clock = asyncio.get_running_loop().time
        started, at = clock(), self._context.now()
        if self.requests.url is not None:
            response = await self.requests.post(kind, payload, retry.attempt, retry.reason)
        else:
            response = await self._round_trip(
                _envelope(kind, payload, retry, accepts_response=accepts_response)
            )
        ack = Ack(
            retry.envelope_id,
            kind,
            _payload_type(kind, payload),
            at,
            retry.attempt,
            None if response.failure else clock() - started,
            response.failure,
            response.body,
            response.status,
        )
        self._context.record_ack(ack, payload)
        return ack

    async def _round_trip(self, envelope: Json) -> Response:
        connection = self._choose()
        if connection is None:
            return Response("no_connection")
        envelope_id = envelope["envelope_id"]
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[envelope_id] = future
        try:
            await self._send(connection, envelope)
            async with asyncio.timeout(self._context.options.ack_timeout):
                return Response(body=await future)
        except TimeoutError:
            return Response("timeout")
        finally:
            self._pending.pop(envelope_id, None)

    def _choose(self) -> Connection | None:
        usable = [c for c in self.connections if not c.leaving and not c.socket.closed]
        if not usable:
            return None
        self._next += 1
        return usable[self._next % len(usable)]

    async def _send(self, connection: Connection, message: Json) -> None:
        if connection.half_open:
            return
        try:
            await connection.socket.send_str(json.dumps(message))
        except ConnectionError:
            log.debug("connection %s went away while sending to it", connection.id)

    async def _read(self, connection: Connection) -> None:
        async for message in connection.socket:
            if connection.half_open:
                continue
            if message.type == WSMsgType.PING:
                await connection.socket.pong(message.data)
            elif message.type == WSMsgType.TEXT:
                self._acknowledge(message.data)

    def _acknowledge(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            log.warning("a Socket Mode message that is not JSON was ignored")
            return
        if not isinstance(message, dict):
            return
        future = self._pending.get(str(message.get("envelope_id")))
        if future is not None and not future.done():
            future.set_result(message.get("payload"))

    def _hello(self) -> Json:
        return {
            "type": "hello",
            "num_connections": len(self.connections),
            "connection_info": {"app_id": self._context.state.app.id},
            "debug_info": {
                "host": "applink-local",
                "build_number": 1,
                "approximate_connection_time": 18060,
            },
        }

    # Faults on demand

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Ask every connection to leave, as Slack does: `warning` comes before, `refresh_requested` closes."""
        for connection in list(self.connections):
            connection.leaving = reason != "warning"
            await self._send(connection, {"type": "disconnect", "reason": reason, "debug_info": {}})

    def cut(self) -> None:
        """Cut every connection's TCP at once, without a close frame."""
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def half_open(self) -> None:
        """Stop sending on and answering to every present connection, but keep their TCP up."""
        for connection in self.connections:
            connection.half_open = True

    def reject(self, times: int) -> None:
        """Refuse the next `times` upgrades to a WebSocket with HTTP 403."""
        self._reject = times

    async def close(self) -> None:
        for connection in list(self.connections):
            connection.half_open = False
            await connection.socket.close()
        await self.requests.close()


def _envelope(kind: str, payload: Json, retry: Retry, *, accepts_response: bool) -> Json:
    envelope: Json = {
        "envelope_id": retry.envelope_id,
        "type": kind,
        "payload": payload,
        "accepts_response_payload": accepts_response,
    }
    if kind == "events_api":
        envelope |= {"retry_attempt": retry.attempt, "retry_reason": retry.reason}
    return envelope


def _payload_type(kind: str, payload: Json) -> str:
    if kind == "events_api":
        event = payload["event"]
        return f"{event['type']}.{event['subtype']}" if event.get("subtype") else str(event["type"])
    return str(payload.get("command") or payload.get("type", kind))
