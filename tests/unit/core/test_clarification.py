"""The record's legal changes, as tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import get_args

import pytest

from core.clarification import Answer, Clarification, Holder, Status, parse_id
from core.errors import BadInput, ClarifyError, IllegalTransition
from core.matching import followed_up
from core.records import dump, parse
from core.transitions import (
    AlreadyAnswered,
    Closed,
    abandoned,
    amended,
    answered,
    claimed,
    escalated,
    handed,
    nudged,
    released,
    resolved,
    taken,
    taken_over,
)
from tests.kit.builders import ADE, BEA, LATER, MINUTE, NOW, SLA, YES, ask, record

STATUSES: tuple[Status, ...] = get_args(Status)
CHANGES: dict[str, Callable[[Clarification], Clarification]] = {
    "answer": lambda r: answered(r, YES, ADE, LATER),
    "follow up": lambda r: followed_up(r, ask(reply_token="rpl_2"), LATER, SLA),
    "follow up, exhausted": lambda r: followed_up(
        r.model_copy(update={"round": 5}), ask(reply_token="rpl_2"), LATER, SLA
    ),
    "resolve": lambda r: resolved(r, LATER),
    "abandon": lambda r: abandoned(r, "expired", LATER),
}
LEGAL: dict[tuple[str, str], Status] = {
    ("pending", "answer"): "answered",
    ("stale", "answer"): "answered",
    ("escalated", "answer"): "resolved",
    ("answered", "follow up"): "pending",
    ("stale", "follow up"): "pending",  # revived; the router asks only answered ones again
    ("pending", "follow up, exhausted"): "escalated",
    ("stale", "follow up, exhausted"): "escalated",
    ("answered", "follow up, exhausted"): "escalated",
    ("answered", "resolve"): "resolved",
    ("escalated", "resolve"): "resolved",
    ("pending", "abandon"): "abandoned",
    ("stale", "abandon"): "abandoned",
    ("escalated", "abandon"): "abandoned",
}


def with_status(status: Status) -> Clarification:
    return record().model_copy(update={"status": status})


@pytest.mark.parametrize(("status", "change"), list(product(STATUSES, CHANGES)))
def test_transition_table(status: Status, change: str) -> None:
    before = with_status(status)
    if (status, change) in LEGAL:
        after = CHANGES[change](before)
        assert after.status == LEGAL[status, change]
        assert after.revision == before.revision + 1
        assert len(after.thread) >= len(before.thread)
        assert (after.id, after.created) == (before.id, before.created)
        assert before.status == status, "records do not change in place"
        return
    with pytest.raises((IllegalTransition, AlreadyAnswered, Closed)):
        CHANGES[change](before)


@pytest.mark.parametrize(("blocking", "rounds"), [(True, 5), (False, 6)])
def test_rounds_run_out_and_the_question_goes_to_humans(blocking: bool, rounds: int) -> None:
    current = record(blocking=blocking)
    for number in range(2, rounds + 1):
        current = followed_up(answered(current, YES, ADE, NOW), ask(reply_token=f"rpl_{number}"), LATER, SLA)
        assert (current.status, current.round) == ("pending", number)
    last = followed_up(answered(current, YES, ADE, NOW), ask(reply_token="rpl_x"), LATER, SLA)
    assert (last.status, last.round) == ("escalated", rounds)
    assert last.thread[-1].type == "escalation"
    assert last.answer is None, "the exhausted round's old answer is not the new question's"
    human = answered(last, Answer("stop", "stop"), BEA, LATER)
    assert (human.status, human.asked.reply_token, human.given.response) == ("resolved", "rpl_x", "stop")
    assert human.answer is not None
    assert human.answer.body == "stop"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("CLR-42-001", (42, 1)), ("CLR-100001-1000", (100001, 1000)), ("CLR-42-1", None),      ("CLR-42-001 ", None), ("CLR-٤٢-001", None), (f"CLR-{'9' * 5000}-001", None)],
)  # fmt: skip
def test_parse_id(text: str, parsed: tuple[int, int] | None) -> None:
    if parsed is not None:
        assert parse_id(text) == parsed
        return
    with pytest.raises(BadInput):
        parse_id(text)


@pytest.mark.parametrize("name", ["CLR-42-1", "CLR-42-001\n", f"CLR-{'9' * 5000}-001"])
def test_record_under_another_kind_of_name_is_none(name: str) -> None:
    """Everything finds its ledger by its name: one without must not come in anywhere."""
    assert parse(dump(record())) == record()
    assert parse(dump(record()) | {"id": name}) is None


def test_every_error_of_core_has_a_stable_code() -> None:
    def leaves(error: type[ClarifyError]) -> list[type[ClarifyError]]:
        return [error, *(leaf for child in error.__subclasses__() for leaf in leaves(child))]

    codes = [error.code for error in leaves(ClarifyError) if "code" in vars(error)]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize(
    ("minutes", "sla"),
    [
        (None, SLA),
        (3, timedelta(minutes=3)),
        (0, SLA),
        (1e12, SLA),
        (float("nan"), SLA),
    ],
)
def test_sla_that_another_wrote_oddly_does_not_keep_a_question_from_being_chased(
    minutes: float | None, sla: timedelta
) -> None:
    found = record()
    odd = amended(found, sla_minutes=minutes)
    assert odd.sla(SLA) == sla
    assert nudged(odd.model_copy(update={"status": "pending"}), LATER, SLA).nudges == 1


@pytest.mark.parametrize(("number", "is_one"), [(-1, False), (999_999_999, True), (10**9, False)])
def test_round_that_no_control_can_name_makes_no_record(number: int, is_one: bool) -> None:
    assert (parse(dump(record()) | {"round": number}) is not None) is is_one


@pytest.mark.parametrize("field", ["maxRounds", "issueNumber"])
def test_number_that_storage_cannot_hold_makes_no_record(field: str) -> None:
    assert parse(dump(record()) | {field: 2**53}) is not None
    assert parse(dump(record()) | {field: 2**63}) is None


@pytest.mark.parametrize("status", ["answered", "resolved", "abandoned", "escalated"])
def test_nudge_is_of_what_waits_for_its_answerers(status: Status) -> None:
    with pytest.raises((AlreadyAnswered, Closed, IllegalTransition)):
        nudged(record().model_copy(update={"status": status}), NOW, SLA)


def test_first_claim_wins_and_who_has_it_lets_go() -> None:
    ade, bea = Holder(user="U1", team="T1", at=NOW), Holder(user="U2", team="T1", at=NOW + MINUTE)
    mine = claimed(record(), ade)
    assert mine.attention.taken_by == ade
    assert claimed(mine, bea) is mine
    assert released(mine, "U2") is mine
    free = released(mine, "U1")
    assert (free.rounds, free.status) == (record().rounds, "pending")
    assert released(free, "U1") is free
    theirs = taken_over(mine, bea).attention
    assert (theirs.taken_by, theirs.taken_from) == (bea, "U1")
    assert taken_over(mine, ade).attention.taken_from is None
    assert released(taken_over(mine, bea), "U2").rounds == record().rounds


def test_escalated_one_is_given_back_to_the_pager_alone() -> None:
    passed = taken(escalated(record(), "by hand", "words", NOW), Holder(user="U1", team="T1", at=NOW))
    assert released(passed, "U1") is passed


@pytest.mark.parametrize("status", ["answered", "resolved", "abandoned", "pending", "stale", "escalated"])
def test_take_and_hand_are_of_open_ones_and_keep_the_status(status: Status) -> None:
    found = record().model_copy(update={"status": status})
    ade, bea = Holder(user="U1", team="T1", at=NOW), Holder(user="U2", team="T1", at=NOW + MINUTE)
    if not found.is_open:
        for change in (taken, handed, claimed, lambda found, ade: released(found, ade.user)):
            with pytest.raises(Closed):
                change(found, ade)
        return
    offered = handed(taken(found, ade), bea)
    assert (offered.attention.taken_by, offered.attention.handed_to) == (None, bea)
    accepted = taken(offered, bea)
    assert (accepted.attention.taken_by, accepted.attention.handed_to) == (bea, None)
    assert dump(accepted)["rounds"][0]["attention"]["takenBy"] == {
        "user": "U2",
        "team": "T1",
        "at": "2026-05-24T14:23:00.000Z",
    }
    assert (accepted.status, accepted.revision) == (status, found.revision + 3)
    assert escalated(taken(record(), ade), "by hand", "words", NOW).attention.taken_by is None


def test_field_that_no_part_of_a_round_has_is_not_taken() -> None:
    with pytest.raises(TypeError, match=r"Round has no \['answer'\]"):
        amended(record(), answer="yes")
