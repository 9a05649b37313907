"""Sends messages about clarifications to parties outside: what most integrations do (`Mailer`), and what they get (`Host`)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, runtime_checkable

import structlog

from bot.ask.questions import Questions
from bot.http import HttpClient
from bot.intake.entries import Entries
from bot.intake.notices import Teller
from bot.show.outbox import Backoff, Delivered, GivenUp, Outbox, Outcome, Posted, RetryLater, post
from bot.storage.changes import RecordChange
from bot.storage.ledger import tell
from bot.storage.store import Store
from bot.storage.tx import Tx, batches
from core.clarification import Clarification
from core.clock import Clock
from core.ledger import FORGOTTEN, Ledger, executed

_log = structlog.get_logger("clarify.integrations")
_PATIENCE = timedelta(days=3)  # how long a message is retried
_BACKOFF = Backoff(first=15.0, longest=3600.0, spread=1 / 3)
_GONE = 410  # HTTP: the party never wants messages again


@dataclass(frozen=True, kw_only=True, eq=False)
class Host:
    """The running bot, for one integration.

    `secret` returns the value of an environment variable that its settings name. `on_outcome` counts an attempt to send to a
    party, by the party's label: "sent", "later", "never". `entries` records what other programs say; `teller` notifies people;
    `questions` asks them for a producer.
    """

    name: str
    store: Store
    ledger: Ledger
    clock: Clock
    rng: random.Random
    secret: Callable[[str], str]
    on_outcome: Callable[[str, str], None]
    entries: Entries
    teller: Teller
    questions: Questions

    def executed(self, tx: Tx, record: Clarification, result_sha256: str, *, is_error: bool) -> None:
        """Has the log of decisions say that an approved action was carried out, with the base64url SHA-256 of its result. Call
        `questions.wake_feed` once this is stored.
        """
        tell(tx, record.id, executed(record, result_sha256, is_error=is_error), self.clock.now())


@dataclass(frozen=True, slots=True)
class Message:
    """A message to a party. Messages with the same `about` are sent in order, each with the same `id` and `body` at every
    attempt. A message whose id is already waiting is not stored again. The sender can use `kind` as it likes.
    """

    id: str
    about: str
    body: bytes = field(repr=False)
    kind: str = ""
    party: str = ""


Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[Posted | str]]
"""Posts a body of JSON to a URL, with headers. Returns the answer, or why there is none, without the URL."""


def outcome_of(posted: Posted | str) -> Outcome:
    """Returns the outcome of a post if the party accepts or refuses messages as a whole: 410 means that it wants no more messages;
    any other status but 2xx means that it is in trouble.
    """
    if not isinstance(posted, Posted):
        return RetryLater(posted, party_wide=True)
    if posted.is_taken:
        return Delivered()
    if posted.status == _GONE:
        return GivenUp(f"HTTP {posted.status}", party_wide=True)
    return RetryLater(posted.words, after=posted.after, party_wide=True)


@runtime_checkable
class Follower(Protocol):
    """Follows the changes of clarifications and sends messages about them to other systems.

    `parties`: the labels of these systems for logs and metrics, by their names in the storage. A label must not contain a secret.
    """

    parties: Mapping[str, str]

    def wants(self, change: RecordChange) -> bool:
        """Returns whether a change matters, judged by its events (`core.ledger.told_in`). If not, the bot doesn't read the record."""

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Iterable[Message]:
        """Returns the messages to send about a change. `record` is as of the change, or newer.

        It runs inside the transaction that stores these messages, and everything else waits for that transaction. So it must not
        wait or compute for long.
        """

    async def send(self, message: Message, post: Post) -> Outcome:
        """Makes one attempt to send a message. The bot retries."""


@runtime_checkable
class EventFollower(Protocol):
    """A follower that also sends events that are about no clarification, such as `decisions-checkpoint`."""

    def announcement(self, event: str, data: Mapping[str, object], now: datetime) -> Iterable[Message]:
        """Returns the messages to send about an event."""


