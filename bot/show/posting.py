"""Posts JSON to URLs that others gave us, signed as Standard Webhooks define: for webhooks and callbacks.

See github.com/standard-webhooks/standard-webhooks.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from bot.http import ANSWER_TIMEOUT, NETWORK, HttpClient, HttpStream, retry_after, words
from bot.storage.store import Store
from core.clock import Clock

_log = structlog.get_logger("clarify.posting")
_BODY_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer to a post. `after`: the seconds that it asks to wait."""

    status: int
    after: float | None = None

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def redirects(self) -> bool:
        return 300 <= self.status < 400

    @property
    def words(self) -> str:
        said = "it redirects, which is not followed" if self.redirects else "it did not take it"
        return f"{said} (HTTP {self.status})"


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the headers of one attempt: HMAC-SHA256 over id, time (seconds since 1970) and body."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


async def post(
    http: HttpClient, url: str, body: bytes, headers: Mapping[str, str], *, store: Store, clock: Clock
) -> Posted | str:
    """Makes one attempt, as the leader. Only the status counts, not the body.

    Returns the answer, or why there is none, without the URL.
    """
    try:
        async with (
            store.acting(),
            asyncio.timeout(ANSWER_TIMEOUT) as limit,
            http.stream("POST", url, body, headers=headers) as response,
        ):
            posted = Posted(response.status, retry_after(response.headers, clock.now()))
            limit.reschedule(None)
            await _drain(response)
            return posted
    except NETWORK as error:
        return words(error)


async def _drain(response: HttpStream) -> None:
    """Reads the body, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            await response.body()
    except TimeoutError:
        _log.debug("response not read to its end", reason="it takes too long")
    except NETWORK as error:
        _log.debug("response not read to its end", reason=words(error))
