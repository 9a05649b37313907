"""When similar pages go out together, and where."""

from __future__ import annotations

from datetime import timedelta

from bot.oncall.pager import Windows, merged
from bot.oncall.pages import Destination
from tests.kit.clocks import START

GROUP, HERE = ("errored", "platform"), Destination("slack", "U0ONCALL")


def test_places_are_merged() -> None:
    threads = [Destination("slack", "C1", ("p", str(n)), (f"U{n}",)) for n in range(2)]
    assert merged([*threads, HERE, HERE]) == (Destination("slack", "C1", None, ("U0", "U1")), HERE)
    assert merged(threads[:1] * 2) == (threads[0],)


def test_window_opens_at_once_then_each_ten_seconds_while_the_storm_lasts() -> None:
    windows, at = Windows(), START
    waits = []
    for number in range(7):
        at = windows.opens(GROUP, (number,), None, at)
        waits.append((at - START).total_seconds())
        windows.passed(GROUP, (number,), at)
    assert waits == [10 * number for number in range(7)]
    calm = at + timedelta(minutes=5)
    assert windows.opens(GROUP, (8,), None, calm) == calm
    windows.passed(GROUP, (8,), calm)
    assert windows.opens(GROUP, (9,), None, calm) == calm + timedelta(seconds=10)
    assert windows.opens(("ledger", None), (9,), None, calm) == calm


def test_window_is_not_shut_by_what_is_paged_again() -> None:
    windows, at = Windows(), START
    for _ in range(20):
        assert windows.opens(GROUP, (1,), None, at) == at
        windows.passed(GROUP, (1,), at)
        at += timedelta(seconds=2)


def test_window_lets_the_first_three_that_have_to_be_decided_through() -> None:
    windows = Windows()
    for number in range(3):
        assert windows.opens(("escalated", None), (number,), None, START) == START
        windows.passed(("escalated", None), (number,), START)
    assert windows.opens(("escalated", None), (3,), None, START) == START + timedelta(seconds=10)


def test_window_waits_a_quarter_of_the_time_left_at_most_and_not_for_a_clock_set_back() -> None:
    windows = Windows()
    windows.passed(GROUP, (1,), START)
    assert windows.opens(GROUP, (2,), START + timedelta(seconds=8), START) == START + timedelta(seconds=2)
    assert windows.opens(GROUP, (2,), START - timedelta(hours=1), START) == START
    early = START - timedelta(hours=1)
    assert windows.opens(GROUP, (2,), None, early) == early
