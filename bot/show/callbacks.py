"""Posts the final state of questions to their `callback_url`: signed, retried for three days, at least once.

`Callbacks` is a consumer of the feed: when a question ends, or gets another URL after its end, it stores that its state is owed to
the URL, in the transaction that moves its cursor. The URL stands with the question (`bot.ask.questions`) until the state was
taken or given up; the state itself is read for each attempt. Each producer has its own outbox and connections for each host, so
that a slow host delays no other, and a producer's slow URLs no other producer.

The URL is a secret: only its host is logged or shown. It came from an agent, so it is compared with `callbacks` of the
producer again before each attempt, and only addresses that these allow are called.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from bot.ask.questions import NEW_CALLBACK, Callback, Forgotten, Questions
from bot.http import HttpClient, json_body
from bot.settings.addresses import may_be_called
from bot.settings.load import signing_key
from bot.settings.model import Settings
from bot.show.outbox import Backoff, Delivered, GivenUp, Outbox, Outcome, Posted, RetryLater, post, signature
from bot.storage.changes import RecordChange
from bot.storage.store import Store
from bot.storage.tx import Tx
from core.clarification import Clarification
from core.clock import Clock
from core.errors import LedgersAway, LedgerUnreadable, NotFound, Tampered
from core.ledger import ABANDONED
from core.questions import asked_and_receipt, state_of

_PATIENCE = timedelta(days=3)  # how long a callback is retried
_TROUBLE = timedelta(minutes=10)  # how long one fails before that is trouble
_BACKOFF = Backoff(first=2.0, longest=3600.0, spread=1 / 3)
_LEDGERS_RETRY = 5.0  # seconds
_AT_ONCE = 10  # callbacks to one host
_WANTED = {"answered", ABANDONED, NEW_CALLBACK}  # what is resolved was answered
_OVER = (404, 410)  # HTTP: the workflow no longer waits there


@dataclass(kw_only=True, eq=False)
class Callbacks:
    """The consumer of the feed that posts what is owed (`bot.feed`). Run `run` until cancelled.

    `links_of` returns the links to cards. `tell(record, host, why)` says in the thread, once, that a callback was given up.
    """

    settings: Settings
    questions: Questions
    store: Store
    links_of: Callable[[list[str]], Awaitable[dict[str, str]]]
    tell: Callable[[Clarification, str, str], Awaitable[None]]
    clock: Clock
    rng: random.Random
    on_outcome: Callable[[str], None]
    name: str = "callbacks"
    gather: float = 0.0

    def __post_init__(self) -> None:
        self._keys = {
            each.name: signing_key(self.settings.secret(each.callback_secret_env))
            for each in self.settings.producers
            if each.callback_secret_env is not None
        }
        self._senders: dict[tuple[str, str, bool], _Sender] = {}
        self._running: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        """Returns how many callbacks are owed and not taken yet."""
        return sum(len(each.outbox) for each in self._senders.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is running or due now."""
        return all(each.outbox.idle for each in self._senders.values())

    def trouble(self) -> str | None:
        """Returns which hosts have not taken callbacks for a while, and why; None: there are none."""
        found = (each.trouble(self.clock.now()) for each in self._senders.values())
        return "; ".join(filter(None, found)) or None

    def wants(self, change: RecordChange) -> bool:
        return any(word.partition("/")[0] in _WANTED for word in change.what.split())

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:  # noqa: ARG002 - the protocol's
        if record.is_open:  # it has another URL, which is called at the end
            return None
        callback = self.questions.owe_callback(tx, record.id)
        return None if callback is None else partial(self._put, callback)

    async def load(self) -> None:
        for callback in await self.questions.owed_callbacks():
            self._put(callback)

    def _put(self, callback: Callback) -> None:
        """Hands a callback to its sender."""
        sender = self.sender(callback)
        sender.put(callback)
        for other in self._senders.values():
            if other is not sender:
                other.look_again(callback.clarification)

    async def run(self) -> None:
        """Posts until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._running:
                for each in self._senders.values():
                    self._running.create_task(each.run(), name=f"callbacks: {each.host}")
                await asyncio.Event().wait()  # more of them may come
        finally:
            self._running = None

    def sender(self, callback: Callback) -> _Sender:
        """Returns the sender of its producer's callbacks to its host."""
        host, private = callback.host, callback.entry is not None and callback.entry.private
        key = callback.producer, host, private
        if (sender := self._senders.get(key)) is None:
            sender = self._senders[key] = _Sender(all=self, host=host, private=private)
            if self._running is not None:
                self._running.create_task(sender.run(), name=f"callbacks: {host}")
        return sender

    def key_of(self, producer: str) -> bytes | None:
        return self._keys.get(producer)


class _Failing(NamedTuple):
    """Since when a callback fails, why, and its URL, which is a secret."""

    since: datetime
    why: str
    url: str


