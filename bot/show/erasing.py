"""Removes forgotten messages from Slack: deletes them, or blanks them if Slack does not let us delete them.

The queue is in the storage, so it survives a crash. Deleting twice does no harm.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.show.outbox import Backoff, Delivered, Outbox, Outcome, RetryLater
from bot.slackapi import GONE, Failure, Later, Never, Unknown, try_call
from bot.storage.store import Store, Sweep, until_stored
from bot.storage.tx import Tx
from core.clock import Clock
from core.records import FORGOTTEN

_log = structlog.get_logger("clarify.delivery")
_BACKOFF = Backoff(first=30.0, longest=30.0, spread=0.0)


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
