"""Keeps the incidents in line with the ledgers: opens one for each escalation, and copies its holder from there.

Other writers (`/clarify`, the shell, other implementations) change ledgers too. The newest record of each clarification is
queued and handled in the pager's rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import structlog

from bot.errors import StorageUnavailable
from bot.oncall.incidents import Incident, Incidents
from core.clock import Clock, iso
from core.errors import ClarifyError
from core.escalation import Handed, NewIncident, Taken, is_news
from core.index import Index
from core.ledger import Ledger
from core.summary import Seen

_log = structlog.get_logger("clarify.paging")
_AT_A_TIME = 100
# Incidents of these kinds end with their clarification.
_WHILE_OPEN = frozenset({"escalated", "unplaceable"})


@dataclass(eq=False)
class Escalations:
    """Collects changed clarifications, and brings the incidents in line with them in `work`."""

    incidents: Incidents
    ledger: Ledger
    index: Index
    clock: Clock
    _changed: dict[str, Seen] = field(default_factory=dict, init=False)
    _gone: set[str] = field(default_factory=set, init=False)

    def record_changed(self, record: Seen) -> None:
        if record.status == "escalated" or self.incidents.about(record.id) or record.id in self._changed:
            self._changed[record.id] = record
            self.incidents.awake.set()

    def restore(self) -> None:
        """On start: queue every open question, and those that open incidents are about."""
        for record in self.index:
            self.record_changed(record)
        for each in self.incidents:
            clarification = each.incident.clarification
            if clarification is not None and clarification not in self._changed:
                self._gone.add(clarification)
        self.incidents.awake.set()

    async def work(self) -> None:
        """Handle the queued clarifications, up to 100 a round.

        Raises:
            StorageUnavailable: the rest stays queued for the next call.
        """
        for clarification in list(islice(self._gone, _AT_A_TIME)):
            await self._find(clarification)
            self._gone.discard(clarification)
        for clarification, record in list(islice(self._changed.items(), _AT_A_TIME)):
            try:
                await self._follow(record)
            except StorageUnavailable:
                raise
            except Exception:  # noqa: BLE001 - one odd record must not stop everybody's pages
                _log.exception("cannot follow a question", id=clarification)
            if self._changed.get(clarification) is record:
                del self._changed[clarification]
        if self._changed or self._gone:  # in the next round: the first pages go out meanwhile
            self.incidents.awake.set()

    async def _find(self, clarification: str) -> None:
        """Queue a clarification that is no longer in the index. If its ledger cannot be read, its incident stays open: people
        must look at it.
        """
        try:
            record = await self.ledger.find(clarification)
        except ClarifyError as error:
            _log.warning("cannot read a page's question", id=clarification, reason=str(error))
        else:
            self._changed.setdefault(clarification, record)

    async def _follow(self, record: Seen) -> None:
        key = key_of(record)
        over = [each for each in self.incidents.about(record.id) if _is_over(each.incident, record, key)]
        await self.incidents.close(over)
        if key is None:
            self.incidents.touch(each.incident.id for each in self.incidents.about(record.id))
            return
        if not any(each.incident.key == key for each in self.incidents.about(record.id)):
            await self.incidents.raise_(_incident(key, record))
        held, now = held_in(record), self.clock.now()
        for each in [each for each in self.incidents.about(record.id) if each.incident.key == key]:
            self.incidents.touch([each.incident.id])
            if held is not None and is_news(held, each.history, now):
                await self.incidents.follow([(each.incident.id, held)])


def _incident(key: str, record: Seen) -> NewIncident:
    return NewIncident(
        key=key,
        title=f"{record.id} is escalated",
        reason=f"Escalated: {why}" if (why := record.attention.escalated_for) else "Escalated",
        body=record.short_topic,
        agent_id=record.agent,
        clarification=record.id,
        expires_at=record.expires_at,
    )


def _is_over(incident: Incident, record: Seen, key: str | None) -> bool:
    """Whether an incident can be closed; `key` names the clarification's current escalation."""
    if incident.kind == "undelivered":
        return record.reply in {"delivered", "confirmed"}
    stale = incident.kind == "escalated" and incident.key != key
    return incident.kind in _WHILE_OPEN and (not record.is_open or stale)


def key_of(record: Seen) -> str | None:
    """The key of a clarification's current escalation; None if it is not escalated (pure)."""
    if record.status != "escalated":
        return None
    at = record.attention.escalated_at
    since = iso(at) if at is not None else "foreign"
    return f"escalated:{record.id}:{record.round}:{since}"


def held_in(record: Seen) -> Taken | Handed | None:
    """Who claimed it or was handed it, according to its record (pure)."""
    taken, handed = record.attention.taken_by, record.attention.handed_to
    if taken is not None:
        return Taken(taken.at, taken.user)
    return Handed(handed.at, handed.user, "") if handed is not None else None
