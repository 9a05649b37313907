"""From frames to the inbox: every frame ends as an event that is stored, a page, or a count."""

from __future__ import annotations

import json
import math
import random
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar, cast

import structlog

from bot.errors import ClarifyBotError, StorageError
from bot.ports import Arrived, Inbox, Incoming, TellTrouble, Trouble
from bot.producers.backlog import Arrival, Backlog
from bot.producers.gaps import Gaps
from bot.producers.offset import ClockOffset
from bot.producers.skim import may_be_critical
from bot.producers.stream import Frame, Oversize, head_field
from core.aaep import IGNORED_TYPES, Event, NotAnEvent, parse_event
from core.clock import Clock, backoff
from core.workflow import Speaker

_T = TypeVar("_T")
_STORAGE_CAP = 10.0
_KINDS = 1000
_AT_ONCE = 100  # stored in one transaction
# What is posted later than this was kept back, or a clock was set.
_LATE = timedelta(minutes=2)
_AGENTS = 1000
log = structlog.get_logger(__name__)


_LONGEST_NAME = 80


class NotItsAgent(ClarifyBotError):
    """An event names an agent for which its producer may not speak."""

    def __init__(self) -> None:
        super().__init__(
            "This producer may not speak for that agent; `agents` of its [[producers]] table says for which."
        )


@dataclass(slots=True)
class Counters:
    """What came from one producer since the start."""

    events: int = 0
    skimmed: int = 0
    oversize: int = 0
    unreadable: int = 0
    refused: int = 0
    not_utf8: int = 0
    missing: int = 0
    connections: int = 0


