"""Processes inbox events in order per session and passes them to the router or to notices. Also tracks recent sessions, and builds
what handles agents' events (connections, inbox, intake) and the replies to them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import structlog

from bot.ask.inbox import AT_ONCE, Inbox, Incoming, declared_issue, seen_sessions
from bot.ask.producers import Producers
from bot.ask.questions import Questions
from bot.base import Base
from bot.errors import StorageUnavailable
from bot.intake.notices import Channels, Notices, Teller
from bot.oncall.build import OnCallBoard
from bot.routing import Audiences
from bot.show.delivery import ShowParts
from bot.show.replies import Replies
from bot.signing import Owing
from bot.storage.store import Store, until_stored
from bot.views.locale import reads_rtl
from core import aaep
from core.aaep import Event
from core.clarification import HUMAN, TOPIC_LIMIT, Ask, Clarification, agent_key
from core.clock import Clock
from core.errors import (
    BadInput,
    ClarifyError,
    LedgerUnwritable,
    LockTimeout,
    ScopeViolation,
)
from core.hub import HIGHEST_ISSUE, check_role, check_text, limited
from core.index import Index, Session, SessionFact, going_on, session_of
from core.matching import SessionNews, concerns
from core.records import closed_at
from core.router import BODY_LIMIT, Router
from core.workflow import Scopes

_T = TypeVar("_T")
_log = structlog.get_logger("clarify.intake")
_RETRY = 0.5
_REPLY_PATIENCE = 3.0
_MARKED_TOGETHER = 20  # events of one session, at most
_SESSIONS_AT_ONCE = 32
_REMEMBERED = timedelta(days=1)
_MOST_REMEMBERED = 5_000


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Intake:
    """Processes the inbox: questions go to the router, everything else to `notices`.

    `replies_settled(clarifications, seconds)` waits at most that long until the outcome of their replies is known. `seen`
    is called with each event before it is processed. `failed` gets the exception if processing a session dies.
    """

    inbox: Inbox
    router: Router
    scopes: Scopes
    audiences: Audiences
    index: Index
    notices: Notices
    replies_settled: Callable[[list[str], float], Awaitable[None]]
    seen: Callable[[Incoming], None]
    clock: Clock
    _idle: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_reading: bool = field(default=False, init=False)
    _slots: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(_SESSIONS_AT_ONCE), init=False
    )
    _sessions: dict[tuple[str, str], deque[Incoming]] = field(
        default_factory=dict, init=False
    )  # the events being processed come first
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    failed: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future(), init=False
    )

    async def drained(self) -> None:
        """Returns when every stored event is processed."""
        while self._is_busy():
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Processes the inbox until cancelled."""
        last = 0
        self.inbox.news.set()
        while True:
            await self.inbox.news.wait()
            self._is_reading = True
            self.inbox.news.clear()
            more = True
            while more:
                items = await self._stored(partial(self.inbox.following, last), "reading the inbox delayed")
                more = len(items) == AT_ONCE
                for item in items:
                    last = item.id
                    self.seen(item)
                    self._queue(item)
            self._is_reading = False
            self._note_idle()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _queue(self, item: Incoming) -> None:
        """Queues an event behind the others of its session; sessions do not wait for each other."""
        session = (item.producer, item.event.session_id)
        if session in self._sessions:
            self._sessions[session].append(item)
            return
        self._sessions[session] = deque([item])
        self._run(self._work(session), f"intake {item.producer}")

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._note_idle()
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.error("intake failed", task=task.get_name(), error=repr(error))
        if not self.failed.done():
            self.failed.set_exception(error)

    def _note_idle(self) -> None:
        if not self._is_busy():
            self._idle.set()

    def _is_busy(self) -> bool:
        return bool(self._tasks) or self._is_reading or self.inbox.news.is_set()

    async def _work(self, session: tuple[str, str]) -> None:
        queue = self._sessions[session]
        while queue:
            done: list[int] = []
            for run in _runs(list(islice(queue, _MARKED_TOGETHER))):
                done += await self._until_done(run)
                for _ in run:
                    queue.popleft()
            if done:
                # Marked together: after a crash they are processed again, which changes nothing.
                marking = self._stored(partial(self.inbox.done, done), "cannot mark processed events yet")
                self._run(marking, "mark processed events")
        del self._sessions[session]

    async def _until_done(self, run: list[Incoming]) -> list[int]:
        """Processes a run of events. Returns the ids to mark as done, without events given up, which are marked already.

        Before a retry, the run frees its slot for other sessions, whose records may not be locked.
        """
        while True:
            try:
                async with self._slots:
                    await self._process(run)
                return [item.id for item in run]
            except (LockTimeout, LedgerUnwritable, StorageUnavailable) as error:
                _log.warning("event delayed", event_id=run[0].event.event_id, reason=str(error))
            except Exception:  # noqa: BLE001 - logged and paged
                # A fault of ours with one event must neither stop the others nor return on every start.
                if len(run) > 1:
                    return [number for item in run for number in await self._until_done([item])]
                _log.exception("cannot process an event", **_envelope(run[0]))
                await self._stored(partial(self._give_up, run[0]), "marking a failed event delayed")
                return []
            await self.clock.sleep(_RETRY)

    async def _give_up(self, item: Incoming) -> None:
        await self.notices.not_processed(item)
        await self.inbox.failed([item.id])

    async def _stored(self, work: Callable[[], Awaitable[_T]], otherwise: str) -> _T:
        return await until_stored(work, self.clock, _log, otherwise)

    async def _process(self, run: list[Incoming]) -> None:
        for item in await self._fresh(run):
            await self._session_news(item)
            await self.notices.event(item)

    async def _fresh(self, run: list[Incoming]) -> list[Incoming]:
        """Writes the questions of a run into their ledger; returns the events that were not processed before."""
        issue = run[0].issue
        if issue is None or run[0].event.question is None:
            for item in run:
                _log.info("event", **_envelope(item))
            return run
        await self._replies_known(run[0])
        asks = [self.audiences.bounded(_ask(item)) for item in run]
        if any(_is_between_agents(each) for each in asks):  # workflows are files
            asks = await asyncio.to_thread(lambda: [_within(each, self.scopes) for each in asks])
        opened = await self.router.open_all(issue, asks)
        for item, each in zip(run, opened, strict=True):
            _log.info("event", **_envelope(item), clarification=each.record.id, how=each.how)
        return [item for item, each in zip(run, opened, strict=True) if each.how != "duplicate"]

    async def _replies_known(self, item: Incoming) -> None:
        """Waits until it is known which answers the session's agent has.

        Only then is it clear whether its question is a follow-up: the question can arrive before we read the agent's
        response to our reply.
        """
        mine = self.index.of_session(item.producer, item.event.session_id)
        await self.replies_settled([each.id for each in mine if each.reply == "sending"], _REPLY_PATIENCE)

    async def _session_news(self, item: Incoming) -> None:
        """Tells the router that the session went on, if that concerns its other clarifications."""
        event = item.event
        known = self.index.of_session(item.producer, event.session_id)
        left = event.text("from_state") == "awaiting_input" and event.text("to_state") != "awaiting_input"
        news = SessionNews(
            producer=item.producer,
            session_id=event.session_id,
            type=event.type,
            sent=event.timestamp,
            at=item.received_at if item.live else item.at,
            left_awaiting=event.type == aaep.STATE_CHANGED and left,
        )
        # Another bot may have recorded a question that is not known here yet.
        may_concern_others = news.left_awaiting or news.type in aaep.SESSION_ENDS
        if any(concerns(news, each) for each in known) or (self.inbox.store.is_shared and may_concern_others):
            await self.router.session_went_on(news)


