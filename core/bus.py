"""The five lifecycle events of clarifications (of the AgentEventBus, §4.2), found by comparing two looks at one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from core.clock import iso
from core.index import Summary


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """Something happened to a clarification at `timestamp` (aware). `topic` is the agents' text: never log it."""

    name: ClassVar[str] = "clarification"

    clarification_id: str
    issue_number: int
    from_agent: str
    to_agent: str
    topic: str
    blocking: bool
    timestamp: datetime

    def payload(self) -> dict[str, object]:
        """The same as JSON values, by the protocol's names; the time as RFC 3339."""
        return {
            "clarificationId": self.clarification_id,
            "issueNumber": self.issue_number,
            "fromAgent": self.from_agent,
            "toAgent": self.to_agent,
            "topic": self.topic,
            "blocking": self.blocking,
            "timestamp": iso(self.timestamp),
        }


@dataclass(frozen=True, slots=True)
class Requested(LifecycleEvent):
    """A question was asked: a new clarification, or the next round of one."""

    name: ClassVar[str] = "clarification-requested"


@dataclass(frozen=True, slots=True)
class Answered(LifecycleEvent):
    name: ClassVar[str] = "clarification-answered"


@dataclass(frozen=True, slots=True)
class Stale(LifecycleEvent):
    """Its time ran out without an answer, and its answerers were nudged."""

    name: ClassVar[str] = "clarification-stale"


@dataclass(frozen=True, slots=True)
class Resolved(LifecycleEvent):
    name: ClassVar[str] = "clarification-resolved"


@dataclass(frozen=True, slots=True)
class Escalated(LifecycleEvent):
    """Passed on to the person on call."""

    name: ClassVar[str] = "clarification-escalated"


_Kind = type[LifecycleEvent]


def lifecycle(before: Summary | None, after: Summary, now: datetime) -> tuple[LifecycleEvent, ...]:
    """What happened between two looks at a clarification, in the order in which it happens.

    `before` None: seen for the first time; then only the state that it is in. Abandoned ones say nothing. Times on
    our clock.
    """
    kinds = _first_seen(after) if before is None else _changes(before, after)
    return tuple(
        kind(after.id, after.issue, after.from_, after.to, after.topic, after.blocking, now) for kind in kinds
    )


def _first_seen(after: Summary) -> list[_Kind]:
    kinds: dict[str, _Kind] = {
        "pending": Requested,
        "stale": Stale,
        "escalated": Escalated,
        "answered": Answered,
        "resolved": Resolved,
    }
    kind = kinds.get(after.status)
    return [] if kind is None else [kind]


def _changes(before: Summary, after: Summary) -> list[_Kind]:
    # The last round's follow-up keeps its number and goes straight to the person on call.
    asked_again = after.round > before.round or after.asked_last > before.asked_last
    changed = after.status != before.status
    nudges = 0 if asked_again else before.nudges
    answered = after.status == "answered" or (after.status == "resolved" and (before.is_open or asked_again))
    happened: list[tuple[bool, _Kind]] = [
        (asked_again, Requested),
        (after.nudges > nudges or (after.status == "stale" and changed), Stale),
        (after.status == "escalated" and changed, Escalated),
        (answered and (changed or asked_again), Answered),
        (after.status == "resolved" and (changed or asked_again), Resolved),
    ]
    return [kind for did, kind in happened if did]
