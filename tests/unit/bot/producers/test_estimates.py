"""The pure parts: clock offset, backlog bursts, sequence gaps, waiting times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.producers.backoff import CAP, UNAUTHORIZED, backoff, reconnect_delay
from bot.producers.burst import Burst
from bot.producers.gaps import Gaps
from bot.producers.offset import ClockOffset
from tests.unit.bot.producers.parties import NOW, seeded


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0),
        ([(5, False)], 0),  # a replay says nothing
        ([(-5, False)], -5),  # but nothing comes from the future
        ([(300.2, True), (300.05, True), (301, True)], 300.05),
        ([(300, True), (7200, False)], 300),
        ([(300, True), (-2, False)], -2),
        ([(-90000 * 2, True)], 0),  # a broken timestamp
        ([(10, True)] + [(20, True)] * 32, 20),  # the clock was set: old samples are forgotten
    ],
)
def test_offset_is_the_least_of_what_tells(samples: list[tuple[float, bool]], expected: float) -> None:
    offset = ClockOffset()
    for difference, live in samples:
        offset.observe(NOW, NOW + seconds(difference), live)
    assert offset.offset == seconds(expected)
    assert offset.deadline(NOW, 60) == NOW + seconds(60 + expected)


@settings(deadline=None)
@given(st.floats(-3600, 3600), st.lists(st.floats(0, 30), min_size=1, max_size=40))
def test_offset_never_tells_a_deadline_before_the_clock_difference(skew: float, delays: list[float]) -> None:
    offset = ClockOffset()
    for delay in delays:
        offset.observe(NOW, NOW + seconds(skew + delay), live=True)
    error = offset.offset - seconds(skew)
    assert seconds(-0.001) <= error <= seconds(min(delays[-32:]) + 0.001)


def test_offset_survives_the_end_of_time() -> None:
    assert ClockOffset().deadline(datetime.max.replace(tzinfo=UTC), 60).year == 9999


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


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        ([(0, 0), (1, 0), (2, 0)], 0),
        ([(0, 0), (4, 0)], 3),
        ([(0, 0), (4, 3)], 0),  # skimmed ones carry numbers too
        ([(0, 0), (4, 1)], 2),
        ([(5, 0)], 0),  # who knows what was before
        ([(5, 0), (0, 0), (1, 0), (6, 0)], 0),  # a replay
    ],
)
def test_gaps_counts_what_is_certainly_missing(seen: list[tuple[int, int]], missing: int) -> None:
    gaps = Gaps()
    assert sum(gaps.missing("sess_1", number, skimmed) for number, skimmed in seen) == missing


def test_gaps_keeps_sessions_apart_and_their_number_bounded() -> None:
    gaps = Gaps()
    for i in range(10_005):
        assert gaps.missing(f"sess_{i}", 0, 0) == 0
    assert len(gaps._last) == 10_000
    assert gaps.missing("sess_10004", 3, 0) == 2


@pytest.mark.parametrize("attempt", [0, 1, 5, 10, 100_000])
def test_backoff_has_full_jitter_and_a_cap(attempt: int) -> None:
    waits = [backoff(attempt, seeded(seed)) for seed in range(200)]
    top = min(CAP, 0.5 * 2 ** min(attempt, 20))
    assert 0 <= min(waits) < top * 0.1
    assert top * 0.9 < max(waits) <= top


@pytest.mark.parametrize(
    ("given_", "low", "high"),
    [
        ({}, 0, 0.5),
        ({"unauthorized": True}, UNAUTHORIZED, UNAUTHORIZED + 0.5),
        ({"retry_after": 7.5}, 7.5, 7.5),
        ({"sse_retry": 3.0}, 3, 3),
        ({"retry_after": 1e9}, 86400, 86400),
        ({"retry_after": 0.0}, 0, 0.5),
    ],
)
def test_reconnect_delay_keeps_what_the_producer_asked_for(
    given_: dict[str, Any], low: float, high: float
) -> None:
    delay = reconnect_delay(0, seeded(1), **given_)
    assert low <= delay <= high
