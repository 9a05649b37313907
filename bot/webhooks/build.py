"""The webhooks of a configuration."""

from __future__ import annotations

import random
from collections.abc import Callable

from bot.delivery.store import Store
from bot.settings import Settings
from bot.webhooks.model import Endpoint
from bot.webhooks.webhooks import Ledgers, Webhooks
from core.clock import Clock


def webhooks_of(
    settings: Settings,
    *,
    records: Ledgers,
    store: Store,
    clock: Clock,
    rng: random.Random,
    told: Callable[[str, str], None],
) -> Webhooks | None:
    """None where nobody is told."""
    secrets = settings.secrets.by_variable
    endpoints = [
        Endpoint.of(each.url, secrets[each.secret_env].get_secret_value(), each.events)
        for each in settings.webhooks
    ]
    if not endpoints:
        return None
    return Webhooks(endpoints=endpoints, records=records, store=store, clock=clock, rng=rng, told=told)
