"""One run through the steps of an escalation policy: what was sent in it, and what is due when. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

LAST_RESORT = -1


@dataclass(frozen=True, slots=True)
class Step:
    """`after` counts from the beginning of a cycle; `every` repeats until acknowledged, None: once."""

    after: timedelta
    notify: tuple[str, ...]
    every: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """`steps` in the order of `after`; without any there is the last resort only, once.

    `take_timeout` is how long a take or a hand-over is trusted, and the pace of the last resort.
    """

    steps: tuple[Step, ...]
    take_timeout: timedelta


class Cycle:
    """One run through the steps: what was sent in it, and what is due when."""

    def __init__(self, policy: Policy, start: datetime) -> None:
        self._policy = policy
        self._steps = policy.steps
        self._start = start
        self._sent: dict[int, datetime] = {}  # when it was sent last
        self._pulled: dict[int, datetime] = {}  # due earlier than planned
        self._failed: set[int] = set()  # whose latest sending reached nobody
        self._latest: int | None = None

    def dues(self) -> list[tuple[int, datetime]]:
        """The steps that are to be sent some time, in order, the last resort at the end."""
        steps = (*range(len(self._steps)), LAST_RESORT)
        return [(step, at) for step in steps if (at := self._due(step)) is not None]

    @property
    def again(self) -> int:
        """What to send when nobody knows how long the last sending is ago."""
        return self._next_unsent() if self._latest is None else self._latest

    def mark(self, step: int, at: datetime) -> None:
        """`step` was sent."""
        self._sent[step] = at
        self._latest = step
        self._pulled.pop(step, None)
        self._failed.discard(step)

    def fail(self, step: int, at: datetime) -> None:
        """The latest sending of `step` reached nobody: the next step is due, and the last resort after the last."""
        due = self._due(step)
        if step not in self._sent or (due is not None and due <= at):
            self.mark(step, at)  # there was nobody to send to
        elif step in self._failed:
            return
        self._failed.add(step)
        if self._next_unsent() != LAST_RESORT or LAST_RESORT not in self._failed:
            self.pull(at)

    def skip(self, at: datetime) -> None:
        """Somebody has no use for it: as if failed, but the last resort is asked once."""
        if self._next_unsent() != LAST_RESORT or LAST_RESORT not in self._sent:
            self.pull(at)

    def pull(self, at: datetime) -> None:
        """The next step is due at once."""
        step = self._next_unsent()
        if step == LAST_RESORT or self._start + self._steps[step].after > at:
            self._pulled.setdefault(step, at)

    def date_back(self, by: timedelta) -> None:
        self._start -= by
        for moments in (self._sent, self._pulled):
            moments.update({step: at - by for step, at in moments.items()})

    def _due(self, step: int) -> datetime | None:
        """When `step` is to be sent next; None: not at all as things are."""
        if step == LAST_RESORT:
            return self._last_resort_due()
        plan = self._steps[step]
        if step not in self._sent:
            return self._pulled.get(step, self._start + plan.after)
        if plan.every is None:
            return None
        return self._sent[step] + plan.every  # from what was sent, however late that was: never two in a row

    def _last_resort_due(self) -> datetime | None:
        if LAST_RESORT in self._pulled:
            return self._pulled[LAST_RESORT]
        if not self._steps:
            return None if LAST_RESORT in self._sent else self._start
        if self._next_unsent() != LAST_RESORT or any(step.every is not None for step in self._steps):
            return None
        return max(self._sent.values()) + self._policy.take_timeout  # nothing else would ever be sent

    def _next_unsent(self) -> int:
        return next((i for i in range(len(self._steps)) if i not in self._sent), LAST_RESORT)
