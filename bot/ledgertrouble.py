"""While ledgers cannot be written: people are told what was asked meanwhile, and why nobody can answer it yet.

Once an outage, after seconds of it: a message in the fallback channel, with what was asked in its thread, and a page
to whoever is on call for the agents. When all of it could be recorded, that is said too, and the page is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.messages import Fresh, Messages, Row
from bot.delivery.pages import NewIncident
from bot.errors import StorageUnavailable
from bot.oncall.incidents import Incidents
from bot.producers.inbox import Item
from bot.settings.model import Settings
from bot.storage.store import Store
from bot.views.notices import agent_of
from bot.views.render import Message, Renderer
from core.aaep import Event
from core.clock import Clock
from core.ledger import FileLedger

_log = structlog.get_logger("clarify.ledger")
_TOLD_AFTER = 15.0  # seconds
_EVERY = 1.0
_OUTAGE = "ledger outage"


@dataclass(slots=True)
class _Waiting:
    """An event that cannot be recorded. `seconds`: how long it has waited, as far as was counted."""

    item: Item
    reason: str
    seconds: float = 0.0
    is_told: bool = False


class LedgerTrouble:
    """`waits` and `recorded` say how it goes with single events; `run` looks at the folder, counts, and tells."""

    def __init__(
        self,
        *,
        settings: Settings,
        ledger: FileLedger,
        store: Store,
        delivery: Delivery,
        messages: Messages,
        incidents: Incidents,
        renderer: Renderer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._store = store
        self._delivery = delivery
        self._messages = messages
        self._incidents = incidents
        self._renderer = renderer
        self._clock = clock
        self._waiting: dict[int, _Waiting] = {}
        self._folder: str | None = None  # what is wrong with all of them
        self._folder_seconds = 0.0
        self._paged: set[str] = set()
        self._outage: int | None = None
        self._outage_is_read = False

    def waits(self, items: Collection[Item], reason: str) -> None:
        """These could not be recorded just now."""
        for item in items:
            self._waiting.setdefault(item.id, _Waiting(item, reason)).reason = reason

    def recorded(self, items: Collection[Item]) -> None:
        """These wait no longer."""
        for item in items:
            self._waiting.pop(item.id, None)

    async def of_all(self) -> str | None:
        """Why no ledger can be written now, None if they can."""
        return await asyncio.to_thread(self._ledger.trouble, thorough=True)

    def of_some(self) -> str | None:
        """Why some ledger could not be written for so long that it counts; None: there is none."""
        late = [each for each in self._waiting.values() if each.seconds >= _TOLD_AFTER]
        if not late:
            return None
        count = "1 event waits" if len(late) == 1 else f"{len(late)} events wait"
        return f"{count} to be recorded: {late[0].reason}"

    async def run(self, drained: Callable[[], Awaitable[None]]) -> None:
        """Look, count and tell, until cancelled.

        `drained` returns when what an earlier process left in the inbox is worked off: only then its trouble is over.
        """
        backlog = asyncio.ensure_future(drained())
        try:
            await self._run(backlog)
        finally:
            backlog.cancel()

    async def _run(self, backlog: asyncio.Future[None]) -> None:
        while True:
            await self._look()
            try:
                await self._tell(is_drained=backlog.done())
            except StorageUnavailable as error:
                _log.warning("trouble with the ledgers cannot be told yet", reason=str(error))
            counted = list(self._waiting.values())
            await self._clock.sleep(_EVERY)
            for each in counted:
                each.seconds += _EVERY
            self._folder_seconds += _EVERY

    async def _look(self) -> None:
        before, self._folder = self._folder, await asyncio.to_thread(self._ledger.trouble)
        if before is None:
            self._folder_seconds = 0.0
        if self._folder not in {None, before}:
            _log.error("no ledger can be written", reason=self._folder)
        if before is not None and self._folder is None:
            _log.info("the ledgers can be written again")

    async def _tell(self, *, is_drained: bool) -> None:
        late = [
            each
            for each in self._waiting.values()
            if each.item.event.critical and each.seconds >= _TOLD_AFTER
        ]
        if late or (self._folder is not None and self._folder_seconds >= _TOLD_AFTER):
            await self._begin(self._folder or late[0].reason, late)
        elif is_drained and not self._waiting and self._folder is None:
            await self._end()

    async def _begin(self, reason: str, late: Sequence[_Waiting]) -> None:
        outage = await self._known()
        if outage is None:
            outage = int(self._clock.now().timestamp())
            await self._keep(outage)
            _log.error("people are told that ledgers cannot be written", reason=reason, waiting=len(late))
        await self._say(outage, "began", self._renderer.ledgers_refuse(reason))
        for each in late:
            await self._page(outage, each.item.event, each.reason)
        if not any(each.item.event.critical for each in self._waiting.values()):  # else their page says more
            await self._page(outage, None, reason)
        head = await self._messages.get(_notice_key(outage, "began"))
        if head is None or (head.ts is None and head.failed is None):
            return  # the thread is there soon, and everything in it
        for each in late:
            if not each.is_told:
                notice = self._renderer.unrecorded_notice(each.item.event, each.reason)
                await self._say(outage, str(each.item.id), notice, head)
                each.is_told = True

    async def _page(self, outage: int, event: Event | None, reason: str) -> None:
        """Whoever is on call for the agent; once for all agents that they are on call for, and once before anything was
        asked.
        """
        agent = event.agent_id if event is not None else ""
        policy = self._settings.route_for(agent).on_call or ""
        key = f"{_pages_of(outage)}{policy if event is not None else '-'}"
        if key in self._paged:
            return
        title, words = "Questions cannot be recorded", ""
        if event is not None:
            title = f"{agent_of(event)} sent something that cannot be recorded"
            words = event.question.text if event.question is not None else event.summary() or event.type
        await self._incidents.raise_(NewIncident(key, reason, title, words, agent or None))
        self._paged.add(key)

    async def _end(self) -> None:
        outage = await self._known()
        if outage is None:
            return
        head = await self._messages.get(_notice_key(outage, "began"))
        await self._say(outage, "over", self._renderer.ledgers_again(), head)
        await self._incidents.close_all(_pages_of(outage))
        await self._keep(None)
        self._paged.clear()
        _log.info("people are told that ledgers can be written again")

    async def _say(self, outage: int, name: str, message: Message, head: Row | None = None) -> None:
        target = self._settings.slack.fallback_channel or self._settings.route_for("").channel
        body: dict[str, Any] = {"text": message.text, "blocks": message.blocks, "more": message.more}
        if head is not None and head.ts is not None:
            target = head.channel or target
            body["thread_ts"] = head.ts
        await self._delivery.notify(
            Fresh(
                key=_notice_key(outage, name),
                kind="notice",
                target=target,
                body=body | {"needed": True},
                wanted="notice",
            )
        )

    async def _known(self) -> int | None:
        """The outage that people were told of and that was not told to be over, also by an earlier process."""
        if not self._outage_is_read:
            row = await self._store.read_one("select value from counters where name = :name", name=_OUTAGE)
            self._outage = int(row["value"]) if row is not None else None
            self._outage_is_read = True
        return self._outage

    async def _keep(self, outage: int | None) -> None:
        if outage is None:
            await self._store.run("delete from counters where name = :name", name=_OUTAGE)
        else:
            await self._store.run(
                "insert into counters (name, value) values (:name, :value)", name=_OUTAGE, value=outage
            )
        self._outage = outage


def _notice_key(outage: int, name: str) -> str:
    return f"notice:ledgers:{outage}:{name}"


def _pages_of(outage: int) -> str:
    """How the keys of its pages begin."""
    return f"ledger:outage:{outage}:"
