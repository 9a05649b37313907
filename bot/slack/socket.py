"""Socket Mode: a connection to Slack that is replaced before it ends, and watched while it is quiet.

Source: docs.slack.dev, "Using Socket Mode". The connections are our own, over aiohttp, since slack_sdk's aiohttp client

* is deaf until a restart if opening the next connection fails after Slack announced a `disconnect` (slack_sdk #1446):
  here the next one is opened while the old one still reads, and a failed attempt is followed by another, with a new
  URL, after a backoff;
* keeps one HTTP session for its whole life, and once that is closed tries with it for ever (slack_sdk #1922): here a
  closed session is replaced, and every attempt is bounded in time;
* polls its queue, and ends quiet connections: here an envelope is handled as it comes, and pings are aiohttp's
  `heartbeat`, so that a socket that does not answer is ended and a quiet healthy one is kept.

Slack's hello counts the app's connections. With more than ours another bot shares the app, and Slack hands it clicks
that are meant for us. Ours may be counted for some moments after their end, so it is counted again before it is said.
An acknowledgement goes over any connection that is open when it is ready, as Slack allows.

Slack gives an app ten connections. A bot on a database that gets none, since its replicas have them, does without: what
people do reaches the others. It goes on trying.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackRefusedError
from bot.slackapi import NETWORK_ERRORS, Availability, reason, retry_after
from core.clock import Clock, backoff

_log = logging.getLogger("clarify.slack.socket")
Json = dict[str, Any]
_T = TypeVar("_T")
_MOST_REMEMBERED = 100
_TOO_MANY = "too_many_websockets"  # Slack's word for it


class Unacknowledged(Exception):
    """Do not acknowledge this envelope: nothing was stored, and Slack has to deliver it again or show an error."""


class HelloMissing(Exception):
    """Slack accepted the connection and did not say hello."""


class TooManyConnections(HelloMissing):
    """The app has ten connections, as many as Slack gives it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One delivery from Slack. `attempt` 0 is the first; `reason` is Slack's word for why an earlier one failed. In Socket
    Mode `id` is acknowledged, and `kind` is events_api, interactive or slash_commands.
    """

    payload: Json
    attempt: int = 0
    reason: str = ""
    id: str = ""
    kind: str = ""


class Background:
    """Runs tasks in the background: logs their failures, and finishes them at the stop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def drain(self, seconds: float = 5.0) -> None:
        """Wait for what runs, at most `seconds`; what still runs then is cancelled and named."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            _log.warning("not finished %g s after stopping: %s", seconds, task.get_name())
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def end(self) -> None:
        """Cancel what runs."""
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)


@dataclass(eq=False, repr=False)
class SlackConnection:
    """One WebSocket to Slack.

    `received` is told each envelope, `leaving` once when Slack announces the end. Neither may block.
    """

    socket: aiohttp.ClientWebSocketResponse
    received: Callable[[Envelope], None]
    leaving: Callable[[SlackConnection, str], None]

    def __post_init__(self) -> None:
        self._hello = asyncio.Event()
        self._left = False
        self._why = ""  # it is leaving, in Slack's word
        self._sent: deque[tuple[float, str]] = deque(maxlen=_MOST_REMEMBERED)
        # Of all connections of the app, this one among them, as Slack's hello says.
        self.count: int | None = None
        self.reading = asyncio.create_task(self._read(), name="slack socket reader")

    @property
    def usable(self) -> bool:
        """Whether Slack sends its envelopes here: greeted, not leaving, not closed."""
        return self._hello.is_set() and not self._left and not self.socket.closed

    @property
    def stands(self) -> bool:
        """Whether Slack counts it: not closed, by either side."""
        return not self.socket.closed

    def leave(self) -> None:
        """Another one takes its place."""
        self._left = True

    async def greeted(self, patience: float) -> None:
        """Returns when Slack said hello, or sent something else, or kept the connection `patience` seconds without.

        Raises:
            TooManyConnections, HelloMissing: it ended the connection first.
        """
        hello = asyncio.create_task(self._hello.wait(), name="slack socket hello")
        try:
            await asyncio.wait({hello, self.reading}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hello.cancel()
        if not self._hello.is_set() and not self.socket.closed:
            _log.warning("no hello within %g s; using the open connection", patience)
            self._hello.set()
        if self._why == _TOO_MANY:
            raise TooManyConnections("the Slack app has as many connections as it may have")
        if not self.usable:
            raise HelloMissing("Slack ended a new connection before its hello")

    async def send(self, text: str, until: float) -> bool:
        """Whether it could be handed to the socket; of use to Slack `until` then, on the loop's clock."""
        if self.socket.closed:
            return False
        try:
            await self.socket.send_str(text)
        except (ConnectionError, aiohttp.ClientError):
            return False
        self._sent.append((until, text))
        return True

    def unsure(self, now: float) -> list[tuple[float, str]]:
        """Recent messages that may not have arrived, if the connection broke, and are still of use."""
        return [(until, text) for until, text in self._sent if until > now]

    async def close(self) -> None:
        await self.socket.close()
        await asyncio.wait({self.reading})

    async def _read(self) -> None:
        """Until the socket ends, by either side, or by a ping that nobody answers."""
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                self._take(message.data)
            elif message.type is aiohttp.WSMsgType.ERROR:
                _log.warning("a connection to Slack broke: %s", type(message.data).__name__)

    def _take(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            _log.warning("Slack sent %d characters that are not a JSON object", len(text))
        elif message.get("type") == "hello":
            count = message.get("num_connections")
            self.count = count if isinstance(count, int) else None
            self._hello.set()
        elif message.get("type") == "disconnect":
            if not self._left:
                self._left, self._why = True, str(message.get("reason"))
                self.leaving(self, self._why)
        elif (envelope := _envelope(message)) is not None:
            self._hello.set()
            self.received(envelope)


def _envelope(message: Json) -> Envelope | None:
    ident, kind, payload = message.get("envelope_id"), message.get("type"), message.get("payload")
    if not isinstance(ident, str) or not isinstance(kind, str) or not isinstance(payload, dict):
        _log.warning("Slack sent an envelope without id, type or payload: %s", str(kind)[:40])
        return None
    attempt, why = message.get("retry_attempt"), str(message.get("retry_reason") or "")
    return Envelope(payload, attempt if isinstance(attempt, int) else 0, why, ident, kind)


# At the first connection these are a mistake in the setup, not trouble that passes.
_NEVER = frozenset(
    {"invalid_auth", "not_authed", "not_allowed_token_type", "missing_scope", "no_permission"}
    | {"token_revoked", "account_inactive", "forbidden_team"}
)
Dispatch = Callable[[Envelope], Awaitable[Json | None]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `ping`: between pings, answered within half of it. `ack`: Slack waits as long for an
    acknowledgement. `overlap`: how long a leaving connection may read on. `count_again`: after how long a count that was
    too high is believed if it still is; `count_others`: how often it is counted again while others are there.
    """

    open: float = 10.0
    hello: float = 3.0
    close: float = 2.0
    ping: float = 10.0
    ack: float = 3.0
    drain: float = 10.0
    overlap: float = 30.0
    first_retry: float = 0.5
    longest_retry: float = 30.0
    count_again: float = 30.0
    count_others: float = 600.0


@dataclass(kw_only=True, eq=False, repr=False)
class SlackSocket:
    """Keeps Socket Mode connected from `start` to `stop`, if Slack has a connection for us.

    `on_return` is called when there is a connection again after a time without one, failed tries at the start included. `availability`
    tells when Slack is back. `jitter` gives numbers in [0, 1). `counted` gets the number of connections of the
    app that are not ours, each time it is known; `replicas` tells how many others are bots on the same database.
    """

    web: AsyncWebClient
    app_token: str
    clock: Clock
    jitter: Callable[[], float]
    on_return: Callable[[], None] = lambda: None
    availability: Availability
    counted: Callable[[int], Coroutine[Any, Any, None]]
    replicas: Callable[[], int] = lambda: 0
    timing: Timing = Timing()

    def __post_init__(self) -> None:
        self._others = 0
        self._suspected: datetime | None = None
        self._recount: asyncio.Task[None] | None = None
        self._http: aiohttp.ClientSession | None = None
        self._live: list[SlackConnection] = []
        self._handling = Background()
        self._background = Background()
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False
        self._was_up = False
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._spare = asyncio.Event()
        self._since = self.clock.now()

    @property
    def connected(self) -> bool:
        """Whether Slack can reach us now."""
        return self._up.is_set()

    @property
    def spare(self) -> bool:
        """Whether the bot's replicas have all connections that Slack gives the app: it hands them what people do."""
        return self._spare.is_set()

    @property
    def since(self) -> datetime:
        """Since when `connected` is what it is."""
        return self._since

    @property
    def others(self) -> int:
        """How many connections to Slack the app has besides ours: of other bots with the same tokens."""
        return self._others

    def suspect(self) -> None:
        """Something was handed to us that was meant for another bot: count soon."""
        if self._recount is None and not self._stopping:
            self._count_in(self.timing.count_again)

    async def start(self, dispatch: Dispatch) -> None:
        """Have `dispatch` handle what comes. Returns when the first connection stands, or replicas have all that there are. Until then it keeps trying, and
        logs why it fails.

        Raises:
            SlackRefusedError: the app token is not good; trying again would not help.
        """
        self._dispatch: Dispatch = dispatch
        self._supervisor = asyncio.create_task(self._supervise(), name="slack socket")
        up = asyncio.create_task(self._up.wait(), name="slack socket up")
        spare = asyncio.create_task(self._spare.wait(), name="slack socket to spare")
        try:
            await asyncio.wait({self._supervisor, up, spare}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            spare.cancel()
        if self._supervisor.done():
            self._supervisor.result()

    async def wait(self) -> None:
        """Returns after `stop`; raises what ended the supervision, which otherwise never ends."""
        if self._supervisor is not None:
            await asyncio.wait({self._supervisor})
            if not self._supervisor.cancelled():
                self._supervisor.result()

    async def stop(self) -> None:
        """Take nothing more, let what is in work finish and be acknowledged (bounded), then close."""
        self._stopping = True
        await self._handling.drain(self.timing.drain)
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._background.end()
        await asyncio.gather(*(connection.close() for connection in list(self._live)))
        if self._http is not None:
            await self._http.close()

    async def _supervise(self) -> None:
        """Open the next connection as soon as there is none, or the only one is leaving."""
        failures, missed = 0, False
        while True:
            if self.connected:
                failures, missed = 0, False
                await self._down.wait()
                continue
            missed = missed or (self._was_up and not self._live)
            try:
                await self._open()
            except (*NETWORK_ERRORS, HelloMissing) as error:
                if not self._was_up and reason(error) in _NEVER:
                    raise SlackRefusedError(
                        f"apps.connections.open: {reason(error)}", code=reason(error)
                    ) from error
                self._note_spare(is_spare=isinstance(error, TooManyConnections) and self.replicas() > 0)
                told = retry_after(error)
                delay = max(self._backoff(failures), told or 0.0)
                failures += 1
                missed = missed or not self._live
                if not self.spare:
                    _log.warning("Slack cannot be reached (%s); again in %.1f s", reason(error), delay)
                await (self.clock.sleep(delay) if told else self.availability.rest(delay))
                continue
            self._note_spare(is_spare=False)
            if missed:
                self.on_return()
            self._was_up = True

    def _note_spare(self, *, is_spare: bool) -> None:
        if is_spare and not self.spare:
            _log.warning(
                "other replicas use all ten connections that Slack allows an app; this one runs without and keeps"
                " trying"
            )
            self._spare.set()
        elif not is_spare:
            self._spare.clear()

    def _backoff(self, failures: int) -> float:
        first, longest = self.timing.first_retry, self.timing.longest_retry
        return backoff(failures, first=first, longest=longest, spread=0.5, chance=self.jitter())

    async def _open(self) -> None:
        """One attempt: a new URL, a WebSocket, Slack's hello."""
        async with asyncio.timeout(self.timing.open):
            url = str((await self.web.apps_connections_open(app_token=self.app_token))["url"])
        if self._http is None or self._http.closed:
            self._http = aiohttp.ClientSession()
        async with asyncio.timeout(self.timing.open):
            socket = await self._http.ws_connect(
                url,
                heartbeat=self.timing.ping,
                timeout=aiohttp.ClientWSTimeout(ws_close=self.timing.close),
                max_msg_size=0,
                proxy=self.web.proxy,
                ssl=self.web.ssl or True,
            )
        connection = SlackConnection(socket, self._received, self._leaving)
        self._live.append(connection)
        connection.reading.add_done_callback(lambda _: self._ended(connection))
        try:
            await connection.greeted(self.timing.hello)
        except BaseException:
            await connection.close()
            raise
        self._update_connected()
        _log.info("connected to Slack")
        if connection.count is not None:
            ours = sum(each.stands for each in self._live)
            self._compare(connection.count - ours - self.replicas())

    def _compare(self, others: int) -> None:
        """Slack counted so many connections besides ours."""
        now = self.clock.now()
        if others <= 0:
            if self._others:
                _log.warning("no other bot is connected to this Slack app any more")
            self._others, self._suspected = 0, None
        elif self._suspected is None:
            self._suspected = now
            self._count_in(self.timing.count_again)
            return
        elif now - self._suspected >= timedelta(seconds=self.timing.count_again):
            self._others = others
            _log.error(
                "ANOTHER BOT is connected with this Slack app (connections besides ours: %d): Slack sends it clicks and"
                " replies that are meant for this bot. Give each installation its own Slack app, or stop one.",
                others,
            )
        if others > 0:
            self._count_in(self.timing.count_others if self._others else self.timing.count_again)
        self._background.run(self.counted(self._others), "the count of connections")

    def _count_in(self, seconds: float) -> None:
        if self._recount is not None:
            self._recount.cancel()
        self._recount = self._background.run(self._count_again(seconds), "counting connections")

    async def _count_again(self, seconds: float) -> None:
        """Slack gives the count only in a new connection's hello: open one, then close the old ones."""
        await self.clock.sleep(seconds)
        self._recount = None
        before = [connection for connection in self._live if connection.usable]
        if not before:
            return  # the next connection is told
        try:
            await self._open()
        except (*NETWORK_ERRORS, HelloMissing) as error:
            _log.warning("cannot count the app's connections (%s)", reason(error))
            self._count_in(max(seconds, retry_after(error) or 0.0))
            return
        for connection in before:
            connection.leave()
        self._update_connected()
        await asyncio.gather(*(connection.close() for connection in before))

    def _leaving(self, connection: SlackConnection, why: str) -> None:
        _log.info("Slack will close a connection: %s", why)
        self._update_connected()
        self._background.run(self._retire(connection), "an old connection")

    async def _retire(self, connection: SlackConnection) -> None:
        await asyncio.wait({connection.reading}, timeout=self.timing.overlap)
        await connection.close()

    def _ended(self, connection: SlackConnection) -> None:
        self._live.remove(connection)
        self._update_connected()
        now = asyncio.get_running_loop().time()
        for until, text in connection.unsure(now) if not self._stopping else ():
            # A socket that broke may have swallowed it; acknowledging twice does no harm.
            self._handling.run(self._acknowledge(text, until), "an acknowledgement again")

    def _update_connected(self) -> None:
        up = any(connection.usable for connection in self._live)
        if up != self._up.is_set():
            self._since = self.clock.now()
        for event, holds in ((self._up, up), (self._down, not up)):
            if holds:
                event.set()
            else:
                event.clear()

    def _received(self, envelope: Envelope) -> None:
        if not self._stopping:
            self._handling.run(self._handle(envelope), f"{envelope.kind} {envelope.id}")

    async def _handle(self, envelope: Envelope) -> None:
        until = asyncio.get_running_loop().time() + self.timing.ack
        try:
            payload = await self._dispatch(envelope)
        except Unacknowledged as error:
            _log.warning("not acknowledged: %s %s (%s)", envelope.kind, envelope.id, error)
            return
        answer: Json = {"envelope_id": envelope.id}
        if payload is not None:
            answer["payload"] = payload
        await self._acknowledge(json.dumps(answer), until)

    async def _acknowledge(self, text: str, until: float) -> None:
        if not await self._send(text, until):
            _log.warning("cannot acknowledge in time: no connection")

    async def _send(self, text: str, until: float) -> bool:
        """Send over any connection; where there is none, wait for the next one while Slack still listens."""
        for connection in reversed(self._live):
            if await connection.send(text, until):
                return True
        try:
            async with asyncio.timeout_at(until):
                await self._up.wait()
        except TimeoutError:
            return False
        return any([await connection.send(text, until) for connection in self._live[-1:]])
