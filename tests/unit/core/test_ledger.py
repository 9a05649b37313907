"""Ledger files: read and written beside others, torn, broken, on a full disk, and by killed processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.clarification import (
    AlreadyAnswered,
    Answer,
    Clarification,
    abandoned,
)
from core.errors import LedgerUnreadable, LedgerUnwritable, NotFound
from core.ledger import FileLedger
from core.records import (
    Book,
    Raw,
    dump,
    forget_in,
    is_over,
    parse,
)
from core.router import Router
from tests.kit.builders import ADE, FOREIGN, MONTH, NOW, SLA, ask, closed, record
from tests.kit.clocks import ManualClock


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    made = FileLedger(tmp_path)
    yield made
    made.close()


def write(ledger: FileLedger, *items: Any, issue: int = 7, **fields: Any) -> Path:
    path = ledger.files.path(issue)
    path.write_text(json.dumps({"issueNumber": issue, "clarifications": list(items)} | fields))
    return path


def add(book: Book) -> Clarification:
    return book.put(record(book.issue, book.next_seq()))


def touch(book: Book) -> None:
    """Write the file again as it is."""
    for item in book.records:
        book.put(item)


async def test_unknown_fields_survive_a_rewrite(ledger: FileLedger) -> None:
    path = write(ledger, FOREIGN, {"id": "CLR-7-002", "no": "record"}, "what", schemaVersion=2)
    await ledger.transact(7, touch)
    after = json.loads(path.read_text())
    assert after["schemaVersion"] == 2
    assert after["clarifications"] == [FOREIGN, {"id": "CLR-7-002", "no": "record"}, "what"]


async def test_unknown_fields_of_our_part_survive_too(ledger: FileLedger) -> None:
    item = dump(record(7)) | {"aaep": dump(record(7))["aaep"] | {"later": {"x": 1}, "nothing": None}}
    path = write(ledger, item)
    await ledger.transact(7, touch)
    assert json.loads(path.read_text())["clarifications"][0]["aaep"] == item["aaep"]


async def test_half_a_character_in_a_foreign_field_does_not_block_the_ledger(ledger: FileLedger) -> None:
    path = ledger.files.path(7)
    path.write_text('{"issueNumber": 7, "note": "\\ud83d", "clarifications": []}')
    await ledger.transact(7, add)
    assert json.loads(path.read_text())["note"] == "\ud83d"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created", "2026-05-24T14:22:00"),
        ("created", "0001-01-01T00:00:00+14:00"),
        ("thread", "none"),
        ("id", None),
        ("aaep", {"choices": [{"value": "a"}]}),
        ("topic", "\ud83d"),
    ],
)
async def test_records_of_any_shape_are_left_as_they_are_or_can_be_used(
    ledger: FileLedger, field: str, value: Any
) -> None:
    odd = FOREIGN | {field: value}
    path = write(ledger, odd, FOREIGN | {"id": "CLR-7-002"})
    await ledger.transact(7, add)
    after = json.loads(path.read_text())["clarifications"]
    assert after[0] == odd
    assert [item["id"] for item in after[1:]] == ["CLR-7-002", "CLR-7-003"]
    readable = parse(odd)
    if readable is not None:
        assert readable.created.tzinfo is not None
        json.dumps(dump(readable)).encode()
        assert parse(json.loads(json.dumps(dump(readable)))) == readable


async def test_nothing_is_written_when_the_decision_fails_or_changes_nothing(ledger: FileLedger) -> None:
    path = write(ledger, FOREIGN)
    before = path.stat()

    def fail(book: Book) -> None:
        add(book)
        raise NotFound("x")

    with pytest.raises(NotFound):
        await ledger.transact(7, fail)
    await ledger.transact(7, lambda book: book.records)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["CLR-7-001"], 2),
        (["CLR-7-009"], 10),
        (["CLR-7-1000"], 1001),
    ],
)
async def test_next_number_follows_length_and_what_was_used(
    ledger: FileLedger, ids: list[str | None], expected: int
) -> None:
    write(ledger, *({"id": one} for one in ids))
    assert (await ledger.transact(7, add)).id == f"CLR-7-{expected:03d}"


BROKEN = [
    b"",
    b"{",
    b'{"clarifications": {}}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"clarifications": [{"id": "CLR-7-003", "topic": "cut he',
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
async def test_broken_file_is_set_aside_never_overwritten(ledger: FileLedger, content: bytes) -> None:
    for _ in range(3):
        await ledger.transact(7, add)
    ledger.files.path(7).write_bytes(content)
    with pytest.raises(LedgerUnreadable) as caught:
        await ledger.transact(7, add)
    aside = caught.value.quarantined
    assert aside is not None
    assert aside.read_bytes() == content
    assert caught.value.issue == 7
    assert "cut he" not in str(caught.value)
    assert aside.name in str(caught.value)
    assert not ledger.files.path(7).exists()
    assert (await ledger.transact(7, add)).id == "CLR-7-004", "its numbers are not given out again"


async def test_numbers_stay_used_whoever_starts_the_new_file(ledger: FileLedger) -> None:
    write(ledger, FOREIGN | {"id": "CLR-7-008"})
    ledger.files.path(7).write_bytes(ledger.files.path(7).read_bytes()[:-2])
    with pytest.raises(LedgerUnreadable):
        await ledger.read(7)
    write(ledger, FOREIGN)  # by another implementation, which numbers from 1
    assert (await ledger.transact(7, add)).id == "CLR-7-009"


async def test_unreadable_for_another_reason_is_typed_and_left(ledger: FileLedger) -> None:
    ledger.files.path(7).mkdir()
    for call in (ledger.read(7), ledger.news(7)):
        with pytest.raises(LedgerUnreadable, match="left in place"):
            await call


async def test_only_regular_files_with_a_number_that_can_be_given_out_are_ledgers(
    ledger: FileLedger, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ledger.files.directory
    odd = {
        "issue-0.json",
        "issue-007.json",
        "issue-1000000000.json",
        "issue-999999999999999.json",
        "issue-99999999999999999999.json",
        "issue-100001.json",
    }
    for name in (*odd, "issue-7.json", "issue-100000.json", "issue-\N{ARABIC-INDIC DIGIT FOUR}.json"):
        (folder / name).write_text('{"clarifications": []}')
    os.mkfifo(folder / "issue-88.json")
    (folder / "issue-89.json").mkdir()
    (folder / "issue-90.json").symlink_to(folder / "issue-7.json")
    (folder / "issue-91.json").symlink_to(folder / "gone")
    odd |= {"issue-88.json", "issue-89.json", "issue-90.json", "issue-91.json"}
    assert sorted(ledger.files.issues()) == [7, 100_000]
    assert sorted(ledger.files.issues()) == [7, 100_000]
    assert {each.path.name for each in ledger.files.listing.ignored()} == odd
    told = [line.getMessage() for line in caplog.records]
    assert len(told) == len(odd), "each once"
    assert [
        ledger.files.listing.issue_of(name)
        for name in ("issue-7.json", "issue-12.json", "issue-88.json", "x")
    ] == [
        7,
        12,
        None,
        None,
    ]
    for issue in (88, 89, 90, 91):
        with pytest.raises(LedgerUnreadable, match="left in place"):
            await ledger.read(issue)


async def test_reserved_numbers_count_from_when_we_gave_them_out(ledger: FileLedger) -> None:
    for issue in (100_001, 100_002, 100_003):
        write(ledger, issue=issue)
    await ledger.transact(100_004, add)
    assert list(ledger.files.issues()) == [100_004]
    ledger.files.claim(100_002)
    assert sorted(FileLedger(ledger.files.directory).files.issues()) == [100_001, 100_002, 100_004]
    await FileLedger(ledger.files.directory).transact(100_005, add)
    assert sorted(ledger.files.issues()) == [100_001, 100_002, 100_004, 100_005], (
        "another process gave it out since"
    )


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
async def test_what_is_no_file_where_a_ledger_is_to_be_is_set_aside(
    ledger: FileLedger, make: Callable[[Path], None]
) -> None:
    make(ledger.files.path(88))
    with pytest.raises(LedgerUnreadable, match="not a regular file") as caught:
        await ledger.transact(88, lambda book: book.next_seq())
    assert caught.value.quarantined is not None
    assert await ledger.transact(88, lambda book: book.next_seq()) == 1


async def test_numbers_that_others_made_up_leave_room_for_ours(ledger: FileLedger) -> None:
    write(ledger, *({"id": f"CLR-7-{number}"} for number in ("999999999999999", "999999999", "1000000000")))
    assert await ledger.transact(7, lambda book: book.next_seq()) == 1_000_000_001


FULL = """
import resource, signal, sys, time
from pathlib import Path
from core.errors import LedgerUnwritable
from core.ledger import FileLedger
from tests.kit.builders import record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
ledger = FileLedger(Path(sys.argv[1]))
try:
    ledger._transact(7, lambda book: book.put(record(7, book.next_seq())), time.monotonic() + 2, 2)
