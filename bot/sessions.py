"""The sessions that were heard of lately: who is at work, for the boards of agents. In memory, restored at the start."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from bot.delivery.peek import HEARD, session_fact
from bot.producers.inbox import Incoming
from bot.storage.store import Store
from core import aaep
from core.agents import SessionFact
from core.clock import Clock
from core.index import Index

KEEP = timedelta(days=1)
MOST = 5_000
_Key = tuple[str, str]


class Sessions:
    """`note` every event; `facts` are those of the last day, at most 5,000, the one heard of last at the end."""

    def __init__(self, store: Store, index: Index, clock: Clock) -> None:
        self._store = store
        self._index = index
        self._clock = clock
        self._known: OrderedDict[_Key, SessionFact] = OrderedDict()

    async def restore(self) -> None:
        """What was heard before the restart.

        Raises:
            StorageUnavailable: it cannot be known now.
        """
        since = (self._clock.now() - KEEP).timestamp()
        for row in reversed(await self._store.read(HEARD, since, MOST)):
            fact = session_fact(row)
            self._known[fact.producer, fact.session_id] = fact

    def note(self, incoming: Incoming) -> None:
        """Take in an event."""
        event = incoming.event
        key = (incoming.producer, event.session_id)
        before = self._known.pop(key, None)
        self._known[key] = SessionFact(
            *key,
            agent_id=event.agent_id,
            agent_name=event.agent_name or (before.agent_name if before else None),
            issue=before.issue if before else 0,
            ended=event.type in aaep.SESSION_ENDS,
            last_event_at=incoming.received_at,
        )
        if len(self._known) > MOST:
            self._known.popitem(last=False)

    async def facts(self) -> list[SessionFact]:
        """The sessions as they stand."""
        since = self._clock.now() - KEEP
        while self._known and _heard(next(iter(self._known.values()))) < since:
            self._known.popitem(last=False)
        return [self._with_issue(fact) for fact in self._known.values()]

    def _with_issue(self, fact: SessionFact) -> SessionFact:
        """The issue shows in what the session asks; until then it has none."""
        if fact.issue:
            return fact
        asked = self._index.of_session(fact.producer, fact.session_id)
        if not asked:
            return fact
        known = replace(fact, issue=asked[0].issue)
        self._known[fact.producer, fact.session_id] = known
        return known


def _heard(fact: SessionFact) -> datetime:
    return fact.last_event_at or datetime.min.replace(tzinfo=UTC)
