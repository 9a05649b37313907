"""The figures as Prometheus' own parser reads them, from a real storage and index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from bot.delivery.inbox import SqliteInbox
from bot.delivery.store import Store
from bot.delivery.vitals import Vitals
from bot.telemetry import Telemetry
from bot.web.callers import Callers
from bot.web.metrics import Sources, metrics_routes
from bot.web.server import build_app
from core.clarification import Status
from core.index import Index, summarize
from tests.clocks import START, ManualClock
from tests.unit.bot.delivery.events import incoming
from tests.unit.bot.strategies import record_of

Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PLANNER = {"connected": True, "backlog": 3, "offset_seconds": -0.5, "events": 7, "oversize": 1}


QUEUES = ("inbox", "delivery", "replies", "webhook hooks.example.com")


class World:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.index, self.telemetry = Index(), Telemetry(clock)
        self.inbox = SqliteInbox(store)
        self.producers: dict[str, dict[str, Any]] = {}
        self.slack = True
        self.ticks = iter(range(1000))

    async def webhooks(self) -> dict[str, int]:
        return {"hooks.example.com": 2}

    async def scrape(self) -> httpx.Response:
        sources = Sources(
            version="1.2.3",
            telemetry=self.telemetry,
            index=self.index,
            producers=lambda: self.producers,
            waiting=Vitals(self.store, self.clock, seconds=lambda: 0.0).waiting,
            slack_connected=lambda: self.slack,
            seconds=lambda: float(next(self.ticks)),
            queues={"delivery": lambda: 4, "replies": lambda: 0},
            webhooks=self.webhooks,
        )
        app = build_app([metrics_routes(sources, Callers({}))], version="1")
        async with httpx.AsyncClient(
            base_url="http://localhost", transport=httpx.ASGITransport(app)
        ) as client:
            return await client.get("/metrics")

    async def figures(self) -> Figures:
        families = text_string_to_metric_families((await self.scrape()).text)
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = await Store.open(tmp_path / "clarify.db")
    yield World(store, ManualClock())
    await store.close()


def of(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


async def test_metrics_are_what_prometheus_reads(world: World) -> None:
    answer = await world.scrape()
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    figures = await world.figures()
    assert [
        labels["version"]
        for name, pairs in figures
        if name == "clarify_build_info" and (labels := dict(pairs))
    ] == ["1.2.3"]
    assert figures[of("process_open_fds")] > 0


async def test_open_ones_are_counted_by_status(world: World) -> None:
    statuses: list[Status] = ["pending", "pending", "escalated", "answered"]
    for number, status in enumerate(statuses, 1):
        world.index.put(
            replace(summarize(record_of()), id=f"CLR-42-{number:03d}", status=status, reply="sending")
        )
    figures = await world.figures()
    assert {status: figures[of("clarify_open", status=status)] for status in ("pending", "stale", "escalated")} == {
        "pending": 2, "stale": 0, "escalated": 1,
    }  # fmt: skip
    assert of("clarify_open", status="answered") not in figures


async def test_what_happened_is_counted(world: World) -> None:
    asked = replace(summarize(record_of()), asked_last=START - timedelta(seconds=20))
    world.telemetry.note(None, asked)
    world.telemetry.note(asked, replace(asked, status="answered"))
    world.telemetry.delivered("card", "sent")
    world.telemetry.delivered("card", "later")
    world.telemetry.paged("slack", "sent")
    figures = await world.figures()
    assert figures[of("clarify_status_changes_total", status="answered")] == 1
    assert figures[of("clarify_status_changes_total", status="abandoned")] == 0
    assert figures[of("clarify_time_to_answer_seconds_bucket", le="15.0")] == 0
    assert figures[of("clarify_time_to_answer_seconds_bucket", le="30.0")] == 1
    assert figures[of("clarify_time_to_answer_seconds_bucket", le="+Inf")] == 1
    assert figures[of("clarify_time_to_answer_seconds_count")] == 1
    assert figures[of("clarify_time_to_answer_seconds_sum")] == 20.0
    assert figures[of("clarify_deliveries_total", kind="card", outcome="sent")] == 1
    assert figures[of("clarify_retries_total", kind="card")] == 1
    assert figures[of("clarify_pages_total", via="slack", outcome="sent")] == 1


async def test_lags_and_queues_say_how_far_behind_it_is(world: World) -> None:
    await world.inbox.put(incoming(), START, None)
    await world.clock.advance(12.0)
    world.slack = False
    figures = await world.figures()
    assert figures[of("clarify_inbox_oldest_seconds")] == 12.0
    assert figures[of("clarify_event_loop_lag_seconds")] == 1.0
    assert figures[of("clarify_slack_connected")] == 0
    assert {name: figures[of("clarify_queue_length", queue=name)] for name in QUEUES} == dict(
        zip(QUEUES, (1, 4, 0, 2), strict=True)
    )
    await world.inbox.done([item.id for item in await world.inbox.waiting(0)])
    figures = await world.figures()
    assert (
        figures[of("clarify_inbox_oldest_seconds")],
        figures[of("clarify_queue_length", queue="inbox")],
    ) == (0, 0)


async def test_producers_are_told_apart_by_configured_names(world: World) -> None:
    world.producers = {"planner": PLANNER, 'odd"\n\\name': {"connected": False}}
    figures = await world.figures()
    assert figures[of("clarify_producer_connected", producer="planner")] == 1
    assert figures[of("clarify_producer_connected", producer='odd"\n\\name')] == 0
    assert figures[of("clarify_producer_backlog", producer="planner")] == 3
    assert figures[of("clarify_producer_clock_offset_seconds", producer="planner")] == -0.5
    assert figures[of("clarify_producer_events_total", producer="planner", what="events")] == 7
    assert figures[of("clarify_producer_events_total", producer="planner", what="oversize")] == 1


async def test_storage_that_cannot_be_read_leaves_the_other_figures(world: World) -> None:
    await world.store.execute("drop table inbox")
    with structlog.testing.capture_logs() as log:
        figures = await world.figures()
    assert figures[of("clarify_storage_readable")] == 0
    assert figures[of("clarify_slack_connected")] == 1
    assert of("clarify_inbox_oldest_seconds") not in figures
    assert "figures without the inbox" in {each["event"] for each in log}
