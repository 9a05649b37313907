"""Sends replies to producers that we connect to, and interprets their responses."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

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
from bot.producers.dialects import Spoken, Subscription, redirected
from bot.storage.store import Acting
from core.aaep import Response, clarification_reply, confirmation_reply


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply for one token; the same on every try, except for the subscription. `reply_message` makes the message of
    it.

    `confirms`: it decides on a confirmation; `response` is then "accept" or "reject", and `rationale` why, if said.
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
    """2xx. `proof`: whether this proves that the reply was accepted (standard dialect), or only received."""

    word: ClassVar[str] = "accepted"
    proof: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The producer will never take it; `reason` is for people, short, without secrets."""

    word: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Not now. `may_have_arrived`: the outcome is unknown, the token may be consumed.

    `retry_after` in seconds where the producer said. `blocked`: waiting alone does not help, somebody has to fix
    something: a token that is refused, an address where something else answers.
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
    connected: bool,
    now: datetime,
    acting: Acting = nullcontext,
) -> tuple[ReplyOutcome, bool]:
    """One try. Returns the outcome, and whether the subscription is gone on the producer's side.

    `acting`: see `Store.acting`.
    """
    try:
        body = json_body(reply_message(reply, subscription.id))
    except ValueError:
        return Refused("the answer is a number that JSON cannot represent"), False
    try:
        async with acting(), asyncio.timeout(ANSWER_TIMEOUT):
            answer = await http.request("POST", subscription.replies, body)
    except NETWORK as error:
        return unsent(error), False
    if subscription_gone(answer, subscription.dialect):
        return TryAgain(
            f"no longer knows our subscription (HTTP {answer.status})", may_have_arrived=False
        ), True
    outcome = classify(answer, subscription.dialect, connected=connected, now=now)
    if isinstance(outcome, Refused):
        outcome = Refused(outcome.reason.replace(reply.reply_token, "…"))
    return outcome, False


def reply_message(reply: Reply, subscription_id: str) -> dict[str, Any]:
    """A reply as AAEP has it: `confirmation.reply` or `clarification.reply` (chapter 6). The same for the same reply."""
    if reply.confirms:
        return confirmation_reply(
            reply_token=reply.reply_token,
            decision=str(reply.response),
            subscription_id=subscription_id,
            answered_at=reply.answered_at,
            decided_by=reply.decided_by,
            rationale=reply.rationale,
            correlation_id=reply.correlation_id,
        )
    return clarification_reply(
        reply_token=reply.reply_token,
        response=reply.response,
        subscription_id=subscription_id,
        answered_at=reply.answered_at,
        decided_by=reply.decided_by,
        correlation_id=reply.correlation_id,
    )


def subscription_gone(answer: HttpAnswer, dialect: Spoken) -> bool:
    """Whether the producer forgot the subscription: the reply goes again, on a new one."""
    if dialect != "standard" or answer.status not in (400, 404, 410):
        return False
    return answer.status != 400 or "subscription" in str(_body(answer).get("error", ""))


def unsent(error: BaseException) -> TryAgain:
    """What a failure of the network means: unless nothing left this machine, the token may be consumed."""
    return TryAgain(words(error), may_have_arrived=not isinstance(error, NOT_SENT))


def classify(  # noqa: PLR0911  a table, one row a line
    answer: HttpAnswer, dialect: Spoken, *, connected: bool, now: datetime
) -> ReplyOutcome:
    """What a producer's answer to a reply means (appendix B.1; RFC 9110).

    - 2xx: in the standard dialect taken, if it is a 204 or says so in the protocol's form; in the minimal one only
      received, as it says so to anything. A page of a proxy or a login in its place says nothing of the reply.
    - 401, 403: our token, not the reply, is refused: an operator can fix that before the deadline.
    - 404, 405, 410: while its event stream is open it is the producer itself that takes no replies;
      otherwise a proxy may answer for one that restarts. (404 and 410 in the standard dialect: see
      `subscription_gone`.)
    - 5xx: it may have failed after taking the reply.
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
        isinstance(_body(answer).get("status"), str) and "error" not in _body(answer)
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
    body = _body(answer)
    texts = [clean(text) for key in ("error", "message") if isinstance(text := body.get(key), str)]
    reason = ": ".join(text for text in texts if text)
    return clean(f"{reason} ({said})", 300) if reason else f"no reason given ({said})"


def _body(answer: HttpAnswer) -> dict[str, Any]:
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
