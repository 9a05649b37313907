"""The messages table: what each Slack message should say, where it is, what it says now, its web address.

A card is stored with its record, in one transaction: that is one commit fewer than a cursor of the feed would cost. While it
shows another revision than its record has, an update is owed. So a start loads what is owed, and compares nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import structlog

from bot.ask.inbox import Session, know_sessions, move_threads, set_thread
from bot.errors import SlackError, StorageError, StorageUnavailable
from bot.routing import Audiences, Thread
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx, batches
from core.clarification import Clarification, parse_id
from core.index import OWN_THREAD
from core.records import Subject
from core.summary import Seen

_log = structlog.get_logger("clarify.delivery")
_T = TypeVar("_T")
# Prefix of `shown` for a card that may have been posted before the storage was lost, followed by the former storage's
# id. It is looked up before it is posted.
TAKEN_UP = "taken up:"
DELETED = "deleted"  # `failed` of a message that was replaced, or is over
_LOOK, _LOOKS = 0.05, 40  # seconds between checks for another bot's post
# Seconds for which a call of unknown outcome is watched, in case Slack carries it out late; and the age up to which a
# new leader watches it once more.
WATCHED, _REMEMBERED = 50.0, 3600.0


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new message to post. `body` None: its text comes from the ledger.

    `page`: its number, if it is a page; the body says what it is about (`bot.oncall.pages`). `asker`: the agent, for a question with a thread of its own; its session is stored with the message.
    """

    key: str
    kind: str
    target: str
    clarification: str | None = None
    round: int | None = None
    producer: str | None = None
    session_id: str | None = None
    body: dict[str, Any] | None = None
    wanted: str | None = None
    page: int | None = None
    asker: str | None = None


@dataclass(frozen=True, slots=True)
class MessageRow(Fresh):
    """A stored message. `key` never changes. `ts` None: not posted or, with `intent_at`, perhaps posted. `seen`: the
    person did something in these direct messages since.
    """

    channel: str | None = None
    ts: str | None = None
    thread_ts: str | None = None
    intent_at: float | None = None
    shown: str | None = None
    final: bool = False
    failed: str | None = None
    seen: bool = False


@dataclass(frozen=True, slots=True)
class LateCall:
    """A call that may take effect late: a post of message `key` to a channel or thread, or an update of it (`channel`
    empty).

    Times are seconds since 1970.
    """

    key: str
    channel: str
    thread_ts: str
    begun_at: float
    until_at: float


_GIVEN = tuple(each.name for each in fields(Fresh) if each.name != "asker")
_OF_CARD = ("key", "clarification", "round", "producer", "session_id", "target")
_COLUMNS = tuple(each.name for each in fields(MessageRow) if each.name != "asker")
_LATE = tuple(each.name for each in fields(LateCall))


