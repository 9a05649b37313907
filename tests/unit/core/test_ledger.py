"""Ledger files: read and written beside others, torn, broken, on a full disk, and by killed processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import IOBase
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from core.clarification import Clarification
from core.errors import LedgerUnreadable, LedgerUnwritable, NotFound
from core.ledger import FileLedger
from core.records import Book, digest, dump, oddity, parse
from tests.unit.core.records import record

RIVAL = Path(__file__).with_name("rival.py")
FOREIGN: dict[str, Any] = {
    "id": "CLR-7-001",
    "issueNumber": 7,
    "from": "engineer",
    "to": "architect",
    "topic": "database",
    "blocking": False,
    "status": "pending",
    "round": 2,
    "maxRounds": 6,
    "created": "2026-05-24T14:22:00.000Z",
    "staleAfter": "2026-05-24T14:52:00.000Z",
    "resolvedAt": None,
    "thread": [
        {
            "round": 1,
            "from": "engineer",
            "type": "question",
            "body": "Postgres or not?",
            "timestamp": "2026-05-24T14:22:00.000Z",
            "mood": "curious",
        }
    ],
    "revision": 3,
    "priority": {"level": [1, None, 2.5]},
    "löschen": "später",
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[FileLedger]:
    made = FileLedger(tmp_path)
    yield made
    made.close()


def write(ledger: FileLedger, *items: Any, issue: int = 7, **fields: Any) -> Path:
    path = ledger.path(issue)
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
    path = ledger.path(7)
    path.write_text('{"issueNumber": 7, "note": "\\ud83d", "clarifications": []}')
    await ledger.transact(7, add)
    assert json.loads(path.read_text())["note"] == "\ud83d"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created", "2026-05-24T14:22:00"),
        ("created", "0001-01-01T00:00:00+14:00"),
        ("created", "yesterday"),
        ("status", "open"),
        ("thread", "none"),
        ("id", None),
        ("round", "two"),
        ("aaep", {"choices": [{"value": "a"}]}),
        ("aaep", []),
        ("topic", "\ud83d"),
        ("extra", "\ud83d"),
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


async def test_file_keeps_its_mode(ledger: FileLedger) -> None:
    path = write(ledger, FOREIGN)
    path.chmod(0o664)
    await ledger.transact(7, add)
    assert path.stat().st_mode & 0o777 == 0o664


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


async def test_cancelled_caller_decision_is_finished_and_told(ledger: FileLedger) -> None:
    told = asyncio.Event()
    task = asyncio.create_task(ledger.transact(7, add, written=told.set))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait_for(told.wait(), 60)
    assert [item["id"] for item in await ledger.read(7)] == ["CLR-7-001"]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 1),
        (["CLR-7-001"], 2),
        (["CLR-7-009"], 10),
        (["CLR-7-001", "other", None], 4),
        (["CLR-8-050"], 2),
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
    b"[]",
    b"null",
    b'{"clarifications": {}}',
    b'{"issueNumber": 7}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"clarifications": [{"id": "CLR-7-003", "topic": "cut he',
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
async def test_broken_file_is_set_aside_never_overwritten(ledger: FileLedger, content: bytes) -> None:
    for _ in range(3):
        await ledger.transact(7, add)
    ledger.path(7).write_bytes(content)
    with pytest.raises(LedgerUnreadable) as caught:
        await ledger.transact(7, add)
    aside = caught.value.aside
    assert aside is not None
    assert aside.read_bytes() == content
    assert caught.value.issue == 7
    assert "cut he" not in str(caught.value)
    assert aside.name in str(caught.value)
    assert not ledger.path(7).exists()
    assert (await ledger.transact(7, add)).id == "CLR-7-004", "its numbers are not given out again"


async def test_numbers_stay_used_whoever_starts_the_new_file(ledger: FileLedger) -> None:
    write(ledger, FOREIGN | {"id": "CLR-7-008"})
    ledger.path(7).write_bytes(ledger.path(7).read_bytes()[:-2])
    with pytest.raises(LedgerUnreadable):
        await ledger.read(7)
    write(ledger, FOREIGN)  # by another implementation, which numbers from 1
    assert (await ledger.transact(7, add)).id == "CLR-7-009"


async def test_unreadable_for_another_reason_is_typed_and_left(ledger: FileLedger) -> None:
    ledger.path(7).mkdir()
    for call in (ledger.read(7), ledger.news(7)):
        with pytest.raises(LedgerUnreadable, match="left where it is"):
            await call


async def test_readers_never_act_on_a_torn_file(ledger: FileLedger) -> None:
    rival = await asyncio.create_subprocess_exec(
        sys.executable, str(RIVAL), "increment", str(ledger.directory), "7", "60"
    )
    reads, last = 0, 0
    while rival.returncode is None:
        count = len(await ledger.read(7))
        assert count >= last
        last = count
        reads += 1
        if reads % 50 == 0:
            await ledger.transact(7, add)
    assert rival.returncode == 0
    assert not list(ledger.directory.glob("*unreadable*"))
    assert len(await ledger.read(7)) == 60 + reads // 50


async def test_find_reads_one_record(ledger: FileLedger) -> None:
    write(ledger, FOREIGN)
    assert (await ledger.find("CLR-7-001", 7)).round == 2
    with pytest.raises(NotFound):
        await ledger.find("CLR-7-002", 7)
    with pytest.raises(NotFound):
        await ledger.find("CLR-8-001", 8)


async def test_issues_are_those_of_live_ledgers(ledger: FileLedger) -> None:
    for name in ("issue-7.json", "issue-8.json.lock", "issue-9.json.unreadable-1", "issue-x.json", "a"):
        (ledger.directory / name).write_text("{}")
    (ledger.directory / "archive").mkdir()
    assert list(ledger.issues()) == [7]


async def test_only_regular_files_with_a_number_that_can_be_given_out_are_ledgers(
    ledger: FileLedger, caplog: pytest.LogCaptureFixture
) -> None:
    folder = ledger.directory
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
    assert sorted(ledger.issues()) == [7, 100_000]
    assert sorted(ledger.issues()) == [7, 100_000]
    assert {each.path.name for each in ledger.shelf.ignored()} == odd
    told = [line.getMessage() for line in caplog.records]
    assert len(told) == len(odd), "each once"
    assert [ledger.issue_of(name) for name in ("issue-7.json", "issue-12.json", "issue-88.json", "x")] == [
        7,
        12,
        None,
        None,
    ]
    for issue in (88, 89, 90, 91):
        with pytest.raises(LedgerUnreadable, match="left where it is"):
            await ledger.read(issue)


async def test_reserved_numbers_count_from_when_we_gave_them_out(ledger: FileLedger) -> None:
    for issue in (100_001, 100_002, 100_003):
        write(ledger, issue=issue)
    await ledger.transact(100_004, add)
    assert list(ledger.issues()) == [100_004]
    ledger.claim(100_002)
    assert sorted(FileLedger(ledger.directory).issues()) == [100_001, 100_002, 100_004]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
async def test_what_is_no_file_where_a_ledger_is_to_be_is_set_aside(
    ledger: FileLedger, make: Callable[[Path], None]
) -> None:
    make(ledger.path(88))
    with pytest.raises(LedgerUnreadable, match="not a regular file") as caught:
        await ledger.transact(88, lambda book: book.next_seq())
    assert caught.value.aside is not None
    assert await ledger.transact(88, lambda book: book.next_seq()) == 1


async def test_numbers_that_others_made_up_leave_room_for_ours(ledger: FileLedger) -> None:
    write(ledger, *({"id": f"CLR-7-{number}"} for number in ("999999999999999", "999999999", "1000000000")))
    assert await ledger.transact(7, lambda book: book.next_seq()) == 1_000_000_001


async def test_news_are_what_others_wrote(ledger: FileLedger) -> None:
    assert await ledger.news(7) == []
    await ledger.transact(7, add)
    assert await ledger.news(7) is None, "our own write is no news"
    other = FileLedger(ledger.directory)
    await other.transact(7, add)
    assert ledger.changed() == [7]
    assert len(await ledger.news(7) or []) == 2
    assert await ledger.news(7) is None
    assert ledger.changed() == []
    await other.transact(7, add)
    await ledger.transact(7, add)
    assert len(await ledger.news(7) or []) == 4, "our write on top of another's does not hide it"
    assert await ledger.news(7) is None
    ledger.forget(7)
    assert len(await ledger.news(7) or []) == 4
    other.close()


def test_digest_tells_contents_apart_and_nothing_else() -> None:
    one = dump(record(7))
    assert digest(one) == digest(dict(reversed(one.items())))
    assert digest(one) != digest(one | {"revision": 2})
    assert digest(one) != digest(one | {"unknown": 1})


FULL = """
import resource, signal, sys, time
from pathlib import Path
from core.errors import LedgerUnwritable
from core.ledger import FileLedger
from tests.unit.core.records import record
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