@dataclass(kw_only=True, eq=False)
class _Sender:
    """Posts to one host for one producer, so that one producer's slow URLs don't delay another's. Questions don't wait for each
    other, either: each has its own URL, and any of them may be wrong.
    """

    all: Callbacks
    host: str
    private: bool
    http: HttpClient = field(init=False)
    outbox: Outbox[str] = field(init=False)
    _failing: dict[str, _Failing] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.http = HttpClient(None, may_be_called=partial(may_be_called, private=self.private))
        self.outbox = Outbox(
            f"callback {self.host}",
            self._attempt,
            _BACKOFF,
            clock=self.all.clock,
            rng=self.all.rng,
            at_once=_AT_ONCE,
            on_outcome=self.all.on_outcome,
        )

    async def run(self) -> None:
        """Posts until cancelled."""
        try:
            await self.outbox.run()
        finally:
            await self.http.close()

    def put(self, callback: Callback) -> None:
        """Has a callback posted: at once, unless its URL waits for its retry."""
        failed = self._failing.get(callback.clarification)
        self.outbox.put(callback.clarification, anew=failed is not None and failed.url != callback.url)

    def look_again(self, clarification: str) -> None:
        """Has a callback that keeps failing here looked at now: its newer URL may be another sender's."""
        if clarification in self._failing:
            self.outbox.put(clarification, anew=True)

    def trouble(self, now: datetime) -> str | None:
        """Returns how many callbacks keep failing, since when and why; None: none has for long."""
        since, why, _ = min(self._failing.values(), default=_Failing(now, "", ""))
        if since > now - _TROUBLE:
            return None
        count = len(self._failing)
        many = "1 callback" if count == 1 else f"{count} callbacks"
        return f"{many} to {self.host} not taken, since {since:%Y-%m-%d %H:%M} UTC: {why}"

    async def _attempt(self, clarification: str) -> Outcome | None:
        outcome = await self._tried(clarification)
        if not isinstance(outcome, RetryLater):
            self._failing.pop(clarification, None)
        return outcome

    async def _tried(self, clarification: str) -> Outcome | None:
        """Makes one attempt and stores its outcome."""
        questions = self.all.questions
        try:
            callback = await questions.callback(clarification)
            if callback is None or self.all.sender(callback) is not self:  # there is a newer URL, or none
                return None
            try:
                record = await questions.find(clarification, callback.producer)
            except (Forgotten, NotFound, Tampered) as error:
                return await self._settled(callback, None, RetryLater(str(error)))  # it may be restored
            return await self._settled(callback, record, await self._post(callback, record))
        except (LedgersAway, LedgerUnreadable) as error:
            return RetryLater(str(error), after=_LEDGERS_RETRY)

    async def _settled(
        self, callback: Callback, record: Clarification | None, outcome: Outcome
    ) -> Outcome | None:
        """Stores what came of an attempt. Returns it, or that the callback is given up now; None: the question was forgotten,
        or has a newer URL, of which the feed tells.
        """
        questions, now = self.all.questions, self.all.clock.now()
        if record is not None and isinstance(outcome, Delivered):
            await questions.picked_up(record)
        if isinstance(outcome, RetryLater):
            await questions.callback_failed(callback)
        newest = await questions.callback(callback.clarification)
        if newest is None or newest.url != callback.url:
            return outcome if isinstance(outcome, Delivered) else None
        if isinstance(outcome, RetryLater):
            if (callback.failed_at or now) > now - _PATIENCE:
                failing = _Failing(callback.failed_at or now, outcome.reason, callback.url)
                self._failing[callback.clarification] = failing
                return outcome  # with no await since the look: a newer URL must not wait for this retry
            outcome = GivenUp(f"for three days, {outcome.reason}")
        if record is not None and isinstance(outcome, GivenUp):
            await self.all.tell(record, self.host, outcome.reason)
        await questions.callback_done(callback)
        return outcome

    async def _post(self, callback: Callback, record: Clarification) -> Outcome:
        """Makes one attempt."""
        if callback.entry is None:
            return GivenUp("it is no longer in `callbacks` of [[producers]]")
        links = await self.all.links_of([record.id])
        body = json_body(state_of(record, links.get(record.id)) | asked_and_receipt(record))
        name = f"{record.id}/{record.round}"  # also the id of the receipt
        headers = {"Idempotency-Key": name}
        if (key := self.all.key_of(callback.producer)) is not None:
            headers |= signature(key, name, int(self.all.clock.now().timestamp()), body)
        posted = await post(
            self.http, callback.url, body, headers, store=self.all.store, clock=self.all.clock
        )
        if not isinstance(posted, Posted):
            return RetryLater(posted)
        if posted.is_taken:
            return Delivered()
        if posted.status in _OVER:
            return GivenUp(f"nothing waits there any more (HTTP {posted.status})")
        if posted.redirects:
            return GivenUp(posted.words)
        return RetryLater(posted.words, after=posted.after)
