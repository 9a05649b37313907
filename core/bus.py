"""Finds the five lifecycle events of clarifications (AgentEventBus, §4.2) by comparing two states of a record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from core.clarification import OPEN, Clarification, Status
from core.clock import iso

Name = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
]


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """A change of a clarification at `timestamp` (aware). `topic` is the agents' text: never log it."""

    name: Name
    clarification_id: str
    issue_number: int
    from_agent: str
    to_agent: str
    topic: str
    blocking: bool
    timestamp: datetime

    def payload(self) -> dict[str, object]:
        """Returns the event as JSON values under the protocol's names, with the time as RFC 3339."""
        return {
            "clarificationId": self.clarification_id,
            "issueNumber": self.issue_number,
            "fromAgent": self.from_agent,
            "toAgent": self.to_agent,
            "topic": self.topic,
            "blocking": self.blocking,
            "timestamp": iso(self.timestamp),
        }


class State(NamedTuple):
    """The fields of a clarification whose change makes an event. `nudges`: reminders about the latest question."""

    status: Status
    round: int
    asked_last: datetime
    nudges: int

    @classmethod
    def of(cls, record: Clarification) -> State:
        return cls(record.status, record.round, record.asked_last, record.nudges)


def lifecycle(
    before: Clarification | State | None, record: Clarification, now: datetime, *, after: State | None = None
) -> tuple[LifecycleEvent, ...]:
    """Returns the events between two states of a clarification, in the order in which they happen.

    An abandoned clarification has no event.

    Args:
        before: the earlier state; None: seen for the first time, which gives only the event of its current state.
        record: the clarification.
        now: the events' time, on our clock.
        after: the later state; None: that of `record`.
    """
    after = after or State.of(record)
    before = State.of(before) if isinstance(before, Clarification) else before
    return tuple(
        LifecycleEvent(
            name,
            record.id,
            record.issue_number,
            record.from_,
            record.to,
            record.short_topic,
            record.blocking,
            now,
        )
        for name in ([_FIRST_SEEN[after.status]] if before is None else _changes(before, after))
        if name is not None
    )


_FIRST_SEEN: dict[Status, Name | None] = {
    "pending": "clarification-requested",
    "stale": "clarification-stale",
    "escalated": "clarification-escalated",
    "answered": "clarification-answered",
    "resolved": "clarification-resolved",
    "abandoned": None,
}


def _changes(before: State, after: State) -> list[Name | None]:
    # A follow-up after the last round keeps the round's number and is escalated at once.
    asked_again = after.round > before.round or after.asked_last > before.asked_last
    changed = after.status != before.status
    nudges = 0 if asked_again else before.nudges
    answered = after.status == "answered" or (
        after.status == "resolved" and (before.status in OPEN or asked_again)
    )
    happened: list[tuple[bool, Name | None]] = [
        (asked_again, "clarification-requested"),
        (after.nudges > nudges or (after.status == "stale" and changed), "clarification-stale"),
        (after.status == "escalated" and changed, "clarification-escalated"),
        (answered and (changed or asked_again), "clarification-answered"),
        (after.status == "resolved" and (changed or asked_again), "clarification-resolved"),
    ]
    return [name for did, name in happened if did]
