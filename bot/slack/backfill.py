"""Replies that were made while we did not listen: found in the history, handled like those that are heard live. So
are replies to open pages, and what was written beside them in direct messages.

Threads with open questions come first, those that end soonest before the others, whatever their channel. The way that
costs least calls: few open threads of a channel are asked for one by one; many are first looked for in the channel's
history, whose roots show `latest_reply`. A thread's root can be older than the watermark, so what the history does
not show is asked for as well. Source: docs.slack.dev, conversations.history and conversations.replies.

Slack may let an app read once a minute only: what was read is handled at once, and nothing is read twice.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackRefusedError, SlackUnreachableError
from bot.ports import SlackMemory
from bot.slack.allowance import HistoryAllowance
from bot.slack.hearing import missed
from bot.slack.intake import Intake
from bot.slack.unread import OpenThreads, Root, Unread
from bot.slackapi import Call, Pulse, SlackBusyError, ask
from core.clock import Clock, backoff

_log = logging.getLogger("clarify.slack.backfill")
FEW = 50
MARGIN = 300.0
_PAGE = 200
_LONGEST_WAIT = 60.0


@dataclass(slots=True)
class _Channel:
    """A channel in which threads are yet to be read.

    mark: up to there everything is known; since: seconds since 1970, of which on messages are wanted. begun: when the
    first of them was read. newest: the latest `ts` seen. order: its roots, with their places among all; prepared: that
    what is needed for all of them was done.
    """

    mark: str
    since: float
    begun: float
    newest: str
    order: dict[Root, int] = field(default_factory=dict)
    prepared: bool = False
    failures: int = 0


class Backfill:
    """`run` until all is read that is owed; `owe` again meanwhile, where more may have been missed."""

    def __init__(
        self,
        *,
        web: AsyncWebClient,
        memory: SlackMemory,
        threads: OpenThreads,
        unread: Unread,
        allowance: HistoryAllowance,
        pulse: Pulse,
        intake: Intake,
        clock: Clock,
    ) -> None:
        self._web = web
        self._memory = memory
        self._threads = threads
        self._unread = unread
        self._allowance = allowance
        self._pulse = pulse
        self._intake = intake
        self._clock = clock
        self._owed = False
        self._channels: dict[str, _Channel] = {}

    def owe(self) -> None:
        """What is being read may have been read too early: all of it is read once more."""
        self._owed = True

    async def run(self) -> int:
        """Take in what was missed in all open threads and pages; returns how many replies were new.

        A channel of which Slack says no is logged and left for the next time; where Slack is in trouble it is asked
        again until it answers, after the others.

        Raises:
            StorageUnavailable: what was found could not be kept; called again, it goes on from there.
        """
        self._owed = True
        found = 0
        while self._owed or self._channels:
            if self._owed:
                await self._begin()
            if self._channels:
                found += await self._next()
        return found

    async def _begin(self) -> None:
        """All threads that are open now are to be read."""
        asked = await self._threads.now()
        marks = {root.channel: await self._memory.watermark(root.channel) or "0" for root in asked}
        self._owed = False
        self._unread.expect(asked)
        now = self._clock.now().timestamp()
        for place, root in enumerate(asked):
            mark = marks[root.channel]
            # Replies may have been on their way when the mark was set; taken ones are known by their ts.
            fresh = _Channel(mark, max(0.0, float(mark) - MARGIN), now, mark)
            channel = self._channels.setdefault(root.channel, fresh)
            channel.order[root] = place
            channel.prepared = False

    async def _next(self) -> int:
        """Read the most urgent thread; returns how many replies were new."""
        channel = min(self._channels.values(), key=lambda each: (each.failures, min(each.order.values())))
        root = min(channel.order, key=channel.order.__getitem__)
        found = 0
        try:
            if not channel.prepared:
                found = await self._prepare(root.channel, channel)
            if root not in channel.order:
                return found
            found += await self._take(root.channel, channel, await self._replies(root, channel.since))
        except SlackRefusedError as error:
            _log.warning("what was missed in %s is not known: %s", root.channel, error)
            del self._channels[root.channel]
            self._unread.read(channel.order)
            return found
        except SlackUnreachableError as error:
            channel.failures += 1
            wait = backoff(channel.failures, first=0.5, longest=_LONGEST_WAIT)
            _log.warning("what was missed in %s is looked for in %.1f s: %s", root.channel, wait, error)
            await self._pulse.rest(wait)
            return found
        channel.failures = 0
        await self._done(root.channel, channel, [root])
        return found

    async def _prepare(self, name: str, channel: _Channel) -> int:
        """What is read once for all of a channel's threads."""
        found = 0
        if name.startswith("D"):
            found = await self._take(name, channel, await self._beside(name, channel))
        if len(channel.order) > FEW:
            moved = await self._moved(name, channel)
            await self._done(name, channel, [root for root in channel.order if root not in moved])
        channel.prepared = True
        return found

    async def _take(self, name: str, channel: _Channel, messages: list[dict[str, Any]]) -> int:
        """Hand on what was said; returns, when it was handled, how much of it was new."""
        found = [heard for each in messages if (heard := missed(name, each)) is not None]
        found.sort(key=lambda each: float(each.ts))
        taken = [await self._intake.take(heard) for heard in found]
        await self._intake.idle(heard.thread for heard in found)
        channel.newest = max([channel.newest, *(str(each["ts"]) for each in messages)], key=float)
        return sum(taken)

    async def _done(self, name: str, channel: _Channel, roots: Iterable[Root]) -> None:
        """These threads were read. With the last one the mark is set: by Slack's clock, which is not ours, and not
        past the moment when the first was read, since minutes may lie between.
        """
        read = list(roots)
        if not channel.order.keys() - set(read):
            mark = max(channel.mark, min(channel.newest, f"{channel.begun:.6f}", key=float), key=float)
            await self._memory.set_watermark(name, mark)
            del self._channels[name]
        for root in read:
            channel.order.pop(root, None)
        self._unread.read(read)

    async def _beside(self, name: str, channel: _Channel) -> list[dict[str, Any]]:
        """What was said in direct messages outside of threads, since the mark and the first page that is open."""
        oldest = max(channel.since, min(float(page.ts) for page in channel.order))
        call = partial(self._web.conversations_history, channel=name, oldest=f"{oldest:.6f}", limit=_PAGE)
        return [message async for message in self._pages_of("conversations.history", call)]

    async def _moved(self, name: str, channel: _Channel) -> list[Root]:
        """The threads with a reply since the mark, or that the history since the oldest root does not show."""
        oldest = min((root.ts for root in channel.order), key=float)
        latest: dict[str, str] = {}
        call = partial(
            self._web.conversations_history, channel=name, oldest=oldest, inclusive=True, limit=_PAGE
        )
        async for message in self._pages_of("conversations.history", call):
            latest[str(message.get("ts"))] = str(message.get("latest_reply") or "0")
        return [root for root in channel.order if float(latest.get(root.ts, "inf")) > channel.since]

    async def _replies(self, thread: Root, since: float) -> list[dict[str, Any]]:
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
            try:
                response = await ask(method, page)
            except SlackBusyError as error:
                # However often: pages that were read already must not be asked for again.
                self._allowance.refused(self._clock.now(), error.after)
                await self._clock.sleep(min(error.after, _LONGEST_WAIT))
                continue
            self._allowance.allowed(self._clock.now())
            for message in response.get("messages") or []:
                yield message
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            page = partial(call, cursor=cursor)
