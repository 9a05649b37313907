"""Serves producers that push: they post events to us and read our replies from a stream.

Source: AAEP specification chapter 5 for the handshake, with the roles reversed: here the agent asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any

import structlog

from bot.ask.client import AAEP_VERSION, Accepted, Refused, Reply, ReplyOutcome, TryAgain, reply_message
from bot.ask.inbox import Arrived
from bot.ask.receiver import Arrival, Frame, Oversize, Receiver
from bot.errors import ClarifyBotError, StorageError
from bot.http import json_body
from bot.storage.store import Store, Sweep
from bot.storage.tx import Tx
from core.aaep import CLARIFICATION, CRITICAL_TYPES, IGNORED_TYPES, KNOWN_TYPES, Event, NotAnEvent
from core.clock import Clock, within
from core.records import Subject

HEARD_LATELY = timedelta(minutes=5)
MOST_READERS = 32
_RECEIVED = frozenset({"written", "confirmed"})
_PATIENCE = 5.0  # seconds that a reader may take to receive a reply
_KEEP = timedelta(days=1)  # how long finished replies stay, in case a reader resumes before them
_AT_ONCE = 100
_OURS = ("supports_confirmation_reply", "supports_clarification_reply")
_LEVELS = (1, 2, 3)
_LONGEST_TYPE = 80
_NEAR = 0.8  # of difflib's ratio
_FIELDS = {
    "multiple_choice without choices": "choices",
    "a choice has neither value nor label": "choices",
    "neither accept nor reject is allowed": "allowed_replies",
    "not UTF-8": None,
}


USED: Mapping[Arrived, tuple[str, str]] = {
    "event_id used": ("event_id", "This `event_id` was used for a different event. Use a new one."),
    "reply_token used": (
        "reply_token",
        "This `reply_token` was used for a different question. Use a new one.",
    ),
}
log = structlog.get_logger(__name__)


class NotStored(ClarifyBotError):
    """We refuse a producer's message. `field`: the wrong one, if any. Never quotes the message."""

    status, code = 400, "BAD_INPUT"

    def __init__(self, message: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


class Broken(NotStored):
    """An event that its producer must correct: it is unanswerable, or its id belongs to another event."""

    status = 422


class NoSuchSubscription(NotStored):
    """The message names an unknown subscription."""

    status, code = 404, "NOT_FOUND"


class TooManyReaders(ClarifyBotError):
    """This producer's replies already have `MOST_READERS` readers."""


@dataclass(frozen=True, slots=True)
class ReplyStream:
    """A producer's reply stream: frame ids begin with `epoch`, replies name `subscription`."""

    epoch: str
    subscription: str


@dataclass(frozen=True, slots=True)
class KeptReply:
    """One reply in the stream. `state`: "waiting", "begun" (may have arrived), "written" or "confirmed"."""

    id: int
    body: str = field(repr=False)
    state: str


@dataclass(frozen=True, slots=True)
class Stored:
    """An event in the inbox. `problems`: its schema violations, without contents. `duplicate`: it was stored before."""

    event_id: str
    problems: tuple[str, ...]
    duplicate: bool = False


@dataclass(kw_only=True, eq=False)
class Push:
    """Receives one producer's events and streams its replies, over any number of connections.

    A reply is stored before it is sent, so a reader can ask for it again. `receiver` must not wait for its storage.
    `on_connected(producer)` is called for every reader.
    """

    producer: str
    receiver: Receiver
    store: Store
    clock: Clock
    rng: random.Random
    on_connected: Callable[[str], None]
    since: datetime | None = None
    last_heard: datetime | None = None
    _readers: set[Reader] = field(default_factory=set)
    _stream: ReplyStream | None = None
    _waiting: dict[int, asyncio.Future[bool]] = field(default_factory=dict)

    @property
    def connected(self) -> bool:
        """Whether the producer reads its replies, or sent something in the last five minutes."""
        lately = self.last_heard is not None and self.clock.now() - self.last_heard <= HEARD_LATELY
        return bool(self._readers) or lately

    def status(self) -> dict[str, Any]:
        return self.receiver.status(
            connected=self.connected, dialect="push", since=self.since, last_heard=self.last_heard
        )

    # What it sends to us

    async def receive(self, body: bytes) -> Stored | Mapping[str, Any] | None:
        """Stores an event, or returns the answer to a handshake message.

        Raises:
            NotStored: the message is neither; Broken: the producer must correct it, or use a new id or token.
            StorageError: nothing was stored; the producer must send it again.
        """
        self.last_heard = self.clock.now()
        text, replaced = _text(body)
        message = handshake_message(text)
        if message is not None:
            return await self._handshake(message)
        try:
            event, arrived = await self.receiver.store_one(
                Frame(text, None, len(body), 0, replaced), check_event
            )
        except NotAnEvent as error:
            field = "type" if text.lstrip().startswith("{") else None
            raise NotStored(f"The message is not an AAEP event: {error}.", field) from None
        except RecursionError:
            raise NotStored("The message is nested too deeply.") from None
        except ValueError:
            raise NotStored("The message is not JSON.") from None
        if arrived in USED:
            field, why = USED[arrived]
            raise Broken(why, field)
        await self._note_progress(event)
        return Stored(event.event_id, event.problems, duplicate=arrived == "duplicate")

    async def too_large(self, head: str) -> None:
        """Pages a human because a message over 1 MiB arrived. `head`: its beginning.

        Raises:
            StorageError: the page could not be stored.
        """
        self.last_heard = self.clock.now()
        await self.receiver.handle(Arrival(Oversize(head, 0), self.last_heard, live=False))

    async def _handshake(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if message["type"] == "subscription.request":
            asked = checked_request(message)
            if message["aaep_version"].partition(".")[0] != AAEP_VERSION.partition(".")[0]:
                return {
                    "type": "subscription.rejected",
                    "reason_code": "version_unsupported",
                    "reason_message": "This subscriber supports AAEP 1.x only.",
                }
            return accepted(self.producer, await self._subscribe(), asked)
        if message["type"] != "subscription.close":
            raise NotStored(
                "`type` must be an event type, subscription.request or subscription.close.", "type"
            )
        if message.get("subscription_id") != (await self._known_stream()).subscription:
            raise NoSuchSubscription(
                "Unknown `subscription_id`. Send subscription.request again.", "subscription_id"
            )
        await self._subscribe()
        return None

    async def _subscribe(self) -> str:
        """Starts a new subscription for the next replies; returns its id."""
        stream, subscription = await self._known_stream(), self._new_subscription()

        def work(tx: Tx) -> None:
            tx.run(
                "update pushing set subscription = :subscription where producer = :producer",
                subscription=subscription,
                producer=self.producer,
            )
            tx.tell("replies", self.producer)

        await self.store.write(work)
        self._stream = ReplyStream(stream.epoch, subscription)
        return subscription

    async def _known_stream(self) -> ReplyStream:
        """Returns the producer's reply stream; creates it the first time."""
        if self._stream is not None:
            return self._stream
        epoch, subscription = f"{self.rng.getrandbits(48):012x}", self._new_subscription()

        def work(tx: Tx) -> ReplyStream:
            tx.run(
                """insert into pushing (producer, epoch, subscription) values (:producer, :epoch, :subscription)
                   on conflict (producer) do nothing""",
                producer=self.producer,
                epoch=epoch,
                subscription=subscription,
            )
            (row,) = tx.rows("select * from pushing where producer = :producer", producer=self.producer)
            return ReplyStream(row["epoch"], row["subscription"])

        self._stream = await self.store.write(work)
        return self._stream

    def _new_subscription(self) -> str:
        return f"sub_{self.rng.getrandbits(128):032x}"

    async def _note_progress(self, event: Event) -> None:
        """Confirms the replies written before `event`: a session that goes on has received them.

        A repeated event does not count, as an agent that restarts sends its earlier events again.
        """
        if event.type in IGNORED_TYPES and not event.critical:
            return
        try:
            rows = await self.store.read(
                """select r.id from pushed_replies r
                   join inbox i on i.producer = r.producer and i.event_id = :event_id
                   where r.producer = :producer and r.session_id = :session_id and r.state = 'written'
                     and r.written_at < :sent and r.written_at < i.received_at""",
                producer=self.producer,
                event_id=event.event_id,
                session_id=event.session_id,
                sent=event.timestamp.timestamp(),
            )
            if rows:
                confirm = "update pushed_replies set state = 'confirmed' where id = :id and state = 'written'"
                await self.store.write(lambda tx: tx.many(confirm, [dict(row) for row in rows]))
        except StorageError as error:  # harmless: a reader may get the reply twice
            log.info("cannot store how far a producer has read", producer=self.producer, reason=str(error))

    # What we send to it

    async def send(self, reply: Reply) -> ReplyOutcome:
        """Makes one attempt: stores the reply, then gives it to the readers. Never raises StorageError."""
        try:
            number, state = await self._store_reply(reply)
            if state not in _RECEIVED and self._readers:
                received = await self._wait_received(number)
                state = "written" if received else (await self._store_reply(reply))[1]
        except StorageError as error:
            return TryAgain(f"it could not be stored ({error})", may_have_arrived=False)
        except ValueError:
            return Refused("the answer is a number that JSON cannot represent")
        if state in _RECEIVED:
            return Accepted(proof=False)
        return TryAgain("it is not reading its replies", may_have_arrived=state == "begun")

    async def _store_reply(self, reply: Reply) -> tuple[int, str]:
        """Stores a reply once; returns its id and state."""
        stream, now = await self._known_stream(), self.clock.now()
        body = json_body(reply_message(reply, stream.subscription)).decode()
        digest = hashlib.blake2b(json_body(reply_message(reply, "")), digest_size=12).hexdigest()
        named = {"producer": self.producer, "token": reply.reply_token, "digest": digest}

        def work(tx: Tx) -> tuple[int, str]:
            _forget_old(tx, self.producer, now)
            asked = tx.one(
                """select session_id, expires_at from inbox where producer = :producer and token = :token
                   order by id desc limit 1""",
                producer=self.producer,
                token=reply.reply_token,
            )
            tx.run(
                """insert into pushed_replies (producer, token, digest, body, session_id, expires_at)
                   values (:producer, :token, :digest, :body, :session_id, :expires_at)
                   on conflict (producer, token, digest) do nothing""",
                **named,
                body=body,
                session_id=asked["session_id"] if asked else None,
                expires_at=asked["expires_at"] if asked else None,
            )
            (row,) = tx.rows(
                """select id, state from pushed_replies
                   where producer = :producer and token = :token and digest = :digest""",
                **named,
            )
            if row["state"] not in _RECEIVED:
                tx.tell("replies", self.producer)
            return row["id"], row["state"]

        return await self.store.write(work)

    async def _wait_received(self, number: int) -> bool:
        """Wakes the readers; returns whether one receives the reply in time."""
        taken = self._waiting.setdefault(number, asyncio.get_running_loop().create_future())
        self._wake_readers()
        await within(self.clock, _PATIENCE, _done(taken))
        return taken.done() and taken.result()

    def _settle(self, number: int, *, received: bool) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(received)

    def refresh(self) -> None:
        """Checks for replies and subscriptions that came to another bot."""
        self._stream = None
        self._wake_readers()

    def _wake_readers(self) -> None:
        for reader in self._readers:
            reader.more.set()

    # Its readers

    async def open(self, last_event_id: str | None) -> Reader:
        """Returns a new reader that resumes after `last_event_id`, or reads all unconfirmed replies.

        Raises:
            StorageError: the storage cannot be used.
            TooManyReaders: there are `MOST_READERS` already.
        """
        self.last_heard = now = self.clock.now()
        stream = await self._known_stream()
        position = position_in(last_event_id, stream.epoch)
        if position is not None:
            await self.store.run(
                """update pushed_replies set state = 'confirmed', written_at = coalesce(written_at, :now)
                   where producer = :producer and id <= :position and state in ('begun', 'written')""",
                now=now.timestamp(),
                producer=self.producer,
                position=position,
            )
        # The leader may be another bot; it retries the waiting replies.
        await self.store.tell("reader", self.producer)
        # From here on nothing is awaited: the caller closes the reader.
        if len(self._readers) >= MOST_READERS:
            raise TooManyReaders
        reader = Reader(self, stream.epoch, position)
        self._readers.add(reader)
        self.since = self.since or now
        log.info("producer connected to its replies", producer=self.producer, readers=len(self._readers))
        self.on_connected(self.producer)
        return reader

    async def read(self, position: int, *, resumed: bool) -> Sequence[KeptReply]:
        """Returns a reader's next replies, at most 100, and marks them as begun: after a crash, they may have arrived.

        `resumed`: the reader gave its position, so replies confirmed by another reader are included.
        """
        rows = await self.store.read(
            """select id, body, state from pushed_replies where producer = :producer and id > :position
               and (expires_at is null or expires_at > :now) and (:resumed = 1 or state <> 'confirmed')
               order by id limit :most""",
            producer=self.producer,
            position=position,
            now=self.clock.now().timestamp(),
            resumed=int(resumed),
            most=_AT_ONCE,
        )
        new = [{"id": row["id"]} for row in rows if row["state"] == "waiting"]
        if new:
            begin = "update pushed_replies set state = 'begun' where id = :id and state = 'waiting'"
            await self.store.write(lambda tx: tx.many(begin, new))
        return [KeptReply(row["id"], row["body"], row["state"]) for row in rows]

    async def wrote(self, replies: Sequence[KeptReply]) -> None:
        """Notes that a reader received these."""
        for reply in replies:
            self._settle(reply.id, received=True)
        now = self.clock.now().timestamp()
        new = [{"id": reply.id, "now": now} for reply in replies if reply.state in {"waiting", "begun"}]

        def work(tx: Tx) -> None:
            tx.many(
                """update pushed_replies set state = 'written', written_at = :now where id = :id
                   and state in ('waiting', 'begun')""",
                new,
            )
            tx.tell("reader", self.producer)

        if new:
            await self.store.write(work)

    def left(self, reader: Reader) -> None:
        """Removes a reader whose connection is closed."""
        self._readers.discard(reader)
        if self._readers:
            return
        self.since = None
        log.info("producer disconnected from its replies", producer=self.producer)
        for number in list(self._waiting):
            self._settle(number, received=False)


@dataclass(eq=False)
class Reader:
    """One connection that reads replies. `more` is set when there may be new ones. Call `close` when it is closed."""

    push: Push
    epoch: str
    resumed_at: int | None

    def __post_init__(self) -> None:
        self.more = asyncio.Event()
        self._position = self.resumed_at or 0
        self._read: Sequence[KeptReply] = ()

    async def next(self) -> bytes:
        """Returns the next frames, or nothing if there are none now.

        Raises:
            StorageError: the storage cannot be used.
        """
        self.more.clear()
        self._read = await self.push.read(self._position, resumed=self.resumed_at is not None)
        return b"".join(frame(reply, self.epoch) for reply in self._read)

    async def wrote(self) -> None:
        """Notes that the result of `next` was written to the connection.

        Raises:
            StorageError: not stored; the frames may be written again.
        """
        read, self._read = self._read, ()
        if read:
            self._position = read[-1].id
            await self.push.wrote(read)

    def close(self) -> None:
        self.push.left(self)


async def _done(taken: asyncio.Future[bool]) -> None:
    await asyncio.wait({taken})


def _text(body: bytes) -> tuple[str, bool]:
    """Returns the text, and whether invalid UTF-8 in it was replaced."""
    try:
        return body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace"), True


def handshake_message(text: str) -> Mapping[str, Any] | None:
    """Returns the handshake message or reply in `text`, or None if it is anything else."""
    if '"subscription.' not in text and '.reply"' not in text:
        return None
    try:
        message: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(kind, str):
        return None
    return message if kind.startswith("subscription.") or kind.endswith(".reply") else None


def check_event(event: Event) -> None:
    """Raises Broken unless people can be shown the event as its producer means it.

    A stream's events cannot be refused; they are shown as far as they are readable.

    Raises:
        Broken: a critical event breaks its schema, or an event that asks has an unknown type.
    """
    if event.type not in KNOWN_TYPES and (meant := _type_meant(event)) is not None:
        raise Broken(f"Unknown event type. Did you mean {meant}?", "type")
    if event.critical and event.problems:
        raise Broken(
            f"The event does not match its schema: {'; '.join(event.problems)}.", _field_of(event.problems[0])
        )


def _type_meant(event: Event) -> str | None:
    """Returns the type that an unknown one may misspell, or None for an extension or a later version's type."""
    prefix, _, name = event.type[:_LONGEST_TYPE].casefold().rpartition(":")
    if prefix in {"", "aaep"}:
        near = get_close_matches(name, sorted(CRITICAL_TYPES), 1, _NEAR)
        if near or "awaiting" in name:
            return near[0] if near else CLARIFICATION
    return CLARIFICATION if "reply_token" in event.raw else None


def _field_of(problem: str) -> str | None:
    """Returns the field of a problem from `core.aaep`. Most problems begin with it."""
    return _FIELDS[problem] if problem in _FIELDS else problem.partition(" ")[0]


def checked_request(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the capabilities in a `subscription.request`.

    Raises:
        NotStored: the request is invalid.
    """
    subscriber = message.get("subscriber_id")
    if not isinstance(subscriber, str) or not 0 < len(subscriber) <= 256:
        raise NotStored("`subscriber_id` must be a string of 1 to 256 characters.", "subscriber_id")
    if not isinstance(message.get("aaep_version"), str):
        raise NotStored(f'`aaep_version` must be a version such as "{AAEP_VERSION}".', "aaep_version")
    capabilities = message.get("capabilities")
    if not isinstance(capabilities, dict):
        raise NotStored("`capabilities` must be an object; it may be empty.", "capabilities")
    return capabilities


def accepted(producer: str, subscription: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a `subscription.accepted` with the requested capabilities that we know, and no others (§5.4.4)."""
    honoured: dict[str, Any] = {name: asked[name] is True for name in _OURS if name in asked}
    levels = asked.get("supported_conformance_levels")
    shared = [level for level in _LEVELS if isinstance(levels, list) and level in levels]
    if shared:
        honoured["supported_conformance_levels"] = shared
    return {
        "type": "subscription.accepted",
        "subscription_id": subscription,
        "aaep_version": AAEP_VERSION,
        "producer": {"agent_id": producer},
        "honored_capabilities": honoured,
    }


def position_in(last_event_id: str | None, epoch: str) -> int | None:
    """Returns a reader's position, or None if the id, `{epoch}.{number}`, is not of this stream."""
    before, dot, number = (last_event_id or "").partition(".")
    known = before == epoch and dot and number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if known else None


def frame(reply: KeptReply, epoch: str) -> bytes:
    """Returns a reply as an SSE frame. Its JSON has no line ends."""
    return f"id: {epoch}.{reply.id}\ndata: {reply.body}\n\n".encode()


def _forget_old(tx: Tx, producer: str, now: datetime) -> None:
    tx.run(
        """delete from pushed_replies where producer = :producer and (state = 'confirmed' or expires_at < :now)
           and coalesce(written_at, expires_at) < :horizon""",
        producer=producer,
        now=now.timestamp(),
        horizon=(now - _KEEP).timestamp(),
    )


SWEEP = Sweep(
    "pushed_replies",
    """select id as name, producer, session_id from pushed_replies where id > :after
       and coalesce(written_at, expires_at) < :horizon and (state = 'confirmed' or expires_at < :horizon)
       order by id limit :most""",
    ("delete from pushed_replies where id in :names",),
    first=0,
)


def forget(tx: Tx, subject: Subject) -> None:
    """Forgets the replies to sessions and questions."""
    tx.many(
        "delete from pushed_replies where producer = :producer and session_id = :name",
        [{"producer": producer, "name": name} for producer, name in subject.sessions],
    )
    tx.many(
        "delete from pushed_replies where producer = :producer and token = :name",
        [{"producer": producer, "name": name} for producer, name in subject.tokens],
    )


def begin_anew(tx: Tx, seed: str) -> None:
    """Gives every stream a new epoch: a restore reuses reply numbers, so old positions must not count."""
    for row in tx.rows("select producer, epoch from pushing"):
        fresh = hashlib.blake2b(f"{row['epoch']} {seed}".encode(), digest_size=6).hexdigest()
        tx.run(
            "update pushing set epoch = :fresh where producer = :producer",
            fresh=fresh,
            producer=row["producer"],
        )
