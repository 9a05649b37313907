from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from bot.views.codec import Press
from bot.views.forms import full_view
from bot.views.render import Message, Renderer
from core.clarification import Answer, Clarification, Decider, abandoned, answered
from core.matching import followed_up
from tests.unit.bot.judges import judge_message, judge_view, labels, shown
from tests.unit.bot.strategies import NOW, SLA, ask_of, record_of

RENDERER = Renderer()
IN_SLACK = Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD")
SHORT = [{"value": "60", "label": "Age 60"}, {"value": "65", "label": "Age 65 (standard)"}]


def card(record: Clarification, **options: Any) -> Message:
    message = RENDERER.card(record, **options)
    judge_message(message)
    return message


def kinds(*names: str, **more: Any) -> Clarification:
    return record_of(accepted_response_kinds=list(names), **more)


def answer(record: Clarification, said: str = "Age 65 (standard)", by: Decider = IN_SLACK) -> Clarification:
    return answered(record, Answer("65", said), by, NOW + timedelta(minutes=1))


EVENT: dict[str, Any] = {
    "type": "aaep:agent.awaiting.clarification",
    "event_id": "evt_2",
    "session_id": "sess_1",
    "timestamp": "2026-05-24T14:22:00Z",
    "producer": {"agent_id": "retirement-planner"},
    "reply_token": "rpl_2",
    "timeout_seconds": 300,
}


def test_text_read_aloud_stands_alone() -> None:
    record = record_of(
        choices=SHORT, context="Savings.", default_response="65",
        accepted_response_kinds=["multiple_choice", "numeric"],
    )  # fmt: skip
    message = card(record)
    assert message.more == ()
    assert message.text == (
        "retirement-planner asks (CLR-42-001): Which retirement age should I plan for?\n"
        "Choices:\n1. Age 60\n2. Age 65 (standard)\n"
        "Context: Savings.\n"
        "Answer by 24 May 2026, 14:27 UTC. If nobody answers, the agent assumes “Age 65 (standard)”.\n"
        "Reply with the number of a choice (1), or its label, or a number (1200 or 12.5). "
        "Start with note: to comment without answering."
    )


def test_text_too_long_begins_and_points_to_the_thread() -> None:
    question = " ".join(f"word{n}" for n in range(1500))
    message = card(kinds("yes_no", question=question, default_response="no"))
    assert message.text.startswith("retirement-planner asks (CLR-42-001): word0 word1")
    assert "…\nThis is only the beginning; the whole follows in the thread.\nAnswer by" in message.text
    assert message.text.endswith("Reply with yes or no. Start with note: to comment without answering.")
    assert question in "".join(message.more)
    assert "View full" in labels(message.blocks)


def test_view_full_stays_on_a_closed_card_that_cuts() -> None:
    record = abandoned(kinds("yes_no", question="x" * 16_000), "expired", NOW)
    message = card(record)
    assert labels(message.blocks) == ["View full"]
    view = RENDERER.view(full_view(record))
    judge_view(view)
    assert shown(view).replace("\n", "").count("x") >= 16_000


def test_full_view_turns_pages_where_one_view_is_not_enough(largest: Clarification) -> None:
    first = RENDERER.view(full_view(largest))
    judge_view(first)
    assert labels(first) == ["Next"]
    assert Press.unpack(first["private_metadata"]) == Press("view", "CLR-42-001", 1, "1")
    second = RENDERER.view(full_view(largest, page=2))
    assert labels(second)[0] == "Previous"
    last = re.search(r"Page 2 of (\d+)", shown(second))
    assert last is not None
    assert RENDERER.view(full_view(largest, page=99)) == RENDERER.view(full_view(largest, page=int(last[1])))


def test_full_view_shows_the_thread() -> None:
    record = followed_up(answer(record_of()), ask_of({**EVENT, "question": "Again?"}), NOW, SLA)
    seen = shown(RENDERER.view(full_view(record)))
    assert "answer · user:slack/T1/U0GOOD\nAge 65 (standard)" in seen
    assert "question · retirement-planner\nAgain?" in seen


def test_card_that_cuts_choices_still_lists_every_one(largest: Clarification) -> None:
    sections = [block["text"]["text"] for block in card(largest).blocks if block["type"] == "section"]
    listed = "\n".join(sections)
    assert [n for n in range(1, 33) if f"{n}. 𝔏𝔏" not in listed] == []


def test_long_default_is_whole_in_the_thread_and_in_full() -> None:
    default = " ".join(f"word{n}" for n in range(400))
    record = record_of(default_response=default)
    message = card(record)
    assert default in "".join(message.more)
    assert "View full" in labels(message.blocks)
    expired = abandoned(record, "expired", NOW)
    assert labels(card(expired).blocks) == ["View full"]
    assert default in shown(RENDERER.view(full_view(expired))).replace("\n", "")
