"""What the times of events tell: clock offset, backlog bursts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.producers.clocks import Burst, ClockOffset
from tests.unit.bot.producers.parties import NOW


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def seen(
    offset: ClockOffset, at: float, late_by: float, *, live: bool = True, our_step: float = 0
) -> datetime:
    """One event after `at` seconds, received − sent = `late_by`; returns when it was sent, as far as we know."""
    received = NOW + seconds(at + our_step)
    offset.observe(received - seconds(late_by), received, at, live=live)
    return offset.sent_at(received - seconds(late_by), received, live=live)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0),
        ([(5, False)], 0),  # a replay says nothing
        ([(-5, False)], -5),  # but nothing comes from the future
        ([(300.25, True), (300, True), (301, True)], 300),
        ([(300, True), (7200, False)], 300),
        ([(300, True), (100, False)], 100),  # nor in less time than a live one
        ([(300, True), (-2, False)], -2),
        ([(-90000 * 2, True)], 0),  # a broken timestamp
        ([(10, True)] + [(14, True)] * 32, 14),  # slow drift: old samples are forgotten
        ([(0, True), (600, True), (1, True)], 0),  # one that was late on its way
        ([(0, True), (600, True), (900, True), (300, True)], 0),  # and several
        ([(0, True), (7200, True), (7201, True)], 0),
        ([(0, True), (7200, True), (7201, True), (7202, True)], 7200),  # its clock was set back
        ([(0, True), (7200, False), (7201, False), (7202, False)], 0),  # a replay proves nothing
        ([(7200, True), (0, True)], 0),  # its clock was set forward
    ],
)
def test_offset_is_the_least_of_what_tells(samples: list[tuple[float, bool]], expected: float) -> None:
    offset = ClockOffset()
    for number, (difference, live) in enumerate(samples):
        seen(offset, number * 60, difference, live=live)
    assert offset.offset == seconds(expected)


def test_offset_is_not_changed_by_late_events_that_come_at_once() -> None:
    offset = ClockOffset()
    seen(offset, 0, 0)
    for number in range(20):
        seen(offset, 600 + number / 10, 600 + number / 10)
    assert offset.offset == seconds(0)


@pytest.mark.parametrize("step", [7200, -7200, 90, -90])
def test_offset_follows_a_step_of_our_clock_at_once(step: float) -> None:
    offset = ClockOffset()
    for at in range(5):
        seen(offset, at, 0.1)
    replayed = seen(offset, 60, 30 + step, live=False, our_step=step)
    assert offset.offset == seconds(0.1 + step)
    assert replayed == NOW + seconds(60 + step - 30 + 0.1), "what is 30 s old is 30 s old"


@pytest.mark.parametrize("step", [7200, -7200, 90, -90, 30 * 86400])
@pytest.mark.parametrize("whose", ["ours", "theirs"])
def test_event_that_was_just_emitted_was_sent_when_it_came(step: float, whose: str) -> None:
    offset = ClockOffset()
    for at in range(5):
        seen(offset, at, 0.1)
    ours = step if whose == "ours" else 0
    for at in range(60, 3600, 60):
        sent = seen(offset, at, step + 0.2, our_step=ours)
        assert seconds(0) <= NOW + seconds(at + ours) - sent <= seconds(5)


@pytest.mark.parametrize("before", [0, 7200, -7200])
def test_replayed_event_is_as_old_as_it_says(before: float) -> None:
    offset = ClockOffset()
    seen(offset, 0, before)
    seen(offset, 60, before + 600)  # late on its way: says nothing of what is replayed
    assert seen(offset, 120, before + 10_000, live=False) == NOW + seconds(120 - 10_000)


@settings(deadline=None)
@given(st.floats(-3600, 3600), st.lists(st.floats(0, 5), min_size=1, max_size=40))
def test_offset_never_tells_a_deadline_before_the_clock_difference(skew: float, delays: list[float]) -> None:
    offset = ClockOffset()
    for number, delay in enumerate(delays):
        seen(offset, number * 60, skew + delay)
    error = offset.offset - seconds(skew)
    assert seconds(-0.001) <= error <= seconds(min(delays[-32:]) + 0.001)


def test_offset_survives_the_end_of_time() -> None:
    offset = ClockOffset()
    offset.observe(NOW - seconds(60), NOW, 0, live=True)
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
