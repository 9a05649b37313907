"""Reads a producer's stream, or its posts, and stores its events.

`FrameReader` parses Server-Sent Events (WHATWG HTML, section 9.2), with at most one frame of 1 MiB in memory. It splits whole
chunks, not lines, which would be slow while an agent streams its output. Events that are never shown, most of what agents
emit, are dropped there, so that they take no room from others while the storage is away.

`Receiver` decides which events were just emitted, and estimates the offset of the producer's clock. With it, every frame ends
as a stored event, a page, or a count.
"""

from __future__ import annotations

import json
import random
import re
import traceback
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

import structlog

from bot.ask.inbox import Arrived, Inbox, Incoming
from bot.errors import ClarifyBotError, StorageError
from core.aaep import CRITICAL_TYPES, IGNORED_TYPES, Event, NotAnEvent, core_type, parse_event
from core.clock import Clock, backoff
from core.workflow import Speaker, role_name

_SAMPLES = 8
_PLAUSIBLE = timedelta(hours=26)  # a clock in the wrong time zone; a larger offset is a broken timestamp
_JITTER = timedelta(seconds=5)  # how much the transit time of live events may vary
SETTLED = 1.0  # seconds
GAP = 0.2
MAX_EVENT = 1 << 20
MAX_FRAME = MAX_EVENT + 1024  # an event of 1 MiB and its field names and id
_HEAD = 4096
_BOM = b"\xef\xbb\xbf"
_MAX_RETRY = 3600.0
_URGENT = re.compile(r'"urgency"\s*:\s*"critical"')
_T = TypeVar("_T")
_LONGEST_STORAGE_WAIT = 10.0
_KINDS = 1000
_LATE = timedelta(minutes=2)  # an older post was kept back, or a clock was set
_SESSIONS = 10_000
_log = structlog.get_logger("clarify.intake")


class Burst:
    """Tells a connection's replayed events from its live ones, by their arrival in seconds of a steady clock.

    A producer replays at once and without pause. If the first event comes after a pause, there is no replay, unless we
    asked to resume (`resumed`). Otherwise events are live after the first pause and the connection's first second.
    """

    def __init__(self, opened: float, *, resumed: bool = False) -> None:
        self._opened = opened
        self._resumed = resumed
        self._last: float | None = None
        self._quiet = self._over = False

    def live(self, at: float) -> bool:
        """Whether events that arrive at `at` were just emitted."""
        paused = at - (self._opened if self._last is None else self._last) >= GAP
        if self._last is None:
            self._quiet = paused and not self._resumed
        self._over = self._over or paused
        self._last = at
        return self._quiet or (self._over and at - self._opened >= SETTLED)


