"""What people write in Slack, live or while the bot was away: stored before it is acknowledged, handled once, in order within a
thread.

`Backfill` finds what was missed in Slack's history: replies in threads with open questions, replies to open pages, and direct
messages beside those. Threads whose questions expire soonest come first, across all channels. To save calls, the few open
threads of a channel are read one by one; of many, the channel's history shows first which have a `latest_reply`. A thread's
root can be older than the watermark, so threads that the history does not show are read as well. Source: docs.slack.dev,
conversations.history and conversations.replies.

A post of unknown outcome may have begun a thread, too. Its thread is read, first and whole, as soon as its place is known.

Slack may let an app read seldom: messages are handled as they are read, and no page is read twice. Meanwhile questions whose
threads are `Unread` do not expire, for minutes at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackRefusedError, SlackUnreachableError, StorageUnavailable
from bot.show.delivery import Delivery
from bot.show.memory import SlackMemory
from bot.show.messages import Messages
from bot.slack.payloads import KINDS, MessageEvent, missed_event
from bot.slack.socket import Background
from bot.slack.threads import Root, Threads, Unread
from bot.slack.typed import TypedMessages, TypedResponse
from bot.slackapi import Availability, Call, Gateway, SlackBusyError, ask
from bot.views import phrases
from core.clock import Clock, backoff
from core.errors import ClarifyError

_log = logging.getLogger("clarify.slack.intake")
_AGAIN_AFTER = (0.2, 1.0, 5.0, 15.0)
_MOST_UNKEPT = 10_000
Thread = tuple[str, str]  # channel and ts of the root; ts is empty outside of threads
_backfill_log = logging.getLogger("clarify.slack.backfill")
FEW = 50
MARGIN = 300.0
# Messages a page; Slack allows 999, and about 50 reads a minute. 10,000 open threads need 20 pages.
_PAGE = 500
_LONGEST_WAIT = 60.0
_FIRST_LOOK, _LAST_LOOK = 1.0, 30.0  # seconds between failed attempts


@dataclass(kw_only=True, eq=False, repr=False)
class Conversation:
    """Stores messages, has `typed` handle them in order, and sends the responses.

    Calls `catch_up` when a message has to be handled later.
    """

    typed: TypedMessages
    memory: SlackMemory
    messages: Messages
    unread: Unread
    delivery: Delivery
    gateway: Gateway
    clock: Clock
    later: Background
    catch_up: Callable[[], None]

    def __post_init__(self) -> None:
        self._waiting: dict[Thread, deque[MessageEvent]] = defaultdict(deque)
        self._busy: dict[Thread, asyncio.Event] = {}  # set when its messages are handled
        self._held: dict[Thread, list[MessageEvent]] = {}  # live messages that wait for missed ones
        self._in_work: set[str] = set()
        self._resumed: set[str] = set()
        self._left: set[str] = set()
        self._unkept: set[str] = set()  # messages that we could not store, whose authors we told

    async def receive(self, message: MessageEvent) -> bool:
        """Store a message and have it handled in the background; returns False for a duplicate.

        Raises:
            StorageUnavailable: not stored; Slack must deliver it again.
        """
        try:
            fresh = await self.memory.take_slack_event(message.key, message.body())
        except StorageUnavailable:
            if message.key not in self._unkept:
                if len(self._unkept) >= _MOST_UNKEPT:
                    self._unkept.clear()
                self._unkept.add(message.key)
                self.later.run(self._tell_not_kept(message), "tell that a reply was not kept")
            raise
        self._unkept.discard(message.key)
        if not fresh:
            return False
        waits = message.thread in self._held or (message.thread_ts and self.unread.is_in_doubt)
        if waits and not message.missed:
            self._hold(message)
        else:
            self._enqueue(message)
        return True

    async def resume(self) -> None:
        """Handle stored messages that are not done, after a restart or a long failure of the storage.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        in_work = set(self._in_work)  # some may be done by the time that the storage answers
        pending = await self.memory.pending_slack_events()
        in_work |= self._in_work
        self._left.clear()
        left = [MessageEvent.of(body) for key, body in pending if _is_ours(key, body) and key not in in_work]
        for message in sorted(left, key=lambda each: each.ts):
            self._resumed.add(message.key)
            self._enqueue(message)

    @property
    def left(self) -> bool:
        """Whether stored messages failed; `resume` retries them."""
        return bool(self._left)

    async def idle(self, threads: Iterable[Thread] | None = None) -> None:
        """Returns when the messages taken so far are handled: those of these threads, or all."""
        for ended in [self._busy.get(each) for each in (self._busy if threads is None else threads)]:
            if ended is not None:
                await ended.wait()

    def _hold(self, message: MessageEvent) -> None:
        """Have a message handled after its thread was read, since its root was in doubt: missed replies come first."""
        self._in_work.add(message.key)
        held = self._held.setdefault(message.thread, [])
        held.append(message)
        if len(held) == 1:
            self.later.run(self._release(message.thread), "replies behind missed ones")

    async def _release(self, thread: Thread) -> None:
        try:
            begun_by = await self.messages.landed_at(*thread)
            if begun_by is not None:
                await self.unread.hear_thread(begun_by.key)
        except StorageUnavailable as error:
            _log.warning("cannot tell whether a thread was read: %s", error)
        for message in sorted(self._held.pop(thread), key=lambda each: float(each.ts)):
            self._in_work.discard(message.key)
            self._enqueue(message)

    def _enqueue(self, message: MessageEvent) -> None:
        if message.key in self._in_work:
            return
        self._in_work.add(message.key)
        self._waiting[message.thread].append(message)
        if message.thread not in self._busy:
            self._busy[message.thread] = asyncio.Event()
            self.later.run(self._work(message.thread), "replies of a thread")

    async def _work(self, thread: Thread) -> None:
        """Handle one thread's messages, one after the other."""
        queue = self._waiting[thread]
        try:
            while queue:
                await self._handle_or_leave(queue.popleft())
        finally:
            self._waiting.pop(thread, None)
            self._busy.pop(thread).set()

    async def _handle_or_leave(self, message: MessageEvent) -> None:
        """Handle a message; if that fails it stays stored, for the storage's return or the next start."""
        try:
            await self._handle(message)
        except StorageUnavailable as error:
            _log.warning("keeping a reply in %s for later: %s (%s)", message.channel, message.ts, error)
            self._left.add(message.key)
            self.catch_up()
        except Exception:  # noqa: BLE001 - the thread's other replies go on
            _log.exception("cannot handle a reply in %s: %s", message.channel, message.ts)
        finally:
            self._in_work.discard(message.key)

    async def _handle(self, message: MessageEvent) -> None:
        response = await self._given_up(message) or await self._respond(message)
        if not response.recorded:
            # Its author is told that nothing was recorded, so a restart must not record it either.
            await self.memory.keep_text(_given_up_key(message), {"text": response.text})
        if response.text is not None:
            await self.gateway.tell(message.user, message.place, response.text, response.blocks)
        if response.aloud is not None:
            await self.delivery.say(message.place, response.key, response.aloud, response.blocks)
        await self.memory.slack_event_done(message.key)

    async def _tell_not_kept(self, message: MessageEvent) -> None:
        """Tell the author that the message is not stored, if it was meant for us and we can know that now."""
        if message.kind in {"edited", "deleted"} or self.typed.is_own(message):
            return
        try:
            if message.kind != "said":
                await self.gateway.tell(message.user, message.place, phrases.NOT_KEPT_HERE)
            elif await self.typed.may_answer(message):
                await self.gateway.tell(message.user, message.place, phrases.NOT_KEPT)
        except (StorageUnavailable, ClarifyError) as error:
            _log.warning("cannot tell whether a writer needs a notice: %s", error)

    async def _given_up(self, message: MessageEvent) -> TypedResponse | None:
        """Returns the refusal that was stored before the process ended, or None."""
        if message.key not in self._resumed:
            return None
        self._resumed.discard(message.key)
        kept = await self.memory.kept_text(_given_up_key(message))
        return TypedResponse(str(kept["text"]), recorded=False) if kept else None

    async def _respond(self, message: MessageEvent) -> TypedResponse:
        """Handle a message; retries for a while if the storage fails, then raises."""
        for delay in (*_AGAIN_AFTER, None):
            try:
                return await self.typed.handle(message)
            except StorageUnavailable as error:
                if delay is None:
                    raise
                _log.warning("reply in %s delayed %.1f s: %s", message.channel, delay, error)
                await self.clock.sleep(delay)
        raise StorageUnavailable


