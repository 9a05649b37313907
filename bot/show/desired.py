"""Derives what each message should say now, and where, from the records, the storage and the routes.

Decides nothing about clarifications. A `Desired` is compared with what was last shown; a `Skip` says why there is nothing to post
(yet). `Rollups` limits an agent's cards per channel: its further open questions share one roll-up card. It is in memory: derived
from the index and from which cards are posted. A question to people in another channel counts there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bot.routing import Audiences, Group
from bot.show.messages import MessageRow, Messages
from bot.views.lists import rollup
from bot.views.notices import nudge_over, rollup_nudge_over
from bot.views.render import RenderedMessage, Renderer
from core.clarification import DONE, Clarification
from core.clock import Clock
from core.errors import NotFound
from core.index import OWN_THREAD, Index
from core.ledger import Ledger
from core.summary import Seen, Summary, summary_of

CARD_LIMIT = 20
NOTICE_EVENT = "clarify_notice"
CARD_EVENT = "clarify_card"
PAGE_EVENT = "clarify_page"
_NO_TIME = timedelta(seconds=5)


@dataclass(eq=False)
class Rollups:
    """Decides which open questions get a card of their own: the first twenty per agent and channel."""

    index: Index
    audiences: Audiences
    _group: dict[str, Group] = field(default_factory=dict)  # of open questions
    _open: dict[Group, dict[str, Summary]] = field(default_factory=dict)
    _cards: dict[Group, set[str]] = field(default_factory=dict)
    _keys: dict[Group, str] = field(default_factory=dict)

    def group(self, seen: Seen) -> Group:
        return self.audiences.group(seen)

    def update(self, seen: Seen) -> None:
        """Takes in a clarification's current state."""
        record = summary_of(seen)
        group = self.group(record)
        shown = record.is_open and self.audiences.shows(record)
        before = self._group.pop(record.id, group)
        if not shown or before != group:  # another round may have other answerers
            self._leave(before, record)
        if shown:
            self._group[record.id] = group
            self._open.setdefault(group, {})[record.id] = record

    def _leave(self, group: Group, record: Summary) -> None:
        self._cards.get(group, set()).discard(record.id)
        known = self._open.get(group, {})
        known.pop(record.id, None)
        if not known:
            self._open.pop(group, None)
            self._cards.pop(group, None)

    def note_card(self, record: Seen) -> None:
        """Counts a card that is posted, or may be."""
        if record.is_open:
            self._cards.setdefault(self.group(record), set()).add(record.id)

    def claim_card(self, clarification: str) -> bool:
        """Reserves one of the 20 card slots. Returns False if none is left. A closed or unknown question needs none."""
        record = self.index.get(clarification)
        if record is None or not record.is_open:
            return True
        cards = self._cards.setdefault(self.group(record), set())
        if clarification not in cards and len(cards) >= CARD_LIMIT:
            return False
        cards.add(clarification)
        return True

    def has_place(self, clarification: str) -> bool:
        """Returns whether it has a card slot, posted or not."""
        group = self._group.get(clarification)
        return group is not None and clarification in self._cards.get(group, ())

    def may_hold(self, record: Seen) -> bool:
        """Returns whether an open question may have no card of its own. A bot that does not deliver knows no card
        slots, so there any of more than 20 questions may be held.
        """
        return len(self._open.get(self.group(record), ())) > CARD_LIMIT and not self.has_place(record.id)

    def open_in(self, group: Group) -> list[Summary]:
        """Returns the open questions, oldest first."""
        return sorted(self._open.get(group, {}).values(), key=lambda s: (s.created, s.id))

    def held(self, group: Group) -> list[Summary]:
        """Returns the open questions without a card of their own, oldest first."""
        cards = self._cards.get(group, set())
        return [s for s in self.open_in(group) if s.id not in cards] if len(cards) >= CARD_LIMIT else []

    def next_cards(self, group: Group) -> list[Summary]:
        """Returns the questions that get the free card slots, the oldest first."""
        cards = self._cards.get(group, set())
        return [s for s in self.open_in(group) if s.id not in cards][: max(0, CARD_LIMIT - len(cards))]

    def key_of(self, group: Group) -> str | None:
        """Returns the message key of the group's roll-up card, if it has one."""
        return self._keys.get(group)

    def begin(self, group: Group, key: str) -> None:
        self._keys[group] = key

    def end(self, group: Group) -> None:
        self._keys.pop(group, None)


def rolled_up(row: MessageRow) -> Group:
    """Returns the group whose questions a roll-up card holds."""
    body = row.body or {}
    return Group(body.get("agent", ""), body.get("channel") or row.target)


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """A roll-up card's place in Slack, and the clarifications that it holds."""

    channel: str
    ts: str
    holds: tuple[str, ...]


@dataclass(eq=False)
class RollupThreads:
    """Finds the questions that a roll-up card holds by its place in Slack: a reply in its thread is about them.

    Uses only stored cards, because a bot that does not deliver knows no claims.

    Raises StorageUnavailable if they cannot be looked up now.
    """

    messages: Messages
    rollups: Rollups

    async def held_at(self, channel: str, ts: str) -> tuple[str, ...] | None:
        """Returns the clarifications that the roll-up card at a place holds now, or None if there is no roll-up card."""
        row = await self.messages.landed_at(channel, ts)
        return await self.held_by(row) if row is not None and row.kind == "rollup" else None

    async def open_rollups(self) -> list[RollupPlace]:
        """Returns the roll-up cards that may still change."""
        return [
            RollupPlace(row.channel, row.ts, await self.held_by(row))
            for row in await self.messages.rollups()
            if row.channel is not None and row.ts is not None
        ]

    async def held_by(self, row: MessageRow) -> tuple[str, ...]:
        """Returns the clarifications that a roll-up card holds now."""
        rounds = {each.id: each.round for each in self.rollups.open_in(rolled_up(row))}
        cards = await self.messages.cards_of(rounds)
        begun = {(card.clarification, card.round) for card in cards if card.ts or card.intent_at}
        others = [each for each, number in rounds.items() if (each, number) not in begun]
        # The oldest of them are about to get the free slots.
        return tuple(others[max(0, CARD_LIMIT - len(rounds) + len(others)) :])


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
