"""What a responder is told."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from core.aaep import Choice
from core.clarification import Answer, answered
from core.dispatch import inquiry_of
from core.matching import followed_up
from core.workflow import role_name
from tests.unit.core.records import ADE, NOW, SLA, ask, record


def test_inquiry_tells_all_of_the_round() -> None:
    first = record(
        question="Which format?", to="architect", topic="wire format", context="Two candidates.",
        kinds=("multiple_choice",), choices=(Choice("json", "JSON"), Choice("yaml", "YAML")),
    )  # fmt: skip
    told = inquiry_of(first, attempt=2, last_error="Reply with the number of a choice (1).").as_json()
    assert json.loads(json.dumps(told)) == {
        "clarificationId": "CLR-42-001",
        "issueNumber": 42,
        "from": "retirement-planner",
        "to": "architect",
        "topic": "wire format",
        "question": "Which format?",
        "blocking": True,
        "round": 1,
        "maxRounds": 5,
        "context": "Two candidates.",
        "acceptedResponseKinds": ["multiple_choice"],
        "choices": [{"value": "json", "label": "JSON"}, {"value": "yaml", "label": "YAML"}],
        "thread": [
            {
                "round": 1,
                "from": "retirement-planner",
                "type": "question",
                "body": "Which format?",
                "timestamp": "2026-05-24T14:22:00.000Z",
            }
        ],
        "answerBy": "2026-05-24T15:22:00.000Z",
        "attempt": 2,
        "lastError": "Reply with the number of a choice (1).",
    }


def test_inquiry_of_a_later_round_has_the_thread_and_the_latest_question() -> None:
    first = answered(record(to="architect", topic="format"), Answer("JSON", "JSON"), ADE, NOW)
    again = followed_up(
        first, ask(question="Which version?", expires_at=None), NOW + timedelta(minutes=1), SLA
    )
    told = inquiry_of(again)
    assert (told.round, told.question, told.answer_by) == (2, "Which version?", None)
    assert [entry.body for entry in told.thread] == ["Deploy to production?", "JSON", "Which version?"]


def test_inquiry_is_silent_about_its_words() -> None:
    told = inquiry_of(
        record(question="Is it s3cret?", topic="t0pic", context="c0ntext", choices=(Choice("ch0ice", "ch0ice"),)),
        last_error="err0r",
    )  # fmt: skip
    assert "CLR-42-001" in repr(told)
    assert not [word for word in ("s3cret", "t0pic", "c0ntext", "ch0ice", "err0r") if word in repr(told)]


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("architect", "architect"),
        (" product \n\tmanager\x00\u202e ", "product manager"),
        ("x" * 81, "x" * 79 + "…"),
    ],
)
def test_role_name_is_one_line(role: str, name: str) -> None:
    assert role_name(role) == name
