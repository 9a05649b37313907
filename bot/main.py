# ruff: noqa: PLC0415 - the HTTP server is imported when it is built, so that the rest is there sooner
"""The bot's life: starts every part in order, stops it in order. `bot.assembly` builds them.

Order of the start (promise P10): producers and delivery at once; then, before new clicks are taken, what was missed:
events of producers, replies in threads, timers that ran out. Clicks wait for it no longer than ten seconds; the rest is
caught up with beside them, and no question expires before its thread was read, or minutes have passed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import httpx
import structlog
from pydantic import SecretStr

from bot.assembly import Assembly
from bot.delivery.messages import Messages
from bot.delivery.store import Store
from bot.logs import log_trouble
from bot.oncall.outside import Heartbeat
from bot.scan import scan
from bot.settings.model import Settings
from bot.takeup import take_up_ledgers
from core.clock import Clock, SystemClock, within
from core.errors import ClarifyError, LedgerUnreadable
from core.hub import Hub
from core.index import Summary

if TYPE_CHECKING:
    from fastapi import FastAPI

    from bot.web.health import Check
    from bot.web.server import HttpServer, Limits

_log = structlog.get_logger("clarify")
# A producer that does not answer holds up new clicks no longer than `_CONTACT`, all that was missed no longer than
# `_CATCH_UP`, timers that ran out no longer than `_TIMERS`: with what connecting takes that is ten. Seconds.
_CONTACT, _CATCH_UP, _TIMERS = 3.0, 7.0, 2.0
# Pages wait for Slack no longer than the first of these, other posts for clicks no longer than the second. Seconds.
_PAGES_WAIT, _POSTS_WAIT = 5.0, 60.0
# While Slack is away, missed replies cannot be looked for; timers do not wait for them longer than this.
_SLACK_HEAD_START = 60.0
_HEARTBEAT_TIMEOUT = 10.0


async def run(settings: Settings) -> None:
    """Run until SIGTERM, SIGINT, or SIGHUP where it is not ignored, as under nohup.

    Raises:
        ClarifyBotError: it cannot start, or a part of it died.
    """
    bot = await Bot.build(settings, SystemClock(), random.Random())  # noqa: S311 - jitter, not secrets
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await bot.start()
        # What is there now, modules and ledgers' summaries by the ten thousand, stays for long: a full collection
        # would go through all of it again and again, and hold up the event loop for that time.
        gc.collect()
        gc.freeze()
        await bot.until(stop)
    finally:
        await bot.stop()


class Bot(Assembly):
    """The whole bot. `build`, `start`, `until` something happens, `stop`."""

    @classmethod
    async def build(cls, settings: Settings, clock: Clock, rng: random.Random) -> Bot:
        """Open the storage, read the ledgers, wire the parts. Nothing is sent yet.

        Raises:
            StorageError: the storage is in use or cannot be used.
        """
        store = await Store.open(settings.storage.path)
        # What was shown once is in a ledger: an empty folder in its place is a disk that is not mounted.
        return cls(settings, store, clock, rng, ledgers_expected=await Messages(store).know_clarifications())

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        rng: random.Random,
        *,
        ledgers_expected: bool = False,
    ) -> None:
        super().__init__(settings, store, clock, rng, ledgers_expected=ledgers_expected)
        self._tasks: set[asyncio.Task[None]] = set()
        self._introduced = asyncio.Event()
        self._posting = asyncio.Event()  # what has controls is shown
        self._caught_up = asyncio.Event()
        self._http: HttpServer | None = None

    async def start(self) -> None:
        """Read what was decided, then start every part. Returns when producers and delivery are at work.

        Raises:
            ConfigurationError: the HTTP server's address cannot be had.
        """
        self._http = await self._listen()
        if self.webhooks is not None:
            await self.webhooks.restore()
        found = await asyncio.to_thread(scan, self.ledger, await self.inbox.last_issue())
        for summary in found.summaries:
            self.index.put(summary)
            self.watchman.note(summary)
        await take_up_ledgers(
            store=self.store,
            ledger=self.ledger,
            index=self.index,
            delivery=self.delivery,
            renderer=self.renderer,
            settings=self.settings,
        )
        await self.slack.expect()
        await self.inbox.reserve_above(found.highest_issue)
        await self._trust_earlier(found.summaries)
        self.delivery.hold(pages=True)
        await self.delivery.restore()
        await self.pager.restore()
        await self.sessions.restore()
        await self.home.restore()
        await self.agents.restore(found.summaries)
        for summary in found.summaries:
            self.nudges.note(summary)
        self._spawn(self.delivery.run(), "delivery")
        self._spawn(self.nudges.run(), "nudges")
        self._spawn(self.pager.run(), "paging")
        self._spawn(self.slack_outage.run(), "Slack outage alert")
        self._spawn(self._run_home(), "home")
        self._spawn_heartbeat()
        self._spawn(self.intake.run(), "intake")
        self._spawn(self.watch.run(), "ledger watch")
        self._spawn(self.ledger_trouble.run(self.intake.drained), "trouble with ledgers")
        self._spawn(self.keeping.run(), "keeping")
        self._spawn(self.agents.run(), "agents")
        if self.webhooks is not None:
            self._spawn(self.webhooks.run(), "webhooks")
        self._spawn(self._run_slack(), "slack")
        self._spawn(self._run_monitor(), "monitor")
        await self.producers.start()
        if self._http is not None:
            self._spawn(self._http.run(), "http")
        for trouble in found.troubles:
            _log.error("a ledger cannot be read", reason=str(trouble))
            if isinstance(trouble, LedgerUnreadable):
                await self.notifier.ledger_unreadable(trouble, None)
        for summary in found.summaries:
            if summary.adoptable:
                await self.watch.adopt(summary.id)
        _log.info("started", open=len(found.summaries), producers=len(self.settings.producers))

    async def _trust_earlier(self, summaries: Sequence[Summary]) -> None:
        """Questions and answers on their way that an earlier release wrote carry no seal: once, they count as they stand."""
        trusts_answers = not await self.inbox.marks("answers")
        if not await self.inbox.marks("questions"):
            for issue in sorted({summary.issue for summary in summaries}):
                try:
                    await self.router.trust_questions(issue)
                except ClarifyError as error:
                    _log.warning(
                        "questions of an earlier release are not trusted", issue=issue, reason=str(error)
                    )
            await self.inbox.note_marks("questions")
        for summary in summaries if trusts_answers else ():
            if not summary.is_open:
                try:
                    await self.router.trust(summary.id)
                except ClarifyError as error:
                    _log.warning(
                        "an answer of an earlier release is not trusted", id=summary.id, reason=str(error)
                    )
        await self.inbox.note_marks("answers")

    async def until(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set.

        Raises:
            Exception: of the part that died.
        """
        waits: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(stop.wait()),
            asyncio.ensure_future(self.producers.failed()),
            self.delivery.lanes.failed,
            self.replies.failed,
            self.intake.failed,
            *self._tasks,
        }
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for part in done:
            part.result()

    async def stop(self) -> None:
        """Take nothing more, finish what is in work, close. What is left is found again on the next start."""
        _log.info("stopping")
        await self.slack.stop()
        await self.replies.close()  # of the last clicks, while producers can be reached
        if self._http is not None:
            self._http.begin_stop()
        # They take a closed subscription as a timeout: of what is open, and of replies that they have not got yet.
        waiting = {s.producer for s in self.index if s.producer and (s.is_open or s.reply == "sending")}
        if not await asyncio.to_thread(self.ledger.is_there):
            waiting |= {each.name for each in self.settings.producers}  # nobody knows what is open
        await self.producers.stop(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.page_actions.close()
        await self.agents.close()
        await self.intake.close()
        await self.replies.close()
        await self.delivery.lanes.close()
        if self.webhooks is not None:
            await self.webhooks.close()
        await self.store.close()
        self.ledger.close()
        _log.info("stopped")

    async def _run_slack(self) -> None:
        """Runs until the connection's supervision ends."""
        posting = asyncio.create_task(self._begin_posting(), name="posting")
        try:
            await self._open_slack()
        finally:
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)

    async def _begin_posting(self) -> None:
        """Nothing is posted that cannot be pressed yet, unless clicks are away for long: then a card is better than none.

        A page that Slack cannot take has to find another way soon, so it is tried while Slack is away.
        """
        if not await within(self.clock, _PAGES_WAIT, self._introduced.wait()):
            self.delivery.hold(pages=False)
        await self._introduced.wait()
        if not await within(self.clock, _POSTS_WAIT, self.slack.ready.wait()):
            _log.warning("no connection for clicks yet; posting all the same")
        self.delivery.go_on()
        self._posting.set()

    async def _open_slack(self) -> None:
        """Catch up, then take new clicks; runs until the connection's supervision ends."""
        await self.slack.introduce()
        self._introduced.set()
        if not await within(self.clock, _CATCH_UP, self._catch_up()):
            _log.warning("what was missed is still being read; taking clicks all the same")
            self.slack.look_back()
        self._caught_up.set()
        overdue = asyncio.create_task(self.watchman.catch_up(), name="timers that ran out")
        try:
            # It goes on where a ledger is busy: what was found due is told once.
            if await within(self.clock, _TIMERS, asyncio.wait({overdue})):
                overdue.result()
            await self.slack.run()
        finally:
            overdue.cancel()
            await asyncio.gather(overdue, return_exceptions=True)

    async def _catch_up(self) -> None:
        """What producers and people said while we were away."""
        await self.producers.first_contact(_CONTACT)
        await self.intake.drained()
        # Posts of unknown outcome are looked up first: people may have replied to them.
        await self.messages.in_flight.settled()
        self.slack.look_back()
        await self.slack.caught_up()

    async def _run_monitor(self) -> None:
        """Timers run from the moment that missed replies are in: an answer given in time comes first."""
        try:
            async with asyncio.timeout(_SLACK_HEAD_START):
                await self._caught_up.wait()
        except TimeoutError:
            _log.warning("timers do not wait for Slack any longer")
        await self.watchman.run()

    async def _run_home(self) -> None:
        await self.home.restore_answers()
        await self._posting.wait()
        await self.home.run()

    async def _listen(self) -> HttpServer | None:
        """The HTTP server at its address; None where that is taken and nobody counts on it."""
        from bot.web.server import Limits, listen, raise_descriptor_limit

        limits = Limits.within(raise_descriptor_limit())
        return await listen(self.http_app(limits), self.settings, limits)

    def http_app(self, limits: Limits) -> FastAPI:
        """The app of the HTTP server, with all routes of this bot."""
        from bot.web import clarifications, health, push, slack
        from bot.web.callers import Callers
        from bot.web.server import build_app

        pushing = [each for each in self.settings.producers if each.pushes]
        callers = Callers(
            {each.name: self.settings.producer_token(each) for each in pushing},
            {each.name: each.speaker for each in pushing},
        )
        hub = Hub(router=self.router, ledger=self.ledger, scopes=self.scopes, clock=self.clock, via="http")
        sources = health.Sources(
            telemetry=self.telemetry,
            index=self.index,
            storage=self.vitals,
            producers=self.producers.status,
            slack_connected=lambda: self.slack.connected,
            queues={"delivery": lambda: self.delivery.lanes.length, "replies": lambda: self.replies.length},
            webhooks=self.webhooks.waiting if self.webhooks is not None else None,
        )
        routers = [
            health.health_routes(*self._checks()),
            health.metrics_routes(sources, callers),
            push.push_routes(callers=callers, producers=self.producers, clock=self.clock),
            clarifications.clarification_routes(
                hub=hub, ledger=self.ledger, callers=callers, most_waiting=limits.waiting
            ),
        ]
        if self.slack.request_url is not None:
            routers.insert(0, slack.slack_routes(self.slack.request_url))
        return build_app(routers, callers)

    def _checks(self) -> tuple[list[Check], list[Check]]:
        """What `/readyz` answers 503 for, since without it nobody is asked anything; and what it lists as degraded."""
        from bot.web.health import Check, producer_checks

        needed = [
            Check("slack", lambda: None if self.slack.connected else "not connected to Slack"),
            Check("storage", self._storage_trouble),
        ]
        others = [
            Check("slack app", lambda: self.slack.other_bots),
            Check("slack history", lambda: self.slack.history_trouble),
            Check("answerers", lambda: self.slack.unusable_answerers),
            Check("log", log_trouble),
            Check("events to be recorded", self.ledger_trouble.of_some),
            *producer_checks([each.name for each in self.settings.producers], self.producers.status),
        ]
        return needed, others

    async def _storage_trouble(self) -> str | None:
        """What is wrong with where events are kept, or with where decisions are."""
        return await self.vitals.trouble() or await self.ledger_trouble.of_all()

    def _spawn_heartbeat(self) -> None:
        url = self.settings.heartbeat_url
        if url is not None:
            self._spawn(self._beat(url), "heartbeat")

    async def _beat(self, url: SecretStr) -> None:
        """A sign of life for who watches the watcher, while Slack is within reach."""
        every = self.settings.monitor.heartbeat_every
        async with httpx.AsyncClient(timeout=_HEARTBEAT_TIMEOUT) as http:
            await Heartbeat(url, every, self.clock, http, lambda: not self.slack_outage.is_raised).run()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(work, name=name))
