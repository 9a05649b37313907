"""Joins the configured integrations to the bot. What one of them raises is told, and stops nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import structlog

from bot import integrations
from bot.base import Base
from bot.checks import CheckResult, wrong
from bot.feed import Consumer
from bot.mailing import Follower, Host, Mailer
from bot.settings.model import Settings

_log = structlog.get_logger("clarify.integrations")
_FIX = "update or remove it, or take its table out of the file"


def followers_of(base: Base) -> tuple[list[Consumer], dict[str, str]]:
    """Returns the consumers of changes that integrations have, and why some integrations cannot be used, by name."""
    made, broken = list[Consumer](), dict(base.settings.broken_integrations)
    for name, settings in base.settings.integrations.items():
        if (follows := integrations.load(name).follows) is None:
            continue
        host = Host(
            name=name,
            store=base.store,
            ledger=base.ledger,
            clock=base.clock,
            rng=base.rng,
            secret=base.settings.secret,
            on_outcome=partial(base.telemetry.told, name),
        )
        try:
            found = follows(host, settings)
            made.append(Mailer(host, found) if isinstance(found, Follower) else found)
        except Exception as error:  # noqa: BLE001 - others wrote it, and its words may hold a secret
            _log.exception("an integration cannot be started", integration=name)
            broken[name] = f"cannot be started ({type(error).__name__}); see the log"
    return made, broken


async def check_integrations(settings: Settings) -> AsyncIterator[CheckResult]:
    """Runs the integrations' own checks."""
    for name, why in settings.broken_integrations.items():
        yield wrong(name, why, _FIX)
    for name, table in settings.integrations.items():
        if (check := integrations.load(name).check) is None:
            continue
        try:
            async for result in check(table, settings.secret):
                yield result
        except Exception as error:  # noqa: BLE001 - others wrote it
            _log.exception("the check of an integration failed", integration=name)
            yield wrong(name, f"its check failed ({type(error).__name__})", _FIX)
