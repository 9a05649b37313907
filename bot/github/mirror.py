"""Mirrors clarifications to the GitHub issues that they are about: each entry a comment, labels while one is open.

It compares each issue's ledger with what was posted, and does what is missing, one thing at a time; issues take
turns. Nothing waits for it. Killed anywhere, it does the rest on the next start: comments carry a marker by which
they are found again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from math import inf

import httpx
import structlog
from pydantic import SecretStr

from bot.delivery.github_memory import GithubMemory
from bot.delivery.store import Store
from bot.errors import StorageUnavailable
from bot.github.api import GithubApi
from bot.github.outcomes import NotNow
from bot.github.plan import is_mirrored
from bot.github.turns import Turns
from bot.github.visits import SETTLED_AFTER, Ledgers, Visitor
from bot.http import ANSWER_TIMEOUT, open_client
from bot.settings.github import GithubSettings
from core.clock import Clock
from core.errors import LedgersAway, LedgerUnreadable, LockTimeout
from core.index import Summary

_log = structlog.get_logger("clarify.github")
_RETRY = 1.0  # seconds
_APART = 60.0
_SHORTEST = 0.001


class GithubMirror:
    """`restore` once, then `run` until cancelled. `seconds` is a monotonic clock; `clock` waits in its time.

    `timeout`: seconds that GitHub has for an answer.
    """

    def __init__(
        self,
        *,
        settings: GithubSettings,
        token: SecretStr,
        records: Ledgers,
        store: Store,
        clock: Clock,
        rng: random.Random,
        seconds: Callable[[], float] = time.monotonic,
        timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._settings = settings
        self._token = token
        self._records = records
        self._memory = GithubMemory(store, settings.repo)
        self._clock = clock
        self._seconds = seconds
        self._timeout = timeout
        self._turns = Turns(settings.comments_per_second, clock, seconds, rng)
        self._due: dict[int, float] = {}  # issue → not before
        self._failures: dict[int, int] = {}
        self._visiting = False
        self._wake = asyncio.Event()

    @property
    def idle(self) -> bool:
        """Whether GitHub shows what was noted, as far as it takes it."""
        return not (self._due or self._visiting)

    def note(self, summary: Summary) -> None:
        """A clarification as it is now, after each change. Cheap; `run` does the rest."""
        self._add(summary.issue)

    async def restore(self, summaries: Iterable[Summary]) -> None:
        """Have everything looked at again: what is open, what was begun, and what others wrote meanwhile.

        Raises:
            StorageUnavailable: what was begun is not known now.
        """
        await self._memory.since(self._clock.now().timestamp())
        for summary in summaries:
            self._add(summary.issue)
        for issue in await self._memory.unsettled():
            self._add(issue)
        try:
            written = await asyncio.to_thread(lambda: sorted(self._records.issues()))
        except LedgersAway as error:
            _log.warning("what others wrote meanwhile is not looked for", reason=str(error))
            return
        for issue in written:
            self._add(issue)

    async def run(self) -> None:
        """Mirror what is due, until cancelled."""
        since = await self._begun()
        async with open_client(self._token.get_secret_value()) as http:
            visitor = self._visitor(http, since)
            while True:
                self._wake.clear()
                now = self._seconds()
                issue = next((issue for issue, due in self._due.items() if due <= now), None)
                if issue is None:
                    await self._wait(min(self._due.values(), default=inf) - now)
                else:
                    del self._due[issue]
                    await self._visit(visitor, issue)

    def _add(self, issue: int) -> None:
        if is_mirrored(issue):
            self._due.setdefault(issue, -inf)
            self._wake.set()

    def _visitor(self, http: httpx.AsyncClient, since: float) -> Visitor:
        settings = self._settings
        api = GithubApi(
            http,
            base=settings.api_url,
            repo=settings.repo,
            turns=self._turns,
            clock=self._clock,
            timeout=self._timeout,
        )
        return Visitor(
            api=api,
            memory=self._memory,
            records=self._records,
            clock=self._clock,
            mention=settings.mention,
            since=since,
        )

    async def _begun(self) -> float:
        """Since when this repository is mirrored to."""
        while True:
            try:
                return await self._memory.since(self._clock.now().timestamp())
            except StorageUnavailable as error:
                _log.warning("GitHub has to wait", reason=str(error))
                await self._clock.sleep(_RETRY)

    async def _visit(self, visitor: Visitor, issue: int) -> None:
        self._visiting = True
        try:
            done = await visitor.visit(issue)
        except NotNow as trouble:
            self._again(issue, self._patience(issue, trouble), str(trouble))
        except (StorageUnavailable, LockTimeout) as error:
            self._again(issue, _RETRY, str(error))
        except LedgerUnreadable as error:
            _log.error("not mirrored", issue=issue, reason=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other issues go on
            _log.exception("an issue could not be mirrored", issue=issue, error=type(error).__name__)
            self._due[issue] = self._seconds() + _APART
        else:
            self._failures.pop(issue, None)
            if not done:
                self._due.setdefault(issue, -inf)
        finally:
            self._visiting = False

    def _patience(self, issue: int, trouble: NotNow) -> float:
        """Seconds until the issue's next turn. What is in everybody's way holds up every request anyway."""
        failures = self._failures.get(issue, 0)
        self._failures[issue] = failures + 1
        wait = 0.0 if trouble.everybody else trouble.seconds
        if wait is None:
            wait = self._turns.patience(failures)
        return max(wait, SETTLED_AFTER) if trouble.unsure else wait

    def _again(self, issue: int, seconds: float, reason: str) -> None:
        _log.warning("an issue on GitHub has to wait", issue=issue, reason=reason, seconds=round(seconds, 1))
        self._due[issue] = self._seconds() + seconds

    async def _wait(self, seconds: float) -> None:
        """Until something is noted, or `seconds` have passed (`inf`: only the former)."""
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(self._wake.wait())}
        if seconds < inf:
            # Never less than the clock can tell apart: it would come back at the same moment for ever.
            waits.add(asyncio.ensure_future(self._clock.sleep(max(seconds, _SHORTEST))))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
