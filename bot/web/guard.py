"""Wraps every route: limits bodies, logs requests, and answers every error.

Errors are JSON that says what is wrong, but never repeats the request or shows our code. `Guard` is pure ASGI, so that
streams can pass through it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.ask.questions import QuestionRefused
from bot.errors import StorageError
from core.errors import (
    AgentError,
    AnswerRejected,
    BadInput,
    ClarifyError,
    IllegalTransition,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    ScopeViolation,
    Tampered,
)
from core.questions import BadField
from core.transitions import MaxRoundsExceeded, NotOpen

_log = structlog.get_logger("clarify.http")
_QUIET = {b"/livez", b"/healthz", b"/readyz", b"/metrics"}  # polled every few seconds
_PLAIN = {"/mcp"}  # a Starlette route, which the scope does not name
_LONGEST_PATH = 200
Counted = Callable[[str, str], None]
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
BODY_LIMIT = 1024 * 1024
_RETRY_AFTER = {"Retry-After": "1"}
_CODES = {400: "BAD_REQUEST", 413: "TOO_LARGE", 422: "BAD_INPUT"}
_STATUSES: tuple[tuple[type[ClarifyError], int], ...] = (
    (NotFound, 404),
    (Tampered, 410),
    (BadField, 422),
    (BadInput, 400),
    (AnswerRejected, 400),
    (ScopeViolation, 403),
    (MaxRoundsExceeded, 409),
    (NotOpen, 409),
    (IllegalTransition, 409),
    (AgentError, 502),
    (LockTimeout, 503),
    (LedgerUnreadable, 503),
    (LedgerUnwritable, 503),
)
# What a value must be, by pydantic's error type. Pydantic's own messages name classes, and some repeat the input.
_MUST_BE: dict[str, str] = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_type": "a whole number",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_attributes_type": "a JSON object",
    "model_type": "a JSON object",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "string_type": "a string",
    "string_unicode": "text without lone surrogates (half of a character)",
}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class ErrorBody(BaseModel):
    """The body of every response with a status of 400 or above."""

    error: str = Field(description="A stable code, for programs", examples=["NOT_FOUND"])
    message: str = Field(
        description="What is wrong, for people", examples=["There is no question CLR-42-001."]
    )
    field: str | None = Field(default=None, description="The field that is wrong, if it is one field")


ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "The request failed"},
}
"""`build_app` adds it to all routes of the OpenAPI document."""


class TooLarge(HTTPException):
    """The body is over the limit. Raised while reading, so that a route that reads the body can react."""

    def __init__(self) -> None:
        super().__init__(413, f"The body must not be larger than {BODY_LIMIT} bytes.")


def problem(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> HTTPException:
    """Returns an exception for a route to raise; the caller gets it as `ErrorBody`."""
    detail = {"error": code, "message": message}
    return HTTPException(status, detail | ({"field": field} if field else {}), dict(headers or {}))


def answer_to(error: Exception) -> Response:
    """Returns the response to a request that failed with `error`: for an unexpected one, a 500 without details."""
    match error:
        case StarletteHTTPException():
            return _refusal(error)
        case RequestValidationError():
            return _invalid(error.errors())
        case StorageError():
            return _body(503, "STORAGE_UNAVAILABLE", str(error), headers=_RETRY_AFTER)
        case ClarifyError():
            return _domain(error)
    return _body(500, "INTERNAL_ERROR", "Internal error. See the bot's log.")


def _domain(error: ClarifyError) -> Response:
    if isinstance(error, QuestionRefused):
        wait = {"Retry-After": str(error.retry_after)} if error.retry_after else None
        return _body(error.status, error.code, str(error), error.field, wait)
    field = error.field if isinstance(error, BadField) else None
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    return _body(status, error.code, str(error), field, _RETRY_AFTER if status == 503 else None)


def answer_errors(app: FastAPI) -> None:
    """Have `app` respond to its routes' exceptions with `answer_to`."""

    async def answered(_request: Request, error: Exception) -> Response:
        return answer_to(error)

    for kind in (StarletteHTTPException, RequestValidationError, StorageError, ClarifyError):
        app.add_exception_handler(kind, answered)


