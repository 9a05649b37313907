"""Whether the process is alive, whether it can do its work, and the figures as Prometheus' own parser reads them."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from bot.ask.inbox import Inbox
from bot.checks import Check
from bot.routing import Audiences
from bot.settings.model import ResponderSettings, RouteSettings, Settings
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.telemetry import Telemetry
from bot.web.guard import Callers
from bot.web.health import Sources, health_routes, metrics_routes, producer_checks
from bot.web.server import build_app
from core.clarification import Status
from core.index import Index
from tests.kit.builders import changed, counted
from tests.kit.clocks import START, ManualClock
from tests.kit.events import incoming
from tests.unit.bot.strategies import record_of

Look = Callable[[], str | Awaitable[str | None] | None]
Figures = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PLANNER = {"connected": True, "backlog": 3, "offset_seconds": -0.5, "events": 7, "oversize": 1}
TABLES: dict[str, Any] = {
    "routes": (RouteSettings(agent="r-*", channel="C1"), RouteSettings(channel="C2")),
    "responders": {"reviewer": ResponderSettings(command=("review",))},
}
QUEUES = ("inbox", "delivery", "replies", "webhooks hooks.example.com")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_storage(tmp_path / "clarify.db")
    yield opened
    await opened.close()


async def ask(
    checks: Sequence[Check], path: str, method: str = "GET", others: Sequence[Check] = ()
) -> httpx.Response:
    app = build_app([health_routes(checks, others)], Callers({}))
    async with httpx.AsyncClient(base_url="http://test", transport=httpx.ASGITransport(app)) as client:
        return await client.request(method, path)


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
@pytest.mark.parametrize(("method", "body"), [("GET", "ok\n"), ("HEAD", "")])
async def test_process_is_alive_whatever_else_is_wrong(method: str, body: str, path: str) -> None:
    answer = await ask([Check("slack", lambda: "not connected")], path, method)
    assert (answer.status_code, answer.text) == (200, body)


def well() -> str | None:
    return None


def away() -> str | None:
    return "not connected"


async def gone() -> str | None:
    return "gone"


def broken() -> str | None:
    raise RuntimeError("sesame")


@pytest.mark.parametrize(
    ("needed", "others", "wrong", "degraded"),
    [
        ({"slack": well}, {}, {}, {}),
        (
            {"slack": away, "start": well, "storage": gone},
            {},
            {"slack": "not connected", "storage": "gone"},
            {},
        ),
        ({"slack": well}, {"a": away, "b": well, "c": gone}, {}, {"a": "not connected", "c": "gone"}),
        ({"slack": gone}, {"a": away}, {"slack": "gone"}, {"a": "not connected"}),
        ({"slack": broken}, {}, {"slack": "the check failed (RuntimeError)"}, {}),
    ],
)
async def test_ready_says_all_that_is_wrong_and_whether_it_can_work(
    needed: dict[str, Look], others: dict[str, Look], wrong: dict[str, str], degraded: dict[str, str]
) -> None:
    checks, besides = ([Check(*each) for each in some.items()] for some in (needed, others))
    with structlog.testing.capture_logs() as log:
        answer = await ask(checks, "/readyz", others=besides)
    assert (answer.status_code, answer.json()) == (
        503 if wrong else 200,
        {
            "ready": not wrong,
            "checks": [
                {"name": name, "ok": name not in wrong, "why": wrong.get(name, "")} for name in needed
            ],
            "degraded": [{"name": name, "why": why} for name, why in degraded.items()],
        },
    )
    assert ("health check failed" in {each["event"] for each in log}) == (broken in needed.values())


async def test_reason_holds_no_secrets_and_ends() -> None:
    why = "https://planner:sesame@host/x?token=sesame " + "x" * 500
    check = Check("producer:planner", lambda: why)
    body = (await ask([check], "/readyz", others=[check])).json()
    for each in (*body["checks"], *body["degraded"]):
        assert "sesame" not in each["why"]
        assert len(each["why"]) <= 200


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"connected": True, "dialect": "standard"}, ""),
        ({"connected": False, "dialect": "push", "last_error": None}, ""),
        ({"connected": False, "dialect": "auto", "last_error": "refused"}, "not connected: refused"),
        ({"connected": False, "dialect": "auto", "last_error": None}, "not connected: no answer yet"),
        (None, ""),  # another replica is connected with it
    ],
)
async def test_producer_is_well_when_connected_or_when_it_comes_by_itself(
    status: dict[str, Any] | None, why: str
) -> None:
    found = {"planner": status} if status is not None else {}
    answer = await ask([], "/readyz", others=producer_checks(["planner"], lambda: found))
    assert answer.json()["degraded"] == ([{"name": "producer:planner", "why": why}] if why else [])


async def test_storage_is_really_read(store: Store, tmp_path: Path) -> None:
    assert await store.trouble() is None
    with sqlite3.connect(tmp_path / "clarify.db") as db:
        db.execute("drop table installation")
    db.close()
    why = await store.trouble()
    assert why is not None
    assert why.startswith("The storage could not be read")
    answer = await ask([Check("storage", store.trouble)], "/readyz")
    assert answer.json()["checks"][0] == {"name": "storage", "ok": False, "why": why}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_errors_are_documented_as_json() -> None:
    paths = build_app([health_routes([])], Callers({})).openapi()["paths"]
    documented = {path: list(item["get"]["responses"]["default"]["content"]) for path, item in paths.items()}
    assert set(documented) == {"/livez", "/healthz", "/readyz"}
    assert all(kinds == ["application/json"] for kinds in documented.values())
    assert list(paths["/healthz"]["get"]["responses"]["200"]["content"]) == ["text/plain"]


class World:
    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.index, self.telemetry = Index(), Telemetry(clock)
        self.inbox = Inbox(store)
        self.producers: dict[str, dict[str, Any]] = {}
        self.slack = self.leads = True
        self.audiences = Audiences(Settings.model_construct(**TABLES))

    async def outside(self) -> dict[tuple[str, str], int]:
        asyncio.get_running_loop().call_soon(time.sleep, 0.05)  # in the turn that is measured after this
        return {("webhooks", "hooks.example.com"): 2}

    async def scrape(self) -> httpx.Response:
        sources = Sources(
            telemetry=self.telemetry,
            index=self.index,
            audiences=self.audiences,
            clock=self.clock,
            leads=lambda: self.leads,
            backlog=lambda: self.inbox.backlog(self.clock.now()),
            producers=lambda: self.producers,
            slack_connected=lambda: self.slack,
            queues={"delivery": lambda: 4, "replies": lambda: 0},
            outside=self.outside,
        )
        app = build_app([metrics_routes(sources, Callers({}))], Callers({}), self.telemetry.requested)
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
def world(store: Store, clock: ManualClock) -> World:
    return World(store, clock)


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
    ] == [version("clarify-bot")]
    assert figures[of("process_open_fds")] > 0


async def test_open_ones_are_counted_by_status(world: World) -> None:
    statuses: list[Status] = ["pending", "pending", "escalated", "answered"]
    for number, status in enumerate(statuses, 1):
        world.index.put(changed(record_of(), id=f"CLR-42-{number:03d}", status=status, reply="sending"))
    figures = await world.figures()
    assert {status: figures[of("clarify_open", status=status)] for status in ("pending", "stale", "escalated")} == {
        "pending": 2, "stale": 0, "escalated": 1,
    }  # fmt: skip
    assert of("clarify_open", status="answered") not in figures


async def test_oldest_question_that_waits_for_people_is_told_by_route(world: World) -> None:
    asked = changed(record_of(), from_="r-1", agent_id="r-1", asked_last=START, created=START)
    again = {"asked_last": START + timedelta(seconds=40), "round": 2}
    others: tuple[dict[str, Any], ...] = (
        {},
        {"asked_last": START + timedelta(seconds=10)},
        {"from_": "other", "agent_id": "other", **again},
        {
            "agent_id": "else",
            "producer": None,
            "to": "Reviewer",
            "asked_last": START - timedelta(hours=1),
        },
        {
            "agent_id": "else",
            "status": "answered",
            "reply": "sending",
            "asked_last": START - timedelta(hours=1),
        },
    )
    for number, more in enumerate(others, 1):
        world.index.put(changed(asked, id=f"CLR-42-{number:03d}", **more))
    await world.clock.advance(60)
    figures = await world.figures()
    assert figures[of("clarify_oldest_question_seconds", route="r-*")] == 60
    assert figures[of("clarify_oldest_question_seconds", route="*")] == 20, (
        "from its latest round; no agent's"
    )
    world.index.put(changed(asked, id="CLR-42-001", status="resolved"))
    world.index.put(changed(asked, id="CLR-42-002", status="resolved"))
    assert (await world.figures())[of("clarify_oldest_question_seconds", route="r-*")] == 0


async def test_requests_are_counted_by_their_route(world: World) -> None:
    await world.scrape()
    app = build_app([health_routes([Check("slack", away)])], Callers({}), world.telemetry.requested)
    async with httpx.AsyncClient(base_url="http://localhost", transport=httpx.ASGITransport(app)) as client:
        for path in ("/livez", "/readyz", "/readyz?x=1", "/wp-login.php", "/../etc"):
            await client.get(path)
    assert counted(world.telemetry.requests) == {
        ("/metrics", "200"): 1,
        ("/livez", "200"): 1,
        ("/readyz", "503"): 2,
        ("other", "404"): 2,
    }
    assert (await world.figures())[of("clarify_http_requests_total", path="/readyz", status="503")] == 2


async def test_what_happened_is_counted(world: World) -> None:
    asked = changed(record_of(), asked_last=START - timedelta(seconds=20))
    world.telemetry.record_changed(None, asked, "r-*")
    world.telemetry.record_changed(asked, changed(asked, status="answered"), "r-*")
    world.telemetry.told("webhooks", "hooks.example.com", "later")
    world.telemetry.rate_limited.labels("users.info").inc()
    world.telemetry.tools.labels("ask_human", "refused").inc()
    world.telemetry.delivered("card", "sent")
    world.telemetry.delivered("card", "later")
    world.telemetry.paged("slack", "sent")
    expected = {
        of("clarify_status_changes_total", status="answered"): 1,
        of("clarify_status_changes_total", status="abandoned"): 0,
        of("clarify_time_to_answer_seconds_bucket", le="15.0"): 0,
        of("clarify_time_to_answer_seconds_bucket", le="30.0"): 1,
        of("clarify_time_to_answer_seconds_bucket", le="+Inf"): 1,
        of("clarify_time_to_answer_seconds_count"): 1,
        of("clarify_time_to_answer_seconds_sum"): 20.0,
        of("clarify_deliveries_total", kind="card", outcome="sent"): 1,
        of("clarify_retries_total", kind="card"): 1,
        of("clarify_pages_total", via="slack", outcome="sent"): 1,
        of("clarify_pages_total", via="outside", outcome="failed"): 0,
        of("clarify_answers_total", route="r-*", kind="freetext"): 1,
        of("clarify_answers_total", route="*", kind="form"): 0,
        of(
            "clarify_integration_requests_total",
            integration="webhooks",
            party="hooks.example.com",
            outcome="later",
        ): 1,
        of(
            "clarify_integration_requests_total",
            integration="webhooks",
            party="hooks.example.com",
            outcome="sent",
        ): 0,
        of("clarify_deliveries_total", kind="webhooks", outcome="later"): 1,
        of("clarify_slack_rate_limited_total", method="users.info"): 1,
        of("clarify_slack_rate_limited_total", method="chat.postMessage"): 0,
        of("clarify_mcp_calls_total", tool="ask_human", outcome="refused"): 1,
        of("clarify_mcp_calls_total", tool="ask_approval", outcome="failed"): 0,
    }
    figures = await world.figures()
    assert {name: figures[name] for name in expected} == expected


async def test_lags_and_queues_say_how_far_behind_it_is(world: World) -> None:
    await world.inbox.put(incoming())
    await world.clock.advance(12.0)
    world.slack = world.leads = False
    figures = await world.figures()
    assert figures[of("clarify_leads")] == 0
    assert figures[of("clarify_inbox_oldest_seconds")] == 12.0
    assert figures[of("clarify_event_loop_lag_seconds")] >= 0.05
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
    world.producers = {
        "planner": PLANNER,
        "pusher": {"connected": False, "dialect": "push"},
        'odd"\n\\name': {"connected": False},
    }
    figures = await world.figures()
    assert figures[of("clarify_producer_connected", producer="planner")] == 1
    assert figures[of("clarify_producer_connected", producer='odd"\n\\name')] == 0
    down = {name: figures[of("clarify_producer_down", producer=name)] for name in world.producers}
    assert down == {"planner": 0, "pusher": 0, 'odd"\n\\name': 1}
    assert figures[of("clarify_producer_backlog", producer="planner")] == 3
    assert figures[of("clarify_producer_clock_offset_seconds", producer="planner")] == -0.5
    assert figures[of("clarify_producer_events_total", producer="planner", what="events")] == 7
    assert figures[of("clarify_producer_events_total", producer="planner", what="oversize")] == 1


async def test_storage_that_cannot_be_read_leaves_the_other_figures(world: World) -> None:
    await world.store.run("drop table inbox")
    with structlog.testing.capture_logs() as log:
        figures = await world.figures()
    assert figures[of("clarify_storage_readable")] == 0
    assert figures[of("clarify_slack_connected")] == 1
    assert of("clarify_inbox_oldest_seconds") not in figures
    assert "metrics leave out the inbox" in {each["event"] for each in log}
