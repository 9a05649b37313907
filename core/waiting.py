"""Waiting for an answer, whichever process writes it into the ledger."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from watchfiles import awatch

from core.clarification import DONE, Clarification, Closed, Entry, Superseded

_log = logging.getLogger("clarify.ledger")
_STEP, _DEBOUNCE = 20, 200  # ms: how long more of the same is waited for


class Changes:
    """Files of one folder that were written. However many wait, one watches; nobody does while none waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[asyncio.Event, str] = {}
        self._watcher: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[asyncio.Event]:
        """The event that every write of the file `name` sets, from now on.

        Notices can be lost (the system's queue is bounded): whoever waits should look now and then, too.
        """
        woken = asyncio.Event()
        self._waiting[woken] = name
        try:
            if self._watcher is None:
                self._watcher = asyncio.create_task(self._watch(), name=f"who writes in {self._folder.name}")
                await asyncio.sleep(0)  # its first step: from there on the system keeps what happens
            yield woken
        finally:
            del self._waiting[woken]
            if not self._waiting:
                await self._stop()

    async def _watch(self) -> None:
        try:
            async for changes in awatch(
                self._folder, watch_filter=None, recursive=False, step=_STEP, debounce=_DEBOUNCE
            ):
                names = {Path(path).name for _, path in changes}
                for woken, name in self._waiting.items():
                    if name in names:
                        woken.set()
        except (OSError, RuntimeError) as error:  # too many watches on this machine, for one
            _log.warning("the ledgers' folder cannot be watched, so answers are seen later: %s", error)

    async def _stop(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait([watcher])  # not the task itself: its end is not the end of who waits here
            if not watcher.cancelled():
                watcher.result()


def answer_of(record: Clarification, round: int | None = None) -> Entry | None:  # noqa: A002 - the protocol's word
    """The answer to the question of a round (None: the latest); None: there is none."""
    if round is not None and round < record.round:
        answers = [entry for entry in record.thread if entry.type == "answer" and entry.round == round]
        return answers[-1] if answers else None
    if record.is_open or (round is not None and round > record.round):
        return None
    return record.answering_entry or record.answer


def has_answer(record: Clarification, round: int) -> bool:  # noqa: A002 - the protocol's word
    """Whether the question of a round has its answer.

    Raises:
        Closed, Superseded: it has none, and will get none.
    """
    if answer_of(record, round) is not None:
        return True
    if record.status in DONE:
        raise Closed(record)
    if round < record.round:
        raise Superseded(record)
    return False
