"""Finds the questions that a thread in Slack is about (a session's thread, a page's, or a roll-up card's), and keeps those that may
have answers in threads that the bot has not read yet.

Every method of `Threads` raises StorageUnavailable, LedgerUnreadable or LockTimeout if it cannot tell now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

from bot.errors import RepliesUnread, SlackUnreachableError
from bot.oncall.pages import Pages
from bot.people.access import in_time
from bot.routing import Audiences, Thread
from bot.show.desired import RollupThreads
from bot.show.messages import Messages
from bot.slack.payloads import MessageEvent
from core.clarification import Clarification
from core.clock import Clock
from core.errors import NotFound
from core.index import Index, Session
from core.ledger import Ledger
from core.summary import urgency

MOST_ASKED_ABOUT = 100
PATIENCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, order=True)
class Root:
    """The first message of a thread."""

    channel: str
    ts: str


Asked = Mapping[Root, frozenset[str]]


@dataclass(kw_only=True, eq=False, repr=False)
class Threads:
    """Finds the questions of a thread, and the threads of all open questions.

    `paged` returns the users that got the open pages of a clarification.
    """

    messages: Messages
    pages: Pages
    rollups: RollupThreads
    index: Index
    ledger: Ledger
    audiences: Audiences
    paged: Callable[[str], frozenset[str]]

    async def open(self) -> Asked:
        """Returns the threads that people may have answered in, each with its open questions. The thread whose question
        expires first comes first; threads without open questions come last.
        """
        ends = {each.id: urgency(each) for each in self.index if each.is_open}
        waiting = self._waiting()
        asked: dict[Root, set[str]] = {}

        def add(channel: str, ts: str, about: Collection[str]) -> None:
            asked.setdefault(Root(channel, ts), set()).update(about)

        for thread in await self.messages.open_threads():
            add(thread.channel, thread.ts, waiting.get((thread.producer, thread.session_id), ()))
        for page in await self.pages.open_pages():
            add(page.channel, page.ts, {page.clarification} & ends.keys())
        for rollup in await self.rollups.open_rollups():
            add(rollup.channel, rollup.ts, rollup.holds)

        def order(root: Root) -> tuple[bool, tuple[float, float], Root]:
            about = asked[root]
            return not about, min((ends[each] for each in about if each in ends), default=(inf, inf)), root

        return {root: frozenset(asked[root]) for root in sorted(asked, key=order)}

    async def in_doubt(self) -> Mapping[str, frozenset[str]]:
        """Returns, by their keys, the posts of unknown outcome that may have begun threads, each with the open questions of
        such a thread.
        """
        if not (rows := await self.messages.begun_threads()):
            return {}
        waiting = self._waiting()
        found: dict[str, frozenset[str]] = {}
        for row in rows:
            about: Collection[str]
            if row.kind == "page":
                about = await self.pages.clarifications_of(row)
            elif row.kind == "rollup":
                about = await self.rollups.held_by(row)
            else:
                about = waiting.get((row.producer or "", row.session_id or ""), ())
            found[row.key] = frozenset(about)
        return found

    def _waiting(self) -> Mapping[Session, Collection[str]]:
        """Returns the open questions by the session in whose thread they are shown."""
        found: dict[Session, set[str]] = {}
        for each in self.index:
            if each.is_open:
                found.setdefault(self.audiences.thread(each), set()).add(each.id)
        return found

    async def asked_in(self, channel: str, ts: str) -> list[Clarification]:
        """Returns the questions of a session's thread, or of the page or roll-up card that began the thread.

        Raises:
            NotFound: one of them is gone.
        """
        if (asked := await self.asked_in_session(channel, ts)) is not None:
            return asked
        about = await self.about_page(channel, ts)
        if not about:
            about = (await self.rollups.held_at(channel, ts) or ())[:MOST_ASKED_ABOUT]
        return [await self.ledger.find(each) for each in about]

    async def asked_in_session(self, channel: str, ts: str) -> list[Clarification] | None:
        """Returns the questions of a session's thread; None if it is not one."""
        thread: Thread | None = await self.messages.thread_at(channel, ts)
        if thread is None:
            return None
        # Its events may name issues of their own.
        waits = self.index.of_session(thread.producer, thread.session_id)
        found = []
        for issue in sorted({thread.issue} | {each.issue_number for each in waits}):
            found += (await self.ledger.read(issue)).records
        return [record for record in found if self.audiences.is_asked_in(thread, record)]

    async def about_page(self, channel: str, ts: str) -> tuple[str, ...]:
        """Returns the clarifications of the page that began the thread; empty if it is not a page's."""
        return await self.pages.clarifications_at(channel, ts)

    async def paged_to(self, message: MessageEvent) -> list[str]:
        """Returns the clarifications that the author of a message has open pages for, and that the message can mean."""
        escalated = [each.id for each in self.index if each.status == "escalated"]
        named = [each for each in escalated if message.user in self.paged(each)]
        if not named:
            return []
        # It cannot mean a page that came after it. A live one may mean a page of which Slack has not confirmed the post yet.
        live = not (message.missed or message.edited)
        before = await self.pages.paged_before(message.user, message.ts, in_doubt=live)
        return [each for each in named if each in before]

    async def found(self, clarifications: Iterable[str]) -> list[Clarification]:
        """Returns the records, without those that were archived meanwhile: they take no answers."""
        found = []
        for each in clarifications:
            try:
                found.append(await self.ledger.find(each))
            except NotFound:
                continue
        return found


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
