"""Sees to it that what may have been missed is looked for, until it was found: in the background, one look at a time."""

from __future__ import annotations

import asyncio
import logging

from bot.errors import StorageUnavailable
from bot.slack.backfill import Backfill
from bot.slack.intake import Intake
from core.clock import Clock, backoff

_log = logging.getLogger("clarify.slack.backfill")
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0


class LookBack:
    """`owe` a look whenever something may have been missed; `run` until cancelled."""

    def __init__(self, backfill: Backfill, intake: Intake, clock: Clock) -> None:
        self._backfill = backfill
        self._intake = intake
        self._clock = clock
        self._owed = asyncio.Event()
        self._paid = asyncio.Event()

    def owe(self) -> None:
        """Something may have been missed until now."""
        self._owed.set()
        self._paid.clear()
        self._backfill.owe()

    async def paid(self) -> None:
        """Returns when nothing is owed."""
        await self._paid.wait()

    async def run(self) -> None:
        """Look whenever it is owed. What cannot be kept or handled is tried again, ever later."""
        failures = 0
        while True:
            await self._owed.wait()
            self._owed.clear()
            if await self._look():
                failures = 0
                if not self._owed.is_set():
                    self._paid.set()
                continue
            self._owed.set()
            await self._clock.sleep(backoff(failures, first=_FIRST_WAIT, longest=_LONGEST_WAIT))
            failures += 1

    async def _look(self) -> bool:
        """Whether everything was found and handled."""
        try:
            await self._intake.resume()
            found = await self._backfill.run()
            await self._intake.idle()
        except StorageUnavailable as error:
            _log.warning("what was missed has to wait: %s", error)
            return False
        except Exception:  # noqa: BLE001 - whatever it is, clicks go on, and the look is owed
            _log.exception("what was missed is not known yet")
            return False
        if found:
            _log.info("found what was missed: %d", found)
        return not self._intake.left
