"""Incidents and pages as values.

An incident is one thing that somebody has to take. A page is one sending about one or more alike incidents; what
happened to an incident (`core.escalation.Happening`) is its history, kept as the log of pages. Times on our clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast, get_args

Kind = Literal[
    "escalated",
    "refused",
    "undelivered",
    "unplaceable",
    "ledger",
    "errored",
    "event",
    "handoff",
    "trouble",
    "failed",
]
KINDS: frozenset[str] = frozenset(get_args(Kind))
Via = Literal["slack", "apprise"]


@dataclass(frozen=True, slots=True)
class FreshIncident:
    """Something that somebody has to take. `key` makes it once only; the renderer makes all words inert.

    `policy` names the on-call policy; None: one post where everybody looks. `clarification`: what it is about, if
    it is about one; `expires_at`: until when an answer helps.
    """

    key: str
    kind: Kind
    title: str
    reason: str
    body: str = ""
    policy: str | None = None
    agent_id: str | None = None
    clarification: str | None = None
    link: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """As it is kept; see `FreshIncident`."""

    id: int
    key: str
    kind: Kind
    policy: str | None
    agent_id: str | None
    clarification: str | None
    title: str
    reason: str
    body: str
    link: str | None
    expires_at: datetime | None
    began_at: datetime
    closed_at: datetime | None

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def group(self) -> tuple[str, str | None]:
        """What is alike: goes into one page where it comes in numbers."""
        return self.kind, self.policy


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a page goes: a channel or user in Slack, or the variable with an address for apprise."""

    via: Via
    target: str
    thread: tuple[str, str] | None = None
    mentions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sending:
    """A page on its way to one destination."""

    page: int
    step: int
    destination: Destination
    message: str | None = None
    incidents: tuple[int, ...] = ()


def kind_of(key: str) -> Kind:
    """The kind of an incident by the beginning of its key; what has none of ours is trouble with a producer."""
    head = key.partition(":")[0]
    return cast("Kind", head) if head in KINDS else "trouble"


def message_key(page: int, target: str) -> str:
    """The name of a page's message to `target` in the messages table."""
    return f"page:{page}:{target}"


def notice_key(incident: str) -> str:
    """The name of the notice, or card, about what an incident is about: both are named after the event."""
    return f"notice:{incident.partition(':')[2]}"
