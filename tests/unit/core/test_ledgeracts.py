"""Base, file, record: who changed what, as a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any

import pytest

from core.clarification import Entry
from core.ledgeracts import (
    Act,
    Adds,
    Base,
    Moves,
    Opens,
    Removes,
    Rewrites,
    Seen,
    acts,
    base_of,
    finished_at,
    rendered,
)
from core.ledgerfiles import decode, encode
from core.records import forgotten

Json = dict[str, Any]
Change = Callable[[Json], object]


NAME = "CLR-7-001"


def entry(kind: str, body: str, who: str = "engineer") -> Json:
    return {"round": 1, "from": who, "type": kind, "body": body, "timestamp": "2026-11-28T10:00:00.000Z"}


def asked() -> Json:
    return {
        "id": NAME,
        "issueNumber": 7,
        "from": "engineer",
        "to": "architect",
        "topic": "storage",
        "blocking": True,
        "status": "pending",
        "round": 1,
        "maxRounds": 5,
        "created": "2026-11-28T10:00:00.000Z",
        "staleAfter": None,
        "resolvedAt": None,
        "thread": [entry("question", "Which database?")],
        "revision": 1,
        "aaep": {"via": "http"},
    }


def answered(item: Json, body: str = "SQLite", who: str = "architect") -> None:
    item["status"] = "answered"
    item["thread"].append(entry("answer", body, who))


def settled(item: Json) -> None:
    answered(item)
    item["status"] = "resolved"
    item["aaep"] = {"via": "http", "reply": "confirmed"}


def then(*changes: Change) -> Change:
    """One after the other."""

    def change(item: Json) -> None:
        for each in changes:
            each(item)

    return change


def nothing(_: Json) -> None:
    """As it was."""


def status(to: str) -> Change:
    return lambda item: item.update(status=to)


def body(text: str) -> Change:
    return lambda item: item["thread"][0].update(body=text)


def after(*changes: Change) -> Json:
    item = asked()
    for change in changes:
        change(item)
    return item


def base(*states: Json) -> Base:
    return {NAME: [Seen.of(each) for each in states]} if states else {}


def found(known: Base, file: list[Any], record: list[Json]) -> list[Act]:
    """As the bridge reads them: through the file's text."""
    read = decode(encode({"issueNumber": 7, "clarifications": file}), 7)
    return list(acts(known, read["clarifications"], record))


def adds(kind: str, body: str, *, abandons: bool = False) -> list[Act]:
    return [Adds(NAME, [Entry.model_validate(entry(kind, body, "architect"))], abandons)]


