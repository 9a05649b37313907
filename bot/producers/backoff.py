"""How long to wait before the next try (pure)."""

from __future__ import annotations

import random

BASE = 0.5
CAP = 60.0
UNAUTHORIZED = 60.0
_LONGEST = 86400.0


def backoff(attempt: int, rng: random.Random, *, base: float = BASE, cap: float = CAP) -> float:
    """Seconds before try `attempt` (0 is the first after a success): exponential, with full jitter.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog.
    """
    return rng.uniform(0, min(cap, base * 2 ** min(attempt, 30)))


def reconnect_delay(
    attempt: int,
    rng: random.Random,
    *,
    unauthorized: bool = False,
    retry_after: float | None = None,
    sse_retry: float | None = None,
) -> float:
    """Seconds before connecting again.

    Args:
        attempt: failures in a row, 0 after a connection that was of use.
        rng: where the jitter comes from.
        unauthorized: the producer refused our token: trying often helps nobody.
        retry_after: what the producer asked for in `Retry-After` or `retry_after_seconds`.
        sse_retry: the stream's `retry:` field.
    """
    delay = backoff(attempt, rng)
    if unauthorized:
        delay += UNAUTHORIZED
    asked = max(retry_after or 0.0, sse_retry or 0.0)
    return min(_LONGEST, max(delay, asked))
