"""Finds the messages that differ from their records, and queues them for sending in their channels' lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from bot.delivery.lanes import CARD, DEAD_CONTROLS, NOTICE, Lanes, Priority, card_priority
from bot.delivery.messages import Fresh, MessageRow, Messages
from bot.delivery.messenger import live_blocks
from bot.delivery.rollups import Rollups, rolled_up
from bot.errors import StorageUnavailable
from bot.routing import Audiences, Group
from bot.slackapi import Place
from bot.views import inert
from core.clarification import Clarification
from core.clock import Clock
from core.index import OWN_THREAD, Index
from core.summary import Seen, Summary

_log = structlog.get_logger("clarify.delivery")
_AT_A_TIME = 200
_STORAGE_RETRY = 0.5  # seconds
_REPLY = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class _Stored:
    """A stored message that could not be read when it was to be queued."""

    key: str


# A record; at startup, one with the digest that its card shows; the id of one whose cards need another update.
_Change = Summary | tuple[Summary, str] | str | _Stored


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A card that may already be in Slack, posted at `asked_at` (seconds since 1970) or later."""

    card: Fresh
    asked_at: float


@dataclass(kw_only=True, eq=False)
class Delivery:
    """Decides which messages need to be posted or updated. Call `restore` once the index is filled, then `run`, and
    `record_changed` after each change of a record. `is_awaited` returns whether a caller waits for an answer right now.
    """

    index: Index
    audiences: Audiences
    messages: Messages
    rollups: Rollups
    lanes: Lanes
    is_awaited: Callable[[str], bool]
    clock: Clock
    _changed: asyncio.Queue[_Change] = field(default_factory=asyncio.Queue, init=False)
    _known: dict[str, int] = field(default_factory=dict, init=False)  # by id, the round of its latest card
    _settling: dict[str, asyncio.TimerHandle] = field(default_factory=dict, init=False)

    def know(self, seen: Seen) -> Summary:
        """Registers a written record whose messages another bot updates, or this one later."""
        record = self.index.put(seen)
        self.rollups.update(record)
        return record

    def record_changed(self, seen: Seen) -> None:
        """Updates the messages of a written record. While its reply is being sent, or its caller waits for it, waits up to 50 ms
        for the outcome: most have the answer sooner, so the card changes once, to say so.
        """
        record = self.know(seen)
        if (settling := self._settling.pop(record.id, None)) is not None:
            settling.cancel()
        state = record.reply
        is_fetched = state == "sending" or (state == "waiting" and self.is_awaited(record.id))
        if is_fetched and record.id in self._known:
            loop = asyncio.get_running_loop()
            self._settling[record.id] = loop.call_later(_REPLY, self._settle, record)
        else:
            self._changed.put_nowait(record)

    def _settle(self, record: Summary) -> None:
        del self._settling[record.id]
        self._changed.put_nowait(record)

    def refresh(self, clarification: str) -> None:
        """Updates the cards of a clarification again, after a click on a control that should be gone."""
        self._changed.put_nowait(clarification)

    def in_doubt(self, records: Iterable[Clarification]) -> list[InDoubt]:
        """Returns the cards that may already be in Slack, posted before the storage was lost; per agent at most the
        card limit.
        """
        found = []
        for record in sorted(records, key=lambda each: (each.created, each.id)):
            self.rollups.update(record)
            if self.audiences.shows(record) and self.rollups.claim_card(record.id):
                found.append(InDoubt(self._card(record), record.asked_last.timestamp()))
        return found

    async def restore(self) -> None:
        """On start: finds what was decided but not shown yet, from the index and the messages table."""
        rows = {row.key: row for row in await self.messages.unfinished()}
        for row in rows.values():
            if row.ts is not None:
                self.messages.inherited.add(row.key)
            elif row.intent_at is not None and row.channel is not None:
                self.messages.in_flight.begin(row.key, row.channel)
        for record in self.index:
            self.rollups.update(record)
            card = rows.pop(_card_key(record), None)
            if card is not None:
                self._known[record.id] = record.round
                if card.ts is not None or card.intent_at is not None:
                    self.rollups.note_card(record)
            self._changed.put_nowait(record if card is None or card.shown is None else (record, card.shown))
        for row in rows.values():
            if row.kind == "rollup" and row.body is not None:
                self.rollups.begin(rolled_up(row), row.key)
            self._send(row, row.target)

    async def run(self) -> None:
        """Works through the changes in batches; runs until cancelled."""
        while True:
            came = [await self._changed.get()]
            while not self._changed.empty() and len(came) < _AT_A_TIME:
                came.append(self._changed.get_nowait())
            if len(came) == _AT_A_TIME:
                await asyncio.sleep(0)  # let others run
            changed = (self._unless_shown(*each) if isinstance(each, tuple) else each for each in came)
            batch = {_card_key(each): each for each in changed if isinstance(each, Summary)}
            while True:
                try:
                    for clarification in {each for each in came if isinstance(each, str)}:
                        await self._show_again(clarification)
                    for stored in {each for each in came if isinstance(each, _Stored)}:
                        await self._send_stored(stored.key)
                    await self._enqueue(batch.values())
                    break
                except StorageUnavailable as error:
                    _log.warning("delivery delayed", reason=str(error))
                    await self.clock.sleep(_STORAGE_RETRY)

    def _unless_shown(self, record: Summary, shown: str) -> Summary | None:
        """Returns the record if it has not changed since startup and its card shows something else."""
        if self.index.get(record.id) is not record:
            return None  # the newer record is queued too
        if shown != str(record.revision):
            return record
        self.messages.inherited.discard(_card_key(record))
        return None

    async def _show_again(self, clarification: str) -> None:
        await self.messages.forget_shown(clarification)
        await self.show(clarification)

    async def show(self, clarification: str) -> None:
        """Updates the cards of a clarification that do not show its current state.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        for row in await self.messages.cards_of([clarification]):
            if row.ts is not None:
                self.lanes.put(row.channel or row.target, row.key, post=False, priority=(DEAD_CONTROLS, 0.0))

    async def _enqueue(self, records: Iterable[Summary]) -> None:
        """Queues each changed clarification's card and its group's roll-up card in their lanes."""
        mine = [record for record in records if self._concerns(record)]
        wanted = (each for each in mine if self._known.get(each.id) != each.round)
        fresh = [self._card(record) for record in wanted if self.audiences.shows(record)]
        if fresh:
            self.messages.expect(fresh)
            self._known.update({card.clarification or "": card.round or 0 for card in fresh})
        shown = {
            record.id: record
            for record in mine
            if not (record.is_open and self.audiences.shows(record)) or self.rollups.claim_card(record.id)
        }
        for row in await self.messages.cards_of(shown.keys()):
            priority = _priority(shown[row.clarification or ""], row)
            self.lanes.put(
                row.channel or row.target,
                row.key,
                post=row.ts is None,
                priority=priority,
                producer=row.producer or "",
            )
        for row in await self.messages.nudges_of(each.id for each in mine if each.nudges):
            self._send(row)
        for group in {self.rollups.group(record) for record in mine}:
            await self._roll_up(group)
        for gone in (each.id for each in mine if not each.needs_something):
            self._known.pop(gone, None)

    def _concerns(self, record: Summary) -> bool:
        """Returns whether people see the question, or saw it: even a question that agents settle themselves may have
        a card.
        """
        return record.id in self._known or self.audiences.shows(record)

    async def _roll_up(self, group: Group) -> None:
        """Gives free card slots to the next held questions. Shows or updates the roll-up card of the others."""
        for record in self.rollups.next_cards(group):
            self.rollups.claim_card(record.id)
            self._changed.put_nowait(record)
        held, key = self.rollups.held(group), self.rollups.key_of(group)
        if held and key is None:
            key = f"rollup:{group.agent}:{held[0].id}"
            await self.messages.want(
                [Fresh(key=key, kind="rollup", target=group.channel, body=group._asdict(), wanted="rollup")]
            )
            self.rollups.begin(group, key)  # only once stored: if the storage refuses, it starts over
        if key is None:
            return
        row = await self.messages.get(key)
        if row is not None:
            self.lanes.put(row.channel or row.target, key, post=row.ts is None, priority=(CARD, 0.0))
        for nudge in await self.messages.nudges_for(key):
            self._send(nudge)
        if not held:
            self.rollups.end(group)

    def _card(self, record: Seen) -> Fresh:
        producer, session_id = self.audiences.thread(record)
        return Fresh(
            key=_card_key(record),
            kind="card",
            target=self.audiences.route(record).channel,
            clarification=record.id,
            round=record.round,
            producer=producer,
            session_id=session_id,
            asker=self.rollups.group(record).agent if producer == OWN_THREAD else None,
        )

    def send(self, target: str, key: str, *, post: bool = True) -> None:
        """Queues a stored message."""
        self.lanes.put(target, key, post=post)

    def _send(self, row: MessageRow, place: str | None = None) -> None:
        place = place or row.channel or row.target
        self.lanes.put(place, row.key, post=row.ts is None, producer=row.producer or "")

    async def send_all(self) -> None:
        """Queues all stored messages that may still change.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        for row in await self.messages.unfinished():
            self._send(row)

    async def send_stored(self, key: str) -> None:
        """Queues a message that was stored, here or by another bot; if it cannot be read now, as soon as it can be."""
        try:
            await self._send_stored(key)
        except StorageUnavailable:
            self._changed.put_nowait(_Stored(key))

    async def _send_stored(self, key: str) -> None:
        row = await self.messages.get(key)
        if row is not None:
            self._send(row)

    async def notify(self, fresh: Fresh) -> None:
        """Shows a notice; durable on return.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        await self.messages.want([fresh])
        await self.send_stored(fresh.key)

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, Any]] | None = None
    ) -> None:
        """Posts a text for everyone in a thread, once per `key`; durable on return."""
        await self.notify(word(key, place, text, blocks))


def word(
    key: str, place: Place, text: str, blocks: list[dict[str, Any]] | None = None, *, wanted: str = "word"
) -> Fresh:
    """Returns a message with a text of the bot's own, posted once per `key`. Stored again with another `wanted`, it
    changes.
    """
    body = {
        "text": inert.utc_dates(text),
        "blocks": blocks or live_blocks(text),
        "thread_ts": place.thread_ts,
    }
    return Fresh(key=f"word:{key}", kind="word", target=place.channel, body=body, wanted=wanted)


def _card_key(record: Seen) -> str:
    return f"card:{record.id}:{record.round}"


def _priority(record: Summary, row: MessageRow) -> Priority:
    if record.is_open and row.round == record.round:
        return card_priority(record.expires_at.timestamp() if record.expires_at else None)
    return (DEAD_CONTROLS, 0.0) if row.ts is not None else (NOTICE, 0.0)
