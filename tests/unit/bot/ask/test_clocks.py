"""What the times of events tell: clock offset, backlog bursts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bot.ask.receiver import Burst, ClockOffset
from tests.unit.bot.ask.parties import NOW


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def seen(offset: ClockOffset, late_by: float, *, live: bool = True) -> datetime:
    """One event, received − sent = `late_by`; returns when it was sent, as far as we know."""
    offset.observe(NOW - seconds(late_by), NOW, live=live)
    return offset.sent_at(NOW - seconds(late_by), NOW, live=live)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0),
        ([(5, False)], 0),  # a replay says nothing
        ([(-5, False)], -5),  # but nothing comes from the future
        ([(300.25, True), (300, True), (301, True)], 300),
        ([(300, True), (100, False)], 100),  # nor in less time than a live one
        ([(-90000 * 2, True)], 0),  # a broken timestamp
        ([(0, True), (600, True), (1, True)], 0),  # one that was late on its way
        ([(0, True)] + [(7200, True)] * 8, 7200),  # its clock was set back
        ([(0, True)] + [(7200, False)] * 8, 0),  # a replay proves nothing
        ([(7200, True), (0, True)], 0),  # its clock was set forward
    ],
)
def test_offset_is_the_least_of_what_tells(samples: list[tuple[float, bool]], expected: float) -> None:
    offset = ClockOffset()
    for difference, live in samples:
        seen(offset, difference, live=live)
    assert offset.offset == seconds(expected)


@pytest.mark.parametrize("step", [7200, -7200, 90, -90])
def test_event_that_was_just_emitted_was_sent_when_it_came_also_after_a_clock_was_set(step: float) -> None:
    offset = ClockOffset()
    seen(offset, 0.1)
    for _ in range(9):
        assert seconds(0) <= NOW - seen(offset, step + 0.2) <= seconds(5)
    assert seen(offset, step + 30, live=False) == NOW - seconds(29.8), "what is 30 s old is 30 s old"


def test_offset_survives_the_end_of_time() -> None:
    offset = ClockOffset()
    offset.observe(NOW - seconds(60), NOW, live=True)
    assert offset.sent_at(datetime.max.replace(tzinfo=UTC), NOW, live=False).year == 9999


@pytest.mark.parametrize(
    ("arrivals", "live"),
    [
        ([0.01, 0.02, 0.1], [False, False, False]),
        ([0.01, 0.5], [False, False]),  # a pause, but too early
        ([0.01, 0.5, 1.1], [False, False, True]),
        ([0.01, 1.5], [False, True]),
        ([5.0], [True]),
        ([i / 10 for i in range(1, 30)], [False] * 29),  # a long replay
        ([0.1, 0.3, 1.2, 1.21, 1.22], [False, False, True, True, True]),
        ([0.3, 0.31, 0.4], [True, True, True]),  # nothing came at once: nothing is replayed
    ],
)
def test_burst_ends_with_the_first_pause(arrivals: list[float], live: list[bool]) -> None:
    burst = Burst(0.0)
    assert [burst.live(at) for at in arrivals] == live
