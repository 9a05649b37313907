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


async def ask(checks: Sequence[Check], path: str, method: str = "GET") -> httpx.Response:
    app = build_app([health_routes(checks)], version="1")
    async with httpx.AsyncClient(base_url="http://test", transport=httpx.ASGITransport(app)) as client:
        return await client.request(method, path)


@pytest.mark.parametrize(("method", "body"), [("GET", "ok\n"), ("HEAD", "")])
async def test_process_is_alive_whatever_else_is_wrong(method: str, body: str) -> None:
    answer = await ask([Check("slack", lambda: "not connected")], "/healthz", method)
    assert (answer.status_code, answer.text) == (200, body)


async def test_ready_when_all_is_well() -> None:
    answer = await ask([Check("slack", lambda: None)], "/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "checks": [{"name": "slack", "ok": True, "why": ""}]},
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
        },
    )


async def test_reason_holds_no_secrets_and_ends() -> None:
    why = "https://planner:sesame@host/x?token=sesame " + "x" * 500
    (check,) = (await ask([Check("producer:planner", lambda: why)], "/readyz")).json()["checks"]
    assert "sesame" not in check["why"]
    assert len(check["why"]) <= 200


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
async def test_producer_is_ready_when_connected_or_when_it_comes_by_itself(
    status: dict[str, Any] | None, why: str
) -> None:
    found = {"planner": status} if status is not None else {}
    (check,) = (await ask(producer_checks(["planner"], lambda: found), "/readyz")).json()["checks"]
    assert check == {"name": "producer:planner", "ok": not why, "why": why}


async def test_each_producer_has_its_own_check() -> None:
    found: dict[str, dict[str, Any]] = {"a": {"connected": True}, "b": {"connected": False}}
    checks = (await ask(producer_checks(["a", "b"], lambda: found), "/readyz")).json()["checks"]
    assert [(each["name"], each["ok"]) for each in checks] == [("producer:a", True), ("producer:b", False)]


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
    assert documented == {"/healthz": ["application/json"], "/readyz": ["application/json"]}
    assert list(paths["/healthz"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
