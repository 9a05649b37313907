"""From producers' events to decisions: works the inbox off in order, session by session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from itertools import islice
from typing import Protocol

import structlog

from bot.asking import Scopes, ask, between_agents, runs, within
from bot.errors import StorageUnavailable
from bot.notifier import Notifier
from bot.producers.inbox import Inbox, Item
from core import aaep
from core.clock import Clock
from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout
from core.index import Index
from core.matching import SessionNews, concerns
from core.router import Router

_log = structlog.get_logger("clarify.intake")
_RETRY = 0.5
_REPLY_PATIENCE = 3.0
_AT_A_TIME = 20  # events of one session that are noted together
_AT_ONCE = 32  # sessions worked off side by side


class Unrecorded(Protocol):
    """Told of what cannot be recorded for now, and of what was."""

    def waits(self, items: Collection[Item], reason: str) -> None: ...
    def recorded(self, items: Collection[Item]) -> None: ...


class Intake:
    """Works off what is in the inbox."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        router: Router,
        scopes: Scopes,
        index: Index,
        notifier: Notifier,
        replies_settled: Callable[[list[str], float], Awaitable[None]],
        clock: Clock,
        trouble: Unrecorded,
    ) -> None:
        self._inbox = inbox
        self._router = router
        self._scopes = scopes
        self._index = index
        self._notifier = notifier
        self._replies_settled = replies_settled
        self._clock = clock
        self._trouble = trouble
        self._idle = asyncio.Event()
        self._looking = False
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._sessions: dict[tuple[str, str], deque[Item]] = {}  # what is in work comes first
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: list[int] = []
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def drained(self) -> None:
        """Returns when everything that was taken in is worked off."""
        while self._is_busy():
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Work off the inbox until cancelled."""
        last = 0
        self._inbox.news.set()
        while True:
            await self._inbox.news.wait()
            self._looking = True
            self._inbox.news.clear()
            while items := await self._waiting(last):
                last = items[-1].id
                for item in items:
                    self._queue(item)
            self._looking = False
            self._note_idle()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _waiting(self, last: int) -> list[Item]:
        while True:
            try:
                return await self._inbox.waiting(last)
            except StorageUnavailable as error:
                _log.warning("the inbox has to wait", reason=str(error))
                await self._clock.sleep(_RETRY)

    def _queue(self, item: Item) -> None:
        """Events of one session keep their order; sessions do not wait for each other."""
        session = (item.producer, item.event.session_id)
        if session in self._sessions:
            self._sessions[session].append(item)
            return
        self._sessions[session] = deque([item])
        task = asyncio.create_task(self._work(session), name=f"intake {item.producer}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def _work(self, session: tuple[str, str]) -> None:
        queue = self._sessions[session]
        while queue:
            done: list[int] = []
            for run in runs(list(islice(queue, _AT_A_TIME))):
                done += await self._until_done(run, queue)
                for _ in run:
                    queue.popleft()
            await self._note_done(done)
        del self._sessions[session]
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._is_busy():
            self._idle.set()

    def _is_busy(self) -> bool:
        return bool(self._sessions) or self._looking or self._inbox.news.is_set()

    async def _note_done(self, ids: list[int]) -> None:
        """One note for all that waited together: killed before it, they are worked off again, which changes nothing."""
        while ids:
            try:
                await self._inbox.done(ids)
            except StorageUnavailable as error:
                _log.warning("worked-off events cannot be noted yet", reason=str(error))
                await self._clock.sleep(_RETRY)
            else:
                return

    async def _until_done(self, run: list[Item], queue: Collection[Item]) -> list[int]:
        """Work a run of events off; returns the ids of those that were not given up, which is noted already.

        `queue` has the run and all that waits behind it.
        """
        try:
            return await self._try_until_done(run, queue)
        finally:
            self._trouble.recorded(run)

    async def _try_until_done(self, run: list[Item], queue: Collection[Item]) -> list[int]:
        """Who has to wait lets others have the slot: they may be about ledgers that can be written."""
        while True:
            try:
                async with self._slots:
                    await self._process(run)
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("an event has to wait", event_id=run[0].event.event_id, reason=str(error))
                self._trouble.waits(queue, str(error))
                await self._clock.sleep(_RETRY)
            except StorageUnavailable as error:
                _log.warning("an event has to wait", event_id=run[0].event.event_id, reason=str(error))
                await self._clock.sleep(_RETRY)
            except LedgerUnreadable as error:
                # Set aside: the next try starts a new file. Somebody has to know of the old one.
                _log.error("a ledger cannot be read", issue=error.issue, reason=str(error))
                await self._page_unreadable(error, run[0])
                await self._clock.sleep(_RETRY if error.aside is None else 0)
            except Exception:  # noqa: BLE001 - told with where, and paged
                # A fault of ours with one event: it must neither stop the others nor come back on every start.
                if len(run) > 1:
                    return [number for item in run for number in await self._until_done([item], queue)]
                _log.exception("an event could not be worked off", event_id=run[0].event.event_id)
                await self._give_up(run[0])
                return []
            else:
                return [item.id for item in run]

    async def _page_unreadable(self, error: LedgerUnreadable, item: Item) -> None:
        while True:
            try:
                return await self._notifier.ledger_unreadable(error, item.event.agent_id)
            except StorageUnavailable as problem:
                _log.warning("a page has to wait", issue=error.issue, reason=str(problem))
                await self._clock.sleep(_RETRY)

    async def _give_up(self, item: Item) -> None:
        while True:
            try:
                await self._notifier.not_worked_off(item)
                await self._inbox.failed([item.id])
            except StorageUnavailable as error:
                _log.warning("a failed event has to wait", event_id=item.event.event_id, reason=str(error))
                await self._clock.sleep(_RETRY)
            else:
                return

    async def _process(self, run: list[Item]) -> None:
        for item in run:
            _log_envelope(item)
        fresh = await self._open(run[0].issue, run) if run[0].event.question is not None else run
        for item in fresh:
            await self._session_news(item)
            await self._notifier.event(item)

    async def _open(self, issue: int | None, run: list[Item]) -> list[Item]:
        """Write a run of questions into their ledger; returns those that were not there before."""
        if issue is None:
            return run
        await self._answers_told(run[0])
        asks = [ask(item) for item in run]
        if any(between_agents(each) for each in asks):  # workflows are files
            asks = await asyncio.to_thread(lambda: [within(each, self._scopes) for each in asks])
        opened = await self._router.open_all(issue, asks)
        for item, each in zip(run, opened, strict=True):
            _log.info("clarification", id=each.record.id, how=each.how, event_id=item.event.event_id)
        return [item for item, each in zip(run, opened, strict=True) if each.how != "duplicate"]

    async def _answers_told(self, item: Item) -> None:
        """Whether a question follows up on an answer shows only once it is known that the agent has that answer.

        Its next question can be here before its response to our reply was read.
        """
        mine = self._index.of_session(item.producer, item.event.session_id)
        await self._replies_settled([each.id for each in mine if each.reply == "sending"], _REPLY_PATIENCE)

    async def _session_news(self, item: Item) -> None:
        """What the event says about the other clarifications of its session."""
        event = item.event
        known = self._index.of_session(item.producer, event.session_id)
        left = event.text("from_state") == "awaiting_input" and event.text("to_state") != "awaiting_input"
        # A session can have questions in several ledgers: with several open nobody can tell which is void.
        left = left and len({summary.issue for summary in known if summary.is_open}) == 1
        news = SessionNews(
            producer=item.producer,
            session_id=event.session_id,
            type=event.type,
            sent=event.timestamp,
            at=item.received_at if item.live else item.at,
            left_awaiting=event.type == aaep.STATE_CHANGED and left,
        )
        for issue in {summary.issue for summary in known if concerns(news, summary)}:
            await self._router.session_went_on(issue, news)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("intake died", task=task.get_name(), error=repr(error))
        if not self.failed.done():
            self.failed.set_exception(error)


def _log_envelope(item: Item) -> None:
    event = item.event
    _log.info(
        "event",
        type=event.type,
        event_id=event.event_id,
        session_id=event.session_id,
        timestamp=event.timestamp.isoformat(),
        agent_id=event.agent_id,
        problems=list(event.problems),
    )
