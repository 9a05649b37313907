"""The pager: wakes when something happened or is due, asks the policies what to send, and sends it.

`Escalations` keeps the incidents in line with the records: it opens one for each escalation, and copies its holder from there.
It observes the feed, so records that another bot, the shell or a ledger file changed count as well, and a kill loses nothing.

Each round of the `Pager` has it handle what changed, moves on from messages that did not arrive, asks the policies what is due,
delays and groups floods of similar incidents, and sends the pages. Sendings are stored first, so that a kill neither loses nor
doubles anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import NamedTuple

import structlog

from bot.errors import StorageUnavailable
from bot.oncall.incidents import Group, Incident, Incidents, OpenIncident
from bot.oncall.outside import PagerText, SendOutside
from bot.oncall.pages import Batch, Destination, Item, Page, Pages, Sending, SendingState
from bot.oncall.roster import Policies, Shortfall
from bot.show.delivery import Delivery
from bot.show.messages import MessageRow
from bot.show.outbox import GivenUp, RetryLater
from bot.storage.changes import OPEN, Position, RecordChange, note_open
from bot.storage.tx import Tx
from bot.views.inert import is_user
from core.clarification import Clarification
from core.clock import Clock, backoff, event_or_time, iso
from core.errors import ClarifyError, LedgersAway
from core.escalation import Failed, Handed, Left, NewIncident, NotMine, Paged, Taken, Wanted, is_news
from core.ledger import Ledger
from core.summary import Seen

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


_log = structlog.get_logger("clarify.paging")
_LOOK_AGAIN = 60.0  # seconds: the clock may be set while the pager sleeps
_STORAGE_RETRY = 1.0
_POSTPONED = timedelta(seconds=60)
_SOON = timedelta(seconds=1)
_AT_ONCE = 8  # outside sendings
_WINDOW = timedelta(seconds=10)
_MANY = 4  # open incidents of one person, from which on one page lists all of them
_SHARE = 4  # wait at most a quarter of the time left
PageWords = Callable[[Page], Awaitable[PagerText | None]]


class Windows:
    """Decides when similar incidents go out: the first at once, those that follow within seconds together.

    A group's window begins with its first page, and again with each page about others of it.
    """

    def __init__(self) -> None:
        self._windows: dict[Group, tuple[datetime, set[int]]] = {}

    def passed(self, group: Group, incidents: Iterable[int], at: datetime) -> None:
        """A page about `incidents` of `group` goes out."""
        since, paged = self._windows.get(group, (at, set[int]()))
        if not timedelta(0) <= at - since <= 2 * _WINDOW:
            paged = set()
        news = set(incidents) - paged
        self._windows[group] = at if news else since, paged | news

    def opens(self, group: Group, incidents: Iterable[int], ends: datetime | None, now: datetime) -> datetime:
        """When a page about `incidents` may go out; `ends`: when it comes too late to help.

        Incidents paged in this window are not delayed: repeats are no storm.
        """
        since, paged = self._windows.get(group, (now, set[int]()))
        if now < since or len(paged) < _alone(group) or paged.issuperset(incidents):
            return now
        wait = _WINDOW if ends is None else min(_WINDOW, max(timedelta(0), (ends - since) / _SHARE))
        return max(now, since + wait)


def _alone(group: Group) -> int:
    """How many of a group get pages of their own before the rest is grouped: a few escalated clarifications, since only a
    page of its own carries the controls to answer.
    """
    return 3 if group[0] == "escalated" else 1


@dataclass(frozen=True, slots=True)
class _DuePage:
    each: OpenIncident
    want: Wanted

    @property
    def is_urgent(self) -> bool:
        """Whether it skips the window: someone passed it on or is gone, or its page did not arrive."""
        return isinstance(self.each.history[-1], (Failed, Handed, Left, NotMine))


class _Recipient(NamedTuple):
    """A person's direct messages, or a channel (outside threads) for the incidents of one group."""

    target: str
    group: Group | None

    def is_at(self, to: Destination) -> bool:
        return (to.via, to.target, to.thread) == ("slack", self.target, None)


@dataclass(frozen=True, slots=True)
class _PlannedPage:
    """A page to send. `members`: its incidents, each with the step of its policy that the page carries out (None: the page
    only lists it). `on_call`: the people on call for them.
    """

    members: tuple[tuple[OpenIncident, int | None], ...]
    destinations: tuple[Destination, ...]
    shortfall: Shortfall
    on_call: tuple[str, ...] = ()

    @property
    def batch(self) -> Batch:
        items = tuple(Item(each.incident.id, step) for each, step in self.members)
        return Batch(items, self.destinations, *self.shortfall)


