"""The card of a handoff: the agent's words, who has it, and its controls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.views.notices import CONTEXT_LIMIT, Handoff, handoff_body, handoff_card, handoff_of
from bot.views.page import Matter, State
from bot.views.render import Message, Renderer
from core.aaep import parse_event
from tests.unit.bot.judges import judge_message, labels, shown
from tests.unit.bot.strategies import words

RENDERER = Renderer()
NOW = datetime(2026, 5, 24, 14, 22, tzinfo=UTC)


def handoff(**fields: Any) -> Handoff:
    raw = {
        "type": "aaep:agent.handoff.requested",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "planner"},
        **fields,
    }
    return handoff_of(parse_event(raw, NOW))


def card(found: Handoff, state: State = "live", **fields: Any) -> Message:
    message = RENDERER.message(handoff_card(found, Matter(7, "handoff", "", "", state=state, **fields)))
    judge_message(message)
    return message


def test_card_says_in_blocks_and_in_text_what_is_handed_over_to_whom() -> None:
    message = card(
        handoff(
            reason="Tax law.",
            target_kind="specialist_agent",
            target_uri="queue://tax",
            urgency_for_handoff="medium",
            packaged_context={"tools": ["a", "b"], "open": {"question": "401k?"}},
        )
    )
    for each in (shown(message.blocks), message.text):
        for said in (
            "planner hands over to a specialist agent",
            "Nobody has it yet",
            "Tax law.",
            "To: specialist agent",
            "At: queue://tax",
            "Urgency: medium",
            "clarify-bot does not pass this on",
            "tools: a, b",
            "open:\n  question: 401k?",
        ):
            assert said in each, said
    assert labels(message.blocks) == ["Take", "Hand to…"]


@pytest.mark.parametrize(
    ("state", "fields", "said", "controls"),
    [
        ("live", {}, "Nobody has it yet", ["Take", "Hand to…"]),
        ("live", {"who": "U0GOOD", "handed": True}, "Handed to <@U0GOOD>", ["Take", "Hand to…"]),
        ("snoozed", {"until": NOW, "asleep_by": "U0GOOD"}, "Snoozed until", ["Take", "Hand to…"]),
        ("taken", {"who": "U0GOOD"}, "Taken by <@U0GOOD>", ["Hand to…"]),
        ("closed", {"who": "U0GOOD"}, "Taken by <@U0GOOD>", []),
        ("closed", {}, "Closed", []),
    ],
)
def test_card_tells_who_has_it(state: State, fields: dict[str, Any], said: str, controls: list[str]) -> None:
    message = card(handoff(reason="Tax law."), state, **fields)
    assert said in shown(message.blocks)
    assert said in message.text
    assert labels(message.blocks) == controls


def test_card_of_an_empty_handoff_says_so() -> None:
    message = card(handoff())
    assert "The agent gave no reason." in message.text
    assert "planner hands over to a human" in message.text


def test_handoff_survives_being_kept_and_fields_of_other_releases() -> None:
    found = handoff(reason="Tax law.", packaged_context={"a": [1, {"b": None}]})
    assert Handoff.from_json(found.as_json() | {"later": 1}) == found
    assert Handoff.from_json({"agent": "A"}).reason == ""


def test_context_beyond_any_message_says_so_and_the_rest_is_in_pieces() -> None:
    message = card(handoff(reason="Much.", packaged_context={"all": "word " * CONTEXT_LIMIT}))
    assert len("".join(message.more)) > CONTEXT_LIMIT
    assert "longer than clarify-bot shows" in message.more[-1]


def test_agents_words_mention_nobody() -> None:
    found = handoff(reason="<!channel> <@U1>", target_kind="<!here>", target_uri="<https://x|y>")
    message = card(found)
    assert "<" not in message.text
    assert all(word in handoff_body(found) for word in ("<!channel>", "<https://x|y>"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["reason", "target_kind", "target_uri", "summary_normal"]), words(limit=200)
    ),
    words(limit=200),
)
def test_any_handoff_makes_a_message_that_slack_takes(fields: dict[str, str], packed: str) -> None:
    card(handoff(**fields, packaged_context={packed: [packed, {packed: packed}]}))
