"""What a ledger file holds, and why an item of it is no record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.ledgerformat import decode, why_invalid
from core.records import dump, parse
from tests.kit.builders import FOREIGN


def test_oddity_is_told_again_when_its_contents_change_and_only_then() -> None:
    odd = FOREIGN | {"thread": None}
    first = why_invalid(7, 1, odd)
    assert why_invalid(7, 1, dict(reversed(odd.items()))) == first
    assert why_invalid(7, 1, odd | {"revision": 2}) != first
    assert why_invalid(7, 1, odd | {"unknown": 1}) != first


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
