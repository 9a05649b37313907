"""The parts every package of the bot is built on: settings, storage, ledgers, router, Slack's Web API, people."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from bot.people.directory import People
from bot.routing import Audiences
from bot.settings.model import Settings
from bot.slackapi import Availability, Gateway, SlackClient
from bot.storage.store import Store
from bot.telemetry import Telemetry
from bot.views.render import Renderer, links_by_producer
from core.clarification import Clarification
from core.clock import Clock, ConcurrencyLimit
from core.index import Index
from core.ledger import Ledger
from core.router import Router
from core.workflow import Scopes

# How many clicks, modals and commands are handled at once. With more, for so many seconds, people who wait for Slack's
# acknowledgement come before cards and replies.
_ACTS_AT_ONCE, _CROWD = 64, 3.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Base:
    """The parts that all others need. `acts`: limits the handling of people who wait for an acknowledgement."""

    settings: Settings
    store: Store
    ledger: Ledger
    clock: Clock
    rng: random.Random
    telemetry: Telemetry
    acts: ConcurrencyLimit
    index: Index
    audiences: Audiences
    scopes: Scopes
    router: Router
    availability: Availability
    web: SlackClient
    gateway: Gateway
    people: People
    renderer: Renderer


def build(
    settings: Settings,
    store: Store,
    ledger: Ledger,
    clock: Clock,
    rng: random.Random,
    *,
    changed: Callable[[Clarification], None],
    may_be_answered: Callable[[str], bool],
    shown_whole: Callable[[Clarification], bool],
) -> Base:
    """`changed`, `may_be_answered`, `shown_whole`: see `Router`."""
    telemetry = Telemetry(clock)
    availability = Availability(clock)
    web = SlackClient(settings, availability, telemetry, store.acting)
    return Base(
        settings=settings,
        store=store,
        ledger=ledger,
        clock=clock,
        rng=rng,
        telemetry=telemetry,
        acts=ConcurrencyLimit(clock, _ACTS_AT_ONCE, _CROWD),
        index=Index(),
        audiences=Audiences(settings),
        scopes=Scopes(settings.ledger.workflows),
        router=Router(
            ledger,
            clock,
            settings.monitor.sla,
            changed,
            may_be_answered=may_be_answered,
            shown_whole=shown_whole,
        ),
        availability=availability,
        web=web,
        gateway=Gateway(web, store.installation, telemetry),
        people=People(web),
        renderer=Renderer(store.installation, links_by_producer(settings.producers)),
    )