class ClockOffset:
    """Estimates our clock minus the producer's from the arrival of its events.

    Every event arrives after it was sent, so each received − sent is an upper bound of the offset, and the lowest one is
    nearest. A bound that is too high would show people a deadline that is too late. Only the last few samples count, since
    clocks get set.
    """

    def __init__(self) -> None:
        self._samples: deque[timedelta] = deque(maxlen=_SAMPLES)

    def observe(self, sent: datetime, received: datetime, *, live: bool) -> None:
        """Adds the sample of one event. `live`: it was just emitted; a replayed event only limits the offset."""
        sample = received - sent
        if abs(sample) <= _PLAUSIBLE and (live or sample < self.offset):
            self._samples.append(sample)

    @property
    def offset(self) -> timedelta:
        """The lowest of the last samples; zero if there is none."""
        return min(self._samples, default=timedelta(0))

    def sent_at(self, sent: datetime, received: datetime, *, live: bool) -> datetime:
        """Returns when an event was sent, on our clock.

        A live event was sent at most a few seconds before it arrived, even if its clock was set. An event without a
        timestamp (`sent` is `received`) was sent when it arrived.
        """
        if sent is received:
            return received
        try:
            at = sent + self.offset
        except OverflowError:  # a timestamp in the year 9999
            at = datetime.max.replace(tzinfo=UTC)
        return received if live and not received - _JITTER <= at <= received else at


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. `skimmed`: how many were dropped before it; `replaced`: it was not UTF-8; `torn`: it was cut off."""

    data: str = field(repr=False)
    id: str | None
    size: int
    skimmed: int
    replaced: bool = False
    torn: bool = False


@dataclass(frozen=True, slots=True)
class Oversize:
    """A skipped frame that was larger than MAX_FRAME. `head`: its beginning, to find the envelope."""

    head: str = field(repr=False)
    skimmed: int


class FrameReader:
    """Turns one connection's bytes into frames. `retry`: the requested reconnection time in seconds.

    `skimmed` is the count to continue from.
    """

    def __init__(self, skimmed: int = 0) -> None:
        self.retry: float | None = None
        self.skimmed = skimmed
        self._last_id: str | None = None
        self._buffer = bytearray()
        self._after_cr = False
        self._skipping = False
        self._started = False

    def feed(self, chunk: bytes) -> list[Frame | Oversize]:
        """Returns the frames that `chunk` completes, and those it makes too large."""
        chunk = self._normalised(chunk)
        buffer = self._buffer
        searched = max(0, len(buffer) - 1)
        buffer += chunk
        if not self._started and len(buffer) >= len(_BOM):
            self._started, searched = True, 0
            if buffer.startswith(_BOM):
                del buffer[: len(_BOM)]
        if buffer.find(b"\n\n", searched) < 0:
            return self._unfinished()
        *frames, rest = bytes(buffer).split(b"\n\n")
        self._buffer = bytearray(rest)
        if self._skipping:
            self._skipping = False
            frames = frames[1:]
        found: list[Frame | Oversize] = []
        for raw in frames:
            frame = self._frame(raw)
            if frame is not None:
                found.append(frame)
        return found + self._unfinished()

    def close(self) -> Frame | None:
        """Returns the unfinished frame at the connection's end: `torn`, and without an id, which may be cut, too."""
        raw, self._buffer = bytes(self._buffer), bytearray()
        frame = None if self._skipping else self._frame(raw)
        if not isinstance(frame, Frame):
            return None
        return Frame(frame.data, None, frame.size, frame.skimmed, frame.replaced, torn=True)

    def _normalised(self, chunk: bytes) -> bytes:
        """Returns `chunk` with line feeds only. A trailing carriage return counts at once, to hold no event back."""
        if self._after_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
            self._after_cr = False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if chunk:
            self._after_cr = False
        return chunk

    def _unfinished(self) -> list[Frame | Oversize]:
        while self._buffer[:1] == b":" and (end := self._buffer.find(b"\n")) >= 0:
            del self._buffer[: end + 1]  # heartbeats without blank lines must not pile up
        if self._skipping:
            del self._buffer[:-1]
            return []
        if len(self._buffer) <= MAX_FRAME:
            return []
        oversize = self._oversize(self._buffer)
        self._skipping = True
        del self._buffer[:-1]
        return [oversize]

    def _oversize(self, raw: bytes | bytearray) -> Oversize:
        return Oversize(bytes(raw[:_HEAD]).decode("utf-8", "replace"), self.skimmed)

    def _frame(self, raw: bytes) -> Frame | Oversize | None:
        if len(raw) > MAX_FRAME:
            return self._oversize(raw)
        try:
            text, replaced = raw.decode(), False
        except UnicodeDecodeError:
            text, replaced = raw.decode("utf-8", "replace"), True
        data = self._data(text)
        if not replaced and droppable(data):
            self.skimmed += 1
            return None
        return Frame(data, self._last_id, len(raw), self.skimmed, replaced) if data else None

    def _data(self, text: str) -> str:
        """Returns a frame's data; notes its retry time and its id, which later frames without one inherit."""
        data: list[str] = []
        for line in text.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                data.append(value)
            elif name == "id" and "\0" not in value:
                self._last_id = value or None
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry = min(float(value) / 1000, _MAX_RETRY)
        return "\n".join(data)


def head_field(head: str, name: str) -> str | None:
    """Returns a plain identifier from the beginning of an unparsed event, or None."""
    match = re.search(rf'"{re.escape(name)}"\s*:\s*"([\w.:/#-]{{1,128}})"', head)
    return match.group(1) if match else None


def droppable(data: str) -> bool:
    """Whether an event's JSON is an `output.streaming` or `progress.updated` that is not critical."""
    if not any(kind in data for kind in IGNORED_TYPES):
        return False
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):  # reported by whoever reads the frame
        return False
    kind = event.get("type") if isinstance(event, dict) else None
    return isinstance(kind, str) and core_type(kind) in IGNORED_TYPES and event.get("urgency") != "critical"


def may_be_critical(text: str) -> bool:
    """Whether unreadable text names something critical, so that a human must check it."""
    return any(name in text for name in CRITICAL_TYPES) or _URGENT.search(text) is not None


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

    async def handle(self, *arrivals: Arrival) -> None:
        """Returns once each arrival is stored, paged about, or dropped as never shown."""
        read = [await self._read(arrival) for arrival in arrivals]
        events = [self._incoming(event, arrival) for event, arrival in filter(None, read)]
        if events:
            await self._store(events)

    async def store_one(self, frame: Frame, check: Callable[[Event], None]) -> tuple[Event, Arrived]:
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
