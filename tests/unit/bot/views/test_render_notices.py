from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.views.forms import message_modal
from bot.views.inert import outline
from bot.views.notices import ToolLine, error_notice, generic_notice, session_notice, tools_notice
from bot.views.render import Message, Renderer
from core.aaep import Event, parse_event
from tests.unit.bot.judges import judge_message, judge_view, labels, shown, walk
from tests.unit.bot.strategies import NOW, words

RENDERER = Renderer()
many = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def event(kind: str, **fields: Any) -> Event:
    raw = {
        "type": f"aaep:agent.{kind}",
        "event_id": "evt_1",
        "session_id": "sess_1",
        "timestamp": "2026-05-24T14:22:00Z",
        "producer": {"agent_id": "planner"},
        "urgency": "critical",
        **fields,
    }
    return parse_event(raw, NOW)


def judged(message: Message) -> Message:
    judge_message(message)
    return message


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        (
            {"error_category": "transient", "summary_normal": "No answer in time."},
            ["Category: transient (it may work when tried again)", "No answer in time."],
        ),
        (
            {"error_category": "requires_user", "summary_normal": "Sign in.", "recoverable": True},
            ["Category: requires_user (a person has to do something first)", "Recoverable"],
        ),
        ({"error_category": "policy", "error_message": "Denied."}, ["Category: policy", "Denied."]),
        ({"error_message": "Denied.", "recoverable": False}, ["Category: unknown", "Not recoverable"]),
        (
            {"summary_normal": "It broke.", "error_message": "E42", "error_code": "TOOL_TIMEOUT"},
            ["It broke.", "Message: E42", "Code: TOOL_TIMEOUT"],
        ),
        ({"summary_normal": "x", "remediation_hint": "Try later."}, ["What to do: Try later."]),
        ({}, ["The agent gave no description.", "planner stopped with an error"]),
        ({"error_category": ["odd"], "error_code": 7, "recoverable": "yes"}, ["Category: unknown"]),
    ],
)
def test_error_notice_shows(fields: dict[str, Any], seen: list[str]) -> None:
    message = judged(RENDERER.message(error_notice(event("session.errored", **fields))))
    for part in seen:
        assert part in shown(message.blocks)
        assert part in message.text


@pytest.mark.parametrize(
    ("uri", "linked"),
    [
        ("https://docs.example.com/errors/TOOL_TIMEOUT?x=1#y", True),
        ("http://127.0.0.1:8080/x", True),
        ("HTTPS://EXAMPLE.COM", True),
        ("https://user:pass@evil.example/", False),
        ("https://good.example@evil.example/", False),
        ("javascript:alert(1)", False),
        ("slack://app", False),
        ("mailto:x@example.com", False),
        ("https://", False),
        ("https:///x", False),
        ("https://example.com/a b", False),
        ("https://example.com/\u202etxt", False),
        ("https://example.com/\n", False),
        ("https://example.com/" + "x" * 3000, False),
        ("example.com", False),
        (7, False),
    ],
)
def test_error_notice_links_only_plain_web_addresses(uri: object, linked: bool) -> None:
    message = judged(
        RENDERER.message(error_notice(event("session.errored", error_uri=uri, summary_normal="x")))
    )
    urls = [item["url"] for item in walk(message.blocks) if "url" in item]
    assert urls == ([uri] if linked else [])
    assert labels(message.blocks) == (["Learn more"] if linked else [])


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (
            event(
                "awaiting.confirmation", action="Transfer $500.", consequence="Funds move.", risk_level="high",
                irreversible=True, default_decision="reject", timeout_seconds=300, extra_context={"account": 7},
            ),
            ["cannot be answered from Slack", "Transfer $500.", "Consequence: Funds move.", "Risk: high",
             "Irreversible", "If nobody decides: reject", "24 May 2026, 14:27 UTC", "account: 7"],
        ),
        (event("awaiting.confirmation", timeout_seconds="soon"), ["did not say what it wants to do"]),
        (
            event("awaiting.clarification", question="Which?", choices=[{"value": "a", "label": "Apple"}]),
            ["planner asks", "Which?", "value: a, label: Apple", "cannot be answered from Slack: reply_token missing"],
        ),
        (event("awaiting.clarification", reply_token="rpl_secret"), ["asks something that cannot be read"]),
        (event("power.lost", summary_normal="On battery."), ["planner reports agent.power.lost", "On battery."]),
        (
            event("power.lost", level=3, note="Low.", nested={"x": 1}, reply_token="rpl_secret"),
            ["level: 3", "note: Low."],
        ),
        (event("power.lost"), ["The event says nothing that can be shown."]),
    ],
)  # fmt: skip
def test_generic_notice_shows_what_no_card_can(found: Event, seen: list[str]) -> None:
    message = judged(RENDERER.message(generic_notice(found)))
    for part in seen:
        assert part in shown(message.blocks)
        assert part in message.text
    assert labels(message.blocks) == []
    assert "rpl_secret" not in shown(message.blocks) + message.text


