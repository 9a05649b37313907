"""The outbox: brings each party what it is owed, at least once, until it has it or will never take it.

A party is a sender: it knows what is owed, under which keys, and how one try is made. `Outbox` does the rest: one try at
a time for each key, backoff that obeys Retry-After, "cannot store: try again", the log. What is owed comes from

- a state of the party's own (a reply while its record says "sending", an issue that differs from its ledger): then
  `put(key)` is enough, and nothing is stored before the first try; or
- `Mail`, messages that are stored before they are sent, for parties without such a state.

Callbacks to a question's `callback_url` would be such a sender:

    class Callbacks:
        def __init__(self, producer: str, secret: bytes, *, store: Store, clock: Clock, rng: random.Random, …) -> None:
            self.secret, self.http = secret, HttpClient(None)
            self.mail = Mail(f"callback:{producer}", self.send, store=store, clock=clock, patience=timedelta(days=3))
            backoff = Backoff(first=15.0, longest=3600.0, spread=1 / 3)
            self.outbox = Outbox("callback", self.mail.attempt, backoff, clock=clock, rng=rng, at_once=4)

        async def restore(self, records: Iterable[Clarification]) -> None:
            for record in records:  # what was decided, and killed before it was stored here
                if record.asked.callback == "owed":
                    await self.decided(record, record.asked.callback_url)
            for clarification in await self.mail.owed():
                self.outbox.put(clarification)

        async def decided(self, record: Clarification, url: str) -> None:
            owed = Owed(f"msg_{record.id}:{record.round}", record.id, url, json_body(records.answer_of(record)))
            await self.store.write(lambda tx: self.mail.add(tx, [owed], self.clock.now()))
            self.outbox.put(record.id)

        async def send(self, owed: Owed) -> Outcome:
            now = self.clock.now()
            headers = signature(self.secret, owed.id, int(now.timestamp()), owed.body)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT):
                    answer = await self.http.request("POST", owed.kind, owed.body, headers=headers)
            except NETWORK as error:
                return RetryLater(words(error))
            if 200 <= answer.status < 300:
                return Delivered()
            if answer.status == 410:
                return GivenUp("the address is gone (HTTP 410)")
            return RetryLater(f"HTTP {answer.status}", after=retry_after(answer.headers, now))

and `mail.forget(tx, clarifications)` is what `retention` calls already.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from math import inf
from typing import Generic, TypeVar

import structlog

from bot.errors import StorageUnavailable
from bot.storage.store import Store
from bot.storage.tx import Tx, batches
from core.clock import Clock, backoff
from core.errors import LedgerUnwritable, LockTimeout

_log = structlog.get_logger("clarify.outbox")
_NOT_NOW = (StorageUnavailable, LockTimeout, LedgerUnwritable)
_STORAGE_RETRY = 0.5  # seconds
_AFTER_A_DEFECT = 60.0  # seconds until what raised an unexpected error is tried again
_SHORTEST_WAIT = 0.05  # seconds between tries
_SHORTEST_SLEEP = 0.001  # less than a clock can tell apart would return at the same moment for ever
_K = TypeVar("_K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Delivered:
    """The party has it. `more`: there is more under this key; other keys get their turn first."""

    more: bool = False


@dataclass(frozen=True, slots=True)
class RetryLater:
    """To be tried again, after the backoff.

    Args:
        reason: for the log: no secrets, no contents.
        after: seconds to wait at least, as the party asked.
        within: seconds to wait at most.
        everybody: the party itself is in trouble: it gets nothing else before, either.
        sooner: the wait ends when this returns.
    """

    reason: str
    after: float | None = None
    within: float = inf
    everybody: bool = False
    sooner: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """It will never be sent. `everybody`: nor any other `Mail` of the party, until the next start. `more`: see `Delivered`."""

    reason: str
    everybody: bool = False
    more: bool = False


Outcome = Delivered | RetryLater | GivenUp


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds after failures, see `core.clock.backoff`."""

    first: float
    longest: float
    spread: float

    def seconds(self, failures: int, rng: random.Random) -> float:
        return backoff(
            failures, first=self.first, longest=self.longest, spread=self.spread, chance=rng.random()
        )


