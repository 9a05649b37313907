"""What time alone makes of an open clarification: nudge its answerers, escalate it, let it expire. Pure.

The rules are the design's: the first time its SLA passes the answerers are nudged and `stale_after` is renewed; the
second time it is escalated. Within a question's own timeout the nudge comes at half of it at the latest, and the
escalation at three quarters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from core.clarification import Status

_HALF, _THREE_QUARTERS = 0.5, 0.75
_NEVER = datetime.max.replace(tzinfo=UTC)


class Seen(Protocol):
    """What has to be known of a clarification: a record and its summary both tell it. Times on our clock."""

    @property
    def status(self) -> Status: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def asked_last(self) -> datetime: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def stale_after(self) -> datetime | None: ...
    @property
    def nudges(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Call:
    """What falls due, and when."""

    kind: Literal["nudge", "escalate", "expire"]
    at: datetime


def next_call(seen: Seen, sla: timedelta) -> Call | None:
    """The earliest thing that time will make of it, if nothing else happens; None: nothing ever."""
    if not seen.is_open:
        return None
    expires = seen.expires_at
    chase = None if seen.status == "escalated" else _chase(seen, sla)
    if expires is not None and (chase is None or expires <= chase.at):
        return Call("expire", expires)
    return chase


def due_call(seen: Seen, sla: timedelta, now: datetime) -> Call | None:
    """What is to be done at `now`, None if nothing is due.

    One whose time has run out is not nudged any more, though nobody was there to do it when that was due.
    """
    if seen.is_open and seen.expires_at is not None and seen.expires_at <= now:
        return Call("expire", seen.expires_at)
    call = next_call(seen, sla)
    return call if call is not None and call.at <= now else None


def nudge_limit(seen: Seen) -> datetime | None:
    """When a nudge comes at the latest: at half of the question's own timeout. None: it has none."""
    return _part(seen, _HALF)


def escalation_limit(seen: Seen) -> datetime | None:
    """When a question is escalated at the latest: at three quarters of its own timeout. None: it has none."""
    return _part(seen, _THREE_QUARTERS)


def _chase(seen: Seen, sla: timedelta) -> Call:
    """A record that another implementation already calls `stale` was nudged by nobody: it is as a pending one."""
    if seen.nudges == 0:
        return Call("nudge", _earlier(seen.stale_after or _later(seen.asked_last, sla), nudge_limit(seen)))
    stale = seen.stale_after or _later(seen.asked_last, 2 * sla)
    return Call("escalate", _earlier(stale, escalation_limit(seen)))


def _earlier(at: datetime, limit: datetime | None) -> datetime:
    return at if limit is None else min(at, limit)


def _part(seen: Seen, part: float) -> datetime | None:
    asked, expires = seen.asked_last, seen.expires_at
    return None if expires is None else asked + max(timedelta(0), expires - asked) * part


def _later(at: datetime, delta: timedelta) -> datetime:
    """At the end of time, which another implementation may write for "never", there is no later."""
    try:
        return at + delta
    except OverflowError:
        return _NEVER
