"""What a ledger file holds, and why an item of it is no record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.ledgerfiles import blanked, decode, read_item, why_invalid
from core.records import dump, is_forgotten, parse
from tests.kit.builders import FOREIGN


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
