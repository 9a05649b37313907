"""Keeps Slack's messages up to date: finds those that differ from their records, and queues them for sending in their channels'
lanes. Also builds the parts that this takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from bot.base import Base
from bot.errors import StorageUnavailable
from bot.routing import Audiences, Group
from bot.show.desired import DesiredState, Draw, Rollups, rolled_up
from bot.show.lanes import CARD, DEAD_CONTROLS, NOTICE, Lanes, Priority, card_priority
from bot.show.messages import Fresh, MessageRow, Messages, Permalinks, card_of, owe_card
from bot.show.messenger import Messenger, OnOutcome, live_blocks
from bot.show.nudges import Nudges
from bot.show.removal import DuplicateCleanup, Erasing
from bot.slackapi import Availability, Place
from bot.views import inert
from core.clock import Clock
from core.escalation import Raise
from core.index import Index
from core.summary import Seen, Summary

_log = structlog.get_logger("clarify.delivery")
_AT_A_TIME = 200
_STORAGE_RETRY = 0.5  # seconds
_REPLY = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class _StoredMessage:
    """A stored message that could not be read when it was to be queued."""

    key: str


# A record; the id of one whose cards need another update; a stored message.
_Change = Summary | str | _StoredMessage


@dataclass(kw_only=True, eq=False)
class Delivery:
    """Decides which messages need to be posted or updated. Call `load` once the index is filled, then `run`, and
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
        if is_fetched:
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

    async def load(self) -> None:
        """Loads which cards are in Slack, and queues the messages that are owed.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        stored = await self.messages.carded()
        for record in self.index:
            if stored.get((record.id, record.round)):
                self.rollups.note_card(record)
        await self.messages.add_cards(self._lacking(self.index, stored))
        owed = await self.messages.owed()
        for row in owed:
            if row.ts is not None:
                self.messages.inherited.add(row.key)
            elif row.intent_at is not None and row.channel is not None:
                self.messages.in_flight.begin(row.key, row.channel)
            if row.kind == "rollup" and row.body is not None:
                self.rollups.begin(rolled_up(row), row.key)
        self._queue(owed)
        for row in owed:
            if row.kind == "rollup" and row.body is not None:
                await self._roll_up(rolled_up(row))

    def _queue(self, rows: Iterable[MessageRow]) -> None:
        for row in rows:
            record = self.index.get(row.clarification or "") if row.kind == "card" else None
            if record is None:
                self._send(row, row.target if row.ts is None else None)
            else:
                self._changed.put_nowait(record)

    async def run(self) -> None:
        """Works through the changes in batches; runs until cancelled."""
        while True:
            came = [await self._changed.get()]
            while not self._changed.empty() and len(came) < _AT_A_TIME:
                came.append(self._changed.get_nowait())
            if len(came) == _AT_A_TIME:
                await asyncio.sleep(0)  # let others run
            batch = {each.id: each for each in came if isinstance(each, Summary)}
            while True:
                try:
                    for clarification in {each for each in came if isinstance(each, str)}:
                        await self._show_again(clarification)
                    for stored in {each for each in came if isinstance(each, _StoredMessage)}:
                        await self._send_stored(stored.key)
                    await self._enqueue(batch.values())
                    break
                except StorageUnavailable as error:
                    _log.warning("delivery delayed", reason=str(error))
                    await self.clock.sleep(_STORAGE_RETRY)

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
        changed = list(records)
        shown = {
            record.id: record
            for record in changed
            if not (record.is_open and self.audiences.shows(record)) or self.rollups.claim_card(record.id)
        }
        rows = await self.messages.cards_of(shown.keys())
        if lacking := self._lacking(shown.values(), {(row.clarification, row.round) for row in rows}):
            await self.messages.add_cards(lacking)
            rows = await self.messages.cards_of(shown.keys())
        for row in rows:
            priority = _priority(shown[row.clarification or ""], row)
            self.lanes.put(
                row.channel or row.target,
                row.key,
                post=row.ts is None,
                priority=priority,
                producer=row.producer or "",
            )
        for row in await self.messages.nudges_of(each.id for each in changed if each.nudges):
            self._send(row)
        for group in {self.rollups.group(record) for record in changed}:
            await self._roll_up(group)

    def _lacking(
        self, records: Iterable[Summary], stored: Container[tuple[str | None, int | None]]
    ) -> list[Fresh]:
        """Returns the cards that were not stored with their records: whoever wrote those did not know yet that people are to see
        them, since the routes, or who answers for a role, have changed since, or it had no configuration.
        """
        return [
            card_of(self.audiences, record)
            for record in records
            if (record.id, record.round) not in stored and self.audiences.shows(record)
        ]

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

    def send(self, target: str, key: str, *, post: bool = True) -> None:
        """Queues a stored message."""
        self.lanes.put(target, key, post=post)

    def _send(self, row: MessageRow, place: str | None = None) -> None:
        place = place or row.channel or row.target
        self.lanes.put(place, row.key, post=row.ts is None, producer=row.producer or "")

    async def send_all(self) -> None:
        """Queues all messages that are owed.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        self._queue(await self.messages.owed())

    async def send_stored(self, key: str) -> None:
        """Queues a message that was stored, here or by another bot; if it cannot be read now, as soon as it can be."""
        try:
            await self._send_stored(key)
        except StorageUnavailable:
            self._changed.put_nowait(_StoredMessage(key))

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


