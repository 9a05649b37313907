"""Counts what happens since the start of the process, for `/metrics`.

Labels are our own kinds, states and outcomes, never what agents or people say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from core.clarification import Clarification
from core.clock import Clock
from core.summary import Seen

# Seconds.
ANSWER_BOUNDS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0)
_AGAIN = frozenset({"later", "unknown", "try_again"})
_ANSWERED = frozenset({"answered", "resolved"})


class Distribution:
    """A histogram: counts values up to each of `bounds`, and above the last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def add(self, figure: float) -> None:
        self._counts[bisect_left(self.bounds, figure)] += 1
        self.total += figure

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Returns (bound, how many values are at most that), ending with infinity."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


@dataclass(eq=False)
class Telemetry:
    """The figures: `answers` holds the seconds from each question to its answer; the others count by

    - `answered`: (route name, the question's first kind of answer);
    - `changes`: new status of clarifications;
    - `deliveries`: (kind of message or "reply", outcome of one attempt); `retries`: kind of what is retried;
    - `pages`: (slack or outside, sent or failed);
    - `outside`: (integration, the party that it tells, outcome of one attempt);
    - `requests`: (path pattern, status); `tools`: (MCP tool, outcome of the call);
    - `rate_limited`: Slack method.
    """

    clock: Clock

    def __post_init__(self) -> None:
        self.answers = Distribution(ANSWER_BOUNDS)
        self.answered: Counter[tuple[str, ...]] = Counter()
        self.changes: Counter[str] = Counter()
        self.deliveries: Counter[tuple[str, ...]] = Counter()
        self.retries: Counter[str] = Counter()
        self.pages: Counter[tuple[str, ...]] = Counter()
        self.outside: Counter[tuple[str, ...]] = Counter()
        self.requests: Counter[tuple[str, ...]] = Counter()
        self.tools: Counter[tuple[str, ...]] = Counter()
        self.rate_limited: Counter[str] = Counter()

    def record_changed(self, before: Seen | None, after: Clarification, route: str) -> None:
        """Counts a written record. `before`: its known state until now; None if it was unknown or needed nothing more."""
        if before is None and not after.is_open:
            return  # written after it was closed
        if before is None or before.status != after.status or before.round != after.round:
            self.changes[after.status] += 1
        if before is not None and before.is_open and after.status in _ANSWERED:
            self.answered[route, after.kind] += 1
            self.answers.add(max(0.0, (self.clock.now() - after.asked_last).total_seconds()))

    def delivered(self, kind: str, outcome: str) -> None:
        """Counts an attempt: sent, later, unknown, never; for replies accepted, refused, try_again."""
        self.attempted(kind, outcome)
        if outcome in _AGAIN:
            self.retries[kind] += 1

    def attempted(self, kind: str, outcome: str) -> None:
        """Counts an attempt that is never repeated."""
        self.deliveries[kind, outcome] += 1

    def paged(self, via: str, outcome: str) -> None:
        self.pages[via, outcome] += 1

    def told(self, integration: str, party: str, outcome: str) -> None:
        """Counts an integration's attempt to tell a party outside: sent, later, never."""
        self.outside[integration, party, outcome] += 1
        self.delivered(integration, outcome)

    def requested(self, path: str, status: str) -> None:
        """Counts an HTTP request by its path pattern or "other", and its status or "none" if it got no answer."""
        self.requests[path, status] += 1
