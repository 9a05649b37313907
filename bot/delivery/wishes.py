"""What each message should say now, and where: derived from the ledger, the storage and the routes.

Holds no decisions about clarifications. A `Wish` is compared with what was last shown; a `Hold` says why there is
nothing to post (yet).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from bot.delivery.messages import Messages, Row
from bot.delivery.pages import Drawn
from bot.delivery.rollups import Rollups
from bot.routing import Audiences, Group
from bot.settings.model import RouteSettings
from bot.views.render import Message, Renderer
from bot.views.rounds import Verbosity
from core.clarification import DONE, Clarification, parse_id
from core.clock import Clock
from core.errors import NotFound
from core.index import OWN_THREAD
from core.ledger import FileLedger
from core.records import digest, dump

NOTICE_EVENT = "clarify_notice"
CARD_EVENT = "clarify_card"
PAGE_EVENT = "clarify_page"
_NO_TIME = timedelta(seconds=5)
Draw = Callable[[Row], Awaitable[Drawn | None]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a message should be. `matches` finds it again among a channel's messages; `needed`: somebody has
    to see it, so it is posted again if it was deleted. `unwanted`: not worth a post any more; what is there is
    brought up to date all the same. `about`: of a page, the key of the card whose whole text its `more` is, or
    another name for what it tells. `waits`: it belongs into the thread that a card begins which is yet to be posted.
    """

    message: Message
    digest: str
    final: bool
    channel: str
    metadata: Mapping[str, Any]
    matches: Mapping[str, Any]
    thread_ts: str | None = None
    broadcast: bool = False
    opens_thread: bool = False
    needed: bool = False
    unwanted: bool = False
    about: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    reason: str