def _priority(record: Summary, row: MessageRow) -> Priority:
    if record.is_open and row.round == record.round:
        return card_priority(record.expires_at.timestamp() if record.expires_at else None)
    return (DEAD_CONTROLS, 0.0) if row.ts is not None else (NOTICE, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShowParts:
    """The parts that post, change and delete messages in Slack."""

    rollups: Rollups
    messenger: Messenger
    lanes: Lanes
    delivery: Delivery
    duplicates: DuplicateCleanup
    nudges: Nudges
    erasing: Erasing


def build(
    base: Base,
    messages: Messages,
    permalinks: Permalinks,
    *,
    draw: Draw,
    raise_incident: Raise,
    on_outcome: OnOutcome,
    active: Callable[[Iterable[str]], Awaitable[Sequence[str]]],
    is_awaited: Callable[[str], bool],
) -> ShowParts:
    """Builds them. `draw` draws a page, `on_outcome` is told each message's outcome; `active`: see `Nudges`; `is_awaited`: see
    `Delivery`.
    """
    index, ledger, clock, audiences = base.index, base.ledger, base.clock, base.audiences
    ledger.owes = partial(owe_card, audiences)
    rollups = Rollups(index, audiences)
    messenger = Messenger(
        settings=base.settings,
        gateway=base.gateway,
        messages=messages,
        desired=DesiredState(
            ledger=ledger,
            index=index,
            messages=messages,
            rollups=rollups,
            renderer=base.renderer,
            audiences=audiences,
            clock=clock,
            draw=draw,
        ),
        ledger=ledger,
        raise_incident=raise_incident,
        on_outcome=on_outcome,
        acts=base.acts,
        clock=clock,
        rng=base.rng,
    )
    lanes = messenger.lanes
    delivery = Delivery(
        index=index,
        audiences=audiences,
        messages=messages,
        rollups=rollups,
        lanes=lanes,
        is_awaited=is_awaited,
        clock=clock,
    )
    return ShowParts(
        rollups=rollups,
        messenger=messenger,
        lanes=lanes,
        delivery=delivery,
        duplicates=DuplicateCleanup(messages=messages, gateway=base.gateway, lanes=lanes, clock=clock),
        nudges=Nudges(
            index=index,
            ledger=ledger,
            messages=messages,
            rollups=rollups,
            renderer=base.renderer,
            audiences=audiences,
            notify=delivery.notify,
            permalinks=permalinks,
            active=active,
            clock=clock,
        ),
        erasing=Erasing(
            store=base.store,
            client=base.web,
            clock=clock,
            rng=base.rng,
            redraw=partial(delivery.send, post=False),
        ),
    )


async def resume_when_back(availability: Availability, lanes: Lanes) -> None:
    """Ends the lanes' backoff whenever Slack answers again; runs until cancelled."""
    while True:
        await availability.is_back()
        lanes.slack_is_back()
