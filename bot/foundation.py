"""What all parts of the bot stand on: the ledgers and their only writer, the storage, Slack's Web API, the figures."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from datetime import datetime
from functools import partial

from bot.audience import Audiences
from bot.delivery.messages import Messages
from bot.delivery.rollups import Rollups
from bot.delivery.store import Store
from bot.delivery.vitals import Vitals
from bot.monitoring import Watchman
from bot.people import People
from bot.permalinks import Permalinks
from bot.render import Renderer
from bot.sessions import Sessions
from bot.settings.model import Settings
from bot.slack.backfill import Unread
from bot.slackapi import Pulse, permalink, web_client
from bot.telemetry import Telemetry
from bot.webhooks import Webhooks, endpoints_of
from core.clarification import Clarification
from core.clock import Clock
from core.index import Index
from core.ledger import FileLedger
from core.monitor import Monitor
from core.router import Router
from core.workflow import Scopes


class Foundation(ABC):
    """Parts that need none of the others."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        rng: random.Random,
        *,
        ledgers_expected: bool = False,
    ) -> None:
        self.settings = settings
        self.store = store
        self.clock = clock
        self.telemetry = Telemetry(clock)
        self.vitals = Vitals(store, clock, seconds=time.monotonic)
        self.index = Index()
        self.ledger = FileLedger(
            settings.ledger.directory,
            mode=settings.ledger.mode,
            expected=ledgers_expected,
            shell_consents=settings.shell.consent,
        )
        self.router = Router(
            self.ledger,
            clock,
            settings.monitor.sla,
            self._changed,
            may_be_answered=lambda clarification: self._held(clarification) is not None,
        )
        self.watchman = Watchman(
            monitor=Monitor(settings.monitor.sla, settings.monitor.deadlock_order),
            router=self.router,
            ledger=self.ledger,
            clock=clock,
            held=self._held,
            alarm=settings.monitor.alarm,
        )
        self.unread = Unread(clock, released=self.watchman.release)
        self.pulse = Pulse(clock, back=self._slack_is_back)
        self.web = web_client(settings, self.pulse)
        self.people = People(self.web)
        self.renderer = Renderer(store.installation)
        self.messages = Messages(store)
        self.permalinks = Permalinks(self.messages, partial(permalink, self.web))
        self.sessions = Sessions(store, self.index, clock)
        self.audiences = Audiences(settings)
        self.scopes = Scopes(settings.ledger.workflows)
        self.rollups = Rollups(self.index, self.audiences)
        self.webhooks = (
            Webhooks(
                endpoints_of(settings),
                ledger=self.ledger,
                store=store,
                clock=clock,
                rng=rng,
                on_outcome=partial(self.telemetry.delivered, "webhook"),
            )
            if settings.webhooks
            else None
        )

    @abstractmethod
    def _changed(self, record: Clarification) -> None:
        """We wrote a record."""

    @abstractmethod
    def _held(self, clarification: str) -> datetime | None:
        """How long the end of a question waits at the latest, since it may have been answered unheard; None: it does
        not wait.
        """

    @abstractmethod
    def _slack_is_back(self) -> None:
        """Slack answers again."""
