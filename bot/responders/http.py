"""A role that answers over HTTP: the question is posted as JSON, the answer is the response."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from datetime import timedelta
from typing import Any

import httpx
import structlog
from pydantic import SecretStr

from bot.http import CONNECT_TIMEOUT, NETWORK, json_body, keepalive_options, words
from core.dispatch import Inquiry
from core.errors import AgentError

_log = structlog.get_logger("clarify.responders")
MOST = 64 * 1024  # bytes of a response
_TYPES = "application/json or text/plain"
# What an answer's reader asks back: thousands, or decimals? A number of JSON is never the former.
_THREE_DECIMALS = re.compile(r"-?\d+\.\d{3}")


class HttpResponder:
    """Posts each question to `url`, with `token` as bearer token; `timeout` is for all of one exchange.

    A response 2xx is the answer: JSON `{"answer": …}` with a string, number or boolean, or plain text, at most 64 KiB.
    Redirects are not followed, for the token must not travel.
    """

    def __init__(self, url: str, token: SecretStr | None, timeout: timedelta) -> None:
        self._url = url
        self._token = token
        self._seconds = timeout.total_seconds()
        self._tls = httpx.create_ssl_context(trust_env=False)

    async def answer(self, inquiry: Inquiry) -> str:
        """As `Responder` says."""
        who, began = f"{inquiry.role} (http)", time.monotonic()
        if self._token is not None and not self._token.get_secret_value().isprintable():
            # Found here, where no library can quote it in its logs.
            raise AgentError(f"{who} cannot be asked: its token has a line end or a control character in it")
        try:
            async with asyncio.timeout(self._seconds):
                media_type, body = await self._exchange(who, inquiry)
        except (TimeoutError, httpx.ReadTimeout, httpx.WriteTimeout):
            raise AgentError(f"{who} did not answer within {self._seconds:g} s") from None
        except NETWORK as error:
            raise AgentError(f"{who} cannot be asked: {words(error)}") from None
        finally:
            seconds = round(time.monotonic() - began, 3)
            _log.info("an endpoint was asked", id=inquiry.clarification, role=inquiry.role, seconds=seconds)
        return _answer(who, media_type, body, inquiry)

    async def _exchange(self, who: str, inquiry: Inquiry) -> tuple[str, bytes]:
        """The media type and the body of a response that may be an answer."""
        async with self._client() as client:
            request = client.build_request("POST", self._url, content=json_body(inquiry.as_json()))
            response = await client.send(request, stream=True)
            try:
                _check(who, response)
                return _media_type(response), await _body(who, response)
            finally:
                await response.aclose()

    def _client(self) -> httpx.AsyncClient:
        """One for each question: they are rare, and nothing is left open between them."""
        headers = {
            b"User-Agent": b"clarify-bot",
            b"Accept": b"application/json, text/plain",
            b"Accept-Encoding": b"identity",
            b"Content-Type": b"application/json",
        }
        if self._token is not None:
            headers[b"Authorization"] = f"Bearer {self._token.get_secret_value()}".encode()
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(verify=self._tls, socket_options=keepalive_options()),
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT),
            follow_redirects=False,
            trust_env=False,
        )


def _check(who: str, response: httpx.Response) -> None:
    """Before its body is read: whether it can be an answer."""
    status = response.status_code
    if 300 <= status < 400:
        raise AgentError(f"{who} redirects (HTTP {status}); expected the address itself")
    if status in (401, 403):
        raise AgentError(f"{who} refuses our token (HTTP {status})")
    if not 200 <= status < 300:
        raise AgentError(f"{who} answered HTTP {status}")


async def _body(who: str, response: httpx.Response) -> bytes:
    """As it was sent: what is compressed unasked could grow without bound."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MOST:
            raise AgentError(f"{who} gave more than {MOST // 1024} KiB")
    return bytes(body)


def _media_type(response: httpx.Response) -> str:
    declared: str = response.headers.get("content-type", "")
    return declared.partition(";")[0].strip().lower()


def _answer(who: str, media_type: str, body: bytes, inquiry: Inquiry) -> str:
    if not body.strip():
        raise AgentError(f"{who} gave no answer: the response is empty")
    if media_type not in {"application/json", "text/plain"}:
        raise AgentError(f"{who} gave an answer that is not {_TYPES}")
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise AgentError(f"{who} gave an answer that is not UTF-8") from None
    answer = text if media_type == "text/plain" else _from_json(text, inquiry)
    if answer is None:
        raise AgentError(f'{who} gave JSON without "answer": a string, number or boolean')
    if not answer.strip():
        raise AgentError(f"{who} gave no answer: it is empty")
    return answer


def _from_json(text: str, inquiry: Inquiry) -> str | None:
    try:
        said = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return _in_words(said.get("answer"), inquiry) if isinstance(said, dict) else None


def _in_words(value: Any, inquiry: Inquiry) -> str | None:
    """As a person would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and math.isfinite(value):
        typed = str(value)
        return f"{typed}0" if "numeric" in inquiry.kinds and _THREE_DECIMALS.fullmatch(typed) else typed
    return value if isinstance(value, str) else None
