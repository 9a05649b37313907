"""What stays of a record that is forgotten: structure and ids, none of the words, nobody's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.clarification import Answer, Clarification, abandoned, answered, escalated, reply_settled
from core.index import summarize
from core.ledger import FileLedger
from core.matching import followed_up, is_known
from core.records import FORGOTTEN, dump, forget_in, forgotten, is_of_session, is_over, is_unsettled, parse
from tests.unit.core.records import ADE, NOW, SLA, ask, record

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


def test_forgotten_answer_is_not_sent_again_nor_taken_for_another_implementations() -> None:
    after = parse(forgotten(dump(course()["sending"])))
    assert after is not None
    assert after.asked.reply == "unconfirmed"
    assert not summarize(after).adoptable
    assert not is_unsettled(after)


def test_forgotten_is_not_known_by_its_words_any_more() -> None:
    after = parse(forgotten(dump(course()["resolved"])))
    assert after is not None
    assert not is_known(after, ask(**SECRETS))


def test_forgotten_what_is_over_stays_over() -> None:
    after = forgotten(dump(course()["abandoned"]))
    assert is_over([after], NOW, SLA - SLA)


@pytest.mark.parametrize(
    "item",
    [
        {"id": "CLR-42-001", "status": "resolved", "topic": "SECRET"},
        {"id": "SECRET", "from": "SECRET"},
        {"SECRET": 1},
        "SECRET",
        None,
    ],
)
def test_forgotten_what_cannot_be_read_goes_wholly(item: object) -> None:
    after = forgotten(item)
    assert "SECRET" not in json.dumps(after)
    assert forgotten(after) == after


def test_forgotten_record_of_another_implementation_keeps_what_the_protocol_names() -> None:
    item = dump(record())
    item.pop("aaep")
    after = forgotten(item | {"customField": "SECRET"})
    assert "aaep" not in after
    assert parse(after) is not None
    assert "SECRET" not in json.dumps(after)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("open", True), ("sending", True), ("escalated", True), ("answered", False), ("resolved", False)],
)
def test_unsettled_is_what_somebody_waits_for(state: str, expected: bool) -> None:
    assert is_unsettled(course()[state]) is expected


@pytest.mark.parametrize(
    ("item", "producer", "expected"),
    [
        ({"aaep": {"sessionId": "s", "producer": "p"}}, None, True),
        ({"aaep": {"sessionId": "s", "producer": "p"}}, "p", True),
        ({"aaep": {"sessionId": "s", "producer": "p"}}, "q", False),
        ({"aaep": {"sessionId": "t"}}, None, False),
        ({"aaep": None}, None, False),
        ([], None, False),
    ],
)
def test_of_session(item: Any, producer: str | None, expected: bool) -> None:
    assert is_of_session(item, "s", producer) is expected


@pytest.fixture
def upkeep(tmp_path: Path) -> Iterator[FileLedger]:
    made = FileLedger(tmp_path)
    yield made
    made.close()


async def test_rewrite_reaches_live_and_archived_files(tmp_path: Path, upkeep: FileLedger) -> None:
    ledger = FileLedger(tmp_path)
    try:
        await ledger.transact(42, lambda book: book.put(course()["abandoned"]))
        await ledger.shelve(42, lambda _: True)
        ledger.path(42).write_text(json.dumps({"clarifications": [dump(record(**SECRETS))], "more": 1}))
        (tmp_path / "archive" / "issue-42.2.json").write_text("{ broken")

        unreadable = upkeep.rewrite(42, lambda raw: forget_in(raw, range(len(raw["clarifications"]))))

        assert [path.name for path in unreadable] == ["issue-42.2.json"]
        for path in (ledger.path(42), ledger.archive.path(42)):
            assert "SECRET" not in path.read_text()
        assert json.loads(ledger.path(42).read_text())["more"] == 1
        assert not (tmp_path / "issue-42.json.lock").exists()
    finally:
        ledger.close()


def test_rewrite_leaves_a_file_that_does_not_change(tmp_path: Path, upkeep: FileLedger) -> None:
    path = tmp_path / "issue-42.json"
    path.write_text(json.dumps({"clarifications": [forgotten(dump(record()))]}))
    before = path.stat().st_ino
    upkeep.rewrite(42, lambda raw: forget_in(raw, [0]))
    assert path.stat().st_ino == before
