"""The HTTP client that talks to others: producers, webhooks, GitHub; what comes back, and what failures are called."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
from yarl import URL

from bot.errors import NotLeading

if TYPE_CHECKING:
    from bot.storage.store import Acting

CONNECT_TIMEOUT = 5.0  # less than the whole, so that a timeout tells whether anything was sent
ANSWER_TIMEOUT = 10.0
MAX_BODY = 64 * 1024
_KEEPALIVE_EXPIRY = 30.0
_MOST_CONNECTIONS = 20
# All that the network may do to a request; an OSError that httpx did not translate included.
NETWORK = (httpx.HTTPError, httpx.InvalidURL, OSError)
# Nothing of the request left this machine.
NOT_SENT = (
    NotLeading,
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.LocalProtocolError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole HTTP answer; `body` is cut at MAX_BODY."""

    status: int
    headers: Mapping[str, str] = field(repr=False)  # of any case
    body: bytes = field(repr=False)


class Poster:
    """Posts JSON to one party again and again, over connections that are held open.

    With aiohttp: one request takes a tenth of the time that it does with httpx's pool, and that was most of a reply.
    Failures are httpx's all the same, so that they have one set of names. `acting`: see `Store.acting`.
    """

    def __init__(self, token: str | None, acting: Acting = nullcontext) -> None:
        self._headers = {
            "User-Agent": "clarify-bot",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._acting = acting
        self.is_closed = False

    async def post(self, url: httpx.URL, body: bytes) -> HttpAnswer:
        """POST JSON and read the answer, whatever its size; redirects are not followed, for the token must not travel.

        Raises:
            httpx.HTTPError, httpx.InvalidURL, TimeoutError: as `words` puts them.
        """
        if self._session is None:
            self._session = self._open()
        try:
            async with (
                self._acting(),
                asyncio.timeout(ANSWER_TIMEOUT),
                self._session.post(URL(str(url), encoded=True), data=body, allow_redirects=False) as response,
            ):
                return HttpAnswer(response.status, response.headers, await _beginning(response.content))
        except (aiohttp.ClientError, ValueError) as error:
            raise _as_httpx(error) from error

    async def close(self) -> None:
        self.is_closed = True
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=_MOST_CONNECTIONS,
            keepalive_timeout=_KEEPALIVE_EXPIRY,
            socket_factory=_kept_alive,
            ssl=_ssl_context(),
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_connect=CONNECT_TIMEOUT),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Which authorities are trusted: one for all clients, for reading the list takes 30 ms. SSL_CERT_FILE names another."""
    return httpx.create_ssl_context()


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """At most MAX_BODY of a body, as sent."""
    body = bytearray()
    while len(body) < MAX_BODY and (chunk := await content.readany()):
        body += chunk
    return bytes(body[:MAX_BODY])


def _as_httpx(error: aiohttp.ClientError | ValueError) -> Exception:
    """The failure of httpx that says the same. The message is left out: it may quote the token."""
    kinds: tuple[tuple[type[Exception], type[Exception]], ...] = (
        (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
        (aiohttp.ClientConnectorError, httpx.ConnectError),
        (aiohttp.InvalidURL, httpx.InvalidURL),
        (aiohttp.ServerDisconnectedError, httpx.RemoteProtocolError),
        (aiohttp.ClientPayloadError, httpx.RemoteProtocolError),
        (aiohttp.ClientResponseError, httpx.RemoteProtocolError),
        (aiohttp.ClientError, httpx.NetworkError),
        (ValueError, httpx.LocalProtocolError),  # a header with a line end
    )
    return next(theirs for ours, theirs in kinds if isinstance(error, ours))("")


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for level, name, value in keepalive_options():
        made.setsockopt(level, name, value)
    return made


def open_client(token: str | None) -> httpx.AsyncClient:
    """A client for one party: TCP keepalive, no redirects (a token must not travel), no surroundings.

    No environment: proxies, .netrc and the like would be configuration that settings does not know.
    """
    headers = {b"User-Agent": b"clarify-bot", b"Accept-Encoding": b"identity"}
    if token:
        headers[b"Authorization"] = f"Bearer {token}".encode()
    transport = httpx.AsyncHTTPTransport(
        verify=_ssl_context(),
        socket_options=keepalive_options(),
        limits=httpx.Limits(max_connections=_MOST_CONNECTIONS, keepalive_expiry=_KEEPALIVE_EXPIRY),
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


async def post(client: httpx.AsyncClient, url: httpx.URL, body: bytes) -> HttpAnswer:
    """POST JSON and read the answer, whatever its size.

    Raises:
        httpx.HTTPError, TimeoutError: as `words` puts them.
    """
    request = client.build_request("POST", url, content=body, headers={"Content-Type": "application/json"})
    response = await client.send(request, stream=True)
    try:
        return HttpAnswer(response.status_code, response.headers, await bounded_body(response))
    finally:
        await response.aclose()


async def bounded_body(response: httpx.Response, most: int = MAX_BODY) -> bytes:
    """At most `most` bytes of the body, as sent: what is compressed unasked could grow without bound."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= most:
            break
    return bytes(body[:most])


def words(error: BaseException) -> str:
    """A network failure for people. By its kind: the library's own text may quote a header, the token too."""
    if isinstance(error, httpx.ConnectError):
        return f"cannot connect ({_root(error)})"
    named: tuple[tuple[type[BaseException], str], ...] = (
        (NotLeading, "this bot does not lead now"),
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


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
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
