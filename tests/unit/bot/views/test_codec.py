from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import BadPress, ClarifyBotError
from bot.views.codec import LIMIT, Press, Verb, action_id


@given(
    st.sampled_from(get_args(Verb)),
    st.integers(0, 10**9),
    st.integers(1, 10**9 - 1),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=80),
)
def test_press_round_trip(verb: Verb, seq: int, number: int, arg: str) -> None:
    press = Press(verb, f"CLR-42-{seq:03d}", number, arg)
    packed = press.pack()
    assert len(packed) <= LIMIT
    assert Press.unpack(packed) == press


def test_press_packed_form_is_stable() -> None:
    assert Press("choice", "CLR-42-001", 2, "3").pack() == "1|choice|CLR-42-001|2|3"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has 1 parts"),
        ("1|yes|CLR-42-001|1", "has 4 parts"),
        ("2|yes|CLR-42-001|1|", "not of version 1"),
        ("1|rm|CLR-42-001|1|", "unknown verb"),
        ("1|yes|42|1|", "names no clarification and round"),
        ("1|yes|CLR-42-001|one|", "names no clarification and round"),
        ("1|yes|CLR-42-001|-1|", "names no clarification and round"),
        ("1|yes|CLR-42-001|1|" + "x" * 150, "169 characters"),
    ],
)
def test_unpack_says_what_is_wrong_and_repeats_nothing(text: str, says: str) -> None:
    with pytest.raises(BadPress, match=says) as caught:
        Press.unpack(text)
    assert isinstance(caught.value, ClarifyBotError)
    assert "CLR-42-001|1|x" not in str(caught.value)


@pytest.mark.parametrize("arg", ["x" * 140, "…"])
def test_pack_refuses_what_does_not_fit(arg: str) -> None:
    with pytest.raises(BadPress, match="at most 150 ASCII"):
        Press("which", "CLR-42-001", 1, arg).pack()


@pytest.mark.parametrize("arg", ["", "x", "1.5", "-1"])
def test_number_refuses_what_is_none(arg: str) -> None:
    with pytest.raises(BadPress, match="has no number"):
        Press("page", "CLR-42-001", 1, arg).number()


@pytest.mark.parametrize("verb", get_args(Verb))
def test_action_id_names_its_verb(verb: Verb) -> None:
    assert action_id(Press(verb, "CLR-42-001", 1)) == f"clarify.{verb}"
    assert action_id(Press(verb, "CLR-42-001", 1), 7) == f"clarify.{verb}.7"