def test_notice_too_long_goes_whole_into_the_thread() -> None:
    summary = " ".join(f"word{n}" for n in range(2000))
    message = judged(RENDERER.message(error_notice(event("session.errored", summary_normal=summary))))
    assert message.text.endswith("the whole follows in the thread.")
    assert summary in "".join(message.more)


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (event("session.completed", summary_normal="Plan ready."), ["planner is done", "Plan ready."]),
        (
            event("session.cancelled", cancelled_by="user", cancellation_reason="user_pressed_escape"),
            ["planner was cancelled", "Cancelled by: user", "Reason: user pressed escape"],
        ),
        (event("session.completed", output_summary="5 sections"), ["Result: 5 sections"]),
    ],
)
def test_session_notice_shows_how_it_ended(found: Event, seen: list[str]) -> None:
    message = judged(RENDERER.message(session_notice(found)))
    for part in seen:
        assert part in shown(message.blocks)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "No tool has finished yet."),
        ([ToolLine("fetch", "success", "Balance: $5.", 1885)], "Tool fetch done (1.9 s): Balance: $5."),
        ([ToolLine("fetch", "success")], "Tool fetch done."),
        (
            [
                ToolLine("a", "success"),
                ToolLine("b", "error", "No input.", 421),
                ToolLine("c", "success", "ok"),
            ],
            "Tool b failed (421 ms): No input.\n2 tools done, the latest c: ok",
        ),
        (
            [ToolLine("a", "timeout", "", 600_000), ToolLine("b", "error", "No.")],
            "Tool a timed out (10 min).\nTool b failed: No.",
        ),
        ([ToolLine("a\n<!here>", "odd", "x\ny")], "Tool a &lt;!here&gt; odd: x y"),
        ([ToolLine("", "", "")], "Tool (unnamed) finished."),
    ],
)
def test_tools_notice_folds_what_went_well(lines: list[ToolLine], text: str) -> None:
    assert judged(RENDERER.message(tools_notice(lines))).text == text


def test_tools_notice_counts_the_failures_that_do_not_fit() -> None:
    lines = [ToolLine(f"tool{n}", "error", "x" * 300) for n in range(40)]
    message = judged(RENDERER.message(tools_notice(lines)))
    listed = message.text.count("failed")
    assert f"{40 - listed} earlier failures are not listed." in message.text
    assert "tool39" in message.text


def test_small_modals() -> None:
    for view in (
        RENDERER.view(message_modal("A title much longer than Slack allows", "x" * 9000)),
        RENDERER.view(message_modal("", "\u202e")),
    ):
        judge_view(view)


@many
@given(
    st.sampled_from(["awaiting.confirmation", "awaiting.clarification", "handoff.requested", "x.y", "session.errored"]),
    st.dictionaries(
        st.sampled_from(
            ["action", "consequence", "reason", "question", "summary_normal", "summary_detailed", "context",
             "target_kind", "target_uri", "packaged_context", "extra_context", "choices", "error_message",
             "error_category", "error_code", "error_uri", "remediation_hint", "risk_level", "timeout_seconds", "odd"]
        ),
        words(16_384) | st.integers() | st.none() | st.recursive(
            words(300) | st.booleans(), lambda inner: st.lists(inner) | st.dictionaries(words(50), inner), max_leaves=20
        ),
    ),
)  # fmt: skip
def test_notices_of_any_event_are_taken_by_slack_and_inert(kind: str, fields: dict[str, Any]) -> None:
    found = event(kind, **json.loads(json.dumps(fields)))
    judged(RENDERER.message(generic_notice(found)))
    judged(RENDERER.message(error_notice(found)))
    judged(RENDERER.message(session_notice(found)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ({}, ""),
        ("word", "word"),
        ({"a": 1, "b": True, "c": None, "d": []}, "a: 1\nb: yes\nc: (none)\nd: "),
        (["x", "y"], "- x\n- y"),
        ([{"a": 1, "b": 2}, {"a": 3}], "- a: 1, b: 2\n- a: 3"),
        ({"a": {"b": {"c": 1}}}, "a:\n  b:\n    c: 1"),
    ],
)
def test_outline_reads_as_lines(value: object, text: str) -> None:
    assert outline(value, 3000) == text


def test_outline_survives_depth() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"x": deep}
    assert outline(deep, 3000).endswith("…")
