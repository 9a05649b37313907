"""What the escalation policy wants now. Pure: the policy, what happened so far and the time in, sendings out.

History is the log of one incident, in the order of writing. A *cycle* runs through the steps of the policy. It begins
with `Began`; and by itself, with its first step at once, when a snooze ends, when nobody answered within
`take_timeout` of a take, when nobody took what was handed over, and `take_timeout` after even the last resort failed.
`Sent` is written before something is sent, `Failed` once it is known that it reached nobody (alone where there is no
address to send to).

Clocks are set back. A happening that is written after another but dated before it shows by how much: what was earlier
is dated back with it. While only `now` shows it, the last sending is made again rather than waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from core.cycle import LAST_RESORT, Cycle, Policy, Step
from core.shifts import turn

__all__ = [
    "LAST_RESORT",
    "Began",
    "Closed",
    "Failed",
    "Handed",
    "Happening",
    "NotMine",
    "Policy",
    "Sent",
    "Snoozed",
    "State",
    "Step",
    "Taken",
    "Wanted",
    "quiet_until",
    "turn",
    "wanted",
]

State = Literal["paging", "taken", "snoozed", "closed"]
_SNOOZE = timedelta(minutes=10)
_SET_BACK = timedelta(minutes=1)  # less than this is waited for


@dataclass(frozen=True, slots=True)
class Began:
    at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """A sending of `step` (an index into the policy's steps, or LAST_RESORT) was begun."""

    at: datetime
    step: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The latest sending of `step` reached nobody; said twice it counts once."""

    at: datetime
    step: int


@dataclass(frozen=True, slots=True)
class Taken:
    at: datetime
    user: str


@dataclass(frozen=True, slots=True)
class Handed:
    at: datetime
    user: str
    by: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    at: datetime
    until: datetime
    by: str


@dataclass(frozen=True, slots=True)
class NotMine:
    """Moves on. From whoever holds it, it gives it back; while another holds it, it changes nothing."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class Closed:
    at: datetime


Happening: TypeAlias = Began | Sent | Failed | Taken | Handed | Snoozed | NotMine | Closed


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the policy wants.

    send: the steps to send now, in order, LAST_RESORT at the end.
    next_at: when to ask again if nothing happens until then; None: never.
    holder: who took it, or to whom it was handed: a step's "dm" goes to them.
    """

    send: tuple[int, ...]
    next_at: datetime | None
    holder: str | None
    state: State


def wanted(policy: Policy, history: Sequence[Happening], now: datetime) -> Wanted:
    """What `policy` wants at `now` after `history`. Asked again without a new happening, it says the same again."""
    course = _Course(policy)
    for happening in history:
        course.take_in(happening)
    return course.wants(now)


def quiet_until(now: datetime, ends: datetime | None) -> datetime:
    """Until when a snooze at `now` lasts: 10 minutes, never beyond half of the time left until `ends`."""
    if ends is None:
        return now + _SNOOZE
    return now + min(_SNOOZE, max(timedelta(0), (ends - now) / 2))


class _Course:
    """How far one incident has come."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._trust = policy.take_timeout
        self._state: State = "closed"  # nothing began
        self._cycle = Cycle(policy, datetime.fromtimestamp(0, UTC))
        self._over = False
        self._holder: str | None = None
        self._acknowledged: tuple[str, datetime] | None = None  # by whom and when it was taken or snoozed
        self._held: datetime | None = None  # until when a hand-over is trusted
        self._resume: datetime | None = None  # when the next cycle begins by itself
        self._last: datetime | None = None  # of the latest happening

    def take_in(self, happening: Happening) -> None:
        """Go on by one happening."""
        if self._over:
            return
        at = happening.at
        self._advance(at)
        self._date_back(at)
        match happening:
            case Began():
                self._begin(at)
            case Sent(step=step):
                self._cycle.mark(step, at)
            case Failed(step=step):
                self._fail(step, at)
            case Taken(user=user):
                self._state, self._holder, self._held = "taken", user, None
                self._acknowledged, self._resume = (user, at), at + self._trust
            case Handed(user=user):
                self._hand(user, at)
            case Snoozed(until=until, by=by):
                self._state, self._acknowledged, self._resume = "snoozed", (by, at), until
            case NotMine(by=by):
                self._pass_on(by, at)
            case Closed():
                self._over, self._state, self._resume = True, "closed", None

    def wants(self, now: datetime) -> Wanted:
        self._advance(now)
        if self._state == "closed":
            return Wanted((), None, None, "closed")
        send: tuple[int, ...] = ()
        moments = [] if self._resume is None else [self._resume]
        if self._state == "paging":
            dues = self._cycle.dues()
            send = tuple(step for step, at in dues if at <= now)
            if not send and self._last is not None and now < self._last - _SET_BACK:
                send = (self._cycle.again,)
            moments += [at for step, at in dues if step not in send]
        return Wanted(send, min(moments, default=None), self._holder, self._state)

    def _begin(self, at: datetime) -> None:
        """A cycle begins, for the people whose turn it is."""
        self._state, self._cycle = "paging", Cycle(self._policy, at)
        self._holder = self._acknowledged = self._held = self._resume = None

    def _hand(self, user: str, at: datetime) -> None:
        self._begin(at)
        self._cycle.pull(at)
        self._holder, self._held, self._resume = user, at + self._trust, at + self._trust

    def _fail(self, step: int, at: datetime) -> None:
        if self._state != "paging" or step >= len(self._policy.steps):
            return  # of a sending before a take; of a step that is not configured any more
        self._cycle.fail(step, at)
        if step == LAST_RESORT:
            self._resume = min(at + self._trust, self._resume or datetime.max.replace(tzinfo=UTC))

    def _pass_on(self, by: str, at: datetime) -> None:
        """Somebody said that it is not theirs."""
        if self._state == "paging" and by == self._holder:
            self._begin(at)
            self._cycle.pull(at)
        elif self._state == "paging":
            self._cycle.skip(at)
        elif self._acknowledged is not None and by == self._acknowledged[0]:
            self._begin(at)
            if self._policy.steps:
                self._cycle.mark(0, at)  # they were told, and said no
            self._cycle.skip(at)

    def _advance(self, to: datetime) -> None:
        """Begin the cycles that begin by themselves."""
        while self._resume is not None and (to >= self._resume or self._far_back(to)):
            at, held, holder = min(to, self._resume), self._held, self._holder
            self._begin(at)
            self._cycle.pull(at)
            self._last = at if self._last is None else min(at, self._last)
            if held is not None and at < held:  # a snooze within a hand-over
                self._holder, self._held, self._resume = holder, held, held

    def _far_back(self, to: datetime) -> bool:
        """Whether the clock was set back by as much as a take or a snooze lasts: nobody knows when it is over."""
        if self._acknowledged is None or self._resume is None:
            return False
        since = self._acknowledged[1]
        return to < since and to <= since - (self._resume - since)

    def _date_back(self, at: datetime) -> None:
        """Date everything back by as much as the clock was, if `at` shows that it was."""
        by = timedelta(0) if self._last is None else self._last - at
        self._last = at
        if by <= timedelta(0):
            return
        self._cycle.date_back(by)
        if self._acknowledged is not None:
            self._acknowledged = (self._acknowledged[0], self._acknowledged[1] - by)
        self._held = self._held - by if self._held is not None else None
        self._resume = self._resume - by if self._resume is not None else None
