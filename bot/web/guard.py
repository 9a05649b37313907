"""What stands around every route: a limit on bodies, an access log, and an answer whatever goes wrong.

Pure ASGI, since streams pass through it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.web.errors import BODY_LIMIT, TooLarge, answer_to, problem

_log = structlog.get_logger("clarify.http")
_QUIET = {b"/livez", b"/healthz", b"/readyz", b"/metrics"}  # asked every few seconds
_LONGEST_PATH = 200
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Guard:
    """Around `app`. `stopping`: the server is to end. `elapsed` is a monotonic clock in seconds."""

    def __init__(self, app: ASGIApp, *, stopping: asyncio.Event, elapsed: Callable[[], float]) -> None:
        self._app = app
        self._stopping = stopping
        self._elapsed = elapsed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, began = _Answer(send), self._elapsed()
        try:
            await self._app(scope, limited(receive, _declared_length(scope)), answer)
        except ClientDisconnect:
            _log.debug("a caller left before its request was read")
        except asyncio.CancelledError:
            # The end of the server cancels a request that outlasts the time it has left.
            if not self._stopping.is_set():
                raise
            if answer.status is None:
                ending = problem(503, "STOPPING", "clarify-bot is stopping.", headers={"Retry-After": "5"})
                await answer_to(ending)(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - told with where; the caller gets a 500
            _log.exception("a request failed", method=scope["method"], path=_path(scope))
            if answer.status is None:
                await answer_to(error)(scope, receive, answer)
        _note(scope, answer.status, self._elapsed() - began)


class _Answer:
    """Passes an answer on, with the headers that all have; knows its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = list(message.get("headers", []))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": given + [each for each in _HEADERS if each[0] not in names]}
        await self._send(message)


def limited(receive: Receive, declared: int) -> Receive:
    """`receive`, which raises TooLarge as soon as the body is known to be over the limit.

    Only whoever reads finds out, after it was decided who calls: routes may tell more than the caller about it.
    """
    seen = 0

    async def read() -> Message:
        nonlocal seen
        if declared > BODY_LIMIT:
            raise TooLarge
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_LIMIT:
            raise TooLarge
        return message

    return read


def _declared_length(scope: Scope) -> int:
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(length) if length.isdigit() else 0


def _path(scope: Scope) -> str:
    """As it was sent, still escaped, so that it cannot hold control characters; without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
    return raw.partition(b"?")[0].decode("ascii", "backslashreplace")[:_LONGEST_PATH]


def _note(scope: Scope, status: int | None, seconds: float) -> None:
    quiet = status in {200, 503} and scope.get("raw_path") in _QUIET
    level = logging.DEBUG if quiet else logging.WARNING if (status or 0) >= 500 else logging.INFO
    client = scope.get("client")
    _log.log(
        level,
        "request",
        method=scope["method"],
        path=_path(scope),
        status=status,
        seconds=round(seconds, 3),
        client=client[0] if client else None,
    )