@pytest.mark.parametrize("limit", [0, 10, 1000], ids=["no marker", "half a marker", "half a ledger"])
def test_full_disk_leaves_the_file_as_it_was(ledger: FileLedger, limit: int) -> None:
    path = write(ledger, FOREIGN, FOREIGN | {"id": "CLR-7-002"})
    before = path.read_bytes()
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(ledger.directory), str(limit)],
        capture_output=True, text=True, timeout=30, cwd=root, check=False,
    )  # fmt: skip
    assert "could not be written" in done.stdout, done.stderr
    assert "nothing was changed" in done.stdout
    assert path.read_bytes() == before
    left = sorted(file.name for file in ledger.directory.rglob("*") if file.is_file())
    assert left == ["issue-7.json", "issue-7.lock", "issue-7.marker"]
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


def kill_at(step: int) -> Callable[[FrameType, str, Any], None]:
    """A profile function that kills this process before its file operation number `step`."""
    count = 0

    def profile(_: FrameType, event: str, function: Any) -> None:
        nonlocal count
        owner = getattr(function, "__self__", None)
        touches = isinstance(owner, IOBase) or getattr(owner, "__name__", "") in {
            "posix",
            "fcntl",
            "io",
            "_io",
        }
        if event != "c_call" or not touches or function.__name__ in {"getpid", "fspath"}:
            return
        count += 1
        if count >= step:
            os.kill(os.getpid(), signal.SIGKILL)

    return profile


