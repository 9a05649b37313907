"""Base, file, record: who changed what, as a table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from bot.integrations.ledgerfiles.acts import (
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
    rendered,
)
from core.records import decode, encode, forgotten

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


ADDS: list[Act] = [Adds(NAME, [entry("answer", "SQLite", "architect")])]
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
        [Adds(NAME, [entry("answer", "Oracle", "architect")])],
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


def test_new_clarification_is_somebodys_and_one_with_our_id_too() -> None:
    theirs = after(body("Which queue?"), lambda item: item.update(created="2026-11-28T11:00:00.000Z"))
    assert found({}, [theirs], []) == [Opens(theirs)]
    assert found({}, [theirs], [asked()]) == [Opens(theirs, is_ours=True)]


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