class Intake:
    """Deals with one producer's arrivals, in order: those that wait are stored together, at the price of one."""

    def __init__(
        self,
        speaker: Speaker,
        backlog: Backlog,
        *,
        inbox: Inbox,
        clock: Clock,
        rng: random.Random,
        tell_trouble: TellTrouble,
        offset: ClockOffset,
        counters: Counters,
        waits: bool = True,
    ) -> None:
        """`waits` for a storage that refuses, since the producer is told nothing; otherwise its error is raised."""
        self._speaker, self._producer = speaker, speaker.producer
        self._backlog = backlog
        self._inbox = inbox
        self._clock = clock
        self._rng = rng
        self._tell_trouble = tell_trouble
        self._offset = offset
        self._counters = counters
        self._waits = waits
        self._gaps = Gaps()
        self._told: set[object] = set()
        self._away_until = clock.steady()
        self._heard: dict[str, float] = {}
        self._log = log.bind(producer=speaker.producer)

    async def run(self) -> None:
        """Empties the backlog for ever."""
        while True:
            arrivals = await self._backlog.first(_AT_ONCE)
            await self.take(*arrivals)
            self._backlog.done(len(arrivals))

    async def take(self, *arrivals: Arrival) -> None:
        """Returns once each arrival is stored, or a human was told, or it is nothing that anybody needs."""
        read = [await self._read(arrival) for arrival in arrivals]
        events = [incoming for incoming in read if incoming is not None]
        if events:
            await self._store(events)

    async def take_one(self, frame: Frame, check: Callable[[Event], None]) -> tuple[Event, Arrived]:
        """The same for a producer that waits for an answer: it is told what is wrong, and nobody else.

        Raises:
            ValueError, RecursionError: it is no event.
            ClarifyBotError: of `check`, which refuses events.
            NotItsAgent: it may not speak for the agent that the event names.
            StorageError: nothing was stored.
        """
        arrival = Arrival(frame, self._clock.now(), self._clock.steady(), live=False)
        try:
            event = self._parse(arrival, frame)
        except (ValueError, RecursionError) as error:
            self._counters.unreadable += 1
            reason = _reason(error, torn=frame.torn)
            self._level((reason,))("not an event", size=frame.size, reason=reason)
            raise
        self._check(event, check)
        live = not self._kept_back(event, arrival)
        incoming = self._incoming(event, replace(arrival, live=live, late=not live), frame)
        if incoming is None:
            return event, "new"
        try:
            (arrived,) = await self._store([replace(incoming, told=True)])
        except StorageError:
            self._away_until = self._clock.steady()
            raise
        return event, arrived

    def _check(self, event: Event, check: Callable[[Event], None]) -> None:
        try:
            check(event)
            if not self._speaker.may_be(event.agent_id):
                raise NotItsAgent
        except ClarifyBotError as error:
            self._counters.refused += 1
            self._level((event.type, str(error)))(
                "event refused",
                event_id=event.event_id,
                session_id=event.session_id,
                reason=str(error),
            )
            raise

    def _kept_back(self, event: Event, arrival: Arrival) -> bool:
        """Whether an agent kept a posted event back while we were away.

        An agent posts in order: what claims to be older than what it posted before was not kept back, its clock was
        set. Neither was what claims to be of a time when we took everything.
        """
        age = self._offset.age(event.timestamp, arrival.received_at, arrival.steady)
        sent = arrival.steady - age.total_seconds()
        agent = event.agent_id
        if age > _LATE and self._heard.get(agent, -math.inf) <= sent < self._away_until:
            return True
        self._heard.pop(agent, None)
        self._heard[agent] = arrival.steady
        if len(self._heard) > _AGENTS:
            del self._heard[next(iter(self._heard))]
        return False

    async def _read(self, arrival: Arrival) -> Incoming | None:
        """What is to be stored of an arrival; where that cannot be known, a human is told."""
        if isinstance(arrival.frame, Oversize):
            await self._oversize(arrival.frame)
            return None
        try:
            event = self._parse(arrival, arrival.frame)
        except (ValueError, RecursionError) as error:
            await self._unreadable(arrival, arrival.frame, error)
            return None
        if not self._speaker.may_be(event.agent_id):
            await self._not_its_agent(event)
            return None
        return self._incoming(event, arrival, arrival.frame)

    def _incoming(self, event: Event, arrival: Arrival, frame: Frame) -> Incoming | None:
        """What is to be stored of an event, if anything; notes what it says of the producer."""
        self._observe(event, arrival, frame.skimmed)
        if event.type in IGNORED_TYPES and not event.critical:
            self._counters.skimmed += 1
            return None
        self._counters.events += 1
        return Incoming(self._producer, event, arrival.received_at, frame.id, arrival.live)

    def _parse(self, arrival: Arrival, frame: Frame) -> Event:
        event = parse_event(json.loads(frame.data), arrival.received_at)
        if not frame.replaced:
            return event
        self._counters.not_utf8 += 1
        return replace(event, problems=(*event.problems, "not UTF-8"))

    def _observe(self, event: Event, arrival: Arrival, skimmed: int) -> None:
        if event.problems:
            self._level((event.type, event.problems))(
                "event breaks its schema",
                type=event.type,
                event_id=event.event_id,
                session_id=event.session_id,
                problems=event.problems,
            )
        if event.timestamp is not arrival.received_at:
            self._offset.observe(
                event.timestamp, arrival.received_at, arrival.steady, live=arrival.live, late=arrival.late
            )
        if event.sequence_number is None or arrival.filtered:
            return
        missing = self._gaps.missing(event.session_id, event.sequence_number, skimmed)
        if missing:
            self._counters.missing += missing
            self._log.warning(
                "events are missing",
                session_id=event.session_id,
                before=event.sequence_number,
                missing=missing,
            )

    async def _store(self, events: Sequence[Incoming]) -> Sequence[Arrived]:
        try:
            return await self._until_stored(lambda: self._inbox.put(*events))
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  one event that the inbox cannot digest must not stop the rest
            if len(events) == 1:
                await self._not_stored(events[0].event, error)
                return ["new"]
            return [arrived for each in events for arrived in await self._store([each])]

    async def _not_stored(self, event: Event, error: Exception) -> None:
        self._log.error(
            "event could not be taken in",
            error=_place(error),
            type=event.type,
            event_id=event.event_id,
            session_id=event.session_id,
        )
        await self._tell(
            f"failed:{event.session_id}",
            f"An event of type {event.type} could not be taken in; see the log for {event.event_id}.",
            agent_id=event.agent_id,
            session_id=event.session_id,
        )

    async def _oversize(self, frame: Oversize) -> None:
        self._counters.oversize += 1
        kind = head_field(frame.head, "type") or "unknown type"
        session_id = head_field(frame.head, "session_id")
        agent_id = head_field(frame.head, "agent_id")
        self._log.error("event larger than 1 MiB skipped", type=kind, session_id=session_id)
        await self._tell(
            f"oversize:{session_id}",
            f"An event ({kind}) was larger than 1 MiB and was not taken in.",
            agent_id=agent_id,
            session_id=session_id,
        )

    async def _unreadable(self, arrival: Arrival, frame: Frame, error: Exception) -> None:
        self._counters.unreadable += 1
        reason = _reason(error, torn=frame.torn)
        critical = may_be_critical(frame.data)
        self._level((reason, critical))(
            "not an event", size=frame.size, reason=reason, may_be_critical=critical
        )
        if not critical or (frame.torn and arrival.resumable):
            return
        session_id = head_field(frame.data, "session_id")
        await self._tell(
            f"unreadable:{session_id}",
            f"Something that names a critical event could not be read ({reason}, {frame.size} bytes).",
            agent_id=head_field(frame.data, "agent_id"),
            session_id=session_id,
        )

    async def _not_its_agent(self, event: Event) -> None:
        self._counters.refused += 1
        self._level(("agent", event.agent_id))(
            "event of another agent", type=event.type, event_id=event.event_id, agent_id=event.agent_id
        )
        if not event.critical:
            return
        await self._tell(  # where its own route says, not that of the agent whose name it took
            f"agent:{self._producer}:{event.agent_id}",
            f"An event ({event.type}) came as if from {event.agent_id[:_LONGEST_NAME]}, for which this producer may not "
            "speak, and was not taken in. `agents` of its [[producers]] table says for which it may.",
            agent_id=None,
            session_id=event.session_id,
        )

    def _level(self, kind: object) -> Callable[..., object]:
        """Warn of the first of a kind only: a producer that is always wrong must not fill the log."""
        if kind in self._told or len(self._told) >= _KINDS:
            return cast("Callable[..., object]", self._log.debug)
        self._told.add(kind)
        return cast("Callable[..., object]", self._log.warning)

    async def _tell(self, key: str, summary: str, *, agent_id: str | None, session_id: str | None) -> None:
        trouble = Trouble(self._producer, key, summary, agent_id=agent_id, session_id=session_id)
        await self._until_stored(lambda: self._tell_trouble(trouble))

    async def _until_stored(self, store: Callable[[], Awaitable[_T]]) -> _T:
        attempt = 0
        while True:
            try:
                return await store()
            except StorageError as error:
                if not self._waits:
                    raise
                chance = self._rng.random()
                delay = backoff(attempt, first=0.5, longest=_STORAGE_CAP, spread=1.0, chance=chance)
                attempt += 1
                self._log.error("storage refuses; waiting with it", reason=str(error), attempt=attempt)
                await self._clock.sleep(delay)


def _place(error: BaseException) -> str:
    """What was raised, and where: its text and its traceback's values may hold the event."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _reason(error: Exception, *, torn: bool) -> str:
    """Without contents: the JSON decoder's own message has none, but its exception holds the document."""
    if torn:
        return "the connection ended in the middle of it"
    if isinstance(error, NotAnEvent):
        return str(error)
    return "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