def _refusal(error: StarletteHTTPException) -> Response:
    detail: object = error.detail
    if isinstance(detail, Mapping):
        return _body(
            error.status_code, detail["error"], detail["message"], detail.get("field"), error.headers
        )
    code = _CODES.get(error.status_code) or HTTPStatus(error.status_code).name
    return _body(error.status_code, code, str(detail), headers=error.headers)


def _invalid(errors: Sequence[Any]) -> Response:
    """Returns the response to the first error: 400 if the JSON does not parse, 422 if a value is wrong."""
    first: Mapping[str, Any] = errors[0] if errors else {"type": "value_error", "loc": ()}
    if first["type"] == "json_invalid":
        return _body(400, "NOT_JSON", "The body must be JSON.")
    place = [str(part) for part in first["loc"][1:]]
    field = ".".join(place) if all(_is_name(part) for part in place) else None
    return _body(422, "BAD_INPUT", _trouble(first, f"`{field}`" if field else "The body"), field or None)


def _trouble(error: Mapping[str, Any], name: str) -> str:
    """Returns what is wrong with the field of that `name`."""
    match error["type"]:
        case "missing":
            return f"{name} is required."
        case "extra_forbidden":
            return f"{name} is not a known field. Remove it, or check its spelling."
    expected = _MUST_BE.get(error["type"], "a valid value; see /openapi.json")
    return f"{name} must be {expected.format_map(error.get('ctx') or {})}."


def _is_name(part: str) -> bool:
    """Returns whether it looks like a field's name or a list index: the request may hold anything there."""
    return _NAME.fullmatch(part) is not None


def _body(
    status: int,
    code: str,
    message: str,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = ErrorBody(error=code, message=message, field=field)
    return JSONResponse(body.model_dump(exclude_none=True), status, dict(headers or {}))


def stopping_of(request: Request) -> asyncio.Event:
    """Returns the event that is set when the server stops; requests that wait must end then."""
    event: asyncio.Event = request.app.state.stopping
    return event


async def hung_up(receive: Receive) -> None:
    """Returns when the caller disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(eq=False, repr=False)
class Guard:
    """ASGI middleware around `app`. `stopping` is set when the server stops. Calls `counted` with the route's path and the
    response's status of each request.
    """

    app: ASGIApp
    _: KW_ONLY
    stopping: asyncio.Event
    counted: Counted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer, began = _GuardedResponse(send), time.monotonic()
        try:
            await self.app(scope, limited(receive, _declared_length(scope)), answer)
        except ClientDisconnect:
            _log.debug("caller disconnected before its request was read")
        except asyncio.CancelledError:
            # A stopping server cancels requests that take too long.
            if not self.stopping.is_set():
                raise
            if answer.status is None:
                ending = problem(
                    503, "STOPPING", "clarify-bot is stopping. Try again later.", headers={"Retry-After": "5"}
                )
                await answer_to(ending)(scope, receive, answer)
        except Exception as error:  # noqa: BLE001 - logged; the caller gets a 500
            _log.exception("request failed", method=scope["method"], path=_path(scope))
            if answer.status is None:
                await answer_to(error)(scope, receive, answer)
        self.counted(_route_path(scope), str(answer.status or "none"))
        _note(scope, answer.status, time.monotonic() - began)


class _GuardedResponse:
    """Passes a response on, adds the common headers, and records its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])  # it may be an `HTTPStatus`, which prints as a name
            given = list(message.get("headers", []))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": given + [each for each in _HEADERS if each[0] not in names]}
        await self._send(message)


def limited(receive: Receive, declared: int) -> Receive:
    """Wraps `receive` so that it raises TooLarge as soon as the body is over the limit."""
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
    """Returns the path without the query, still escaped, so that it has no control characters."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
    return raw.partition(b"?")[0].decode("ascii", "backslashreplace")[:_LONGEST_PATH]


def _route_path(scope: Scope) -> str:
    """Returns the route's path pattern, of which there are few, for metrics."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    return scope["path"] if scope["path"] in _PLAIN else "other"


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
