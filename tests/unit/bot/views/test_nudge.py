"""Nudges: what they say, and that each is said once. Real ledger, storage and templates."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from bot.views.notices import nudge, rollup_nudge
from bot.views.render import Message, Renderer
from core.clarification import Clarification, Decider
from tests.unit.bot.judges import judge_message, labels, shown
from tests.unit.bot.strategies import NOW, open_records, record_of

RENDERER = Renderer()
LATER = NOW + timedelta(minutes=2)
DECIDER = Decider("user:ade", "slack", "T1", "U0GOOD")


def said(record: Clarification, *answerers: str) -> Message:
    message = RENDERER.message(nudge(record, answerers))
    judge_message(message)
    return message


def test_nudge_says_what_is_asked_and_how_to_answer() -> None:
    record = record_of(default_response="65", accepted_response_kinds=["yes_no"])
    message = said(record, "U0GOOD")
    seen = shown(message.blocks)
    for words in (
        "retirement-planner still waits · CLR-42-001",
        "<@U0GOOD>",
        "Which retirement age should I plan for?",
        "Answer by <!date^1779632820^",
        "If nobody answers, the agent assumes “65”",
        "Answer on its card, or in this thread: reply with yes or no.",
    ):
        assert words in seen
    assert message.text.splitlines() == [
        "<@U0GOOD> retirement-planner still waits for an answer (CLR-42-001): Which retirement age should I plan for?",
        "Answer by 24 May 2026, 14:27 UTC.",
        "If nobody answers, the agent assumes “65”.",
        "Answer on its card, or in this thread: reply with yes or no.",
    ]
    assert labels(message.blocks) == []


@pytest.mark.parametrize(
    ("answerers", "called"),
    [
        (("members",), ""),
        (("members", "U0GOOD"), "<@U0GOOD>"),
        (("U0A", "S0B", "U0A"), "<@U0A> <!subteam^S0B>"),
        (tuple(f"U{n}" for n in range(30)), " ".join(f"<@U{n}>" for n in range(20))),
        ((), ""),
    ],
)
def test_nudge_calls_who_is_listed(answerers: tuple[str, ...], called: str) -> None:
    message = RENDERER.message(nudge(record_of(), answerers))
    live = [
        b["text"]["text"] for b in message.blocks if b["type"] == "section" and b["text"]["type"] == "mrkdwn"
    ]
    assert live == ([called] if called else [])
    assert message.text.startswith(f"{called} retirement-planner" if called else "retirement-planner")


def test_nudge_without_a_time_limit_says_so() -> None:
    message = said(record_of(timeout_seconds=None))
    assert "No time limit." in message.text
    assert "If nobody answers" not in message.text


def test_nudge_gives_the_beginning_of_a_long_question(largest: Clarification) -> None:
    message = said(largest, "U0GOOD")
    assert len(message.text) < 2000
    assert "…" in message.text
    assert message.more == ()


@given(open_records())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_nudge_is_inert(record: Clarification) -> None:
    said(record, "U0GOOD", "members")


@pytest.mark.parametrize(
    ("count", "words"), [(1, "answers to 1 question."), (12, "answers to 12 questions.")]
)
def test_nudge_of_a_rollup_counts(count: int, words: str) -> None:
    message = RENDERER.message(rollup_nudge("<!here> planner", count, LATER, ("members", "U0GOOD")))
    judge_message(message)
    assert words in message.text
    assert "The first must be answered by 24 May 2026, 14:24 UTC." in message.text
    assert "common card" in shown(message.blocks)
