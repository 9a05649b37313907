"""What `aaep-conformance` can judge of a subscriber that connects by itself.

Its subscriber tests open `GET {base}/events` at the subscriber and post events to `{base}/messages`: they need the HTTP
door for producers that push, which this version does not have. So none of its levels is run here. What can be
judged are messages: our `subscription.request`, what is honoured of it, and the envelopes that the demo's agent sends.
Its validator does not know replies; `tests/unit/core` holds these against the protocol's own schema.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from bot.demo.producer import DemoProducer
from bot.producers.client import json_body, open_client, post
from bot.producers.dialects import address, subscription_request
from tests.acceptance.world import question


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


async def test_handshake_passes_the_conformance_checks(checks: Any) -> None:
    request = subscription_request("0.1.0")
    client = open_client(None)
    async with DemoProducer("planner-agent") as producer:
        answer = await post(client, address(producer.url, "/aaep/v1/subscriptions"), json_body(request))
    await client.aclose()
    accepted = json.loads(answer.body)
    assert wrong(checks.check_subscription_request_valid(request)) == []
    assert wrong(checks.check_subscription_accepted_valid(accepted)) == []
    assert wrong(checks.check_honored_capabilities_not_more_permissive(request, accepted)) == []


@pytest.mark.parametrize(
    "check",
    [
        "check_envelope_required_fields",
        "check_event_id_format",
        "check_session_id_format",
        "check_timestamp_format",
        "check_producer_field",
    ],
)
async def test_events_of_the_demo_agent_pass_the_envelope_checks(checks: Any, check: str) -> None:
    async with DemoProducer("planner-agent") as producer:
        event = await producer.emit(
            question("rpl_abcdefgh12345678", "sess_abcdef123456", event_id="evt_abcdef123456")
        )
    assert wrong(getattr(checks, check)(event)) == []
