"""Whose Home tab is looked at next, and what a publish that went wrong means. Pure: times are given, in seconds
of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from bot.home.facts import Viewer
from bot.slackapi import Later, Never, Sent, Unknown
from core.clock import backoff

PUBLISHES_PER_SECOND = 1.5  # in all: views.publish is tier 4, and the others of that tier want some of it
EACH = 1.0  # seconds between two publishes for one person
SETTLE = 0.25  # seconds that a change waits for those which come with it
_HEAD_START = 30.0  # seconds of waiting that a press or an opening is worth
_LONGEST = 60.0
_REFUSED_PERSON = frozenset({"not_enabled", "user_not_visible", "user_is_bot", "user_is_restricted"})


@dataclass(slots=True)
class Seat:
    """One viewer's place in the round.

    `seen`: the number of the snapshot that they were last looked at with. `urgent`: they wait for it in front of
    the screen. `again_at`: to be looked at then, whatever happens. `refused`: the digest of a view that Slack
    will not take. `busy`: a publish is on its way. `lost`: Slack had nothing to show them while it was.
    """

    viewer: Viewer
    seen: int = -1
    urgent: bool = False
    not_before: float = -inf
    again_at: float = inf
    last: float = -inf
    failures: int = 0
    busy: bool = False
    lost: bool = False
    refused: str | None = None

    def due_at(self, number: int, changed_at: float) -> float:
        """When to look at it; `inf`: not before something happens.

        Args:
            number: of the newest facts.
            changed_at: when the first of them changed that no snapshot holds.
        """
        if self.busy:
            return inf
        wanted = self.again_at
        if self.urgent:
            wanted = -inf
        elif self.seen < number:
            wanted = min(wanted, changed_at + SETTLE)
        return max(wanted, self.not_before)


def first_due(seats: Iterable[Seat], number: int, changed_at: float) -> float:
    """When somebody is due; `inf`: nobody will be."""
    return min((seat.due_at(number, changed_at) for seat in seats), default=inf)


def next_seat(seats: Iterable[Seat], number: int, changed_at: float, now: float) -> Seat | None:
    """Of those who are due the one that waited longest; one who looks on counts as having waited longer."""
    due = [seat for seat in seats if seat.due_at(number, changed_at) <= now]
    return min(due, key=lambda seat: seat.last - (_HEAD_START if seat.urgent else 0.0), default=None)


@dataclass(frozen=True, slots=True)
class Shown:
    """Slack shows it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Slack will not show this person anything."""


@dataclass(frozen=True, slots=True)
class Again:
    """To be published again after `seconds` (None: as the pace's backoff says); `everybody` waits so long."""

    seconds: float | None
    everybody: bool = False


@dataclass(frozen=True, slots=True)
class Unfit:
    """Slack does not take this view; another one it may."""


def judged(outcome: Sent | Later | Unknown | Never, failures: int) -> Shown | Dropped | Again | Unfit:
    """What to do after a publish; `failures`: how many in a row went wrong before it for this person."""
    match outcome:
        case Sent():
            return Shown()
        case Later(after=after):
            return Again(after, everybody=True)
        case Unknown():
            return Again(backoff(failures, first=2.0, longest=_LONGEST))
        case Never(what="app"):
            return Again(_LONGEST, everybody=True)
        case Never(what="place"):
            return Dropped()
    return Dropped() if outcome.code in _REFUSED_PERSON else Unfit()
