"""Keeps the agent-status file: requesters that are blocked, targets that clarify (§6.2), from what is noted."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Literal, Protocol

from core.clarification import Clarification, parse_id
from core.clock import Clock
from core.deadlock import HUMAN, agent_key
from core.errors import ClarifyError, StatusUnavailable
from core.index import Summary
from core.statusfile import BLOCKED, CLARIFYING, AgentState, StatusFile

__all__ = ["AgentState", "StatusFile", "StatusKeeper"]
_log = logging.getLogger("clarify.status")
_UNANSWERED = ("pending", "stale")
# At most so often is it written: whoever else waits for the lock backs off by 200 ms and more. Seconds.
_BETWEEN = 0.25
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
_Source = tuple[
    str, int
]  # a clarification's id, and the round that a responder works on; 0: the clarification itself


class Records(Protocol):
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...


@dataclass(frozen=True, slots=True)
class _Part:
    """What one clarification makes an agent do: wait for `other`, or answer it."""

    agent: str
    status: Literal["clarifying", "blocked-clarification"]
    clarification: str
    issue: int
    other: str
    since: datetime

    @property
    def key(self) -> str:
        return agent_key(self.agent)


class StatusKeeper:
    """What the file should say, from what is noted. Writes only what changed, all of it at once.

    A requester is blocked while it has an open blocking clarification with an agent; its target is clarifying while
    a responder works on it, or while people have it who answer for that role (`roles_of_people`). `records`: where
    to look up, on a start, what the file says of clarifications that nobody noted; without it, that stays.
    """

    def __init__(
        self,
        file: StatusFile,
        roles_of_people: Collection[str],
        clock: Clock,
        records: Records | None = None,
    ) -> None:
        self._file = file
        self._people = frozenset(map(agent_key, roles_of_people)) - {HUMAN}
        self._clock = clock
        self._records = records
        self._parts: dict[_Source, tuple[_Part, ...]] = {}
        self._of: defaultdict[str, dict[_Source, list[_Part]]] = defaultdict(dict)
        self._owed: dict[str, tuple[str, set[str]]] = {}  # by agent: its name, what is over for it
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()

    def note(self, summary: Summary) -> None:
        """Take in a clarification as it is now."""
        parts = []
        if summary.is_open and summary.blocking and _is_agent(summary.to):
            parts.append(_part(summary.from_, BLOCKED, summary, summary.to))
        if summary.status in _UNANSWERED and agent_key(summary.to) in self._people:
            parts.append(_part(summary.to, CLARIFYING, summary, summary.from_))
        self._put((summary.id, 0), tuple(parts))
        if not summary.is_open and _is_agent(summary.to):
            # Whoever wrote that they wait, or answer: another process of ours, or one before us.
            for agent in (summary.from_, summary.to):
                self._owe(agent, summary.id)

    def working(self, summary: Summary, begun: bool) -> None:  # noqa: FBT001 - a callback's signature
        """A responder has begun to work on a clarification's round, or has ended."""
        parts = (_part(summary.to, CLARIFYING, summary, summary.from_),) if begun else ()
        self._put((summary.id, summary.round), parts)

    async def run(self) -> None:
        """Write what changes, until cancelled. What cannot be written is tried again, at first after a second."""
        checked, retry = False, 0.0
        while True:
            if checked:
                await self._wake.wait()
            self._wake.clear()
            try:
                if not checked and self._records is not None:
                    await self._check(self._records)
                checked = True
                await self._write()
                retry = 0.0
            except StatusUnavailable as error:
                if not retry:
                    _log.warning("what agents do is written later: %s", error)
                retry = min(retry * 2, _LONGEST_RETRY) or _FIRST_RETRY
            await self._clock.sleep(retry or _BETWEEN)

    async def settle(self) -> None:
        """Write what is owed, once. For processes that do not `run`, or that end; trouble is logged, no more."""
        try:
            await self._write()
        except StatusUnavailable as error:
            _log.warning("what agents do is not written: %s", error)

    async def _write(self) -> None:
        async with self._turn:
            owed, self._owed = self._owed, {}
            try:
                if owed:
                    await self._file.update(
                        {name: self._state(key, frozenset(over)) for key, (name, over) in owed.items()}
                    )
            except BaseException:
                for name, over in owed.values():
                    self._owe(name, *over)
                raise

    def _state(self, key: str, over: frozenset[str]) -> AgentState:
        """What an agent does by all that is noted: the longest of each counts, and a wait before an answer."""
        parts = sorted(
            chain.from_iterable(self._of.get(key, {}).values()),
            key=lambda part: (part.since, part.clarification),
        )
        waits = next((part for part in parts if part.status == BLOCKED), None)
        answers = next((part for part in parts if part.status == CLARIFYING), None)
        to = answers.other if answers else None
        if waits is not None:
            return AgentState(BLOCKED, waits.issue, waits.clarification, waits.other, to, over)
        if answers is not None:
            return AgentState(CLARIFYING, answers.issue, answers.clarification, None, to, over)
        return AgentState("working", ended=over)

    def _put(self, source: _Source, parts: tuple[_Part, ...]) -> None:
        old = self._parts.get(source, ())
        if old == parts:
            return
        for part in old:
            self._of.get(part.key, {}).pop(source, None)
            if not self._of[part.key]:
                del self._of[part.key]
            self._owe(part.agent, part.clarification)
        for part in parts:
            self._of[part.key].setdefault(source, []).append(part)
            self._owe(part.agent)
        self._parts[source] = parts
        if not parts:
            del self._parts[source]

    def _owe(self, agent: str, *over: str) -> None:
        key = agent_key(agent)
        if _is_agent(agent):
            self._owed.setdefault(key, (agent, set()))[1].update(over)
            self._wake.set()

    async def _check(self, records: Records) -> None:
        """Take back what the file says of clarifications that are over, and that nobody noted."""
        for agent, entry in (await asyncio.to_thread(self._file.read)).items():
            if isinstance(entry, dict) and entry.get("status") in (BLOCKED, CLARIFYING):
                named = entry.get("clarificationId")
                if isinstance(named, str) and await _is_over(records, named, entry["status"]):
                    self._owe(agent, named)


async def _is_over(records: Records, named: str, status: str) -> bool:
    try:
        record = await records.find(named, parse_id(named)[0])
    except ClarifyError:
        return False  # nobody can tell, so it stays; whoever finds a ledger unreadable pages
    return record.status not in _UNANSWERED and (status == CLARIFYING or not record.is_open)


def _part(
    agent: str, status: Literal["clarifying", "blocked-clarification"], summary: Summary, other: str
) -> _Part:
    return _Part(agent, status, summary.id, summary.issue, other, summary.asked_last)


def _is_agent(name: str) -> bool:
    return agent_key(name) not in {"", HUMAN}
