"""What became of one try, and when the next one is (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

import httpx

from bot.http import retry_after
from core.clock import backoff

PATIENCE = timedelta(days=3)
_FIRST, _LONGEST = 10.0, 3600.0  # seconds
_GONE = 410


@dataclass(frozen=True, slots=True)
class Outcome:
    """`gone`: the endpoint wants no more, ever. `seconds`: how long it asks to be left alone."""

    kind: Literal["taken", "failed", "gone"]
    why: str = ""
    seconds: float | None = None


def judged(response: httpx.Response, now: datetime) -> Outcome:
    """By the status alone; what else it says is nobody's business."""
    status = response.status_code
    if 200 <= status < 300:
        return Outcome("taken")
    if status == _GONE:
        return Outcome("gone", f"HTTP {status}")
    said = "redirects, which is not followed" if 300 <= status < 400 else "did not take it"
    return Outcome("failed", f"{said} (HTTP {status})", retry_after(response.headers, now))


def delay(failures: int, rng: random.Random, asked: float | None = None) -> float:
    """Seconds before the next try after so many failures in a row (from 1): 10 s to an hour, longer if it was asked for."""
    wait = backoff(failures - 1, first=1.5 * _FIRST, longest=_LONGEST, spread=1 / 3, chance=rng.random())
    return max(wait, asked or 0.0)
