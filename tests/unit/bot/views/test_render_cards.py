from __future__ import annotations

from typing import Any

import pytest

from bot.views.codec import Press
from bot.views.render import Message, Renderer
from core.clarification import (
    Clarification,
    Entry,
)
from tests.unit.bot.judges import judge_message, labels, shown, walk
from tests.unit.bot.strategies import NOW, record_of

RENDERER = Renderer()
SHORT = [{"value": "60", "label": "Age 60"}, {"value": "65", "label": "Age 65 (standard)"}]
LONG = [{"value": str(n), "label": f"Choice {n} " + "x" * 60} for n in range(3)]
TWINS = [{"value": "a", "label": "Same"}, {"value": "b", "label": "same"}]
MANY = [{"value": str(n), "label": f"Choice {n}"} for n in range(6)]
OWN_NAMES = [{"value": "a", "label": "Yes"}, {"value": "b", "label": "View full"}]


def card(record: Clarification, **options: Any) -> Message:
    message = RENDERER.card(record, **options)
    judge_message(message)
    return message


def kinds(*names: str, **more: Any) -> Clarification:
    return record_of(accepted_response_kinds=list(names), **more)


def menu(message: Message) -> list[str]:
    return [
        option["text"]["text"]
        for item in walk(message.blocks)
        if item.get("type") == "static_select"
        for option in item["options"]
    ]


@pytest.mark.parametrize(
    ("record", "buttons", "options"),
    [
        (kinds("yes_no"), ["Yes", "No"], []),
        (kinds("freetext"), ["Answer…"], []),
        (kinds("numeric"), ["Answer…"], []),
        (kinds("yes_no", "freetext"), ["Yes", "No", "Answer…"], []),
        (kinds("multiple_choice", choices=SHORT), ["Age 60", "Age 65 (standard)"], []),
        (kinds("multiple_choice", "numeric", choices=SHORT), ["Age 60", "Age 65 (standard)", "Answer…"], []),
        (
            kinds("multiple_choice", "yes_no", choices=SHORT),
            ["Age 60", "Age 65 (standard)", "Yes", "No"],
            [],
        ),
        (kinds("multiple_choice", choices=MANY), [], [f"{n + 1}. Choice {n}" for n in range(6)]),
        (kinds("multiple_choice", choices=TWINS), [], ["1. Same", "2. same"]),
        (kinds("multiple_choice", choices=OWN_NAMES), [], ["1. Yes", "2. View full"]),
        (kinds("multiple_choice", choices=SHORT, multi_select=True), ["Answer…"], []),
        (record_of(choices=SHORT), ["Age 60", "Age 65 (standard)"], []),
        (record_of(options=["Staging", "Production"]), ["Staging", "Production"], []),
        (record_of(options=["a", "b"], free_form_allowed=True), ["a", "b", "Answer…"], []),
        (record_of(), ["Answer…"], []),
    ],
)
def test_card_controls_by_kinds(record: Clarification, buttons: list[str], options: list[str]) -> None:
    message = card(record)
    assert labels(message.blocks) == buttons
    assert menu(message) == options


def test_card_controls_carry_clarification_round_and_choice() -> None:
    message = card(kinds("multiple_choice", "yes_no", "freetext", choices=SHORT))
    pressed = [Press.unpack(item["value"]) for item in walk(message.blocks) if "value" in item]
    assert [(each.verb, each.arg) for each in pressed] == [
        ("choice", "0"), ("choice", "1"), ("yes", ""), ("no", ""), ("answer", ""),
    ]  # fmt: skip
    assert {(each.clarification, each.round) for each in pressed} == {("CLR-42-001", 1)}


@pytest.mark.parametrize("choices", [LONG, TWINS, MANY, OWN_NAMES])
def test_card_lists_choices_in_full_beside_a_menu(choices: list[dict[str, str]]) -> None:
    seen = shown(card(kinds("multiple_choice", choices=choices)).blocks)
    for n, choice in enumerate(choices, 1):
        assert f"{n}. {choice['label']}" in seen


def test_card_buttons_have_no_colour() -> None:
    assert not any("style" in item for item in walk(card(kinds("yes_no")).blocks))


@pytest.mark.parametrize(
    ("verbosity", "seen", "unseen"),
    [
        (
            "terse",
            ["Which retirement age", "Answer by"],
            ["Context:", "Details:", "assumes", "thread", "Topic"],
        ),
        (
            "normal",
            ["Context: Savings.", "assumes “65”", "Or in this thread: reply with", "Topic: t"],
            ["Details:"],
        ),
        ("detailed", ["Context: Savings.", "Details: All of it.", "assumes “65”"], []),
    ],
)
def test_card_verbosity(verbosity: Any, seen: list[str], unseen: list[str]) -> None:
    record = record_of("t", context="Savings.", default_response="65", summary_detailed="All of it.")
    words = shown(card(record, verbosity=verbosity).blocks)
    assert [part for part in seen if part not in words] == []
    assert [part for part in unseen if part in words] == []


def test_card_terse_offers_what_it_hides() -> None:
    assert labels(card(record_of(context="Why."), verbosity="terse").blocks) == ["Answer…", "View full"]
    assert labels(card(record_of(), verbosity="terse").blocks) == ["Answer…"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"default_response": "65"}, "If nobody answers, the agent assumes “65”"),
        ({"default_response": False}, "If nobody answers, the agent assumes “no”"),
        ({}, "If nobody answers, the agent decides on its own."),
        ({"timeout_seconds": None}, "No time limit"),
    ],
)
def test_card_says_what_happens_if_nobody_answers(fields: dict[str, Any], words: str) -> None:
    assert words in shown(card(record_of(**fields)).blocks)


def test_card_time_left_is_a_slack_date() -> None:
    seen = shown(card(record_of()).blocks)
    assert "Answer by <!date^1779632820^{time} {date_short_pretty}|24 May 2026, 14:27 UTC>" in seen


@pytest.mark.parametrize("status", ["stale", "escalated"])
def test_card_open_shows_its_status_and_keeps_its_controls(status: Any) -> None:
    message = card(kinds("yes_no").model_copy(update={"status": status}))
    assert labels(message.blocks) == ["Yes", "No"]
    assert f"CLR-42-001 · {status}" in shown(message.blocks)


def test_card_escalated_says_why() -> None:
    record = kinds("yes_no")
    entry = Entry(round=1, from_="clarify-bot", type="escalation", body="Stale twice.", timestamp=NOW)
    record = record.model_copy(update={"status": "escalated", "thread": (*record.thread, entry)})
    assert "Escalated. Stale twice." in shown(card(record).blocks)
    assert card(record).text.startswith("Escalated. Stale twice. retirement-planner asks (CLR-42-001):")


@pytest.mark.parametrize(
    ("instead_of", "words"),
    [
        ("C0GOOD", "Posted here because <#C0GOOD> could not be used."),
        ("#general <!here>", "Posted here instead of #general <!here>."),
    ],
)
def test_card_in_the_fallback_channel_says_so(instead_of: str, words: str) -> None:
    assert words in shown(card(record_of(), posted_to_fallback=instead_of).blocks)
