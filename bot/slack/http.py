"""Slack over HTTP: every event, click, command and modal as a signed request to one URL, `/slack/events`.

Source: docs.slack.dev, "Using HTTP Request URLs", "The Events API", "Handling user interaction". No web framework
here: `bot.web.slack` hands over headers and body. A request is answered in this order:

1. not signed by Slack → 401 and a line in the log. Bolt's own check answers malformed headers with 500;
2. a challenge → repeated, also before we are ready: Slack asks while the app is being set up;
3. not ready → 503: Slack sends an event again, and shows an error to who clicked;
4. else the app, whose listeners keep what they take before they acknowledge it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

import structlog

from bot.slack.connection import Json
from bot.slack.gaps import Gaps
from bot.slack.signature import SIGNATURE, TIMESTAMP, refusal
from core.clock import Clock

_log = structlog.get_logger("clarify.slack.http")
_DRAIN = 10.0  # seconds
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"
_MOST_FIELDS = 100  # a command has about 15


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its body is text of this type."""

    status: int
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def trouble(cls, status: int, error: str, message: str) -> Answer:
        return cls(status, json.dumps({"error": error, "message": message}), _JSON)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What Slack sent. `attempt` 0 is the first; `reason` is Slack's word for why an earlier one failed."""

    payload: Json
    attempt: int = 0
    reason: str = ""


Handle = Callable[[Delivery], Awaitable[Answer]]


