"""Brings one endpoint its events: one at a time, each clarification's in order, until they are taken or too old."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from math import inf

import httpx
import structlog

from bot.delivery.outbox import Outbox
from bot.errors import StorageUnavailable
from bot.http import ANSWER_TIMEOUT, NETWORK, bounded_body, open_client, words
from bot.webhooks.model import Endpoint, Queued
from bot.webhooks.outcomes import PATIENCE, Outcome, delay, judged
from bot.webhooks.signing import headers
from core.clock import Clock

_log = structlog.get_logger("clarify.webhooks")
_RETRY = 1.0  # seconds, of the storage
_SHORTEST = 0.001
Told = Callable[[str], None]


class Courier:
    """`run` until cancelled; `wake` when something was queued.

    `told` gets each outcome: sent, later, never. A failure holds up everything for this endpoint, as it is most
    often down as a whole, and what failed for longer, so that one message that it never takes costs the others little.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        outbox: Outbox,
        clock: Clock,
        rng: random.Random,
        told: Told,
        timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self._endpoint = endpoint
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._told = told
        self._timeout = timeout
        self._news = asyncio.Event()
        self._failures = 0
        self._not_before = -inf
        self._gone = False
        self.resting = False

    def wake(self) -> None:
        """Something was queued."""
        self.resting = False
        self._news.set()

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        async with open_client(None) as http:
            while True:
                self._news.clear()
                try:
                    wait = await self._step(http)
                except StorageUnavailable as error:
                    _log.warning("webhooks have to wait", endpoint=self._endpoint.label, reason=str(error))
                    wait = _RETRY
                if wait > 0:
                    await self._rest(wait)

    async def _step(self, http: httpx.AsyncClient) -> float:
        """Do what is due; seconds until there is more to do."""
        queued = await self._outbox.next(self._endpoint)
        if queued is None:
            return inf
        now = self._clock.now()
        latest = inf if self._gone else (now - PATIENCE).timestamp()
        fails = self._gone or self._failures > 0
        if queued.queued_at < latest and (fails or queued.failures):
            await self._give_up(latest, untried=fails)
            return 0
        wait = max(queued.due, self._not_before) - now.timestamp()
        if wait > 0:
            return wait
        await self._settle(queued, await self._sent(http, queued))
        return 0

    async def _give_up(self, queued_before: float, *, untried: bool) -> None:
        """`untried`: also what was not tried yet. What grew old while no bot ran is tried first."""
        for _ in range(dropped := await self._outbox.drop(self._endpoint, queued_before, untried=untried)):
            self._told("never")
        if dropped:
            _log.error("events were given up", endpoint=self._endpoint.label, events=dropped)

    async def _sent(self, http: httpx.AsyncClient, queued: Queued) -> Outcome:
        """One try. What the answer says is read as far as the connection can be used again, and not looked at."""
        now = self._clock.now()
        signed = headers(self._endpoint.key, queued.id, int(now.timestamp()), queued.body)
        try:
            async with asyncio.timeout(self._timeout):
                request = http.build_request(
                    "POST",
                    self._endpoint.url,
                    content=queued.body,
                    headers={"Content-Type": "application/json", **signed},
                )
                response = await http.send(request, stream=True)
                try:
                    outcome = judged(response, now)
                    await _drained(response)
                    return outcome
                finally:
                    await response.aclose()
        except (TimeoutError, *NETWORK) as error:
            return Outcome("failed", words(error))

    async def _settle(self, queued: Queued, outcome: Outcome) -> None:
        if outcome.kind == "taken":
            self._failures, self._not_before = 0, -inf
            await self._outbox.sent(queued)
            self._told("sent")
            return
        if outcome.kind == "gone":
            self._gone = True
            _log.error(
                "an endpoint wants no more events, until the next start", endpoint=self._endpoint.label
            )
            return
        await self._fail(queued, outcome)

    async def _fail(self, queued: Queued, outcome: Outcome) -> None:
        self._failures += 1
        now = self._clock.now().timestamp()
        self._not_before = now + delay(self._failures, self._rng, outcome.seconds)
        due = max(self._not_before, now + delay(queued.failures + 1, self._rng))
        self._told("later")
        _log.warning(
            "an event has to wait",
            endpoint=self._endpoint.label,
            id=queued.clarification,
            type=queued.type,
            reason=outcome.why,
            seconds=round(due - now, 1),
        )
        await self._outbox.failed(queued, due)

    async def _rest(self, seconds: float) -> None:
        """Until something is queued, or `seconds` have passed (`inf`: only the former)."""
        waits: set[asyncio.Future[object]] = {asyncio.ensure_future(self._news.wait())}
        if seconds < inf:
            waits.add(asyncio.ensure_future(self._clock.sleep(max(seconds, _SHORTEST))))
        self.resting = not self._news.is_set()
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.resting = False
            for each in waits:
                each.cancel()


async def _drained(response: httpx.Response) -> None:
    """A body that breaks off, after the status said all that counts, changes nothing."""
    try:
        await bounded_body(response)
    except NETWORK as error:
        _log.debug("an answer broke off", reason=words(error))
