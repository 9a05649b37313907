"""What is said of pages: to the person who pressed, and in the session's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from bot import inert
from bot.audience import Audiences
from bot.errors import StorageUnavailable
from bot.paging.model import Incident
from bot.paging.ports import Known, Outlet, Threads
from bot.ports import Place
from core.clarification import parse_id

_log = structlog.get_logger("clarify.paging")


class Announcer:
    """Says in the threads of sessions who has their questions in hand."""

    def __init__(self, index: Known, threads: Threads, outlet: Outlet, audiences: Audiences) -> None:
        self._index = index
        self._audiences = audiences
        self._threads = threads
        self._outlet = outlet

    async def tell(
        self, incidents: Sequence[Incident], verb: str, words: Callable[[str], str], at: datetime
    ) -> None:
        """Say it once per session. A word that cannot be stored is left out: the cards say it, too."""
        sessions: dict[tuple[str, str], list[Incident]] = {}
        for each in incidents:
            clarification = each.clarification or ""
            known = self._index.get(clarification, parse_id(clarification)[0])
            if known is not None:
                sessions.setdefault(self._audiences.thread(known), []).append(each)
        for (producer, session), mine in sessions.items():
            key = f"{verb}:{mine[0].id}:{int(at.timestamp() * 1000)}"
            try:
                thread = await self._threads.thread_of(producer, session)
                if thread is not None:
                    await self._outlet.say(Place(thread.channel, thread.ts), key, words(many(mine)))
            except StorageUnavailable as error:
                _log.warning("a word about a page was not said", key=key, reason=str(error))


def many(incidents: Sequence[Incident]) -> str:
    """What incidents are called, plain: few by name, many by their number."""
    names = [each.clarification or inert.clip(inert.line(each.title), 80) for each in incidents]
    if len(names) > 3:
        return f"{len(names)} things, {', '.join(names[:3])} among them"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "nothing"


def said_taken(user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(user)} took {inert.escape(what)}."


def said_handed(by: str, user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(by)} handed {inert.escape(what)} to {inert.mention(user)}."