def _envelope(item: Incoming) -> dict[str, object]:
    """Returns the fields that log lines have of an event: none of its content."""
    event = item.event
    return {
        "type": event.type,
        "event_id": event.event_id,
        "session_id": event.session_id,
        "agent_id": event.agent_id,
        "problems": event.problems,
    }


def _runs(items: list[Incoming]) -> list[list[Incoming]]:
    """Groups events, in their order: consecutive questions of one issue are written into its ledger together."""
    grouped: list[list[Incoming]] = []
    for item in items:
        last = grouped[-1][-1] if grouped else None
        is_question = item.event.question is not None
        if last is not None and is_question and last.event.question is not None and last.issue == item.issue:
            grouped[-1].append(item)
        else:
            grouped.append([item])
    return grouped


def _ask(item: Incoming) -> Ask:
    """Returns a question event as the router takes it."""
    event, question = item.event, item.event.question
    if question is None:
        raise ClarifyError(f"event {event.event_id} asks nothing")
    return question.under(
        producer=item.producer,
        received_at=item.received_at,
        expires_at=item.expires_at,
        held_back=None if question.asked.is_confirmation else _misaddressed(event),
        rtl=reads_rtl(event.raw.get("localization_hints")) or None,
    )


def _misaddressed(event: Event) -> str | None:
    """Returns why it is unclear which agent is asked, or about which issue; None if it is clear."""
    agentx = event.extension("agentx")
    to, issue = agentx.get("to"), agentx.get("issue")
    if to is not None and not (isinstance(to, str) and to.strip()):
        return "The target (to) must be a role."
    if to is None or agent_key(to) == HUMAN or issue is None or declared_issue(event) is not None:
        return None
    return f"Its issue is not a whole number from 1 to {HIGHEST_ISSUE}."