@dataclass(kw_only=True, eq=False)
class Pager:
    """Sends the pages that the policies want: `load`, then `run` until cancelled.

    `words(page)` returns a page's text for outside pagers, None if it is not needed any more. `on_sent` is called
    after pages were sent.
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

    async def load(self) -> None:
        """Load the open incidents and the pages without an outcome, and send these.

        Raises:
            StorageUnavailable: it could not be read.
        """
        await self.incidents.load()
        for sending in await self.pages.load():
            self._go(sending)

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
                if seconds:
                    await event_or_time(self.clock, self.incidents.awake, seconds)
        finally:
            # Without an outcome, outside sendings in flight are repeated after the next start.
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

    def _bring(self, rows: Iterable[MessageRow]) -> None:
        """Have the messages updated that may still change."""
        for row in rows:
            if not row.final and row.failed is None:
                # While a message is being posted it stays in that lane: two lanes would both post it.
                place = row.target if row.ts is None else row.channel or row.target
                self.delivery.send(place, row.key, post=row.ts is None)

    def _seconds_left(self) -> float:
        """Seconds until something is due; infinite if only an event can make something due."""
        moments = [at for at in (self.incidents.next_due(), self.pages.next_look()) if at is not None]
        retry = self.escalations.seconds_left()
        if not moments:
            return retry
        return min(_LOOK_AGAIN, retry, max(0.0, (min(moments) - self.clock.now()).total_seconds()))

    async def _page(self) -> bool:
        """Send what is due and reschedule it; returns whether anything was sent.

        Raises:
            StorageUnavailable: what was not sent is due again in a second.
        """
        groups: dict[Group, list[_DuePage]] = {}
        for each in self.incidents.take_due(self.clock.now()):
            want = self._ask(each)
            if want is None or not want.send:
                each.due = self._asked_again(want)
            else:
                groups.setdefault(each.incident.group, []).append(_DuePage(each, want))
        ready = {group: self._through_the_window(group, members) for group, members in groups.items()}
        before = {due.each.incident.id: due.each.due for some in ready.values() for due in some}
        plans = [
            plan
            for some in ready.values()
            for step, holder, members in _batches(some)
            if (plan := await self._planned(members, step, holder)) is not None
        ]
        plans = [
            left for plan in self._with_lists(plans) if (left := self._without_claimed(plan)) is not None
        ]
        sent = await self._send(plans) if plans else set[int]()
        for group, some in ready.items():
            if any(not due.is_urgent for due in some) and sent & {due.each.incident.id for due in some}:
                self._windows.passed(group, (due.each.incident.id for due in some), self.clock.now())
            for due in some:
                if due.each.due == before[due.each.incident.id]:  # neither postponed nor changed meanwhile
                    self._reschedule(due.each)
        return bool(sent)

    def _ask(self, each: OpenIncident) -> Wanted | None:
        """What the policy wants; None if asking failed, which is logged."""
        try:
            return self.policies.wants(each.incident)
        except Exception:  # noqa: BLE001 - one broken incident must not stop the others
            _log.exception("cannot handle an incident", incident=each.incident.id)
            return None

    def _without_claimed(self, plan: _PlannedPage) -> _PlannedPage | None:
        """Returns a plan without what was claimed meanwhile, or None if nothing is left."""

        def is_live(each: OpenIncident) -> bool:
            want = self._ask(each)
            return want is not None and want.state == "paging"

        members = tuple((each, step) for each, step in plan.members if step is None or is_live(each))
        return replace(plan, members=members) if any(step is not None for _, step in members) else None

    def _asked_again(self, want: Wanted | None) -> datetime | None:
        return self.clock.now() + _POSTPONED if want is None else want.next_at

    def _reschedule(self, each: OpenIncident) -> None:
        """Schedule after a sending: the next step at once if this one failed, anything else in a second at the earliest."""
        want, now = self._ask(each), self.clock.now()
        if want is None or not want.send:
            each.due = self._asked_again(want)
        else:
            each.due = now if isinstance(each.history[-1], Failed) else now + _SOON

    def _through_the_window(self, group: Group, members: Sequence[_DuePage]) -> list[_DuePage]:
        """Returns those that may go now; schedules the others for when the window opens."""
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

    async def _planned(
        self, members: Sequence[OpenIncident], step: int, holder: str | None
    ) -> _PlannedPage | None:
        """Returns the page for one step about `members`, or None if the step is no longer due, or was postponed."""
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
        # Drop what was claimed during the look-ups.
        still = [each for each in reached if (want := self._ask(each)) is not None and step in want.send]
        due = tuple((each, step) for each in still)
        return _PlannedPage(due, merged(to), shortfall, turn.users) if due else None

    def _with_lists(self, plans: Sequence[_PlannedPage]) -> list[_PlannedPage]:
        """Replaces the pages of `plans` to places where several incidents are open by one page each, which lists them."""
        direct = self._listed_at(plans, lambda place: place.group is None)
        users = {place.target for place in direct}
        plans = [rest for plan in plans if (rest := _without(plan, direct.keys(), users)) is not None]
        channels = self._listed_at(plans, lambda place: place.group is not None)
        plans = [rest for plan in plans if (rest := _without(plan, channels.keys(), users)) is not None]
        lists = direct | channels
        on_call = {
            plan.members[0][0].incident.policy: plan.on_call for mine in lists.values() for plan in mine
        }
        found = [*plans]
        for place, mine in lists.items():
            due = {each.incident.id: (each, step) for plan in mine for each, step in plan.members}
            others = [each for each in self._paged_at(place) if each.incident.id not in due]
            also = [(each, self._repeats(each, lists.keys(), on_call)) for each in others]
            found.append(_list(place, mine, (*due.values(), *also)))
        return found

    def _listed_at(
        self, plans: Sequence[_PlannedPage], is_asked: Callable[[_Recipient], bool]
    ) -> dict[_Recipient, list[_PlannedPage]]:
        """The places that need a list, and the plans that lead there."""
        found: dict[_Recipient, list[_PlannedPage]] = {}
        for plan in plans:
            for to in plan.destinations:
                if (place := _place(plan, to)) is not None and is_asked(place):
                    found.setdefault(place, []).append(plan)
        return {place: mine for place, mine in found.items() if self._needs_list(place, mine)}

    def _needs_list(self, place: _Recipient, plans: Sequence[_PlannedPage]) -> bool:
        """Whether one page should list what is open there: four or more incidents that a person has to look at, or two of
        one group in a channel; or the newest page there does already.
        """
        many = _MANY if place.group is None else 2
        theirs = {each.incident.id for plan in plans for each, _ in plan.members}
        pages = set[int]()
        for each in self._paged_at(place):
            if len(theirs) >= many:
                break
            if (page := each.newest[place.target]) in pages:
                return True
            pages.add(page)
            want = self._ask(each)
            if want is not None and want.state == "paging" and want.holder in {None, place.target}:
                theirs.add(each.incident.id)
        return len(theirs) >= many

    def _paged_at(self, place: _Recipient) -> Iterator[OpenIncident]:
        for each in self.incidents:
            if place.target in each.newest and place.group in {None, each.incident.group}:
                yield each

    def _repeats(
        self,
        each: OpenIncident,
        lists: AbstractSet[_Recipient],
        on_call: Mapping[str | None, tuple[str, ...]],
    ) -> int | None:
        """The step of an incident's policy that these lists repeat, so that its own repeat counts from now; None: none.
        `on_call`: the people on call, by policy.
        """
        want, policy = self._ask(each), each.incident.policy
        step = next((known.step for known in reversed(each.history) if isinstance(known, Paged)), None)
        if want is None or want.state != "paging" or step is None or policy not in on_call:
            return None
        people = on_call[policy] if want.holder is None else (want.holder,)
        places = {
            _Recipient(target, None if is_user(target) else each.incident.group)
            for target in self.policies.repeats_to(each.incident, step, people)
        }
        return step if places and places <= lists else None

    async def _send(self, plans: Sequence[_PlannedPage]) -> set[int]:
        """Send pages; durable when this returns. All are stored together: what is logged as sent must not lack a part after a
        kill. Returns what they are about.
        """
        sendings = await self.pages.send(*(plan.batch for plan in plans))
        for plan in plans:
            first, step = plan.members[0]
            _log.warning(
                "paging",
                kind=first.incident.kind,
                step=step or 0,
                incidents=[each.incident.id for each, _ in plan.members[:20]],
                count=len(plan.members),
                targets=[each.target for each in plan.destinations],
            )
        for sending in sendings:
            self._go(sending)
        return {each.incident.id for plan in plans for each, step in plan.members if step is not None}

    def _postpone(self, each: OpenIncident) -> None:
        _log.exception("cannot page for an incident", incident=each.incident.id)
        each.due = self.clock.now() + _POSTPONED

    def _go(self, sending: Sending) -> None:
        """Send what was stored."""
        if sending.is_in_slack:
            self.pages.watch(sending)
            self.delivery.send(sending.destination.target, sending.key)
            return
        task = asyncio.create_task(self._page_outside(sending), name=f"page {sending.page.number} outside")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _page_outside(self, sending: Sending) -> None:
        variable = sending.destination.target
        state: SendingState
        try:
            async with self._slots:
                words = await self.words(sending.page)
                outcome = None if words is None else await self.send_outside(variable, words)
            state, note = "dropped" if outcome is None else "sent", None
            if isinstance(outcome, RetryLater | GivenUp):
                state, note = "failed", outcome.reason
        except Exception as error:  # noqa: BLE001 - after any failure the next step is due
            _log.warning(
                "page not sent", page=sending.page.number, through=variable, error=type(error).__name__
            )
            state, note = "failed", type(error).__name__
        while True:
            try:
                return await self.pages.settle(sending, state, note)
            except StorageUnavailable as error:
                _log.warning(
                    "page outcome not stored yet, will retry", page=sending.page.number, reason=str(error)
                )
                await self.clock.sleep(_STORAGE_RETRY)


def _batches(ready: Sequence[_DuePage]) -> Iterator[tuple[int, str | None, list[OpenIncident]]]:
    """Groups many incidents with the same step and holder into one batch; a few get a batch each."""
    found: dict[tuple[int, str | None], list[OpenIncident]] = {}
    for due in ready:
        for step in due.want.send:
            found.setdefault((step, due.want.holder), []).append(due.each)
    for (step, holder), members in found.items():
        few = len(members) <= _alone(members[0].incident.group)
        for batch in [[each] for each in members] if few else [members]:
            yield step, holder, batch


def _place(plan: _PlannedPage, to: Destination) -> _Recipient | None:
    """Where a destination of a plan is listed with others; None: in a thread, or outside Slack."""
    if to.via != "slack" or to.thread is not None or (to.is_thread and len(plan.members) == 1):
        return None
    return _Recipient(to.target, None if to.is_direct else plan.members[0][0].incident.group)


def _list(
    place: _Recipient, plans: Sequence[_PlannedPage], members: tuple[tuple[OpenIncident, int | None], ...]
) -> _PlannedPage:
    mentions = (user for plan in plans for to in plan.destinations if place.is_at(to) for user in to.mentions)
    to = Destination("slack", place.target, None, tuple(dict.fromkeys(mentions)))
    note = next((plan.shortfall.note for plan in plans if plan.shortfall.note), "")
    return _PlannedPage(members, (to,), Shortfall(note))


def _without(
    plan: _PlannedPage, lists: AbstractSet[_Recipient], users: AbstractSet[str]
) -> _PlannedPage | None:
    """Returns a plan without the places that get `lists`, or None if nothing is left. Also leaves out the threads of repeats
    and of floods if the `users` who get a list include everyone mentioned there.
    """
    is_known = len(plan.members) > 1 or all(
        any(isinstance(known, Paged) and known.step == step for known in each.history)
        for each, step in plan.members
    )
    left = [
        to
        for to in plan.destinations
        if _place(plan, to) not in lists
        and not (is_known and to.is_thread and to.mentions and set(to.mentions) <= users)
    ]
    return replace(plan, destinations=tuple(left)) if left or not plan.destinations else None


def merged(destinations: Iterable[Destination]) -> tuple[Destination, ...]:
    """Each target once, with all its mentions; if threads differ, the channel itself."""
    found: dict[tuple[str, str], Destination] = {}
    for each in destinations:
        known = found.get((each.via, each.target))
        if known is None:
            found[each.via, each.target] = each
            continue
        thread = each.thread if each.thread == known.thread else None
        mentions = tuple(dict.fromkeys([*known.mentions, *each.mentions]))
        is_thread = each.is_thread and known.is_thread
        found[each.via, each.target] = Destination(each.via, each.target, thread, mentions, is_thread)
    return tuple(found.values())
