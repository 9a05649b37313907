"""Ledgers that are over: moved as whole files, found where they are, and back before anything is written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from core.clarification import (
    AlreadyAnswered,
    Answer,
    Clarification,
    abandoned,
    answered,
    reply_settled,
    resolved,
)
from core.errors import LockTimeout
from core.ledger import FileLedger
from core.records import Book, Raw, closed_at, dump, is_over, parse
from core.router import Router
from tests.clocks import ManualClock
from tests.unit.core.records import ADE, NOW, SLA, ask, record

MONTH = timedelta(days=30)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    made = FileLedger(tmp_path)
    yield made
    made.close()


def closed(seq: int = 1, **more: Any) -> Clarification:
    after = answered(record(seq=seq, **more), Answer("yes", "Yes"), ADE, NOW)
    return resolved(reply_settled(after, "confirmed", None), NOW)


async def written(ledger: FileLedger, *records: Clarification) -> None:
    await ledger.transact(42, lambda book: [book.put(each) for each in records])


def over(items: list[Raw]) -> bool:
    return is_over(items, NOW + MONTH, MONTH)


def ids(items: list[Raw]) -> list[str]:
    return [str(item["id"]) for item in items]


CASES: list[tuple[str, Clarification, bool]] = [
    ("pending", record(), False),
    ("answered, its reply on its way", answered(record(), Answer("yes", "Yes"), ADE, NOW), False),
    ("answered", reply_settled(answered(record(), Answer("yes", "Yes"), ADE, NOW), "delivered", None), False),
    ("resolved, confirmed", closed(), True),
    ("abandoned", abandoned(record(), "expired", NOW), True),
    ("abandoned a second later", abandoned(record(), "expired", NOW + timedelta(seconds=1)), False),
]


@pytest.mark.parametrize(("name", "found", "expected"), CASES)
def test_over_is_what_is_closed_for_long_enough(name: str, found: Clarification, expected: bool) -> None:
    assert is_over([dump(found)], NOW + MONTH, MONTH) is expected, name


def test_over_one_open_record_keeps_the_ledger() -> None:
    assert not is_over([dump(closed()), dump(record(seq=2))], NOW + MONTH, MONTH)


@pytest.mark.parametrize(
    "odd", ["words", 7, {}, {"id": "CLR-42-009", "status": "resolved"}, {"status": ["x"]}]
)
def test_over_what_cannot_be_read_may_be_open(odd: object) -> None:
    assert not is_over([dump(closed()), odd], NOW + MONTH, MONTH)


def test_over_an_escalated_one_whose_reply_is_on_its_way_is_not() -> None:
    sending = closed().model_copy(update={"aaep": closed().asked.model_copy(update={"reply": "sending"})})
    assert closed_at(sending) is None


async def test_shelve_moves_the_whole_file_and_it_is_still_read(ledger: FileLedger) -> None:
    await written(ledger, closed(1), closed(2, session_id="sess_2"))
    content = ledger.path(42).read_bytes()

    assert await ledger.shelve(42, over)

    assert not ledger.path(42).exists()
    assert ledger.archive.path(42).read_bytes() == content
    assert list(ledger.issues()) == []
    assert [issue for issue, _ in ledger.archive.files()] == [42]
    assert ids(await ledger.read(42)) == ["CLR-42-001", "CLR-42-002"]
    assert (await ledger.find("CLR-42-002", 42)).status == "resolved"


async def test_shelve_looks_under_the_lock(ledger: FileLedger) -> None:
    """What is decided on is what is moved: somebody who changed it since is seen."""
    await written(ledger, closed())
    seen: list[list[str]] = []

    def look(items: list[Raw]) -> bool:
        seen.append(ids(items))
        assert (ledger.directory / "issue-42.json.lock").exists()
        return False

    assert not await ledger.shelve(42, look)
    assert seen == [["CLR-42-001"]]
    assert ledger.path(42).exists()
    assert not await ledger.shelve(43, look)  # there is none


async def test_shelve_waits_for_nobody_for_long(ledger: FileLedger) -> None:
    await written(ledger, closed())
    marker = ledger.directory / "issue-42.json.lock"
    marker.write_text(json.dumps({"pid": 1, "timestamp": "", "agent": "somebody"}))
    with pytest.raises(LockTimeout):
        await ledger.shelve(42, over, timeout=0.05)
    assert ledger.path(42).exists()
    marker.unlink()


async def test_archived_ledger_comes_back_before_a_new_record_is_numbered(ledger: FileLedger) -> None:
    await written(ledger, closed(1), closed(2, session_id="sess_2"))
    await ledger.shelve(42, over)
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)

    opened = await router.open(42, ask(session_id="sess_3", reply_token="rpl_3", question="Another thing?"))

    assert opened.record.id == "CLR-42-003"
    assert ids(json.loads(ledger.path(42).read_bytes())["clarifications"]) == [
        "CLR-42-001",
        "CLR-42-002",
        "CLR-42-003",
    ]
    assert list(ledger.archive.files()) == []


async def test_archived_ledger_stays_where_nothing_is_written(ledger: FileLedger) -> None:
    await written(ledger, closed())
    await ledger.shelve(42, over)
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)

    with pytest.raises(AlreadyAnswered):
        await router.answer("CLR-42-001", lambda _: Answer("no", "No"), ADE, NOW)
    assert (await router.open(42, ask())).how == "duplicate"  # the producer tells it again

    assert not ledger.path(42).exists()
    assert ledger.archive.path(42).exists()


async def test_archived_ledger_that_is_broken_is_left_and_its_numbers_are_not_used_again(
    ledger: FileLedger,
) -> None:
    await written(ledger, closed(1), closed(2, session_id="sess_2"))
    await ledger.shelve(42, over)
    ledger.archive.path(42).write_text("{ broken")

    number = await ledger.transact(42, lambda book: book.put(record(seq=book.next_seq())).id)

    assert number == "CLR-42-003"
    assert ledger.archive.path(42).read_text() == "{ broken"


async def test_shelve_a_second_time_after_a_kill_between_link_and_unlink(ledger: FileLedger) -> None:
    await written(ledger, closed())
    ledger.archive.folder.mkdir()
    os.link(ledger.path(42), ledger.archive.path(42))

    assert await ledger.shelve(42, over)

    assert not ledger.path(42).exists()
    assert [path.name for _, path in ledger.archive.files()] == ["issue-42.json"]


async def test_shelve_keeps_what_others_began_anew_apart(ledger: FileLedger) -> None:
    """Another implementation, which knows no archive, numbers from 001 again: an id then names two records."""
    await written(ledger, closed())
    await ledger.shelve(42, over)
    anew = dump(closed()) | {"created": "2026-05-25T14:22:00.000Z", "topic": "another"}
    ledger.path(42).write_text(json.dumps({"issueNumber": 42, "clarifications": [anew]}))

    assert await ledger.shelve(42, lambda _: True)

    kept = {path.name: json.loads(path.read_bytes()) for _, path in ledger.archive.files()}
    assert sorted(kept) == ["issue-42.2.json", "issue-42.json"]
    assert kept["issue-42.2.json"]["clarifications"][0]["topic"] == "another"


async def test_put_back_survives_a_kill_between_write_and_drop(
    ledger: FileLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(ledger, closed())
    await ledger.shelve(42, over)

    def killed(issue: int, live: Raw) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger.archive, "drop", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger._transact(42, _add, 1e12, 2.0)
    assert ids(await ledger.read(42)) == ["CLR-42-001", "CLR-42-002"]

    later = [
        abandoned(found, "expired", NOW) for item in (await ledger.read(42))[1:] if (found := parse(item))
    ]
    await written(ledger, *later)
    assert await ledger.shelve(42, over)
    assert [path.name for _, path in ledger.archive.files()] == ["issue-42.json"]


async def test_put_back_is_done_where_the_archive_cannot_be_changed(
    ledger: FileLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written is written: whoever answered is told no error."""
    await written(ledger, closed())
    assert await ledger.shelve(42, over)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "archive":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        await ledger.transact(42, _add)
    assert ids(await ledger.read(42)) == ["CLR-42-001", "CLR-42-002"]
    await written(ledger, closed(2))
    assert await ledger.shelve(42, over)
    assert ids(await ledger.read(42)) == ["CLR-42-001", "CLR-42-002"]


def _add(book: Book) -> Clarification:
    return book.put(record(seq=book.next_seq(), session_id="sess_9"))
