"""Keeps the incidents in line with the records: opens one for each escalation, and copies its holder from there.

It observes the feed, so records that another bot, the shell or a ledger file changed count as well, and a kill loses nothing.
The pager's rounds handle what changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from math import inf

import structlog

from bot.errors import StorageUnavailable
from bot.oncall.incidents import Incident, Incidents
from bot.storage.changes import OPEN, Position, RecordChange, note_open
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.clock import Clock, backoff, iso
from core.errors import ClarifyError, LedgersAway
from core.escalation import Handed, NewIncident, Taken, is_news
from core.ledger import Ledger
from core.summary import Seen

_log = structlog.get_logger("clarify.paging")
_AT_A_TIME = 100
_RETRY, _LONGEST_RETRY = 1.0, 60.0  # seconds
_LISTED = 5
# Incidents of these kinds end with their clarification.
_WHILE_OPEN = frozenset({"escalated", "unplaceable"})


@dataclass(eq=False)
class Escalations:
    """Collects changed clarifications (`bot.feed.Observer`), and brings the incidents in line with them in `work`."""

    incidents: Incidents
    ledger: Ledger
    clock: Clock
    name: str = "pages"
    gather: float = 0.05  # with what else observes the feed, so that changes are read once
    # By clarification, the first and the last change that is not handled.
    _behind: dict[str, tuple[Position, Position]] = field(default_factory=dict, init=False)
    # By clarification, how often in a row handling it failed, and when (steady) it is tried again.
    _failed: dict[str, tuple[int, float]] = field(default_factory=dict, init=False)
    _done: Callable[[], None] = field(default_factory=lambda: lambda: None, init=False)

    @property
    def undone(self) -> Position | None:
        """The first change that is not handled: they come in order."""
        return next((first for first, _ in self._behind.values()), None)

    def observe(self, change: RecordChange) -> None:
        name = change.clarification
        is_news = change.what.startswith(OPEN) or "escalated/" in change.what
        if is_news or name in self._behind or self.incidents.about(name):
            first, _ = self._behind.get(name, (change.place, change.place))
            self._behind[name] = first, change.place
            self.incidents.awake.set()

    def begin_anew(self, tx: Tx) -> None:
        """Has the feed tell of every open question."""
        note_open(tx, self.name, self.clock.now())

    async def run(self, done: Callable[[], None]) -> None:
        self._done = done
        await asyncio.Event().wait()

    async def work(self) -> None:
        """Handles the changed clarifications, up to 100 a round. Those for which that fails stay, for a later round.

        Raises:
            StorageUnavailable: the rest stays for the next call.
        """
        now = self.clock.steady()
        due = (each for each in self._behind.items() if self._failed.get(each[0], (0, now))[1] <= now)
        for name, (_, last) in list(islice(due, _AT_A_TIME)):
            try:
                await self._follow(await self.ledger.find(name))
            except LedgersAway as error:
                raise StorageUnavailable(str(error)) from error
            except StorageUnavailable:
                raise
            except ClarifyError as error:  # its incidents stay open: people must look at it
                _log.warning("cannot read a page's question", id=name, reason=str(error))
            except Exception:  # noqa: BLE001 - one odd record must not stop everybody's pages
                failures, _ = self._failed.get(name, (0, now))
                pause = backoff(failures, first=_RETRY, longest=_LONGEST_RETRY)
                self._failed[name] = failures + 1, self.clock.steady() + pause
                _log.exception("cannot follow a question, will retry", id=name, seconds=pause)
                continue
            self._failed.pop(name, None)
            if self._behind[name][1] == last:
                del self._behind[name]
            self._done()
        if any(name not in self._failed for name in self._behind):
            self.incidents.awake.set()  # in the next round: the first pages go out meanwhile

    def seconds_left(self) -> float:
        """Seconds until one that failed is tried again; infinite without any."""
        first = min((at for _, at in self._failed.values()), default=inf)
        return max(0.0, first - self.clock.steady())

    def trouble(self) -> str | None:
        """Returns which clarifications cannot be followed, so that perhaps nobody is paged for them; None: there are none."""
        names = ", ".join(islice(self._failed, _LISTED))
        return f"{len(self._failed)} not followed, will retry: {names}" if names else None

    async def _follow(self, record: Clarification) -> None:
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
