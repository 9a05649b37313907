"""Serves `/livez` (is it alive), `/readyz` (can it work) and `/metrics` to operators and orchestrators.

Ready means that Slack and the storage work. Other problems affect one agent or channel, and a restart would not help: they
are listed as degraded, and the status stays 200.

Metrics are collected when Prometheus asks. Labels are names of ours and of the configuration, so that their number stays
bounded.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

from bot.ask.inbox import Backlog
from bot.checks import Check, run_all
from bot.errors import StorageUnavailable
from bot.logs import lines_dropped
from bot.routing import Audiences
from bot.telemetry import Telemetry
from bot.views import inert
from bot.web.guard import Callers
from core.clarification import Status
from core.clock import Clock
from core.summary import Summary

_log = structlog.get_logger("clarify.http")
_LONGEST = 200  # characters of why something is wrong
_TAG = "For operators"
_OPEN: tuple[Status, ...] = ("pending", "stale", "escalated")
_FROM_PRODUCERS = (
    "events",
    "skimmed",
    "oversize",
    "unreadable",
    "refused",
    "not_utf8",
    "missing",
    "connections",
)
ProducersStatus = Callable[[], Mapping[str, Mapping[str, Any]]]


class HealthCheck(BaseModel):
    name: str = Field(examples=["slack", "storage"])
    ok: bool
    why: str = Field(default="", description="What is wrong; empty if ok")


class Degraded(BaseModel):
    name: str = Field(examples=["producer:planner"])
    why: str = Field(examples=["not connected: connection refused"])


class Readiness(BaseModel):
    ready: bool = Field(description="Whether all `checks` are ok")
    checks: list[HealthCheck] = Field(description="What the bot cannot work without")
    degraded: list[Degraded] = Field(description="Other problems; empty if there are none")


def producer_checks(names: Sequence[str], status: ProducersStatus) -> list[Check]:
    """One check per configured producer. Producers that push are always well; one without a status is another bot's."""

    def look(name: str) -> str | None:
        now = status().get(name)
        if now is None or now.get("connected") or now.get("dialect") == "push":
            return None
        return f"not connected: {now.get('last_error') or 'no answer yet'}"

    return [Check(f"producer:{name}", partial(look, name)) for name in names]


def health_routes(needed: Sequence[Check], others: Sequence[Check] = ()) -> APIRouter:
    """If one of `needed` fails, the bot is not ready; if one of `others` fails, it is listed as degraded."""
    router = APIRouter(tags=[_TAG])

    for path, summary in (("/livez", "Liveness"), ("/healthz", "Liveness, same as `/livez`")):
        router.head(path, include_in_schema=False)(_alive)
        router.get(
            path,
            summary=summary,
            response_class=Response,  # PlainTextResponse would document errors as plain text too
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        )(_alive)

    @router.head("/readyz", include_in_schema=False)
    @router.get(
        "/readyz",
        summary="Readiness",
        response_model=Readiness,
        responses={503: {"model": Readiness, "description": "The bot cannot use Slack or its storage"}},
    )
    async def readyz() -> JSONResponse:
        """Returns 200 while the bot can use Slack and its storage, otherwise 503. `degraded` lists other problems."""
        results = await run_all([*needed, *others])
        checks = [
            HealthCheck(name=each.subject, ok=each.ok, why=inert.clip(each.text, _LONGEST))
            for each in results[: len(needed)]
        ]
        degraded = [
            Degraded(name=each.subject, why=inert.clip(each.text, _LONGEST))
            for each in results[len(needed) :]
            if not each.ok
        ]
        ready = Readiness(ready=all(each.ok for each in checks), checks=checks, degraded=degraded)
        return JSONResponse(ready.model_dump(), 200 if ready.ready else 503)

    return router


async def _alive() -> Response:
    """200 as long as the event loop runs. It says nothing about Slack, producers or the storage."""
    return PlainTextResponse("ok\n")


