"""Sends replies to producers that we connect to, and interprets their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from bot.ask.dialects import Spoken, Subscription, object_in, redirected
from bot.http import (
    ANSWER_TIMEOUT,
    NETWORK,
    NOT_SENT,
    HttpAnswer,
    HttpClient,
    clean,
    json_body,
    retry_after,
    words,
)
from bot.storage.store import Acting
from core.aaep import reply_to
from core.clarification import Response


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
