from __future__ import annotations

import pytest

from bot.errors import BadPress
from bot.views.codec import PagePress, PageVerb, action_id


@pytest.mark.parametrize("verb", ["hand", "notmine", "show", "snooze", "take"])
def test_press_is_read_back(verb: PageVerb) -> None:
    press = PagePress(verb, 10**15 - 1, 7)
    assert PagePress.unpack(press.pack()) == press
    assert len(press.pack()) <= 75


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1|take|1",
        "1|take|1|2|3",
        "2|take|1|0",
        "1|steal|1|0",
        "1|take|x|0",
        "1|take|1|-1",
        "1|take|٣|0",
        "x" * 999,
    ],
)
def test_what_is_no_press_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(BadPress) as refused:
        PagePress.unpack(text)
    assert "steal" not in str(refused.value)


def test_action_ids() -> None:
    assert action_id(PagePress("take", 1)) == "oncall.take"
    assert action_id(PagePress("show", 1), 3) == "oncall.show.3"