def killed(work: Callable[[], object], step: int) -> bool:
    """Run `work` in a child that dies at file operation `step`; False if it ended before."""
    child = os.fork()
    if child == 0:
        try:
            sys.setprofile(kill_at(step))
            work()
        finally:
            sys.setprofile(None)
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_kill_between_any_two_file_operations_leaves_a_ledger_that_goes_on(tmp_path: Path) -> None:
    step, deaths, written = 0, 0, 0
    while True:
        step += 1
        folder = tmp_path / str(step)
        folder.mkdir()
        ledger = FileLedger(folder)
        write(ledger, FOREIGN)
        died = killed(lambda ledger=ledger: ledger._transact(7, add, time.monotonic() + 2, 2), step)  # type: ignore[misc]
        items = ledger.read_now(7)
        assert items[0] == FOREIGN
        assert len(items) in {1, 2}
        written += len(items) == 2
        # A stuck lock would be waited for until this time is over, which is an error.
        new = ledger._transact(7, add, time.monotonic() + 10, 10)
        assert new.id == f"CLR-7-{len(items) + 1:03d}"
        assert [path.name for path in folder.iterdir() if path.is_file()] == ["issue-7.json"]
        ledger.close()
        if not died:
            break
        deaths += 1
    assert deaths >= 15
    assert 1 < written < deaths, "kills fell before and after the write"


@pytest.mark.parametrize(
    ("change", "name", "fields", "is_over"),
    [
        ({"thread": None}, "CLR-7-001", ("thread",), False),
        ({"status": "wondering"}, "CLR-7-001", ("status",), False),
        ({"created": "yesterday", "round": "two"}, "CLR-7-001", ("created", "round"), False),
        ({"status": "resolved", "round": "two"}, "CLR-7-001", ("round",), True),
        ({"status": ["resolved"]}, "CLR-7-001", ("status",), False),
        ({"id": None}, "record 3", ("id",), False),
        ({"id": "Q " * 100}, "Q " * 30, ("id",), False),
        ({"aaep": {"answered by whom?": 1, "earlier": "x"}}, "CLR-7-001", ("aaep.earlier",), False),
    ],
)
def test_oddity_names_fields_and_says_nothing_else(
    change: dict[str, Any], name: str, fields: tuple[str, ...], is_over: bool
) -> None:
    assert oddity(7, 3, FOREIGN) is None
    found = oddity(7, 3, FOREIGN | change)
    assert found is not None
    assert (found.name, found.fields, found.is_over) == (name, fields, is_over)


@pytest.mark.parametrize("item", [None, 7, "junk", [], {}])
def test_oddity_of_what_is_no_record_at_all(item: object) -> None:
    found = oddity(7, 3, item)
    assert found is not None
    assert (found.name, found.agent_id, found.is_over) == ("record 3", None, False)
