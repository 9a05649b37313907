"""Socket Mode: a connection to Slack that is replaced before it ends, and watched while it is quiet.

Source: docs.slack.dev, "Using Socket Mode". We open the connections ourselves, over aiohttp, since slack_sdk's client (read
in 3.47)

* closes the old connection before it opens the next one, so that nothing arrives meanwhile: we open the next one while the
  old one still reads;
* tries a rejected address for ever, and logs it with its secret: we ask for a new one after a backoff, with a timeout;
* polls its queue, and says neither when Slack can reach us nor how many connections the app has.

aiohttp's `heartbeat` ends a socket that does not answer pings, but keeps a quiet one.

Slack's hello counts the app's connections. If there are more than ours, another bot shares the app, and Slack sends it
clicks that are meant for us. Slack may still count connections that just ended, so we count again before we report it.
An acknowledgement goes over any open connection, as Slack allows.

Slack gives an app ten connections. A bot that gets none, since its replicas have them all, works without one, and keeps
trying: the replicas get the clicks.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackRefusedError
from bot.slackapi import NETWORK_ERRORS, Availability, reason, retry_after
from core.clock import Clock, backoff, first_of

_log = logging.getLogger("clarify.slack.socket")
Json = dict[str, Any]
_T = TypeVar("_T")
_MOST_REMEMBERED = 100
_TOO_MANY = "too_many_websockets"  # Slack's error code


class Unacknowledged(Exception):
    """Do not acknowledge this envelope: nothing was stored; Slack must resend it or show an error."""


class HelloMissing(Exception):
    """A new connection got no hello from Slack."""


class TooManyConnections(HelloMissing):
    """The app has all ten connections that Slack allows."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One delivery from Slack. `attempt` 0 is the first; `reason`: Slack's code for why an earlier one failed. In Socket
    Mode, `id` has to be acknowledged, and `kind` is events_api, interactive or slash_commands.
    """

    payload: Json
    attempt: int = 0
    reason: str = ""
    id: str = ""
    kind: str = ""


class Background:
    """Runs tasks in the background and logs their failures."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def drain(self, seconds: float = 5.0) -> None:
        """Wait at most `seconds` for running tasks; then cancel and log the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            _log.warning("not finished %g s after stopping: %s", seconds, task.get_name())
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def end(self) -> None:
        """Cancel all running tasks."""
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

    Calls `received` with each envelope, and `leaving` once when Slack announces the end. Neither may block.
    """

    socket: aiohttp.ClientWebSocketResponse
    received: Callable[[Envelope], None]
    leaving: Callable[[SlackConnection, str], None]

    def __post_init__(self) -> None:
        self._hello = asyncio.Event()
        self._left = False
        self._why = ""  # Slack's reason for the announced end
        self._sent: deque[tuple[float, str]] = deque(maxlen=_MOST_REMEMBERED)
        # How many connections the app has, this one included, as Slack's hello says.
        self.count: int | None = None
        self.reading = asyncio.create_task(self._read(), name="slack socket reader")

    @property
    def usable(self) -> bool:
        """Whether Slack sends envelopes over it: greeted, not leaving, not closed."""
        return self._hello.is_set() and not self._left and not self.socket.closed

    @property
    def stands(self) -> bool:
        """Whether Slack counts it: neither side has closed it."""
        return not self.socket.closed

    def leave(self) -> None:
        """Mark it as replaced by another one."""
        self._left = True

    async def greeted(self, patience: float) -> None:
        """Returns when Slack said hello or sent anything else.

        Raises:
            TooManyConnections, HelloMissing: Slack ended the connection first, or said nothing for `patience` seconds.
        """
        await first_of(self._hello.wait(), asyncio.wait({self.reading}), asyncio.sleep(patience))
        if self._why == _TOO_MANY:
            raise TooManyConnections("the Slack app has as many connections as it may have")
        if not self.usable:
            raise HelloMissing("no hello from Slack on a new connection")

    async def send(self, text: str, until: float) -> bool:
        """Send text over the socket; returns whether that worked. `until`: when it is too late, on the loop's clock."""
        if self.socket.closed:
            return False
        try:
            await self.socket.send_str(text)
        except (ConnectionError, aiohttp.ClientError):
            return False
        self._sent.append((until, text))
        return True

    def unsure(self, now: float) -> list[tuple[float, str]]:
        """Returns recent messages that may not have arrived, if the connection broke, and are not too late."""
        return [(until, text) for until, text in self._sent if until > now]

    async def close(self) -> None:
        await self.socket.close()
        await asyncio.wait({self.reading})

    async def _read(self) -> None:
        """Read until the socket ends, which an unanswered ping causes, too."""
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


