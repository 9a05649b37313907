"""What GitHub's answers mean (pure).

Source: docs.github.com, "Rate limits for the REST API" and "Best practices for using the REST API": one request after
the other, a second between writes; `retry-after` and `x-ratelimit-reset` obeyed; after a limit without either, a
minute, and longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import httpx

from bot.http import NOT_SENT, retry_after, words

_LONGEST_WAIT = 7200.0  # a window of GitHub's limits is an hour; our clocks may differ
_MARGIN = 1.0
_REFUSALS = {
    403: "the token may not do this",
    404: "there is no such issue, or the token cannot see it",
    410: "the issue was deleted, or the repository has no issues",
    422: "GitHub finds it invalid",
}


class NotNow(Exception):
    """To be tried again: after `seconds`, or as the caller sees fit.

    `everybody`: nothing else should be asked before, either. `unsure`: it may have been done.
    """

    def __init__(
        self, why: str, seconds: float | None = None, *, everybody: bool = False, unsure: bool = False
    ) -> None:
        super().__init__(why)
        self.seconds = seconds
        self.everybody = everybody
        self.unsure = unsure


class Limited(NotNow):
    """Asked too much, or too fast; certainly not done."""

    def __init__(self, why: str, seconds: float | None) -> None:
        super().__init__(why, seconds, everybody=True)


class Refused(Exception):
    """Asking the same again would get the same answer; certainly not done."""

    def __init__(self, why: str, status: int) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of GitHub; `next` is the address of the next page."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)
    next: str | None = field(default=None, repr=False)


def judged(answer: Answer, now: datetime) -> NotNow | Refused | None:
    """What stands in the way, if anything. In our words: GitHub's may quote what was sent."""
    status, said = answer.status, f"HTTP {answer.status}"
    if 200 <= status < 300:
        return None
    if status == 429 or (status == 403 and _is_limit(answer)):
        return Limited(f"asked too much of GitHub ({said})", limit_wait(answer.headers, now))
    if status == 408 or status >= 500:
        seconds = retry_after(answer.headers, now)
        return NotNow(f"trouble on GitHub's side ({said})", seconds, unsure=True)
    if status == 401:  # of every issue alike: thousands would be told so, one by one
        return NotNow(f"the token is not valid, or not any more ({said})", everybody=True)
    if 300 <= status < 400:
        return Refused(f"the repository or the issue has moved ({said}); see github.repo", status)
    return Refused(f"{_REFUSALS.get(status, 'GitHub refuses it')} ({said})", status)


def unsent(error: BaseException) -> NotNow:
    """What a failure of the network means: unless nothing left this machine, it may have been done."""
    return NotNow(words(error), everybody=True, unsure=not isinstance(error, NOT_SENT))


def spent(headers: httpx.Headers, now: datetime) -> float | None:
    """Seconds until anything may be asked again, where this answer used up what was left."""
    return _until_reset(headers, now) if headers.get("x-ratelimit-remaining", "").strip() == "0" else None


def limit_wait(headers: httpx.Headers, now: datetime) -> float | None:
    """Seconds that GitHub asks to wait, by either header; None: it does not say."""
    waits = [wait for wait in (retry_after(headers, now), spent(headers, now)) if wait is not None]
    return max(waits, default=None)


def _until_reset(headers: httpx.Headers, now: datetime) -> float | None:
    value = headers.get("x-ratelimit-reset", "").strip()
    if not (value.isascii() and value.isdigit() and len(value) <= 12):
        return None
    return min(_LONGEST_WAIT, max(0.0, int(value) - now.timestamp()) + _MARGIN)


def _is_limit(answer: Answer) -> bool:
    """Limits come as 403, too; then a header says so, or only the words."""
    if "retry-after" in answer.headers or answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
        return True
    said = answer.body[:2000].lower()
    return b"rate limit" in said or b"abuse" in said
