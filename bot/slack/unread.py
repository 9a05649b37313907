"""Which open questions may have been answered in a thread that was not read since nobody listened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bot.audience import Audiences
from bot.oncall.pages import Pages
from bot.ports import RollupThreads, SlackMemory
from core.clock import Clock
from core.index import Index, Summary

PATIENCE = timedelta(minutes=5)
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Root:
    """The first message of a thread that is to be read."""

    channel: str
    ts: str


Asked = Mapping[Root, frozenset[str]]


class OpenThreads:
    """The threads in which somebody may have answered: of sessions, of open pages and of roll-up cards."""

    def __init__(
        self,
        *,
        memory: SlackMemory,
        pages: Pages,
        rollups: RollupThreads,
        index: Index,
        audiences: Audiences,
    ) -> None:
        self._memory = memory
        self._pages = pages
        self._rollups = rollups
        self._index = index
        self._audiences = audiences

    async def now(self) -> Asked:
        """Each with the open questions that it is about; those whose time runs out first come first, none last.

        Raises:
            StorageUnavailable: they are not known now.
        """
        waiting: dict[tuple[str, str], set[str]] = {}
        for summary in self._open():
            waiting.setdefault(self._audiences.thread(summary), set()).add(summary.id)
        asked: dict[Root, set[str]] = {}
        for thread in await self._memory.open_threads():
            about = waiting.get((thread.producer, thread.session_id), set())
            asked.setdefault(Root(thread.channel, thread.ts), set()).update(about)
        ends = {summary.id: summary.expires_at or _NEVER for summary in self._open()}
        for page in await self._pages.open_pages():
            about = {page.clarification} & ends.keys()
            asked.setdefault(Root(page.channel, page.ts), set()).update(about)
        for rollup in await self._rollups.open_rollups():
            asked.setdefault(Root(rollup.channel, rollup.ts), set()).update(rollup.holds)

        def urgency(root: Root) -> tuple[bool, datetime, Root]:
            about = asked[root]
            return not about, min((ends[each] for each in about if each in ends), default=_NEVER), root

        return {root: frozenset(asked[root]) for root in sorted(asked, key=urgency)}

    def _open(self) -> Iterator[Summary]:
        return (each for each in self._index if each.is_open)


class Unread:
    """`expect` what is to be read, then say what was `read`; `until` tells how long a question's end waits for that.

    released: called when questions need not wait any more.
    """

    def __init__(self, clock: Clock, released: Callable[[], None], patience: timedelta = PATIENCE) -> None:
        self._clock = clock
        self._released = released
        self._patience = patience
        self._threads: dict[str, set[Root]] = {}
        self._until: dict[str, datetime] = {}

    def expect(self, asked: Asked) -> None:
        """These threads are to be read. The patience with a question that waits already is not renewed."""
        until = self._clock.now() + self._patience
        for root, clarifications in asked.items():
            for each in clarifications:
                self._threads.setdefault(each, set()).add(root)
                self._until.setdefault(each, until)

    def read(self, roots: Iterable[Root]) -> None:
        """What was said in these threads is known and handled; or nobody will ever tell."""
        gone = set(roots)
        for threads in self._threads.values():
            threads.difference_update(gone)
        known = [each for each, threads in self._threads.items() if not threads]
        for each in known:
            del self._threads[each], self._until[each]
        if known:
            self._released()

    def until(self, clarification: str) -> datetime | None:
        """When its end need not wait any longer; None: it need not wait."""
        until = self._until.get(clarification)
        return until if until is not None and until > self._clock.now() else None
