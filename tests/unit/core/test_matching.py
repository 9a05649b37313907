from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from core import aaep
from core.clarification import Clarification, ReplyState
from core.matching import (
    SessionNews,
    after_event,
    author_of,
    followed_up,
    is_duplicate,
    is_follow_up,
    is_same,
)
from core.transitions import abandoned, answered, reply_settled, resolved, went_on
from tests.kit.builders import ADE, LATER, MINUTE, NOW, SLA, YES, ask, news, record

DELIVERED = reply_settled(answered(record(topic="db"), YES, ADE, NOW), "delivered", None)


@pytest.mark.parametrize(
    ("first", "again", "same"),
    [
        (DELIVERED, {"topic": "db", "question": "Other words"}, True),
        (DELIVERED, {"question": "deploy  to\nPRODUCTION?"}, True),
        (DELIVERED, {"question": "Deploy to staging?"}, False),
        (DELIVERED, {"session_id": "sess_2"}, False),
        (reply_settled(DELIVERED, "unconfirmed", None), {}, True),
        (reply_settled(DELIVERED, "refused", None), {}, True),
        (answered(record(), YES, ADE, NOW), {}, False),  # its reply is still on its way
        (resolved(DELIVERED, NOW), {}, False),
    ],
)
def test_same_matter(first: Clarification, again: dict[str, str], same: bool) -> None:
    assert is_follow_up(first, ask(reply_token="rpl_2", **again)) is same


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"id": "CLR-42-009", "status": "resolved", "revision": 7}, True),
        ({"created": NOW.astimezone(timezone(timedelta(hours=2)))}, True),
        ({"created": NOW.replace(microsecond=400)}, True),  # ledgers have milliseconds
        ({"from_": f"agent:{record().from_}"}, True),
        ({"created": LATER}, False),
        ({"from_": "gardener"}, False),
        ({"topic": "another"}, False),
        ({"thread": (record().thread[0].model_copy(update={"body": "Another?"}),)}, False),
        ({"thread": ()}, False),
    ],
)
def test_same_clarification(other: dict[str, Any], same: bool) -> None:
    assert is_same(record(), record().model_copy(update=other)) is same


@pytest.mark.parametrize(
    ("again", "known"),
    [
        ({}, True),
        ({"event_id": "evt_9"}, True),
        ({"reply_token": "rpl_9"}, False),
        ({"question": "Deploy to staging?"}, False),
        ({"session_id": "sess_2"}, False),
        ({"producer": "other"}, False),
    ],
)
def test_known_question(again: dict[str, str], known: bool) -> None:
    assert is_duplicate(record(), ask(**again)) is known
    later_round = followed_up(DELIVERED, ask(reply_token="rpl_2", question="And now?"), LATER, SLA)
    assert is_duplicate(later_round, ask(**again)) is known
    assert is_duplicate(later_round, ask(reply_token="rpl_2", question="And now?"))
    # The first words under the second token, or the other way round, were never shown: no duplicate (P1).
    assert not is_duplicate(later_round, ask(reply_token="rpl_2"))
    assert not is_duplicate(later_round, ask(question="And now?"))


@pytest.mark.parametrize(
    ("named", "author"),
    [
        ("architect", "agent:architect"),
        ("agent:architect", "agent:architect"),
        ("user:folake", "ledger:user:folake"),
        ("folake@example.com", "ledger:folake@example.com"),
        ("a" * 300, ("agent:" + "a" * 300)[:256]),
    ],
)
def test_author_that_another_implementation_names_is_never_a_person(named: str, author: str) -> None:
    assert author_of(named) == author


def open_one(seq: int = 1, asked_at: datetime = NOW) -> Clarification:
    return record(seq=seq, asked_at=asked_at)


def sent_one(state: ReplyState, seq: int = 1, answered_at: datetime = NOW) -> Clarification:
    one = answered(record(seq=seq), YES, ADE, answered_at)
    return one if state == "sending" else reply_settled(one, state, "note")


LEFT = news(aaep.STATE_CHANGED, left=True)


EARLY = NOW - MINUTE


@pytest.mark.parametrize(
    ("records", "event", "expected"),
    [
        # what follows an answer confirms it
        ([sent_one("delivered")], news(), {1: ("resolved", "confirmed")}),
        ([sent_one("unconfirmed")], news(), {1: ("resolved", "confirmed")}),
        ([sent_one("delivered")], LEFT, {1: ("resolved", "confirmed")}),
        ([sent_one("delivered")], news(aaep.COMPLETED), {1: ("resolved", "confirmed")}),
        ([sent_one("delivered")], news(aaep.ERRORED), {1: ("resolved", "confirmed")}),
        ([sent_one("sending")], news(), {1: ("answered", "sending")}),
        ([sent_one("refused")], news(), {}),
        ([sent_one("too_late")], news(), {}),
        ([sent_one("confirmed")], news(), {}),
        # a late or replayed one says nothing
        ([sent_one("delivered")], news(at=EARLY), {}),
        ([went_on(sent_one("sending"), NOW)], news(), {}),
        # leaving awaiting_input voids the one open question, and none of several
        ([open_one()], LEFT, {1: ("abandoned", "requester moved on")}),
        ([open_one(), open_one(2)], LEFT, {}),
        ([open_one(), sent_one("delivered", 2)], LEFT, {2: ("resolved", "confirmed")}),  # explained by the answer
        ([open_one(), sent_one("confirmed", 2)], LEFT, {1: ("abandoned", "requester moved on")}),
        ([open_one()], news(aaep.STATE_CHANGED, left=True, at=EARLY), {}),
        ([open_one(asked_at=NOW + 2 * MINUTE)], LEFT, {}),
        ([open_one(), open_one(2, NOW + 2 * MINUTE)], LEFT, {1: ("abandoned", "requester moved on")}),
        ([open_one()], news(aaep.STATE_CHANGED), {}),
        ([open_one()], news(), {}),
        # the session's end voids all
        ([open_one(), open_one(2)], news(aaep.COMPLETED),
         {1: ("abandoned", "session ended"), 2: ("abandoned", "session ended")}),
        ([open_one()], news(aaep.ERRORED), {1: ("abandoned", "session ended")}),
        ([open_one()], news(aaep.CANCELLED), {1: ("abandoned", "cancelled")}),
        ([open_one()], news(aaep.CANCELLED, at=EARLY), {}),
        ([open_one().model_copy(update={"status": "escalated"})], news(aaep.CANCELLED), {1: ("abandoned", "cancelled")}),
        ([abandoned(open_one(), "expired", NOW)], news(aaep.COMPLETED), {}),
    ],
)  # fmt: skip
def test_after_event_table(
    records: list[Clarification], event: SessionNews, expected: dict[int, tuple[str, str]]
) -> None:
    changed = after_event(records, event, NOW + 2 * MINUTE)
    assert {
        int(one.id[-3:]): (one.status, one.current.closed or one.delivery.reply) for one in changed
    } == expected
