"""Reads one producer's event stream: connects, reads, stores, reconnects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

import structlog

from bot.ask import client
from bot.ask.client import (
    NoHandshake,
    NotConnected,
    Refused,
    Reply,
    ReplyOutcome,
    Subscription,
    TryAgain,
    send_reply,
)
from bot.ask.inbox import Inbox
from bot.ask.receiver import GAP, Arrival, Burst, Frame, FrameReader, Oversize, Receiver
from bot.errors import StorageError
from bot.http import ANSWER_TIMEOUT, CONNECT_TIMEOUT, NETWORK, HttpClient, HttpStream, json_body, words
from bot.settings.model import ProducerSettings
from bot.storage.store import Acting
from core.clock import Clock, backoff, first_of

SILENCE = 45.0
_MAX_ITEMS = 10_000
_MAX_BYTES = 64 << 20
_LASTED = 30.0
_DRAIN = 5.0
_CLOSE = 2.0
_AT_ONCE = 100  # arrivals stored in one transaction
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_UNAUTHORIZED = 60.0
_REMEMBERED = 1000  # replies whose subscription was unknown
_LONGEST_ASKED = 86400.0
log = structlog.get_logger(__name__)


@dataclass(kw_only=True, eq=False)
class Subscriber:
    """Reads one producer's stream in one task and stores the events in another; sends it replies.

    `on_connected(producer)` is called for every stream that opens. `subscription` stays set while we reconnect, for its
    replies. `stop` closes `http` and `replies`, the client for the replies. `acting`: see `Store`.
    """

    configured: ProducerSettings
    base: str
    http: HttpClient
    replies: HttpClient
    acting: Acting
    receiver: Receiver
    inbox: Inbox
    clock: Clock
    rng: random.Random
    on_connected: Callable[[str], None]
    subscription: Subscription | None = None
    since: datetime | None = None
    last_error: str | None = None
    unauthorized: bool = False  # our token was refused on the last try to connect

    def __post_init__(self) -> None:
        self.name, self._dialect = self.configured.name, self.configured.dialect
        # What was read and is not stored yet: producers drop events, even critical ones, if we read too slowly.
        self._arrived = asyncio.Queue[Arrival]()
        self._backlog = self._backlog_bytes = 0
        self._room = asyncio.Event()  # clear: TCP holds the producer back
        self._room.set()
        self._asked_storage = False
        self._tasks: list[asyncio.Task[None]] = []
        self._gone_for: dict[str, str] = {}  # the unknown subscription, by reply token
        self._contacted = asyncio.Event()
        self._renew = asyncio.Event()
        self._last_frame = 0.0
        self._skimmed = 0
        self._signs = 0
        self._sse_retry: float | None = None
        if self._dialect == "minimal":  # its replies need no connection
            self.subscription = self._minimal()
        self._log = log.bind(producer=self.name)

    def start(self) -> list[asyncio.Task[None]]:
        """Starts and returns the background tasks: the one that reads, then the one that stores."""
        self._tasks = [
            asyncio.create_task(self._run(), name=f"producer {self.name}: read"),
            asyncio.create_task(self._store(), name=f"producer {self.name}: store"),
        ]
        return self._tasks

    async def caught_up(self) -> None:
        """Waits until a connection failed, or is quiet for a moment and all its events are stored."""
        await self._contacted.wait()
        loop = asyncio.get_running_loop()
        while self.connected and (quiet := loop.time() - self._last_frame) < GAP:  # noqa: ASYNC110  silence has no event
            await asyncio.sleep(GAP - quiet)
        await self._arrived.join()

    async def stop(self, *, close: bool) -> None:
        """Stops reading, stores what was read, and closes the subscription if `close`. A second call does nothing."""
        if self.http.is_closed:
            return
        for task in self._tasks[:1]:
            await _cancelled(task)
        if self._tasks and not self._tasks[1].done():
            try:
                async with asyncio.timeout(_DRAIN):
                    await self._arrived.join()
            except TimeoutError:
                self._log.warning("stopped before storing all events", count=self._backlog)
        for task in self._tasks[1:]:
            await _cancelled(task)
        if close:
            await self._close()
        await self.http.close()
        await self.replies.close()

    async def _close(self) -> None:
        subscription = self.subscription
        if subscription is None or subscription.dialect != "standard":
            return
        try:
            async with asyncio.timeout(_CLOSE):
                body = json_body(client.subscription_close(subscription.id))
                await self.http.request("POST", subscription.replies, body)
            await self.inbox.keep_subscription(self.name, None)
        except NETWORK as error:
            self._log.info("subscription not closed", reason=words(error))
        except StorageError as error:
            self._log.info("cannot delete a closed subscription", reason=str(error))

    @property
    def started(self) -> bool:
        return bool(self._tasks)

    def status(self) -> dict[str, Any]:
        return self.receiver.status(
            connected=self.connected,
            dialect=self.subscription.dialect if self.subscription else self._dialect,
            since=self.since,
            last_error=self.last_error,
            backlog=self._backlog,
        )

    @property
    def connected(self) -> bool:
        return self.since is not None

    async def send(self, reply: Reply) -> ReplyOutcome:
        """Makes one attempt to send a reply on the current subscription. Never raises for network failures."""
        if (subscription := self.subscription) is None or self.replies.is_closed:
            refused = self.last_error if self.unauthorized else None
            return TryAgain(refused or "not connected", may_have_arrived=False, blocked=refused is not None)
        outcome, gone = await send_reply(
            self.replies,
            subscription,
            reply,
            since=lambda: self.since,
            now=self.clock.now(),
            acting=self.acting,
        )
        if not gone:
            self._gone_for.pop(reply.reply_token, None)
            return outcome
        # Send it again on a new subscription. If that is unknown, too, the producer does not know the question.
        if self._gone_for.setdefault(reply.reply_token, subscription.id) != subscription.id:
            del self._gone_for[reply.reply_token]
            return Refused("it does not know this question, even on a new subscription")
        if len(self._gone_for) > _REMEMBERED:
            self._gone_for.pop(next(iter(self._gone_for)))
        if self.subscription is not None and self.subscription.id == subscription.id:
            self.subscription = None
            self._renew.set()
        return outcome

    async def _store(self) -> None:
        """Stores what arrived until cancelled."""
        while True:
            arrivals = [await self._arrived.get()]
            while len(arrivals) < _AT_ONCE and not self._arrived.empty():
                arrivals.append(self._arrived.get_nowait())
            await self.receiver.handle(*arrivals)
            self._count(-len(arrivals), -sum(each.size for each in arrivals))
            for _ in arrivals:
                self._arrived.task_done()

    def _add(self, arrival: Arrival) -> None:
        """Has an arrival stored. Add all of a read before the next wait, so that a cancelled reader loses none."""
        self._arrived.put_nowait(arrival)
        self._count(1, arrival.size)

    def _count(self, arrivals: int, size: int) -> None:
        self._backlog += arrivals
        self._backlog_bytes += size
        if self._backlog >= _MAX_ITEMS or self._backlog_bytes >= _MAX_BYTES:
            self._room.clear()
        else:
            self._room.set()

    async def _run(self) -> None:
        """Connects and reads until cancelled. Never raises for network failures."""
        attempt = 0
        while True:
            lost = await self._connect()
            self.since, self.unauthorized = None, lost.unauthorized
            attempt = 0 if lost.useful else attempt + 1
            delay = reconnect_delay(lost, attempt, self.rng, self._sse_retry)
            level = self._log.info if lost.reason == self.last_error else self._log.warning
            level("producer not connected", reason=lost.reason, again_in=round(delay, 1))
            self.last_error = lost.reason
            self._contacted.set()
            await self.clock.sleep(delay)

    async def _connect(self) -> NotConnected:
        """Runs one connection from the handshake to its end."""
        try:
            subscription = await self._stored_subscription() or await self._subscribe()
        except StorageError as error:
            return NotConnected(f"the subscription cannot be stored ({error})")
        if isinstance(subscription, NotConnected):
            return subscription
        self.subscription = subscription
        self._renew.clear()
        self._signs = 0
        ended = await first_of(self._read(subscription), self._watch(), self._subscription_gone())
        lost: NotConnected = ended.result()
        return lost

    async def _stored_subscription(self) -> Subscription | None:
        """Returns the standard dialect's subscription that we have, or had before a restart."""
        if self.subscription is not None and self.subscription.dialect == "standard":
            return self.subscription
        if self._asked_storage or self._dialect == "minimal":
            return None
        text = await self.inbox.subscription(self.name)
        self._asked_storage = True
        return client.deserialized(text, self.base) if text is not None else None

    async def _subscribe(self) -> Subscription | NotConnected:
        """Returns a new subscription, stored before its first event can arrive."""
        if self._dialect == "minimal":
            return self._minimal()
        request = client.subscription_request(version("clarify-bot"))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT + ANSWER_TIMEOUT):
                url = client.address(self.base, client.SUBSCRIPTIONS)
                answer = await self.http.request("POST", url, json_body(request))
        except NETWORK as error:
            return NotConnected(words(error))
        result = client.handshake_answer(answer, self.base, self._dialect, self.clock.now())
        if isinstance(result, NoHandshake):
            return self._minimal()
        if isinstance(result, Subscription):
            await self.inbox.keep_subscription(self.name, client.serialized(answer))
        return result

    def _minimal(self) -> Subscription:
        return client.minimal(self.base, f"sub_{self.rng.getrandbits(128):032x}")

    async def _read(self, subscription: Subscription) -> NotConnected:
        frames = FrameReader(self._skimmed)
        opened = asyncio.get_running_loop().time()
        try:
            headers = await self._headers(subscription)
            async with self.http.stream(
                "GET", subscription.events, headers=headers, silence=None
            ) as response:
                refusal = client.stream_answer(response, self.clock.now())
                if refusal is not None:
                    if subscription.dialect == "standard" and response.status in (400, 404, 410):
                        self.subscription = None  # expired: the next attempt makes a new handshake
                    return refusal
                self._opened(subscription)
                await self._read_all(response, frames, subscription, resumed="Last-Event-ID" in headers)
            reason = "ended the stream"
        except NETWORK as error:
            reason = words(error)
        except StorageError as error:
            return NotConnected(f"cannot read where to resume ({error})")
        last = frames.close()
        if last is not None:
            self._add(self._arrival(last, subscription, live=False))
        lasted = asyncio.get_running_loop().time() - opened >= _LASTED
        return NotConnected(reason, useful=self.connected and (self._signs > 0 or lasted))

    async def _headers(self, subscription: Subscription) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if subscription.dialect == "standard":
            # Store all events first: the cursor must be durable, and the producer need not send them twice.
            await self._arrived.join()
            cursor = await self.inbox.cursor(self.name)
            # Without a valid header value, the producer replays everything since the handshake.
            if cursor is not None and cursor.isprintable():
                headers["Last-Event-ID"] = cursor.strip()
        return headers

    async def _read_all(
        self, response: HttpStream, frames: FrameReader, subscription: Subscription, *, resumed: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        burst = Burst(loop.time(), resumed=resumed)
        while chunk := await response.read():
            self._signs += 1
            found = frames.feed(chunk)
            skimmed = frames.skimmed - self._skimmed
            self.receiver.counters.skimmed += skimmed
            self._skimmed = frames.skimmed
            self._sse_retry = frames.retry
            now = loop.time()
            live = bool(found or skimmed) and burst.live(now)
            self._last_frame = now if found else self._last_frame
            for frame in found:
                self._add(self._arrival(frame, subscription, live=live))
            await self._room.wait()

    def _arrival(self, frame: Frame | Oversize, subscription: Subscription, *, live: bool) -> Arrival:
        return Arrival(
            frame,
            self.clock.now(),
            live=live,
            filtered=subscription.filtered,
            resumable=subscription.dialect == "standard",
        )

    def _opened(self, subscription: Subscription) -> None:
        self.since = self.clock.now()
        self.last_error, self.unauthorized = None, False
        self._signs = 0
        self._last_frame = asyncio.get_running_loop().time()
        self.receiver.counters.connections += 1
        self._log.info("producer connected", dialect=subscription.dialect)
        self._contacted.set()
        self.on_connected(self.name)

    async def _watch(self) -> NotConnected:
        """Returns the reason once the producer is gone. After a silence, it checks /healthz."""
        while True:
            seen = self._signs
            await self.clock.sleep(SILENCE)
            if self._signs != seen:
                continue
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT + ANSWER_TIMEOUT):
                    url = client.address(self.base, "/healthz")
                    async with self.http.stream("GET", url):
                        continue
            except NETWORK as error:
                return NotConnected(
                    f"sends nothing, and its /healthz does not answer: {words(error)}", useful=self.connected
                )

    async def _subscription_gone(self) -> NotConnected:
        await self._renew.wait()
        return NotConnected("no longer knows our subscription", useful=True)


def reconnect_delay(lost: NotConnected, attempt: int, rng: random.Random, sse_retry: float | None) -> float:
    """Returns the seconds before reconnecting after `attempt` failures. `sse_retry`: the stream's `retry:` field."""
    wait = backoff(attempt, first=_FIRST_WAIT, longest=_LONGEST_WAIT, spread=1.0, chance=rng.random())
    if lost.unauthorized:
        wait += _UNAUTHORIZED
    return min(_LONGEST_ASKED, max(wait, lost.retry_after or 0.0, sse_retry or 0.0))


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