class Outbox(Generic[_K]):
    """Tries what one party is owed, one try at a time for each key, `at_once` of them side by side.

    `attempt(key)` makes one try; None: nothing is owed under this key. It may raise StorageUnavailable, LockTimeout or
    LedgerUnwritable where it cannot read or store now. `on_outcome` is told sent, later or never for each try.
    """

    def __init__(
        self,
        party: str,
        attempt: Callable[[_K], Awaitable[Outcome | None]],
        policy: Backoff,
        *,
        clock: Clock,
        rng: random.Random,
        at_once: float = 1,
        on_outcome: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._attempt = attempt
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._at_once = at_once
        self._on_outcome = on_outcome
        self._running = self._closing = False
        self._due: dict[_K, float] = {}  # not before, on the steady clock
        self._queue: list[tuple[float, int, _K]] = []  # a heap; what `_due` does not confirm is out of date
        self._numbers = count()
        self._trying: dict[_K, asyncio.Task[None]] = {}
        self._again: set[_K] = set()
        self._failures: dict[_K, int] = {}
        self._sooner: dict[_K, asyncio.Future[None]] = {}
        self._held_until, self._held_failures = -inf, 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = inf
        self._waiters: dict[_K, asyncio.Future[None]] = {}
        self._log = _log.bind(party=party)

    def __len__(self) -> int:
        """How many keys something is owed under."""
        return len(self._due) + len(self._trying)

    @property
    def idle(self) -> bool:
        """Whether nothing can be done now: what is left waits for its time."""
        return not self._trying and self._next_at() > self._clock.steady()

    def __contains__(self, key: _K) -> bool:
        return key in self._due or key in self._trying

    def put(self, key: _K) -> None:
        """Something is owed under `key` now: it is tried at once, unless it failed and waits for its next try."""
        if key in self._trying:
            self._again.add(key)
        elif key not in self._due:
            self._schedule(key, -inf)
            self._pump()

    def start(self) -> None:
        """Begin to try what was `put`."""
        self._running, self._closing = True, False
        self._pump()

    async def run(self) -> None:
        """Try what was `put`, until cancelled."""
        self.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._running = False
            await self.close(0.0)

    async def close(self, grace: float = 5.0) -> None:
        """Let running tries end, `grace` seconds long; nothing is tried a second time."""
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
        """Returns when nothing is owed under these, after `patience` seconds at the latest."""
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
        """Start every try that may be made now; wait for the time of the next."""
        at = inf
        while self._running and len(self._trying) < self._at_once:
            if (at := self._next_at()) > self._clock.steady():
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
        while (left := until - self._clock.steady()) > 0:
            await self._clock.sleep(max(_SHORTEST_SLEEP, left))
        self._timer, self._timer_at = None, inf
        self._pump()

    async def _try(self, key: _K) -> None:
        outcome: Outcome | None
        try:
            outcome = await self._attempt(key)
        except _NOT_NOW as error:
            self._log.warning("cannot read or store now, will try again", about=key, reason=str(error))
            self._later(key, _STORAGE_RETRY)
            return
        except Exception:  # noqa: BLE001 - whatever it is, the others go on
            self._log.exception("cannot send, will try again", about=key)
            self._later(key, _AFTER_A_DEFECT)
            return
        if isinstance(outcome, RetryLater):
            self._retry(key, outcome)
            return
        self._failures.pop(key, None)
        if isinstance(outcome, Delivered):
            self._held_until, self._held_failures = -inf, 0
            self._on_outcome("sent")
        elif isinstance(outcome, GivenUp):
            self._log.error("given up", about=key, reason=outcome.reason)
            self._on_outcome("never")
        if outcome is not None and outcome.more:
            self._again.add(key)

    def _retry(self, key: _K, outcome: RetryLater) -> None:
        self._on_outcome("later")
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        seconds = max(self._policy.seconds(failures, self._rng), outcome.after or 0.0)
        if outcome.everybody:
            held = max(self._policy.seconds(self._held_failures, self._rng), outcome.after or 0.0)
            self._held_until = self._clock.steady() + held
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
        self._schedule(key, self._clock.steady() + seconds)
        if sooner is not None:
            wait = self._sooner[key] = asyncio.ensure_future(sooner())
            wait.add_done_callback(partial(self._is_sooner, key))

    def _is_sooner(self, key: _K, wait: asyncio.Future[None]) -> None:
        if not wait.cancelled():
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
class Owed:
    """One stored message: the same `id` and `body` on every try. `clarification`: what it is about; messages about one go
    out in their order. `kind`: what its sender needs to know besides.
    """

    id: str
    clarification: str
    kind: str
    body: bytes = field(repr=False)


class Mail:
    """Stores what one party is owed until it has it: the rows of `webhook_outbox` that name it in `endpoint`.

    `attempt` is an `Outbox`'s; its keys are clarifications. What is older than `patience` is given up once it, or the
    party, failed. Every method raises StorageUnavailable if nothing could be stored or read.
    """

    def __init__(
        self,
        party: str,
        send: Callable[[Owed], Awaitable[Outcome]],
        *,
        store: Store,
        clock: Clock,
        patience: timedelta,
    ) -> None:
        self._party = party
        self._send = send
        self._store = store
        self._clock = clock
        self._patience = patience
        self._fails, self._gone = False, ""

    async def owed(self) -> list[str]:
        """The clarifications with messages, in the order in which they are to be tried: what never failed goes first."""
        rows = await self._store.read(
            """select clarification from webhook_outbox where endpoint = :party
               group by clarification order by min(failures), min(seq)""",
            party=self._party,
        )
        return [row["clarification"] for row in rows]

    def add(self, tx: Tx, messages: Sequence[Owed], now: datetime) -> None:
        """Store messages; then `put` their clarifications."""
        tx.many(
            """insert into webhook_outbox (endpoint, id, clarification, type, body, queued_at, due)
               values (:party, :id, :clarification, :kind, :body, :now, :now) on conflict (endpoint, id) do nothing""",
            [{"party": self._party, "now": now.timestamp(), **asdict(each)} for each in messages],
        )

    async def attempt(self, clarification: str) -> Outcome | None:
        """Send the first message about a clarification, unless it was tried long enough."""
        row = await self._store.read_one(
            """select seq, id, type, body, queued_at, failures from webhook_outbox
               where endpoint = :party and clarification = :clarification order by seq limit 1""",
            party=self._party,
            clarification=clarification,
        )
        if row is None:
            return None
        is_old = row["queued_at"] < (self._clock.now() - self._patience).timestamp()
        outcome: Outcome
        if self._gone or (is_old and (self._fails or row["failures"])):
            # What grew old while no bot ran is tried before it is given up.
            outcome = GivenUp(self._gone or "it was tried long enough")
        else:
            outcome = await self._send(Owed(row["id"], clarification, row["type"], row["body"]))
            self._fails = isinstance(outcome, RetryLater)
        if isinstance(outcome, RetryLater):
            if not row["failures"]:
                await self._store.run(
                    "update webhook_outbox set failures = 1 where seq = :seq", seq=row["seq"]
                )
            return outcome
        if isinstance(outcome, GivenUp) and outcome.everybody:
            self._gone = outcome.reason
        return replace(outcome, more=await self._settled(row["seq"], clarification))

    async def _settled(self, seq: int, clarification: str) -> bool:
        """Delete a message; whether there is another about the clarification."""

        def work(tx: Tx) -> bool:
            tx.run("delete from webhook_outbox where seq = :seq", seq=seq)
            left = tx.one(
                "select 1 from webhook_outbox where endpoint = :party and clarification = :clarification limit 1",
                party=self._party,
                clarification=clarification,
            )
            return left is not None

        return await self._store.write(work)


async def waiting(store: Store) -> Mapping[str, int]:
    """How many stored messages wait, by party."""
    rows = await store.read("select endpoint, count(*) as n from webhook_outbox group by endpoint")
    return {row["endpoint"]: int(row["n"]) for row in rows}


def retain(tx: Tx, kind: str, parties: Collection[str]) -> int:
    """Drop messages to parties of a kind (`kind:…`; '': those without a colon) but these; how many."""
    there = [row["endpoint"] for row in tx.rows("select distinct endpoint from webhook_outbox")]
    gone = [each for each in there if each.rpartition(":")[0] == kind and each not in parties]
    return sum(tx.run("delete from webhook_outbox where endpoint = :party", party=each) for each in gone)


def forget(tx: Tx, clarifications: Iterable[str]) -> None:
    """Forget the messages about clarifications."""
    for some in batches(clarifications):
        tx.run("delete from webhook_outbox where clarification in :ids", ids=some)
