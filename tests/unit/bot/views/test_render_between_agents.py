"""Cards of what is put to an agent: who asks whom, why people see it, who is asked besides them, who closed it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.views import phrases
from bot.views.render import Message, Renderer
from core.clarification import Answer, Clarification, Decider, Entry, answered, escalated
from tests.unit.bot.judges import judge_message, shown
from tests.unit.bot.strategies import NOW, record_of

RENDERER = Renderer()
LATER = NOW + timedelta(minutes=1)
TOO = "architect (an agent) was asked too; the first answer counts."
HELD = "Shown to people because: engineer may not ask architect: its workflow allows nobody."


def card(record: Clarification, **options: Any) -> Message:
    message = RENDERER.card(record, **options)
    judge_message(message)
    return message


def put_to(to: str, held_back: str | None = None, **fields: Any) -> Clarification:
    """Of an agent without a name."""
    record = record_of(**({"producer": {"agent_id": "engineer"}} | fields))
    asked = record.asked.model_copy(update={"held_back": held_back})
    return record.model_copy(update={"to": to, "aaep": asked})


def both(message: Message) -> tuple[str, str]:
    return message.text, shown(message.blocks)


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("human", "engineer asks · CLR-42-001"),
        ("Human ", "engineer asks · CLR-42-001"),
        ("architect", "engineer asks architect · CLR-42-001"),
        (" the\narchitect ", "engineer asks the architect · CLR-42-001"),
    ],
)
def test_heading_says_whom_it_is_put_to_where_that_is_not_just_people(to: str, words: str) -> None:
    message = card(put_to(to))
    assert words in shown(message.blocks)
    assert words.replace(" · CLR-42-001", " (CLR-42-001):") in message.text


def test_long_names_share_the_heading_and_stand_whole_in_the_text() -> None:
    names = "e" * 80, "a" * 80
    message = card(put_to(names[1], producer={"agent_id": names[0]}))
    assert f"{names[0]} asks {names[1]}" in message.text


def test_held_back_gives_its_reason_in_blocks_and_text() -> None:
    for words in both(card(put_to("architect", HELD.partition(": ")[2]))):
        assert HELD in words


@pytest.mark.parametrize("verbosity", ["terse", "normal", "detailed"])
def test_agent_that_is_asked_too_is_named_in_blocks_and_text(verbosity: str) -> None:
    for words in both(card(put_to("architect"), asks_an_agent=True, verbosity=verbosity)):
        assert TOO in words
    assert TOO not in card(put_to("architect")).text
    assert "was asked too" not in card(put_to("human"), asks_an_agent=True).text


def test_why_an_agent_failed_is_the_reason_of_the_escalation() -> None:
    reason = "AGENT_ERROR: architect gave no answer within 2 s."
    record = escalated(put_to("architect"), "agent failed", f"{reason}\nTopic: storage", LATER)
    for words in both(card(record)):
        assert f"Escalated. {reason}" in words


@pytest.mark.parametrize(
    ("by", "words"),
    [("agent:architect", "agent:architect"), ("user:os/root@build-7", "user:os/root@build-7")],
)
def test_answer_says_which_agent_or_who_in_the_shell(by: str, words: str) -> None:
    record = answered(put_to("architect"), Answer("65", "65"), Decider(by, "responder"), LATER)
    for said in both(card(record)):
        assert words in said
    assert "engineer asked architect" in card(record).text
    assert words in phrases.closed(record)


def test_answer_of_another_implementation_is_its_agents() -> None:
    entry = Entry(round=1, from_="architect", type="answer", body="65", timestamp=LATER)
    record = put_to("architect")
    record = record.model_copy(update={"status": "answered", "aaep": None, "thread": (*record.thread, entry)})
    for words in both(card(record)):
        assert "agent:architect" in words


@pytest.mark.parametrize("status", ["resolved", "abandoned"])
def test_closed_by_another_implementation_says_by_whom(status: str) -> None:
    entry = Entry(round=1, from_="<!channel> lead", type="resolution", body="Not needed.", timestamp=LATER)
    record = put_to("architect")
    record = record.model_copy(update={"status": status, "aaep": None, "thread": (*record.thread, entry)})
    for words in both(card(record)):
        assert "Closed: Not needed." in words
        assert "lead" in words
    assert "lead" in phrases.closed(record)


@pytest.mark.parametrize(("token", "limit"), [("rpl_1", 3000), (None, 2000)])
def test_modal_takes_as_much_as_the_router_does(token: str | None, limit: int) -> None:
    record = put_to("architect", accepted_response_kinds=["freetext"])
    view = RENDERER.answer_modal(
        record.model_copy(update={"aaep": record.asked.model_copy(update={"reply_token": token})})
    )
    element = next(block["element"] for block in view["blocks"] if block["type"] == "input")
    assert element["max_length"] == limit
    assert f"Up to {limit:,} characters" in str(view)
