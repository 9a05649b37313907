"""Records: what is written, read and numbered, and what stays of one that is forgotten."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.clarification import Answer, Approval, Clarification
from core.errors import NotFound
from core.matching import followed_up, is_duplicate
from core.records import (
    FORGOTTEN,
    Book,
    closed_at,
    dump,
    forgotten,
    is_unsettled,
    packed,
    parse,
    unpacked,
)
from core.transitions import abandoned, answered, escalated, reply_settled
from tests.kit.builders import ADE, FOREIGN, NOW, SLA, ask, closed, record

SECRETS: dict[str, Any] = {
    "question": "Is patient SECRET1 to be told?",
    "context": "SECRET2 is in the file",
    "topic": "about SECRET3",
    "summary_terse": "SECRET4",
    "summary_detailed": "SECRET5",
    "default_response": "SECRET6",
    "agent_name": "SECRET7",
    "correlation_id": "SECRET8",
}


def course() -> dict[str, Clarification]:
    """A record in each state, all words of which are to go."""
    opened = record(**SECRETS)
    said = answered(opened, Answer("SECRET9", "SECRET9"), ADE, NOW)
    told = reply_settled(said, "delivered", "SECRET10")
    again = followed_up(told, ask(**SECRETS, reply_token="rpl_2"), NOW, SLA)
    chased = escalated(again, "by hand", "SECRET11", NOW, "user:slack/T1/U9")
    by_us = answered(chased, Answer("SECRET12", "SECRET12"), ADE, NOW)
    return {
        "open": opened,
        "sending": said,
        "answered": told,
        "second round": again,
        "escalated": chased,
        "resolved": reply_settled(by_us, "confirmed", None),
        "abandoned": abandoned(opened, "expired", NOW),
    }


@pytest.mark.parametrize("state", sorted(course()))
def test_forgotten_holds_no_words_and_no_names(state: str) -> None:
    before = dump(course()[state]) | {"priority": "SECRET13", "note": {"by": "SECRET14"}}
    before["thread"][0]["mood"] = "SECRET15"
    after = forgotten(before)
    text = json.dumps(after)
    assert "SECRET" not in text
    assert "user:" not in text
    assert "U1" not in text


@pytest.mark.parametrize("person", ["user:slack/T1/U1", "ann@example.org"])
def test_forgotten_names_nobody_whom_a_role_was_named_after(person: str) -> None:
    before = record().model_copy(update={"to": person, "from_": person})
    assert person not in json.dumps(forgotten(dump(before)))


@pytest.mark.parametrize("state", sorted(course()))
def test_forgotten_keeps_structure_and_ids(state: str) -> None:
    before = course()[state]
    after = parse(forgotten(dump(before)))
    assert after is not None
    assert (after.id, after.status, after.round, after.created) == (
        before.id,
        before.status,
        before.round,
        before.created,
    )
    assert (after.from_, after.to, after.revision) == (before.from_, before.to, before.revision + 1)
    kept = [(entry.round, entry.type, entry.timestamp) for entry in before.thread]
    assert [(entry.round, entry.type, entry.timestamp) for entry in after.thread] == kept
    assert {entry.body for entry in after.thread} == {FORGOTTEN}
    assert (after.asked.session_id, after.asked.reply_token) == (
        before.asked.session_id,
        before.asked.reply_token,
    )


@pytest.mark.parametrize("state", sorted(course()))
def test_forgotten_again_changes_nothing(state: str) -> None:
    once = forgotten(dump(course()[state]))
    assert forgotten(once) == once
    found = parse(once)
    assert found is not None
    assert forgotten(dump(found)) == dump(found)  # also once it was read and written


def test_forgotten_answer_is_not_sent_again() -> None:
    after = parse(forgotten(dump(course()["sending"])))
    assert after is not None
    assert after.delivery.reply == "unconfirmed"
    assert not is_unsettled(after)


def test_forgotten_is_not_known_by_its_words_any_more() -> None:
    after = parse(forgotten(dump(course()["resolved"])))
    assert after is not None
    assert not is_duplicate(after, ask(**SECRETS))


@pytest.mark.parametrize(
    "item",
    [
        {"id": "CLR-42-001", "status": "resolved", "topic": "SECRET"},
        "SECRET",
        None,
    ],
)
def test_forgotten_what_cannot_be_read_goes_wholly(item: object) -> None:
    after = forgotten(item)
    assert "SECRET" not in json.dumps(after)
    assert forgotten(after) == after


@pytest.mark.parametrize(
    ("state", "expected"),
    [("open", True), ("sending", True), ("escalated", True), ("answered", False), ("resolved", False)],
)
def test_unsettled_is_what_somebody_waits_for(state: str, expected: bool) -> None:
    assert is_unsettled(course()[state]) is expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (record(), None),
        (answered(record(), Answer("yes", "Yes"), ADE, NOW), None),
        (reply_settled(answered(record(), Answer("yes", "Yes"), ADE, NOW), "delivered", None), None),
        (closed(), NOW),
        (abandoned(record(), "expired", NOW), NOW),
        (abandoned(record(), "expired", NOW + timedelta(seconds=1)), NOW + timedelta(seconds=1)),
    ],
    ids=["pending", "reply on its way", "answered", "confirmed", "abandoned", "abandoned a second later"],
)
def test_closed_is_what_needs_nothing_more(found: Clarification, expected: datetime | None) -> None:
    assert closed_at(found) == expected


_APPROVAL = Approval(team="T1", user="U1", decided_by="user:slack/T1/U1", at=NOW, digest="d")


def read_again(record: Clarification) -> Clarification:
    """As its row says it."""
    found = parse(unpacked(packed(dump(record))))
    assert found is not None
    return found


def test_unknown_fields_survive_a_rewrite() -> None:
    ours = dump(record(7, 2))
    ours["rounds"][0] |= {"later": {"x": 1}}
    book = Book(filter(None, map(parse, [FOREIGN, ours])))
    for each in book.records:
        book.put(each)
    theirs, again = (dump(read_again(each)) for each in book.written)
    assert theirs == FOREIGN | {"revision": FOREIGN["revision"] + 1}
    assert again["rounds"][0]["later"] == {"x": 1}


@pytest.mark.parametrize(
    ("field", "value", "is_read"),
    [
        ("created", "2026-05-24T14:22:00", True),
        ("created", "0001-01-01T00:00:00+14:00", False),
        ("thread", "none", False),
        ("id", None, False),
        ("rounds", [{"question": {"choices": [{"value": "a"}]}}], False),
        ("topic", "\ud83d", True),
    ],
)
def test_record_of_any_shape_is_none_or_can_be_used(field: str, value: Any, is_read: bool) -> None:
    found = parse(unpacked(json.dumps(FOREIGN | {field: value})))
    assert (found is not None) == is_read
    if found is not None:
        assert found.created.tzinfo is not None
        assert read_again(found) == found


def test_foreign_field_with_half_a_character_is_kept() -> None:
    odd = FOREIGN | {"note": "\ud83d"}
    assert unpacked(packed(odd)) == odd


@pytest.mark.parametrize("text", ["", "[", "[]", "7", "null", '{"id": "CLR-7-001"', "[" * 100_000])
def test_text_that_is_no_object_is_no_record(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected an object|bytes that are not JSON"):
        unpacked(text)


@pytest.mark.parametrize(
    ("put", "highest", "expected"),
    [
        ((), 0, 1),
        ((1,), 0, 2),
        ((9, 2), 0, 10),
        ((1000,), 0, 1001),
        ((1,), 8, 9),
        # Numbers that others made up leave room for ours.
        ((3, 999_999_999_999_999), 0, 4),
        ((999_999_999,), 0, 1_000_000_000),
    ],
)
def test_next_number_follows_what_was_ever_used(put: tuple[int, ...], highest: int, expected: int) -> None:
    book = Book(issue=7, highest=highest)
    for number in put:
        book.put(record(7, number))
    assert (book.next_seq(), book.next_seq()) == (expected, expected + 1)


def test_each_write_raises_the_revision_and_is_written_once() -> None:
    before = record(7).model_copy(update={"revision": 3})
    book = Book([before, record(7, 2)], issue=7)
    first = book.put(before.model_copy(update={"topic": "another"}))
    second = book.put(first.model_copy(update={"topic": "a third", "revision": 9}))
    assert [each.revision for each in (first, second)] == [4, 9]
    assert (book.changed, book.written) == ([first, second], [second])
    assert book.get("CLR-7-001") is second
    assert [each.id for each in book.records] == ["CLR-7-001", "CLR-7-002"]
    with pytest.raises(NotFound):
        book.get("CLR-7-003")
