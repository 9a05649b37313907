"""The pager: wakes when something happened or is due, asks the policies what to send, and sends it.

One round takes in what the ledgers say, goes on without messages that did not arrive, asks about what is due, delays
and groups floods of similar incidents, and sends the pages. What was sent is written down before it is on its way, so that a
kill neither loses nor doubles anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

import structlog

from bot.delivery.delivery import Delivery
from bot.errors import StorageUnavailable
from bot.oncall.escalations import Escalations
from bot.oncall.incidents import Group, Incidents, OpenIncident
from bot.oncall.outside import SendOutside
from bot.oncall.pages import Batch, Destination, Lane, Pages, Sending, SendingState
from bot.oncall.roster import Policies, Shortfall
from core.clock import Clock, event_or_time
from core.escalation import Failed, Handed, NotMine, Paged, Wanted

_log = structlog.get_logger("clarify.paging")
_LOOK_AGAIN = 60.0  # seconds: the machine's clock may be changed while the pager sleeps
_STORAGE_RETRY = 1.0
_POSTPONED = timedelta(seconds=60)
_SOON = timedelta(seconds=1)
_AT_ONCE = 8  # senders outside
_FIRST, _LONGEST = timedelta(seconds=5), timedelta(seconds=20)
_REMEMBERED = 2 * _LONGEST  # after that, no window is open
_SHARE = 4  # of the time that is left, at most a quarter is waited
PageWords = Callable[[int], Awaitable[tuple[str, str] | None]]


@dataclass(slots=True)
class _Window:
    last: datetime
    paged: set[int]
    length: timedelta = _FIRST


class Windows:
    """When alike incidents go out: the first at once, what follows soon after together. Times come in.

    One window per group: shut for 5 s after the first pages, twice as long each time while the storm lasts.
    """

    def __init__(self) -> None:
        self._windows: dict[Group, _Window] = {}

    def passed(self, group: Group, incidents: Iterable[int], at: datetime) -> None:
        """A page about `incidents` of `group` goes out."""
        window = self._windows.get(group)
        if window is None or not timedelta(0) <= at - window.last <= 2 * window.length:
            self._windows[group] = _Window(at, set(incidents))
            return
        news = set(incidents) - window.paged
        if news and len(window.paged) >= _alone(group):
            window.length = min(_LONGEST, 2 * window.length)
        window.paged |= news
        window.last = at if news else window.last

    def opens(self, group: Group, incidents: Iterable[int], ends: datetime | None, now: datetime) -> datetime:
        """From when a page about `incidents` may go out; `ends`: the first moment from which it helps nobody.

        What was paged in the window goes out again when the policy says so: repeats are no storm.
        """
        window = self._windows.get(group)
        if window is None or now < window.last:  # the clock was set back: nobody waits for what was not yet
            return now
        if len(window.paged) < _alone(group) or window.paged.issuperset(incidents):
            return now
        wait = window.length
        if ends is not None:
            wait = min(wait, max(timedelta(0), (ends - window.last) / _SHARE))
        return max(now, window.last + wait)


def _alone(group: Group) -> int:
    """How many of a group have pages of their own before they go out together. What has to be decided, escalated
    clarifications, has its controls on a page of its own, so the first few of them go out alone.
    """
    return 3 if group[0] == "escalated" else 1


@dataclass(frozen=True, slots=True)
class _Due:
    each: OpenIncident
    want: Wanted

    @property
    def is_urgent(self) -> bool:
        """Somebody passed it on, or what was sent did not arrive: it does not wait for others."""
        return isinstance(self.each.history[-1], (Failed, Handed, NotMine))


@dataclass(kw_only=True, eq=False)
class Pager:
    """Sends the pages that the policies want: `restore` after the index was filled, then `run` until cancelled.

    `words(page)` gives a page's title and text for senders outside; None: nobody needs it any more. `on_sent` is called
    when pages were sent.
    """

    incidents: Incidents
    pages: Pages
    policies: Policies
    escalations: Escalations
    delivery: Delivery
    send_outside: SendOutside
    words: PageWords
    clock: Clock
    on_sent: Callable[[], None] = lambda: None
    _windows: Windows = field(default_factory=Windows, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)

    async def restore(self) -> None:
        """On start: take up what is open and what is owed.

        Raises:
            StorageUnavailable: it could not be read.
        """
        await self.incidents.restore()
        owed = await self.pages.restore()
        now = self.clock.now()
        for group, together, at in await self.pages.since(now - _REMEMBERED):
            self._windows.passed(group, together, at)
        for sending in owed:
            for number in () if sending.failed else sending.incidents:
                if (each := self.incidents.open(number)) is not None:
                    # It goes out now: the next repeat counts from here, not from before the restart. Of one that was
                    # given up it does not: no step would take the place of that again.
                    each.history.append(Paged(now, sending.step))
                    each.due = now
            self._go(sending)
        self.escalations.restore()

    async def run(self) -> None:
        try:
            while True:
                self.incidents.awake.clear()
                try:
                    await self._round()
                    seconds = self._seconds_left()
                except StorageUnavailable as error:
                    _log.warning("pages delayed", reason=str(error))
                    self.incidents.awake.clear()
                    seconds = _STORAGE_RETRY
                if seconds:  # none are left: what is due is worked off first
                    await event_or_time(self.clock, self.incidents.awake, seconds)
        finally:
            # Without an outcome, what is under way outside is sent again after the next start.
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _round(self) -> None:
        await self.escalations.work()
        await self.pages.look()
        if await self._page():
            self.on_sent()
        if touched := list(self.incidents.touched):
            self._bring(await self.pages.of_incidents(touched))
            self.incidents.touched.difference_update(touched)
        for key in list(self.pages.landed):
            self._bring(await self.pages.older(key))
            self.pages.landed.discard(key)

    def _bring(self, lanes: Iterable[Lane]) -> None:
        """Have messages brought up to date."""
        for lane in lanes:
            self.delivery.send(lane.target, lane.key, post=lane.post)

    def _seconds_left(self) -> float:
        """Until something is due; infinite: not before something happens."""
        moments = [at for at in (self.incidents.next_due(), self.pages.next_look()) if at is not None]
        if not moments:
            return inf
        return min(_LOOK_AGAIN, max(0.0, (min(moments) - self.clock.now()).total_seconds()))

    async def _page(self) -> bool:
        """Send what is due; returns whether anything was sent. Each incident that was due is scheduled anew.

        Raises:
            StorageUnavailable: not all of it was sent; the rest is due again in a second.
        """
        any_sent = False
        groups: dict[Group, list[_Due]] = {}
        for each in self.incidents.take_due(self.clock.now()):
            want = self._ask(each)
            if want is None or not want.send:
                each.due = self._asked_again(want)
            else:
                groups.setdefault(each.incident.group, []).append(_Due(each, want))
        for group, members in groups.items():
            ready = self._through_the_window(group, members)
            before = {due.each.incident.id: due.each.due for due in ready}
            calm = any(not due.is_urgent for due in ready)
            sent = [await self._send(batch, step, holder) for step, holder, batch in _batches(ready)]
            any_sent |= any(sent)
            if calm and any(sent):
                self._windows.passed(group, (due.each.incident.id for due in ready), self.clock.now())
            for due in ready:
                if due.each.due == before[due.each.incident.id]:  # neither set apart nor changed meanwhile
                    self._reschedule(due.each)
        return any_sent

    def _ask(self, each: OpenIncident) -> Wanted | None:
        """None: it cannot be asked about, and is set apart."""
        try:
            return self.policies.wants_of(each)
        except Exception:  # noqa: BLE001 - one broken incident must not stop the others
            _log.exception("cannot handle an incident", incident=each.incident.id)
            return None

    def _asked_again(self, want: Wanted | None) -> datetime | None:
        return self.clock.now() + _POSTPONED if want is None else want.next_at

    def _reschedule(self, each: OpenIncident) -> None:
        """After a sending. What failed at once wants its next step at once; nothing else may want so again."""
        want, now = self._ask(each), self.clock.now()
        if want is None or not want.send:
            each.due = self._asked_again(want)
        else:
            each.due = now if isinstance(each.history[-1], Failed) else now + _SOON

    def _through_the_window(self, group: Group, members: Sequence[_Due]) -> list[_Due]:
        """Those that may go now; the others are due again when the window opens."""
        now = self.clock.now()
        ends = min(
            (due.each.incident.expires_at for due in members if due.each.incident.expires_at), default=None
        )
        ready = []
        for due in members:
            opens = self._windows.opens(group, (due.each.incident.id,), ends, now)
            if due.is_urgent or opens <= now:
                ready.append(due)
            else:
                due.each.due = opens
        return ready

    async def _send(self, members: Sequence[OpenIncident], step: int, holder: str | None) -> bool:
        """Whether anything was sent."""
        turn = await self.policies.turn(members[0].incident)  # all of them are of one policy
        to: list[Destination] = []
        reached: list[OpenIncident] = []
        for each in members:
            try:
                to += await self.policies.destinations(each.incident, step, holder, turn)
                reached.append(each)
            except StorageUnavailable:
                raise
            except Exception:  # noqa: BLE001 - as above
                self._postpone(each)
        shortfall = self.policies.shortfall(members[0].incident, step, holder, turn)
        # Looking up took its time: what was taken meanwhile is not sent any more.
        still = [each for each in reached if (want := self._ask(each)) is not None and step in want.send]
        return bool(still) and await self._send_or_split(still, step, to, shortfall)

    async def _send_or_split(
        self, members: Sequence[OpenIncident], step: int, to: Sequence[Destination], shortfall: Shortfall
    ) -> bool:
        """Send one page about `members`, or one about each where that fails; durable when this returns."""
        first, ids = members[0].incident, tuple(each.incident.id for each in members)
        try:
            batch = Batch(first.group, step, ids, merged(to), *shortfall)
            sendings = await self.pages.send(batch)
        except StorageUnavailable:
            raise
        except Exception:  # noqa: BLE001 - as above
            if len(members) > 1:
                return any([await self._send_or_split([each], step, to, shortfall) for each in members])
            self._postpone(members[0])
            return False
        _log.warning(
            "paging",
            kind=first.kind,
            step=step,
            incidents=ids[:20],
            count=len(ids),
            targets=[each.target for each in batch.destinations],
        )
        for sending in sendings:
            self._go(sending)
        return True

    def _postpone(self, each: OpenIncident) -> None:
        _log.exception("cannot page for an incident", incident=each.incident.id)
        each.due = self.clock.now() + _POSTPONED

    def _go(self, sending: Sending) -> None:
        """Put a sending that is written down on its way."""
        if sending.message is not None:
            self.pages.watch(sending)
            self.delivery.send(sending.destination.target, sending.message)
            return
        task = asyncio.create_task(self._page_outside(sending), name=f"page {sending.page} outside")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _page_outside(self, sending: Sending) -> None:
        variable = sending.destination.target
        state: SendingState
        try:
            async with self._slots:
                words = await self.words(sending.page)
                if words is not None:
                    await self.send_outside(variable, *words)
            state, note = ("sent" if words else "dropped"), None
        except Exception as error:  # noqa: BLE001 - whatever a sender does: the next step is due
            _log.warning("page not sent", page=sending.page, through=variable, error=type(error).__name__)
            state, note = "failed", type(error).__name__
        while True:
            try:
                return await self.pages.settle(sending, state, note)
            except StorageUnavailable as error:
                _log.warning("page outcome not stored yet, will retry", page=sending.page, reason=str(error))
                await self.clock.sleep(_STORAGE_RETRY)


def _batches(ready: Sequence[_Due]) -> Iterator[tuple[int, str | None, list[OpenIncident]]]:
    """What goes out together: the same step to the same people, where it comes in numbers."""
    found: dict[tuple[int, str | None], list[OpenIncident]] = {}
    for due in ready:
        for step in due.want.send:
            found.setdefault((step, due.want.holder), []).append(due.each)
    for (step, holder), members in found.items():
        few = len(members) <= _alone(members[0].incident.group)
        for batch in [[each] for each in members] if few else [members]:
            yield step, holder, batch


def merged(destinations: Iterable[Destination]) -> tuple[Destination, ...]:
    """Each place once, everybody who is to be called there named; several threads of a channel: the channel."""
    found: dict[tuple[str, str], Destination] = {}
    for each in destinations:
        known = found.get((each.via, each.target))
        if known is None:
            found[each.via, each.target] = each
            continue
        thread = each.thread if each.thread == known.thread else None
        mentions = tuple(dict.fromkeys([*known.mentions, *each.mentions]))
        found[each.via, each.target] = Destination(each.via, each.target, thread, mentions)
    return tuple(found.values())
