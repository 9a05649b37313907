"""A running bot, as an integration sees it: on a real storage and ledger."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import cast

from bot.ask.questions import Questions
from bot.intake.entries import Entries
from bot.intake.notices import Teller
from bot.mailing import Host
from bot.storage.ledger import DatabaseLedger
from core.clock import Clock
from core.router import Router


def a_host(
    name: str,
    ledger: DatabaseLedger,
    clock: Clock,
    on_outcome: Callable[[str, str], None] = lambda _party, _outcome: None,
    secrets: Mapping[str, str] | None = None,
) -> Host:
    router = Router(
        ledger,
        clock,
        timedelta(hours=1),
        lambda _: None,
        may_be_answered=lambda _: False,
        shown_whole=lambda _: True,
    )
    return Host(
        name=name,
        store=ledger.store,
        ledger=ledger,
        clock=clock,
        rng=random.Random(1),  # noqa: S311 - no secret
        secret=(secrets or {}).__getitem__,
        on_outcome=on_outcome,
        entries=Entries(router=router, ledger=ledger, clock=clock),
        teller=cast("Teller", None),  # these tell no people
        questions=cast("Questions", None),  # and ask none
    )
