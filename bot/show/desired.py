"""Derives what each message should say now, and where, from the records, the storage and the routes.

Decides nothing about clarifications. A `Desired` is compared with what was last shown; a `Skip` says why there is
nothing to post (yet).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from bot.routing import Audiences
from bot.show.messages import MessageRow, Messages
from bot.show.rollups import Rollups, rolled_up
from bot.views.lists import rollup
from bot.views.notices import nudge_over, rollup_nudge_over
from bot.views.render import RenderedMessage, Renderer
from core.clarification import DONE, Clarification
from core.clock import Clock
from core.errors import NotFound
from core.index import OWN_THREAD, Index
from core.ledger import Ledger

NOTICE_EVENT = "clarify_notice"
CARD_EVENT = "clarify_card"
PAGE_EVENT = "clarify_page"
_NO_TIME = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Desired:
    """A message's desired state. `matches`: the metadata that identifies it in a channel. `needed`: people must see
    it, so it is posted again if it was deleted. `unwanted`: no longer worth a post, but updated if it is there.
    `about`: of a page, the key of the card whose whole text is its `more`, or another name for its subject. `waits`:
    it goes into a thread whose first card is not posted yet, or is not complete. `gone`: it should be deleted; if people replied in its
    thread, it is updated instead.
    """

    message: RenderedMessage
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
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Skip:
    reason: str


@dataclass(frozen=True, slots=True)
class Drawn:
    """A page's desired message. `needed`: a person still has to see it; `final`: it will not change; `gone`: a newer
    page replaces it, or it is over and was not seen; `alone`: nothing else in its channel shows its subject; `waits`:
    it is not complete yet.

    `about` names the subject of `more`, and is the same for all pages with the same `more`: the key of a question's
    card if `more` is the whole question; None: no other page has this `more`.
    """

    message: RenderedMessage
    needed: bool
    final: bool
    about: str | None = None
    gone: bool = False
    alone: bool = False
    waits: bool = False


Draw = Callable[[MessageRow], Awaitable[Drawn | None]]


@dataclass(kw_only=True, eq=False)
class DesiredState:
    """Computes the desired state of a message. `draw` does so for pages, from their row with their place; it returns None for
    an unknown page.
    """

    ledger: Ledger
    index: Index
    messages: Messages
    rollups: Rollups
    renderer: Renderer
    audiences: Audiences
    clock: Clock
    draw: Draw

    async def of(self, row: MessageRow) -> Desired | Skip:
        """Returns what `row`'s message should be now.

        Raises:
            LedgerUnreadable, LockTimeout: the record cannot be read now.
            RenderError: a fault of ours; the message cannot be built.
        """
        kinds = {
            "card": self._card,
            "rollup": self._rollup,
            "page": self._page,
            "handoff": self._handoff,
            "nudge": self._nudge,
        }
        try:
            return await kinds.get(row.kind, self._notice)(row)
        except NotFound:
            return Skip("its record is gone")

    async def _card(self, row: MessageRow) -> Desired | Skip:
        record = await self._record(row)
        if await self.ledger.is_tampered(record):
            return Skip("its record was changed after the decision")
        if row.ts is None and record.is_open and not self.rollups.claim_card(record.id):
            return Skip("shown in the roll-up card")
        route = self.audiences.route(record)
        channel, thread_ts = await self._place(row, record)

        def drawn() -> tuple[RenderedMessage, str]:
            message = self.renderer.card(
                record,
                round=row.round,
                verbosity=route.verbosity,
                posted_to_fallback=route.channel if row.target != route.channel else None,
                asks_an_agent=self.audiences.asks_an_agent(record),
                shrinks=thread_ts is not None and route.broadcast == "all",
            )
            return message, f"round {row.round}" if _is_earlier(record, row.round) else str(record.revision)

        # Arguments can be large; a thread keeps the event loop free.
        message, shown = await asyncio.to_thread(drawn) if record.current.arguments else drawn()
        about = {"clarification": record.id}
        return Desired(
            message=message,
            digest=shown,
            final=_is_final(record, row.round),
            channel=channel,
            metadata={"event_type": CARD_EVENT, "event_payload": about | {"revision": record.revision}},
            matches={"event_type": CARD_EVENT, "event_payload": about},
            thread_ts=thread_ts,
            broadcast=thread_ts is not None
            and record.is_open
            and (route.broadcast == "all" or record.status == "escalated"),
            opens_thread=thread_ts is None and row.session_id is not None,
            needed=record.is_open,
            unwanted=row.ts is None and _is_needless(record),
        )

    async def _place(self, row: MessageRow, record: Clarification) -> tuple[str, str | None]:
        """Returns where a card is or goes: its session's thread or, once closed without a card of its own, its
        roll-up's.
        """
        if row.ts is not None and row.channel is not None:
            return row.channel, row.thread_ts
        if row.session_id is not None:
            thread = await self.messages.thread_of(row.producer or "", row.session_id)
            if thread is not None:
                return thread.channel, thread.ts
        key = None if record.is_open else self.rollups.key_of(self.rollups.group(record))
        rollup = await self.messages.get(key) if key else None
        if rollup is not None and rollup.ts is not None and rollup.channel is not None:
            return rollup.channel, rollup.ts
        return row.target, None

    async def _rollup(self, row: MessageRow) -> Desired | Skip:
        group = rolled_up(row)
        held = self.rollups.held(group)
        if not held and row.ts is None:
            return Skip("nothing to roll up")
        records = await self.index.readable(held[:5], self.ledger)
        oldest = min((s.expires_at for s in held if s.expires_at), default=None)
        reminded = max(
            (s.attention.nudged_at for s in held if s.nudges and s.attention.nudged_at), default=None
        )
        message = self.renderer.message(rollup(records, len(held), oldest, group.agent, reminded))
        return _own(row, message, _hash(message), final=not held, channel=row.target, needed=bool(held))

    async def _page(self, row: MessageRow) -> Desired | Skip:
        channel, thread_ts, waits = row.channel or row.target, row.thread_ts, False
        if row.ts is None:
            thread = await self.messages.thread_of(row.producer or "", row.session_id or "")
            channel, thread_ts = (thread.channel, thread.ts) if thread else (row.target, None)
            waits = thread is None and await self._is_before_its_card(row)
        if (drawn := await self.draw(replace(row, channel=channel, thread_ts=thread_ts))) is None:
            return Skip("its page is not known")
        return _own(
            row,
            drawn.message,
            _hash(drawn.message),
            event=PAGE_EVENT,
            final=drawn.final,
            channel=channel,
            thread_ts=thread_ts,
            broadcast=thread_ts is not None and drawn.alone,
            needed=drawn.needed,
            unwanted=not drawn.needed,
            about=drawn.about,
            waits=waits,
            gone=drawn.gone,
        )

    async def _is_before_its_card(self, row: MessageRow) -> bool:
        """Returns whether the card that opens the page's thread is still to come. What agents ask each other may be
        shown and paged at the same moment.
        """
        return (
            row.producer == OWN_THREAD
            and row.session_id is not None
            and self.rollups.has_place(row.session_id)
            and await self.messages.card_to_come(row.session_id)
        )

    async def _handoff(self, row: MessageRow) -> Desired | Skip:
        """A handoff by an agent, and who has claimed it."""
        if (drawn := await self.draw(row)) is None:
            return Skip("nobody was paged for it")
        desired = await self._in_thread(
            row, drawn.message, _hash(drawn.message), final=drawn.final, needed=drawn.needed
        )
        return replace(desired, waits=drawn.waits) if isinstance(desired, Desired) else desired

    async def _nudge(self, row: MessageRow) -> Desired | Skip:
        """A reminder in its card's thread or, once its subject is over, the outcome. A reminder that was not posted by then
        is dropped; one whose card is still to come waits for it.
        """
        over, too_late = None, False
        if row.clarification is not None:
            record = await self._record(row)
            if record.is_open and not _is_earlier(record, row.round):
                expires = record.asked.expires_at
                too_late = expires is not None and expires - self.clock.now() < _NO_TIME
            else:
                over = self.renderer.message(nudge_over(record, row.round))
        else:
            group, answerers = rolled_up(row), (row.body or {}).get("answerers")
            held = self.rollups.held(group)
            if not any(list(self.audiences.route(each).answerers) == answerers for each in held):
                over = self.renderer.message(rollup_nudge_over())
        if over is None:
            desired = await self._stored(row, final=False)
        else:
            desired = await self._in_thread(row, over, "over", final=True, needed=False)
        if isinstance(desired, Skip):
            return desired
        if over is None and row.ts is None:
            desired = await self._below_its_card(row, desired)
        return replace(desired, unwanted=over is not None or too_late)

    async def _below_its_card(self, row: MessageRow, desired: Desired) -> Desired:
        """Returns a reminder in the thread of its card or roll-up card, if it has one."""
        card = await self._reminded_card(row)
        if card is None or card.failed is not None:
            return desired
        if card.ts is None:
            return replace(desired, waits=True)
        if card.kind == "card":
            return desired
        return replace(
            desired, channel=card.channel or desired.channel, thread_ts=card.ts, opens_thread=False
        )

    async def _reminded_card(self, row: MessageRow) -> MessageRow | None:
        """Returns the card that shows what a reminder is about: its own or, without a place for one, its group's."""
        if row.clarification is None:
            key = self.rollups.key_of(rolled_up(row))
        else:
            cards = await self.messages.cards_of([row.clarification])
            own = next((card for card in cards if card.round == row.round), None)
            if own is None or own.ts is not None or self.rollups.has_place(row.clarification):
                return own
            key = self.rollups.key_of(self.rollups.group(await self._record(row)))
        return await self.messages.get(key) if key is not None else None

    async def _notice(self, row: MessageRow) -> Desired | Skip:
        """A notice, whose text does not change."""
        return await self._stored(row, final=True)

    async def _stored(self, row: MessageRow, *, final: bool) -> Desired | Skip:
        """A message whose text was stored when it was decided."""
        body = row.body or {}
        message = RenderedMessage(text=body["text"], blocks=body["blocks"], more=tuple(body.get("more", ())))
        needed = bool(body.get("needed"))
        return await self._in_thread(row, message, row.wanted or "", final=final, needed=needed)

    async def _in_thread(
        self, row: MessageRow, message: RenderedMessage, shown: str, *, final: bool, needed: bool
    ) -> Desired | Skip:
        """A message in its session's thread, which it may open, or wherever it already is."""
        body = row.body or {}
        channel, thread_ts, opens = row.channel or row.target, row.thread_ts, False
        if row.ts is None:
            channel, thread_ts = row.target, body.get("thread_ts")
            if row.session_id is not None:
                thread = await self.messages.thread_of(row.producer or "", row.session_id)
                if thread is None and not body.get("opens_thread"):
                    return Skip("its session has no thread")
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

    async def _record(self, row: MessageRow) -> Clarification:
        return await self.index.find(row.clarification or "CLR-0-000", self.ledger)


def _own(
    row: MessageRow, message: RenderedMessage, shown: str, *, event: str = NOTICE_EVENT, **more: Any
) -> Desired:
    """A message that is identified by its key."""
    metadata = {"event_type": event, "event_payload": {"key": row.key}}
    return Desired(message, shown, metadata=metadata, matches=metadata, **more)


def _is_needless(record: Clarification) -> bool:
    """Returns whether a finished question that never had a card needs none: its asker withdrew it, or has its answer.

    These do need a card: a question that expired unseen, and one from a producer's event (promise P1).
    """
    return record.asked.direct is not None and record.status in DONE and record.current.closed != "expired"


def _is_final(record: Clarification, round: int | None) -> bool:  # noqa: A002 - the protocol's word
    return _is_earlier(record, round) or (
        record.status in DONE and record.delivery.reply not in {"sending", "delivered", "unconfirmed"}
    )


def _is_earlier(record: Clarification, round: int | None) -> bool:  # noqa: A002 - the protocol's word
    """Returns whether it is the card of an earlier round, which no longer changes."""
    return round is not None and round < record.round


def _hash(message: RenderedMessage) -> str:
    return hashlib.blake2b(repr((message.text, message.blocks)).encode(), digest_size=12).hexdigest()
