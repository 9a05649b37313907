"""What others push to the bot: the events of agents that it cannot connect to, which read the replies from a stream; and
Slack's requests (`POST /slack/events`: events, interactions and commands alike), if they come over HTTP.

The stream is Server-Sent Events (WHATWG HTML, section 9.2). We write it ourselves: FastAPI's own would put two queues
between a reply and its connection, but a reply counts as sent only once the connection has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import structlog
from fastapi import APIRouter, Header, Security
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot.ask.producers import Producers
from bot.ask.push import NotStored, Push, Reader, Stored, TooManyReaders
from bot.ask.receiver import NotItsAgent
from bot.errors import StorageError
from bot.slack.app import NotTaken, RequestUrl
from bot.web.guard import BEARER, Callers, ErrorBody, TooLarge, hung_up, problem, stopping_of
from core.clock import Clock, beside, event_or_time

BASE = "/aaep/v1"
HEARTBEAT = 15.0  # seconds
_HEAD = 4096  # bytes of a body that is too large, kept to tell a human about it
_OPENING = b": connected\n\n"  # a comment: some readers take a frame with any field for an event
_BEAT = b": heartbeat\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Keeps proxies from buffering replies.
    (b"x-accel-buffering", b"no"),
]
_log = structlog.get_logger("clarify.http")
_TAKEN = """Returns 202 once the AAEP event is stored. Sending the same event again changes nothing (202, status
`duplicate`). A question or another critical event that breaks its schema is refused, and so is an `event_id` or
`reply_token` that was used for a different event."""
_READ = (
    "The `clarification.reply` and `confirmation.reply` messages of this producer, one per frame, each with an `id`. "
    "With `Last-Event-ID`, the replies after it; without it, all that are unconfirmed and not expired."
)
_EVENT = {
    "title": "Event",
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {
            "type": "string",
            "pattern": r"\S",
            "not": {"pattern": r"^subscription\.|\.reply$"},
            "examples": ["aaep:agent.awaiting.clarification"],
        }
    },
}
_REQUEST = {
    "title": "subscription.request",
    "type": "object",
    "required": ["type", "aaep_version", "subscriber_id", "capabilities"],
    "properties": {
        "type": {"const": "subscription.request"},
        "aaep_version": {"type": "string", "pattern": r"^1\.[0-9]+\.[0-9]+$"},
        "subscriber_id": {"type": "string", "minLength": 1, "maxLength": 256},
        "capabilities": {"type": "object"},
    },
}
_CLOSE = {
    "title": "subscription.close",
    "type": "object",
    "required": ["type", "subscription_id"],
    "properties": {"type": {"const": "subscription.close"}, "subscription_id": {"type": "string"}},
}
_EXAMPLE = {
    "@context": "https://aaep-protocol.org/context/v1",
    "type": "aaep:agent.awaiting.clarification",
    "event_id": "evt_1",
    "session_id": "sess_1",
    "timestamp": "2026-11-22T09:00:00Z",
    "urgency": "critical",
    "producer": {"agent_id": "planner"},
    "question": "Which database?",
    "choices": [{"value": "postgresql", "label": "PostgreSQL"}, {"value": "sqlite", "label": "SQLite"}],
    "reply_token": "rpl_1",
    "timeout_seconds": 3600,
}
_BODY = {
    "required": True,
    "content": {"application/json": {"schema": {"anyOf": [_EVENT, _REQUEST, _CLOSE]}, "example": _EXAMPLE}},
}


class EventTaken(BaseModel):
    """The event is stored; `duplicate`: it already was. `problems`: how it differs from its schema."""

    status: Literal["accepted", "duplicate"] = "accepted"
    event_id: str
    problems: list[str] = Field(default_factory=list)


class SubscriptionAccepted(BaseModel):
    type: Literal["subscription.accepted"]
    subscription_id: str
    aaep_version: str
    producer: dict[str, Any]
    honored_capabilities: dict[str, Any]


class SubscriptionRejected(BaseModel):
    type: Literal["subscription.rejected"]
    reason_code: str
    reason_message: str


_Rejection = ErrorBody | SubscriptionRejected
_POST_ANSWERS: dict[int | str, dict[str, Any]] = {
    201: {"model": SubscriptionAccepted, "description": "A subscription.request was accepted"},
    202: {"model": EventTaken, "description": "The event is stored"},
    204: {"description": "The subscription is closed"},
    400: {"model": _Rejection, "description": "Not an event or a handshake message"},
    403: {
        "model": ErrorBody,
        "description": "Calls are not allowed from there, or the producer may not speak for this agent",
    },
    422: {
        "model": ErrorBody,
        "description": "The event is wrong: `field` names the field, `message` says what to send",
    },
}
_GET_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The replies"},
}


def push_routes(*, callers: Callers, producers: Producers, clock: Clock) -> APIRouter:
    """Returns the routes, below /aaep/v1 and, for the minimal dialect, at the root."""
    routes = APIRouter(dependencies=[Security(BEARER)], tags=["push"])

    def caller(request: Request) -> Push:
        push = producers.pushing(callers.pushing(request))
        if push is None:
            raise problem(
                403,
                "NO_PRODUCER",
                "This producer cannot push events. Remove `url` from its [[producers]] table, or let the bot read its events.",
            )
        return push

    async def take(request: Request) -> Response:
        push = caller(request)
        return _answer(await _taken(push, request))

    async def read(
        request: Request,
        last_event_id: Annotated[str | None, Header(description="Resume after this reply")] = None,
    ) -> Response:
        push = caller(request)
        try:
            reader = await push.open(last_event_id)
        except TooManyReaders as error:
            raise problem(429, "TOO_MANY_READERS", str(error), headers={"Retry-After": "5"}) from None
        return _StreamResponse(reader, stopping=stopping_of(request), clock=clock)

    add: Callable[..., None] = routes.add_api_route
    for base, shown in ((BASE, True), ("", False)):
        add(
            f"{base}/messages",
            take,
            methods=["POST"],
            status_code=202,
            response_class=Response,
            responses=_POST_ANSWERS,
            openapi_extra={"requestBody": _BODY},
            summary="Send an event",
            description=_TAKEN,
            include_in_schema=shown,
        )
        add(
            f"{base}/events",
            read,
            methods=["GET"],
            response_class=Response,
            responses=_GET_ANSWERS,
            summary="Stream the replies",
            description=_READ,
            include_in_schema=shown,
        )
    return routes


async def _taken(push: Push, request: Request) -> Stored | Mapping[str, Any] | None:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
    except TooLarge:
        await push.too_large(bytes(body[:_HEAD]).decode("utf-8", "replace"))
        raise
    try:
        return await push.receive(bytes(body))
    except NotItsAgent as error:
        raise problem(403, "OTHER_AGENT", str(error), field="producer.agent_id") from None
    except NotStored as error:
        raise problem(error.status, error.code, str(error), field=error.field) from None


def _answer(taken: Stored | Mapping[str, Any] | None) -> Response:
    if taken is None:
        return Response(status_code=204)
    if isinstance(taken, Stored):
        status: Literal["accepted", "duplicate"] = "duplicate" if taken.duplicate else "accepted"
        told = EventTaken(status=status, event_id=taken.event_id, problems=list(taken.problems))
        return JSONResponse(told.model_dump(), 202)
    if taken["type"] == "subscription.rejected":
        return JSONResponse(dict(taken), 400)
    where = f"{BASE}/events?subscription_id={taken['subscription_id']}"
    return JSONResponse(dict(taken), 201, {"Location": where})


class _StreamResponse(Response):
    """Streams replies until the reader leaves, the server stops, or the storage fails; then the reader reconnects."""

    def __init__(self, reader: Reader, *, stopping: asyncio.Event, clock: Clock) -> None:
        super().__init__()
        self._reader = reader
        self._stopping = stopping
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        try:
            async with beside(hung_up(receive), self._stopping.wait()) as ends:
                for end in ends:
                    end.add_done_callback(lambda _: self._reader.more.set())
                await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
                await send(_part(_OPENING))
                await self._stream(send, left=ends[0])
        except StorageError as error:
            _log.warning("reply stream ended", reason=str(error))
        finally:
            self._reader.close()
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, send: Send, left: asyncio.Future[Any]) -> None:
        reader = self._reader
        while not (left.done() or self._stopping.is_set()):
            frames = await reader.next()
            if frames:
                await send(_part(frames))
                await asyncio.sleep(0)  # a lost connection takes all writes, but `left` is done by now
                if not left.done():
                    await reader.wrote()
                continue
            await event_or_time(self._clock, reader.more, HEARTBEAT)
            if not reader.more.is_set():
                await send(_part(_BEAT))


def _part(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


_SLACK_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Acknowledged. The body tells Slack what to show or do, if anything",
        "content": {"application/json": {}},
    },
    400: {"model": ErrorBody, "description": "Signed correctly, but unreadable"},
    401: {"model": ErrorBody, "description": "Not signed by Slack, or the signature is too old"},
    500: {
        "model": ErrorBody,
        "description": "Not accepted: Slack resends an event; a person who clicked sees an error",
    },
    503: {"model": ErrorBody, "description": "Not ready yet, or stopping"},
}
_SLACK_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        },
    }
}


def slack_routes(url: RequestUrl) -> APIRouter:
    """Returns the route that hands Slack's signed requests to `url`."""
    router = APIRouter(tags=["Slack"])

    @router.post(
        "/slack/events", responses=_SLACK_ANSWERS, openapi_extra=_SLACK_BODY, response_class=Response
    )
    async def from_slack(request: Request) -> Response:
        """Events, clicks, modals and commands, signed as Slack signs (`X-Slack-Signature`)."""
        # The last of repeated headers counts. The signature covers the unchanged body.
        try:
            answer = await url.respond(dict(request.headers.items()), await request.body())
        except NotTaken as error:
            raise problem(error.status, error.code, str(error)) from None
        return Response() if answer is None else JSONResponse(answer)

    return router