ADDS = adds("answer", "SQLite")
ROWS: dict[str, tuple[list[Change], Change, Change, list[Act]]] = {
    # What the bridge left, what the file holds, what the record says, and what that is.
    "nobody did anything": ([nothing], nothing, nothing, []),
    "the record went on": ([nothing], nothing, settled, []),
    "it was written, and the bot died before it knew": ([nothing, answered], answered, settled, []),
    "nor was it written": ([nothing, answered], nothing, settled, []),
    "the base is lost": ([], nothing, settled, []),
    "an answer": ([nothing], answered, nothing, ADDS),
    "an answer, while the record went on": ([nothing], answered, status("escalated"), ADDS),
    "an answer that the record has already": ([nothing], answered, settled, []),
    "another answer, second": (
        [nothing],
        lambda item: answered(item, "Oracle"),
        settled,
        adds("answer", "Oracle"),
    ),
    "an entry without its status": (
        [nothing],
        lambda item: item["thread"].append(entry("answer", "SQLite", "architect")),
        nothing,
        ADDS,
    ),
    "resolved without a word": (
        [answered],
        then(answered, status("resolved")),
        answered,
        [Moves(NAME, "resolved")],
    ),
    "abandoned": ([nothing], status("abandoned"), nothing, [Moves(NAME, "abandoned")]),
    "abandoned with a word": (
        [nothing],
        then(lambda item: item["thread"].append(entry("resolution", "no", "architect")), status("abandoned")),
        nothing,
        adds("resolution", "no", abandons=True),
    ),
    "abandoned with a word, after an answer": (
        [answered],
        then(
            answered,
            lambda item: item["thread"].append(entry("resolution", "no", "architect")),
            status("abandoned"),
        ),
        answered,
        adds("resolution", "no", abandons=True),
    ),
    "escalated": ([nothing], status("escalated"), nothing, [Moves(NAME, "escalated")]),
    "answered without an answer": ([nothing], status("answered"), nothing, [Rewrites(NAME)]),
    "opened again": ([settled], then(settled, status("pending")), settled, [Rewrites(NAME)]),
    "the question rewritten": ([nothing], body("Drop it?"), nothing, [Rewrites(NAME)]),
    "the answer rewritten": ([answered], lambda item: answered(item, "Oracle"), answered, [Rewrites(NAME)]),
    "the answer taken away": ([answered], nothing, answered, [Rewrites(NAME)]),
    "who asks": ([nothing], lambda item: item.update({"from": "gardener"}), nothing, [Rewrites(NAME)]),
    "our own fields": (
        [nothing],
        lambda item: item["aaep"].update(reply="confirmed"),
        nothing,
        [Rewrites(NAME)],
    ),
    "our own fields left out": ([nothing], lambda item: item.pop("aaep"), nothing, [Rewrites(NAME)]),
    "a revision, a field of theirs": (
        [nothing],
        lambda i: i.update(revision=9, theirs=1, staleAfter=None),
        nothing,
        [],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_who_changed_what(row: str) -> None:
    left, file, record, wanted = ROWS[row]
    assert found(base(*map(after, left)), [after(file)], [after(record)]) == wanted


SPELLED: dict[str, Change] = {
    "no milliseconds": lambda item: item.update(created="2026-11-28T10:00:00Z"),
    "microseconds": lambda item: item.update(created="2026-11-28T10:00:00.000000+00:00"),
    "another zone": lambda item: item.update(created="2026-11-28T12:00:00+02:00"),
    "no zone": lambda item: item.update(created="2026-11-28T10:00:00"),
    "the id": lambda item: item.update(id="CLR-0007-0001"),
    "whose role": lambda item: item.update({"from": "agent:engineer"}),
    "numbers": lambda item: (item.update(maxRounds=5.0), item["thread"][0].update(round="1")),
    "what goes without saying": lambda item: [item.pop(name) for name in ("blocking", "maxRounds")],
}


@pytest.mark.parametrize("how", SPELLED)
def test_how_it_is_spelled_is_nobodys_act_and_keeps_fields_of_others(how: str) -> None:
    spelled = after(SPELLED[how], lambda item: item.update(theirs=1))
    assert found(base(asked()), [spelled], [after(settled)]) == []
    assert found({}, [spelled], [after(settled)]) == []
    kept = rendered({"clarifications": [spelled]}, {"clarifications": [after(settled)]})
    assert kept["clarifications"] == [{**after(settled), "theirs": 1}]


def test_another_spelling_beside_ours_is_another_record() -> None:
    other = after(SPELLED["the id"], body("Which queue?"))
    assert found(base(asked()), [other, asked()], [asked()]) == [Opens(other)]
    read = {name: [seen] for name, seen in base_of([other, asked()]).items()}
    assert found(read, [other, asked()], [asked()]) == []
    kept = rendered({"clarifications": [other, asked()]}, {"clarifications": [after(settled)]})
    assert kept["clarifications"] == [other, after(settled)]


def test_new_clarification_is_somebodys_and_one_with_our_id_too() -> None:
    theirs = after(body("Which queue?"), lambda item: item.update(created="2026-11-28T11:00:00.000Z"))
    assert found({}, [theirs], []) == [Opens(theirs)]
    assert found({}, [theirs], [asked()]) == [Opens(theirs)]


def test_record_without_a_question_is_nothing_until_it_has_one() -> None:
    bare = asked() | {"id": "CLR-7-009", "thread": []}
    asks = bare | {"thread": asked()["thread"]}
    assert found({}, [bare], []) == []
    assert found({"CLR-7-009": [Seen.of(bare)]}, [asks], []) == [Opens(asks)]


def test_record_that_was_removed_is_told_once_it_was_there() -> None:
    assert found(base(asked()), [], [asked()]) == [Removes(NAME)]
    assert found({}, [], [asked()]) == []
    may_be_there = {NAME: [None, *base(asked())[NAME]]}
    assert found(may_be_there, [], [asked()]) == []


@pytest.mark.parametrize("odd", [7, "x", None, [], {}, {"id": "CLR-8-001"}, {"id": NAME, "thread": 7}])
def test_what_is_no_record_is_nobodys_act_and_stays(odd: Any) -> None:
    file = decode(encode({"issueNumber": 7, "clarifications": [asked(), odd], "by": "them"}), 7)
    assert list(acts(base(asked()), file["clarifications"], [asked()])) == []
    kept = rendered(file, {"issueNumber": 7, "clarifications": [after(settled)]})
    assert kept["clarifications"] == [after(settled), odd]
    assert kept["by"] == "them"


def test_forgotten_record_is_blanked_with_what_others_wrote_into_it() -> None:
    theirs, blank = after(lambda item: item.update(theirs="Which database?")), forgotten(asked())
    file = {"issueNumber": 7, "clarifications": [theirs]}
    assert found(base(asked()), [theirs], [blank]) == []
    assert (
        "Which database?"
        not in encode(rendered(file, {"issueNumber": 7, "clarifications": [blank]})).decode()
    )


def test_what_was_written_is_like_the_base() -> None:
    record = after(settled, lambda item: item["aaep"].update(response=None, slaMinutes=30.0))
    file = rendered(
        {"issueNumber": 7, "clarifications": []},
        {"issueNumber": 7, "clarifications": [copy.deepcopy(record)]},
    )
    read = decode(encode(file), 7)["clarifications"]
    assert {name: [seen] for name, seen in base_of(read).items()} == base(record)


DONE = {**asked(), "status": "resolved", "resolvedAt": "2026-11-28T11:00:00.000Z"}


@pytest.mark.parametrize(
    ("file", "at"),
    [
        ([], "inf"),
        ([DONE], "2026-11-28T11:00:00+00:00"),
        ([DONE, asked()], "inf"),
        ([DONE, {"id": "CLR-7-002"}], "inf"),
        ([DONE, {**DONE, "resolvedAt": "2026-11-28T12:00:00.000Z"}], "2026-11-28T12:00:00+00:00"),
    ],
)
def test_finished_at(file: list[Json], at: str) -> None:
    expected = inf if at == "inf" else datetime.fromisoformat(at).timestamp()
    assert finished_at(file) == expected
