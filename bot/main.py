"""Wiring only: builds everything, starts it in order, stops it in order.

Order of the start (promise P10): producers and delivery at once; then, before new clicks are taken, what was missed:
events of producers, replies in threads, timers that ran out.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Coroutine
from typing import Any

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.gateway import Gateway
from bot.delivery.inbox import SqliteInbox
from bot.delivery.memory import SqliteSlackMemory
from bot.delivery.messages import Messages
from bot.delivery.pages import Pager
from bot.delivery.replies import ReplyDelivery
from bot.delivery.rollups import Rollups
from bot.delivery.store import Store
from bot.delivery.wishes import Wishes
from bot.errors import ConfigurationError
from bot.intake import Intake
from bot.notifier import Notifier
from bot.producers.config import ProducerConfig
from bot.producers.hub import Producers
from bot.render import Renderer
from bot.scan import scan
from bot.settings import Settings
from bot.slack.door import SlackDoor
from bot.slack.people import People
from bot.slack.web import web_client
from bot.watching import Alarm, LedgerWatch
from core.clarification import Clarification
from core.clock import Clock, SystemClock
from core.errors import LedgerUnreadable
from core.index import Index, summarize
from core.ledger import FileLedger
from core.oncall import turn
from core.router import Router

_log = structlog.get_logger("clarify")
# A producer that does not answer holds up new clicks no longer than this. Seconds.
_CONTACT, _DRAIN = 3.0, 10.0
# While Slack is away, missed replies cannot be looked for; timers do not wait for them longer than this.
_SLACK_HEAD_START = 60.0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        ClarifyBotError: it cannot start, or a part of it died.
    """
    bot = await Bot.build(settings, SystemClock(), random.Random())  # noqa: S311 - jitter, not secrets
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await bot.start()
        await bot.until(stop)
    finally:
        await bot.stop()


