"""The files of ledgers: which are some, what they hold, what is no ledger or no record, a disk that refuses, and the archive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import LedgerUnreadable, LedgerUnwritable, LockTimeout
from core.ledgerfiles import LedgerFiles, blanked, decode, encode, read_item, why_invalid
from core.records import Raw, dump, forgotten, is_forgotten, parse
from tests.kit.builders import FOREIGN, closed, record


@pytest.fixture
def files(tmp_path: Path) -> Iterator[LedgerFiles]:
    made = LedgerFiles(tmp_path)
    yield made
    made.close()


def write(files: LedgerFiles, *items: Any, issue: int = 7) -> Path:
    path = files.path(issue)
    path.write_text(json.dumps({"issueNumber": issue, "clarifications": list(items)}))
    return path


def issues(files: LedgerFiles) -> list[int]:
    return sorted(issue for issue, _ in files.listing.ledgers())


def opened(files: LedgerFiles, issue: int = 7) -> Raw:
    with files.hold(issue) as check:
        return files.open(issue, check)


def replaced(files: LedgerFiles, *items: Any, issue: int = 7) -> None:
    """As the bridge writes: under the marker, of which it makes sure at the last moment."""
    with files.hold(issue) as check:
        raw = files.open(issue, check) | {"clarifications": list(items)}
        with files.replacing(issue, files.path(issue), encode(raw)):
            check()
        files.archive.drop(issue, raw)


def archived(files: LedgerFiles, issue: int = 7) -> Path:
    with files.hold(issue) as check:
        return files.archive.put(issue, files.path(issue), files.open(issue, check))


def test_half_a_character_in_a_foreign_field_does_not_block_the_ledger(files: LedgerFiles) -> None:
    path = files.path(7)
    path.write_text('{"issueNumber": 7, "note": "\\ud83d", "clarifications": []}')
    replaced(files, FOREIGN)
    assert json.loads(path.read_text()) == {
        "issueNumber": 7,
        "note": "\ud83d",
        "clarifications": [FOREIGN],
    }


BROKEN = [
    b"",
    b"{",
    b'{"clarifications": {}}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"clarifications": [{"id": "CLR-7-003", "topic": "cut he',
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_broken_file_is_set_aside_never_overwritten(files: LedgerFiles, content: bytes) -> None:
    files.path(7).write_bytes(content)
    with pytest.raises(LedgerUnreadable) as caught:
        opened(files)
    aside = caught.value.quarantined
    assert aside is not None
    assert aside.read_bytes() == content
    assert caught.value.issue == 7
    assert "cut he" not in str(caught.value)
    assert aside.name in str(caught.value)
    assert not files.path(7).exists()
    assert opened(files)["clarifications"] == []


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_file_where_a_ledger_is_to_be_is_set_aside(
    files: LedgerFiles, make: Callable[[Path], None]
) -> None:
    make(files.path(88))
    with pytest.raises(LedgerUnreadable, match="not a regular file") as caught:
        opened(files, 88)
    assert caught.value.quarantined is not None
    assert opened(files, 88)["clarifications"] == []


def test_only_regular_files_with_a_number_that_can_be_given_out_are_ledgers(
    files: LedgerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    folder = files.directory
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
    assert issues(files) == [7, 100_000]
    assert issues(files) == [7, 100_000]
    assert {each.path.name for each in files.listing.ignored()} == odd
    told = [line.getMessage() for line in caplog.records]
    assert len(told) == len(odd), "each once"
    names = ("issue-7.json", "issue-12.json", "issue-88.json", "x")
    assert [files.listing.issue_of(name) for name in names] == [7, 12, None, None]


def test_reserved_numbers_count_from_when_we_gave_them_out(files: LedgerFiles) -> None:
    for issue in (100_001, 100_002, 100_003):
        write(files, issue=issue)
    assert issues(files) == []
    for issue in (100_001, 100_002):
        files.numbers.give_out(issue)
    assert issues(LedgerFiles(files.directory)) == [100_001, 100_002]
    LedgerFiles(files.directory).numbers.give_out(100_003)
    assert issues(files) == [100_001, 100_002, 100_003], "another process gave it out since"


FULL = """
import resource, signal, sys
from pathlib import Path
from core.errors import LedgerUnwritable
from core.ledgerfiles import LedgerFiles
from tests.kit.builders import FOREIGN
from tests.unit.core.test_ledgerfiles import replaced
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    replaced(LedgerFiles(Path(sys.argv[1])), *[FOREIGN] * 3)
except LedgerUnwritable as error:
    print(error)
