"""Hours of the week: how they are written, and which moments are inside, also where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.escalation import Hours

BERLIN = "Europe/Berlin"
OFFICE = "Mon-Fri 09:00-18:00, Sat 10:00-12:00"
NIGHTS = "22:00-06:00"


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment", "next_"),
    [
        pytest.param(OFFICE, utc(11, 23, 7, 59), utc(11, 23, 8), id="before they begin"),
        pytest.param(OFFICE, utc(11, 23, 8), utc(11, 23, 8), id="their first moment"),
        pytest.param(OFFICE, utc(11, 23, 16, 59), utc(11, 23, 16, 59), id="their last minute"),
        pytest.param(OFFICE, utc(11, 23, 17), utc(11, 24, 8), id="over: the next day"),
        pytest.param(OFFICE, utc(11, 27, 17), utc(11, 28, 9), id="over: the other hours of the next day"),
        pytest.param(OFFICE, utc(11, 28, 11), utc(11, 30, 8), id="over a Sunday"),
        pytest.param("Mon 09:00-10:00", utc(11, 23, 9), utc(11, 30, 8), id="a week later"),
        pytest.param("Mon 9:00-12:00, 13:00-17:00", utc(11, 23, 11, 30), utc(11, 23, 12), id="two in a day"),
        pytest.param("Mon 9:00-12:00, 13:00-17:00", utc(11, 24, 8), utc(11, 30, 8), id="both on that day"),
        pytest.param(NIGHTS, utc(11, 23, 21), utc(11, 23, 21), id="night: before midnight"),
        pytest.param(NIGHTS, utc(11, 24, 4, 59), utc(11, 24, 4, 59), id="night: after midnight"),
        pytest.param(NIGHTS, utc(11, 24, 5), utc(11, 24, 21), id="night: over"),
        pytest.param("Fri 22:00-06:00", utc(11, 28, 4), utc(11, 28, 4), id="a Friday's night ends on Saturday"),
        pytest.param("Fri 22:00-06:00", utc(11, 27, 4), utc(11, 27, 21), id="and does not begin on Thursday"),
        pytest.param("Sat-Mon 00:00-24:00", utc(11, 23, 12), utc(11, 23, 12), id="days round the week's end"),
        pytest.param("Sat-Mon 00:00-24:00", utc(11, 24, 12), utc(11, 27, 23), id="the whole day"),
        pytest.param("Mon, Wed 09:00-10:00", utc(11, 23, 9), utc(11, 25, 8), id="single days"),
        pytest.param("Monday – friday 9:00–10:00", utc(11, 23, 8), utc(11, 23, 8), id="as keyboards write it"),
        pytest.param("Sun 02:00-03:00", utc(10, 25, 1, 59), utc(10, 25, 1, 59), id="an hour that comes twice"),
        pytest.param("Sun 09:00-10:00", utc(10, 25, 7, 30), utc(10, 25, 8), id="9:00 stays 9:00 in autumn"),
        pytest.param("Sun 09:00-10:00", utc(3, 29, 7), utc(3, 29, 7), id="9:00 stays 9:00 in spring"),
        pytest.param("Sun 02:30-04:00", utc(3, 29, 1), utc(3, 29, 1), id="begins in the hour that is left out"),
        pytest.param("Sun 01:00-02:30", utc(3, 29, 0, 59), utc(3, 29, 0, 59), id="ends in it"),
        pytest.param("Sun 02:10-02:50", utc(3, 29, 0), utc(3, 29, 0, 10), id="within it: it comes nevertheless"),
    ],
)  # fmt: skip
def test_hours_table(text: str, moment: datetime, next_: datetime) -> None:
    hours = Hours.read(text, BERLIN)

    assert hours.next(moment) == next_
    assert hours.include(moment) == (moment == next_)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        "always",
        "Mon-Fri",
        "09:00",
        "Mon 09:00-18:00 Tue",
        "Mon 09:00-18:00, ",
        "Mon 09:00-18:00, Tue",
        "Mo 09:00-18:00",
        "Noday 09:00-18:00",
        "Mon-Tue-Wed 09:00-18:00",
        "Mon 09:60-18:00",
        "Mon 09:00-24:30",
        "Mon 25:00-26:00",
        "Mon 09:00-09:00",
        "24:00-06:00",
        "-",
        "Mon- 09:00-10:00",
    ],
)
def test_hours_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected hours such as .Mon-Fri 09:00-18:00"):
        Hours.read(text)


WEEKS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


@settings(deadline=None, max_examples=60)
@given(moment=WEEKS, text=st.sampled_from((OFFICE, NIGHTS, "Sun 01:30-02:30", "Mon 9:00-12:00, 13:00-17:00")))
def test_next_is_inside_and_nothing_before_it_is(moment: datetime, text: str) -> None:
    hours = Hours.read(text, BERLIN)
    found = hours.next(moment)

    assert found >= moment
    assert hours.include(found)
    between = (found - moment) / 7
    assert not any(hours.include(moment + between * part) for part in range(7) if between)
    assert found - moment <= timedelta(days=7, hours=1)