def _is_between_agents(asking: Ask) -> bool:
    return agent_key(asking.to) != HUMAN


def _within(asking: Ask, scopes: Scopes) -> Ask:
    """Returns a question with the limits of the workflow that allows it. Blocking: workflows are files.

    If no workflow allows it, or it is too long for an agent, it goes to people instead of its target.
    """
    if not _is_between_agents(asking) or asking.asked.held_back is not None:
        return asking
    try:
        allowed = limited(asking, scopes)
        check_role("target (to)", asking.to)
        check_text("topic", asking.topic or "", TOPIC_LIMIT, may_be_empty=True)
        check_text("question", asking.question, BODY_LIMIT)
    except (ScopeViolation, BadInput) as error:
        return asking.under(held_back=str(error))
    return allowed


@dataclass(eq=False)
class Sessions:
    """The sessions with events or direct questions in the last day, at most 5,000, for the lists of agents.

    They are in memory once `load` was called: from then on, `note` gets every event. Until then, another bot leads and gets the
    events, so each list reads them from the storage.
    """

    store: Store
    index: Index
    clock: Clock
    _known: OrderedDict[Session, SessionFact] = field(default_factory=OrderedDict, init=False)
    _over: OrderedDict[Session, datetime] = field(
        default_factory=OrderedDict, init=False
    )  # when their last direct question was
    _hears: bool = field(default=False, init=False)

    def record_changed(self, record: Clarification) -> None:
        """Notes when a direct question of the session was asked, and when it was over."""
        if record.asked.direct is None:
            return
        key = session_of(record)
        before = self._known.get(key)
        since = self.clock.now() - _REMEMBERED if before is None else _last_event(before)
        at = record.asked.received_at or record.created
        if at > since:
            self._put(
                SessionFact(
                    *key,
                    agent_id=record.from_,
                    agent_name=before.agent_name if before else None,
                    issue=record.issue_number,
                    ended=False,
                    last_event_at=at,
                    is_direct=before is None or before.is_direct,
                )
            )
        if (over := closed_at(record)) is not None:
            self._over.pop(key, None)
            self._over[key] = over
            if len(self._over) > _MOST_REMEMBERED:
                self._over.popitem(last=False)

    async def load(self) -> None:
        """Reads the sessions from before the restart.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        await self.read()
        self._hears = True

    async def read(self) -> None:
        """Reads the sessions again, since some of what they said was forgotten.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        for fact in await seen_sessions(self.store, self.clock.now() - _REMEMBERED, _MOST_REMEMBERED):
            self._known[fact.producer, fact.session_id] = fact

    def note(self, item: Incoming) -> None:
        """Updates the session of an event."""
        event = item.event
        key = (item.producer, event.session_id)
        before = self._known.get(key)
        self._put(
            SessionFact(
                *key,
                agent_id=event.agent_id,
                agent_name=event.agent_name or (before.agent_name if before else None),
                issue=(item.issue if event.question else None) or (before.issue if before else 0),
                ended=event.type in aaep.SESSION_ENDS,
                last_event_at=item.received_at,
            )
        )

    def _put(self, fact: SessionFact) -> None:
        key = fact.producer, fact.session_id
        self._known.pop(key, None)
        self._known[key] = fact
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)

    async def facts(self) -> list[SessionFact]:
        """Returns the active sessions, the one with the latest event last.

        Raises:
            StorageUnavailable: another bot leads, and they cannot be read now.
        """
        if not self._hears:
            await self.read()
        since = self.clock.now() - _REMEMBERED
        while self._known and _last_event(next(iter(self._known.values()))) < since:
            self._known.popitem(last=False)
        for key, fact in list(self._known.items()):
            # A session has no issue until it asks something.
            if not fact.issue and (asked := self.index.of_session(*key)):
                self._known[key] = replace(fact, issue=asked[0].issue_number)
        waits = self.index.of_session
        return going_on(self._known.values(), lambda key: bool(waits(*key)), self._over, self.clock.now())


