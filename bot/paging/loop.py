"""The pages' engine: wakes when something happened or is due, and does what the policy wants then.

What was sent is written down before it is on its way, so that a kill neither loses nor doubles anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from bot.delivery.store import Store
from bot.errors import StorageUnavailable
from bot.paging.board import Board, Open
from bot.paging.gate import REMEMBERED, Gate
from bot.paging.model import FreshIncident, Incident
from bot.paging.policies import Policies
from bot.paging.ports import Outlet, Outside, Targets
from bot.paging.rounds import Rounds
from bot.paging.sending import Sender, Words
from bot.paging.shown import Shown
from bot.paging.store import IncidentStore
from core.clock import Clock
from core.escalation import Closed, Happening, Sent, Wanted

_log = structlog.get_logger("clarify.paging")
_LOOK_AGAIN = 60.0  # seconds: the machine's clock may be changed while the loop sleeps
_STORAGE_RETRY = 1.0


class Loop:
    """`before()` is awaited in each round: there the mirror takes in what the ledgers say. `told()` is called when
    pages were sent, and when something happened to what they are about.
    """

    def __init__(
        self,
        *,
        store: Store,
        policies: Policies,
        targets: Targets,
        outside: Outside,
        outlet: Outlet,
        words: Words,
        clock: Clock,
        told: Callable[[], None],
    ) -> None:
        self.incidents = IncidentStore(store)
        self.shown = Shown(store)
        self.board = Board()
        self.before: Callable[[], Awaitable[None]] | None = None
        self._gate = Gate()
        self._outlet = outlet
        self._told = told
        self._clock = clock
        self._awake = asyncio.Event()
        self._touched: set[int] = set()
        self.sender = Sender(
            store=self.incidents,
            shown=self.shown,
            board=self.board,
            policies=policies,
            targets=targets,
            outside=outside,
            outlet=outlet,
            words=words,
            clock=clock,
            changed=self.changed,
        )
        self._rounds = Rounds(self.board, self._gate, policies, self.sender, clock)

    async def begin(self, fresh: FreshIncident, *, anew: bool = False) -> Incident | None:
        """Keep something that has to be taken; None: it was raised before. Durable when this returns.

        With `anew` it is raised again if it was closed.

        Raises:
            StorageUnavailable: it was not kept.
        """
        incident = await self.incidents.begin(fresh, self._clock.now(), anew=anew)
        if incident is None:
            return None
        self._hold(Open(incident, (await self.incidents.histories([incident.id]))[incident.id]))
        return incident

    async def happened(self, entries: Sequence[tuple[int, Happening]]) -> None:
        """Keep what happened to incidents, and act on it. Durable when this returns.

        Raises:
            StorageUnavailable: nothing was kept.
        """
        await self.incidents.log(entries)
        for incident, happening in entries:
            if (each := self.board.get(incident)) is not None:
                each.history.append(happening)
            if isinstance(happening, Closed):
                self.board.remove(incident)
        self.changed([incident for incident, _ in entries])

    async def taken(self, incidents: Sequence[int], user: str) -> set[int]:
        """Somebody took what is closed with that; returns those that were still open. Durable when this returns.

        Raises:
            StorageUnavailable: nothing was kept.
        """
        mine = await self.incidents.close_taken(incidents, user, self._clock.now())
        for incident in mine:
            self.board.remove(incident)
        self.changed(incidents)
        return mine

    def changed(self, incidents: Iterable[int]) -> None:
        """Something happened to incidents: ask the policy again, and bring their messages up to date."""
        now = self._clock.now()
        for incident in incidents:
            self._touched.add(incident)
            if (each := self.board.get(incident)) is not None:
                self.board.schedule(each, now)
        self._told()
        self.wake()

    def touch(self, incidents: Iterable[int]) -> None:
        """Bring the messages about incidents up to date."""
        self._touched.update(incidents)
        self.wake()

    def wants(self, each: Open) -> Wanted:
        """What the policy wants of an incident now."""
        return self._rounds.wants(each)

    def wake(self) -> None:
        self._awake.set()

    async def restore(self) -> None:
        """On start: what is open, what is owed."""
        incidents = await self.incidents.open()
        histories = await self.incidents.histories(each.id for each in incidents)
        paged = await self.incidents.paged()
        for incident in incidents:
            self._hold(Open(incident, histories.get(incident.id, []), paged.get(incident.id, set())))
        for group, together, at in await self.incidents.pages_since(self._clock.now() - REMEMBERED):
            self._gate.passed(group, together, at)
        for key in await self.shown.sent_at_restart():
            await self.sender.ended(key, "sent")
        now = self._clock.now()
        for sending in await self.incidents.owed():
            for number in sending.incidents:
                if (each := self.board.get(number)) is not None:
                    # It goes out now: the next repeat counts from here, not from before the restart.
                    each.history.append(Sent(now, sending.step))
                    self.board.schedule(each, now)
            self.sender.go(sending)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                self._awake.clear()
                try:
                    await self._round()
                    seconds = self._seconds_left()
                except StorageUnavailable as error:
                    _log.warning("pages have to wait", reason=str(error))
                    self._awake.clear()
                    seconds = _STORAGE_RETRY
                await self._rest(seconds)
        finally:
            await self.sender.close()

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        """What became of a page's message; see `Sender.ended`. One that is there covers the older ones.

        Raises:
            StorageUnavailable: it could not be written down.
        """
        await self.sender.ended(key, state, note)
        if state == "sent":
            self._send(await self.shown.older(key))

    async def _round(self) -> None:
        if self.before is not None:
            await self.before()
        await self.sender.look(self._clock.now())
        if await self._rounds.page():
            self._told()
        if self._touched:
            touched = list(self._touched)
            self._send(await self.shown.of_incidents(touched))
            self._touched.difference_update(touched)

    def _send(self, messages: Iterable[tuple[str, str, bool]]) -> None:
        for target, key, post in messages:
            self._outlet.send(target, key, post=post)

    def _hold(self, each: Open) -> None:
        self.board.put(each)
        self.board.schedule(each, self._clock.now())
        self.wake()

    def _seconds_left(self) -> float | None:
        """Until something is due; None: before something happens."""
        moments = [at for at in (self.board.next_due(), self.sender.next_watch()) if at is not None]
        if not moments:
            return None
        return min(_LOOK_AGAIN, max(0.0, (min(moments) - self._clock.now()).total_seconds()))

    async def _rest(self, seconds: float | None) -> None:
        """Wait until something happens, or `seconds` are over; none are left: what is due is worked off first."""
        if seconds is None:
            await self._awake.wait()
        if not seconds:
            return
        sleep = asyncio.ensure_future(self._clock.sleep(seconds))
        awake = asyncio.ensure_future(self._awake.wait())
        try:
            await asyncio.wait({sleep, awake}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            awake.cancel()
