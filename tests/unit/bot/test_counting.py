"""Every try to reach a party outside is counted by kind and outcome, and does what it does uncounted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.counting import CountedGateway, kind_of
from bot.slackapi import Draft, Gateway, Later, Never, Outcome, Sent, Unknown
from bot.telemetry import Telemetry
from tests.kit.clocks import ManualClock


class Scripted(Gateway):
    """Slack that answers as told."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(AsyncWebClient(), "0" * 16)
        self._outcome = outcome

    async def post(self, channel: str, draft: Draft) -> Outcome:
        return self._outcome

    async def update(self, channel: str, ts: str, draft: Draft) -> Outcome:
        return self._outcome

    async def whisper(
        self, user: str, channel: str, thread_ts: str | None, text: str, blocks: Any = None
    ) -> Outcome:
        return self._outcome


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry(ManualClock())


def draft(kind: str, key: str = "") -> Draft:
    return Draft("text", [], {"event_type": kind, "event_payload": {"key": key}})


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"event_type": "clarify_card", "event_payload": {"clarification": "CLR-1-001"}}, "card"),
        ({"event_type": "clarify_page", "event_payload": {"key": "page:1:U1"}}, "page"),
        ({"event_type": "clarify_notice", "event_payload": {"key": "nudge:CLR-1-001:1"}}, "nudge"),
        ({"event_type": "clarify_notice", "event_payload": {"key": "of-an-agent:17"}}, "notice"),
        ({}, "notice"),
    ],
)
def test_kind_of_a_message_is_one_of_ours(metadata: Mapping[str, Any], kind: str) -> None:
    assert kind_of(metadata) == kind


@pytest.mark.parametrize(
    ("outcome", "word", "page"),
    [
        (Sent("C1", "1.1"), "sent", "sent"),
        (Later("busy"), "later", None),
        (Unknown("dropped"), "unknown", None),
        (Never("channel_not_found", "place"), "never", "failed"),
    ],
    ids=["sent", "later", "unknown", "never"],
)
async def test_message_is_counted(
    telemetry: Telemetry, outcome: Outcome, word: str, page: str | None
) -> None:
    gateway = CountedGateway(Scripted(outcome), telemetry)
    assert await gateway.post("C1", draft("clarify_page")) == outcome
    assert await gateway.update("C1", "1.1", draft("clarify_page")) == outcome  # no second page
    assert await gateway.whisper("U1", "C1", None, "psst") == outcome
    assert telemetry.deliveries == {("page", word): 2, ("whisper", word): 1}
    assert set(telemetry.retries) == (set() if page else {"page"})
    assert telemetry.pages == ({("slack", page): 1} if page else {})
