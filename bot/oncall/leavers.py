"""Releases what people claimed, or were handed, and can no longer act on: they were deactivated, or may no longer answer.

Looks on start, and whenever what is known of people may be outdated. Paging goes on with the next step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from bot.errors import SlackError, SlackRefusedError, StorageUnavailable
from bot.oncall.actions import Admission, Announcer
from bot.oncall.incidents import Incident, Incidents, OpenIncident
from bot.oncall.roster import Policies
from bot.people.access import Person
from bot.people.directory import UNKNOWN_USER, People
from core.clarification import Holder
from core.clock import Clock, event_or_time
from core.errors import ClarifyError, LedgerUnwritable, LockTimeout
from core.escalation import Left
from core.index import Index
from core.router import Router
from core.summary import Seen

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
