"""Joins the configured integrations to the bot. What one of them raises is told, and stops nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog

from bot import integrations
from bot.api import Integration, Job, Known, Watcher
from bot.base import Base
from bot.checks import CheckResult, wrong
from bot.commands.grammar import VERBS, SlackCommand
from bot.commands.slackhost import SlackHost
from bot.errors import SlackError, StorageUnavailable
from bot.feed import Consumer
from bot.mailing import Follower, Host, Mailer
from bot.settings.model import Configuration, Settings
from core.clock import Clock
from core.errors import ClarifyError
from core.summary import Seen

_log = structlog.get_logger("clarify.integrations")
# Seconds: the longest is short, since the wall clock may be set meanwhile.
_SHORTEST_SLEEP, _LONGEST_SLEEP, _RETRY = 1.0, 600.0, 60.0
_FIX = "update or remove it, or take its table out of the file"


def followers_of(base: Base) -> tuple[list[Consumer], dict[str, str]]:
    """Returns the consumers of changes that integrations have, and why some integrations cannot be used, by name."""
    made, broken = list[Consumer](), _broken(base.settings)
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


def _broken(settings: Settings) -> dict[str, str]:
    """Returns why integrations cannot be loaded, those that need no table as well, by name."""
    found = dict(settings.broken_integrations)
    for name in integrations.DEFAULT_ON:
        try:
            integrations.load(name)
        except Exception as error:  # noqa: BLE001 - it may be anything, and nothing else may fail with it
            found[name] = f"cannot be loaded ({type(error).__name__}: {error})"
    return found


def _used(configured: Iterable[str]) -> Iterator[Integration]:
    """Yields the integrations that are on, by their tables or without one."""
    for name in dict.fromkeys((*integrations.DEFAULT_ON, *configured)):
        try:
            yield integrations.load(name)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("an integration cannot be loaded", integration=name)


def commands_of(configured: Iterable[str]) -> dict[str, SlackCommand]:
    """Returns the commands that integrations add to `/clarify`, by their words. Those of the bot itself stay its own."""
    added = {command.word: command for each in _used(configured) for command in each.commands}
    return {word: command for word, command in added.items() if word not in VERBS}


Failed = Callable[[str, str, Exception], None]
"""Is told of a defect: the integration's name, what failed, and how."""


def log_failure(name: str, what: str, error: Exception) -> None:
    _log.error("an integration failed", integration=name, what=what, exc_info=error)


@contextmanager
def _guarded(name: str, what: str, failed: Failed) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - others wrote it
        failed(name, what, error)


class Watchers:
    """What integrations have that watches clarifications, as one. What one of them raises stops nothing else."""

    def __init__(
        self, configuration: Configuration, known: Known, clock: Clock, failed: Failed = log_failure
    ) -> None:
        self._guarded = partial(_guarded, what="it watches no more, or missed a change", failed=failed)
        self._made: dict[str, Watcher] = {}
        for each in _used(configuration.integrations if isinstance(configuration, Settings) else ()):
            if (watches := each.watches) is not None:
                with self._guarded(each.name):
                    self._made[each.name] = watches(configuration, known, clock)

    def record_changed(self, record: Seen) -> None:
        for name, each in self._made.items():
            with self._guarded(name):
                each.record_changed(record)

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - as `core.dispatch` calls it
        for name, each in self._made.items():
            with self._guarded(name):
                each.working(record, begun)

    async def run(self) -> None:
        """Runs them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name, each in self._made.items():
                group.create_task(self._run(name, each), name=name)
            await asyncio.Event().wait()

    async def _run(self, name: str, watcher: Watcher) -> None:
        with self._guarded(name):
            await watcher.run()

    async def close(self) -> None:
        for name, each in self._made.items():
            with self._guarded(name):
                await each.close()


def jobs_of(configured: Mapping[str, Any], host: SlackHost, failed: Failed) -> dict[str, Job]:
    """Returns what integrations do at certain times, by their names."""
    made: dict[str, Job] = {}
    for each in _used(configured):
        if each.job is not None and each.name in configured:
            with _guarded(each.name, "its job cannot be started", failed):
                made[each.name] = each.job(host, configured[each.name])
    return made


async def keep(name: str, job: Job, clock: Clock, failed: Failed) -> None:
    """Does a job when it is due, until cancelled; after a failure, again in a minute."""
    while True:
        wait = _RETRY
        with _guarded(name, "its job failed", failed):
            try:
                due = await job(clock.now())
                wait = min(max(_SHORTEST_SLEEP, (due - clock.now()).total_seconds()), _LONGEST_SLEEP)
            except (StorageUnavailable, SlackError, ClarifyError) as error:
                _log.warning("an integration's job is delayed", integration=name, reason=str(error))
        await clock.sleep(wait)


async def check_integrations(settings: Settings) -> AsyncIterator[CheckResult]:
    """Runs the integrations' own checks."""
    for name, why in _broken(settings).items():
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
