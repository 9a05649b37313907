"""Notices: errors, what no card can show, tool results, ends of sessions, handoffs, reminders."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bot.views.blockkit import Draft
from bot.views.notices import (
    CONTEXT_LIMIT,
    Handoff,
    ToolLine,
    error_notice,
    generic_notice,
    handoff_card,
    handoff_of,
    nudge,
    rollup_nudge,
    session_notice,
    tools_notice,
)
from bot.views.page import ItemState, PageItem
from bot.views.render import RenderedMessage
from core.clarification import Clarification
from tests.kit.times import walk
from tests.unit.bot.judges import RENDERER, labels, shown
from tests.unit.bot.strategies import NOW, record_of
from tests.unit.bot.views.kit import event, judged

LATER = NOW + timedelta(minutes=2)
many = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def handoff(**fields: Any) -> Handoff:
    return handoff_of(event("handoff.requested", **fields))


def card(found: Handoff, state: ItemState = "live", **fields: Any) -> RenderedMessage:
    return judged(handoff_card(found, PageItem(7, "handoff", "", "", state=state, **fields)))


def failed(**fields: Any) -> Draft:
    return error_notice(event("session.errored", **fields))


@pytest.mark.parametrize(("draft", "seen"), [
    (failed(error_category="transient", summary_normal="No answer in time."),
     ["Category: transient (retrying may help)", "No answer in time."]),
    (failed(error_category="requires_user", summary_normal="Sign in.", recoverable=True),
     ["Category: requires_user (a person has to act first)", "Recoverable"]),
    (failed(summary_normal="It broke.", error_message="E42", error_code="TOOL_TIMEOUT"),
     ["It broke.", "Message: E42", "Code: TOOL_TIMEOUT"]),
    (failed(), ["The agent gave no description.", "planner stopped with an error"]),
    (failed(error_category=["odd"], error_code=7, recoverable="yes"), ["Category: unknown"]),
    (
        generic_notice(event(
            "awaiting.confirmation", action="Transfer $500.", consequence="Funds move.", risk_level="high",
            irreversible=True, default_decision="reject", timeout_seconds=300, extra_context={"account": 7},
        )),
        ["cannot be answered from Slack", "Transfer $500.", "Consequence: Funds move.", "Risk: high",
         "Irreversible", "If no one decides: reject", "24 May 2026, 14:27 UTC", "account: 7"],
    ),
    (generic_notice(event("awaiting.clarification", question="Which?", choices=[{"value": "a", "label": "Apple"}])),
     ["planner asks", "Which?", "label: Apple", "cannot be answered from Slack: reply_token missing"]),
    (generic_notice(event("power.lost", summary_normal="On battery.")), ["planner reports agent.power.lost", "On battery."]),
    (generic_notice(event("power.lost", level=3, note="Low.", nested={"x": 1}, reply_token="rpl_secret")),
     ["level: 3", "note: Low."]),
    (session_notice(event("session.completed", summary_normal="Plan ready.")), ["planner is done", "Plan ready."]),
    (session_notice(event("session.cancelled", cancelled_by="user", cancellation_reason="user_pressed_escape")),
     ["planner was cancelled", "Cancelled by: user", "Reason: user pressed escape"]),
    (session_notice(event("session.completed", output_summary="5 sections")), ["Result: 5 sections"]),
])  # fmt: skip
def test_notice_says(draft: Draft, seen: list[str]) -> None:
    message = judged(draft)
    for part in seen:
        assert part in shown(message.blocks)
        assert part in message.text
    assert labels(message.blocks) == []
    assert "rpl_secret" not in shown(message.blocks) + message.text


@pytest.mark.parametrize(
    ("uri", "linked"),
    [
        ("https://docs.example.com/errors/TOOL_TIMEOUT?x=1#y", True),
        ("http://127.0.0.1:8080/x", True),
        ("HTTPS://EXAMPLE.COM", True),
        ("https://good.example@evil.example/", False),
        ("javascript:alert(1)", False),
        ("https://example.com/a b", False),
        ("https://example.com/\u202etxt", False),
        ("https://example.com/\n", False),
        ("https://example.com/" + "x" * 3000, False),
        (7, False),
    ],
)
def test_error_notice_links_only_plain_web_addresses(uri: object, linked: bool) -> None:
    message = judged(failed(error_uri=uri, summary_normal="x"))
    urls = [item["url"] for item in walk(message.blocks) if "url" in item]
    assert urls == ([uri] if linked else [])
    assert labels(message.blocks) == (["Learn more"] if linked else [])


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "No tool has finished yet."),
        (
            [
                ToolLine("a", "success"),
                ToolLine("b", "error", "No input.", 421),
                ToolLine("c", "success", "ok"),
            ],
            "Tool b failed (421 ms): “No input.”\n2 tools done, the latest c: “ok”.",
        ),
        (
            [ToolLine("a", "timeout", "", 600_000), ToolLine("b", "error", "No.")],
            "Tool a timed out (10 min).\nTool b failed: “No.”",
        ),
        ([ToolLine("", "", "")], "Tool (unnamed) finished."),
    ],
)
def test_tools_notice_folds_what_went_well(lines: list[ToolLine], text: str) -> None:
    assert judged(tools_notice(lines)).text == text


def test_tools_notice_counts_the_failures_that_do_not_fit() -> None:
    lines = [ToolLine(f"tool{n}", "error", "x" * 300) for n in range(40)]
    message = judged(tools_notice(lines))
    listed = message.text.count("failed")
    assert f"{40 - listed} earlier failures are not listed." in message.text
    assert "tool39" in message.text


@pytest.mark.parametrize(
    ("state", "fields", "said", "controls"),
    [
        ("live", {}, "Unclaimed", ["Take", "Hand to…"]),
        ("live", {"who": "U0GOOD", "handed": True}, "Handed to <@U0GOOD>", ["Take", "Hand to…"]),
        ("snoozed", {"until": NOW, "asleep_by": "U0GOOD"}, "Snoozed until", ["Take", "Hand to…"]),
        ("taken", {"who": "U0GOOD"}, "Claimed by <@U0GOOD>", ["Hand to…"]),
        ("closed", {"who": "U0GOOD"}, "Claimed by <@U0GOOD>", []),
        ("closed", {}, "Closed", []),
    ],
)
def test_card_tells_who_has_it(
    state: ItemState, fields: dict[str, Any], said: str, controls: list[str]
) -> None:
    message = card(handoff(reason="Tax law."), state, **fields)
    assert said in shown(message.blocks)
    assert said in message.text
    assert labels(message.blocks) == controls


def test_context_beyond_any_message_says_so_and_the_rest_is_in_pieces() -> None:
    message = card(handoff(reason="Much.", packaged_context={"all": "word " * CONTEXT_LIMIT}))
    assert len("".join(message.more)) > CONTEXT_LIMIT
    assert "Too long to show here" in message.more[-1]


def said(record: Clarification, *answerers: str) -> RenderedMessage:
    return judged(nudge(record, answerers))


def test_nudge_says_what_is_asked_and_how_to_answer() -> None:
    record = record_of(default_response="65", accepted_response_kinds=["yes_no"])
    message = said(record, "U0GOOD")
    seen = shown(message.blocks)
    for part in (
        "retirement-planner is still waiting · CLR-42-001",
        "<@U0GOOD>",
        "Which retirement age should I plan for?",
        "Answer by <!date^1779632820^",
        "If no one answers, the agent uses its default: “65”",
        "Answer on its card, or in this thread: reply with yes or no.",
    ):
        assert part in seen
    assert message.text.splitlines() == [
        "retirement-planner is still waiting · CLR-42-001.",
        "<@U0GOOD>",
        "“Which retirement age should I plan for?”",
        "Answer by 24 May 2026, 14:27 UTC. If no one answers, the agent uses its default: “65”.",
        "Answer on its card, or in this thread: reply with yes or no.",
    ]
    assert labels(message.blocks) == []


@pytest.mark.parametrize(
    ("answerers", "called"),
    [
        (("members",), ""),
        (("U0A", "S0B", "U0A"), "<@U0A> <!subteam^S0B>"),
        (tuple(f"U{n}" for n in range(30)), " ".join(f"<@U{n}>" for n in range(20))),
    ],
)
def test_nudge_calls_who_is_listed(answerers: tuple[str, ...], called: str) -> None:
    message = RENDERER.message(nudge(record_of(), answerers))
    live = [
        b["text"]["text"] for b in message.blocks if b["type"] == "section" and b["text"]["type"] == "mrkdwn"
    ]
    assert live == ([called] if called else [])
    assert f"\n{called}\n" in message.text if called else "<" not in message.text


def test_nudge_gives_the_beginning_of_a_long_question(largest: Clarification) -> None:
    message = said(largest, "U0GOOD")
    assert len(message.text) < 2000
    assert "…" in message.text
    assert message.more == ()


@pytest.mark.parametrize(
    ("count", "words"), [(1, "is still waiting · 1 question."), (12, "is still waiting · 12 questions.")]
)
def test_nudge_of_a_rollup_counts(count: int, words: str) -> None:
    message = judged(rollup_nudge("<!here> planner", count, LATER, ("members", "U0GOOD")))
    assert words in message.text
    assert "First deadline: 24 May 2026, 14:24 UTC." in message.text
    assert "shared card" in shown(message.blocks)
