"""Facts from the domain and from the roster as the Home tab shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from bot.home.facts import AgentLine, DutyLine, Fleet, ReadyLine
from bot.home.gathering import Offload
from bot.home.ports import Duties, SeeFleet
from bot.oncall.roster import OnDuty
from core.agents import AgentNode, ReadyItem, SessionFact, ready_queue, tree
from core.index import Summary

Sessions = Callable[[], Awaitable[Sequence[SessionFact]]]


def fleet_of(sessions: Sessions, offload: Offload = asyncio.to_thread) -> SeeFleet:
    """How the agents stand, worked out elsewhere: it takes long where thousands wait."""

    async def see(known: Sequence[Summary]) -> Fleet:
        fleet: Fleet = await offload(_fleet, known, await sessions())
        return fleet

    return see


def duties_of(who: Callable[[str], Awaitable[OnDuty]], policies: Sequence[str]) -> Duties:
    """Who is on call by each policy, in the order of the configuration."""

    async def see() -> list[DutyLine]:
        found = await asyncio.gather(*(who(policy) for policy in policies))
        return [
            DutyLine(policy, tuple(duty.users), duty.source, duty.until)
            for policy, duty in zip(policies, found, strict=True)
        ]

    return see


def _fleet(known: Sequence[Summary], sessions: Sequence[SessionFact]) -> Fleet:
    known = _by_age(known)
    return Fleet(
        agents=tuple(_flat(tree(known, sessions))),
        ready=tuple(map(_ready, ready_queue(known, sessions))),
    )


def _by_age(known: Sequence[Summary]) -> list[Summary]:
    """In the order that the views will ask for: sorting what is sorted takes no time, and sorting thousands of moments
    would hold up the whole process, since nothing else runs meanwhile. Numbers sort many times faster.
    """
    asked = [each.asked_last.timestamp() for each in known]
    return [known[at] for at in sorted(range(len(known)), key=asked.__getitem__)]


def _flat(roots: Sequence[AgentNode]) -> list[AgentLine]:
    """The tree in lines, each agent followed by those that wait for it."""
    lines = []
    left = [(0, node) for node in reversed(roots)]
    while left:
        depth, node = left.pop()
        lines.append(_agent(node, depth))
        left += [(depth + 1, waiter) for waiter in reversed(node.waiters)]
    return lines


def _agent(node: AgentNode, depth: int) -> AgentLine:
    on = dict.fromkeys(wait.on for wait in node.waits)
    about = tuple(wait.clarification for wait in node.waits) or node.asked
    return AgentLine(
        node.name or node.agent,
        node.status,
        depth,
        tuple(on),
        node.since,
        about,
        node.agent if node.name else "",
    )


def _ready(item: ReadyItem) -> ReadyLine:
    named = item.name or item.agent
    return ReadyLine(named, item.session_id or "", item.blocked_by, item.agent if item.name else "")
