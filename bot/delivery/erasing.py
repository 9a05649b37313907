"""Removes forgotten messages from Slack: deletes them, or empties them if Slack does not let us delete them.

The work to do is in the storage, so that it survives a crash. Deleting twice does no harm.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import Backoff, Delivered, Outbox, Outcome, RetryLater
from bot.slackapi import Later, Never, Sent, Unknown, failure
from bot.storage.store import Store, Sweep, until_stored
from bot.storage.tx import Tx
from core.clock import Clock
from core.records import FORGOTTEN

_log = structlog.get_logger("clarify.retention")
_BACKOFF = Backoff(first=30.0, longest=30.0, spread=0.0)
_GONE = frozenset({"message_not_found", "thread_not_found", "channel_not_found"})


@dataclass(kw_only=True, eq=False)
class Erasing:
    """Erases the messages whose place is `wanted` in the table, which is all that is owed. `client` has no retry
    handlers. `redraw(target, key)` has a stored message updated.
    """

    store: Store
    client: AsyncWebClient
    clock: Clock
    rng: random.Random
    redraw: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self._wanted = asyncio.Event()
        self._outbox = Outbox("erasing", self._erase, _BACKOFF, clock=self.clock, rng=self.rng)

    def look(self) -> None:
        """There may be something to erase."""
        self._wanted.set()

    async def run(self) -> None:
        """Erase what there is, then whatever comes; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._outbox.run(), name="erasing: outbox")
            while True:
                self._wanted.clear()
                await until_stored(self._look, self.clock, _log, "erasing delayed")
                await self._wanted.wait()

    async def _look(self) -> None:
        await self.store.run(
            # What was being posted while it was forgotten, and arrived.
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
        outcome = await _tried(self.client.chat_delete(channel=channel, ts=ts), channel, ts)
        if isinstance(outcome, Sent) or (isinstance(outcome, Never) and outcome.code in _GONE):
            await self._settled(channel, ts, "erased")
            return Delivered()
        if isinstance(outcome, Never) and outcome.what != "app":
            words = [{"type": "section", "text": {"type": "plain_text", "text": FORGOTTEN}}]
            change = self.client.chat_update(channel=channel, ts=ts, text=FORGOTTEN, blocks=words)
            empty = await _tried(change, channel, ts)
            if isinstance(empty, (Sent, Never)):
                state = "blanked" if isinstance(empty, Sent) else "failed"
                await self._settled(channel, ts, state, outcome.code)
                return Delivered()
        after = outcome.after if isinstance(outcome, Later) else None
        reason = outcome.code if isinstance(outcome, Never) else outcome.reason
        return RetryLater(reason, after=after, everybody=True)

    async def _settled(self, channel: str, ts: str, state: str, note: str | None = None) -> None:
        await self.store.run(
            "update erasures set state = :state, note = :note where channel = :channel and ts = :ts",
            state=state,
            note=note,
            channel=channel,
            ts=ts,
        )
        _log.info("forgotten message erased or given up", channel=channel, state=state, reason=note)


async def _tried(call: Awaitable[object], channel: str, ts: str) -> Sent | Later | Unknown | Never:
    try:
        await call
    except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
        return failure(error)
    return Sent(channel, ts)


SWEEP = Sweep(
    "erasures",
    """select channel || ' ' || ts as name from erasures where channel || ' ' || ts > :after and state <> 'wanted'
       order by name limit :most""",
    ("delete from erasures where channel || ' ' || ts in :names",),
    timeless=True,
)


def want(tx: Tx, places: Iterable[tuple[str, str]]) -> None:
    """Have the messages there, as (channel, ts), erased; also those that could not be before."""
    tx.many(
        """insert into erasures (channel, ts) values (:channel, :ts)
           on conflict (channel, ts) do update set state = 'wanted', note = null where erasures.state = 'failed'""",
        [{"channel": channel, "ts": ts} for channel, ts in places],
    )


def by_state(tx: Tx) -> dict[str, list[tuple[str, str]]]:
    """Where messages are to be erased, were, or could not be: as (channel, ts)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for row in tx.rows("select channel, ts, state from erasures order by channel, ts"):
        found.setdefault(row["state"], []).append((row["channel"], row["ts"]))
    return found
