"""Counts what happens from the start of the process on; `/metrics` reads the figures when it is asked.

Only kinds, states and outcomes of ours are counted by name: nothing that agents or people say.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from core.clarification import Clarification
from core.clock import Clock

# From "somebody sat in front of it" to "the day after". Seconds.
ANSWER_BOUNDS = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0)
_AGAIN = frozenset({"later", "unknown", "try_again"})
_ANSWERED = frozenset({"answered", "resolved"})


class Distribution:
    """How often a figure was at most each of `bounds`, and how often above the last."""

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
        """(bound, how many were at most that), ending with infinity."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


class Telemetry:
    """`answers`: seconds from a question to its answer, once per answer. The other figures by

    - `answered`: (name of the route, kind of answer that the question takes first);
    - `changes`: the status that clarifications came to;
    - `deliveries`: (kind of message or "reply", outcome of one try); `retries`: kind of what is tried again;
    - `pages`: (slack or outside, sent or failed);
    - `webhooks`: (host, outcome of one try, as of deliveries);
    - `requests`: (path as the routes have it, status); `tools`: (MCP tool, what became of the call);
    - `rate_limited`: the method of Slack that asked to come again later.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.answers = Distribution(ANSWER_BOUNDS)
        self.answered: Counter[tuple[str, str]] = Counter()
        self.changes: Counter[str] = Counter()
        self.deliveries: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[str] = Counter()
        self.pages: Counter[tuple[str, str]] = Counter()
        self.webhooks: Counter[tuple[str, str]] = Counter()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.tools: Counter[tuple[str, str]] = Counter()
        self.rate_limited: Counter[str] = Counter()

    def record_changed(self, before: Clarification | None, after: Clarification, route: str) -> None:
        """A record was written. `before`: as it was known until now, None if it was not or needed nothing more.
        `route`: the name of the one by which it is asked.
        """
        if before is None and not after.is_open:
            return  # how it came there is not known: it was written to after it was over
        if before is None or before.status != after.status or before.round != after.round:
            self.changes[after.status] += 1
        if before is not None and before.is_open and after.status in _ANSWERED:
            self.answered[route, after.kind] += 1
            self.answers.add(max(0.0, (self._clock.now() - after.asked_last).total_seconds()))

    def delivered(self, kind: str, outcome: str) -> None:
        """One try came to its end: sent, later, unknown, never; of replies accepted, refused, try_again."""
        self.tried_once(kind, outcome)
        if outcome in _AGAIN:
            self.retries[kind] += 1

    def tried_once(self, kind: str, outcome: str) -> None:
        """The same of what is never tried again."""
        self.deliveries[kind, outcome] += 1

    def paged(self, via: str, outcome: str) -> None:
        """A page to one place, slack or outside: sent or failed."""
        self.pages[via, outcome] += 1

    def webhook(self, host: str, outcome: str) -> None:
        """One try to bring an event to an endpoint came to its end: sent, later, never."""
        self.webhooks[host, outcome] += 1
        self.delivered("webhook", outcome)

    def requested(self, path: str, status: str) -> None:
        """A request to our HTTP server came to its end: its path as the route has it, or "other"; "none": without an answer."""
        self.requests[path, status] += 1
