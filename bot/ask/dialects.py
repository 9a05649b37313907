"""How each dialect subscribes: addresses, the handshake's messages, and how to read the responses. Pure.

Sources: AAEP specification chapter 5 (handshake) and appendix B.1 (HTTP binding); the reference producers, which have
no handshake (`minimal`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urljoin

from yarl import URL

from bot.http import HttpAnswer, HttpStream, clean, exact_url, retry_after

AAEP_VERSION = "1.0.0"
SUBSCRIBER_ID = "clarify-bot"
Dialect = Literal["auto", "standard", "minimal", "push"]
Spoken = Literal["standard", "minimal"]
_CAPABILITIES: Mapping[str, Any] = {
    "max_events_per_second": 1000,
    "preferred_verbosity": "normal",
    "languages": ["en-US"],
    "supports_confirmation_reply": True,
    "supports_clarification_reply": True,
    "coalesce_boundaries": ["completion"],
    "event_filters": {"exclude": ["aaep:agent.output.streaming", "aaep:agent.progress.updated"]},
    "supported_conformance_levels": [1, 2, 3],
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Where to read events and send replies."""

    dialect: Spoken
    id: str
    events: URL
    replies: URL
    honoured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def filtered(self) -> bool:
        """Whether the producer leaves events out, so gaps in `sequence_number` mean nothing."""
        filters = self.honoured.get("event_filters")
        return isinstance(filters, Mapping) and bool(filters.get("exclude"))


@dataclass(frozen=True, slots=True)
class NotConnected:
    """Why there is no subscription, or a connection failed or ended.

    `retry_after`: seconds, if the producer said. `useful`: it delivered or lasted, so the backoff starts over.
    """

    reason: str
    unauthorized: bool = False
    retry_after: float | None = None
    useful: bool = False


@dataclass(frozen=True, slots=True)
class NoHandshake:
    """The producer does not know the handshake, but may speak the minimal dialect. `reason` if that is not allowed."""

    reason: str


def address(base: str, path: str) -> URL:
    """Returns `path` below a base address, which may have its own path and a trailing slash."""
    url = exact_url(base)
    return url.with_path(url.raw_path.rstrip("/") + path, encoded=True)


def minimal(base: str, subscription_id: str) -> Subscription:
    """Returns a subscription without a handshake. No query: one producer answers 404 to `/events?anything`."""
    return Subscription("minimal", subscription_id, address(base, "/events"), address(base, "/messages"))


def subscription_request(version: str) -> dict[str, Any]:
    """Returns the handshake's first message. `version` is ours."""
    return {
        "type": "subscription.request",
        "aaep_version": AAEP_VERSION,
        "subscriber_id": SUBSCRIBER_ID,
        "subscriber_name": f"clarify-bot {version}",
        "subscriber_version": version,
        "capabilities": dict(_CAPABILITIES),
    }


def subscription_close(subscription_id: str) -> dict[str, Any]:
    """Returns the message that ends a subscription, for the reply endpoint."""
    return {"type": "subscription.close", "subscription_id": subscription_id}


def handshake_answer(
    answer: HttpAnswer, base: str, dialect: Dialect, now: datetime
) -> Subscription | NotConnected | NoHandshake:
    """Classifies the answer to a `subscription.request`."""
    message = object_in(answer.body)
    kind = message.get("type")
    subscription_id = message.get("subscription_id")
    wait = retry_after(answer.headers, now)
    if (
        answer.status in (200, 201, 202)
        and kind == "subscription.accepted"
        and isinstance(subscription_id, str)
    ):
        return _accepted(message, subscription_id, answer.headers.get("location"), base)
    if kind == "subscription.rejected":
        return _rejected(message, wait)
    if answer.status in (401, 403):
        return NotConnected(f"refuses our token (HTTP {answer.status})", unauthorized=True)
    if answer.status in (400, 404, 405, 501) or answer.status < 300:
        no_handshake = NoHandshake(
            f"does not support the handshake (HTTP {answer.status} to subscription.request)"
        )
        return no_handshake if dialect == "auto" else NotConnected(no_handshake.reason)
    if 300 <= answer.status < 400:
        return NotConnected(redirected(answer.status, answer.headers))
    return NotConnected(f"answers subscription.request with HTTP {answer.status}", retry_after=wait)


def serialized(answer: HttpAnswer) -> str:
    """Returns an accepted subscription as text, for `deserialized` after a restart."""
    return json.dumps({"message": object_in(answer.body), "location": answer.headers.get("location")})


def deserialized(text: str, base: str) -> Subscription | None:
    """Returns the subscription from `serialized`, or None if it is unreadable."""
    try:
        saved = json.loads(text)
        message, location = saved["message"], saved["location"]
        return _accepted(message, str(message["subscription_id"]), location, base)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def stream_answer(response: HttpStream, now: datetime) -> NotConnected | None:
    """Returns why the answer to a GET is no event stream, or None if it is one."""
    status = response.status
    kind = response.headers.get("content-type", "text/event-stream").partition(";")[0].strip().lower()
    if status == 200 and kind == "text/event-stream":
        encoding = response.headers.get("content-encoding", "identity")
        if encoding == "identity":
            return None
        return NotConnected(
            f"sends events with the encoding {clean(encoding, 20)}, which the bot did not request"
        )
    if status == 200:
        return NotConnected(
            f"sends {clean(kind, 40)} instead of text/event-stream: check that `url` is its base address"
        )
    if status in (401, 403):
        return NotConnected(f"refuses our token (HTTP {status})", unauthorized=True)
    if 300 <= status < 400:
        return NotConnected(redirected(status, response.headers))
    return NotConnected(
        f"answers with HTTP {status} instead of events", retry_after=retry_after(response.headers, now)
    )


def redirected(status: int, headers: Mapping[str, str]) -> str:
    """Returns the reason for a refused redirect, with the host it points to."""
    try:
        host = exact_url(headers.get("location", "")).host or "another path"
    except ValueError:
        host = "an unreadable address"
    return f"redirects to {clean(host, 80)} (HTTP {status}), which the bot does not follow: set `url` to the final address"


def _accepted(
    message: Mapping[str, Any], subscription_id: str, location: str | None, base: str
) -> Subscription:
    honoured = message.get("honored_capabilities")
    return Subscription(
        "standard",
        subscription_id,
        _events_address(base, location, subscription_id),
        address(base, "/aaep/v1/replies"),
        honoured if isinstance(honoured, Mapping) else {},
    )


def _events_address(base: str, location: str | None, subscription_id: str) -> URL:
    """Returns `Location`, relative or absolute, but never at another origin, as the request carries our token."""
    request = address(base, "/aaep/v1/subscriptions")
    if location:
        try:
            url = exact_url(urljoin(str(request), location))
        except ValueError:
            url = None
        if url is not None and _origin(url) == _origin(request):
            return url
    return address(base, "/aaep/v1/events").with_query(subscription_id=subscription_id)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _rejected(message: Mapping[str, Any], wait: float | None) -> NotConnected:
    code = clean(str(message.get("reason_code", "unknown")), 40)
    text = message.get("reason_message")
    seconds = message.get("retry_after_seconds")
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        wait = min(86400.0, max(0.0, float(seconds)))
    return NotConnected(
        f"rejected the subscription: {code}" + (f" ({clean(text)})" if isinstance(text, str) else ""),
        unauthorized=code in ("authentication_required", "authorization_denied"),
        retry_after=wait,
    )


def object_in(body: bytes) -> dict[str, Any]:
    """Returns the JSON object in a body; an empty one if there is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