class Wishes:
    """`draw` says what a page's message should be; None: its page is not known."""

    def __init__(
        self,
        ledger: FileLedger,
        messages: Messages,
        rollups: Rollups,
        renderer: Renderer,
        audiences: Audiences,
        *,
        clock: Clock,
        draw: Draw | None = None,
    ) -> None:
        self._ledger = ledger
        self._messages = messages
        self._rollups = rollups
        self._renderer = renderer
        self._audiences = audiences
        self._clock = clock
        self._draw = draw

    async def of(self, row: Row) -> Wish | Hold:
        """What `row`'s message should be now.

        Raises:
            LedgerUnreadable, LockTimeout: the ledger cannot be read now.
            RenderError: a fault of ours; the message cannot be built.
        """
        if row.kind == "card":
            return await self._card(row)
        if row.kind == "rollup":
            return await self._rollup(row)
        if row.kind == "page" and row.body is None:
            return await self._page(row)
        if row.kind == "handoff":
            return await self._handoff(row)
        if row.kind == "nudge":
            return await self._nudge(row)
        return await self._told(row)

    async def _card(self, row: Row) -> Wish | Hold:
        try:
            record = await self._ledger.find(row.clarification or "", _issue(row))
        except NotFound:
            return Hold("its record is gone from the ledger")
        if record.is_open and not await self._ledger.is_as_asked(record):
            return Hold("another program changed its question")
        if row.ts is None and record.is_open and not self._rollups.may_have_card(record.id):
            return Hold("shown in the roll-up card")
        route = self._audiences.route(record)
        channel, thread_ts = await self._place(row, record)
        elsewhere = route.channel if row.target != route.channel else None
        message = self._renderer.card(
            record,
            round=row.round,
            verbosity=_verbosity(route),
            posted_to_fallback=elsewhere,
            asks_an_agent=self._audiences.asks_an_agent(record),
        )
        return Wish(
            message=message,
            digest=f"round {row.round}" if _is_earlier(record, row.round) else digest(dump(record)),
            final=_is_final(record, row.round),
            channel=channel,
            metadata={
                "event_type": CARD_EVENT,
                "event_payload": {"clarification": record.id, "revision": record.revision},
            },
            matches={"event_type": CARD_EVENT, "event_payload": {"clarification": record.id}},
            thread_ts=thread_ts,
            broadcast=thread_ts is not None and record.is_open,
            opens_thread=thread_ts is None and row.session_id is not None,
            needed=record.is_open,
        )

    async def _place(self, row: Row, record: Clarification) -> tuple[str, str | None]:
        """Where a card is or goes: its session's thread; once closed without a card of its own, its roll-up's."""
        if row.ts is not None and row.channel is not None:
            return row.channel, row.thread_ts
        if row.session_id is not None:
            thread = await self._messages.thread_of(row.producer or "", row.session_id)
            if thread is not None:
                return thread.channel, thread.ts
        key = None if record.is_open else self._rollups.key_of(self._rollups.group(record))
        rollup = await self._messages.get(key) if key else None
        if rollup is not None and rollup.ts is not None and rollup.channel is not None:
            return rollup.channel, rollup.ts
        return row.target, None

    async def _rollup(self, row: Row) -> Wish | Hold:
        group = rolled_up(row)
        held = self._rollups.held(group)
        if not held and row.ts is None:
            return Hold("nothing to roll up")
        records = [await self._ledger.find(summary.id, summary.issue) for summary in held[:5]]
        oldest = min((s.expires_at for s in held if s.expires_at), default=None)
        message = self._renderer.rollup(records, len(held), oldest, group.agent)
        return _own(row, message, _hash(message), final=not held, channel=row.target, needed=bool(held))

    async def _page(self, row: Row) -> Wish | Hold:
        drawn = await self._draw(row) if self._draw is not None else None
        if drawn is None:
            return Hold("its page is not known")
        channel, thread_ts, waits = row.channel or row.target, row.thread_ts, False
        if row.ts is None:
            thread = await self._messages.thread_of(row.producer or "", row.session_id or "")
            channel, thread_ts = (thread.channel, thread.ts) if thread else (row.target, None)
            waits = thread is None and await self._is_before_its_card(row)
        metadata = {"event_type": PAGE_EVENT, "event_payload": {"key": row.key}}
        return Wish(
            drawn.message,
            _hash(drawn.message),
            drawn.final,
            channel,
            metadata,
            metadata,
            thread_ts=thread_ts,
            broadcast=thread_ts is not None,
            needed=drawn.needed,
            unwanted=not drawn.needed,
            about=drawn.about,
            waits=waits,
        )

    async def _is_before_its_card(self, row: Row) -> bool:
        """What agents ask each other may be shown to people and paged at the same moment: the thread comes first."""
        return (
            row.producer == OWN_THREAD
            and row.session_id is not None
            and self._rollups.has_place(row.session_id)
            and await self._messages.card_to_come(row.session_id)
        )

    async def _handoff(self, row: Row) -> Wish | Hold:
        """What an agent handed over, and who has it by now."""
        drawn = await self._draw(row) if self._draw is not None else None
        if drawn is None:
            return Hold("nobody was paged for it")
        return await self._placed(
            row, drawn.message, _hash(drawn.message), final=drawn.final, needed=drawn.needed
        )

    async def _nudge(self, row: Row) -> Wish | Hold:
        """A reminder, until what it is about is over; then how that ended. One that nobody saw yet is dropped then."""
        body = row.body or {}
        if row.clarification is not None:
            try:
                record = await self._ledger.find(row.clarification, _issue(row))
            except NotFound:
                return Hold("its record is gone from the ledger")
            waits = record.is_open and not _is_earlier(record, row.round)
            over = None if waits else self._renderer.nudge_over(record, row.round)
            too_late = waits and self._is_ending(record)
        else:
            group, answerers = rolled_up(row), body.get("answerers")
            held = self._rollups.held(group)
            waits = any(list(self._audiences.route(each).answerers) == answerers for each in held)
            over = None if waits else self._renderer.rollup_nudge_over(group.agent)
            too_late = False
        if over is None:
            wish = await self._placed(
                row, _stored(body), row.wanted or "", final=False, needed=bool(body.get("needed"))
            )
        else:
            wish = await self._placed(row, over, "over", final=True, needed=False)
        if isinstance(wish, Wish) and (over is not None or too_late):
            return replace(wish, unwanted=True)
        return wish

    def _is_ending(self, record: Clarification) -> bool:
        """Whether there is no time left to do what a reminder asks for."""
        expires = record.asked.expires_at
        return expires is not None and expires - self._clock.now() < _NO_TIME

    async def _told(self, row: Row) -> Wish | Hold:
        """A notice or page, whose words were stored when it was decided."""
        body = row.body or {}
        return await self._placed(
            row, _stored(body), row.wanted or "", final=True, needed=bool(body.get("needed"))
        )

    async def _placed(
        self, row: Row, message: Message, shown: str, *, final: bool, needed: bool
    ) -> Wish | Hold:
        """In its session's thread, which it may have to open; or where it stands already."""
        body = row.body or {}
        channel, thread_ts, opens = row.channel or row.target, row.thread_ts, False
        if row.ts is None:
            channel, thread_ts = row.target, body.get("thread_ts")
            if row.session_id is not None:
                thread = await self._messages.thread_of(row.producer or "", row.session_id)
                if thread is None and not body.get("opens_thread"):
                    return Hold("its session has no thread")
                channel, thread_ts = (thread.channel, thread.ts) if thread else (row.target, None)
                opens = thread is None
        return _own(
            row,
            message,
            shown,
            final=final,
            channel=channel,
            thread_ts=thread_ts,
            broadcast=bool(body.get("broadcast")) and thread_ts is not None,
            opens_thread=opens,
            needed=needed,
        )


def _stored(body: Mapping[str, Any]) -> Message:
    """Words that were stored when it was decided to say them."""
    return Message(text=body["text"], blocks=body["blocks"], more=tuple(body.get("more", ())))


def rolled_up(row: Row) -> Group:
    """Whose questions a roll-up card holds."""
    body = row.body or {}
    return Group(body["agent"], body.get("channel") or row.target)


def _own(row: Row, message: Message, shown: str, *, final: bool, channel: str, **more: Any) -> Wish:
    metadata = {"event_type": NOTICE_EVENT, "event_payload": {"key": row.key}}
    return Wish(message, shown, final, channel, metadata, metadata, **more)


def _is_final(record: Clarification, round: int | None) -> bool:  # noqa: A002 - the protocol's word
    return _is_earlier(record, round) or (
        record.status in DONE and record.asked.reply not in {"sending", "delivered", "unconfirmed"}
    )


def _is_earlier(record: Clarification, round: int | None) -> bool:  # noqa: A002 - the protocol's word
    """The card of a round that is over says the same for ever."""
    return round is not None and round < record.round


def _issue(row: Row) -> int:
    return parse_id(row.clarification or "CLR-0-000")[0]


def _verbosity(route: RouteSettings) -> Verbosity:
    return route.verbosity


def _hash(message: Message) -> str:
    return hashlib.blake2b(repr((message.text, message.blocks)).encode(), digest_size=12).hexdigest()
