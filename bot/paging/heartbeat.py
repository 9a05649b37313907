"""A sign of life for whoever watches the watcher: a GET of a configured address while all is well."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import httpx
import structlog
from pydantic import SecretStr

from bot.http import NETWORK, words
from core.clock import Clock

_log = structlog.get_logger("clarify.heartbeat")


class Heartbeat:
    """`healthy()` says whether all is well; while it is not, nothing is sent, so that the other side raises alarm.

    The address is a secret: monitoring services put their key into it.
    """

    def __init__(
        self,
        url: SecretStr,
        every: timedelta,
        clock: Clock,
        http: httpx.AsyncClient,
        healthy: Callable[[], bool],
    ) -> None:
        self._url = url
        self._every = every
        self._clock = clock
        self._http = http
        self._healthy = healthy
        self._trouble: str | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._healthy():
                self._note(await self._beat())
            await self._clock.sleep(self._every.total_seconds())

    async def _beat(self) -> str | None:
        """One sign of life; what went wrong, in words that do not hold the address."""
        try:
            async with self._http.stream("GET", self._url.get_secret_value()) as response:
                return None if response.is_success else f"HTTP {response.status_code}"
        except NETWORK as error:
            return words(error)

    def _note(self, trouble: str | None) -> None:
        """Logged when it changes, not every minute."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            _log.info("the heartbeat arrives again")
        else:
            _log.warning("the heartbeat does not arrive", reason=trouble)
