"""What is said of pages: to the person who pressed, and in the session's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from bot import inert
from bot.audience import Audiences
from bot.errors import StorageUnavailable
from bot.paging.model import Incident, notice_key
from bot.paging.ports import Known, Outlet, Threads
from bot.ports import Place
from core.clarification import parse_id
from core.escalation import Happening, Taken

_log = structlog.get_logger("clarify.paging")


class Announcer:
    """Says in the threads of sessions who has their questions, or what they handed over, in hand."""

    def __init__(self, index: Known, threads: Threads, outlet: Outlet, audiences: Audiences) -> None:
        self._index = index
        self._audiences = audiences
        self._threads = threads
        self._outlet = outlet

    async def tell(
        self, incidents: Sequence[Incident], verb: str, words: Callable[[str], str], at: datetime
    ) -> None:
        """Say it once per thread. A word that cannot be stored is left out: the cards say it, too."""
        threads: dict[Place, list[Incident]] = {}
        try:
            for each in incidents:
                if (place := await self._thread(each)) is not None:
                    threads.setdefault(place, []).append(each)
            for place, mine in threads.items():
                key = f"{verb}:{mine[0].id}:{int(at.timestamp() * 1000)}"
                await self._outlet.say(place, key, words(many(mine)))
        except StorageUnavailable as error:
            _log.warning("a word about a page was not said", what=verb, reason=str(error))

    async def _thread(self, incident: Incident) -> Place | None:
        """The session's thread: of a question by its session, of a handoff by where its card stands."""
        if incident.clarification is None:
            card = await self._threads.get(notice_key(incident.key))
            if card is None or card.channel is None or card.ts is None:
                return None
            return Place(card.channel, card.thread_ts or card.ts)
        known = self._index.get(incident.clarification, parse_id(incident.clarification)[0])
        if known is None:
            return None
        thread = await self._threads.thread_of(*self._audiences.thread(known))
        return Place(thread.channel, thread.ts) if thread is not None else None


def many(incidents: Sequence[Incident]) -> str:
    """What incidents are called, plain: few by name, many by their number."""
    names = [each.clarification or f"“{inert.clip(inert.line(each.title), 80)}”" for each in incidents]
    if len(names) > 3:
        return f"{len(names)} things, {', '.join(names[:3])} among them"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "nothing"


def said_taken(user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(user)} took {inert.escape(what)}."


def said_handed(by: str, user: str) -> Callable[[str], str]:
    return lambda what: f"{inert.mention(by)} handed {inert.escape(what)} to {inert.mention(user)}."


def taken_words(history: Sequence[Happening], user: str) -> str:
    """Who has what is closed, for `user` who wanted to change it; empty where nobody took it."""
    last = next((each for each in reversed(history) if isinstance(each, Taken)), None)
    if last is None or not inert.is_user(last.user):
        return ""
    who = "You have" if last.user == user else f"{inert.mention(last.user)} has"
    return f"{who} this already, since {inert.date(last.at)}."
