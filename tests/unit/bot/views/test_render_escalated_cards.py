from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.views import phrases
from bot.views.forms import full_view
from bot.views.render import Message, Renderer
from core.clarification import (
    Answer,
    Clarification,
    Decider,
    Holder,
    Why,
    abandoned,
    answered,
    escalated,
    handed,
    taken,
)
from core.escalation import escalation_words
from tests.unit.bot.judges import judge_message, labels, shown
from tests.unit.bot.strategies import NOW, record_of

RENDERER = Renderer()
LATER = NOW + timedelta(minutes=1)
GOOD = Holder(user="U0GOOD", team="T1", at=LATER)
SOMEBODY = Holder(user="<!channel>", at=LATER)


def card(record: Clarification) -> Message:
    message = RENDERER.card(record)
    judge_message(message)
    return message


def passed_on(why: Why, words: str | None = None, **fields: Any) -> Clarification:
    record = record_of(accepted_response_kinds=["yes_no"], **fields)
    return escalated(record, why, escalation_words(record, why) if words is None else words, LATER)


@pytest.mark.parametrize(
    ("record", "reason", "has_more"),
    [
        (passed_on("stale"), "Escalated. Nobody answered in time, nor after a reminder.", False),
        (passed_on("stuck", "It says the same again.\nCLR-7-001: b asks a: “No, you.”"), "Escalated. It says the same again.", True),
        (passed_on("deadlocked"), "Escalated. Agents wait for each other in a circle;", True),
        (passed_on("deadlocked", "One line."), "Escalated. One line.", False),
        (passed_on("by hand", "Legal has to see this."), "Escalated. Legal has to see this.", False),
        (passed_on("by hand", "x " * 400), "Escalated. x x x", True),
        (passed_on("rounds exhausted", " "), "Escalated. All rounds are used up.", False),
        (passed_on("stuck", "<!channel> *now*"), "Escalated. ", False),
        (record_of(accepted_response_kinds=["yes_no"]).model_copy(update={"status": "escalated"}), "Escalated: this needs a human now.", False),
    ],
)  # fmt: skip
def test_card_escalated_gives_the_reason_and_offers_the_rest(
    record: Clarification, reason: str, has_more: bool
) -> None:
    message = card(record)
    assert reason in shown(message.blocks)
    assert message.text.startswith("Escalated")
    assert labels(message.blocks) == ["Yes", "No", *(["View full"] if has_more else [])]


def test_card_escalated_keeps_the_positions_for_view_full() -> None:
    record = passed_on("stuck", "It says the same again.\nCLR-7-001: b asks a: “No, you.”")
    assert "No, you" not in shown(card(record).blocks)
    view = shown(RENDERER.view(full_view(record))["blocks"])
    assert "Escalated. It says the same again.\nCLR-7-001: b asks a: “No, you.”" in view


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (taken(passed_on("stale"), GOOD), "Taken by <@U0GOOD>"),
        (taken(record_of(), GOOD), "Taken by <@U0GOOD>"),
        (handed(passed_on("stale"), GOOD), "Handed to <@U0GOOD>, who has not taken it yet"),
        (taken(handed(passed_on("stale"), SOMEBODY), GOOD), "Taken by <@U0GOOD>"),
        (taken(passed_on("stale"), SOMEBODY), "Taken by &lt;!channel&gt;"),
    ],
)
def test_card_shows_who_has_it(record: Clarification, words: str) -> None:
    message = card(record)
    assert words in shown(message.blocks)
    assert f"{words}." in message.text
    assert labels(message.blocks) != []


def test_card_shows_who_has_it_beside_the_longest_question(largest: Clarification) -> None:
    message = card(taken(escalated(largest, "stuck", "𝔈" * 1500, LATER), GOOD))
    assert "Taken by <@U0GOOD>" in shown(message.blocks)
    assert "Taken by <@U0GOOD>." in message.text


def test_card_answered_shows_no_holder() -> None:
    decider = Decider("user:slack/T1/U0GOOD", "slack", "T1", "U0GOOD")
    record = answered(taken(passed_on("stale"), GOOD), Answer(response=True, label="Yes"), decider, LATER)
    message = card(record)
    assert "Taken by" not in shown(message.blocks) + message.text
    assert "Escalated" not in shown(message.blocks) + message.text


@pytest.mark.parametrize(
    ("by", "who"),
    [
        ("user:slack/T1/U0GOOD", "<@U0GOOD>"),
        ("user:folake", "user:folake"),
        ("user:slack/T1/<!channel>", "user:slack/T1/&lt;!channel&gt;"),
    ],
)
def test_card_closed_by_hand_says_by_whom(by: str, who: str) -> None:
    record = abandoned(record_of(), "by hand", LATER, by)
    message = card(record)
    seen = shown(message.blocks)
    assert "Closed by hand: the agent gets no answer" in seen
    assert "By <@U0GOOD>" in seen if who.startswith("<@") else f"By {by}" in seen
    assert "Closed by hand: the agent gets no answer." in message.text
    assert f"By {who}." in message.text
    assert labels(message.blocks) == []
    assert phrases.closed(record) == f"CLR-42-001 takes no answer any more: it was closed by hand by {who}."
