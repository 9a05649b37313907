"""What to do after a try to hand a reply to its producer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.producers.client import Accepted, Refused, ReplyOutcome
from core.clarification import ReplyState
from core.clock import backoff

FIRST_WAIT, LONGEST_WAIT = 0.25, 30.0


@dataclass(frozen=True, slots=True)
class Settle:
    """The reply's last word. `resolve`: that is proof that the requester took the answer."""

    state: ReplyState
    note: str | None = None
    resolve: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


def after_try(
    outcome: ReplyOutcome,
    *,
    uncertain: bool,
    attempts: int,
    now: datetime,
    expires_at: datetime | None,
    jitter: float,
) -> Settle | Wait:
    """Decide what follows the try number `attempts` (from 1).

    Args:
        outcome: of this try.
        uncertain: an earlier try may have arrived, so that a refusal may only mean "token already used".
        attempts: how many tries there were.
        now: on the clock of `expires_at`.
        expires_at: when the producer stops waiting, None if never.
        jitter: from 0 to 1.
    """
    match outcome:
        case Accepted(proof=proof):
            return Settle("delivered", resolve=proof)
        case Refused(reason=reason):
            return Settle("unconfirmed", reason) if uncertain else Settle("refused", reason)
    maybe = uncertain or outcome.may_have_arrived
    if expires_at is not None and now >= expires_at:
        return Settle("unconfirmed" if maybe else "too_late", outcome.reason)
    wait = backoff(attempts - 1, first=FIRST_WAIT, longest=LONGEST_WAIT, spread=0.5, chance=jitter)
    seconds = max(wait, outcome.retry_after or 0.0)
    # The last try is made just before the time runs out, and one more right after it says "too late".
    left = (expires_at - now).total_seconds() if expires_at is not None else seconds
    return Wait(max(0.05, min(seconds, left)))
