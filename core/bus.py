"""The five lifecycle events of clarifications, and the bus that tells subscribers of them (the AgentEventBus, §4.2).

bus = Bus()
stop = bus.subscribe(Answered, lambda event: print(event.clarification_id))
bus.subscribe(LifecycleEvent, audit)  # all five
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from core.clock import iso
from core.index import Summary

_log = logging.getLogger("clarify.bus")


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


_E = TypeVar("_E", bound=LifecycleEvent)
_Kind = type[LifecycleEvent]


class Bus:
    """Tells subscribers of events, in the order in which they subscribed, before `publish` returns."""

    def __init__(self) -> None:
        self._subscribers: dict[object, tuple[_Kind, Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[_E], tell: Callable[[_E], None]) -> Callable[[], None]:
        """Have `tell` called with every event of `kind`; `LifecycleEvent` is all of them.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        token = object()
        self._subscribers[token] = (kind, tell)

        def unsubscribe() -> None:
            self._subscribers.pop(token, None)

        return unsubscribe

    def publish(self, event: LifecycleEvent) -> None:
        """Tell all subscribers. One that raises is logged; the others are told, and the caller goes on."""
        for token, (kind, tell) in tuple(self._subscribers.items()):
            if not isinstance(event, kind) or token not in self._subscribers:
                continue
            try:
                tell(event)
            except Exception:  # noqa: BLE001 - whatever a subscriber does, the others hear of it
                _log.exception("a subscriber failed at %s of %s", event.name, event.clarification_id)


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
