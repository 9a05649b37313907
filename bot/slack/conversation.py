"""Stores messages from Slack before they are acknowledged, and handles each once, in order within a thread."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bot.errors import StorageUnavailable
from bot.show.delivery import Delivery
from bot.show.memory import SlackMemory
from bot.show.messages import Messages
from bot.slack.payloads import KINDS, MessageEvent
from bot.slack.socket import Background
from bot.slack.typed import TypedMessages, TypedResponse
from bot.slack.unread import Unread
from bot.slackapi import Gateway
from bot.views import phrases
from core.clock import Clock
from core.errors import ClarifyError

_log = logging.getLogger("clarify.slack.intake")
_AGAIN_AFTER = (0.2, 1.0, 5.0, 15.0)
_MOST_UNKEPT = 10_000
Thread = tuple[str, str]  # channel and ts of the root; ts is empty outside of threads


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

    async def take(self, message: MessageEvent) -> bool:
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
                return await self.typed.take(message)
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
