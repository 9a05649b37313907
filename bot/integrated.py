"""Connects the active integrations to the bot. If one raises, the bot reports it and everything else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from bot import integrations
from bot.api import Integration, Job, Known, Metric, Route, Watcher
from bot.ask.questions import Questions
from bot.base import Base
from bot.checks import Check, CheckResult, wrong
from bot.commands.grammar import VERBS, SlackCommand
from bot.commands.lists import SlackHost
from bot.errors import SlackError, StorageUnavailable
from bot.feed import Consumer, Mirror
from bot.intake.entries import Entries, TakingIn
from bot.intake.notices import Teller
from bot.mailing import Follower, Host, Mailer
from bot.retention.forget import LocalFiles
from bot.settings.model import Configuration, Settings
from core.clock import Clock
from core.errors import ClarifyError
from core.summary import Seen

_log = structlog.get_logger("clarify.integrations")
# Seconds: the longest is short, since the wall clock may be set meanwhile.
_SHORTEST_SLEEP, _LONGEST_SLEEP, _RETRY = 1.0, 600.0, 60.0
_FIX = "update or remove it, or take its table out of the file"


def _default_on(
    configuration: Configuration, broken: dict[str, str] | None = None
) -> Iterator[tuple[Integration, Any]]:
    for found in _used(()):
        try:
            settings = None if found.default_on is None else found.default_on(configuration)
        except Exception as error:  # noqa: BLE001 - nothing else may fail with it
            _log.exception("an integration cannot be used", integration=found.name)
            if broken is not None:
                broken[found.name] = f"cannot be used ({type(error).__name__}); see the log"
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
    mirrors: list[Mirror]
    routes: dict[str, Sequence[Route]]
    metrics: dict[str, Callable[[], Awaitable[Sequence[Metric]]]]
    broken: dict[str, str]
    uncounted: dict[str, str] = field(
        default_factory=dict
    )  # why the metrics of some were left out last, by name

    @classmethod
    def build(cls, base: Base, teller: Teller, questions: Questions) -> Integrated:
        made = cls(
            settings=base.settings,
            consumers=[],
            mirrors=[],
            routes={},
            metrics={},
            broken=_broken(base.settings),
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
                questions=questions,
            )
            try:
                made._add(host, None if found.follows is None else found.follows(host, settings))
                if found.routes is not None:
                    made.routes[found.name] = found.routes(host, settings)
                if found.metrics is not None:
                    made.metrics[found.name] = partial(found.metrics, host, settings)
            except Exception as error:  # noqa: BLE001 - others wrote it, and its words may hold a secret
                _log.exception("an integration cannot be started", integration=found.name)
                made.broken[found.name] = f"cannot be started ({type(error).__name__}); see the log"
        return made

    def _add(self, host: Host, part: Follower | Consumer | Mirror | None) -> None:
        if isinstance(part, Mirror):
            self.mirrors.append(part)
        elif isinstance(part, Follower):
            self.consumers.append(Mailer(host, part))
        elif isinstance(part, Consumer):
            self.consumers.append(part)
        elif part is not None:
            raise TypeError(f"{type(part).__name__} is no Follower, Consumer or Mirror")

    @property
    def mailers(self) -> list[Mailer]:
        return [each for each in self.consumers if isinstance(each, Mailer)]

    def checks(self) -> Iterator[Check]:
        """Yields what /readyz asks."""
        for each in self.mirrors:
            yield Check(each.part, each.trouble)
        yield Check("integrations", self._trouble)

    def _trouble(self) -> str | None:
        found = [*self.broken.items(), *self.uncounted.items()]
        return "; ".join(f"{name} {why}" for name, why in found) or None

    async def waiting(self) -> Mapping[tuple[str, str], int]:
        """Returns how many messages wait, by integration and party."""
        return {
            (each.name, party): count
            for each in self.mailers
            for party, count in (await each.waiting()).items()
        }

    async def counted(self) -> bytes:
        """Returns what /metrics shows of integrations, as text."""
        found = b""
        for name, metrics in self.metrics.items():
            try:
                found += _shown(name, await metrics())
                self.uncounted.pop(name, None)
            except Exception as error:  # noqa: BLE001 - others wrote it
                _log.exception("metrics leave out an integration", integration=name)
                self.uncounted[name] = f"has no metrics ({type(error).__name__}); see the log"
        return found

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


def _shown(integration: str, metrics: Sequence[Metric]) -> bytes:
    registry = CollectorRegistry()
    for each in metrics:
        name = f"clarify_{integration}_{each.name}"
        gauge = Gauge(name, each.about, labelnames=each.labels, registry=registry)
        for labels, value in each.values.items():
            (gauge.labels(*labels) if labels else gauge).set(value)
    return generate_latest(registry)


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
"""Reports a defect: the integration's name, what failed, and the error."""


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

    def working(self, record: Seen, begun: bool) -> None:  # noqa: FBT001 - as `core.hub` calls it
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
    broken = _broken(settings)
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
