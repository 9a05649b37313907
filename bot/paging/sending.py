"""One page on its way: to whom, written down first, handed to Slack's lanes and to the senders outside.

A sending that fails, or that is not there after 15 s, is written down once per page: the policy then goes on with
its next step at once.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from bot.errors import StorageUnavailable
from bot.paging.board import Board, Open
from bot.paging.model import Destination, Sending
from bot.paging.policies import Policies
from bot.paging.ports import Outlet, Outside, Targets
from bot.paging.shown import Shown
from bot.paging.store import Batch, IncidentStore, users
from core.clock import Clock
from core.escalation import Failed, Sent

_log = structlog.get_logger("clarify.paging")
LANDING = timedelta(seconds=15)
STUMBLED = timedelta(seconds=2)
_AT_ONCE = 8  # senders outside
Words = Callable[[int], Awaitable[tuple[str, str] | None]]


class Sender:
    """`words(page)` gives a page's title and text for senders outside; None: nobody needs it any more.

    `changed(incidents)` is told what became of a sending, in memory and on disk.
    """

    def __init__(
        self,
        *,
        store: IncidentStore,
        shown: Shown,
        board: Board,
        policies: Policies,
        targets: Targets,
        outside: Outside,
        outlet: Outlet,
        words: Words,
        clock: Clock,
        changed: Callable[[Iterable[int]], None],
    ) -> None:
        self._store = store
        self._shown = shown
        self._board = board
        self._policies = policies
        self._targets = targets
        self._outside = outside
        self._outlet = outlet
        self._words = words
        self._clock = clock
        self._changed = changed
        self._watched: dict[str, Sending] = {}
        self._watches: list[tuple[datetime, str]] = []
        self._hurried: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def destinations(self, each: Open, step: int, holder: str | None) -> list[Destination]:
        """Where a step leads for one incident."""
        incident, found = each.incident, list[Destination]()
        policy = self._policies.known(incident.policy)
        for notify in self._policies.notify(incident.policy, step, holder):
            for address in await self._targets.addresses(notify, policy, incident, holder):
                if address.kind == "apprise":
                    found.append(Destination("apprise", address.target))
                else:
                    found.append(Destination("slack", address.target, address.thread, address.mentions))
        return found

    async def send(self, members: Sequence[Open], step: int, to: Sequence[Destination]) -> None:
        """Send one page about `members`; durable when this returns.

        Raises:
            StorageUnavailable: nothing was sent.
        """
        now, first = self._clock.now(), members[0].incident
        ids = tuple(each.incident.id for each in members)
        batch = Batch(first.kind, first.policy, step, ids, merged(to))
        sendings = await self._store.send(batch, now)
        happening = Sent(now, step) if sendings else Failed(now, step)
        _log.warning(
            "paging",
            kind=batch.kind,
            step=step,
            incidents=ids[:20],
            count=len(ids),
            targets=[each.target for each in batch.destinations],
        )
        for each in members:
            each.history.append(happening)
        for sending in sendings:
            self.go(sending)

    def go(self, sending: Sending) -> None:
        """Put a sending that is written down on its way."""
        to = sending.destination
        for incident in sending.incidents:
            if to.via == "slack" and (each := self._board.get(incident)) is not None:
                each.paged.update(users(to.target, to.mentions))
        if sending.message is None:
            task = asyncio.create_task(self._send_outside(sending), name=f"page {sending.page} outside")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._watched[sending.message] = sending
        heapq.heappush(self._watches, (self._clock.now() + LANDING, sending.message))
        self._outlet.send(to.target, sending.message)

    def next_watch(self) -> datetime | None:
        """When to look whether messages are there."""
        while self._watches and self._watches[0][1] not in self._watched:
            heapq.heappop(self._watches)
        return self._watches[0][0] if self._watches else None

    async def look(self, now: datetime) -> None:
        """Go on without the messages that are not there in time. Set back, the clock gives none of them longer."""
        if self._watches and max(self._watches)[0] > now + LANDING:
            self._watches = sorted((min(at, now + LANDING), key) for at, key in self._watches)
        while (at := self.next_watch()) is not None and at <= now:
            key = self._watches[0][1]
            sending = self._watched[key]  # it may end by itself while this looks
            there = await self._shown.is_posted(key)
            await self._settle(sending, *(("sent", None) if there else ("late", "not there in time")))
            heapq.heappop(self._watches)
            self._unwatch(key)

    def hurry(self, key: str) -> None:
        """A first try failed: its time ends sooner, but for trouble that passes at once."""
        if key in self._watched and key not in self._hurried:
            self._hurried.add(key)
            heapq.heappush(self._watches, (self._clock.now() + STUMBLED, key))

    async def ended(self, key: str, state: str, note: str | None = None) -> None:
        """A message was posted (sent), refused for good (failed), or is not needed any more (dropped).

        Raises:
            StorageUnavailable: it could not be written down.
        """
        where = await self._shown.sending_of(key)
        if where is None:
            return
        page, target = where
        sending = Sending(page, 0, Destination("slack", target), key)
        await self._settle(sending, state, note)
        self._unwatch(key)

    async def close(self) -> None:
        """Give up what is under way outside: without an outcome it is sent again after the next start."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_outside(self, sending: Sending) -> None:
        variable = sending.destination.target
        try:
            async with self._slots:
                words = await self._words(sending.page)
                if words is not None:
                    await self._outside.send(variable, *words)
            state, note = ("sent" if words else "dropped"), None
        except Exception as error:  # noqa: BLE001 - whatever a sender does: the next step is due
            _log.warning(
                "a page was not sent", page=sending.page, through=variable, error=type(error).__name__
            )
            state, note = "failed", type(error).__name__
        await self._until_settled(sending, state, note)

    async def _until_settled(self, sending: Sending, state: str, note: str | None) -> None:
        while True:
            try:
                return await self._settle(sending, state, note)
            except StorageUnavailable as error:
                _log.warning("the outcome of a page has to wait", page=sending.page, reason=str(error))
                await self._clock.sleep(1.0)

    def _unwatch(self, key: str) -> None:
        self._watched.pop(key, None)
        self._hurried.discard(key)

    async def _settle(self, sending: Sending, state: str, note: str | None) -> None:
        now, to = self._clock.now(), sending.destination
        failed = await self._store.settle(sending, state, note, now)
        if failed is None:
            return
        step, incidents = failed
        _log.warning("a page did not arrive", page=sending.page, step=step, through=to.via, reason=note)
        for incident in incidents:
            if (each := self._board.get(incident)) is not None:
                each.history.append(Failed(now, step))
        self._changed(incidents)


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