async def _none() -> bytes:
    return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the figures come from.

    `leads`: whether this replica is the leader. `backlog`: the inbox's, raises StorageUnavailable. `producers`: see
    `Producers.status`. `queues`: the length of each queue by name. `outside`: how many messages of integrations wait, by
    integration and party, raises StorageUnavailable. `integrations`: their own figures, as text.
    """

    telemetry: Telemetry
    index: Iterable[Summary]
    audiences: Audiences
    clock: Clock
    leads: Callable[[], bool]
    backlog: Callable[[], Awaitable[Backlog]]
    producers: ProducersStatus
    slack_connected: Callable[[], bool]
    queues: Mapping[str, Callable[[], int]]
    outside: Callable[[], Awaitable[Mapping[tuple[str, str], int]]]
    integrations: Callable[[], Awaitable[bytes]] = _none


def metrics_routes(sources: Sources, callers: Callers) -> APIRouter:
    """`callers` decides who may read the metrics."""
    router = APIRouter(tags=[_TAG], dependencies=[Depends(callers.onlooker)])
    turn = asyncio.Lock()  # else many at once would share one turn of the event loop

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """Returns metrics in Prometheus' text format. Counters start at 0 when the process starts."""
        async with turn:
            waiting, queued = await _waiting(sources)
            lag = await _lag()
            registry = CollectorRegistry()
            registry.register(_Collected(list(_figures(sources, lag, waiting, queued))))
            ProcessCollector(registry=registry)
            sources.telemetry.know(sources.audiences.names, queued)
            counted = generate_latest(sources.telemetry.registry)
            counted += generate_latest(registry) + await sources.integrations()
            return Response(counted, media_type=CONTENT_TYPE_LATEST)

    return router


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def _waiting(sources: Sources) -> tuple[Backlog | None, Mapping[tuple[str, str], int]]:
    """Returns the inbox's backlog (None: the storage cannot be read), and how many messages of integrations wait."""
    try:
        waiting = await sources.backlog()
        queued = await sources.outside()
    except StorageUnavailable as error:
        _log.warning("metrics leave out the inbox", reason=str(error))
        return None, {}
    return waiting, queued


async def _lag() -> float:
    """Returns the current duration of one turn of the event loop, in seconds."""
    began = time.monotonic()
    await asyncio.sleep(0)
    return time.monotonic() - began


def _figures(
    sources: Sources, lag: float, waiting: Backlog | None, queued: Mapping[tuple[str, str], int]
) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "clarify_build",
        "The version of the bot and of Python",
        {"version": version("clarify-bot"), "python": platform.python_version()},
    )
    yield from _open(sources)
    yield _counter(
        "clarify_log_lines_dropped",
        "Log lines dropped because the reader was too slow",
        [],
        [((), lines_dropped())],
    )
    yield from _producers(sources.producers())
    lengths = {name: length() for name, length in sources.queues.items()}
    lengths |= {f"{name} {party}": count for (name, party), count in queued.items()}
    yield _gauge(
        "clarify_leads",
        "1 while this replica is the leader; always 1 without other replicas",
        sources.leads(),
    )
    yield _gauge("clarify_event_loop_lag_seconds", "Duration of one turn of the event loop", lag)
    yield _gauge(
        "clarify_slack_connected", "1 while the bot is connected to Slack", sources.slack_connected()
    )
    yield _gauge("clarify_storage_readable", "1 while the bot can read its storage", waiting is not None)
    if waiting is not None:
        lengths["inbox"] = waiting.count
        oldest = waiting.oldest.total_seconds()
        yield _gauge("clarify_inbox_oldest_seconds", "Age of the oldest unprocessed event", oldest)
    yield _gauges(
        "clarify_queue_length",
        "Entries in each queue: delivery, replies, callbacks, and of integrations, such as webhooks HOST",
        "queue",
        dict(sorted(lengths.items())),
    )


def _open(sources: Sources) -> Iterator[Metric]:
    now, audiences = sources.clock.now(), sources.audiences
    counts: Counter[str] = Counter()
    oldest = dict.fromkeys(audiences.names, 0.0)
    for summary in sources.index:
        counts[summary.status] += 1
        if summary.is_open and audiences.shows(summary):
            name, age = audiences.route(summary).name, (now - summary.asked_last).total_seconds()
            oldest[name] = max(oldest[name], age)
    yield _gauges(
        "clarify_open",
        "Open clarifications, waiting for people or another agent, by status: pending, stale (people were reminded), "
        "escalated (someone was paged)",
        "status",
        {status: counts[status] for status in _OPEN},
    )
    yield _gauges(
        "clarify_oldest_question_seconds",
        "Age of the oldest question waiting for people, by the route of the agent; 0 if none waits",
        "route",
        oldest,
    )


def _producers(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    for name, about, key in (
        ("connected", "1 while the bot is connected to the producer", "connected"),
        ("backlog", "Events read but not yet stored", "backlog"),
        ("clock_offset_seconds", "The bot's clock minus the producer's clock", "offset_seconds"),
    ):
        values = {producer: status.get(key, 0) for producer, status in statuses.items()}
        yield _gauges(f"clarify_producer_{name}", about, "producer", values)
    down = {
        name: not (each.get("connected") or each.get("dialect") == "push") for name, each in statuses.items()
    }
    about = "1 while the producer should be connected but is not; always 0 for producers that push"
    yield _gauges("clarify_producer_down", about, "producer", down)
    yield _counter(
        "clarify_producer_events",
        "Events from the producer: all of them, and each kind of problem",
        ["producer", "what"],
        [
            ((producer, what), status.get(what, 0))
            for producer, status in statuses.items()
            for what in _FROM_PRODUCERS
        ],
    )


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=float(value))


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for each, value in values.items():
        family.add_metric([each], float(value))
    return family


def _counter(
    name: str, about: str, labels: list[str], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in sorted(counts):
        family.add_metric(values, count)
    return family
