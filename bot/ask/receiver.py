"""Turns the frames of a producer's stream, or its posts, into stored events.

Every frame ends as a stored event, a page, or a count.
"""

from __future__ import annotations

import json
import random
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import structlog

from bot.ask.clocks import ClockOffset
from bot.ask.inbox import Arrived, Inbox, Incoming
from bot.ask.sse import Frame, Oversize, head_field, may_be_critical
from bot.errors import ClarifyBotError, StorageError
from core.aaep import IGNORED_TYPES, Event, NotAnEvent, parse_event
from core.clock import Clock, backoff
from core.workflow import Speaker, role_name

_T = TypeVar("_T")
_LONGEST_STORAGE_WAIT = 10.0
_KINDS = 1000
_LATE = timedelta(minutes=2)  # an older post was kept back, or a clock was set
_SESSIONS = 10_000
_log = structlog.get_logger("clarify.intake")


@dataclass(frozen=True, slots=True)
class StreamTrouble:
    """Something critical that could not be stored: pages a human with `summary`, which has no contents.

    `key` groups similar troubles; `agent_id` and `session_id` are set if readable.
    """

    producer: str
    key: str
    summary: str
    agent_id: str | None = None
    session_id: str | None = None


ReportTrouble = Callable[[StreamTrouble], Awaitable[None]]


class NotItsAgent(ClarifyBotError):
    """The event names an agent that its producer may not speak for."""

    def __init__(self) -> None:
        super().__init__(
            "This producer may not speak for that agent. Use one of `agents` in its [[producers]] table."
        )


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame, and when and how it arrived.

    `live`: just emitted; `filtered`: the producer leaves events out; `resumable`: the producer sends again what we did not
    store.
    """

    frame: Frame | Oversize
    received_at: datetime
    live: bool
    filtered: bool = False
    resumable: bool = False

    @property
    def size(self) -> int:
        return self.frame.size if isinstance(self.frame, Frame) else len(self.frame.head)

    @property
    def cursor(self) -> str | None:
        """The SSE `id` to resume after."""
        return self.frame.id if isinstance(self.frame, Frame) else None


@dataclass(slots=True)
class Counters:
    """Counts one producer's events since the start."""

    events: int = 0
    skimmed: int = 0
    oversize: int = 0
    unreadable: int = 0
    refused: int = 0
    not_utf8: int = 0
    missing: int = 0
    connections: int = 0


