"""Removes messages from Slack: those of forgotten questions, and those of calls that were given up and took effect anyway.

Forgotten messages are deleted, or blanked if Slack does not let us delete them. The queue is in the storage, so it survives a
crash. Deleting twice does no harm.

Slack may handle a call long after its caller was killed, deposed or gave it up. A bot that was frozen between checking its lease
and sending still sends. By then the message was posted again, or changed further. So each such call is stored
(`Messages.late_calls`) and watched. A late post is one of our messages, by its metadata, that the messages table does not know; it
is deleted. A message that a late change may have overwritten is redrawn at the end of the watch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import StorageUnavailable
from bot.show.desired import CARD_EVENT
from bot.show.lanes import DEAD_CONTROLS, Lanes
from bot.show.messages import LateCall, MessageRow, Messages
from bot.show.outbox import Backoff, Delivered, Outbox, Outcome, RetryLater
from bot.slackapi import GONE, Failure, Gateway, Later, Never, Sent, Unknown, try_call
from bot.storage.store import Store, Sweep, until_stored
from bot.storage.tx import Tx
from core.clock import Clock
from core.records import FORGOTTEN

_BACKOFF = Backoff(first=30.0, longest=30.0, spread=0.0)
_log = structlog.get_logger("clarify.delivery")
# Slack allows 50 reads of a kind a minute (tier 3), and other parts need some. Seconds.
_EVERY, _BETWEEN = 5.0, 2.0
_CLOCKS = 300.0  # seconds by which Slack's clock may be behind ours
_INSTEAD = "Posted twice. Please use the other message."


@dataclass(kw_only=True, eq=False)
class Erasing:
    """Erases the messages whose row in `erasures` is `wanted`.

    `client` has no retry handlers. `redraw(target, key)` updates a stored message.
    """

    store: Store
    client: AsyncWebClient
    clock: Clock
    rng: random.Random
    redraw: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._wanted = asyncio.Event()
        self._outbox = Outbox("erasing", self._erase, _BACKOFF, clock=self.clock, rng=self.rng)

    def refresh(self) -> None:
        """Checks the table again."""
        self._wanted.set()

    async def run(self) -> None:
        """Erases until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run(), name="erasing: outbox")
            while True:
                self._wanted.clear()
                await until_stored(self._queue_wanted, self.clock, _log, "erasing delayed")
                await self._wanted.wait()

    async def _queue_wanted(self) -> None:
        await self.store.run(
            # Posts that were under way when they were forgotten.
            """insert into erasures (channel, ts) select channel, ts from messages
               where failed = 'forgotten' and ts is not null and channel is not null
               on conflict (channel, ts) do nothing"""
        )
        for row in await self.store.read(
            """select key, channel from messages where kind = 'page' and shown is null and final = 0
               and failed is null and ts is not null and channel is not null"""
        ):
            self.redraw(row["channel"], row["key"])
        for row in await self.store.read("select channel, ts from erasures where state = 'wanted'"):
            self._outbox.put((row["channel"], row["ts"]))

    async def _erase(self, place: tuple[str, str]) -> Outcome:
        channel, ts = place
        outcome = await try_call(self.client.chat_delete(channel=channel, ts=ts))
        if not isinstance(outcome, Failure) or (isinstance(outcome, Never) and outcome.code in GONE):
            await self._settled(channel, ts, "erased")
            return Delivered()
        if isinstance(outcome, Never) and outcome.what != "app":
            words = [{"type": "section", "text": {"type": "plain_text", "text": FORGOTTEN}}]
            change = self.client.chat_update(channel=channel, ts=ts, text=FORGOTTEN, blocks=words)
            blanked = await try_call(change)
            if not isinstance(blanked, Later | Unknown):
                state = "failed" if isinstance(blanked, Never) else "blanked"
                await self._settled(channel, ts, state, outcome.code)
                return Delivered()
        after = outcome.after if isinstance(outcome, Later) else None
        reason = outcome.code if isinstance(outcome, Never) else outcome.reason
        return RetryLater(reason, after=after, party_wide=True)

    async def _settled(self, channel: str, ts: str, state: str, note: str | None = None) -> None:
        await self.store.run(
            "update erasures set state = :state, note = :note where channel = :channel and ts = :ts",
            state=state,
            note=note,
            channel=channel,
            ts=ts,
        )
        _log.info("forgotten message erased or given up", channel=channel, state=state, reason=note)


SWEEP = Sweep(
    "erasures",
    """select channel || ' ' || ts as name from erasures where channel || ' ' || ts > :after and state <> 'wanted'
       order by name limit :most""",
    ("delete from erasures where channel || ' ' || ts in :names",),
    timeless=True,
)


