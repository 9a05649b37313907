"""Removes forgotten messages from Slack: deletes them, or empties them if Slack does not let us delete them.

The work to do is in the storage, so that it survives a crash. Deleting twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import StorageUnavailable
from bot.slackapi import Later, Never, Sent, Unknown, failure
from bot.storage.store import Store, Sweep
from bot.storage.tx import Tx
from core.clock import Clock
from core.records import FORGOTTEN

_log = structlog.get_logger("clarify.retention")
_RETRY = 30.0
_GONE = frozenset({"message_not_found", "thread_not_found", "channel_not_found"})


class Erasing:
    """Runs the erasing. `client` has no retry handlers. `redraw(target, key)` has a stored message updated."""

    def __init__(
        self,
        *,
        store: Store,
        client: AsyncWebClient,
        clock: Clock,
        redraw: Callable[[str, str], None],
    ) -> None:
        self._store = store
        self._client = client
        self._clock = clock
        self._redraw = redraw
        self._wanted = asyncio.Event()

    def look(self) -> None:
        """There may be something to erase."""
        self._wanted.set()

    async def run(self) -> None:
        """Erase what there is, then whatever comes; until cancelled."""
        while True:
            self._wanted.clear()
            await self._erase_all()
            await self._wanted.wait()

    async def _erase_all(self) -> None:
        """Until nothing is left."""
        while True:
            try:
                await self._store.run(
                    # What was being posted while it was forgotten, and arrived.
                    """insert into erasures (channel, ts) select channel, ts from messages
                       where failed = 'forgotten' and ts is not null and channel is not null
                       on conflict (channel, ts) do nothing"""
                )
                await self._draw_again()
                left = await self._store.read("select channel, ts from erasures where state = 'wanted'")
                waits = [await self._erase(row["channel"], row["ts"]) for row in left]
            except StorageUnavailable as error:
                _log.warning("erasing delayed", reason=str(error))
                waits = [_RETRY]
            again = [seconds for seconds in waits if seconds is not None]
            if not again:
                return
            await self._clock.sleep(max(again))

    async def _draw_again(self) -> None:
        rows = await self._store.read(
            """select key, channel from messages where kind = 'page' and shown is null and final = 0
               and failed is null and ts is not null and channel is not null"""
        )
        for row in rows:
            self._redraw(row["channel"], row["key"])

    async def _erase(self, channel: str, ts: str) -> float | None:
        """One message; None: settled, else in how many seconds to try again."""
        outcome = await _tried(self._client.chat_delete(channel=channel, ts=ts), channel, ts)
        if isinstance(outcome, Sent) or (isinstance(outcome, Never) and outcome.code in _GONE):
            await self._settled(channel, ts, "erased")
            return None
        if isinstance(outcome, Never) and outcome.what != "app":
            words = [{"type": "section", "text": {"type": "plain_text", "text": FORGOTTEN}}]
            change = self._client.chat_update(channel=channel, ts=ts, text=FORGOTTEN, blocks=words)
            empty = await _tried(change, channel, ts)
            if isinstance(empty, (Sent, Never)):
                state = "blanked" if isinstance(empty, Sent) else "failed"
                await self._settled(channel, ts, state, outcome.code)
                return None
        return outcome.after or _RETRY if isinstance(outcome, Later) else _RETRY

    async def _settled(self, channel: str, ts: str, state: str, note: str | None = None) -> None:
        await self._store.run(
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
