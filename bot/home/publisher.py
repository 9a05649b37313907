"""Keeps the Home tabs of those who look at them up to date: coalesced, paced, shared fairly.

Something changed (`touch`), somebody looks (`opened`, `press`): each viewer's tab is derived anew from a snapshot
that all share, and published if it says something else than before. At most one publish per person and second;
all together as `turns.PUBLISHES_PER_SECOND` says. A viewer who was looked at with older facts stays due, so that
the last state is always published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from math import inf

import structlog

from bot.errors import StorageUnavailable
from bot.home.codec import HomePress
from bot.home.facts import Viewer
from bot.home.gathering import Gathering
from bot.home.making import Maker, Tab
from bot.home.model import Snapshot
from bot.home.ports import Publish, Viewers
from bot.home.turns import (
    EACH,
    PUBLISHES_PER_SECOND,
    Again,
    Dropped,
    Seat,
    Shown,
    Unfit,
    first_due,
    judged,
    next_seat,
)
from bot.people import Person
from bot.ports import Place
from core.clock import Clock, Pace

_log = structlog.get_logger("clarify.home")
# Seconds that a snapshot serves, however much changes meanwhile; at least so many times what it took to take it.
_REUSE, _REUSE_TIMES = 0.5, 10.0
_LOOK = 0.1  # seconds between looks that find nothing new
_SWEEP = 300.0  # seconds after which tabs are looked at also when nobody says that something changed
_UNSURE = 15.0
_APART = 60.0
_SHORTEST = 0.001
_REMEMBERED = 7 * 86_400.0
_SAME_VISIT = 3600.0


class HomePublisher:
    """`restore` once, then `run` until cancelled. `seconds` is a monotonic clock; `clock` waits in its time."""

    def __init__(
        self,
        *,
        gathering: Gathering,
        maker: Maker,
        publish: Publish,
        viewers: Viewers,
        clock: Clock,
        seconds: Callable[[], float],
    ) -> None:
        self._gathering = gathering
        self._maker = maker
        self._send = publish
        self._viewers = viewers
        self._clock = clock
        self._seconds = seconds
        self._seats: dict[str, Seat] = {}
        self._pace = Pace(PUBLISHES_PER_SECOND)
        self._snapshot = Snapshot(0)
        self._good_until = -inf
        self._number = 1
        self._changed_at = -inf
        self._noted = True  # whether a change waits for its snapshot
        self._next_look = -inf
        self._sweep_at = inf
        self._wake = asyncio.Event()
        self._publishing: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """Who looked at their tab before the restart."""
        for viewer in await self._viewers.all():
            self._seats.setdefault(viewer.user, Seat(viewer))

    def touch(self) -> None:
        """Something changed that a tab may show. Cheap: to be called as often as it happens."""
        self._number += 1
        if not self._noted:
            self._noted = True
            self._changed_at = self._seconds()
            self._wake.set()

    async def opened(self, user: str, team: str = "", channel: str = "", *, shown: bool = True) -> None:
        """Somebody opened their tab, and waits for it.

        Args:
            user: their id.
            team: where they are at home.
            channel: their direct messages with the bot.
            shown: whether Slack has a view to show them.

        Raises:
            StorageUnavailable: they are not remembered over a restart.
        """
        now = self._clock.now().timestamp()
        seat = self._seats.setdefault(user, Seat(Viewer(user, team, channel, now)))
        before = seat.viewer
        seat.viewer = replace(
            before,
            team=team or before.team,
            channel=channel or before.channel,
            opened_at=now,
            pages=before.pages if now - before.opened_at < _SAME_VISIT else {},
            digest=before.digest if shown else None,
        )
        seat.urgent, seat.refused, seat.lost = True, None, not shown
        self._wake.set()
        await self._viewers.seen(seat.viewer)

    async def press(self, press: HomePress, person: Person) -> None:
        """A page of a section was turned.

        Raises:
            StorageUnavailable: it is not remembered over a restart.
        """
        if person.user not in self._seats:
            await self.opened(person.user, person.team)
        seat = self._seats[person.user]
        seat.viewer = replace(seat.viewer, pages={**seat.viewer.pages, press.subject: press.number})
        seat.urgent = True
        self._wake.set()
        await self._viewers.turned(person.user, seat.viewer.pages)

    def place_of(self, user: str) -> Place:
        """Where somebody who looks at their tab can be told something; the channel is empty if it is not known."""
        seat = self._seats.get(user)
        return Place(seat.viewer.channel if seat else "")

    async def run(self) -> None:
        """Publish what is due, until cancelled."""
        try:
            while True:
                self._wake.clear()
                await self._sweep()
                now = self._seconds()
                due = max(first_due(self._seats.values(), self._number, self._changed_at), self._next_look)
                due = max(due, now + self._pace.wait(now, post=True))
                seat = next_seat(self._seats.values(), self._number, self._changed_at, now)
                if due <= now and seat is not None:
                    await self._look(seat)
                else:
                    await self._wait(min(due, self._sweep_at) - now)
        finally:
            for task in self._publishing:
                task.cancel()
            await asyncio.gather(*self._publishing, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        """Until something happens, or `seconds` have passed (`inf`: only the former)."""
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(self._wake.wait())}
        if seconds < inf:
            # Never less than the clock can tell apart: it would come back at the same moment for ever.
            waits.add(asyncio.ensure_future(self._clock.sleep(max(seconds, _SHORTEST))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def _sweep(self) -> None:
        """Now and then: forget who has not looked for a week, and look again at the others."""
        if self._seats and self._sweep_at == inf:
            self._sweep_at = self._seconds() + _SWEEP
        if self._seconds() < self._sweep_at:
            return
        self._sweep_at = self._seconds() + _SWEEP if self._seats else inf
        self.touch()
        since = self._clock.now().timestamp() - _REMEMBERED
        await self._forget([user for user, seat in self._seats.items() if seat.viewer.opened_at < since])

    async def _look(self, seat: Seat) -> None:
        """Derive one tab; publish it if it says something new. One that cannot be made is set apart for a while."""
        try:
            await self._show(seat)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before = self._seconds() + _APART
            seat.seen = -1
            _log.exception("a Home tab could not be made", user=seat.viewer.user, error=type(error).__name__)

    async def _show(self, seat: Seat) -> None:
        snapshot = await self._facts()
        # From here on, whatever is pressed or changed makes it due again.
        seat.seen, seat.urgent, seat.again_at = snapshot.number, False, inf
        seat.last = self._seconds()
        tab = await self._maker.tab(seat.viewer, snapshot)
        if tab.unsure:
            seat.again_at = self._seconds() + _UNSURE
        now = self._seconds()
        self._next_look = now + _LOOK
        seat.not_before = now + EACH
        if tab.digest in (seat.viewer.digest, seat.refused):
            return
        seat.busy, seat.lost = True, False
        self._pace.posted(now)
        task = asyncio.create_task(self._publish(seat, tab), name=f"home {seat.viewer.user}")
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _facts(self) -> Snapshot:
        """The newest snapshot, or one that is young enough: whoever gets that stays due."""
        began = self._seconds()
        if self._snapshot.number < self._number and began >= self._good_until:
            self._noted = False
            self._snapshot = await self._gathering.snapshot(self._number)
            now = self._seconds()
            self._good_until = now + max(_REUSE, _REUSE_TIMES * (now - began))
            self._sweep_at = min(self._sweep_at, began + self._until_handover())
        return self._snapshot

    def _until_handover(self) -> float:
        """Seconds until somebody else is on call."""
        now: datetime = self._clock.now()
        left = [(each.until - now).total_seconds() for each in self._snapshot.duties if each.until]
        return max(1.0, min((each for each in left if each > 0), default=_SWEEP))

    async def _publish(self, seat: Seat, tab: Tab) -> None:
        user = seat.viewer.user
        try:
            await self._remember(seat, None)  # until it is known to be there
            sent = await self._send(user, tab.view)
            # Counted from here: Slack has it by now, however long the way was.
            seat.not_before = max(seat.not_before, self._seconds() + EACH)
            outcome = judged(sent, seat.failures)
            await self._settle(seat, outcome, tab.digest)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' tabs go on
            seat.not_before, seat.seen = self._seconds() + _APART, -1
            _log.exception("a Home tab could not be published", user=user, error=type(error).__name__)
        finally:
            seat.busy = False
            self._wake.set()

    async def _settle(self, seat: Seat, outcome: Shown | Dropped | Again | Unfit, digest: str) -> None:
        now, user = self._seconds(), seat.viewer.user
        seat.failures = seat.failures + 1 if isinstance(outcome, Again) else 0
        match outcome:
            case Shown():
                self._pace.went_well()
                # Slack had nothing to show after this was sent: it may have been lost.
                await self._remember(seat, None if seat.lost else digest)
            case Again(seconds, everybody):
                _log.warning("a Home tab has to wait", user=user, seconds=seconds)
                seat.seen = -1
                if everybody:
                    self._pace.refused(now, seconds)
                else:
                    seat.not_before = max(seat.not_before, now + (seconds or 0.0))
            case Dropped():
                _log.info("Slack shows somebody no Home tab", user=user)
                await self._forget([user])
            case Unfit():
                _log.error("Slack does not take a Home tab", user=user)
                seat.refused = digest

    async def _remember(self, seat: Seat, digest: str | None) -> None:
        """Note what Slack shows. Not being able to costs at most a publish that says the same."""
        if seat.viewer.digest == digest:
            return
        seat.viewer = replace(seat.viewer, digest=digest)
        try:
            await self._viewers.shows(seat.viewer.user, digest)
        except StorageUnavailable as error:
            _log.warning("what a Home tab shows is not noted", user=seat.viewer.user, reason=str(error))

    async def _forget(self, users: list[str]) -> None:
        for user in users:
            self._seats.pop(user, None)
        if not users:
            return
        try:
            await self._viewers.forget(users)
        except StorageUnavailable as error:
            _log.warning("viewers of Home tabs are not forgotten", count=len(users), reason=str(error))