# At the first connection these mean a wrong setup, which a retry does not cure.
_NEVER = frozenset(
    {"invalid_auth", "not_authed", "not_allowed_token_type", "missing_scope", "no_permission"}
    | {"token_revoked", "account_inactive", "forbidden_team"}
)
Dispatch = Callable[[Envelope], Awaitable[Json | None]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. `ping`: between pings, each answered within half of it. `ack`: how long Slack waits for an acknowledgement.
    `overlap`: how long a leaving connection may still read. `count_again`: before a too high count of connections is
    checked; `count_others`: between counts while other bots are there.
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

    `since`: when `connected` last changed. `others`: how many connections other bots with the same tokens have.

    Calls `on_return` when it is connected after a time without a connection, also after failed attempts at the start.
    `availability` tells when Slack is back. `jitter` returns numbers in [0, 1). `counted` gets the number of the app's
    connections that are not ours, each time it is known; `replicas` returns how many bots share our database.
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
        self.others = 0
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
        self.since = self.clock.now()

    @property
    def connected(self) -> bool:
        """Whether Slack can reach us now."""
        return self._up.is_set()

    @property
    def spare(self) -> bool:
        """Whether the bot's replicas have all connections that Slack gives the app; they get the clicks."""
        return self._spare.is_set()

    def suspect(self) -> None:
        """Count the app's connections soon: we got a click that was meant for another bot."""
        if self._recount is None and not self._stopping:
            self._count_in(self.timing.count_again)

    async def start(self, dispatch: Dispatch) -> None:
        """Have `dispatch` handle envelopes. Returns once connected, or if replicas have all connections; retries until
        then, and logs why it fails.

        Raises:
            SlackRefusedError: the app token is wrong; a retry would not help.
        """
        self._dispatch: Dispatch = dispatch
        self._supervisor = asyncio.create_task(self._supervise(), name="slack socket")
        await first_of(asyncio.wait({self._supervisor}), self._up.wait(), self._spare.wait())
        if self._supervisor.done():
            self._supervisor.result()

    async def wait(self) -> None:
        """Returns after `stop`; raises the error if the connection fails for good."""
        if self._supervisor is not None:
            await asyncio.wait({self._supervisor})
            if not self._supervisor.cancelled():
                self._supervisor.result()

    async def stop(self) -> None:
        """Take nothing more; wait, for a while, until running envelopes are acknowledged; then close."""
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
        """Open the next connection when there is none, or the only one is leaving."""
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

    async def _open(self, *, again: bool = False) -> None:
        """Try once to connect: get a URL, open the WebSocket, wait for Slack's hello. `again`: see `_compare`."""
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
            self._compare(connection.count - ours - self.replicas(), again=again)

    def _compare(self, others: int, *, again: bool) -> None:
        """Note that Slack counts `others` connections besides ours; report them if it does `again`, after a while."""
        is_sure = others <= 0 or again
        if others > 0:
            self._count_in(self.timing.count_others if is_sure else self.timing.count_again)
        if not is_sure:
            return
        if others > 0:
            _log.error(
                "ANOTHER BOT is connected with this Slack app (connections besides ours: %d): Slack sends it clicks and"
                " replies that are meant for this bot. Give each installation its own Slack app, or stop one.",
                others,
            )
        elif self.others:
            _log.warning("no other bot is connected to this Slack app any more")
        self.others = max(0, others)
        self._background.run(self.counted(self.others), "the count of connections")

    def _count_in(self, seconds: float) -> None:
        if self._recount is not None:
            self._recount.cancel()
        self._recount = self._background.run(self._count_again(seconds), "counting connections")

    async def _count_again(self, seconds: float) -> None:
        """Open a new connection, whose hello has the count, then close the old ones."""
        await self.clock.sleep(seconds)
        self._recount = None
        before = [connection for connection in self._live if connection.usable]
        if not before:
            return  # the next connection's hello has the count
        try:
            await self._open(again=True)
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
            # It may be lost with the socket; a second acknowledgement does no harm.
            self._handling.run(self._acknowledge(text, until), "an acknowledgement again")

    def _update_connected(self) -> None:
        up = any(connection.usable for connection in self._live)
        if up != self._up.is_set():
            self.since = self.clock.now()
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
        """Send over any connection, or over the next one, if that opens before `until`."""
        for connection in reversed(self._live):
            if await connection.send(text, until):
                return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._up.wait()
            if self._live and await self._live[-1].send(text, until):
                return
        _log.warning("cannot acknowledge in time: no connection")
