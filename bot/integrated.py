"""Joins the integrations that are on to the bot. What one of them raises is told, and stops nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from bot import integrations
from bot.api import Integration
from bot.base import Base
from bot.checks import Check, CheckResult, wrong
from bot.feed import Consumer, Observer
from bot.intake.earlier import TakingIn
from bot.intake.entries import Entries
from bot.intake.telling import Teller
from bot.mailing import Follower, Host, Mailer
from bot.retention.local import LocalFiles
from bot.settings.model import Configuration, Settings

_log = structlog.get_logger("clarify.integrations")
_FIX = "update or remove it, or take its table out of the file"


def _default_on(
    configuration: Configuration, broken: dict[str, str] | None = None
) -> Iterator[tuple[Integration, Any]]:
    for name in integrations.DEFAULT_ON:
        try:
            found: Integration = integrations.load(name)
            settings = None if found.default_on is None else found.default_on(configuration)
        except Exception as error:  # noqa: BLE001 - nothing else may fail with it
            _log.exception("an integration cannot be loaded", integration=name)
            if broken is not None:
                broken[name] = f"cannot be loaded ({type(error).__name__}); see the log"
            continue
        if settings is not None:
            yield found, settings


def _in_use(settings: Settings, broken: dict[str, str] | None = None) -> Iterator[tuple[Integration, Any]]:
    """Yields the integrations that are on, with their settings. Notes in `broken` why others cannot be loaded, by name."""
    yield from _default_on(settings, broken)
    for name, table in settings.integrations.items():
        yield integrations.load(name), table


def local_files(configuration: Configuration) -> list[LocalFiles]:
    """Returns what commands do with the files of integrations that need no table."""
    return [found.files(settings) for found, settings in _default_on(configuration) if found.files]


@dataclass(frozen=True, kw_only=True, eq=False)
class Integrated:
    """What integrations have in a running bot. `broken`: why some cannot be used, by name."""

    settings: Settings
    consumers: list[Consumer]
    observers: list[Observer]
    broken: dict[str, str]

    @classmethod
    def build(cls, base: Base, teller: Teller) -> Integrated:
        made = cls(
            settings=base.settings, consumers=[], observers=[], broken=dict(base.settings.broken_integrations)
        )
        entries = Entries(router=base.router, ledger=base.ledger, clock=base.clock)
        for found, settings in _in_use(base.settings, made.broken):
            host = Host(
                name=found.name,
                store=base.store,
                ledger=base.ledger,
                clock=base.clock,
                rng=base.rng,
                secret=base.settings.secret,
                on_outcome=partial(base.telemetry.told, found.name),
                entries=entries,
                teller=teller,
            )
            try:
                made._add(host, None if found.follows is None else found.follows(host, settings))
            except Exception as error:  # noqa: BLE001 - others wrote it, and its words may hold a secret
                _log.exception("an integration cannot be started", integration=found.name)
                made.broken[found.name] = f"cannot be started ({type(error).__name__}); see the log"
        return made

    def _add(self, host: Host, part: Follower | Consumer | Observer | None) -> None:
        if isinstance(part, Observer):
            self.observers.append(part)
        elif isinstance(part, Follower):
            self.consumers.append(Mailer(host, part))
        elif part is not None:
            self.consumers.append(part)

    @property
    def mailers(self) -> list[Mailer]:
        return [each for each in self.consumers if isinstance(each, Mailer)]

    def checks(self) -> Iterator[Check]:
        """Yields what /readyz asks."""
        for each in self.observers:
            yield Check(each.part, each.trouble)
        yield Check(
            "integrations", lambda: "; ".join(f"{name} {why}" for name, why in self.broken.items()) or None
        )

    async def waiting(self) -> Mapping[tuple[str, str], int]:
        """Returns how many messages wait, by integration and party."""
        return {
            (each.name, party): count
            for each in self.mailers
            for party, count in (await each.waiting()).items()
        }

    async def take_in(self, taking: TakingIn) -> bool:
        """Takes in records from before, if the database is new and empty. Returns whether there were any.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        for found, settings in _in_use(self.settings):
            if found.earlier is None or not await taking.is_wanted():
                continue
            try:
                earlier = await asyncio.to_thread(found.earlier, settings)
            except Exception:  # noqa: BLE001 - others wrote it
                _log.exception("no earlier records are taken in", integration=found.name)
                continue
            if earlier is not None and await taking.fill(earlier):
                return True
        return False


async def check_integrations(settings: Settings) -> AsyncIterator[CheckResult]:
    """Runs the integrations' own checks."""
    broken = dict(settings.broken_integrations)
    in_use = list(_in_use(settings, broken))
    for name, why in broken.items():
        yield wrong(name, why, _FIX)
    for found, table in in_use:
        if found.check is None:
            continue
        try:
            async for result in found.check(table, settings.secret):
                yield result
        except Exception as error:  # noqa: BLE001 - others wrote it
            _log.exception("the check of an integration failed", integration=found.name)
            yield wrong(found.name, f"its check failed ({type(error).__name__})", _FIX)
