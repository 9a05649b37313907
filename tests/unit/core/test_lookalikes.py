"""Which labels people would take for another one, or for a button."""

from __future__ import annotations

import pytest

from core.names import first_double, is_disguised, resembles, skeleton

BUTTONS = frozenset(["Accept", "Take", "Take over", "View full", "Hand to…", "Release", "Not mine", "Verify"])


@pytest.mark.parametrize(
    "label",
    [
        *(
            "Take",
            "take",
            "TAKE",
            " Take ",
            "Ta ke",
            "Take.",
            "[Take]",
            "✅ Take",
            "Täke",
            "Take\u00ad",
            "Ta\u200bke",
        ),
        *(
            "T\u0430ke",
            "Ta\u043ae",
            "\u0422\u0410\u041a\u0415",
            "\u13a2ake",
            "\uff34ake",
            "\U0001d413ake",
            "Ta\u3164ke",
        ),
        *(
            "ReIease",
            "Re1ease",
            "View fu|l",
            "Hand to...",
            "hand to",
            "Not rnine",
            "V\u0435r\u0456fy",
            "Takeover",
        ),
    ],
)
def test_label_is_taken_for_a_button(label: str) -> None:
    assert resembles(label, BUTTONS)


@pytest.mark.parametrize(
    "label",
    [
        "Yes",
        "No",
        "Approve",
        "Decline",
        "Accept all",
        "Take it",
        "Release 4.1",
        "65",
        "👍",
        "",
        "取る",
        "Нет",
    ],
)
def test_label_is_no_button(label: str) -> None:
    assert not resembles(label, BUTTONS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(
            ("Deploy", "Deploy"),
            ("Deploy", "Deploy "),
            ("a b", "a  b"),
            ("a b", "a\u00a0b"),
            ("Deploy", "Dep\u200dloy"),
        ),
        *(
            ("Deploy", "D\u0435ploy"),
            ("Да", "Да"),
            ("v1", "vl"),
            ("10", "1O"),
            ("é", "e\u0301"),
            ("Ｅu", "Eu"),
        ),
        ("\u200b", "\u2800"),
    ],
)
def test_labels_look_the_same(one: str, other: str) -> None:
    assert first_double(["x", one, "y", other]) == (1, 3)


def test_labels_look_different() -> None:
    labels = ["eu", "EU", "Eu", "é", "e", "1", "2", "10²", "102", "①", "👍", "👎", "Да", "Дa."]
    assert first_double(labels) is None
    assert [label for label in labels if not skeleton(label)] == []


def test_disguised_letters_are_those_that_look_like_ascii() -> None:
    assert [char for char in "aзаéе取" if is_disguised(char)] == ["з", "а", "е"]
