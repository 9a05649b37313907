from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.views.render import Message, Renderer
from core.clarification import (
    Answer,
    Clarification,
    CloseReason,
    Decider,
    Entry,
    ReplyState,
    abandoned,
    answered,
    reply_settled,
    resolved,
)
from core.matching import followed_up
from tests.unit.bot.judges import judge_message, labels, shown
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


@pytest.mark.parametrize(
    ("state", "note", "words"),
    [
        ("sending", None, "Sending to the agent…"),
        ("delivered", None, "Delivered"),
        ("confirmed", None, "Delivered and confirmed: the agent went on"),
        ("unconfirmed", None, "Sent, not confirmed"),
        ("refused", "unknown token", "The agent refused the answer: unknown token"),
        ("refused", None, "The agent refused the answer"),
        ("too_late", None, "Too late: the agent no longer waited for this answer"),
    ],
)
def test_card_answered_shows_where_the_reply_stands(state: ReplyState, note: str | None, words: str) -> None:
    record = reply_settled(answer(kinds("multiple_choice", choices=SHORT)), state, note)
    for each in (record, resolved(record, NOW)):
        message = card(each)
        assert words in shown(message.blocks)
        assert words in message.text
        assert labels(message.blocks) == []


def test_card_answered_names_who_what_and_when() -> None:
    message = card(answer(kinds("multiple_choice", choices=SHORT)))
    seen = shown(message.blocks)
    assert "Answered by <@U0GOOD>" in seen
    assert "Answer: Age 65 (standard)" in seen
    assert "24 May 2026, 14:23 UTC" in seen
    assert "Answered by <@U0GOOD> on 24 May 2026, 14:23 UTC: Age 65 (standard)" in message.text


@pytest.mark.parametrize(
    "decider",
    [
        Decider("user:os/<!channel>@host", "shell"),
        Decider("user:os/<!channel>@host", "slack", "T1", "<@U0EVIL>"),
    ],
)
def test_card_answered_elsewhere_names_the_decider_inert(decider: Decider) -> None:
    message = card(answer(record_of(), by=decider))
    assert "user:os/<!channel>@host" in shown(message.blocks)
    assert "user:os/&lt;!channel&gt;@host" in message.text


def test_card_answered_by_another_implementation_shows_the_entry() -> None:
    record = record_of().model_copy(update={"aaep": None, "status": "answered"})
    entry = Entry(round=1, from_="architect", type="answer", body="Use 65.", timestamp=NOW)
    message = card(record.model_copy(update={"thread": (*record.thread, entry)}))
    assert "Answer: Use 65." in shown(message.blocks)
    assert "architect" in shown(message.blocks)


@pytest.mark.parametrize(
    ("reason", "default", "words"),
    [
        ("expired", "65", "Expired; the agent was told to assume “65”"),
        ("expired", None, "Expired; the agent had no default to assume"),
        ("cancelled", None, "Cancelled: the agent needs no answer any more"),
        ("session ended", None, "Closed: the agent's session ended"),
        ("requester moved on", None, "Closed: the agent moved on without an answer"),
    ],
)
def test_card_abandoned_says_why_and_has_no_controls(
    reason: CloseReason, default: str | None, words: str
) -> None:
    message = card(abandoned(kinds("yes_no", default_response=default), reason, NOW))
    assert words in shown(message.blocks)
    assert words in message.text
    assert labels(message.blocks) == []


def test_card_abandoned_after_an_answer_shows_both() -> None:
    answered_first = answer(record_of())  # by us; then another implementation closed it
    asked = answered_first.asked.model_copy(update={"closed": "session ended"})
    record = answered_first.model_copy(update={"status": "abandoned", "resolved_at": NOW, "aaep": asked})
    seen = shown(card(record).blocks)
    assert "Answered by <@U0GOOD>" in seen
    assert "Closed: the agent's session ended" in seen


def test_card_closed_by_another_implementation_shows_its_words() -> None:
    record = record_of()
    entry = Entry(round=1, from_="architect", type="resolution", body="Not needed.", timestamp=NOW)
    record = record.model_copy(update={"status": "resolved", "thread": (*record.thread, entry)})
    assert "Closed: Not needed." in shown(card(record).blocks)


def test_card_of_an_earlier_round_is_closed_with_its_own_words() -> None:
    first = answer(kinds("multiple_choice", question="First?", choices=SHORT))
    ask = ask_of({**EVENT, "question": "Second?"})
    record = followed_up(first, ask, NOW, SLA)
    past, now = card(record, round=1), card(record)
    assert "First?" in shown(past.blocks)
    assert "Answer: Age 65 (standard)" in shown(past.blocks)
    assert "Answered by <@U0GOOD>" in shown(past.blocks)
    assert labels(past.blocks) == []
    assert "Second?" in shown(now.blocks)
    assert labels(now.blocks) == ["Answer…"]
    assert "CLR-42-001 · round 2" in shown(now.blocks)
    assert card(record, round=2) == now


def test_card_asked_once_more_than_allowed_is_open_again() -> None:
    record = record_of(question="Round 1?")
    for number in range(2, 7):
        record = followed_up(answer(record), ask_of({**EVENT, "question": f"Round {number}?"}), NOW, SLA)
    message = card(record)
    assert record.status == "escalated"
    assert labels(message.blocks) == ["Answer…", "View full"]
    assert "Round 6?" in shown(message.blocks)
    assert "Rounds exhausted" in message.text
    assert "Round 4?" in shown(card(record, round=4).blocks)


def test_card_blocks_are_new_with_every_change() -> None:
    record = record_of()
    revised = record.model_copy(update={"revision": 2})
    same_revision = record.model_copy(update={"status": "stale"})
    ids = [
        {block["block_id"] for block in card(each).blocks[:1]} for each in (record, revised, same_revision)
    ]
    assert len(set.union(*ids)) == 3


def test_card_blocks_are_the_same_for_the_same_record() -> None:
    assert card(record_of()) == card(record_of())
