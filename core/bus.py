"""Finds the five lifecycle events of clarifications (AgentEventBus, §4.2) by comparing two states of a record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal, NamedTuple, get_args

from core.clarification import OPEN, Clarification, Status
from core.clock import iso
from core.receipts import number_of
from core.records import as_of
from core.summary import Seen

Name = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
]

_PREFIX = "clarification-"
RECEIPT: Literal["receipt"] = "receipt"
ABANDONED = "abandoned"
EXECUTED = "executed"
FORGOTTEN = "forgotten"
_BY_WORD: dict[str, Name] = {name.removeprefix(_PREFIX): name for name in get_args(Name)}


def payload(record: Clarification, at: datetime) -> dict[str, object]:
    """Returns the payload of a clarification's event at `at`, as JSON values under the protocol's names. Its topic is the
    agents' text: never log it.
    """
    return {
        "clarificationId": record.id,
        "issueNumber": record.issue_number,
        "fromAgent": record.from_,
        "toAgent": record.to,
        "topic": record.short_topic,
        "blocking": record.blocking,
        "timestamp": iso(at),
    }


class State(NamedTuple):
    """The fields of a clarification whose change makes an event. `nudges`: reminders about the latest question."""

    status: Status
    round: int
    asked_last: datetime
    nudges: int

    @classmethod
    def of(cls, record: Seen) -> State:
        return cls(record.status, record.round, record.asked_last, record.nudges)


def lifecycle(before: Seen | None, record: Seen) -> list[Name]:
    """Returns the events between two states of a clarification, in the order in which they happen. `before`: None: seen for the
    first time, which gives only the event of its current state. An abandoned clarification has no event.
    """
    if before is None:
        first = _FIRST_SEEN[record.status]
        return [] if first is None else [first]
    return _changes(State.of(before), State.of(record))


def change(before: Clarification | None, record: Clarification) -> str:
    """Returns what a write of a record means, for the feed: its events, that it was abandoned, and receipts that follow the
    end of their round, each with the round's number: `answered/1 resolved/1`, `receipt/1`. Empty if there are none. A new
    record was asked first.
    """
    after = State.of(record)
    asked = before is None
    state = State("pending", 1, record.created, 0) if before is None else State.of(before)
    names: list[Name] = ["clarification-requested"] if asked else []
    names += _changes(state, after)
    found = [f"{name.removeprefix(_PREFIX)}/{number_of(record)}" for name in names]
    if after.status == ABANDONED and state.status != ABANDONED:
        found.append(f"{ABANDONED}/{number_of(record)}")
    if before is not None:
        found += [f"{RECEIPT}/{number}" for number in _signed_late(before, record)]
    return " ".join(found)


def executed(record: Clarification, result_sha256: str, *, is_error: bool) -> str:
    """Returns what the feed tells of an approved action that was carried out: `executed/1/DIGEST/0`, the round's number, the
    base64url SHA-256 of its result, and whether that is an error.
    """
    return f"{EXECUTED}/{number_of(record)}/{result_sha256}/{is_error:d}"


def told_in(what: str) -> list[tuple[Name | Literal["receipt"], int]]:
    """Returns the events and receipts of a change, with the number of their round. Being abandoned is no event."""
    found: list[tuple[Name | Literal["receipt"], int]] = []
    for word in what.split():
        name, _, number = word.partition("/")
        if name == RECEIPT:
            found.append((RECEIPT, int(number)))
        elif (event := _BY_WORD.get(name)) is not None:
            found.append((event, int(number)))
    return found


def _signed_late(before: Clarification, record: Clarification) -> Iterator[int]:
    """Yields the numbers of the rounds that ended before and have got their receipt only now."""
    lacked = [past.receipt is None for past in before.earlier]
    lacked.append(not before.is_open and before.current.receipt is None)
    has = [each.receipt is not None for each in record.rounds]
    for place, (did_lack, has_it) in enumerate(zip(lacked, has, strict=False)):
        if did_lack and has_it:
            yield number_of(record if place == len(record.earlier) else as_of(record, place))


_FIRST_SEEN: dict[Status, Name | None] = {
    "pending": "clarification-requested",
    "stale": "clarification-stale",
    "escalated": "clarification-escalated",
    "answered": "clarification-answered",
    "resolved": "clarification-resolved",
    "abandoned": None,
}


def _changes(before: State, after: State) -> list[Name]:
    # A follow-up after the last round keeps the round's number and is escalated at once.
    asked_again = after.round > before.round or after.asked_last > before.asked_last
    changed = after.status != before.status
    nudges = 0 if asked_again else before.nudges
    answered = after.status == "answered" or (
        after.status == "resolved" and (before.status in OPEN or asked_again)
    )
    happened: list[tuple[bool, Name]] = [
        (asked_again, "clarification-requested"),
        (after.nudges > nudges or (after.status == "stale" and changed), "clarification-stale"),
        (after.status == "escalated" and changed, "clarification-escalated"),
        (answered and (changed or asked_again), "clarification-answered"),
        (after.status == "resolved" and (changed or asked_again), "clarification-resolved"),
    ]
    return [name for did, name in happened if did]
