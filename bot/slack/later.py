"""Work that follows an acknowledgement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("clarify.slack")


class Later:
    """Runs work that follows an acknowledgement in the background: logged when it fails, finished at the stop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def run(self, work: Coroutine[Any, Any, object], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def drain(self, seconds: float = 5.0) -> None:
        """Wait for what runs, at most `seconds`; what still runs then is cancelled and named."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            _log.warning("not finished %g s after the stop: %s", seconds, task.get_name())
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)