@dataclass(kw_only=True, eq=False)
class Receiver:
    """Puts one producer's arrivals into the inbox in order, several in one transaction.

    `waits`: retry while the storage is unavailable, as the producer gets no response; otherwise raise its error.
    """

    speaker: Speaker
    inbox: Inbox
    clock: Clock
    rng: random.Random
    report_trouble: ReportTrouble
    waits: bool = True
    offset: ClockOffset = field(default_factory=ClockOffset)
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self._producer = self.speaker.producer
        self._gaps = Gaps()
        self._warned: set[object] = set()
        self._away_until = self.clock.now()
        self._log = _log.bind(producer=self._producer)

    def status(self, **of: Any) -> dict[str, Any]:
        """Returns a producer's status: what the connection knows, and the counters."""
        known = {"last_error": None, "last_heard": None, "backlog": 0} | of
        return known | {"offset_seconds": self.offset.offset.total_seconds(), **asdict(self.counters)}

    async def take(self, *arrivals: Arrival) -> None:
        """Returns once each arrival is stored, paged about, or dropped as never shown."""
        read = [await self._read(arrival) for arrival in arrivals]
        events = [self._incoming(event, arrival) for event, arrival in filter(None, read)]
        if events:
            await self._store(events)

    async def take_one(self, frame: Frame, check: Callable[[Event], None]) -> tuple[Event, Arrived]:
        """Stores one event of a producer that waits for our response. Errors go to it and page no one.

        Raises:
            ValueError, RecursionError: the frame is not an event.
            ClarifyBotError: `check` refuses the event.
            NotItsAgent: the producer may not speak for the event's agent.
            StorageError: nothing was stored.
        """
        arrival = Arrival(frame, self.clock.now(), live=False)
        try:
            event = self._parse(arrival, frame)
        except (ValueError, RecursionError) as error:
            self.counters.unreadable += 1
            reason = _reason(error, torn=frame.torn)
            self._log_once((reason,))("not an event", size=frame.size, reason=reason)
            raise
        self._check(event, check)
        arrival = replace(arrival, live=not self._kept_back(event, arrival.received_at))
        if not self._is_kept(event, arrival, frame):
            return event, "new"
        try:
            (arrived,) = await self._store([self._incoming(event, arrival, refusable=True)])
        except StorageError:
            self._away_until = self.clock.now()
            raise
        return event, arrived

    def _check(self, event: Event, check: Callable[[Event], None]) -> None:
        try:
            check(event)
            if not self.speaker.may_be(event.agent_id):
                raise NotItsAgent
        except ClarifyBotError as error:
            self.counters.refused += 1
            self._log_once((event.type, str(error)))(
                "event refused",
                event_id=event.event_id,
                session_id=event.session_id,
                reason=str(error),
            )
            raise

    def _kept_back(self, event: Event, received: datetime) -> bool:
        """Whether an agent kept a posted event back while we were away.

        An event that is dated to a time when we received everything was not. A question that would arrive expired means a
        slow clock, as its agent still waits.
        """
        at = self.offset.sent_at(event.timestamp, received, live=False)
        if received - at <= _LATE or at >= self._away_until:
            return False
        expiry = _expiry(event, at)
        return expiry is None or received < expiry

    async def _read(self, arrival: Arrival) -> tuple[Event, Arrival] | None:
        """Returns an arrival's event if it should be stored. Pages a human if it may be critical and is unreadable."""
        if isinstance(arrival.frame, Oversize):
            await self._oversize(arrival.frame)
            return None
        try:
            event = self._parse(arrival, arrival.frame)
        except (ValueError, RecursionError) as error:
            await self._unreadable(arrival, arrival.frame, error)
            return None
        if not self.speaker.may_be(event.agent_id):
            await self._not_its_agent(event)
            return None
        return (event, arrival) if self._is_kept(event, arrival, arrival.frame) else None

    def _is_kept(self, event: Event, arrival: Arrival, frame: Frame) -> bool:
        """Whether to store an event; also updates the producer's clock and counters."""
        self._observe(event, arrival, frame.skimmed)
        if event.type in IGNORED_TYPES and not event.critical:
            self.counters.skimmed += 1
            return False
        self.counters.events += 1
        return True

    def _incoming(self, event: Event, arrival: Arrival, *, refusable: bool = False) -> Incoming:
        """Returns the event with its times converted to our clock."""
        at = self.offset.sent_at(event.timestamp, arrival.received_at, live=arrival.live)
        return Incoming(
            producer=self._producer,
            event=event,
            received_at=arrival.received_at,
            at=at,
            expires_at=_expiry(event, at),
            cursor=arrival.cursor,
            live=arrival.live,
            refusable=refusable,
        )

    def _parse(self, arrival: Arrival, frame: Frame) -> Event:
        event = parse_event(json.loads(frame.data), arrival.received_at)
        if not frame.replaced:
            return event
        self.counters.not_utf8 += 1
        return replace(event, problems=(*event.problems, "not UTF-8"))

    def _observe(self, event: Event, arrival: Arrival, skimmed: int) -> None:
        if event.problems:
            self._log_once((event.type, event.problems))(
                "event breaks its schema",
                type=event.type,
                event_id=event.event_id,
                session_id=event.session_id,
                problems=event.problems,
            )
        if event.timestamp is not arrival.received_at:
            self.offset.observe(event.timestamp, arrival.received_at, live=arrival.live)
        if event.sequence_number is None or arrival.filtered:
            return
        missing = self._gaps.missing(event.session_id, event.sequence_number, skimmed)
        if missing:
            self.counters.missing += missing
            self._log.warning(
                "events missing",
                session_id=event.session_id,
                before=event.sequence_number,
                missing=missing,
            )

    async def _store(self, events: Sequence[Incoming]) -> Sequence[Arrived]:
        try:
            return await self._until_stored(lambda: self.inbox.put(*events))
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001  one bad event must not stop the rest
            if len(events) == 1:
                await self._not_stored(events[0].event, error)
                return ["new"]
            return [arrived for each in events for arrived in await self._store([each])]

    async def _not_stored(self, event: Event, error: Exception) -> None:
        self._log.error(
            "cannot accept an event",
            error=_place(error),
            type=event.type,
            event_id=event.event_id,
            session_id=event.session_id,
        )
        await self._report(
            f"failed:{event.session_id}",
            f"An event of type {event.type} could not be processed. Search the log for {event.event_id}.",
            agent_id=event.agent_id,
            session_id=event.session_id,
        )

    async def _oversize(self, frame: Oversize) -> None:
        self.counters.oversize += 1
        kind = head_field(frame.head, "type") or "unknown type"
        self._log.error("skipped an event larger than 1 MiB", type=kind)
        await self._report_lost(
            "oversize:", f"An event ({kind}) was larger than 1 MiB and was skipped.", frame.head
        )

    async def _unreadable(self, arrival: Arrival, frame: Frame, error: Exception) -> None:
        self.counters.unreadable += 1
        reason = _reason(error, torn=frame.torn)
        critical = may_be_critical(frame.data)
        self._log_once((reason, critical))(
            "not an event", size=frame.size, reason=reason, may_be_critical=critical
        )
        if critical and not (frame.torn and arrival.resumable):
            looks = f"A message that looks like a critical event could not be read ({reason}, {frame.size} bytes)."
            await self._report_lost("unreadable:", looks, frame.data)

    async def _report_lost(self, key: str, summary: str, head: str) -> None:
        """Pages a human because of an event of which only the beginning can be read."""
        session_id = head_field(head, "session_id")
        await self._report(
            f"{key}{session_id}", summary, agent_id=head_field(head, "agent_id"), session_id=session_id
        )

    async def _not_its_agent(self, event: Event) -> None:
        self.counters.refused += 1
        self._log_once(("agent", event.agent_id))(
            "event of another agent", type=event.type, event_id=event.event_id, agent_id=event.agent_id
        )
        if event.critical:
            await self._report(  # without agent_id: its own route decides, not the impersonated agent's
                f"agent:{self._producer}:{event.agent_id}",
                f"An event ({event.type}) named the agent {role_name(event.agent_id)}, for which this producer may not "
                "speak. It was skipped. The producer's [[producers]] table lists its agents in `agents`.",
                agent_id=None,
                session_id=event.session_id,
            )

    def _log_once(self, kind: object) -> Callable[..., object]:
        """Returns `warning` for the first of a kind, then `debug`: a broken producer must not fill the log."""
        if kind in self._warned or len(self._warned) >= _KINDS:
            return cast("Callable[..., object]", self._log.debug)
        self._warned.add(kind)
        return cast("Callable[..., object]", self._log.warning)

    async def _report(self, key: str, summary: str, *, agent_id: str | None, session_id: str | None) -> None:
        trouble = StreamTrouble(self._producer, key, summary, agent_id=agent_id, session_id=session_id)
        await self._until_stored(lambda: self.report_trouble(trouble))

    async def _until_stored(self, store: Callable[[], Awaitable[_T]]) -> _T:
        attempt = 0
        while True:
            try:
                return await store()
            except StorageError as error:
                if not self.waits:
                    raise
                chance = self.rng.random()
                delay = backoff(attempt, first=0.5, longest=_LONGEST_STORAGE_WAIT, spread=1.0, chance=chance)
                attempt += 1
                self._log.error("cannot store an event, will retry", reason=str(error), attempt=attempt)
                await self.clock.sleep(delay)