def queue(tx: Tx, places: Iterable[tuple[str, str]]) -> None:
    """Queues messages, as (channel, ts), for erasing; retries those that failed before."""
    tx.many(
        """insert into erasures (channel, ts) values (:channel, :ts)
           on conflict (channel, ts) do update set state = 'wanted', note = null where erasures.state = 'failed'""",
        [{"channel": channel, "ts": ts} for channel, ts in places],
    )


def by_state(tx: Tx) -> dict[str, list[tuple[str, str]]]:
    """Returns the messages, as (channel, ts), by the state of their erasure."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in tx.rows("select channel, ts, state from erasures order by channel, ts"):
        found.setdefault(row["state"], []).append((row["channel"], row["ts"]))
    return found


@dataclass(kw_only=True, eq=False)
class DuplicateCleanup:
    """Finds and removes duplicates. Runs on the leader only."""

    messages: Messages
    gateway: Gateway
    lanes: Lanes
    clock: Clock
    _settled: set[tuple[str, str]] = field(
        default_factory=set, init=False
    )  # removed duplicates, as (channel, ts)

    async def watch_again(self) -> None:
        """Watches the calls of the former leader, which may still take effect.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        await self.messages.watch_again(self._now())

    async def run(self) -> None:
        """Watches, starting with the former leader's calls, until cancelled."""
        await until_stored(self.watch_again, self.clock, _log, "watching for duplicate messages later")
        while True:
            await self.messages.late.wait()
            await self.clock.sleep(_EVERY)
            self.messages.late.clear()
            try:
                await self._check_all()
            except StorageUnavailable as error:
                _log.warning("looking for duplicate messages later", reason=str(error))
                self.messages.late.set()

    def _now(self) -> float:
        return self.clock.now().timestamp()

    async def _check_all(self) -> None:
        """Checks every place once. Sets `late` again while there is something to watch."""
        for row in await self.messages.draw_late(self._now()):
            self.lanes.put(row.channel or row.target, row.key, post=False, priority=(DEAD_CONTROLS, 0.0))
        calls = await self.messages.late_calls()
        if not calls:
            self._settled.clear()
            return
        self.messages.late.set()
        for place, some in groupby(calls, lambda each: (each.channel, each.thread_ts)):
            if place[0]:
                await self.clock.sleep(await self._check(place, list(some)) or _BETWEEN)

    async def _check(self, place: tuple[str, str], calls: list[LateCall]) -> float | None:
        """Removes duplicates from a place. Returns how long Slack wants us to wait."""
        channel, thread_ts = place
        began, keys = self._now(), {each.key for each in calls}
        since = min(each.begun_at for each in calls) - _CLOCKS
        found = await self.gateway.ours(channel, thread_ts or None, since)
        if isinstance(found, dict):
            settled = [await self._settle(keys, channel, ts, each) for ts, each in found.items()]
            if not all(settled):
                return None
        else:
            _log.warning("cannot look for duplicate messages", channel=channel, outcome=repr(found))
            if not isinstance(found, Never):
                return found.after if isinstance(found, Later) else None
        await self.messages.watched(channel, thread_ts, began)
        return None

    async def _settle(self, keys: set[str], channel: str, ts: str, metadata: Mapping[str, Any]) -> bool:
        """Removes a message of ours if it is a duplicate of one of `keys`. Returns False if that must be retried."""
        if (channel, ts) in self._settled:
            return True
        rows = await self._rows(metadata)
        if not any(row.key in keys for row in rows) or any(row.ts == ts for row in rows):
            return True
        unknown = [row for row in rows if row.ts is None and row.failed is None]
        if any(row.intent_at is not None for row in unknown):
            return False  # it may be the one being posted now
        if any(row.key in keys for row in unknown):
            return True  # there is only one; once it is posted, the place is watched again
        outcome = await self.gateway.remove(channel, ts, _INSTEAD)
        _log.warning("removed a duplicate message", key=rows[0].key, channel=channel, removed=outcome.word)
        if not isinstance(outcome, Sent | Never):
            return False
        self._settled.add((channel, ts))
        return True

    async def _rows(self, metadata: Mapping[str, Any]) -> list[MessageRow]:
        """Returns the stored messages that have such metadata."""
        payload = metadata["event_payload"]
        if metadata.get("event_type") == CARD_EVENT:
            return await self.messages.cards_of([str(payload.get("clarification"))])
        row = await self.messages.get(str(payload.get("key")))
        return [row] if row is not None else []