class InFlight:
    """Posts of unknown outcome. In memory, filled again on start.

    `elsewhere` returns what other bots are posting in a channel.
    """

    def __init__(self, elsewhere: Callable[[str], Awaitable[frozenset[str]]] | None = None) -> None:
        self._channels: dict[str, str] = {}  # by the message's key
        self._changed = asyncio.Event()
        self._elsewhere = elsewhere

    def begin(self, key: str, channel: str) -> None:
        self._channels[key] = channel

    def end(self, key: str) -> None:
        """Removes a post whose outcome is stored."""
        if self._channels.pop(key, None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    def any_in(self, channel: str) -> bool:
        return channel in self._channels.values()

    async def find(self, channel: str, read: Callable[[], Awaitable[_T]]) -> _T:
        """Returns the result of `read`. While it finds nothing, repeats it after each outcome of a post in the
        channel.

        A click on a message can arrive before its post is known to have succeeded. For posts that another bot began
        earlier, it waits about as long as Slack waits for an acknowledgement.

        Raises:
            StorageUnavailable: another bot may be posting the message.
        """
        looks, begun = 0, None
        while True:
            change = self._changed if self.any_in(channel) else None
            if change is None and self._elsewhere is not None:
                now = await self._elsewhere(channel)
                begun = now if begun is None else begun & now
            found = await read()
            if found or not (change or begun):
                return found
            if change is not None:
                await change.wait()
            elif looks < _LOOKS:
                looks += 1
                await asyncio.sleep(_LOOK)
            else:
                raise StorageUnavailable("Another bot is posting there and has not stored the place yet.")

    async def ended(self, keys: AbstractSet[str]) -> AbstractSet[str]:
        """Waits until some of these messages have an outcome, and returns those."""
        while not (known := keys - self._channels.keys()):
            await self._changed.wait()
        return known

    async def settled(self) -> None:
        """Returns when every outcome is known."""
        while self._channels:
            await self._changed.wait()


_OF_PAGES = "select * from messages where page in :pages order by page, target"
_CARDS_OF = "select * from messages where kind = 'card' and clarification in :some"


class Messages:
    """Stores messages. `inherited`: keys of messages that a former leader may have been changing when it stopped,
    until they are checked. `late`: set while some calls may take effect late.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.in_flight = InFlight(self._posted_elsewhere)
        self.inherited: set[str] = set()
        self.late = asyncio.Event()

    async def _posted_elsewhere(self, channel: str) -> frozenset[str]:
        """Returns what other bots are posting, including posts of a former leader that are not checked yet."""
        begun = await self.begun_in(channel) if self._store.is_shared else []
        return frozenset(row.key for row in begun)

    async def want(self, fresh: Iterable[Fresh]) -> None:
        """Stores messages to show. An existing one gets the new body, if there is one."""
        wanted = list(fresh)
        await self._store.write(lambda tx: put(tx, wanted))

    async def get(self, key: str) -> MessageRow | None:
        row = await self._store.read_one("select * from messages where key = :key", key=key)
        return _row(row) if row else None

    async def at(self, channel: str, ts: str) -> MessageRow | None:
        """Returns the message known to be at a place."""
        row = await self._store.read_one(
            "select * from messages where channel = :channel and ts = :ts", channel=channel, ts=ts
        )
        return _row(row) if row else None

    async def landed_at(self, channel: str, ts: str) -> MessageRow | None:
        """Returns the message at a place, even if it is being posted right now."""
        return await self.in_flight.find(channel, lambda: self.at(channel, ts))

    async def shown_at(self, clarification: str, round: int, channel: str) -> str | None:  # noqa: A002 - the protocol's word
        """Returns the `ts` of a round's card, if it is in `channel`."""
        found = await self._find(
            """select * from messages where kind = 'card' and clarification = :clarification and round = :round
               and channel = :channel""",
            clarification=clarification,
            round=round,
            channel=channel,
        )
        return found[0].ts if found else None

    async def begun_in(self, channel: str) -> list[MessageRow]:
        """Returns the messages that may be in a channel: their posts began, with unknown outcome."""
        return await self._find(
            """select * from messages
               where channel = :channel and ts is null and intent_at is not null and failed is null""",
            channel=channel,
        )

    async def begun_threads(self) -> list[MessageRow]:
        """Returns the posts of unknown outcome that open a thread."""
        return await self._rows(
            """select * from messages
               where ts is null and intent_at is not null and failed is null and thread_ts is null"""
        )

    async def owed(self) -> list[MessageRow]:
        """Returns the messages to be brought up to date: all that may still change, but cards that show their record as it is."""
        return await self._rows(
            """select messages.* from messages left join clarifications on clarifications.id = clarification
               where final = 0 and failed is null
                 and (kind <> 'card' or ts is null or shown is null or shown <> cast(revision as text))"""
        )

    async def carded(self) -> dict[tuple[str, int], bool]:
        """Returns the clarifications that need something and have a stored card, each with its round: whether the card is in Slack,
        or may be, and may still change.
        """
        rows = await self._store.read(
            """select clarification, round, case when final = 0 and failed is null
                 and (ts is not null or intent_at is not null) then 1 else 0 end as posted
               from messages join clarifications on clarifications.id = clarification where kind = 'card' and live = 1"""
        )
        return {(row["clarification"], row["round"]): bool(row["posted"]) for row in rows}

    async def add_cards(self, cards: Sequence[Fresh]) -> None:
        """Stores cards, unless they are stored already."""
        if cards:
            await self._store.write(lambda tx: put_cards(tx, cards))

    async def changing_in(self, channel: str) -> list[MessageRow]:
        """Returns the messages in a channel that may still change, oldest first."""
        return await self._rows(
            """select * from messages
               where channel = :channel and ts is not null and final = 0 and failed is null order by ts""",
            channel=channel,
        )

    async def rollups(self) -> list[MessageRow]:
        """Returns the roll-up cards that may still change."""
        return await self._rows(
            """select * from messages
               where kind = 'rollup' and final = 0 and failed is null and ts is not null"""
        )

    async def cards_of(self, clarifications: Iterable[str]) -> list[MessageRow]:
        """Returns the cards of clarifications, earlier rounds first."""
        found = [
            row for some in batches(set(clarifications)) for row in await self._find(_CARDS_OF, some=some)
        ]
        return sorted(found, key=lambda card: card.round or 0)

    async def nudges_of(self, clarifications: Iterable[str]) -> list[MessageRow]:
        """Returns the reminders of clarifications that may still change."""
        sql = """select * from messages
                 where kind = 'nudge' and final = 0 and failed is null and clarification in :some"""
        return [row for some in batches(clarifications) for row in await self._find(sql, some=some)]

    async def nudges_for(self, rollup: str) -> list[MessageRow]:
        """Returns the reminders of a roll-up card that may still change."""
        return [
            row for row in await self.beginning(f"nudge:{rollup}:") if not row.final and row.failed is None
        ]

    async def intend(
        self, row: MessageRow, channel: str, thread_ts: str | None, at: float, *, opens_thread: bool
    ) -> bool:
        """Records where a post is about to go, so that it can be looked up if its outcome stays unknown. Returns
        False if the message was posted meanwhile, or if another message may be opening the same thread.
        """
        self.in_flight.begin(row.key, channel)

        def work(tx: Tx) -> tuple[int, int]:
            changed = tx.run(
                """update messages set intent_at = :at, channel = :channel, thread_ts = :thread_ts
                   where key = :key and ts is null and (intent_at is not null or :opens = 0 or not exists (
                     select 1 from messages o where o.producer = :producer and o.session_id = :session_id
                       and o.ts is null and o.intent_at is not null and o.failed is null))""",
                key=row.key,
                at=at,
                channel=channel,
                thread_ts=thread_ts,
                opens=int(opens_thread),
                producer=row.producer,
                session_id=row.session_id,
            )
            if not changed:
                return 0, 0
            _may_arrive(tx, row, at)
            sql = "update late_calls set until_at = :until where key = :key"
            return changed, tx.run(sql, key=row.key, until=at + WATCHED)

        changed, late = await self._store.write(work)
        if not changed:
            self.in_flight.end(row.key)
        if late:
            self.late.set()
        return changed > 0

    async def put_off(self, row: MessageRow, at: float) -> None:
        """Records that a post was not found, and will not be retried for now."""

        def work(tx: Tx) -> None:
            _may_arrive(tx, row, at)
            tx.run("update messages set intent_at = null where key = :key", key=row.key)

        await self._store.write(work)
        self.in_flight.end(row.key)
        self.late.set()

    async def not_sent(self, key: str) -> None:
        """Records that a post did not arrive, and will not."""
        await self._store.run("update messages set intent_at = null where key = :key", key=key)
        self.in_flight.end(key)

    async def landed(
        self,
        row: MessageRow,
        channel: str,
        ts: str,
        shown: str,
        *,
        final: bool,
        opens_thread: bool,
        thread_ts: str | None = None,
        rest: Sequence[Fresh] = (),
    ) -> None:
        """Records that the message is in Slack, in the thread `thread_ts`, if it is in one. `opens_thread`: it opened its
        session's thread, or was found in it. `rest`: its overflow.
        """

        def work(tx: Tx) -> None:
            tx.run(
                """update messages set channel = :channel, ts = :ts, thread_ts = :thread_ts,
                     shown = :shown, final = :final, intent_at = null where key = :key""",
                key=row.key,
                channel=channel,
                ts=ts,
                thread_ts=thread_ts,
                shown=shown,
                final=int(final),
            )
            if opens_thread:
                set_thread(tx, row.producer, row.session_id, channel, thread_ts or ts)
            put(tx, rest)

        await self._store.write(work)
        self.in_flight.end(row.key)

    async def adopt(self, row: MessageRow, ts: str, shown: str) -> None:
        """Records that a post of unknown outcome is at `ts`, unless it was found meanwhile or another message is
        there.
        """
        opens_thread = row.kind != "page" and row.session_id is not None and row.thread_ts is None

        def work(tx: Tx) -> int:
            taken = tx.run(
                """update messages set ts = :ts, shown = :shown, final = 0, intent_at = null
                   where key = :key and ts is null and channel = :channel
                     and not exists (select 1 from messages o where o.channel = :channel and o.ts = :ts)""",
                key=row.key,
                channel=row.channel,
                ts=ts,
                shown=shown,
            )
            if taken and opens_thread:
                set_thread(tx, row.producer, row.session_id, row.channel, ts, again=False)
            tx.tell("message", row.key)
            return taken

        if await self._store.write(work):
            self.in_flight.end(row.key)

    async def now_shows(self, key: str, shown: str, *, final: bool) -> None:
        await self._store.run(
            "update messages set shown = :shown, final = :final where key = :key",
            key=key,
            shown=shown,
            final=int(final),
        )

    async def forget_shown(self, clarification: str) -> None:
        """Marks the cards of a clarification as possibly outdated, so that they are updated again."""

        def work(tx: Tx) -> None:
            tx.run(
                """update messages set shown = null
                   where clarification = :clarification and kind = 'card' and ts is not null""",
                clarification=clarification,
            )
            tx.tell("card", clarification)

        await self._store.write(work)

    async def move(self, key: str, target: str) -> None:
        """Has the message posted (again), in `target`."""
        await self._store.run(
            """update messages set target = :target, channel = null, ts = null, intent_at = null, shown = null
               where key = :key""",
            key=key,
            target=target,
        )
        self.in_flight.end(key)

    async def give_up(self, row: MessageRow, reason: str, at: float) -> None:
        def work(tx: Tx) -> None:
            _may_arrive(tx, row, at)
            tx.run(
                "update messages set failed = :reason, intent_at = null where key = :key",
                key=row.key,
                reason=reason,
            )

        await self._store.write(work)
        self.in_flight.end(row.key)
        self.late.set()

    async def deleted(self, row: MessageRow) -> None:
        """Records that a message is deleted, with its overflow. Keeps its place: a click on it may still arrive."""
        keys = [row.key, *(each.key for each in await self.overflow_of(row))]
        await self._store.run(
            "update messages set failed = :deleted, final = 1 where key in :keys", deleted=DELETED, keys=keys
        )

    async def beginning(self, key: str) -> list[MessageRow]:
        """Returns the messages whose keys begin with `key`, which ends with a colon."""
        return await self._rows(
            "select * from messages where key >= :first and key < :end", first=key, end=f"{key[:-1]};"
        )

    async def of_pages(self, pages: Collection[int]) -> list[MessageRow]:
        """Returns the messages of pages, by their numbers."""
        return [row for some in batches(pages) for row in await self._rows(_OF_PAGES, pages=some)]

    async def overflow_of(self, row: MessageRow) -> list[MessageRow]:
        """Returns the messages that continue a message in its own thread."""
        return [each for each in await self.beginning(f"more:{row.key}:") if each.failed is None]

    def seen(self, channel: str) -> None:
        """Records that a person did something in their direct messages: the pages there are no longer unread.

        Stored within 50 ms, together with what the person did.
        """
        sql = "update messages set seen = 1 where channel = :channel and kind = 'page' and ts is not null and seen = 0"
        stored = self._store.write_soon(lambda tx: tx.run(sql, channel=channel))
        stored.add_done_callback(_log_unseen)

    async def set_aside(self, key: str) -> None:
        """Drops an unposted message, unless its subject changes once more."""
        await self._store.run("update messages set final = 1 where key = :key and ts is null", key=key)

    async def may_change(self, key: str, at: float) -> None:
        """Records an update of unknown outcome, by this bot or a former leader."""
        await self._store.write(lambda tx: _note_late(tx, LateCall(key, "", "", at, at + WATCHED)))
        self.late.set()

    async def watch_again(self, at: float) -> None:
        """Watches the recent late calls again: a former leader's may still take effect."""
        await self._store.run(
            "update late_calls set until_at = :until where begun_at > :then",
            until=at + WATCHED,
            then=at - _REMEMBERED,
        )
        self.late.set()

    async def late_calls(self) -> list[LateCall]:
        """Returns the calls to watch."""
        rows = await self._store.read(
            """select key, channel, thread_ts, begun_at, until_at from late_calls where until_at is not null
               order by channel, thread_ts, key"""
        )
        return [LateCall(**{name: row[name] for name in _LATE}) for row in rows]

    async def watched(self, channel: str, thread_ts: str, at: float) -> None:
        """Records that a place was checked for late posts at that time."""
        await self._store.run(
            """update late_calls set until_at = null
               where channel = :channel and thread_ts = :thread_ts and until_at <= :at""",
            channel=channel,
            thread_ts=thread_ts,
            at=at,
        )

    async def draw_late(self, at: float) -> list[MessageRow]:
        """Marks messages that a late update may have overwritten for redrawing. Returns them."""

        def work(tx: Tx) -> list[MessageRow]:
            found = tx.rows(
                """select m.* from late_calls l join messages m on m.key = l.key
                   where l.channel = '' and l.until_at <= :at and m.ts is not null and m.failed is null""",
                at=at,
            )
            draw_again(tx, [row["key"] for row in found])
            tx.run("update late_calls set until_at = null where channel = '' and until_at <= :at", at=at)
            return [_row(row) for row in found]

        return await self._store.write(work)

    async def leave_thread(self, producer: str, session_id: str) -> None:
        """Abandons the session's thread; its next message opens a new one."""
        await self._store.write(lambda tx: set_thread(tx, producer, session_id, None, None))

    async def thread_of(self, producer: str, session_id: str) -> Thread | None:
        row = await self._store.read_one(
            """select * from sessions
               where producer = :producer and session_id = :session_id and thread_ts is not null""",
            producer=producer,
            session_id=session_id,
        )
        return thread(row) if row else None

    async def thread_at(self, channel: str, ts: str) -> Thread | None:
        """Returns the session thread at a place, even if its first message is being posted right now."""
        row = await self.in_flight.find(
            channel,
            lambda: self._store.read_one(
                "select * from sessions where channel = :channel and thread_ts = :ts", channel=channel, ts=ts
            ),
        )
        return thread(row) if row else None

    async def open_threads(self) -> list[Thread]:
        """Returns the threads of sessions that may still have open questions."""
        rows = await self._store.read(
            """select * from sessions where thread_ts is not null and (producer, session_id) in (
                 select producer, session_id from messages where kind = 'card' and final = 0)
               order by channel, thread_ts"""
        )
        return [thread(row) for row in rows]

    async def card_to_come(self, session_id: str) -> bool:
        """Returns whether the card that opens a question's own thread is still to be posted."""
        found = await self._store.read_one(
            """select 1 from messages where producer = :producer and session_id = :session_id and kind = 'card'
               and ts is null and failed is null""",
            producer=OWN_THREAD,
            session_id=session_id,
        )
        return found is not None

    async def taken_places(self, channel: str, clarification: str | None, besides: str) -> set[str]:
        """Returns the ts of a clarification's known messages, without the message with key `besides`."""
        rows = await self._store.find(
            """select ts from messages where channel = :channel and coalesce(clarification, '') = :clarification
               and ts is not null and key <> :besides""",
            channel=channel,
            clarification=clarification or "",
            besides=besides,
        )
        return {str(row["ts"]) for row in rows}

    async def _rows(self, sql: str, **values: object) -> list[MessageRow]:
        return [_row(row) for row in await self._store.read(sql, **values)]

    async def _find(self, sql: str, **values: object) -> list[MessageRow]:
        return [_row(row) for row in await self._store.find(sql, **values)]


def _log_unseen(stored: asyncio.Future[int]) -> None:
    if not stored.cancelled() and (error := stored.exception()) is not None:
        _log.warning(
            "cannot store that pages were seen: they will be deleted once they are over", reason=str(error)
        )


def put(tx: Tx, fresh: Iterable[Fresh]) -> None:
    """`Messages.want` within a transaction."""
    fresh = list(fresh)
    _know_askers(tx, fresh)
    tx.many(
        """insert into messages (key, kind, clarification, round, producer, session_id, target, body, wanted, page)
           values (:key, :kind, :clarification, :round, :producer, :session_id, :target, :body, :wanted, :page)
           on conflict (key) do update set body = excluded.body, wanted = excluded.wanted, final = 0
           where excluded.body is not null
             and coalesce(excluded.wanted, '') <> coalesce(messages.wanted, '')""",
        [
            {name: getattr(f, name) for name in _GIVEN}
            | {"body": json.dumps(f.body) if f.body is not None else None}
            for f in fresh
        ],
    )
    for f in fresh:
        tx.tell("message", f.key)


def put_cards(tx: Tx, cards: Sequence[Fresh]) -> None:
    """Stores cards, unless they are stored already. Other bots hear of a card by the change of its record."""
    if tx.many(
        """insert into messages (key, kind, clarification, round, producer, session_id, target)
           values (:key, 'card', :clarification, :round, :producer, :session_id, :target) on conflict (key) do nothing""",
        [{name: getattr(card, name) for name in _OF_CARD} for card in cards],
    ):
        _know_askers(tx, cards)


def owe_card(audiences: Audiences, tx: Tx, record: Clarification) -> None:
    """Stores the card of a record in the transaction that writes it, if people are to see it (`core.ledger.Ledger.owes`)."""
    if audiences.shows(record):
        put_cards(tx, [card_of(audiences, record)])


def card_of(audiences: Audiences, record: Seen) -> Fresh:
    """Returns the card of a record's current round."""
    producer, session_id = audiences.thread(record)
    return Fresh(
        key=f"card:{record.id}:{record.round}",
        kind="card",
        target=audiences.route(record).channel,
        clarification=record.id,
        round=record.round,
        producer=producer,
        session_id=session_id,
        asker=audiences.group(record).agent if producer == OWN_THREAD else None,
    )


def _know_askers(tx: Tx, fresh: Iterable[Fresh]) -> None:
    know_sessions(
        tx,
        [
            Session(f.producer or "", f.session_id or "", f.asker, None, parse_id(f.clarification)[0])
            for f in fresh
            if f.asker is not None and f.clarification is not None
        ],
    )


def be_page(tx: Tx, message: Row, page: int, what: Mapping[str, Any]) -> bool:
    """Makes a message a page, too, unless it was posted, forgotten or changed since it was read."""
    is_page = tx.run(
        """update messages set page = :page, body = :body
           where key = :key and body = :before and ts is null and intent_at is null and failed is null""",
        page=page,
        body=json.dumps(json.loads(message["body"]) | {"page": what}),
        key=message["key"],
        before=message["body"],
    )
    tx.tell("message", message["key"])
    return is_page > 0


def of_pages(tx: Tx, pages: Collection[int]) -> list[MessageRow]:
    """`Messages.of_pages` within a transaction, of one batch."""
    return [_row(row) for row in tx.rows(_OF_PAGES, pages=pages)]


def is_posted(tx: Tx, key: str) -> bool:
    return tx.one("select 1 from messages where key = :key and ts is not null", key=key) is not None


def doubt(tx: Tx, key: str, channel: str, at: float, shown: str) -> None:
    """Records that a message may be in a channel since `at`: it is looked up before it is posted."""
    tx.run(
        "update messages set intent_at = :at, channel = :channel, shown = :shown where key = :key",
        key=key,
        channel=channel,
        at=at,
        shown=shown,
    )


def _may_arrive(tx: Tx, row: MessageRow, at: float) -> None:
    """Records a late call if the post began (by `row`) and was not found."""
    if row.intent_at is not None and row.ts is None and row.channel is not None and row.shown is None:
        _note_late(tx, LateCall(row.key, row.channel, row.thread_ts or "", row.intent_at, at + WATCHED))


def _note_late(tx: Tx, call: LateCall) -> None:
    tx.run(
        "delete from late_calls where until_at is null and begun_at < :then",
        then=call.until_at - _REMEMBERED,
    )
    tx.run(
        """insert into late_calls (key, channel, thread_ts, begun_at, until_at)
           values (:key, :channel, :thread_ts, :begun_at, :until_at)
           on conflict (key, channel, thread_ts) do update set until_at = excluded.until_at""",
        **asdict(call),
    )


def move_channel(tx: Tx, old: str, new: str) -> None:
    """Moves messages to a channel's new id."""
    move_threads(tx, old, new)
    tx.run("update messages set channel = :new where channel = :old", old=old, new=new)
    tx.run("update messages set target = :new where target = :old", old=old, new=new)
    tx.run("update late_calls set channel = :new where channel = :old", old=old, new=new)


def thread(row: Row) -> Thread:
    return Thread(
        producer=row["producer"],
        session_id=row["session_id"],
        issue=row["issue"] or 0,
        agent_id=row["agent_id"],
        channel=row["channel"],
        ts=row["thread_ts"],
    )


def _row(row: Row) -> MessageRow:
    values = {key: row[key] for key in _COLUMNS}
    values["body"] = json.loads(row["body"]) if row["body"] else None
    values["final"], values["seen"] = bool(row["final"]), bool(row["seen"])
    return MessageRow(**values)


# Messages about one clarification are deleted with it.
SWEEP_SHOWN = Sweep(
    "messages",
    """select key as name from messages where key > :after and clarification is null and page is null
       and ts is not null and intent_at is null
       and cast(ts as double precision) < :horizon - case kind when 'post' then 604800 else 0 end
       and (final = 1 or failed is not null) order by key limit :most""",
    ("delete from messages where key in :names and intent_at is null",),
)
SWEEP_NEVER_SHOWN = Sweep(
    "messages",
    """select key as name from messages where key > :after and clarification is null and page is null
       and ts is null and intent_at is null and (failed is not null
         or (kind <> 'rollup' and session_id is not null and (producer, session_id) not in (
              select producer, session_id from sessions)))
       order by key limit :most""",
    ("delete from messages where key in :names and ts is null and intent_at is null",),
    timeless=True,
)
# After the incidents: a page goes with the last that it names, since `forget` finds it by these.
SWEEP_PAGES = Sweep(
    "messages",
    """select key as name from messages p where key > :after and page is not null and intent_at is null
       and not exists (
         select 1 from incident_log l join incidents i on i.id = l.incident where l.page = p.page)
       order by key limit :most""",
    ("delete from messages where key in :names and intent_at is null",),
)


class Reminder(NamedTuple):
    """A reminder about a clarification, for the audit: the `number`th of its round. `at`: when Slack took it, if it did;
    `failed`: why it will never be shown.
    """

    round: int
    number: int
    channel: str
    at: datetime | None
    failed: str | None


def reminders(tx: Tx) -> dict[str, list[Reminder]]:
    """Returns the reminders about each clarification, but for those that were about several at once."""
    found: dict[str, list[Reminder]] = {}
    for row in tx.rows(
        """select key, clarification, target, channel, ts, failed from messages
           where kind = 'nudge' and clarification is not null order by key"""
    ):
        *_, number, count = row["key"].split(":")
        at = None if row["ts"] is None else datetime.fromtimestamp(float(row["ts"]), UTC)
        reminder = Reminder(int(number), int(count), row["channel"] or row["target"], at, row["failed"])
        found.setdefault(row["clarification"], []).append(reminder)
    return found


def of(tx: Tx, clarifications: Collection[str]) -> set[str]:
    """Returns the keys of the messages of a few clarifications."""
    rows = tx.rows(
        "select key from messages where clarification in :ids and kind not in ('page', 'rollup')",
        ids=sorted(clarifications),
    )
    return {row["key"] for row in rows}


def find_about(tx: Tx, subject: Subject) -> set[str]:
    """Returns the keys of the messages about `subject` that are not forgotten yet, without pages and roll-up cards, which have
    other subjects too.
    """
    threads = {
        (row["channel"], row["thread_ts"])
        for producer, name in subject.sessions
        for row in tx.rows(
            """select channel, thread_ts from sessions
               where producer = :producer and session_id = :name and thread_ts is not null""",
            producer=producer,
            name=name,
        )
    }
    rows = tx.rows(
        """select key, clarification, producer, session_id, channel, thread_ts,
             case when clarification is null and kind in ('word', 'more') then body end as said
           from messages where kind not in ('page', 'rollup') and (coalesce(failed, '') <> 'forgotten' or ts is not null)"""
    )
    return {
        row["key"]
        for row in rows
        if row["clarification"] in subject.clarifications
        or (row["producer"], row["session_id"]) in subject.sessions
        or (row["channel"], row["thread_ts"]) in threads
        or subject.is_in(row["key"])
        or subject.is_in(row["said"])
    }


def in_flight_of(tx: Tx, keys: Iterable[str]) -> int:
    """Returns how many of these messages are being posted right now."""
    found = 0
    for some in batches(keys):
        sql = "select key from messages where key in :keys and ts is null and intent_at is not null"
        found += len(tx.rows(sql, keys=some))
    return found


def forget(tx: Tx, keys: Iterable[str]) -> list[tuple[str, str]]:
    """Forgets the text and place of messages; keeps their keys, so that nothing is posted again. Returns their places
    as (channel, ts).
    """
    places: list[tuple[str, str]] = []
    for some in batches(keys):
        rows = tx.rows(
            "select channel, ts from messages where key in :keys and ts is not null and channel is not null",
            keys=some,
        )
        places += [(row["channel"], row["ts"]) for row in rows]
        tx.run(
            """update messages set body = null, wanted = null, shown = null, channel = null, ts = null,
                 thread_ts = null, intent_at = null, final = 1, failed = 'forgotten' where key in :keys""",
            keys=some,
        )
    return places


def draw_again(tx: Tx, keys: Iterable[str]) -> None:
    """Marks messages for redrawing from the remaining data."""
    for some in batches(keys):
        tx.run("update messages set shown = null, final = 0 where key in :keys and failed is null", keys=some)


def show_again(tx: Tx) -> None:
    """Marks messages in Slack that may still change as possibly outdated: after a restore they show what came later."""
    tx.run("update messages set shown = null where final = 0 and ts is not null")


_PATIENCE = 1.0  # seconds: a list without links is better than a late one
_MOST_KEPT = 20_000


@dataclass(eq=False)
class Permalinks:
    """Looks up the web addresses of messages and of clarifications' cards, and caches them by place. Never raises.

    `fetch` asks Slack for the address of the message at a channel and ts; may raise SlackError.
    """

    messages: Messages
    fetch: Callable[[str, str], Awaitable[str]]
    _cached: dict[tuple[str, str], str] = field(default_factory=dict)

    async def link(self, clarification: str) -> str | None:
        """Returns the address of a clarification's newest card, or None."""
        return (await self.links([clarification])).get(clarification)

    async def links(self, clarifications: Sequence[str]) -> dict[str, str]:
        """Returns the addresses of clarifications' newest cards, as far as Slack answers in time."""
        try:
            cards = await self.messages.cards_of(clarifications)
        except StorageError as error:
            _log.warning("showing lists without links", reason=str(error))
            return {}
        places = {
            card.clarification: (card.channel, card.ts)
            for card in cards
            if card.clarification and card.channel and card.ts
        }
        found = await asyncio.gather(*(self.permalink(*place) for place in places.values()))
        return {name: link for name, link in zip(places, found, strict=True) if link}

    async def permalink(self, channel: str, ts: str) -> str | None:
        """Returns the address of a message, or None if Slack does not answer in time."""
        if (known := self._cached.get((channel, ts))) is not None:
            return known
        try:
            async with asyncio.timeout(_PATIENCE):
                link = await self.fetch(channel, ts)
        except (SlackError, TimeoutError) as error:
            _log.info("sending a message without its link", reason=str(error) or type(error).__name__)
            return None
        if len(self._cached) >= _MOST_KEPT:
            self._cached.clear()
        self._cached[channel, ts] = link
        return link
