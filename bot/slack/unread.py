"""Tracks which questions may have answers in threads that the bot has not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.errors import RepliesUnread, SlackUnreachableError
from bot.people.access import in_time
from bot.slack.threads import Asked, Root
from core.clock import Clock

PATIENCE = timedelta(minutes=5)


@dataclass(eq=False, repr=False)
class Unread:
    """The questions that must not expire yet, because their threads have not been read.

    `expect` adds threads, `read` removes them; `until` returns how long a question waits. Calls `released` when questions
    need not wait any more.

    A post of unknown outcome may have begun a thread. `doubt` adds it by its key, until `locate` gives its place and its
    thread is read. Clicks on its questions and live replies in its thread wait for that: someone may have answered there
    before.
    """

    clock: Clock
    released: Callable[[], None]

    def __post_init__(self) -> None:
        self._threads: dict[str, set[Root | str]] = {}
        self._until: dict[str, datetime] = {}
        self._doubtful: set[str] = set()
        self._located: dict[Root, str] = {}
        self._changed = asyncio.Event()

    def expect(self, asked: Asked | Mapping[str, frozenset[str]]) -> None:
        """Add threads to read. A question that waits already does not wait longer."""
        until = self.clock.now() + PATIENCE
        for thread, clarifications in asked.items():
            for each in clarifications:
                self._threads.setdefault(each, set()).add(thread)
                self._until.setdefault(each, until)

    def doubt(self, posts: Mapping[str, frozenset[str]]) -> None:
        """Add posts that may have begun threads, each with the questions of such a thread."""
        self.expect(posts)
        self._doubtful.update(posts)

    def locate(self, post: str, root: Root) -> None:
        """Note that a post in doubt is in this thread."""
        self._located[root] = post

    def read(self, threads: Iterable[Root | str]) -> None:
        """Remove threads that were read and handled or cannot be read, and posts (by key) that began none."""
        gone = set(threads)
        gone |= {self._located.pop(each) for each in gone & self._located.keys() if isinstance(each, Root)}
        if gone & self._doubtful:
            self._doubtful -= gone
            self._tell_waiting()
        for unread in self._threads.values():
            unread.difference_update(gone)
        known = [each for each, unread in self._threads.items() if not unread]
        for each in known:
            del self._threads[each], self._until[each]
        if known:
            self.released()

    def until(self, clarification: str) -> datetime | None:
        """Returns until when a question must not expire; None: it may."""
        until = self._until.get(clarification)
        return until if until is not None and until > self.clock.now() else None

    def hold_clicks_no_longer(self) -> None:
        """Let clicks through, even on questions whose posts are still in doubt."""
        self._doubtful.clear()
        self._tell_waiting()

    @property
    def is_in_doubt(self) -> bool:
        """Whether any post is still in doubt."""
        return bool(self._doubtful)

    async def hear(self, clarification: str, deadline: float | None) -> None:
        """Wait until the replies to a question's posts in doubt are read. `deadline`: see `Person`.

        Raises:
            RepliesUnread: that takes longer than a click can wait.
        """
        if not self._is_in_doubt(clarification):
            return
        try:
            await in_time(deadline, self._heard(lambda: not self._is_in_doubt(clarification)))
        except SlackUnreachableError as error:
            raise RepliesUnread from error

    async def hear_thread(self, post: str) -> None:
        """Wait until the thread of a post in doubt is read."""
        await self._heard(lambda: post not in self._doubtful)

    def _is_in_doubt(self, clarification: str) -> bool:
        return not self._doubtful.isdisjoint(self._threads.get(clarification, ()))

    async def _heard(self, is_read: Callable[[], bool]) -> None:
        while not is_read():
            await self._changed.wait()

    def _tell_waiting(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