def _last_event(fact: SessionFact) -> datetime:
    return fact.last_event_at or datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AgentParts:
    """The parts that take in what agents and other programs send, and that reply to agents."""

    sessions: Sessions
    teller: Teller
    notices: Notices
    channels: Channels
    owing: Owing
    inbox: Inbox
    producers: Producers
    replies: Replies
    intake: Intake
    questions: Questions


def build(
    base: Base,
    board: OnCallBoard,
    show: ShowParts,
    *,
    on_put: Callable[[], None],
    on_event: Callable[[Incoming], None],
    wake_feed: Callable[[], None],
) -> AgentParts:
    """`on_put` is called when events arrive here; `on_event` before an event is processed, wherever it arrived. `wake_feed`:
    see `Questions`.
    """
    settings, store, ledger, clock, router = base.settings, base.store, base.ledger, base.clock, base.router
    teller = Teller(
        settings=settings, incidents=board.incidents, delivery=show.delivery, renderer=base.renderer
    )
    notices = Notices(
        settings=settings,
        incidents=board.incidents,
        delivery=show.delivery,
        messages=board.messages,
        renderer=base.renderer,
        teller=teller,
    )
    inbox = Inbox(store, on_put=on_put)
    producers = Producers(
        settings.producers,
        token_of=settings.producer_token,
        inbox=inbox,
        store=store,
        clock=clock,
        rng=base.rng,
        report_trouble=notices.event_lost,
        telemetry=base.telemetry,
    )
    replies = Replies(
        producers=producers,
        router=router,
        ledger=ledger,
        store=store,
        acts=base.acts,
        clock=clock,
        rng=base.rng,
        raise_incident=board.incidents.raise_,
    )
    sessions = Sessions(store, base.index, clock)

    def seen(item: Incoming) -> None:
        sessions.note(item)
        on_event(item)

    intake = Intake(
        inbox=inbox,
        router=router,
        scopes=base.scopes,
        audiences=base.audiences,
        index=base.index,
        notices=notices,
        replies_settled=replies.outbox.settled,
        seen=seen,
        clock=clock,
    )

    async def on_call() -> tuple[str, ...]:
        policy = settings.route_for("").on_call
        return await board.roster.on_call(policy) if policy is not None else ()

    return AgentParts(
        sessions=sessions,
        teller=teller,
        notices=notices,
        channels=Channels(
            settings=settings,
            web=base.web,
            messenger=show.messenger,
            delivery=show.delivery,
            on_call=on_call,
            store=store,
            clock=clock,
        ),
        owing=Owing(ledger=ledger, router=router, clock=clock),
        inbox=inbox,
        producers=producers,
        replies=replies,
        intake=intake,
        questions=Questions(
            {each.name: each for each in settings.producers},
            store=store,
            index=base.index,
            ledger=ledger,
            router=router,
            trouble_with=board.access.trouble_with,
            bounded=base.audiences.bounded,
            wake_feed=wake_feed,
            clock=clock,
        ),
    )
