from __future__ import annotations

import pytest

from bot.codec import Press
from bot.errors import BadPress
from bot.home.codec import HomePress


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1|answer|CLR-42-001",
        "1|answer|CLR-42-001|1|x",
        "2|answer|CLR-42-001|1",
        "1|delete|CLR-42-001|1",
        "1|answer|inbox|1",
        "1|page|CLR-42-001|1",
        "1|page|nowhere|1",
        "1|page|inbox|-1",
        "1|page|inbox|²",
        f"1|answer|CLR-{'4' * 150}-001|1",
    ],
)
def test_press_that_is_not_ours_is_not_read_and_not_repeated(text: str) -> None:
    with pytest.raises(BadPress) as raised:
        HomePress.unpack(text)
    assert not text or text not in str(raised.value)


def test_press_on_a_question_is_as_on_its_card() -> None:
    assert HomePress("answer", "CLR-42-001", 2).on_question() == Press("answer", "CLR-42-001", 2)
    assert HomePress("view", "CLR-42-001", 2).on_question() == Press("view", "CLR-42-001", 2, "1")
    with pytest.raises(BadPress):
        HomePress("page", "inbox", 2).on_question()


@pytest.mark.parametrize(
    ("press", "packed"),
    [
        (HomePress("answer", "CLR-42-001", 1), "1|answer|CLR-42-001|1"),
        (HomePress("view", "CLR-100001-1234", 12), "1|view|CLR-100001-1234|12"),
        (HomePress("page", "inbox", 2), "1|page|inbox|2"),
    ],
)
def test_press_is_packed_and_read_back(press: HomePress, packed: str) -> None:
    assert press.pack() == packed
    assert HomePress.unpack(packed) == press