def _given_up_key(message: MessageEvent) -> str:
    return f"given-up:{message.key}"


def _is_ours(key: str, body: dict[str, object]) -> bool:
    """Returns whether it is a message: other parts store events in the same table."""
    return body.get("kind") in KINDS and bool(key)


@dataclass(slots=True)
class _ChannelToRead:
    """A channel with threads to read.

    mark: everything up to this `ts` is known. since: read messages from then on; begun: when reading began; both in
    seconds since 1970. newest: the latest `ts` seen. order: the roots of its threads, with their places among all.
    prepared: `_prepare` has run.
    """

    mark: str
    since: float
    begun: float
    newest: str
    order: dict[Root, int] = field(default_factory=dict)
    prepared: bool = False
    failures: int = 0


class CatchUp:
    """Says whether to read the history, since we may have missed messages. `again`: even what is being read now has to be
    read once more.
    """

    def __init__(self) -> None:
        self.owed = asyncio.Event()
        self.done = asyncio.Event()
        self.again = False

    def schedule(self) -> None:
        """Have the history read up to now."""
        self.owed.set()
        self.done.clear()
        self.again = True


@dataclass(kw_only=True, eq=False, repr=False)
class Backfill:
    """Reads what was missed from Slack's history and has it handled.

    `run` reads in the background whenever `catch_up` is owed; before `expect`, another bot leads, and it has that one read.
    `run_located` notices where posts in doubt are.
    """

    web: AsyncWebClient
    memory: SlackMemory
    messages: Messages
    threads: Threads
    unread: Unread
    availability: Availability
    conversation: Conversation
    catch_up: CatchUp
    clock: Clock

    def __post_init__(self) -> None:
        self._in_doubt: set[str] = set()  # the keys of posts that may have begun threads
        self._located: set[Root] = set()  # the threads of those that did
        self._channels: dict[str, _ChannelToRead] = {}
        self._reads = False

    async def expect(self) -> None:
        """Mark all open threads as unread: people may have answered in them while the bot was away. From now on, this bot reads.

        Raises:
            StorageUnavailable: the open threads are not known.
        """
        self.unread.expect(await self.threads.open())
        in_doubt = await self.threads.in_doubt()
        self.unread.doubt(in_doubt)
        self._in_doubt.update(in_doubt)
        self._reads = True

    async def run_located(self) -> None:
        """Have the thread of each post in doubt read, as soon as its place is known. Returns when all places are."""
        while self._in_doubt:
            for key in await self.messages.in_flight.ended(self._in_doubt):
                try:
                    row = await self.messages.get(key)
                except StorageUnavailable as error:
                    _backfill_log.warning("looking for missed messages later: %s", error)
                    await self.clock.sleep(_FIRST_LOOK)
                    break
                self._in_doubt.discard(key)
                if row is None or row.channel is None or row.ts is None:
                    self.unread.read([key])
                    continue
                root = Root(row.channel, row.thread_ts or row.ts)
                self.unread.locate(key, root)
                self._located.add(root)
                self.catch_up.owed.set()

    async def run(self) -> None:
        """Read whenever a catch-up is scheduled; retries failures with a backoff."""
        failures = 0
        while True:
            await self.catch_up.owed.wait()
            self.catch_up.owed.clear()
            if await self._found_all():
                failures = 0
                if not self.catch_up.owed.is_set():
                    self.catch_up.done.set()
                continue
            self.catch_up.owed.set()
            await self.clock.sleep(backoff(failures, first=_FIRST_LOOK, longest=_LAST_LOOK))
            failures += 1

    async def _found_all(self) -> bool:
        """Read once; returns whether everything was found and handled."""
        try:
            await self.conversation.resume()
            found = await self._look_or_tell()
            await self.conversation.idle()
        except StorageUnavailable as error:
            _backfill_log.warning("looking for missed messages later: %s", error)
            return False
        except Exception:  # noqa: BLE001 - clicks go on, and the reading is repeated
            _backfill_log.exception("cannot read missed messages yet")
            return False
        if found:
            _backfill_log.info("found missed messages: %d", found)
        return not self.conversation.left

    async def _look_or_tell(self) -> int:
        """Read the history, or tell the bot that leads to."""
        if self._reads:
            return await self.look()
        await self.memory.tell_gap()
        return 0

    async def look(self) -> int:
        """Read all open threads and pages until nothing is left; returns how many replies were new.

        Skips a channel that Slack refuses, with a line in the log. Where Slack does not answer, retries until it does,
        after the other channels.

        Raises:
            StorageUnavailable: replies could not be stored; the next call continues from there.
        """
        found = 0
        while self.catch_up.again or self._located or self._channels:
            if self.catch_up.again:
                await self._begin()
            if self._located:
                await self._begin_located()
            if self._channels:
                found += await self._next()
        return found

    async def _begin(self) -> None:
        """Queue all threads that are open now."""
        asked = await self.threads.open()
        channels = {root.channel for root in asked}
        marks = {each: await self.memory.watermark(each) or "0" for each in channels}
        self.catch_up.again = False
        self.unread.expect(asked)
        now = self.clock.now().timestamp()
        for place, root in enumerate(asked):
            mark = marks[root.channel]
            # With a margin: replies may have been on their way when the mark was set. Duplicates are known by their ts.
            self._add(root, place, _ChannelToRead(mark, max(0.0, float(mark) - MARGIN), now, mark))

    async def _begin_located(self) -> None:
        """Queue, from their beginning and before others, the threads of posts in doubt whose places are known by now."""
        for root in list(self._located):
            mark = await self.memory.watermark(root.channel) or "0"
            self._located.discard(root)
            # `begun` is the mark, so the mark stays: the channel's other threads have not been read.
            self._add(root, -1, _ChannelToRead(mark, float(root.ts), float(mark), mark))

    def _add(self, root: Root, place: int, fresh: _ChannelToRead) -> None:
        """Queue a thread; `fresh` is its channel, unless that is queued already."""
        channel = self._channels.setdefault(root.channel, fresh)
        channel.since = min(channel.since, fresh.since)
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
            _backfill_log.warning("cannot read missed messages in %s: %s", root.channel, error)
            del self._channels[root.channel]
            self.unread.read(channel.order)
            return found
        except SlackUnreachableError as error:
            channel.failures += 1
            wait = backoff(channel.failures, first=0.5, longest=_LONGEST_WAIT)
            _backfill_log.warning(
                "looking for missed messages in %s in %.1f s: %s", root.channel, wait, error
            )
            await self.availability.rest(wait)
            return found
        channel.failures = 0
        await self._done(root.channel, channel, [root])
        return found

    async def _prepare(self, name: str, channel: _ChannelToRead) -> int:
        """Read, once a channel, its direct messages and which of many threads have news."""
        found = 0
        if name.startswith("D"):
            found = await self._take(name, channel, await self._beside(name, channel))
        if len(channel.order) > FEW:
            moved = await self._moved(name, channel)
            await self._done(name, channel, [root for root in channel.order if root not in moved])
        channel.prepared = True
        return found

    async def _take(self, name: str, channel: _ChannelToRead, messages: list[dict[str, Any]]) -> int:
        """Have messages handled; returns how many were new."""
        found = [message for each in messages if (message := missed_event(name, each)) is not None]
        found.sort(key=lambda each: float(each.ts))
        taken = [await self.conversation.receive(message) for message in found]
        await self.conversation.idle(message.thread for message in found)
        channel.newest = max([channel.newest, *(str(each["ts"]) for each in messages)], key=float)
        return sum(taken)

    async def _done(self, name: str, channel: _ChannelToRead, roots: Iterable[Root]) -> None:
        """Note that these threads were read. After a channel's last thread, moves its mark: to the newest message by
        Slack's clock, but not past the moment when the first thread was read, which may be minutes ago.
        """
        read = list(roots)
        if not channel.order.keys() - set(read):
            mark = max(channel.mark, min(channel.newest, f"{channel.begun:.6f}", key=float), key=float)
            await self.memory.set_watermark(name, mark)
            del self._channels[name]
        for root in read:
            channel.order.pop(root, None)
        self.unread.read(read)

    async def _beside(self, name: str, channel: _ChannelToRead) -> list[dict[str, Any]]:
        """Read the direct messages outside of threads, since the mark or the first open page, whichever is later."""
        oldest = max(channel.since, min(float(page.ts) for page in channel.order))
        call = partial(self.web.conversations_history, channel=name, oldest=f"{oldest:.6f}", limit=_PAGE)
        return [message async for message in self._pages_of("conversations.history", call)]

    async def _moved(self, name: str, channel: _ChannelToRead) -> list[Root]:
        """Returns the threads with a reply since the mark, and those that the history does not show."""
        oldest = min((root.ts for root in channel.order), key=float)
        latest: dict[str, str] = {}
        call = partial(
            self.web.conversations_history, channel=name, oldest=oldest, inclusive=True, limit=_PAGE
        )
        async for message in self._pages_of("conversations.history", call):
            latest[str(message.get("ts"))] = str(message.get("latest_reply") or "0")
        return [root for root in channel.order if float(latest.get(root.ts, "inf")) > channel.since]

    async def _replies(self, thread: Root, since: float) -> list[dict[str, Any]]:
        """Read a thread since the mark; returns nothing if the thread is gone."""
        oldest = f"{since:.6f}"
        call = partial(
            self.web.conversations_replies, channel=thread.channel, ts=thread.ts, oldest=oldest, limit=_PAGE
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
                # Retries without end: starting over would read the earlier pages again.
                await self.clock.sleep(min(error.after, _LONGEST_WAIT))
                continue
            for message in response.get("messages") or []:
                yield message
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return
            page = partial(call, cursor=cursor)