class Gaps:
    """Finds lost events: keeps each session's last number, and how many events were skimmed by then.

    Skimmed events have numbers, too, which we do not read. So we allow as many gaps as events were skimmed in between: a
    loss may go unnoticed, but every reported one is real.
    """

    def __init__(self) -> None:
        self._last: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def missing(self, session_id: str, number: int, skimmed: int) -> int:
        """Returns how many of the session's events are certainly missing before `number`; 0 for replays.

        `skimmed`: how many events were skimmed so far, of all sessions.
        """
        known = self._last.get(session_id)
        if known is not None and number <= known[0]:
            return 0
        self._last[session_id] = (number, skimmed)
        self._last.move_to_end(session_id)
        if len(self._last) > _SESSIONS:
            self._last.popitem(last=False)
        return 0 if known is None else max(0, number - known[0] - 1 - (skimmed - known[1]))


def _place(error: BaseException) -> str:
    """Returns the exception's class and place, without its text, which may quote the event."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _reason(error: Exception, *, torn: bool) -> str:
    """Returns why a frame is not an event, without contents: the JSON decoder's exception holds the document."""
    if torn:
        return "the connection ended before it was complete"
    if isinstance(error, NotAnEvent):
        return str(error)
    return "nested too deeply" if isinstance(error, RecursionError) else "not JSON"


def _expiry(event: Event, at: datetime) -> datetime | None:
    """Returns when the question of an event sent `at` expires."""
    if event.timeout_seconds is None:
        return None
    try:
        return at + timedelta(seconds=event.timeout_seconds)
    except OverflowError:  # a timestamp in the year 9999
        return datetime.max.replace(tzinfo=UTC)
