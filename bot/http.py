"""The HTTP client for producers, responders, webhooks, GitHub and calendars, and names for its failures.

It is aiohttp, as for Slack. It never decompresses a body: an unrequested compressed one could grow without bound.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp
import certifi
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from bot.errors import NotLeading
from bot.settings.load import read_environment

CONNECT_TIMEOUT = 5.0  # less than ANSWER_TIMEOUT, so that a timeout shows whether anything was sent
ANSWER_TIMEOUT = 10.0
MAX_BODY = 64 * 1024
_MAX_HEADER = 32 * 1024  # bytes of one header: a login page's policy may be long
_KEEPALIVE_EXPIRY = 30.0
_MOST_CONNECTIONS = 20
_TORN = "the connection ended in mid-answer, or what came is not HTTP"
_NOT_IN_A_REQUEST = re.compile(r"""[^!-~]|["<>`{}]|%(?![0-9A-Fa-f]{2})""")
_T = TypeVar("_T")


class AddressRefused(OSError):
    """A name resolved to an address that must not be called."""


class MalformedRequest(aiohttp.ClientError):
    """The request cannot be sent as HTTP."""


# All network failures of a request, including NotLeading, which is an OSError.
NETWORK = (aiohttp.ClientError, OSError)
# Failures before any byte of the request was sent.
NOT_SENT = (
    NotLeading,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
    MalformedRequest,
)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP answer; `body` may be cut, see `HttpClient.request`."""

    status: int
    headers: Mapping[str, str] = field(repr=False)  # case-insensitive
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpStream:
    """An HTTP answer whose body is not read yet. `read` returns the next bytes, none at the end."""

    status: int
    headers: Mapping[str, str] = field(repr=False)  # case-insensitive
    read: Callable[[], Awaitable[bytes]] = field(repr=False)

    async def body(self, most: int = MAX_BODY) -> bytes:
        """Reads at most `most` bytes of the body."""
        body = bytearray()
        while len(body) < most and (chunk := await self.read()):
            body += chunk
        return bytes(body[:most])


class HttpClient:
    """Sends requests to one party over connections that stay open until `close`.

    TCP keepalive, no redirects (a token must not travel), no cookies, no proxies or .netrc from the environment.
    """

    def __init__(self, token: str | None, *, may_be_called: Callable[[str], bool] | None = None) -> None:
        """`token`: the bearer token. `may_be_called`: whether to call an IP address that a name resolved to; None: any."""
        self._may_be_called = may_be_called
        self._headers = {"User-Agent": "clarify-bot", "Accept": "*/*", "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None
        self._bodies: dict[asyncio.Future[None], aiohttp.StreamReader] = {}
        self.is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.is_closed = True
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        url: str | URL,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        most: int = MAX_BODY,
    ) -> HttpAnswer:
        """Sends a request and reads at most `most` bytes of the answer's body. See `stream`."""
        async with self.stream(method, url, body, headers=headers) as response:
            return HttpAnswer(response.status, response.headers, await response.body(most))

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str | URL,
        body: bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        silence: float | None = ANSWER_TIMEOUT,
    ) -> AsyncIterator[HttpStream]:
        """Sends a request and reads the answer's head; read its body inside.

        Args:
            method: the HTTP method.
            url: a string is sent exactly as written, see `exact_url`.
            body: JSON.
            headers: added to the default headers, or replacing them.
            silence: the longest pause between bytes, in seconds. The whole exchange has no limit.

        Raises:
            aiohttp.ClientError, OSError: the exceptions in NETWORK; `words` describes them.
        """
        if self._session is None:
            self._session = self._open()
        sent = dict(headers or {})
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            response = await self._session.request(
                method,
                exact_url(url) if isinstance(url, str) else url,
                data=body,
                headers=sent,
                allow_redirects=False,
                timeout=_timeout(silence),
            )
        except NETWORK:  # a certificate error is a ValueError, too
            raise
        except ValueError:  # a header contains a line end; the message would quote it
            raise MalformedRequest from None
        async with response:
            self._fail_with_its_connection(response)
            yield HttpStream(response.status, response.headers, functools.partial(_next_of, response.content))

    def _fail_with_its_connection(self, response: aiohttp.ClientResponse) -> None:
        """Fails the body when its connection closes: aiohttp's reader waits forever after a malformed chunk."""
        if response.connection is None or response.connection.protocol is None:
            return  # the body is complete
        closed = response.connection.protocol.closed
        if closed is None:  # already closed
            _break_off(response.content)
            return
        if closed not in self._bodies:
            closed.add_done_callback(self._closed)
        self._bodies[closed] = response.content

    def _closed(self, connection: asyncio.Future[None]) -> None:
        connection.exception()  # asyncio logs exceptions that are never retrieved
        _break_off(self._bodies.pop(connection))

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=_MOST_CONNECTIONS,
            keepalive_timeout=_KEEPALIVE_EXPIRY,
            socket_factory=_kept_alive,
            ssl=_ssl_context(),
            resolver=_Resolver(self._may_be_called),
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )


class _Resolver(AbstractResolver):
    """Resolves names only to addresses that may be called: if one of a name's may not be, none is. The connection goes to
    the addresses returned here, and is not resolved again.

    Each lookup runs in its own thread, since it can take minutes: other work and the end of the process don't wait for it.
    aiohttp makes one lookup of a name at a time.
    """

    def __init__(self, may_be_called: Callable[[str], bool] | None) -> None:
        self._may_be_called = may_be_called

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        look_up = functools.partial(
            socket.getaddrinfo,
            host,
            port,
            type=socket.SOCK_STREAM,
            family=family,
            flags=socket.AI_ADDRCONFIG,
        )
        found = [
            ResolveResult(
                hostname=host,
                host=f"{address[0]}%{address[3]}" if len(address) > 3 and address[3] else str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await in_own_thread(look_up)
        ]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if self._may_be_called is not None and not all(self._may_be_called(each["host"]) for each in found):
            raise AddressRefused(errno.EACCES, f"{host} resolves to an address that must not be called")
        return found

    async def close(self) -> None:
        """Leaves lookups to their threads."""


async def in_own_thread(work: Callable[[], _T]) -> _T:
    """Runs `work` in a new thread that the process does not wait for at its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run() -> None:
        end: Callable[[], None]
        try:
            end = functools.partial(done.set_result, work())
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            end = functools.partial(done.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if done.done() else end())

    threading.Thread(target=run, name="work of its own", daemon=True).start()
    return await done


@functools.cache
def _timeout(silence: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, connect=CONNECT_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=silence
    )


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Returns the context that trusts certifi's list, or the authorities in SSL_CERT_FILE or SSL_CERT_DIR.

    All clients share it, as reading the list takes 30 ms.
    """
    environ = read_environment()
    if file := environ.get("SSL_CERT_FILE"):
        context = ssl.create_default_context(cafile=file)
    elif folder := environ.get("SSL_CERT_DIR"):
        context = ssl.create_default_context(capath=folder)
    else:
        context = ssl.create_default_context(cafile=certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


def _break_off(content: aiohttp.StreamReader) -> None:
    if not content.is_eof() and content.exception() is None:
        content.set_exception(aiohttp.ClientPayloadError())


async def _next_of(content: aiohttp.StreamReader) -> bytes:
    """Returns the next bytes of a body, also those before a failure, which aiohttp would drop."""
    try:
        return await content.readany()
    except aiohttp.ClientError as error:
        content.set_exception(None)  # type: ignore[arg-type]  # the reader refuses to read while one is set
        rest = content.read_nowait()
        content.set_exception(error)
        if rest:
            return rest
        raise


@functools.lru_cache
def exact_url(text: str) -> URL:
    """Parses a URL without rewriting its path and query, which may be signed. Escapes illegal characters.

    Raises:
        aiohttp.InvalidURL: the text is not a URL.
    """
    try:
        checked, written = URL(text), URL(text, encoded=True)
        return URL.build(
            scheme=checked.scheme,
            authority=checked.raw_authority,  # in IDNA
            path=_escaped(written.raw_path),
            query_string=_escaped(written.raw_query_string),
            encoded=True,
        )
    except ValueError:
        raise aiohttp.InvalidURL("…") from None  # the text may contain a secret


def _escaped(text: str) -> str:
    return _NOT_IN_A_REQUEST.sub(lambda found: quote(found[0], safe=""), text)


def _kept_alive(address: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    for level, name, value in keepalive_options():
        made.setsockopt(level, name, value)
    return made


def keepalive_options() -> list[tuple[int, int, int]]:
    """Returns the socket options that make a connection fail about 50 s after its peer is gone."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


def json_body(message: dict[str, Any]) -> bytes:
    """Returns a message as JSON in ASCII.

    Raises:
        ValueError: a number is infinite or NaN.
    """
    return json.dumps(message, allow_nan=False).encode()


def words(error: BaseException) -> str:
    """Describes a network failure for people, by its class: the library's text may quote the token."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect to {error.host}:{error.port} ({_root(error)})"
    named: tuple[tuple[type[BaseException], str], ...] = (
        (NotLeading, "this bot does not lead now"),
        (aiohttp.ConnectionTimeoutError, f"no connection within {CONNECT_TIMEOUT:g} s"),
        (TimeoutError, f"no answer within {ANSWER_TIMEOUT:g} s"),
        (MalformedRequest, "the request breaks HTTP (does the token hold a line end?)"),
        (aiohttp.InvalidURL, "the address is no URL"),
        (aiohttp.NonHttpUrlClientError, "the address is neither http:// nor https://"),
        (aiohttp.ServerDisconnectedError, _TORN),
        (aiohttp.ClientPayloadError, _TORN),
        (aiohttp.ClientResponseError, _TORN),
        (aiohttp.ClientError, "the connection broke"),
    )
    return next((text for kind, text in named if isinstance(error, kind)), type(error).__name__)


def _root(error: BaseException) -> str:
    """Returns the operating system's message behind the libraries' exceptions."""
    cause: BaseException | None = error
    said = str(error)
    while cause is not None:
        if isinstance(cause, ConnectionError) and cause.errno:
            said = os.strerror(cause.errno)  # asyncio has its own text
        elif isinstance(cause, OSError) and cause.strerror:
            said = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return clean(said)


def clean(text: str, limit: int = 200) -> str:
    """Returns another party's text on one line: no control characters, at most `limit` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Returns `Retry-After` in seconds: a number, maybe fractional, or an HTTP date (RFC 9110, 10.2.3)."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = parsedate_to_datetime(value)
        except (ValueError, OverflowError):  # OverflowError: a huge number in a date
            return None
        seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()
    return min(86400.0, max(0.0, seconds)) if seconds == seconds else None  # noqa: PLR0124  NaN is not itself
