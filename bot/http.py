"""The HTTP client that talks to others: producers, webhooks, GitHub; what comes back, and what failures are called."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

CONNECT_TIMEOUT = 5.0  # less than the whole, so that a timeout tells whether anything was sent
ANSWER_TIMEOUT = 10.0
MAX_BODY = 64 * 1024
_KEEPALIVE_EXPIRY = 30.0
# All that the network may do to a request; an OSError that httpx did not translate included.
NETWORK = (httpx.HTTPError, httpx.InvalidURL, OSError)
# Nothing of the request left this machine.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; `body` is cut at MAX_BODY."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)


def open_client(token: str | None) -> httpx.AsyncClient:
    """A client for one party: TCP keepalive, no redirects (a token must not travel), no surroundings.

    No environment: proxies, .netrc and the like would be configuration that settings does not know.
    """
    headers = {b"User-Agent": b"clarify-bot", b"Accept-Encoding": b"identity"}
    if token:
        headers[b"Authorization"] = f"Bearer {token}".encode()
    transport = httpx.AsyncHTTPTransport(
        socket_options=keepalive_options(),
        limits=httpx.Limits(max_connections=20, keepalive_expiry=_KEEPALIVE_EXPIRY),
    )
    return httpx.AsyncClient(
        transport=transport,
        headers=headers,
        timeout=httpx.Timeout(ANSWER_TIMEOUT, connect=CONNECT_TIMEOUT),
        follow_redirects=False,
        trust_env=False,
    )


def keepalive_options() -> list[tuple[int, int, int]]:
    """Socket options by which a connection whose other end is gone fails after about 50 s."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def json_body(message: dict[str, Any]) -> bytes:
    """A message as JSON; in ASCII, so that no character can break it.

    Raises:
        ValueError: a number that JSON does not know.
    """
    return json.dumps(message, allow_nan=False).encode()


async def post(client: httpx.AsyncClient, url: httpx.URL, body: bytes) -> Answer:
    """POST JSON and read the answer, whatever its size.

    Raises:
        httpx.HTTPError, TimeoutError: as `words` puts them.
    """
    request = client.build_request("POST", url, content=body, headers={"Content-Type": "application/json"})
    response = await client.send(request, stream=True)
    try:
        return Answer(response.status_code, response.headers, await bounded_body(response))
    finally:
        await response.aclose()


async def bounded_body(response: httpx.Response) -> bytes:
    """At most MAX_BODY of the body, as sent: what is compressed unasked could grow without bound."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= MAX_BODY:
            break
    return bytes(body[:MAX_BODY])


def words(error: BaseException) -> str:
    """A network failure for people. By its kind: the library's own text may quote a header, the token too."""
    if isinstance(error, httpx.ConnectError):
        return f"cannot connect ({_root(error)})"
    named: tuple[tuple[type[BaseException], str], ...] = (
        (httpx.ConnectTimeout, f"no connection within {CONNECT_TIMEOUT:g} s"),
        (httpx.TimeoutException, f"no answer within {ANSWER_TIMEOUT:g} s"),
        (TimeoutError, f"no answer within {ANSWER_TIMEOUT:g} s"),
        (httpx.LocalProtocolError, "the request breaks HTTP (does the token hold a line end?)"),
        (httpx.RemoteProtocolError, "the connection ended in mid-answer, or what came is not HTTP"),
        (httpx.NetworkError, "the connection broke"),
        (httpx.InvalidURL, "the address is no URL"),
        (httpx.UnsupportedProtocol, "the address is neither http:// nor https://"),
    )
    return next((text for kind, text in named if isinstance(error, kind)), type(error).__name__)


def _root(error: BaseException) -> str:
    """What the operating system said, below the libraries' layers."""
    cause: BaseException | None = error
    said = str(error)
    while cause is not None:
        if isinstance(cause, ConnectionError) and cause.errno:
            said = os.strerror(cause.errno)  # asyncio puts words of its own
        elif isinstance(cause, OSError) and cause.strerror:
            said = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return clean(said)


def clean(text: str, limit: int = 200) -> str:
    """Somebody else's words, fit for one line: no control characters, at most `limit` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def retry_after(headers: httpx.Headers, now: datetime) -> float | None:
    """`Retry-After` in seconds: a number, also a fractional one, or an HTTP date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):  # the latter for numbers of any length in a date
            return None
        seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
    return min(86400.0, max(0.0, seconds)) if seconds == seconds else None  # noqa: PLR0124  NaN is not itself