class RequestUrl:
    """What Slack's requests come to. `take` answers at any time; the app is asked from `start` to `stop`.

    on_gap: runs in the background when events may have been lost; one at a time.
    """

    def __init__(self, *, signing_secret: str, clock: Clock, drain: float = _DRAIN) -> None:
        self._secret = signing_secret
        self._clock = clock
        self._drain = drain
        self._handle: Handle | None = None
        self._on_gap: Callable[[], Awaitable[object]] | None = None
        self._gaps = Gaps()
        self._handling: set[asyncio.Task[Answer]] = set()
        self._look: asyncio.Task[None] | None = None
        self._open = False
        self._turned_away = False  # an event, before `start`
        self._since = clock.now()
        self._stopped = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether requests reach the app. Whether they reach us, nobody here can tell."""
        return self._open

    @property
    def since(self) -> datetime:
        """Since when `connected` is what it is."""
        return self._since

    def use(self, handle: Handle, on_gap: Callable[[], Awaitable[object]]) -> None:
        """The app, once it is known who we are."""
        self._handle, self._on_gap = handle, on_gap

    async def start(self) -> None:
        """Let requests through from now on.

        Raises:
            RuntimeError: before `use`.
        """
        if self._handle is None:
            raise RuntimeError("start() before use()")
        self._gaps.opened(self._clock.now())
        self._open, self._since = not self._stopped.is_set(), self._clock.now()
        if self._turned_away:  # it may have come too late for what was looked for before
            self._look_for_missed()

    async def wait(self) -> None:
        """Returns after `stop`."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let nothing more through; what is in work finishes and is answered (bounded)."""
        self._open, self._since = False, self._clock.now()
        self._stopped.set()
        if self._handling:
            _, late = await asyncio.wait(self._handling, timeout=self._drain)
            for task in late:
                _log.warning("not finished after the stop", seconds=self._drain, request=task.get_name())
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def take(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a POST with these headers (names in lower case) and this body as it came."""
        if TIMESTAMP not in headers and SIGNATURE not in headers and _is_ssl_check(body):
            return Answer(200)  # Slack looks at the certificate; that is all it gets to see
        if (why := refusal(self._secret, headers, body, self._clock.now())) is not None:
            _log.warning("a request to Slack's URL was refused", reason=why)
            return Answer.trouble(401, "NOT_FROM_SLACK", why)
        try:
            delivery = _delivery(headers, body)
        except (ValueError, RecursionError):
            _log.warning("a signed request cannot be read", characters=len(body))
            return Answer.trouble(400, "BAD_INPUT", "neither a JSON object nor a form that Slack sends")
        if delivery.payload.get("type") == "url_verification":
            return Answer(200, str(delivery.payload.get("challenge") or ""))
        if delivery.payload.get("ssl_check") == "1":  # signed this time
            return Answer(200)
        return await self._admitted(delivery)

    async def _admitted(self, delivery: Delivery) -> Answer:
        if not self._open or self._handle is None:
            _log.warning("not ready for what Slack sent", type=_kind(delivery.payload))
            self._turned_away = self._turned_away or delivery.payload.get("type") == "event_callback"
            return Answer.trouble(503, "NOT_READY", "not ready to take events and clicks")
        dropped = delivery.payload.get("type") == "app_rate_limited"
        if self._gaps.heard(self._clock.now(), retried=delivery.attempt > 0, dropped=dropped):
            self._look_for_missed()
        if dropped:
            _log.warning("Slack leaves out events: there were too many")
            return Answer(200)
        # On its own: the end of the connection, or of the server, does not tear a listener in two.
        task = asyncio.create_task(self._answered(self._handle, delivery), name=_kind(delivery.payload))
        self._handling.add(task)
        task.add_done_callback(self._handling.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return Answer.trouble(503, "STOPPING", "stopped before it was taken")

    async def _answered(self, handle: Handle, delivery: Delivery) -> Answer:
        try:
            return await handle(delivery)
        except Exception:  # noqa: BLE001 - whatever it is: Slack is to know, and the next request is another one
            _log.exception("a request from Slack was not handled", type=_kind(delivery.payload))
            return Answer.trouble(500, "NOT_TAKEN", "not taken; the log says why")

    def _look_for_missed(self) -> None:
        if self._look is not None and not self._look.done():
            self._gaps.failed(self._clock.now())  # it may be past the place already: again after this one
        elif self._on_gap is not None:
            self._look = asyncio.create_task(self._looked(self._on_gap), name="what Slack could not deliver")

    async def _looked(self, on_gap: Callable[[], Awaitable[object]]) -> None:
        _log.info("events may have been missed; looking for them")
        try:
            await on_gap()
        except Exception:  # noqa: BLE001 - whatever it is, clicks go on, and the look is owed
            _log.exception("what was missed is not known yet")
            self._gaps.failed(self._clock.now())


def _delivery(headers: Mapping[str, str], body: bytes) -> Delivery:
    """What a request carries.

    Raises:
        ValueError, RecursionError: it cannot be read.
    """
    retry = headers.get("x-slack-retry-num", "")
    attempt = int(retry) if retry.isascii() and retry.isdigit() and len(retry) < 4 else 0
    reason = headers.get("x-slack-retry-reason", "") if attempt else ""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    payload = json.loads(body) if media_type == _JSON else _form(body)
    if not isinstance(payload, dict):
        raise ValueError("not an object")  # noqa: TRY004 - of what was sent, not of what a caller passed
    return Delivery(payload, attempt, reason)


def _form(body: bytes) -> Any:
    """A command's fields, or an interaction's JSON in the field `payload`.

    Bolt takes any form that has the word "payload" somewhere for the latter: it would lose the commands that do.
    """
    text = body.decode()
    fields = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    if not fields:
        raise ValueError("no fields")
    return json.loads(fields["payload"]) if "payload" in fields and "command" not in fields else fields


def _is_ssl_check(body: bytes) -> bool:
    try:
        return len(body) < 1000 and _form(body).get("ssl_check") == "1"
    except (ValueError, RecursionError, AttributeError):
        return False


def _kind(payload: Json) -> str:
    """What may be logged of it."""
    event = payload.get("event")
    kind = event.get("type") if isinstance(event, dict) else payload.get("type") or payload.get("command")
    return str(kind)[:40]
