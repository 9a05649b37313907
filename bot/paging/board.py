"""The open incidents in memory: what happened to each, and when it wants to be looked at next."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from bot.paging.model import Incident
from core.escalation import Happening


@dataclass(slots=True)
class Open:
    """`due`: when to ask the policy about it again; None: not before something happens."""

    incident: Incident
    history: list[Happening]
    paged: set[str] = field(default_factory=set)
    due: datetime | None = None


class Board:
    def __init__(self) -> None:
        self._open: dict[int, Open] = {}
        self._by_key: dict[str, int] = {}
        self._by_clarification: dict[str, set[int]] = {}
        self._heap: list[tuple[datetime, int]] = []
        self._latest: datetime | None = None

    def put(self, each: Open) -> None:
        incident = each.incident
        self._open[incident.id] = each
        self._by_key[incident.key] = incident.id
        if incident.clarification is not None:
            self._by_clarification.setdefault(incident.clarification, set()).add(incident.id)

    def remove(self, incident_id: int) -> None:
        each = self._open.pop(incident_id, None)
        if each is None:
            return
        self._by_key.pop(each.incident.key, None)
        of = self._by_clarification.get(each.incident.clarification or "", set())
        of.discard(incident_id)
        if not of:
            self._by_clarification.pop(each.incident.clarification or "", None)

    def get(self, incident_id: int) -> Open | None:
        return self._open.get(incident_id)

    def named(self, key: str) -> Open | None:
        return self._open.get(self._by_key.get(key, -1))

    def about(self, clarification: str) -> list[Open]:
        """The open incidents about a clarification, the earliest first."""
        return [self._open[each] for each in sorted(self._by_clarification.get(clarification, ()))]

    def schedule(self, each: Open, at: datetime | None) -> None:
        """Have it looked at from `at` on."""
        each.due = at
        if at is not None and each.incident.id in self._open:
            heapq.heappush(self._heap, (at, each.incident.id))

    def take_due(self, now: datetime) -> list[Open]:
        """Those to look at now, each once; they have to be scheduled anew. All, if the clock was set back since."""
        if self._latest is not None and now < self._latest:
            for each in self._open.values():
                if each.due is not None and each.due > now:
                    self.schedule(each, now)
        self._latest = now
        found: list[Open] = []
        while (head := self._head()) is not None and head[0] <= now:
            heapq.heappop(self._heap)
            each = self._open[head[1]]
            each.due = None
            found.append(each)
        return found

    def next_due(self) -> datetime | None:
        head = self._head()
        return head[0] if head is not None else None

    def _head(self) -> tuple[datetime, int] | None:
        """The earliest entry that still counts."""
        while self._heap:
            at, incident_id = self._heap[0]
            each = self._open.get(incident_id)
            if each is not None and each.due == at:
                return self._heap[0]
            heapq.heappop(self._heap)
        return None

    def __iter__(self) -> Iterator[Open]:
        return iter(list(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)
