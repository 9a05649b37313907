"""Replies that were made while we did not listen: found in the history, handled like those that are heard live. So
are replies to open pages, and what was written beside them in direct messages.

The way that costs least calls: few open threads are asked for one by one; many are first looked for in the channel's
history, whose roots show `latest_reply`. A thread's root can be older than the watermark, so what the history does
not show is asked for as well. Source: docs.slack.dev, conversations.history and conversations.replies.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError, SlackRefusedError, SlackUnreachableError
from bot.ports import PageThreads, SlackMemory
from bot.slack.calls import Call, ask_patiently
from bot.slack.hearing import missed
from bot.slack.intake import Intake
from core.clock import Clock

_log = logging.getLogger("clarify.slack.backfill")
FEW = 50
MARGIN = 300.0
_PAGE = 200
_AGAIN_AFTER = (5.0, 15.0, 60.0)


@dataclass(frozen=True, slots=True, order=True)
class _Root:
    """The first message of a thread that is looked through."""

    channel: str
    ts: str


class Backfill:
    def __init__(
        self,
        *,
        web: AsyncWebClient,
        memory: SlackMemory,
        pages: PageThreads,
        intake: Intake,
        clock: Clock,
    ) -> None:
        self._web = web
        self._memory = memory
        self._pages = pages
        self._intake = intake
        self._clock = clock

    async def run(self) -> int:
        """Take in what was missed in all open threads and pages, in order; returns how many replies were new.

        A channel of which Slack says no is logged and left for the next time; where Slack is in trouble it is asked
        again for some minutes, after the others.

        Raises:
            StorageUnavailable: what was found could not be kept.
        """
        threads = await self._roots()
        channels = list(threads)
        found = 0
        for delay in (*_AGAIN_AFTER, None):
            left = []
            for channel in channels:
                try:
                    found += await self._channel(channel, threads[channel])
                except SlackError as error:
                    _log.warning("what was missed in %s is not known: %s", channel, error)
                    left += [channel] if isinstance(error, SlackUnreachableError) else []
            channels = left
            if not left or delay is None:
                break
            await self._clock.sleep(delay)
        await self._intake.idle()
        return found

    async def _roots(self) -> dict[str, list[_Root]]:
        """The threads in which somebody may have answered, by channel."""
        roots = {_Root(each.channel, each.ts) for each in await self._memory.open_threads()}
        roots |= {_Root(each.channel, each.ts) for each in await self._pages.open_pages()}
        return {channel: list(of) for channel, of in groupby(sorted(roots), key=lambda each: each.channel)}

    async def _channel(self, channel: str, threads: list[_Root]) -> int:
        mark = await self._memory.watermark(channel) or "0"
        # Replies may have been on their way when the mark was set; taken ones are known by their ts.
        since = max(0.0, float(mark) - MARGIN)
        messages = await self._beside(channel, threads, since) if channel.startswith("D") else []
        if len(threads) > FEW:
            threads = await self._moved(channel, threads, since)
        messages += [message for thread in threads for message in await self._replies(thread, since)]
        found = [heard for each in messages if (heard := missed(channel, each)) is not None]
        found.sort(key=lambda each: float(each.ts))
        taken = [await self._intake.take(heard) for heard in found]
        # The mark goes by Slack's clock, which is not ours.
        newest = max([mark, *(str(each["ts"]) for each in messages)], key=float)
        await self._memory.set_watermark(channel, newest)
        return sum(taken)

    async def _beside(self, channel: str, pages: list[_Root], since: float) -> list[dict[str, Any]]:
        """What was said in direct messages outside of threads, since the mark and the first page that is open."""
        oldest = max(since, min(float(page.ts) for page in pages))
        call = partial(self._web.conversations_history, channel=channel, oldest=f"{oldest:.6f}", limit=_PAGE)
        return [message async for message in self._pages_of("conversations.history", call)]

    async def _moved(self, channel: str, threads: list[_Root], since: float) -> list[_Root]:
        """The threads with a reply since the mark, or that the history since the oldest root does not show."""
        oldest = min((thread.ts for thread in threads), key=float)
        latest: dict[str, str] = {}
        call = partial(
            self._web.conversations_history, channel=channel, oldest=oldest, inclusive=True, limit=_PAGE
        )
        async for message in self._pages_of("conversations.history", call):
            latest[str(message.get("ts"))] = str(message.get("latest_reply") or "0")
        return [thread for thread in threads if float(latest.get(thread.ts, "inf")) > since]

    async def _replies(self, thread: _Root, since: float) -> list[dict[str, Any]]:
        """What was said in a thread since the mark; nothing where the thread is gone."""
        oldest = f"{since:.6f}"
        call = partial(
            self._web.conversations_replies, channel=thread.channel, ts=thread.ts, oldest=oldest, limit=_PAGE
        )
        try:
            return [
                message
                async for message in self._pages_of("conversations.replies", call)
                if float(message["ts"]) > since
            ]
        except SlackRefusedError as error:
            if error.code != "thread_not_found":
                raise
            return []

    async def _pages_of(self, method: str, call: partial[Any]) -> AsyncIterator[dict[str, Any]]:
        page: Call = call
        while True:
            response = await ask_patiently(method, page, self._clock)
            for message in response.get("messages") or []:
                yield message
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            page = partial(call, cursor=cursor)
