"""What the boards are made of: what is open in the ledgers, the sessions a bot heard of, the agent-status file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.delivery import peek
from bot.errors import StorageUnavailable
from bot.shell.boards import STATUS_FILE, Told, read_statuses
from bot.shell.desk import Shell
from bot.shell.shelf import ledgers
from core.agents import SessionFact
from core.index import Summary, summarize

_HEARD_WITHIN, _MOST = timedelta(days=1), 5_000  # as a running bot keeps them


@dataclass(frozen=True, slots=True)
class Fleet:
    """`problems`: in words, the ledgers that could not be read."""

    summaries: Sequence[Summary]
    sessions: Sequence[SessionFact]
    told: Mapping[str, Told]
    problems: list[str]


async def fleet_of(shell: Shell) -> Fleet:
    """Read it all. What is only there with a running bot may be missing, which is told on stderr."""
    summaries: list[Summary] = []
    problems: list[str] = []
    async for each in ledgers(shell.ledger, archived=False):
        problems += each.problems
        summaries += [summarize(record) for record in each.records if record.is_open]
    return Fleet(summaries, await _sessions(shell), await _told(shell), problems)


async def _sessions(shell: Shell) -> list[SessionFact]:
    since = shell.clock.now() - _HEARD_WITHIN
    try:
        return await asyncio.to_thread(peek.sessions, shell.settings.storage.path, since, _MOST)
    except StorageUnavailable as error:
        shell.out.note(f"clarify: the sessions are not known, only what the ledgers say: {error}")
        return []


async def _told(shell: Shell) -> dict[str, Told]:
    try:
        return await asyncio.to_thread(read_statuses, shell.ledger.directory.parent / STATUS_FILE)
    except ValueError as error:
        shell.out.note(f"clarify: the agents' own statuses are not known: {error}")
        return {}
