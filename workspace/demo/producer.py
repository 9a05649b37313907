"""A standard-dialect AAEP producer over HTTP, as strict as the protocol, with faults on demand.

    async with DemoProducer("planner") as producer:
        event = await producer.emit({"type": "aaep:agent.awaiting.clarification", …})
        reply = await producer.wait_for_reply(event["reply_token"], timeout=5)

Routes: POST /aaep/v1/subscriptions, GET /aaep/v1/events (SSE with ids, resumed after Last-Event-ID),
POST /aaep/v1/replies, GET /healthz. Used by `clarify demo` and by the tests.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Self
from uuid import uuid4

from aiohttp import web

from workspace import stop_accepting
from workspace.demo.protocol import (
    CLARIFICATION_REPLY,
    CONFIRMATION_REPLY,
    VERSION,
    Asked,
    Refusal,
    Subscription,
    frame,
    json_text,
    judge_reply,
    judge_subscription,
)

CONTEXT = "https://aaep-protocol.org/context/v1"
_AWAITING = {"aaep:agent.awaiting.clarification", "aaep:agent.awaiting.confirmation"}


Endpoint = Literal["subscriptions", "events", "replies"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
# What happens to one request in place of what should; the handler does what should.
Fault = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]
# Is told what went over the wire: "agent→bot" or "bot→agent", the message, why it was refused ("" if it was not).
Watch = Callable[[Literal["agent→bot", "bot→agent"], Mapping[str, Any], str], None]


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


class DemoProducer:
    """`token`: bearer token that subscribers must send. `keep`: events kept for resuming.

    `now` is the producer's clock and `new_id` gives what follows `evt_`, `sub_` in ids.
    """

    def __init__(
        self,
        agent_id: str = "demo-agent",
        *,
        agent_name: str | None = None,
        token: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid4().hex,
        keep: int = 1000,
        heartbeat: float = 30.0,
        watch: Watch = lambda _direction, _message, _refused: None,
    ) -> None:
        self._watch = watch
        self.replies: list[dict[str, Any]] = []  # accepted ones, in their order
        self.refusals: list[Refusal] = []
        self.subscriptions: dict[str, Subscription] = {}
        self._producer = {"agent_id": agent_id} | ({"agent_name": agent_name} if agent_name else {})
        self.token = token
        self._now = now
        self._new_id = new_id
        self._asked: dict[str, Asked] = {}
        self._streams = Streams(keep=keep, heartbeat=heartbeat)
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._port = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def start(self, *, port: int = 0) -> None:
        """Listen on loopback; port 0 takes a free one. See `url`."""
        self._port = self._port or port
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.post("/aaep/v1/subscriptions", self._subscribe),
                web.get("/aaep/v1/events", self._events, allow_head=False),
                web.post("/aaep/v1/replies", self._reply),
                web.get("/healthz", _healthy),
            ]
        )
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port, reuse_address=True)
        await site.start()
        self._port = site.port
        self._runner = runner

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end; the same after `down` and `up`."""
        return f"http://127.0.0.1:{self._port}"

    async def emit(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Send an event to all subscribers; what its envelope lacks is added. Returns it as sent."""
        whole: dict[str, Any] = {
            "@context": CONTEXT,
            "aaep_version": VERSION,
            "event_id": f"evt_{self._new_id()}",
            "timestamp": self._now().isoformat().replace("+00:00", "Z"),
            "producer": self._producer,
            **event,
        }
        if whole.get("type") in _AWAITING and whole.get("reply_token"):
            asked = Asked.by(whole)
            self._asked[asked.token] = asked
        await self.emit_raw(
            json_text(whole), event_id=str(whole["event_id"]), event_type=str(whole.get("type"))
        )
        self._watch("agent→bot", whole, "")
        return whole

    async def emit_raw(self, data: str, *, event_id: str, event_type: str = "") -> None:
        """Send any text as an event's data, for subscribers that must survive it."""
        await self._streams.append(data, event_id=event_id, event_type=event_type)

    def void(self, token: str) -> None:
        """Wait no longer for the reply to a question."""
        self._asked.pop(token, None)

    async def wait_for_reply(self, token: str, timeout: float | None = None) -> dict[str, Any]:
        """Return the accepted reply to a token.

        Raises:
            TimeoutError: none came within `timeout` seconds.
        """
        async with asyncio.timeout(timeout), self._streams.changed:
            await self._streams.changed.wait_for(
                lambda: any(reply["reply_token"] == token for reply in self.replies)
            )
        return next(reply for reply in self.replies if reply["reply_token"] == token)

    async def wait_for_subscriber(self, timeout: float | None = None) -> None:
        """Return once somebody reads the events."""
        async with asyncio.timeout(timeout), self._streams.changed:
            await self._streams.changed.wait_for(lambda: bool(self._streams.readers))

    def refuse_next(
        self,
        status: int,
        *,
        to: Endpoint = "replies",
        times: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer the next requests `to` an endpoint with `status`, and do nothing else with them."""

        async def refused(_request: web.Request, _handler: Handler) -> web.StreamResponse:
            return _problem(status, Refusal("fault", "asked for"), headers)

        self._faults[to].extend([refused] * times)

    def lose_next_response(self) -> None:
        """Accept the next reply, and cut the connection before the response."""

        async def lost(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await handler(request)
            if request.transport is not None:
                request.transport.abort()
            return response

        self._faults["replies"].append(lost)

    def drop_connections(self) -> None:
        """Cut the event streams; subscribers may come back at once."""
        self._streams.cut()

    async def down(self) -> None:
        """Stop listening and cut what is open. What was emitted and asked is kept for `up`."""
        runner, self._runner = self._runner, None
        self.drop_connections()
        await self._streams.tell()
        if runner is None:
            return
        await stop_accepting(runner)
        await runner.cleanup()

    async def up(self) -> None:
        """Listen again, on the same port."""
        await self.start()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        known = self.token is None or request.headers.get("Authorization") == f"Bearer {self.token}"
        if not known and request.path != "/healthz":
            return _problem(401, Refusal("authentication_required", "a bearer token is required"))
        waiting = self._faults[request.path.rpartition("/")[2]]
        return await (waiting.popleft()(request, handler) if waiting else handler(request))

    async def _subscribe(self, http: web.Request) -> web.Response:
        request = await _json(http)
        if refusal := judge_subscription(request):
            body = {
                "type": "subscription.rejected",
                "reason_code": refusal.error,
                "reason_message": refusal.message,
            }
            return web.json_response(body, status=400)
        subscription = Subscription(
            f"sub_{self._new_id()}", self._streams.next_place, request["capabilities"]
        )
        self.subscriptions[subscription.id] = subscription
        accepted = {
            "type": "subscription.accepted",
            "subscription_id": subscription.id,
            "aaep_version": VERSION,
            "producer": self._producer,
            "honored_capabilities": {**subscription.capabilities, "languages": ["en-US"]},
        }
        self._watch("bot→agent", request, "")
        self._watch("agent→bot", accepted, "")
        location = f"/aaep/v1/events?subscription_id={subscription.id}"
        return web.json_response(accepted, status=201, headers={"Location": location})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        subscription = self.subscriptions.get(request.query.get("subscription_id", ""))
        if subscription is None:
            return _problem(
                404, Refusal("unknown_subscription", "subscription_id must be the one from the handshake")
            )
        name = subscription.id
        return await self._streams.serve(
            request, subscription, is_open=lambda: self._runner is not None and name in self.subscriptions
        )

    async def _reply(self, request: web.Request) -> web.Response:
        reply = await _json(request)
        refusal = await self._take(reply)
        if isinstance(reply, Mapping):
            self._watch("bot→agent", reply, refusal.error if refusal else "")
        if refusal is None:
            return web.Response(status=204)
        self.refusals.append(refusal)
        return _problem(400, refusal)

    async def _take(self, reply: Any) -> Refusal | None:
        if not isinstance(reply, Mapping):
            return Refusal("invalid_reply", "the message must be a JSON object")
        if reply.get("subscription_id") not in self.subscriptions:
            return Refusal("unknown_subscription", "subscription_id must be the one from the handshake")
        match reply.get("type"):
            case kind if kind in {CLARIFICATION_REPLY, CONFIRMATION_REPLY}:
                return await self._take_answer(reply)
            case "subscription.close":
                await self._close(str(reply["subscription_id"]))
                return None
            case _:
                return Refusal("unknown_type", "type must be a reply or subscription.close")

    async def _take_answer(self, reply: Mapping[str, Any]) -> Refusal | None:
        asked = self._asked.get(str(reply.get("reply_token")))
        refusal = judge_reply(reply, asked, now=self._now())
        if refusal is None and asked is not None:
            async with self._streams.changed:
                del self._asked[asked.token]
                self.replies.append(dict(reply))
                self._streams.changed.notify_all()
        return refusal

    async def _close(self, subscription_id: str) -> None:
        """End a subscription; when it was the last, nobody is left to answer what was asked."""
        async with self._streams.changed:
            del self.subscriptions[subscription_id]
            if not self.subscriptions:
                self._asked.clear()
            self._streams.changed.notify_all()


async def _healthy(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _json(request: web.Request) -> Any:
    try:
        return await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None


def _problem(status: int, refusal: Refusal, headers: Mapping[str, str] | None = None) -> web.Response:
    """Build the protocol's error response."""
    return web.json_response(refusal._asdict(), status=status, headers=headers)
