"""Whether the process is alive, and whether it can do its work: with a real storage behind it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from bot.delivery.store import Store
from bot.delivery.vitals import Vitals
from bot.web.health import Check, health_routes, producer_checks
from bot.web.server import build_app
from tests.clocks import ManualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await Store.open(tmp_path / "clarify.db")
    yield opened
    await opened.close()


async def ask(
    checks: Sequence[Check], path: str, method: str = "GET", parts: Sequence[Check] = ()
) -> httpx.Response:
    app = build_app([health_routes(checks, parts)], version="1")
    async with httpx.AsyncClient(base_url="http://test", transport=httpx.ASGITransport(app)) as client:
        return await client.request(method, path)


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
@pytest.mark.parametrize(("method", "body"), [("GET", "ok\n"), ("HEAD", "")])
async def test_process_is_alive_whatever_else_is_wrong(method: str, body: str, path: str) -> None:
    answer = await ask([Check("slack", lambda: "not connected")], path, method)
    assert (answer.status_code, answer.text) == (200, body)


async def test_ready_when_all_is_well() -> None:
    answer = await ask([Check("slack", lambda: None)], "/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "checks": [{"name": "slack", "ok": True, "why": ""}], "degraded": []},
    )


async def test_not_ready_says_all_that_is_wrong() -> None:
    async def storage() -> str | None:
        return "it cannot be read"

    checks = [
        Check("slack", lambda: "not connected"),
        Check("start", lambda: None),
        Check("storage", storage),
    ]
    answer = await ask(checks, "/readyz")
    assert (answer.status_code, answer.json()) == (
        503,
        {
            "ready": False,
            "checks": [
                {"name": "slack", "ok": False, "why": "not connected"},
                {"name": "start", "ok": True, "why": ""},
                {"name": "storage", "ok": False, "why": "it cannot be read"},
            ],
            "degraded": [],
        },
    )


async def test_what_is_degraded_is_listed_and_leaves_it_ready() -> None:
    async def away() -> str | None:
        return "not connected"

    parts = [Check("producer:a", away), Check("producer:b", lambda: None), Check("answerers", lambda: "gone")]
    answer = await ask([Check("slack", lambda: None)], "/readyz", parts=parts)
    assert (answer.status_code, answer.json()["ready"]) == (200, True)
    assert answer.json()["degraded"] == [
        {"name": "producer:a", "why": "not connected"},
        {"name": "answerers", "why": "gone"},
    ]


async def test_what_is_degraded_is_listed_also_when_it_is_not_ready() -> None:
    parts = [Check("producer:a", lambda: "not connected")]
    answer = await ask([Check("slack", lambda: "away")], "/readyz", parts=parts)
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert answer.json()["degraded"] == [{"name": "producer:a", "why": "not connected"}]


async def test_reason_holds_no_secrets_and_ends() -> None:
    why = "https://planner:sesame@host/x?token=sesame " + "x" * 500
    check = Check("producer:planner", lambda: why)
    body = (await ask([check], "/readyz", parts=[check])).json()
    for each in (*body["checks"], *body["degraded"]):
        assert "sesame" not in each["why"]
        assert len(each["why"]) <= 200


async def test_check_that_breaks_is_not_ready_and_told_by_its_kind() -> None:
    def broken() -> str | None:
        raise RuntimeError("sesame")

    with structlog.testing.capture_logs() as log:
        answer = await ask([Check("slack", broken)], "/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"][0]["why"] == "it could not be looked at (RuntimeError)"
    assert "a check failed" in {each["event"] for each in log}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"connected": True, "dialect": "standard"}, ""),
        ({"connected": False, "dialect": "push", "last_error": None}, ""),
        ({"connected": False, "dialect": "auto", "last_error": "refused"}, "not connected: refused"),
        ({"connected": False, "dialect": "auto", "last_error": None}, "not connected: no answer yet"),
        (None, "not connected: no answer yet"),
    ],
)
async def test_producer_is_well_when_connected_or_when_it_comes_by_itself(
    status: dict[str, Any] | None, why: str
) -> None:
    found = {"planner": status} if status is not None else {}
    answer = await ask([], "/readyz", parts=producer_checks(["planner"], lambda: found))
    assert answer.json()["degraded"] == ([{"name": "producer:planner", "why": why}] if why else [])


async def test_each_producer_has_its_own_check() -> None:
    found: dict[str, dict[str, Any]] = {"a": {"connected": True}, "b": {"connected": False}}
    answer = await ask([], "/readyz", parts=producer_checks(["a", "b"], lambda: found))
    assert [each["name"] for each in answer.json()["degraded"]] == ["producer:b"]


async def test_storage_is_really_read_but_not_for_every_look(
    store: Store, tmp_path: Path, clock: ManualClock
) -> None:
    now = 100.0
    vitals = Vitals(store, clock, seconds=lambda: now)
    assert await vitals.trouble() is None
    with sqlite3.connect(tmp_path / "clarify.db") as db:
        db.execute("drop table counters")
    db.close()
    assert await vitals.trouble() is None  # looked at just now
    now += 1.0
    why = await vitals.trouble()
    assert why is not None
    assert why.startswith("The storage could not be read")
    answer = await ask([Check("storage", vitals.trouble)], "/readyz")
    assert answer.json()["checks"][0] == {"name": "storage", "ok": False, "why": why}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_errors_are_documented_as_json() -> None:
    paths = build_app([health_routes([])], version="1").openapi()["paths"]
    documented = {path: list(item["get"]["responses"]["default"]["content"]) for path, item in paths.items()}
    assert set(documented) == {"/livez", "/healthz", "/readyz"}
    assert all(kinds == ["application/json"] for kinds in documented.values())
    assert list(paths["/healthz"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
