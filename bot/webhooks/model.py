"""Whom events are sent to, and what is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlsplit

from bot.webhooks.signing import key_of
from core.bus import Answered, Escalated, LifecycleEvent, Requested, Resolved, Stale
from core.clarification import Status
from core.index import Summary

NAMES = tuple(kind.name for kind in (Requested, Answered, Stale, Resolved, Escalated))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One webhook. `events`: the names that it wants. Its address may hold a secret: logs say `label`."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    events: frozenset[str]

    @classmethod
    def of(cls, url: str, secret: str, events: Collection[str] = ()) -> Endpoint:
        """From its settings; no `events` are all five.

        Raises:
            ValueError: a secret that cannot be one, or an event that is none; without the secret.
        """
        if unknown := set(events) - set(NAMES):
            raise ValueError(f"no lifecycle event: {', '.join(sorted(unknown))}; expected {', '.join(NAMES)}")
        return cls(url, key_of(secret), frozenset(events or NAMES))

    @property
    def id(self) -> str:
        """What it is called in the storage."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What people know it by: its host."""
        found = urlsplit(self.url)
        return f"{found.hostname}:{found.port}" if found.port else found.hostname or "?"


@dataclass(frozen=True, slots=True)
class Known:
    """What the events so far told of a clarification."""

    status: Status
    round: int
    asked_last: datetime
    nudges: int


@dataclass(frozen=True, slots=True)
class Look:
    """A clarification as it was at `at`, on our clock. `changed`: when it last changed, by its own times; None: now."""

    summary: Summary
    at: datetime
    changed: datetime | None = None


@dataclass(frozen=True, slots=True)
class News:
    """An event on its way to all who want it; `id` tells receivers what they know already."""

    id: str
    event: LifecycleEvent


@dataclass(frozen=True, slots=True)
class Queued:
    """One event for one endpoint; times in seconds since 1970, our clock."""

    seq: int
    id: str
    clarification: str
    type: str
    body: bytes = field(repr=False)
    queued_at: float
    due: float
    failures: int
