"""`/metrics` for Prometheus: read from what exists when it is asked for; nothing is kept here.

Labels are names of ours and of the configuration, so that their number does not grow.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import structlog
from fastapi import APIRouter, Depends
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from bot.delivery.vitals import Waiting
from bot.errors import StorageUnavailable
from bot.telemetry import Distribution, Telemetry
from bot.web.callers import Callers
from core.clarification import Status
from core.index import Summary

_log = structlog.get_logger("clarify.http")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the figures come from.

    `index`: what needs something. `producers`: see `Producers.status`. `waiting`: of the inbox, raises
    StorageUnavailable; so does `webhooks`, events queued by endpoint. `queues`: name → how many wait there.
    `seconds`: a monotonic clock.
    """

    version: str
    telemetry: Telemetry
    index: Iterable[Summary]
    producers: Callable[[], Mapping[str, Mapping[str, Any]]]
    waiting: Callable[[], Awaitable[Waiting]]
    slack_connected: Callable[[], bool]
    seconds: Callable[[], float]
    log_lines_dropped: Callable[[], int] = int
    queues: Mapping[str, Callable[[], int]] = field(default_factory=dict)
    webhooks: Callable[[], Awaitable[Mapping[str, int]]] | None = None


def metrics_routes(sources: Sources, callers: Callers) -> APIRouter:
    """`callers` says who may look."""
    router = APIRouter(tags=["For those who run it"], dependencies=[Depends(callers.onlooker)])

    @router.get(
        "/metrics",
        summary="Figures for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics() -> Response:
        """In Prometheus' text format; counters start at 0 with the process."""
        waiting, lengths = await _waiting(sources)
        lag = await _lag(sources.seconds)
        registry = CollectorRegistry()
        registry.register(_Collected([*_figures(sources), *_lags(sources, lag, waiting, lengths)]))
        ProcessCollector(registry=registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def _waiting(sources: Sources) -> tuple[Waiting | None, dict[str, int]]:
    """What waits in the inbox, None if that is not known; and the lengths of the queues that are known."""
    lengths = {name: length() for name, length in sources.queues.items()}
    try:
        waiting = await sources.waiting()
        queued = await sources.webhooks() if sources.webhooks is not None else {}
    except StorageUnavailable as error:
        _log.warning("figures without the inbox", reason=str(error))
        return None, lengths
    lengths |= {f"webhook {host}": count for host, count in queued.items()}
    return waiting, lengths | {"inbox": waiting.count}


async def _lag(seconds: Callable[[], float]) -> float:
    """How long one turn of the event loop takes now: whatever waits in it waits at least that long."""
    began = seconds()
    await asyncio.sleep(0)
    return seconds() - began


def _figures(sources: Sources) -> Iterator[Metric]:
    telemetry = sources.telemetry
    yield InfoMetricFamily(
        "clarify_build", "What runs", {"version": sources.version, "python": platform.python_version()}
    )
    yield _open(sources.index)
    yield _counter(
        "clarify_status_changes", "Statuses that clarifications came to", ["status"],
        [((status,), telemetry.changes[status]) for status in get_args(Status)],
    )  # fmt: skip
    yield _histogram("clarify_time_to_answer_seconds", "From a question to its answer", telemetry.answers)
    yield _counter(
        "clarify_deliveries", "Tries to bring a message to Slack, or a reply to an agent", ["kind", "outcome"],
        telemetry.deliveries.items(),
    )  # fmt: skip
    yield _counter(
        "clarify_retries", "Tries that have to be made again", ["kind"],
        [((kind,), count) for kind, count in telemetry.retries.items()],
    )  # fmt: skip
    yield _counter(
        "clarify_pages",
        "Pages, by way and by what became of them",
        ["via", "outcome"],
        telemetry.pages.items(),
    )
    yield _counter(
        "clarify_log_lines_dropped",
        "Lines of the log that nobody read in time",
        [],
        [((), sources.log_lines_dropped())],
    )
    yield from _producers(sources.producers())


def _lags(
    sources: Sources, lag: float, waiting: Waiting | None, lengths: Mapping[str, int]
) -> Iterator[Metric]:
    yield _gauge("clarify_event_loop_lag_seconds", "One turn of the event loop", lag)
    yield _gauge("clarify_slack_connected", "1 while Slack can reach us", sources.slack_connected())
    yield _gauge("clarify_storage_readable", "1 while the storage can be read", waiting is not None)
    if waiting is not None:
        oldest = waiting.oldest.total_seconds()
        yield _gauge(
            "clarify_inbox_oldest_seconds", "How long the oldest event has waited to be worked off", oldest
        )
    queues = GaugeMetricFamily("clarify_queue_length", "What waits to be done", labels=["queue"])
    for name, length in sorted(lengths.items()):
        queues.add_metric([name], length)
    yield queues


def _open(index: Iterable[Summary]) -> Metric:
    counts = Counter(summary.status for summary in index)
    family = GaugeMetricFamily("clarify_open", "Clarifications that wait for an answer", labels=["status"])
    for status in _OPEN:
        family.add_metric([status], counts[status])
    return family


def _producers(statuses: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    connected = GaugeMetricFamily("clarify_producer_connected", "1 while it is", labels=["producer"])
    backlog = GaugeMetricFamily(
        "clarify_producer_backlog", "Events read and not yet stored", labels=["producer"]
    )
    offset = GaugeMetricFamily(
        "clarify_producer_clock_offset_seconds", "Our clock minus its clock", labels=["producer"]
    )
    came = CounterMetricFamily(
        "clarify_producer_events",
        "What came from it: all events, and what was wrong",
        labels=["producer", "what"],
    )
    for name, status in statuses.items():
        connected.add_metric([name], float(bool(status.get("connected"))))
        backlog.add_metric([name], status.get("backlog", 0))
        offset.add_metric([name], status.get("offset_seconds", 0.0))
        for what in _FROM_PRODUCERS:
            came.add_metric([name, what], status.get(what, 0))
    yield from (connected, backlog, offset, came)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=float(value))


def _counter(
    name: str, about: str, labels: list[str], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in sorted(counts):
        family.add_metric(values, count)
    return family


def _histogram(name: str, about: str, figures: Distribution) -> Metric:
    buckets = [
        ("+Inf" if bound == float("inf") else str(bound), count) for bound, count in figures.cumulative()
    ]
    return HistogramMetricFamily(name, about, buckets=buckets, sum_value=figures.total)
