"""Slack over HTTP: every event, click, command and modal as a signed request to one URL, `/slack/events`.

Sources: docs.slack.dev, "Using HTTP Request URLs", "Verifying requests from Slack", "The Events API", "Handling user
interaction". No web framework here: the web server hands over headers and body. A request is answered in this order:

1. not signed by Slack → 401 and a line in the log. Bolt's own check answers malformed headers with 500;
2. a challenge → repeated, also before we are ready: Slack asks while the app is being set up;
3. not ready → 503: Slack sends an event again, and shows an error to the person who clicked;
4. else the app, whose listeners keep what they take before they acknowledge it.

Slack tries an event at once, after one minute and after five, then gives it up, and nothing tells afterwards that it did.
While it gives events up, either others come as retries, or nothing comes for minutes: `MissedEvents` sees both on the
next request. A quiet hour looks the same as an outage; then a look into the history costs a few calls and finds
nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import structlog

from bot.slack.socket import Background, Envelope, Json
from core.clock import Clock

TIMESTAMP, SIGNATURE = "x-slack-request-timestamp", "x-slack-signature"
OLDEST = 300  # seconds; Slack's advice against replays. As far into the future is no clock of Slack's, either
_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_V0 = re.compile(r"v0=[0-9a-f]{64}", re.ASCII)


def signature_refusal(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str | None:
    """Why a request with these headers (names in lower case) and this body is not Slack's; None if it is.

    The reason repeats nothing of what was sent: it goes to the log.
    """
    timestamp, signature = headers.get(TIMESTAMP), headers.get(SIGNATURE)
    if timestamp is None or signature is None:
        return f"no {TIMESTAMP if timestamp is None else SIGNATURE} header"
    if not _SECONDS.fullmatch(timestamp):
        return f"{TIMESTAMP} is no number of seconds"
    if not _V0.fullmatch(signature):
        return f"{SIGNATURE} is no v0 signature"
    age = now.timestamp() - int(timestamp)
    if abs(age) > OLDEST:
        when = "ago" if age > 0 else "in the future"
        return f"signed {abs(age):.0f} s {when}, more than {OLDEST} s: sent again, or this machine's clock is wrong"
    if not hmac.compare_digest(signed(secret, timestamp, body).encode(), signature.encode()):
        return "the signature does not fit: not from Slack, or SLACK_SIGNING_SECRET is another app's"
    return None


def signed(secret: str, timestamp: str, body: bytes) -> str:
    """The signature that Slack gives `body` at `timestamp`."""
    text = b"v0:" + timestamp.encode("ascii") + b":" + body
    return "v0=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


LULL = timedelta(minutes=4)  # shorter than the time after which Slack gives an event up
APART = timedelta(minutes=1)  # looks follow each other no closer


class MissedEvents:
    """Tells from the requests that come that others may have been lost.

    `opened` once when requests are taken, then `arrived` for each of them.
    """

    def __init__(self) -> None:
        self._last: datetime | None = None
        self._looked: datetime | None = None
        self._owed: datetime | None = None  # not before then

    def opened(self, now: datetime) -> None:
        """From now on silence counts; the caller looks for what was missed before."""
        self._last = now

    def arrived(self, now: datetime, *, retried: bool = False, dropped: bool = False) -> bool:
        """Whether to look into the history now.

        retried: Slack could not deliver this before. dropped: Slack says that it leaves out events for a minute.
        """
        lull = self._last is not None and now - self._last >= LULL
        self._last = now
        if dropped:
            self._owe(now + APART)
        elif retried or lull:
            self._owe(now)
        if self._owed is None or now < max(self._owed, (self._looked or now - APART) + APART):
            return False
        self._owed, self._looked = None, now
        return True

    def _owe(self, since: datetime) -> None:
        # The later of two: what was dropped until then is found as well.
        self._owed = since if self._owed is None else max(self._owed, since)


_log = structlog.get_logger("clarify.slack.request_url")
_DRAIN = 10.0  # seconds
_FORM, _JSON = "application/x-www-form-urlencoded", "application/json"
_MOST_FIELDS = 100  # a command has about 15


@dataclass(frozen=True, slots=True)
class UrlAnswer:
    """An HTTP response; its body is text of this type."""

    status: int
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def trouble(cls, status: int, error: str, message: str) -> UrlAnswer:
        return cls(status, json.dumps({"error": error, "message": message}), _JSON)


Handle = Callable[[Envelope], Awaitable[UrlAnswer]]


@dataclass(kw_only=True, eq=False, repr=False)
class RequestUrl:
    """Answers Slack's requests: `take` at any time, from `start` to `stop` with what is given to `start`.

    `on_gap` is called when events may have been lost.
    """

    signing_secret: str
    on_gap: Callable[[], None]
    clock: Clock
    drain: float = _DRAIN

    def __post_init__(self) -> None:
        self._missed = MissedEvents()
        self._handling = Background()
        self._open = False
        self._turned_away = False  # an event, before `start`
        self._since = self.clock.now()
        self._stopped = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether requests reach the app. Whether they reach us, nobody here can tell."""
        return self._open

    @property
    def since(self) -> datetime:
        """Since when `connected` is what it is."""
        return self._since

    async def start(self, handle: Handle) -> None:
        """Have requests handled from now on."""
        self._handle: Handle = handle
        self._missed.opened(self.clock.now())
        self._open, self._since = not self._stopped.is_set(), self.clock.now()
        if self._turned_away:  # it may have come too late for what was looked for before
            self.on_gap()

    def suspect(self) -> None:
        """Something was handed to us that was meant for another bot. Nobody counts those that share a request URL."""

    async def wait(self) -> None:
        """Returns after `stop`."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let nothing more through; what is in work finishes and is answered (bounded)."""
        self._open, self._since = False, self.clock.now()
        self._stopped.set()
        await self._handling.drain(self.drain)

    async def take(self, headers: Mapping[str, str], body: bytes) -> UrlAnswer:
        """The answer to a POST with these headers (names in lower case) and this body as it came."""
        if TIMESTAMP not in headers and SIGNATURE not in headers and _is_ssl_check(body):
            return UrlAnswer(200)  # Slack looks at the certificate; that is all it gets to see
        if (why := signature_refusal(self.signing_secret, headers, body, self.clock.now())) is not None:
            _log.warning("refused a request to /slack/events", reason=why)
            return UrlAnswer.trouble(401, "NOT_FROM_SLACK", why)
        try:
            envelope = _envelope(headers, body)
        except (ValueError, RecursionError):
            _log.warning("cannot read a signed request", characters=len(body))
            return UrlAnswer.trouble(400, "BAD_INPUT", "neither a JSON object nor a form that Slack sends")
        if envelope.payload.get("type") == "url_verification":
            return UrlAnswer(200, str(envelope.payload.get("challenge") or ""))
        if envelope.payload.get("ssl_check") == "1":  # signed this time
            return UrlAnswer(200)
        return await self._admitted(envelope)

    async def _admitted(self, envelope: Envelope) -> UrlAnswer:
        if not self._open:
            _log.warning("not ready for a request from Slack", type=_kind(envelope.payload))
            self._turned_away = self._turned_away or envelope.payload.get("type") == "event_callback"
            return UrlAnswer.trouble(503, "NOT_READY", "not ready to take events and clicks")
        dropped = envelope.payload.get("type") == "app_rate_limited"
        if self._missed.arrived(self.clock.now(), retried=envelope.attempt > 0, dropped=dropped):
            _log.info("events may have been missed; looking for them")
            self.on_gap()
        if dropped:
            _log.warning("Slack dropped events: rate limit reached")
            return UrlAnswer(200)
        # On its own: the end of the connection, or of the server, does not tear a listener in two.
        task = self._handling.run(self._answered(envelope), _kind(envelope.payload))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return UrlAnswer.trouble(503, "STOPPING", "stopped before it was taken")

    async def _answered(self, envelope: Envelope) -> UrlAnswer:
        try:
            return await self._handle(envelope)
        except Exception:  # noqa: BLE001 - whatever it is: Slack is to know, and the next request is another one
            _log.exception("cannot handle a request from Slack", type=_kind(envelope.payload))
            return UrlAnswer.trouble(500, "NOT_TAKEN", "not taken; the log says why")


def _envelope(headers: Mapping[str, str], body: bytes) -> Envelope:
    """The payload of a request.

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
    return Envelope(payload, attempt, reason)


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
    """The kind of a payload, for the log."""
    event = payload.get("event")
    kind = event.get("type") if isinstance(event, dict) else payload.get("type") or payload.get("command")
    return str(kind)[:40]
