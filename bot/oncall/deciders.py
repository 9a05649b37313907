"""Watches whether questions have people who can decide them.

`Leavers` releases what people claimed, or were handed, and can no longer act on: they were deactivated, or may no longer
answer. It looks on start, and whenever what is known of people may be outdated. Paging goes on with the next step.

`Quorum` checks that enough people may approve an action that needs several approvals, or one of someone other than the
person its agent works for; otherwise on-call is paged at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import structlog

from bot.errors import SlackError, SlackRefusedError, StorageUnavailable
from bot.oncall.actions import Admission, Announcer
from bot.oncall.incidents import Incident, Incidents, OpenIncident
from bot.oncall.roster import Policies
from bot.people.access import Person
from bot.people.answerers import count_answerers
from bot.people.directory import UNKNOWN_USER, People
from bot.routing import audience_of
from bot.settings.model import Settings
from core.clarification import Clarification, Holder
from core.clock import Clock, event_or_time
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.escalation import Left
from core.index import Index
from core.ledger import Ledger
from core.router import Router
from core.summary import Seen, Summary, summary_of

_log = structlog.get_logger("clarify.paging")
_RETRY = 10.0  # seconds, after Slack, the ledger or the storage failed


@dataclass(kw_only=True, eq=False)
class Leavers:
    """Finds the holders of open questions and incidents who are gone."""

    index: Index
    incidents: Incidents
    policies: Policies
    admission: Admission
    announcer: Announcer
    router: Router
    people: People
    clock: Clock

    async def run(self) -> None:
        """Release claims until cancelled."""
        while True:
            self.people.outdated.clear()
            if await self.look():
                await self.people.outdated.wait()
            else:
                await event_or_time(self.clock, self.people.outdated, _RETRY)

    async def look(self) -> bool:
        """Release what someone holds who is gone; returns False if some could not be looked at or released now."""
        is_done = True
        for record in [each for each in self.index if each.is_open and holder_of(each) is not None]:
            is_done &= await self._settled(record.id, partial(self._look_at, record))
        for each in self.incidents:
            is_done &= await self._settled(each.incident.key, partial(self._look_at_incident, each))
        return is_done

    async def _settled(self, what: str, look: Callable[[], Awaitable[None]]) -> bool:
        try:
            await look()
        except (SlackError, LockTimeout, LedgerUnwritable, StorageUnavailable) as error:
            _log.warning("cannot tell yet whether a holder is gone", about=what, reason=str(error))
            return False
        except ClarifyError as error:  # it was closed meanwhile
            _log.info("not released", about=what, reason=str(error))
        return True

    async def _look_at(self, record: Seen) -> None:
        holder, incident = holder_of(record), self._incident(record)
        if holder is None:
            return
        if not await self._is_gone(Person(holder.team or "", holder.user), record, incident):
            return
        if await self.router.left(record.id, holder.user):
            _log.warning("released, since its holder is gone", id=record.id, user=holder.user)
            await self.announcer.tell_of_leaver(record, holder, calls=incident is None)

    async def _look_at_incident(self, each: OpenIncident) -> None:
        holder, incident = self.policies.wants(each.incident).holder, each.incident
        known = None if incident.clarification is None else self.index.get(incident.clarification)
        if holder is not None and await self._is_gone(Person("", holder), known, incident):
            await self.incidents.happened([(incident.id, Left(self.clock.now(), holder))])

    async def _is_gone(self, person: Person, record: Seen | None, incident: Incident | None) -> bool:
        """Returns whether someone can no longer act on a question or an incident.

        Raises:
            SlackError: Slack does not tell now.
        """
        try:
            if (await self.people.profile(person.user)).is_deleted:
                return True
        except SlackRefusedError as error:
            if error.code not in UNKNOWN_USER:
                raise
            # Slack need not describe people of other workspaces to us.
            if person.team in {"", (await self.people.installation()).team}:
                return True
        if incident is not None:
            may, _ = await self.admission.filter([incident], person)
            return not may
        if record is None:
            return False
        card = await self.announcer.messages.get(f"card:{record.id}:{record.round}")
        where = "" if card is None else card.channel or ""
        return not await self.admission.access.may_still(person, record, where)

    def _incident(self, record: Seen) -> Incident | None:
        about = (each.incident for each in self.incidents.about(record.id))
        return next((each for each in about if each.kind == "escalated"), None)


def holder_of(record: Seen) -> Holder | None:
    """Returns who claimed a question, or was handed it."""
    return record.attention.taken_by or record.attention.handed_to


@dataclass(kw_only=True, eq=False)
class Quorum:
    """Counts the people who may answer: for each new action, after each approval, and on start."""

    settings: Settings
    people: People
    router: Router
    index: Index
    ledger: Ledger
    clock: Clock
    _queue: asyncio.Queue[Summary] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, Summary] = field(default_factory=dict, init=False)

    def record_changed(self, seen: Seen) -> None:
        """Queue a clarification for `run`, if its approvals changed. Call after each change, and on start."""
        if not seen.is_open or not seen.is_guarded:
            self._known.pop(seen.id, None)
            return
        known, now = self._known.get(seen.id), summary_of(seen)
        if known is None or _progress(known) != _progress(now):
            self._known[now.id] = now
            self._queue.put_nowait(now)

    async def run(self) -> None:
        """Check the queued clarifications, one at a time, until cancelled."""
        while True:
            queued = await self._queue.get()
            if self._known.get(queued.id) is queued and not await self._check(queued.id):
                self._queue.put_nowait(queued)
                await self.clock.sleep(_RETRY)

    async def _check(self, clarification: str) -> bool:
        """Count and record the possible approvers; False: try again later."""
        try:
            record = await self.index.find(clarification, self.ledger)
            may = 0 if record.asked.lacks_requester else await self._count(record)
            await self.router.too_few(record.id, may)
        except (SlackError, LockTimeout, LedgerUnwritable) as error:
            _log.warning("cannot count possible approvers yet", id=clarification, reason=str(error))
            return False
        except ClarifyError as error:
            _log.error("cannot count possible approvers", id=clarification, reason=str(error))
        return True

    async def _count(self, record: Clarification) -> int:
        home, asked = await self.people.installation(), record.asked
        route = self.settings.route_for(*audience_of(record))
        besides = asked.barred.by if asked.barred is not None else None
        return await count_answerers(route, self.settings, self.people, home, asked.needed, besides=besides)


def _progress(summary: Summary) -> tuple[int, int, int]:
    """The round, and its numbers of approvals that count and that no longer do."""
    return summary.round, summary.approvals, summary.lapsed
