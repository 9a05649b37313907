"""`agents` and `ready`: who is at work, who waits for whom, what can go on; as far as the person could see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

from bot.commands.access import Access
from bot.commands.grammar import Board
from bot.commands.ports import Open
from bot.people import Person
from bot.routing import Audience, audience_of
from bot.views import inert, listing, phrases
from bot.views.listing import Listing
from core.agents import AgentNode, ReadyItem, SessionFact, ready_queue, tree
from core.index import Summary

_NAME, _LISTED, _DEEPEST = 40, 3, 8  # so that a page of lines fits into a message and its text
_INDENT = "\u2003"  # an em space: Slack trims ordinary ones
_NOTHING = {"agents": "No agent is at work.", "ready": "The queue is empty: no session is at work."}


class AgentBoards:
    def __init__(
        self, index: Open, access: Access, sessions: Callable[[], Awaitable[Sequence[SessionFact]]]
    ) -> None:
        self._index = index
        self._access = access
        self._sessions = sessions

    async def show(self, command: Board, person: Person, page: int) -> Listing:
        """A page.

        Raises:
            SlackError: Slack does not tell what the person may see.
            StorageUnavailable: the sessions are not known now.
        """
        summaries, sessions = await self._seen(person)
        # Elsewhere: it takes long where thousands wait.
        lines = await asyncio.to_thread(board_lines, command, summaries, sessions)
        if not lines:
            return listing.said(_NOTHING[command.kind], live=False)
        heading = "Agents" if command.kind == "agents" else "Ready queue"
        return listing.board(heading, lines, page=page, query=command.kind)

    async def _seen(self, person: Person) -> tuple[list[Summary], list[SessionFact]]:
        summaries = [each for each in self._index if each.is_open]
        sessions = await self._sessions()
        asked = {audience_of(each) for each in summaries}
        circle = await self._access.circle(person, asked | {Audience(fact.agent_id) for fact in sessions})
        return (
            [each for each in summaries if circle.may_see(audience_of(each))],
            [fact for fact in sessions if circle.may_see(Audience(fact.agent_id))],
        )


def board_lines(command: Board, summaries: Sequence[Summary], sessions: Sequence[SessionFact]) -> list[str]:
    """One line for each agent or session, in mrkdwn of ours (pure)."""
    if command.kind == "agents":
        return [line for node in tree(summaries, sessions) for line in _of_agent(node, 0)]
    return [_of_session(item) for item in ready_queue(summaries, sessions)]


def _of_agent(node: AgentNode, depth: int) -> Iterator[str]:
    """An agent, and below it those that wait for it."""
    on = list(dict.fromkeys(wait.on for wait in node.waits))
    state = phrases.waiting(node.status, on, lambda names: _several([_clean(each) for each in names]))
    parts = [f"{_INDENT * min(depth, _DEEPEST)}*{_clean(node.name or node.agent)}*: {state}"]
    if node.since is not None:
        parts.append(f"since {inert.date(node.since)}")
    if node.waits:
        parts.append(f"({_several([_clean(wait.clarification) for wait in node.waits])})")
    yield " ".join(parts)
    for waiter in node.waiters:
        yield from _of_agent(waiter, depth + 1)


def _of_session(item: ReadyItem) -> str:
    name = f"*{_clean(item.name or item.agent)}*, issue {item.issue}"
    if not item.blocked_by:
        return f"{name}: ready"
    since = f" since {inert.date(item.since)}" if item.since else ""
    return f"{name}: blocked by {_several([_clean(each) for each in item.blocked_by])}{since}"


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _clean(text: str) -> str:
    return inert.clip_escaped(inert.escape(inert.line(text)), _NAME) or "(blank)"
