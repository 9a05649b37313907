"""How the bot speaks with producers that it connects to, in each dialect: it subscribes, sends replies, and checks (for `clarify
check`) whether they are reachable with their tokens, and their `redact` patterns fast.

Sources: AAEP specification chapters 5 (handshake) and 6 (replies), and appendix B.1 (HTTP binding); the reference producers,
which have no handshake (`minimal`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, ClassVar, Literal
from urllib.parse import urljoin

from yarl import URL

from bot.ask.redaction import BUDGET, what_slows
from bot.checks import CheckResult, clock, right, wrong
from bot.http import (
    ANSWER_TIMEOUT,
    NETWORK,
    NOT_SENT,
    HttpAnswer,
    HttpClient,
    HttpStream,
    clean,
    exact_url,
    json_body,
    retry_after,
    words,
)
from bot.settings.model import ProducerSettings, Settings
from bot.storage.store import Acting
from core.aaep import reply_to
from core.clarification import Response

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
SUBSCRIPTIONS = "/aaep/v1/subscriptions"


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
    request = address(base, SUBSCRIPTIONS)
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


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply for one token, the same on every attempt except for the subscription. See `reply_message`.

    `confirms`: it decides a confirmation; `response` is then "accept" or "reject", `rationale` the reason if given.
    """

    reply_token: str
    response: Response
    answered_at: datetime
    decided_by: str
    correlation_id: str | None
    confirms: bool = False
    rationale: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A 2xx response. `proof`: it proves that the producer accepted the reply, not only received it."""

    word: ClassVar[str] = "accepted"
    proof: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The producer will never accept it. `reason` is for people: short, no secrets."""

    word: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The attempt failed. `may_have_arrived`: the outcome is unknown, the token may be consumed.

    `retry_after`: seconds, if the producer said. `blocked`: waiting does not help, a person must fix something, like a
    refused token or a wrong address.
    """

    word: ClassVar[str] = "try_again"
    reason: str
    may_have_arrived: bool
    retry_after: float | None = None
    blocked: bool = False


ReplyOutcome = Accepted | Refused | TryAgain


async def send_reply(
    http: HttpClient,
    subscription: Subscription,
    reply: Reply,
    *,
    since: Callable[[], datetime | None],
    now: datetime,
    acting: Acting = nullcontext,
) -> tuple[ReplyOutcome, bool]:
    """Makes one attempt. Returns the outcome, and whether the producer no longer knows the subscription.

    `since` returns since when the producer's event stream is open; None: it is not. `acting`: see `Store.acting`.
    """
    before = since()
    try:
        body = json_body(reply_message(reply, subscription.id))
    except ValueError:
        return Refused("the answer is a number that JSON cannot represent"), False
    try:
        async with acting(), asyncio.timeout(ANSWER_TIMEOUT):
            answer = await http.request("POST", subscription.replies, body)
    except NETWORK as error:
        return network_failure(error), False
    if subscription_gone(answer, subscription.dialect):
        return TryAgain(
            f"no longer knows our subscription (HTTP {answer.status})", may_have_arrived=False
        ), True
    connected = before is not None and since() == before  # all the while: the producer did not restart
    outcome = classify(answer, subscription.dialect, connected=connected, now=now)
    if isinstance(outcome, Refused):
        outcome = Refused(outcome.reason.replace(reply.reply_token, "…"))
    return outcome, False


def reply_message(reply: Reply, subscription_id: str) -> dict[str, Any]:
    """Returns a `confirmation.reply` or `clarification.reply` (AAEP, chapter 6). Deterministic."""
    return reply_to(
        reply.reply_token,
        reply.response,
        confirms=reply.confirms,
        subscription_id=subscription_id,
        answered_at=reply.answered_at,
        decided_by=reply.decided_by,
        rationale=reply.rationale,
        correlation_id=reply.correlation_id,
    )


def subscription_gone(answer: HttpAnswer, dialect: Spoken) -> bool:
    """Whether the producer forgot the subscription, so that the reply must be sent on a new one."""
    if dialect != "standard" or answer.status not in (400, 404, 410):
        return False
    return answer.status != 400 or "subscription" in str(object_in(answer.body).get("error", ""))


def network_failure(error: BaseException) -> TryAgain:
    """Classifies a network failure: unless nothing was sent, the token may be consumed."""
    return TryAgain(words(error), may_have_arrived=not isinstance(error, NOT_SENT))


def classify(  # noqa: PLR0911  a table, one row a line
    answer: HttpAnswer, dialect: Spoken, *, connected: bool, now: datetime
) -> ReplyOutcome:
    """Classifies a producer's answer to a reply (appendix B.1; RFC 9110).

    - 2xx: accepted in the standard dialect if it is a 204 or an AAEP message; only received in the minimal one, which
      answers so to anything. An HTML page of a proxy or a login says nothing about the reply.
    - 401, 403: our token is refused, not the reply; an operator can fix that before the deadline.
    - 404, 405, 410: the producer accepts no replies if its event stream is open; otherwise it may be a proxy's answer
      while the producer restarts. (404 and 410 in the standard dialect: see `subscription_gone`.)
    - 5xx: the producer may have failed after accepting the reply.
    """
    status, said = answer.status, f"HTTP {answer.status}"
    wait = retry_after(answer.headers, now)
    if 200 <= status < 300:
        return _received(answer, dialect)
    if 300 <= status < 400:
        return TryAgain(redirected(status, answer.headers), may_have_arrived=False, blocked=True)
    if status in (401, 403):
        return TryAgain(f"refuses our token ({said})", may_have_arrived=False, retry_after=wait, blocked=True)
    if status in (408, 425, 429):
        return TryAgain(f"asks to try again later ({said})", may_have_arrived=status == 408, retry_after=wait)
    if status in (404, 405, 410) and not connected:
        return TryAgain(f"its reply endpoint is not available ({said})", may_have_arrived=False)
    if status >= 500:
        return TryAgain(f"server error at the producer ({said})", may_have_arrived=True, retry_after=wait)
    return Refused(_reason(answer, said))


def _received(answer: HttpAnswer, dialect: Spoken) -> ReplyOutcome:
    standard = dialect == "standard"
    if answer.status == 204 or (
        isinstance(object_in(answer.body).get("status"), str) and "error" not in object_in(answer.body)
    ):
        return Accepted(proof=standard)
    if not standard and not answer.body.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return Accepted(proof=False)
    kind = clean(answer.headers.get("content-type", "").partition(";")[0], 40) or "no content type"
    return TryAgain(
        f"answers with {kind} instead of AAEP (HTTP {answer.status}): check `url`",
        may_have_arrived=True,
        blocked=True,
    )


def _reason(answer: HttpAnswer, said: str) -> str:
    if answer.status in (404, 405, 410):
        return f"it does not accept replies ({said})"
    body = object_in(answer.body)
    texts = [clean(text) for key in ("error", "message") if isinstance(text := body.get(key), str)]
    reason = ": ".join(text for text in texts if text)
    return clean(f"{reason} ({said})", 300) if reason else f"no reason given ({said})"


def check_redactions(settings: Settings) -> Iterator[CheckResult]:
    """Tries each `redact` pattern against texts made to slow it down, as agents may send such texts."""
    for index, producer in enumerate(settings.producers):
        slow = {number: what_slows(pattern) for number, pattern in enumerate(producer.redact)}
        for number, text in slow.items():
            if text is not None:
                told = f"takes more than {BUDGET:.0f} s on a long text like {text + '…'!r}: such questions are refused"
                fix = "bound its repetitions ({1,64} in place of +), and let no two in a row match the same characters"
                yield wrong(f"producers[{index}].redact[{number}]", told, fix)
        if slow and not any(slow.values()):
            yield right(f"producers[{index}].redact", "no text was found that slows its patterns down")


async def check_producers(settings: Settings) -> AsyncIterator[CheckResult]:
    for producer in settings.producers:
        if producer.url is None:
            yield _check_pushing(producer, settings)
            continue
        token = settings.producer_token(producer)
        async with HttpClient(None if token is None else token.get_secret_value()) as client:
            try:
                result, date = await _subscribe(client, producer, producer.url)
            except NETWORK as error:
                yield wrong(_subject(producer), f"{producer.url}: {words(error)}", _network_fix(error))
                continue
        yield result
        if skew := clock(f"{_subject(producer)} clock", date):
            yield skew


def _check_pushing(producer: ProducerSettings, settings: Settings) -> CheckResult:
    """Checks a producer that pushes: only its token identifies it."""
    token = settings.producer_token(producer)
    if token is not None:
        for other in settings.producers:
            if other is not producer and other.pushes and settings.producer_token(other) == token:
                return wrong(
                    _subject(producer),
                    f"shares its token with {other.name}: each could read the other's replies",
                    "give each pushing producer its own token",
                )
    others = [each.name for each in settings.producers if each.pushes and each is not producer]
    if others and producer.agents is None:
        text = f"pushes to us, as does {', '.join(others)}, and may use any agent name"
        fix = f'set agents = ["{producer.name}", …] for it: the agents it may speak for'
        return right(_subject(producer), text, fix)
    return right(_subject(producer), "pushes to us: nothing to connect to")


async def _subscribe(
    client: HttpClient, producer: ProducerSettings, url: str
) -> tuple[CheckResult, str | None]:
    """Subscribes; returns the result and the Date header of the producer's answer.

    Leaves the subscription open, as a producer may give up its open questions when one closes.
    """
    if producer.dialect != "minimal":
        request = json_body(subscription_request(version("clarify-bot")))
        answer = await client.request("POST", address(url, SUBSCRIPTIONS), request)
        outcome = handshake_answer(answer, url, producer.dialect, datetime.now(UTC))
        if not isinstance(outcome, NoHandshake):
            return _subscribed(producer, url, outcome), answer.headers.get("date")
    stream = minimal(url, "sub_check")
    async with client.stream("GET", stream.events) as response:
        outcome = stream_answer(response, datetime.now(UTC)) or stream
        return _subscribed(producer, url, outcome), response.headers.get("date")


def _subscribed(producer: ProducerSettings, url: str, outcome: Subscription | NotConnected) -> CheckResult:
    if isinstance(outcome, Subscription):
        does = "accepts the subscription" if outcome.dialect == "standard" else "streams events"
        return right(_subject(producer), f"{url}: {does} ({outcome.dialect} dialect)")
    fix = "check url and dialect in clarify.toml; url is the base address, without /events or /aaep"
    if outcome.unauthorized:
        variable = producer.token_env
        fix = f"check the value of {variable}" if variable else "set token_env in clarify.toml"
    return wrong(_subject(producer), f"{url}: {outcome.reason}", fix)


def _network_fix(error: BaseException) -> str:
    if isinstance(error, ssl.CertificateError):
        return "its certificate is not valid for this name, or its authority is unknown to this machine"
    return "start it, or check url in clarify.toml"


def _subject(producer: ProducerSettings) -> str:
    return f"producer {producer.name}"
