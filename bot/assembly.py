"""Builds every part of the bot and joins them. Wiring only: nothing is started here."""

from __future__ import annotations

import random

import structlog

from bot.delivery.delivery import Delivery
from bot.delivery.gateway import Gateway
from bot.delivery.inbox import SqliteInbox
from bot.delivery.memory import SqliteSlackMemory
from bot.delivery.messages import Messages
from bot.delivery.nudges import Nudges
from bot.delivery.pages import Pager
from bot.delivery.replies import ReplyDelivery
from bot.delivery.rollups import Rollups
from bot.delivery.store import Store
from bot.delivery.wishes import Wishes
from bot.intake import Intake
from bot.monitoring import Watchman
from bot.notifier import Notifier
from bot.producers.config import ProducerConfig
from bot.producers.hub import Producers
from bot.render import Renderer
from bot.settings import Settings
from bot.slack.door import SlackDoor
from bot.slack.people import People
from bot.slack.web import web_client
from bot.slack.wiring import Ports
from bot.watching import LedgerWatch
from core.clarification import Clarification
from core.clock import Clock
from core.index import Index, Summary, summarize
from core.ledger import FileLedger
from core.monitor import Monitor
from core.oncall import turn
from core.router import Router

_log = structlog.get_logger("clarify")


class Assembly:
    """All parts of one bot, on one storage and one clock."""

    def __init__(self, settings: Settings, store: Store, clock: Clock, rng: random.Random) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.index = Index()
        self.ledger = FileLedger(settings.ledger.directory)
        self.router = Router(self.ledger, clock, settings.monitor.sla, self._changed)
        self.watchman = Watchman(
            monitor=Monitor(settings.monitor.sla, settings.monitor.deadlock_order),
            router=self.router,
            ledger=self.ledger,
            clock=clock,
            alarm=settings.monitor.alarm,
        )
        self.web = web_client(settings)
        self.people = People(self.web)
        self._build_delivery(rng)
        self._build_producers(rng)
        self.door = SlackDoor(
            Ports(
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
        self.nudges = Nudges(
            records=self.ledger,
            messages=messages,
            rollups=rollups,
            renderer=self.renderer,
            route_for=settings.route_for,
            notify=self.delivery.notify,
            clock=clock,
        )
        self.notifier = Notifier(
            settings=settings, delivery=self.delivery, messages=messages, renderer=self.renderer
        )
        self.watch = LedgerWatch(
            ledger=self.ledger,
            index=self.index,
            router=self.router,
            noted=self._noted,
            notifier=self.notifier,
        )
        self.intake = Intake(
            inbox=SqliteInbox(self.store),
            router=self.router,
            index=self.index,
            notifier=self.notifier,
            replies_settled=self.replies.settled,
            clock=clock,
            passed=self.watchman.trigger,
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

    def _changed(self, record: Clarification) -> None:
        """We wrote a record."""
        summary = summarize(record)
        self.watchman.note(summary)
        self.delivery.note(summary, record)
        self.nudges.note(summary)

    def _noted(self, summary: Summary, _: Clarification) -> None:
        """Another process wrote a record."""
        self.watchman.note(summary)
        self.delivery.note(summary)
        self.nudges.note(summary)

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