else:
    print("written")
"""


@pytest.mark.parametrize("limit", [0, 1000], ids=["no marker", "half a ledger"])
def test_full_disk_leaves_the_file_as_it_was(files: LedgerFiles, limit: int) -> None:
    path = write(files, FOREIGN, FOREIGN | {"id": "CLR-7-002"})
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(files.directory), str(limit)],
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[3], check=False,
    )  # fmt: skip
    assert "could not be written" in done.stdout, done.stderr
    assert "Nothing was changed" in done.stdout
    assert path.read_bytes() == before
    left = {file.name for file in files.directory.rglob("*") if file.is_file()}
    assert left == {"issue-7.json", "issue-7.lock", "issue-7.marker"}
    replaced(files, FOREIGN)
    assert opened(files)["clarifications"] == [FOREIGN]


@pytest.mark.parametrize("call", ["fsync", "replace", "link"])
def test_refused_file_operation_is_typed(
    files: LedgerFiles, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    replaced(files, FOREIGN)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, call, refuse)
        with pytest.raises(LedgerUnwritable):
            replaced(files)
    assert opened(files)["clarifications"] == [FOREIGN]
    replaced(files)
    assert opened(files)["clarifications"] == []


def test_who_lost_the_marker_writes_nothing(files: LedgerFiles) -> None:
    """As after a long suspend: another implementation took it for orphaned."""
    path = write(files, FOREIGN)
    before = path.read_bytes()
    marker = path.with_name("issue-7.json.lock")
    with files.hold(7) as check:
        marker.unlink()
        marker.write_text("{}")
        with (
            pytest.raises(LockTimeout, match="someone who took it over"),
            files.replacing(7, path, b"{}"),
        ):
            check()
    assert path.read_bytes() == before


def kept(files: LedgerFiles) -> dict[str, list[str]]:
    return {
        path.name: [item["topic"] for item in json.loads(path.read_bytes())["clarifications"]]
        for _, path in files.archive.files()
    }


def test_archived_ledger_is_read_and_comes_back_whole(files: LedgerFiles) -> None:
    write(files, dump(closed()), issue=42)
    archived(files, 42)
    assert not files.path(42).exists()
    whole = opened(files, 42)["clarifications"]
    assert whole == [dump(closed())]
    replaced(files, *whole, FOREIGN, issue=42)
    assert json.loads(files.path(42).read_bytes())["clarifications"] == [*whole, FOREIGN]
    assert kept(files) == {}


def test_archived_ledger_that_is_broken_is_left(files: LedgerFiles) -> None:
    write(files, dump(closed()), issue=42)
    place = archived(files, 42)
    place.write_text("{ broken")
    replaced(files, FOREIGN, issue=42)
    assert place.read_text() == "{ broken"


def test_archived_a_second_time_after_a_kill_between_link_and_unlink(files: LedgerFiles) -> None:
    write(files, dump(closed(topic="one")), issue=42)
    files.archive.folder.mkdir()
    os.link(files.path(42), files.archive.path(42))
    archived(files, 42)
    assert not files.path(42).exists()
    assert kept(files) == {"issue-42.json": ["one"]}


def test_archived_is_apart_from_what_others_began_anew(files: LedgerFiles) -> None:
    """Another implementation, which knows no archive, numbers from 001 again: an id then names two records."""
    write(files, dump(closed(topic="one")), issue=42)
    archived(files, 42)
    write(
        files, dump(closed(topic="another")) | {"created": "2026-05-25T14:22:00.000Z"}, issue=42
    )  # another one
    archived(files, 42)
    assert kept(files) == {"issue-42.json": ["one"], "issue-42.2.json": ["another"]}


@pytest.mark.parametrize("left", ["by a kill", "as the archive cannot be changed"])
def test_what_came_back_and_was_left_in_the_archive_is_there_once(
    files: LedgerFiles, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    write(files, dump(closed(topic="one")), issue=42)
    archived(files, 42)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "archive":
            raise KeyboardInterrupt if left == "by a kill" else PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    both = dump(closed(topic="one")), dump(closed(2, topic="two"))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        if left == "by a kill":
            with pytest.raises(KeyboardInterrupt):
                replaced(files, *both, issue=42)
        else:
            replaced(files, *both, issue=42)
    assert opened(files, 42)["clarifications"] == [*both]
    archived(files, 42)
    assert kept(files) == {"issue-42.json": ["one", "two"]}


def test_rewrite_reaches_live_and_archived_files(tmp_path: Path, files: LedgerFiles) -> None:
    secret = record(question="Is patient SECRET to be told?")
    write(files, dump(secret), issue=42)
    archived(files, 42)
    files.path(42).write_text(json.dumps({"clarifications": [dump(secret)], "more": 1}))
    (tmp_path / "archive" / "issue-42.2.json").write_text("{ broken")

    def forget(raw: Raw) -> bool:
        raw["clarifications"] = list(map(forgotten, raw["clarifications"]))
        return True

    files.rewrite(42, forget, 1)

    assert (tmp_path / "archive" / "issue-42.2.json").read_text() == "{ broken"
    for path in (files.path(42), files.archive.path(42)):
        assert "SECRET" not in path.read_text()
    assert json.loads(files.path(42).read_text())["more"] == 1
    assert not (tmp_path / "issue-42.json.lock").exists()


@pytest.mark.parametrize(
    ("change", "name", "fields", "is_over"),
    [
        ({"thread": None}, "CLR-7-001", ("thread",), False),
        ({"created": "yesterday", "round": "two"}, "CLR-7-001", ("created", "round"), False),
        ({"status": "resolved", "round": "two"}, "CLR-7-001", ("round",), True),
        ({"id": None}, "record 3", ("id",), False),
        ({"aaep": {"answered by whom?": 1, "nudges": "x"}}, "CLR-7-001", ("aaep.nudges",), False),
    ],
)
def test_oddity_names_fields_and_says_nothing_else(
    change: dict[str, Any], name: str, fields: tuple[str, ...], is_over: bool
) -> None:
    assert why_invalid(7, 3, FOREIGN) is None
    found = why_invalid(7, 3, FOREIGN | change)
    assert found is not None
    assert (found.name, found.fields, found.is_over) == (name, fields, is_over)


@pytest.mark.parametrize("item", [None, {}])
def test_oddity_of_what_is_no_record_at_all(item: object) -> None:
    found = why_invalid(7, 3, item)
    assert found is not None
    assert (found.name, found.agent_id, found.is_over) == ("record 3", None, False)


def test_half_characters_are_read_as_replaced() -> None:
    text = json.dumps(
        {"clarifications": [FOREIGN | {"from": "\ud83d", "topic": "a \ud83d", "x": ["\ud83d"]}]}
    )
    (item,) = decode(text.encode(), 7)["clarifications"]
    found = parse(item)
    assert found is not None
    assert (found.from_, found.topic, dump(found)["x"]) == ("\ufffd", "a \ufffd", ["\ufffd"])


@pytest.mark.parametrize(
    "others",
    [
        {"question": "x", "kinds": ["yes_no"]},
        {"question": None, "delivery": 1, "kinds": ["yes_no"], "reply": None},
        {"consent": {"kinds": "SECRET"}, "given": {"more": "SECRET"}, "kinds": ["yes_no"]},
        {"kinds": ["yes_no"], "earlier": [{"attention": "x", "nudges": 1}, "x"], "rounds": []},
    ],
)
def test_what_others_put_into_our_part_names_no_part_of_a_round(others: dict[str, Any]) -> None:
    item = FOREIGN | {"aaep": others, "rounds": "x"}
    before = json.dumps(item)
    found = read_item(item)
    assert found is not None
    assert found.asked.kinds == ("yes_no",)
    assert why_invalid(7, 1, item) is None
    blank = blanked(item)
    assert "SECRET" not in json.dumps(blank)
    again = read_item(blank)
    assert again is not None
    assert is_forgotten(again)
    assert json.dumps(item) == before


@pytest.mark.parametrize("part", ["x", [], [{"question": {"kinds": ["confirmation"]}}]])
def test_our_part_has_to_be_an_object(part: object) -> None:
    item = FOREIGN | {"aaep": part}
    assert read_item(item) is None
    found = why_invalid(7, 1, item)
    assert found is not None
    assert found.fields == ("aaep",)
