"""A running bot, as an integration sees it: on a real storage and ledger."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from bot.mailing import Host
from bot.storage.ledger import DatabaseLedger
from core.clock import Clock


def a_host(
    name: str,
    ledger: DatabaseLedger,
    clock: Clock,
    on_outcome: Callable[[str, str], None] = lambda _party, _outcome: None,
    secrets: Mapping[str, str] | None = None,
) -> Host:
    return Host(
        name=name,
        store=ledger.store,
        ledger=ledger,
        clock=clock,
        rng=random.Random(1),  # noqa: S311 - no secret
        secret=(secrets or {}).__getitem__,
        on_outcome=on_outcome,
    )
