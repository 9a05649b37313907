"""`aaep-conformance` run against our HTTP door, at its highest level, and its checks on our own messages.

Its subscriber tests open `GET {base}/events` at us and post two events to `{base}/messages`, with the same ids and a
timestamp of long ago on every run. Levels 2 and 3 add no tests for subscribers: what they ask of one is judged here by
its checks of messages: our `subscription.request`, our `subscription.accepted` to one that pushes, and the envelopes
that the demo's agent sends. Its validator does not know replies; `tests/unit/core` holds these against the protocol's
own schema.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from bot.ask.client import address, subscription_request
from bot.http import HttpClient, json_body
from tests.acceptance.world import question
from tests.kit.clocks import ManualClock
from tests.unit.bot.web.test_push import open_door
from workspace.demo.producer import DemoProducer

_EVENTS = ["evt_conftest001", "evt_conftestX"]


@pytest.fixture
def checks() -> Any:
    """The package's own checks; importing them warns of a library that it uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from aaep_conformance import checks as found  # type: ignore[import-untyped]
    return found


def wrong(results: Any) -> list[str]:
    """What a check finds wrong; it gives one result or several."""
    each = results if isinstance(results, list) else [results]
    return [f"{result.test_id}: {result.message}" for result in each if not result.passed]


async def test_subscriber_passes_at_the_highest_level_and_again_at_its_root(tmp_path: Path) -> None:
    async with open_door(tmp_path, ManualClock(), {"conformance": None}) as door:
        for base in (f"{door.server.url}/aaep/v1", door.server.url):
            report = await _run(base, 3, tmp_path)
            assert (report["verdict"], report["tests_passed"], report["tests_failed"]) == ("PASS", 2, 0)
        assert await door.bot.ids() == _EVENTS  # the same ids on every run


async def _run(base: str, level: int, folder: Path) -> dict[str, Any]:
    """What the tool reports."""
    report = folder / "report.json"
    options = ["--connect", base, "--level", str(level), "--timeout", "60", "--fail-on-warning"]
    reports = ["--report-json", str(report), "--report-html", str(folder / "report.html")]
    tool = [sys.executable, "-m", "aaep_conformance.cli", "subscriber"]
    process = await asyncio.create_subprocess_exec(
        *tool,
        *options,
        *reports,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    found: dict[str, Any] = json.loads(report.read_text())
    return found


async def test_subscription_accepted_of_one_that_pushes_passes_the_checks(
    tmp_path: Path, checks: Any
) -> None:
    request = subscription_request("0.1.0")
    async with open_door(tmp_path, ManualClock(), {"conformance": None}) as door:
        accepted = (await door.client.post("/aaep/v1/messages", json=request)).json()
    assert wrong(checks.check_subscription_accepted_valid(accepted)) == []
    assert wrong(checks.check_honored_capabilities_not_more_permissive(request, accepted)) == []


async def test_handshake_passes_the_conformance_checks(checks: Any) -> None:
    request = subscription_request("0.1.0")
    async with DemoProducer("planner-agent") as producer, HttpClient(None) as client:
        url = address(producer.url, "/aaep/v1/subscriptions")
        answer = await client.request("POST", url, json_body(request))
    accepted = json.loads(answer.body)
    assert wrong(checks.check_subscription_request_valid(request)) == []
    assert wrong(checks.check_subscription_accepted_valid(accepted)) == []
    assert wrong(checks.check_honored_capabilities_not_more_permissive(request, accepted)) == []


async def test_events_of_the_demo_agent_pass_the_envelope_checks(checks: Any) -> None:
    async with DemoProducer("planner-agent") as producer:
        asked = question("rpl_abcdefgh12345678", "sess_abcdef123456", event_id="evt_abcdef123456")
        event = await producer.emit(asked)
    for check in ("envelope_required_fields", "event_id_format", "session_id_format", "timestamp_format"):
        assert wrong(getattr(checks, f"check_{check}")(event)) == []
    assert wrong(checks.check_producer_field(event)) == []