except LedgerUnwritable as error:
    print(error)
else:
    print("written")
"""


@pytest.mark.parametrize("limit", [0, 1000], ids=["no marker", "half a ledger"])
def test_full_disk_leaves_the_file_as_it_was(ledger: FileLedger, limit: int) -> None:
    path = write(ledger, FOREIGN, FOREIGN | {"id": "CLR-7-002"})
    before = path.read_bytes()
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(ledger.files.directory), str(limit)],
        capture_output=True, text=True, timeout=30, cwd=root, check=False,
    )  # fmt: skip
    assert "could not be written" in done.stdout, done.stderr
    assert "Nothing was changed" in done.stdout
    assert path.read_bytes() == before
    left = {file.name for file in ledger.files.directory.rglob("*") if file.is_file()}
    assert left - {"seal.key"} == {"issue-7.json", "issue-7.lock", "issue-7.marker"}
    key = ledger.files.private / "seal.key"
    assert not key.exists() or key.stat().st_size == 32, "half a key would be none for ever"
    again = ledger._transact(7, add, time.monotonic() + 1, 1)
    assert again.id == "CLR-7-003", "a number that was not written is not used up"


@pytest.mark.parametrize("call", ["fsync", "replace", "link"])
async def test_refused_file_operation_is_typed(
    ledger: FileLedger, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await ledger.transact(7, add)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        with pytest.raises(LedgerUnwritable):
            await ledger.transact(7, add)
    assert len(await ledger.read(7)) == 1
    assert (await ledger.transact(7, add)).id == "CLR-7-002"


def over(items: list[Raw]) -> bool:
    return is_over(items, NOW + MONTH, MONTH)


async def written(ledger: FileLedger, *records: Clarification) -> None:
    await ledger.transact(42, lambda book: [book.put(each) for each in records])


def ids(items: list[Raw]) -> list[str]:
    return [str(item["id"]) for item in items]


async def test_archived_ledger_stays_where_nothing_is_written(ledger: FileLedger) -> None:
    await written(ledger, closed())
    await ledger.shelve(42, over)
    router = Router(ledger, ManualClock(NOW), SLA, lambda _: None)

    with pytest.raises(AlreadyAnswered):
        await router.answer("CLR-42-001", lambda _: Answer("no", "No"), ADE, NOW)
    assert (await router.open(42, ask())).how == "duplicate"  # the producer tells it again

    assert not ledger.files.path(42).exists()
    assert ledger.files.archive.path(42).exists()


async def test_archived_ledger_that_is_broken_is_left_and_its_numbers_are_not_used_again(
    ledger: FileLedger,
) -> None:
    await written(ledger, closed(1), closed(2, session_id="sess_2"))
    await ledger.shelve(42, over)
    ledger.files.archive.path(42).write_text("{ broken")

    number = await ledger.transact(42, lambda book: book.put(record(seq=book.next_seq())).id)

    assert number == "CLR-42-003"
    assert ledger.files.archive.path(42).read_text() == "{ broken"


async def test_shelve_a_second_time_after_a_kill_between_link_and_unlink(ledger: FileLedger) -> None:
    await written(ledger, closed())
    ledger.files.archive.folder.mkdir()
    os.link(ledger.files.path(42), ledger.files.archive.path(42))

    assert await ledger.shelve(42, over)

    assert not ledger.files.path(42).exists()
    assert [path.name for _, path in ledger.files.archive.files()] == ["issue-42.json"]


async def test_shelve_keeps_what_others_began_anew_apart(ledger: FileLedger) -> None:
    """Another implementation, which knows no archive, numbers from 001 again: an id then names two records."""
    await written(ledger, closed())
    await ledger.shelve(42, over)
    anew = dump(closed()) | {"created": "2026-05-25T14:22:00.000Z", "topic": "another"}
    ledger.files.path(42).write_text(json.dumps({"issueNumber": 42, "clarifications": [anew]}))

    assert await ledger.shelve(42, lambda _: True)

    kept = {path.name: json.loads(path.read_bytes()) for _, path in ledger.files.archive.files()}
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
        patch.setattr(ledger.files.archive, "drop", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger._transact(42, _add, 1e12, 2.0)
    assert ids(await ledger.read(42)) == ["CLR-42-001", "CLR-42-002"]

    later = [
        abandoned(found, "expired", NOW) for item in (await ledger.read(42))[1:] if (found := parse(item))
    ]
    await written(ledger, *later)
    assert await ledger.shelve(42, over)
    assert [path.name for _, path in ledger.files.archive.files()] == ["issue-42.json"]


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


async def test_rewrite_reaches_live_and_archived_files(tmp_path: Path, ledger: FileLedger) -> None:
    secret = record(question="Is patient SECRET to be told?")
    await ledger.transact(42, lambda book: book.put(secret))
    await ledger.shelve(42, lambda _: True)
    ledger.files.path(42).write_text(json.dumps({"clarifications": [dump(secret)], "more": 1}))
    (tmp_path / "archive" / "issue-42.2.json").write_text("{ broken")

    unreadable = ledger.files.rewrite(42, lambda raw: forget_in(raw, range(len(raw["clarifications"]))))

    assert [path.name for path in unreadable] == ["issue-42.2.json"]
    for path in (ledger.files.path(42), ledger.files.archive.path(42)):
        assert "SECRET" not in path.read_text()
    assert json.loads(ledger.files.path(42).read_text())["more"] == 1
    assert not (tmp_path / "issue-42.json.lock").exists()
