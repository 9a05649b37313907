"""What controls carry: read back as packed, in the form in which they were posted; anything else is refused."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import BadPress, ClarifyBotError
from bot.views.codec import (
    LIMIT,
    AnyPress,
    HomePress,
    ListPress,
    PagePress,
    Press,
    Verb,
    action_id,
)


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


@pytest.mark.parametrize(
    ("press", "packed", "action"),
    [
        (Press("choice", "CLR-42-001", 2, "3"), "1|choice|CLR-42-001|2|3", "clarify.choice"),
        (Press("review", "CLR-42-001", 1, "2.0f"), "1|review|CLR-42-001|1|2.0f", "clarify.review"),
        (PagePress("take", 7), "1|take|7|0", "oncall.take"),
        (PagePress("notmine", 10**15 - 1, 7), "1|notmine|999999999999999|7", "oncall.notmine"),
        (ListPress("page", "#42", 3), "1|page|3|#42", "list.page"),
        (ListPress("take", "CLR-42-001"), "1|take|0|CLR-42-001", "list.take"),
        (HomePress("answer", "CLR-42-001", 1), "1|answer|CLR-42-001|1", "home.answer"),
        (HomePress("page", "inbox", 2), "1|page|inbox|2", "home.page"),
    ],
)
def test_press_is_packed_as_ever_and_read_back(press: AnyPress, packed: str, action: str) -> None:
    assert press.pack() == packed
    assert type(press).unpack(packed) == press
    assert (action_id(press), action_id(press, 7)) == (action, f"{action}.7")


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Press, "1|yes|CLR-42-001|1", "has 4 parts"),
        (Press, "2|yes|CLR-42-001|1|", "not of version 1"),
        (Press, "1|rm|CLR-42-001|1|", "unknown verb"),
        (Press, "1|yes|42|1|", "names no clarification and round"),
        (Press, "1|yes|CLR-42-001|-1|", "names no clarification and round"),
        (PagePress, "1|take|1|2|3", "expected two numbers"),
        (PagePress, "1|steal|1|0", "unknown verb"),
        (PagePress, "1|take|1|-1", "expected two numbers"),
        (ListPress, "2|page|1|stale", "not of version 1"),
        (ListPress, "1|drop|1|x", "unknown verb"),
        (ListPress, "1|page|x|stale", "no number"),
        (HomePress, "1|answer|CLR-42-001|1|x", "names nothing"),
        (HomePress, "1|delete|CLR-42-001|1", "unknown verb"),
        (HomePress, "1|page|CLR-42-001|1", "names nothing"),
        (HomePress, "1|page|inbox|²", "names nothing"),
    ],
)
def test_what_is_no_press_is_refused_without_repeating_it(kind: type[AnyPress], text: str, says: str) -> None:
    with pytest.raises(BadPress, match=says) as caught:
        kind.unpack(text)
    assert isinstance(caught.value, ClarifyBotError)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize("arg", ["x" * 140, "…"])
def test_pack_refuses_what_does_not_fit(arg: str) -> None:
    with pytest.raises(BadPress, match="at most 150 ASCII"):
        Press("which", "CLR-42-001", 1, arg).pack()


@pytest.mark.parametrize("arg", ["x", "-1"])
def test_number_refuses_what_is_none(arg: str) -> None:
    with pytest.raises(BadPress, match="has no number"):
        Press("page", "CLR-42-001", 1, arg).number()


def test_press_on_a_question_is_as_on_its_card() -> None:
    assert HomePress("answer", "CLR-42-001", 2).on_question() == Press("answer", "CLR-42-001", 2)
    assert HomePress("view", "CLR-42-001", 2).on_question() == Press("view", "CLR-42-001", 2, "1")
    with pytest.raises(BadPress):
        HomePress("page", "inbox", 2).on_question()


def test_review_names_a_page_and_the_version_of_what_it_shows() -> None:
    press = Press("review", "CLR-42-001", 1, "12.0f")
    assert (press.number(), press.version) == (12, "0f")
    assert Press("accept", "CLR-42-001", 1, "0f").version == "0f"
    with pytest.raises(BadPress, match="no number"):
        Press("review", "CLR-42-001", 1, "0f").number()