class Bot:
    """The whole bot. `build`, `start`, `until` something happens, `stop`."""

    @classmethod
    async def build(cls, settings: Settings, clock: Clock, rng: random.Random) -> Bot:
        """Open the storage, read the ledgers, wire the parts. Nothing is sent yet.

        Raises:
            StorageError: the storage is in use or cannot be used.
        """
        if settings.slack.mode == "http":
            raise ConfigurationError(
                [f'{settings.file}: slack.mode: "http" is not served by this version yet; expected "socket"']
            )
        return cls(settings, await Store.open(settings.storage.path), clock, rng)

    def __init__(self, settings: Settings, store: Store, clock: Clock, rng: random.Random) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.index = Index()
        self.ledger = FileLedger(settings.ledger.directory)
        self.router = Router(self.ledger, clock, settings.monitor.sla, self._changed)
        self.alarm = Alarm(self.router, self.index, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._caught_up = asyncio.Event()
        self.web = web_client(settings)
        self.people = People(self.web)
        self._build_delivery(rng)
        self._build_producers(rng)
        self.door = SlackDoor(
            settings=settings,
            web=self.web,
            people=self.people,
            router=self.router,
            ledger=self.ledger,
            memory=SqliteSlackMemory(store, self.messages.in_flight),
            renderer=self.renderer,
            index=self.index,
            teller=self.delivery,
            refresh=self.delivery.refresh,
            clock=clock,
            rng=rng,
        )

    def _build_delivery(self, rng: random.Random) -> None:
        settings, clock = self.settings, self.clock
        self.renderer = Renderer()
        messages = self.messages = Messages(self.store)
        rollups = Rollups(self.index)
        self.replies = ReplyDelivery(
            router=self.router,
            ledger=self.ledger,
            store=self.store,
            clock=clock,
            rng=rng,
            on_refused=self._refused,
        )
        self.delivery = Delivery(
            settings=settings,
            index=self.index,
            ledger=self.ledger,
            messages=messages,
            gateway=Gateway(self.web),
            rollups=rollups,
            wishes=Wishes(self.ledger, messages, rollups, self.renderer, settings.route_for),
            pager=Pager(
                messages,
                self.renderer,
                self._on_call,
                settings.slack.fallback_channel,
                self._send,
            ),
            replies=self.replies,
            clock=clock,
            rng=rng,
        )
        self.notifier = Notifier(
            settings=settings, delivery=self.delivery, messages=messages, renderer=self.renderer
        )
        self.watch = LedgerWatch(
            ledger=self.ledger,
            index=self.index,
            router=self.router,
            delivery=self.delivery,
            alarm=self.alarm,
            notifier=self.notifier,
        )
        self.intake = Intake(
            inbox=SqliteInbox(self.store),
            router=self.router,
            index=self.index,
            notifier=self.notifier,
            replies_settled=self.replies.settled,
            clock=clock,
        )

    def _build_producers(self, rng: random.Random) -> None:
        self.producers = Producers(
            [
                ProducerConfig(
                    name=producer.name,
                    url=producer.url,
                    token=secret.get_secret_value()
                    if (secret := self.settings.producer_token(producer))
                    else None,
                    dialect=producer.dialect,
                )
                for producer in self.settings.producers
            ],
            inbox=self.intake,
            clock=self.clock,
            rng=rng,
            tell_trouble=self.notifier.trouble,
            on_connected=self.replies.connected,
        )
        self.intake.use_clocks(self.producers)
        self.replies.use(self.producers)

    async def start(self) -> None:
        """Read what was decided, then start every part. Returns when producers and delivery are at work."""
        found = await asyncio.to_thread(scan, self.ledger)
        for summary in found.summaries:
            self.index.put(summary)
            self.alarm.note(summary)
        await self.intake.reserve_above(found.highest_issue)
        await self.delivery.restore()
        self._spawn(self.delivery.run(), "delivery")
        self._spawn(self.intake.run(), "intake")
        self._spawn(self.watch.run(), "ledger watch")
        self._spawn(self._open_slack(), "slack")
        self._spawn(self._run_alarm(), "alarm")
        await self.producers.start()
        for trouble in found.troubles:
            _log.error("a ledger cannot be read", reason=str(trouble))
            if isinstance(trouble, LedgerUnreadable):
                await self.notifier.ledger_unreadable(trouble, None)
        for summary in found.summaries:
            if summary.adoptable:
                await self.watch.adopt(summary.id)
        _log.info("started", open=len(found.summaries), producers=len(self.settings.producers))

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
        await self.door.close()
        await self.replies.close()  # of the last clicks, while producers can be reached
        # They take a closed subscription as a timeout: of what is open, and of replies that they have not got yet.
        waiting = {s.producer for s in self.index if s.producer and (s.is_open or s.reply == "sending")}
        await self.producers.stop(waiting)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.intake.close()
        await self.replies.close()
        await self.delivery.lanes.close()
        await self.store.close()
        self.ledger.close()
        _log.info("stopped")

    async def _open_slack(self) -> None:
        """Catch up, then take new clicks; runs until the connection's supervision ends."""
        await self.door.introduce()
        await self.producers.first_contact(_CONTACT)
        try:
            async with asyncio.timeout(_DRAIN):
                await self.intake.drained()
        except TimeoutError:
            _log.warning("producers' backlog is still being worked off; taking clicks all the same")
        await self._posts_found()
        await self.door.catch_up()
        self._caught_up.set()
        await self.alarm.catch_up()
        await self.door.open()

    async def _posts_found(self) -> None:
        """Posts of unknown outcome are looked up first: people may have replied to them."""
        try:
            async with asyncio.timeout(_DRAIN):
                await self.messages.in_flight.settled()
        except TimeoutError:
            _log.warning("posts of unknown outcome are still being looked up")

    async def _run_alarm(self) -> None:
        """Timers run from the moment that missed replies are in: an answer given in time comes first."""
        try:
            async with asyncio.timeout(_SLACK_HEAD_START):
                await self._caught_up.wait()
        except TimeoutError:
            _log.warning("timers do not wait for Slack any longer")
        await self.alarm.run()

    def _changed(self, record: Clarification) -> None:
        summary = summarize(record)
        self.alarm.note(summary)
        self.delivery.note(summary, record)

    async def _refused(self, clarification: str) -> None:
        await self.delivery.page_refused(clarification)

    def _send(self, target: str, key: str) -> None:
        self.delivery.send(target, key)

    async def _on_call(self, name: str) -> list[str]:
        """Who is on call by a policy now."""
        policy = self.settings.on_call_named(name)
        if policy.group is not None:
            return sorted(await self.people.group(policy.group))
        if (rotation := policy.rotation) is not None:
            return [turn(rotation.users, rotation.start, rotation.shift, rotation.timezone, self.clock.now())]
        return list(policy.users or ())

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(work, name=name))
