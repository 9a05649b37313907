"""Guards every route: identifies the caller, limits bodies, logs requests, and answers every error.

A caller is a producer, by its bearer token, or any process of this machine. A web page in a browser on this machine is such a
process, too. So requests without a token are rejected if they have headers that only browsers send (`Origin`), the name of
another host (DNS rebinding) or a body that a form could send.

Errors are JSON that says what is wrong, but never repeats the request or shows our code. `Guard` is pure ASGI, so that
streams can pass through it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, HTTPException
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, Field, SecretStr
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
from core.workflow import Speaker

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


BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="producer",
    description="A producer's token, from the environment variable that `token_env` of its `[[producers]]` table names. A producer "
    "without a token can call only from this machine. If several have no token, add `?producer=NAME`.",
)
"""For the OpenAPI document: `dependencies=[Security(BEARER)]`. The check itself is `Callers`."""
_LOCAL = "local"
_PROXIED = ("forwarded", "x-forwarded", "x-real-ip", "via")  # prefixes of proxies' headers
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]*)?", re.ASCII)
_UNKNOWN_BEARER = (
    "This bearer token belongs to no producer in clarify.toml. Check the variable that `token_env` names."
)
_WITH_BODY = {"POST", "PUT", "PATCH"}
_LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


class Callers:
    """The producers that may call."""

    def __init__(
        self,
        tokens: Mapping[str, SecretStr | None],
        speakers: Mapping[str, Speaker] | None = None,
        *,
        origins: Collection[str] = (),
        local_pages: bool = False,
    ) -> None:
        """`tokens`: producer → bearer token, None if it has none. `speakers`: the producers that may speak only for some
        agents. `origins`: web pages that may call from this machine without a token; `local_pages`: and all that this
        machine serves, such as MCP's inspector.
        """
        self._tokens = {
            name: token.get_secret_value().encode() for name, token in tokens.items() if token is not None
        }
        self._speakers = speakers or {}
        self._origins = frozenset(origins)
        self._local_pages = local_pages
        self._bare = tuple(name for name, token in tokens.items() if token is None)
        self._may_call = bool(tokens)

    def speaker(self, request: Request) -> Speaker:
        """Returns the producer that calls, with the agents that it may speak for; "local" for a process of this machine if
        no producer may call.

        Raises:
            HTTPException: 400 several producers can call this way, and it names none; 401 no token, or a wrong one; 403 it
                may not call from there, or not as that producer; 415 the body is not JSON. `detail` has `error` and
                `message`.
        """
        if not self._may_call and "authorization" not in request.headers:
            self._check_local(request, _LOCAL)
            _check_json(request)
            return Speaker(_choose((_LOCAL,), request.query_params.get("producer")))
        name = self.pushing(request)
        return self._speakers.get(name, Speaker(name))

    async def asking(self, request: Request) -> Speaker:
        """Returns `speaker`, as a dependency of a route: for a plain function, FastAPI would start a thread."""
        return self.speaker(request)

    def pushing(self, request: Request) -> str:
        """Returns the name of the configured producer that calls.

        Raises:
            HTTPException: see `speaker`.
        """
        if not self._may_call:
            if "authorization" in request.headers:
                raise _unauthorized(_UNKNOWN_BEARER)
            raise problem(
                403,
                "NO_PRODUCER",
                "No producer may call. Add a [[producers]] table without `url` to clarify.toml.",
            )
        name = self._named(request)
        _check_json(request)
        return name

    def _named(self, request: Request) -> str:
        asked = request.query_params.get("producer")
        header = request.headers.get("authorization")
        if header is not None:
            return _choose(self._holders(header), asked)
        if asked in self._tokens or not self._bare:
            raise _unauthorized()
        self._check_local(request, self._bare[0])
        return _choose(self._bare, asked)

    def onlooker(self, request: Request) -> None:
        """Checks that the caller may see the server itself: it has a token, or calls an IP address or localhost.

        Any other host name could be one that a foreign web page pointed at this server (DNS rebinding).

        Raises:
            HTTPException: 401 a wrong token; 403 another host name.
        """
        if (header := request.headers.get("authorization")) is not None:
            self._holders(header)
        elif not is_address(host := request.headers.get("host", "")) and not is_loopback_host(host):
            why = "Use the server's IP address or localhost, or send a producer's token."
            raise problem(403, "HOST", why)

    def _check_local(self, request: Request, name: str) -> None:
        """Checks a caller without a token: it must be a process of this machine, and no web page but `origins`."""
        if request.client is None or _is_proxied(request) or not is_loopback_address(request.client.host):
            if self._tokens:
                raise _unauthorized()
            why = f"{name} has no token, so it can call only from this machine, without a proxy."
            raise problem(
                403, "NOT_LOCAL", why + " To call from elsewhere, set `token_env` in its [[producers]] table."
            )
        origin = request.headers.get("origin", "")
        is_local = self._local_pages and _LOCAL_PAGE.fullmatch(origin) is not None
        known = is_local or origin in self._origins
        if not known and (
            "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none"
        ):
            raise problem(403, "BROWSER", "Requests from a web page need a bearer token.")
        if not is_loopback_host(request.headers.get("host", "")):
            raise problem(403, "HOST", "Without a token, call localhost, 127.0.0.1 or [::1].")

    def _holders(self, header: str) -> tuple[str, ...]:
        """Returns the producers with this token. Compares all of them, so that the time taken reveals nothing."""
        scheme, _, given = header.partition(" ")
        token = given.strip(" \t").encode("latin-1")  # the bytes as received
        found = [name for name, expected in self._tokens.items() if hmac.compare_digest(token, expected)]
        if scheme.lower() != "bearer" or not token or not found:
            raise _unauthorized(_UNKNOWN_BEARER)
        return tuple(found)


def is_loopback_host(host: str) -> bool:
    """Returns whether a `Host` header, with or without a port, can name only this machine."""
    name = _name_in(host)
    return name == "localhost" or is_loopback_address(name)


def is_address(host: str) -> bool:
    """Returns whether a `Host` header has an IP address instead of a name."""
    try:
        ipaddress.ip_address(_name_in(host))
    except ValueError:
        return False
    return True


def _name_in(host: str) -> str:
    found = _HOST.fullmatch(host.strip())
    return (found[1] or found[2]).lower() if found else ""


def is_loopback_address(text: str) -> bool:
    """Returns whether a text is a loopback IP address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_proxied(request: Request) -> bool:
    """Returns whether a proxy passed the request on. An nginx with defaults shows only by HTTP/1.0, which no agent uses."""
    named = any(name.startswith(_PROXIED) for name in request.headers)
    return named or request.scope.get("http_version") == "1.0"


def _choose(names: tuple[str, ...], asked: str | None) -> str:
    if asked is None and len(names) == 1:
        return names[0]
    if asked is None:
        raise problem(
            400,
            "WHICH_PRODUCER",
            f"Several producers can call this way. Add ?producer= with one of: {', '.join(names)}.",
        )
    if asked not in names:
        raise problem(
            403,
            "OTHER_PRODUCER",
            "This token, or this machine, does not belong to that producer. Correct ?producer=, or send the producer's own token.",
        )
    return asked


def _check_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method in _WITH_BODY and kind != "application/json":
        raise problem(415, "NOT_JSON", "Send the header Content-Type: application/json.")


def _unauthorized(
    why: str = "Send the bearer token of your producer: Authorization: Bearer TOKEN.",
) -> HTTPException:
    return problem(401, "UNAUTHORIZED", why, headers={"WWW-Authenticate": "Bearer"})
