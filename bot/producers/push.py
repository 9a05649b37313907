"""One producer that pushes: it posts its events to us, and reads our replies from a stream of ours."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from bot.errors import StorageError
from bot.http import json_body
from bot.ports import Accepted, Refused, Reply, ReplyOutcome, TryAgain
from bot.producers import pushing
from bot.producers.backlog import Arrival
from bot.producers.intake import Intake
from bot.producers.pushing import (
    Broken,
    KeptReply,
    NoSuchSubscription,
    NotTaken,
    Place,
    PushedReplies,
    Taken,
    TooManyReaders,
)
from bot.producers.replies import reply_message
from bot.producers.stream import Frame, Oversize
from core.aaep import IGNORED_TYPES, Event, NotAnEvent
from core.clock import Clock

HEARD_LATELY = timedelta(minutes=5)
MOST_READERS = 32
_HAD = frozenset({"written", "confirmed"})
_PATIENCE = 5.0  # seconds that a reader has to take a reply
log = structlog.get_logger(__name__)


class Push:
    """What comes from one producer and what goes to it, however many connections it has."""

    def __init__(
        self,
        producer: str,
        intake: Intake,
        *,
        kept: PushedReplies,
        clock: Clock,
        rng: random.Random,
        on_connected: Callable[[str], None],
    ) -> None:
        """`intake` must not wait for its storage. `on_connected(producer)` is told of every reader."""
        self.producer = producer
        self.since: datetime | None = None
        self.last_heard: datetime | None = None
        self._intake = intake
        self._kept = kept
        self._clock = clock
        self._rng = rng
        self._on_connected = on_connected
        self._readers: set[Reader] = set()
        self._place: Place | None = None
        self._waiting: dict[int, asyncio.Future[bool]] = {}

    @property
    def connected(self) -> bool:
        """Whether somebody reads its replies, or it was heard of in the last five minutes."""
        lately = self.last_heard is not None and self._clock.now() - self.last_heard <= HEARD_LATELY
        return bool(self._readers) or lately

    async def take(self, body: bytes) -> Taken | Mapping[str, Any] | None:
        """Deal with one message: an event (once it is in the inbox), or one of the handshake (what answers it).

        Raises:
            NotTaken: it is neither; Broken: it has to be mended, or sent under an id and a token of its own.
            StorageError: nothing was stored; it has to be sent again.
        """
        self.last_heard = self._clock.now()
        text, replaced = _text(body)
        message = pushing.handshake_message(text)
        if message is not None:
            return await self._handshake(message)
        try:
            event, arrived = await self._intake.take_one(
                Frame(text, None, len(body), 0, replaced), pushing.check_event
            )
        except NotAnEvent as error:
            field = "type" if text.lstrip().startswith("{") else None
            raise NotTaken(f"It is no event: {error}.", field) from None
        except (ValueError, RecursionError) as error:
            why = "It is nested too deeply." if isinstance(error, RecursionError) else "It is not JSON."
            raise NotTaken(why) from None
        if arrived in pushing.USED:
            field, why = pushing.USED[arrived]
            raise Broken(why, field)
        await self._note_progress(event)
        return Taken(event.event_id, event.problems, duplicate=arrived == "duplicate")

    async def too_large(self, head: str) -> None:
        """Something over 1 MiB came, which begins with `head`: a human is told.

        Raises:
            StorageError: nobody could be told now.
        """
        self.last_heard = self._clock.now()
        await self._intake.take(Arrival(Oversize(head, 0), self.last_heard, self._clock.steady(), live=False))

    async def send(self, reply: Reply) -> ReplyOutcome:
        """One try: kept first, then given to whoever reads. Never raises for what the network or the storage does."""
        try:
            number, state = await self._keep(reply)
            if state not in _HAD and self._readers:
                taken = await self._taken(number)
                state = "written" if taken else (await self._keep(reply))[1]
        except StorageError as error:
            return TryAgain(f"it could not be kept ({error})", may_have_arrived=False)
        except ValueError:
            return Refused("the answer is a number that JSON cannot carry")
        if state in _HAD:
            return Accepted(proof=False)
        return TryAgain("it does not read its replies", may_have_arrived=state == "begun")

    async def open(self, last_event_id: str | None) -> Reader:
        """A new reader of the replies, from where it left off, or of all that still matter.

        Raises:
            StorageError: it cannot be known what to read.
            TooManyReaders: there are too many.
        """
        if len(self._readers) >= MOST_READERS:
            raise TooManyReaders
        self.last_heard = now = self._clock.now()
        place = await self._known_place()
        position = pushing.position_in(last_event_id, place.epoch)
        if position is not None:
            await self._kept.had(self.producer, position, now)
        reader = Reader(self, place.epoch, position)
        self._readers.add(reader)
        self.since = self.since or now
        log.info("producer reads its replies", producer=self.producer, readers=len(self._readers))
        self._on_connected(self.producer)
        return reader

    async def read(self, position: int, *, resumed: bool) -> Sequence[KeptReply]:
        """The next replies for a reader, noted as begun."""
        found = await self._kept.after(self.producer, position, self._clock.now(), resumed=resumed)
        new = [reply.id for reply in found if reply.state == "waiting"]
        if new:
            await self._kept.begin(new)
        return found

    async def wrote(self, replies: Sequence[KeptReply]) -> None:
        """A reader had these."""
        for reply in replies:
            self._settle(reply.id, taken=True)
        new = [reply.id for reply in replies if reply.state in {"waiting", "begun"}]
        if new:
            await self._kept.wrote(new, self._clock.now())

    def left(self, reader: Reader) -> None:
        """A reader is gone."""
        self._readers.discard(reader)
        if self._readers:
            return
        self.since = None
        log.info("producer reads no replies", producer=self.producer)
        for number in list(self._waiting):
            self._settle(number, taken=False)

    async def _keep(self, reply: Reply) -> tuple[int, str]:
        place = await self._known_place()
        body = json_body(reply_message(reply, place.subscription)).decode()
        digest = hashlib.blake2b(json_body(reply_message(reply, "")), digest_size=12).hexdigest()
        return await self._kept.keep(self.producer, reply, digest, body, self._clock.now())

    async def _taken(self, number: int) -> bool:
        """Whether a reader takes it in time."""
        taken = self._waiting.setdefault(number, asyncio.get_running_loop().create_future())
        for reader in self._readers:
            reader.more.set()
        patience = asyncio.ensure_future(self._clock.sleep(_PATIENCE))
        waits: set[asyncio.Future[Any]] = {taken, patience}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            patience.cancel()
        return taken.done() and taken.result()

    def _settle(self, number: int, *, taken: bool) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(taken)

    async def _known_place(self) -> Place:
        if self._place is None:
            fresh = Place(f"{self._rng.getrandbits(48):012x}", self._new_subscription())
            self._place = await self._kept.place(self.producer, fresh)
        return self._place

    def _new_subscription(self) -> str:
        return f"sub_{self._rng.getrandbits(128):032x}"

    async def _handshake(self, message: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if message["type"] == "subscription.request":
            return await self._subscribe(message)
        if message["type"] != "subscription.close":
            raise NotTaken("Expected an event, subscription.request or subscription.close.", "type")
        if message.get("subscription_id") != (await self._known_place()).subscription:
            raise NoSuchSubscription("No such subscription.", "subscription_id")
        await self._use_subscription(self._new_subscription())
        return None

    async def _subscribe(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = pushing.checked_request(message)
        if not pushing.speaks_our_version(message):
            return pushing.rejected("This subscriber speaks AAEP 1.x.")
        subscription = self._new_subscription()
        await self._use_subscription(subscription)
        return pushing.accepted(self.producer, subscription, asked)

    async def _use_subscription(self, subscription: str) -> None:
        place = await self._known_place()
        await self._kept.subscribe(self.producer, subscription)
        self._place = Place(place.epoch, subscription)

    async def _note_progress(self, event: Event) -> None:
        """A session that sends something has what it was told before."""
        if event.type in IGNORED_TYPES and not event.critical:
            return
        try:
            await self._kept.went_on(self.producer, event.event_id, event.session_id, event.timestamp)
        except StorageError as error:  # all that is lost: a reader may get that reply once more
            log.info("progress not noted", producer=self.producer, reason=str(error))


class Reader:
    """One connection that reads replies. `more` is set when there may be some; `close` when it is gone."""

    def __init__(self, push: Push, epoch: str, position: int | None) -> None:
        self.more = asyncio.Event()
        self._push = push
        self._epoch = epoch
        self._resumed = position is not None
        self._position = position or 0
        self._read: Sequence[KeptReply] = ()

    async def next(self) -> bytes:
        """The next frames, empty if there are none now. Those before are taken as written.

        Raises:
            StorageError: it is not known now.
        """
        self.more.clear()
        self._read = await self._push.read(self._position, resumed=self._resumed)
        return b"".join(pushing.frame(reply, self._epoch) for reply in self._read)

    async def wrote(self) -> None:
        """What `next` gave was written to the connection.

        Raises:
            StorageError: that could not be noted: it may be written again.
        """
        read, self._read = self._read, ()
        if read:
            self._position = read[-1].id
            await self._push.wrote(read)

    def close(self) -> None:
        self._push.left(self)


def _text(body: bytes) -> tuple[str, bool]:
    """The text, and whether something in it was not UTF-8 and is replaced."""
    try:
        return body.decode("utf-8-sig"), False
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace"), True