@dataclass(eq=False)
class Mailer:
    """The consumer of the feed that sends a follower's messages: at least once, to each party in the order of a clarification's
    changes, with retries for three days. A failing party delays no other.
    """

    host: Host
    follower: Follower
    gather: float = 0.0

    def __post_init__(self) -> None:
        self.name = self.host.name
        self._boxes = {
            party: Mailbox(self.host, label, party, self.follower.send)
            for party, label in self.follower.parties.items()
        }

    @property
    def idle(self) -> bool:
        """Whether nothing is running or due now."""
        return all(each.outbox.idle for each in self._boxes.values())

    def wants(self, change: RecordChange) -> bool:
        return change.what == FORGOTTEN or self.follower.wants(change)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Callable[[], None] | None:
        if change.what == FORGOTTEN:
            forget(tx, [record.id])  # what was stored while it was being forgotten in another transaction
            return None
        return self._add(tx, self.follower.owes(change, record, tx))

    def announce(self, tx: Tx, event: str, data: Mapping[str, object], now: datetime) -> Callable[[], None]:
        """Stores an event about no clarification in a transaction. Call the result once the transaction is stored."""
        told = (
            self.follower.announcement(event, data, now) if isinstance(self.follower, EventFollower) else ()
        )
        return self._add(tx, told)

    def _add(self, tx: Tx, messages: Iterable[Message]) -> Callable[[], None]:
        found, now = list(messages), self.host.clock.now()
        for each in found:
            self._boxes[each.party].add(tx, each, now)

        def put() -> None:
            for each in found:
                self._boxes[each.party].outbox.put(each.about)

        return put

    async def load(self) -> None:
        """Loads the stored messages; drops those for parties that are no longer configured."""

        def work(tx: Tx) -> int:
            return retain(tx, f"{self.name}:", {each.endpoint for each in self._boxes.values()})

        if dropped := await self.host.store.write(work):
            _log.warning(
                "dropped messages to parties no longer configured", integration=self.name, messages=dropped
            )
        for box in self._boxes.values():
            await box.load()

    async def run(self) -> None:
        """Sends messages until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._boxes.values():
                group.create_task(each.run(), name=f"{self.name}: outbox")

    async def waiting(self) -> Mapping[str, int]:
        """Returns how many messages are queued, by the label of the party."""
        rows = await self.host.store.read("select endpoint, count(*) as n from outbox group by endpoint")
        queued, found = {row["endpoint"]: int(row["n"]) for row in rows}, Counter[str]()
        for box in self._boxes.values():
            found[box.label] += queued.get(box.endpoint, 0)
        return found


class Mailbox:
    """Stores the messages to one party until they are delivered, and sends them one at a time: the rows of `outbox` with
    the sender and the party in `endpoint`.

    Gives up a message that is older than three days if it, or the party, has failed.
    """

    def __init__(
        self, host: Host, label: str, party: str, send: Callable[[Message, Post], Awaitable[Outcome]]
    ) -> None:
        self.label, self.endpoint = label, f"{host.name}:{party}"
        self._host, self._store, self._party, self._send = host, host.store, party, send
        self._http = HttpClient(None)
        self._fails, self._gone = False, ""
        self.outbox = Outbox(
            f"{host.name} {label}",
            self._attempt,
            _BACKOFF,
            clock=host.clock,
            rng=host.rng,
            on_outcome=partial(host.on_outcome, label),
        )

    async def load(self) -> None:
        """Queues what the stored messages are about: first what never failed."""
        for row in await self._store.read(
            """select clarification from outbox where endpoint = :party
               group by clarification order by min(failures), min(seq)""",
            party=self.endpoint,
        ):
            self.outbox.put(row["clarification"])

    async def run(self) -> None:
        """Sends until cancelled."""
        try:
            await self.outbox.run()
        finally:
            await self._http.close()

    def add(self, tx: Tx, message: Message, now: datetime) -> None:
        """Stores a message. `put` what it is about into the outbox afterwards."""
        tx.run(
            """insert into outbox (endpoint, id, clarification, type, body, queued_at)
               values (:party, :id, :about, :kind, :body, :now) on conflict (endpoint, id) do nothing""",
            **{**asdict(message), "party": self.endpoint, "now": now.timestamp()},
        )

    async def _attempt(self, about: str) -> Outcome | None:
        """Sends the first message about something, or gives it up after `_PATIENCE`."""
        row = await self._store.read_one(
            """select seq, id, type, body, queued_at, failures from outbox
               where endpoint = :party and clarification = :about order by seq limit 1""",
            party=self.endpoint,
            about=about,
        )
        if row is None:
            return None
        is_old = row["queued_at"] < (self._host.clock.now() - _PATIENCE).timestamp()
        outcome: Outcome
        if self._gone or (is_old and (self._fails or row["failures"])):
            # A message that grew old during downtime gets one attempt first.
            outcome = GivenUp(self._gone or "it was tried long enough")
        else:
            message = Message(row["id"], about, row["body"], row["type"], self._party)
            outcome = await self._send(message, self._post)
            self._fails = isinstance(outcome, RetryLater)
        if isinstance(outcome, RetryLater):
            if not row["failures"]:
                await self._store.run("update outbox set failures = 1 where seq = :seq", seq=row["seq"])
            return outcome
        if isinstance(outcome, GivenUp) and outcome.party_wide:
            self._gone = outcome.reason
        return replace(outcome, more=await self._settled(row["seq"], about))

    async def _settled(self, seq: int, about: str) -> bool:
        """Deletes a message; returns whether there is another about the same."""

        def work(tx: Tx) -> bool:
            tx.run("delete from outbox where seq = :seq", seq=seq)
            left = tx.one(
                "select 1 from outbox where endpoint = :party and clarification = :about limit 1",
                party=self.endpoint,
                about=about,
            )
            return left is not None

        return await self._store.write(work)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Posted | str:
        return await post(self._http, url, body, headers, store=self._store, clock=self._host.clock)


def retain(tx: Tx, prefix: str, parties: Collection[str]) -> int:
    """Deletes the messages for parties whose name begins so, and are not in `parties`; returns how many."""
    there = {row["endpoint"] for row in tx.rows("select distinct endpoint from outbox")}
    gone = [each for each in there.difference(parties) if each.startswith(prefix)]
    return sum(tx.run("delete from outbox where endpoint = :party", party=each) for each in gone)


def forget(tx: Tx, clarifications: Iterable[str]) -> None:
    for some in batches(clarifications):
        tx.run("delete from outbox where clarification in :ids", ids=some)
