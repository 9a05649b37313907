"""The outbox: delivers to outside parties at least once, until they accept or will never accept.

A sender knows what is due, under which keys, and how to make one attempt. `Outbox` does the rest: one attempt at a time
per key, backoff that obeys Retry-After, retries while the storage is unavailable, the log. Work comes from

- the sender's own state (a reply while its record says "sending", an issue that is stored as owed): call `put(key)`; nothing
  more is stored before the first attempt; or
- messages that are stored before they are sent (`bot.mailing`), for senders without such a state.

What goes to URLs that others gave us (webhooks, callbacks) is JSON, signed as Standard Webhooks define
(github.com/standard-webhooks/standard-webhooks).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import heapq
import hmac
import random
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Generic, TypeVar

import structlog

from bot.errors import StorageUnavailable
from bot.http import ANSWER_TIMEOUT, NETWORK, HttpClient, HttpStream, retry_after, words
from bot.storage.store import Store
from core.clock import Clock, backoff
from core.errors import LedgerUnwritable, LockTimeout

_log = structlog.get_logger("clarify.outbox")
_NOT_NOW = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_STORAGE_RETRY = 0.5  # seconds
_AFTER_A_DEFECT = 60.0  # seconds before retrying after an unexpected error
_SHORTEST_WAIT = 0.05  # seconds between attempts
_SHORTEST_SLEEP = 0.001  # a sleep below the clock's resolution would loop forever
_K = TypeVar("_K", bound=Hashable)
_BODY_TIMEOUT = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Delivered:
    """The party accepted. `more`: there is more under this key; other keys take their turn first."""

    more: bool = False


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try again after the backoff.

    Args:
        reason: for the log, without secrets or contents.
        after: minimum wait in seconds, as the party asked.
        within: maximum wait in seconds.
        party_wide: the party itself is in trouble: hold back all other keys, too.
        sooner: ends the wait when it returns.
    """

    reason: str
    after: float | None = None
    within: float = inf
    party_wide: bool = False
    sooner: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Don't send this again. `party_wide`: nor the party's other messages until the next start. `more`: see `Delivered`."""

    reason: str
    party_wide: bool = False
    more: bool = False


Outcome = Delivered | RetryLater | GivenUp


@dataclass(frozen=True, slots=True)
class Backoff:
    """The parameters of `core.clock.backoff`, in seconds."""

    first: float
    longest: float
    spread: float

    def seconds(self, failures: int, rng: random.Random) -> float:
        return backoff(
            failures, first=self.first, longest=self.longest, spread=self.spread, chance=rng.random()
        )


@dataclass(eq=False)
class Outbox(Generic[_K]):
    """Delivers to one party: one attempt at a time per key, at most `at_once` keys in parallel.

    `attempt(key)` returns None if nothing is due under the key. It may raise StorageUnavailable, LockTimeout or
    LedgerUnwritable. `on_outcome` gets "sent", "later" or "never" for each attempt.
    """

    party: str
    attempt: Callable[[_K], Awaitable[Outcome | None]]
    policy: Backoff
    _: KW_ONLY
    clock: Clock
    rng: random.Random
    at_once: float = 1
    on_outcome: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._running = self._closing = False
        self._due: dict[_K, float] = {}  # the earliest time, on the steady clock
        self._queue: list[tuple[float, int, _K]] = []  # a heap; stale where `_due` differs
        self._numbers = count()
        self._trying: dict[_K, asyncio.Task[None]] = {}
        self._again: set[_K] = set()
        self._failures: dict[_K, int] = {}
        self._sooner: dict[_K, asyncio.Future[None]] = {}
        self._held_until, self._held_failures = -inf, 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = inf
        self._waiters: dict[_K, asyncio.Future[None]] = {}
        self._log = _log.bind(party=self.party)

    def __len__(self) -> int:
        """Returns how many keys have something due."""
        return len(self._due) + len(self._trying)

    @property
    def idle(self) -> bool:
        """Whether nothing is running or due now."""
        return not self._trying and self._next_at() > self.clock.steady()

    def __contains__(self, key: _K) -> bool:
        return key in self._due or key in self._trying

    def put(self, key: _K, *, anew: bool = False) -> None:
        """Schedules `key` for delivery: at once, unless it is waiting for a retry. `anew`: also then, as if it never failed."""
        if key in self._trying:
            self._again.add(key)
        elif anew or key not in self._due:
            if anew:
                self._failures.pop(key, None)
            self._schedule(key, -inf)
            self._pump()

    def start(self) -> None:
        """Starts delivering."""
        self._running, self._closing = True, False
        self._pump()

    async def run(self) -> None:
        """Delivers until cancelled."""
        self.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._running = False
            await self.close(0.0)

    async def close(self, grace: float = 5.0) -> None:
        """Gives running attempts `grace` seconds to end, then cancels them; starts no retries."""
        self._closing = True
        for wait in (self._timer, *self._sooner.values()):
            if wait is not None:
                wait.cancel()
        self._timer, self._timer_at = None, inf
        tries = list(self._trying.values())
        if tries and grace:
            await asyncio.wait(tries, timeout=grace)
        for task in tries:
            task.cancel()
        await asyncio.gather(*tries, return_exceptions=True)

    async def settled(self, keys: Iterable[_K], patience: float) -> None:
        """Waits until nothing is due under these keys, at most `patience` seconds."""
        new = asyncio.get_running_loop().create_future
        waits = [self._waiters.setdefault(key, new()) for key in keys if key in self]
        if waits:
            await asyncio.wait(waits, timeout=patience)

    def _schedule(self, key: _K, at: float) -> None:
        if self._due.get(key, inf) > at:
            self._due[key] = at
            heapq.heappush(self._queue, (at, next(self._numbers), key))

    def _next_at(self) -> float:
        while self._queue and self._due.get(self._queue[0][2]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return max(self._queue[0][0], self._held_until) if self._queue else inf

    def _pump(self) -> None:
        """Starts all attempts that are due; sets the timer for the next."""
        at = inf
        while self._running and len(self._trying) < self.at_once:
            if (at := self._next_at()) > self.clock.steady():
                break
            _, _, key = heapq.heappop(self._queue)
            del self._due[key]
            if (wait := self._sooner.pop(key, None)) is not None:
                wait.cancel()
            task = self._trying[key] = asyncio.create_task(self._try(key), name=f"outbox: {key}")
            task.add_done_callback(partial(self._ended, key))
            at = inf
        if at < self._timer_at and not self._closing:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = asyncio.create_task(self._wait(at), name="outbox: wait")

    async def _wait(self, until: float) -> None:
        while (left := until - self.clock.steady()) > 0:
            await self.clock.sleep(max(_SHORTEST_SLEEP, left))
        self._timer, self._timer_at = None, inf
        self._pump()

    async def _try(self, key: _K) -> None:
        outcome: Outcome | None
        try:
            outcome = await self.attempt(key)
        except _NOT_NOW as error:
            self._log.warning("cannot read or store now, will try again", about=key, reason=str(error))
            self._later(key, _STORAGE_RETRY)
            return
        except Exception:  # noqa: BLE001 - a defect must not stop the other keys
            self._log.exception("cannot send, will try again", about=key)
            self._later(key, _AFTER_A_DEFECT)
            return
        if isinstance(outcome, RetryLater):
            self._retry(key, outcome)
            return
        self._failures.pop(key, None)
        if isinstance(outcome, Delivered):
            self._held_until, self._held_failures = -inf, 0
            self.on_outcome("sent")
        elif isinstance(outcome, GivenUp):
            self._log.error("given up", about=key, reason=outcome.reason)
            self.on_outcome("never")
        if outcome is not None and outcome.more:
            self._again.add(key)

    def _retry(self, key: _K, outcome: RetryLater) -> None:
        self.on_outcome("later")
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = max(self.policy.seconds(failures, self.rng), outcome.after or 0.0)
        if outcome.party_wide:
            held = max(self.policy.seconds(self._held_failures, self.rng), outcome.after or 0.0)
            self._held_until = self.clock.steady() + held
            self._held_failures += 1
            seconds = max(seconds, held)
        seconds = max(_SHORTEST_WAIT, min(seconds, outcome.within))
        log = self._log.info if failures else self._log.warning
        log("not sent, will try again", about=key, reason=outcome.reason, seconds=round(seconds, 1))
        self._later(key, seconds, outcome.sooner)

    def _later(self, key: _K, seconds: float, sooner: Callable[[], Awaitable[None]] | None = None) -> None:
        self._again.discard(key)
        if self._closing:
            return
        self._schedule(key, self.clock.steady() + seconds)
        if sooner is not None:
            wait = self._sooner[key] = asyncio.ensure_future(sooner())
            wait.add_done_callback(partial(self._retry_now, key))

    def _retry_now(self, key: _K, wait: asyncio.Future[None]) -> None:
        # It may end just as the retry begins.
        if not wait.cancelled() and key in self._due:
            self._schedule(key, -inf)
            self._pump()

    def _ended(self, key: _K, _: asyncio.Task[None]) -> None:
        del self._trying[key]
        if key in self._again:
            self._again.discard(key)
            if not self._closing:
                self._schedule(key, -inf)
        if key not in self._due and (waiter := self._waiters.pop(key, None)) is not None:
            waiter.set_result(None)
        self._pump()


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer to a post. `after`: the seconds that it asks to wait."""

    status: int
    after: float | None = None

    @property
    def is_taken(self) -> bool:
        return 200 <= self.status < 300

    @property
    def redirects(self) -> bool:
        return 300 <= self.status < 400

    @property
    def words(self) -> str:
        said = "it redirects, which is not followed" if self.redirects else "it did not take it"
        return f"{said} (HTTP {self.status})"


def signature(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the headers of one attempt: HMAC-SHA256 over id, time (seconds since 1970) and body."""
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{digest}",
    }


async def post(
    http: HttpClient, url: str, body: bytes, headers: Mapping[str, str], *, store: Store, clock: Clock
) -> Posted | str:
    """Makes one attempt, as the leader. Only the status counts, not the body.

    Returns the answer, or why there is none, without the URL.
    """
    try:
        async with (
            store.acting(),
            asyncio.timeout(ANSWER_TIMEOUT) as limit,
            http.stream("POST", url, body, headers=headers) as response,
        ):
            posted = Posted(response.status, retry_after(response.headers, clock.now()))
            limit.reschedule(None)
            await _drain(response)
            return posted
    except NETWORK as error:
        return words(error)


async def _drain(response: HttpStream) -> None:
    """Reads the body, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT):
            await response.body()
    except TimeoutError:
        _log.debug("response not read to its end", reason="it takes too long")
    except NETWORK as error:
        _log.debug("response not read to its end", reason=words(error))
