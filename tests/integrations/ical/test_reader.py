"""What feeds say, as PagerDuty, GoAlert, Google Calendar and Outlook write them; judged by zoneinfo and by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bot.integrations.ical.reader import LeftOut, Unreadable, in_calendar, names_in
from bot.oncall.feeds import Shift

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
SINCE = datetime(2026, 10, 20, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=31)

PAGERDUTY = """\
BEGIN:VCALENDAR
PRODID;X-RICAL-TZSOURCE=TZINFO:-//com.denhaven2/NONSGML ri_cal gem//EN
CALSCALE:GREGORIAN
VERSION:2.0
X-WR-CALNAME:On Call Schedule for Platform - EU
BEGIN:VEVENT
DTEND;VALUE=DATE-TIME:20261027T080000Z
DTSTART;VALUE=DATE-TIME:20261020T080000Z
ATTENDEE:Ann@example.com
UID:Q1S46N8B8ADP9D
URL:https://example.pagerduty.com/schedules#PABC123
SUMMARY:On Call - Ann Example - Platform - EU
END:VEVENT
BEGIN:VEVENT
DTEND;VALUE=DATE-TIME:20261103T080000Z
DTSTART;VALUE=DATE-TIME:20261027T080000Z
ATTENDEE:ben@example.com
UID:Q1S46N8B8ADP9E
URL:https://example.pagerduty.com/schedules#PABC123
SUMMARY:On Call - Ben O'Nelly-Overly-Long-Name-That-Has-To-Be-Folded - Platfo
 rm - EU
END:VEVENT
END:VCALENDAR
"""

GOALERT = """\
BEGIN:VCALENDAR
PRODID:-//GoAlert//v0.32.0//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:PUBLISH
BEGIN:VEVENT
UID:4c7d37bf28d64eccc1e74a3889cfc97f6839a00fa781c91721058df915de27ce
SUMMARY:Ann Example On-Call (GoAlert: Sched)
DTSTAMP:20261020T050000Z
DTSTART:20261020T080000Z
DTEND:20261021T080000Z
BEGIN:VALARM
ACTION:DISPLAY
DESCRIPTION:REMINDER
TRIGGER:-PT5M
END:VALARM
END:VEVENT
BEGIN:VEVENT
UID:39514a8d78cada01fe7b66e1f9e511799cae36420a4b86a1d909c0bbbb99b747
SUMMARY:Ben Example On-Call (GoAlert: Sched) Begins*
DESCRIPTION:The end time of this shift is unknown and will continue beyond
  what is displayed.
DTSTAMP:20261020T050000Z
DTSTART:20261021T080000Z
DTEND:20261115T080000Z
END:VEVENT
END:VCALENDAR
"""

# Weekly from Monday 9:00 Berlin time; one week is Ben's, one was deleted, one moved by two hours.
GOOGLE = """\
BEGIN:VCALENDAR
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:PUBLISH
X-WR-CALNAME:Platform on call
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VTIMEZONE
TZID:Europe/Berlin
X-LIC-LOCATION:Europe/Berlin
BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
TZNAME:GMT+2
DTSTART:19700329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
TZNAME:GMT+1
DTSTART:19701025T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20260105T090000
DTEND;TZID=Europe/Berlin:20260112T090000
RRULE:FREQ=WEEKLY;BYDAY=MO
EXDATE;TZID=Europe/Berlin:20261109T090000
DTSTAMP:20261020T101500Z
ORGANIZER;CN=Platform on call:mailto:c_0123456789abcdef@group.calendar.google.com
UID:weekly@google.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=Ann Exa
 mple;X-NUM-GUESTS=0:mailto:ann@example.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=Platform
  on call;X-NUM-GUESTS=0:mailto:c_0123456789abcdef@group.calendar.google.com
ATTENDEE;CUTYPE=RESOURCE;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=Phone;X-NU
 M-GUESTS=0:mailto:c_1889@resource.calendar.google.com
SEQUENCE:1
STATUS:CONFIRMED
SUMMARY:Platform on call
TRANSP:TRANSPARENT
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20261026T090000
DTEND;TZID=Europe/Berlin:20261102T090000
DTSTAMP:20261020T101500Z
UID:weekly@google.com
RECURRENCE-ID;TZID=Europe/Berlin:20261026T090000
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=NEEDS-ACTION;CN=Ben
 ;X-NUM-GUESTS=0:mailto:ben@example.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=DECLINED;CN=Ann Exa
 mple;X-NUM-GUESTS=0:mailto:ann@example.com
SUMMARY:Platform on call
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20261102T110000
DTEND;TZID=Europe/Berlin:20261109T110000
DTSTAMP:20261020T101500Z
UID:weekly@google.com
RECURRENCE-ID;TZID=Europe/Berlin:20261102T090000
ATTENDEE;CN=Ann Example:mailto:ann@example.com
SUMMARY:Platform on call
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20261116T090000
DTEND;TZID=Europe/Berlin:20261123T090000
UID:weekly@google.com
RECURRENCE-ID;TZID=Europe/Berlin:20261116T090000
STATUS:CANCELLED
ATTENDEE;CN=Ann Example:mailto:ann@example.com
SUMMARY:Platform on call
END:VEVENT
END:VCALENDAR
"""

# Names of Windows for time zones, one of them made up; a night shift, a whole week.
OUTLOOK = """\
BEGIN:VCALENDAR
METHOD:PUBLISH
PRODID:Microsoft Exchange Server 2010
VERSION:2.0
X-WR-CALNAME:On call
BEGIN:VTIMEZONE
TZID:Eastern Standard Time
BEGIN:STANDARD
DTSTART:16010101T020000
TZOFFSETFROM:-0400
TZOFFSETTO:-0500
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=1SU;BYMONTH=11
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:-0500
TZOFFSETTO:-0400
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=2SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VTIMEZONE
TZID:Customized Time Zone
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008000000001
SUMMARY:Ann Example
DTSTART;TZID=Eastern Standard Time:20261031T200000
DTEND;TZID=Eastern Standard Time:20261101T080000
CLASS:PUBLIC
DTSTAMP:20261020T101500Z
TRANSP:OPAQUE
STATUS:CONFIRMED
X-MICROSOFT-CDO-BUSYSTATUS:BUSY
X-MICROSOFT-CDO-ALLDAYEVENT:FALSE
END:VEVENT
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008000000002
SUMMARY:Ben Example
DTSTART;TZID=Customized Time Zone:20261024T200000
DTEND;TZID=Customized Time Zone:20261025T080000
STATUS:CONFIRMED
END:VEVENT
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008000000003
SUMMARY:Cem Example
DTSTART;VALUE=DATE:20261024
DTEND;VALUE=DATE:20261026
X-MICROSOFT-CDO-ALLDAYEVENT:TRUE
END:VEVENT
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008000000004
SUMMARY:Canceled: Ann Example
DTSTART;VALUE=DATE:20261024
DTEND;VALUE=DATE:20261026
STATUS:CANCELLED
END:VEVENT
END:VCALENDAR
"""


def feed(text: str) -> bytes:
    return text.replace("\n", "\r\n").encode()


def calendar(*events: str) -> bytes:
    """A calendar with these events, of which only what matters is told."""
    told = [
        f"BEGIN:VEVENT\nUID:{number}@example.com\n{event.strip()}\nEND:VEVENT\n"
        if "UID:" not in event
        else f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n"
        for number, event in enumerate(events)
    ]
    return feed(f"BEGIN:VCALENDAR\nVERSION:2.0\n{''.join(told)}END:VCALENDAR\n")


def read(text: bytes | str, zone: ZoneInfo = BERLIN) -> tuple[list[Shift], list[LeftOut]]:
    turns, left_out = in_calendar(feed(text) if isinstance(text, str) else text, zone, SINCE, UNTIL)
    return [Shift.from_json(each.as_json()) for each in turns], left_out


def shifts(text: bytes | str, zone: ZoneInfo = BERLIN) -> list[Shift]:
    """The shifts of a calendar that is read in full."""
    found, left_out = read(text, zone)
    assert left_out == []
    return found


def local(zone: ZoneInfo, *moment: int) -> datetime:
    return datetime(*moment, tzinfo=zone).astimezone(UTC)  # type: ignore[arg-type, misc]


def spans(found: list[Shift]) -> list[tuple[datetime, datetime, str]]:
    return sorted((each.begins, each.ends, each.label) for each in found)


def test_calendars_of_pagerduty() -> None:
    first, second = shifts(PAGERDUTY)
    assert spans([first]) == [
        (datetime(2026, 10, 20, 8, tzinfo=UTC), datetime(2026, 10, 27, 8, tzinfo=UTC), "ann@example.com")
    ]
    assert "Ann Example" in first.names
    assert second.email == "ben@example.com"
    assert "Ben O'Nelly-Overly-Long-Name-That-Has-To-Be-Folded" in second.names


def test_calendars_of_goalert() -> None:
    assert [(each.names, each.email) for each in shifts(GOALERT)] == [
        (("Ann Example",), ""),
        (("Ben Example",), ""),
    ]
    own = GOALERT.replace("Ann Example On-Call", "On-Call").replace("Ben Example On-Call", "On-Call")
    assert [each.label for each in shifts(own)] == ["someone without a name"] * 2


def test_calendars_of_google_with_exceptions_to_a_recurring_shift() -> None:
    """The clocks go back on 25 October: handovers stay at 9:00."""
    expected = [
        (local(BERLIN, 2026, 10, 19, 9), local(BERLIN, 2026, 10, 26, 9), "ann@example.com"),
        (local(BERLIN, 2026, 10, 26, 9), local(BERLIN, 2026, 11, 2, 9), "ben@example.com"),
        (local(BERLIN, 2026, 11, 2, 11), local(BERLIN, 2026, 11, 9, 11), "ann@example.com"),
    ]
    found = shifts(GOOGLE)
    assert spans(found) == expected
    assert expected[0][1] - expected[0][0] == timedelta(days=7, hours=1)
    assert {each.email: each.names for each in found} == {
        "ann@example.com": ("Ann Example", "Platform on call", "Platform"),
        "ben@example.com": ("Ben", "Platform on call", "Platform"),
    }


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_calendars_of_outlook_with_its_own_names_of_time_zones(zone: ZoneInfo) -> None:
    """Both nights have an hour more than the clock shows; whole days are the policy's."""
    assert spans(shifts(OUTLOOK, zone)) == sorted(
        [
            (local(NEW_YORK, 2026, 10, 31, 20), local(NEW_YORK, 2026, 11, 1, 8), "Ann Example"),
            (local(BERLIN, 2026, 10, 24, 20), local(BERLIN, 2026, 10, 25, 8), "Ben Example"),
            (local(zone, 2026, 10, 24), local(zone, 2026, 10, 26), "Cem Example"),
        ]
    )
    assert local(BERLIN, 2026, 10, 25, 8) - local(BERLIN, 2026, 10, 24, 20) == timedelta(hours=13)


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
def test_times_without_a_zone_are_the_policys_and_those_of_an_unknown_one_are_left_out(
    zone: ZoneInfo,
) -> None:
    floating = "SUMMARY:Ann\nDTSTART:20261024T200000\nDTEND:20261025T080000"
    by_name = "SUMMARY:Ben\nDTSTART;TZID=Asia/Tokyo:20261024T200000\nDTEND;TZID=Asia/Tokyo:20261025T080000"
    lasting = "SUMMARY:Cem\nDTSTART:20261024T200000Z\nDURATION:PT90M"
    unknown = (
        "SUMMARY:Dee\nDTSTART;TZID=Mars/Olympus:20261024T200000\nDTEND;TZID=Mars/Olympus:20261025T080000"
    )
    tokyo = ZoneInfo("Asia/Tokyo")
    found, left_out = read(calendar(floating, by_name, lasting, unknown), zone)
    assert [str(each) for each in left_out] == [
        "“Dee” of 2026-10-24: its time zone “Mars/Olympus” is unknown"
    ]
    assert spans(found) == sorted(
        [
            (local(zone, 2026, 10, 24, 20), local(zone, 2026, 10, 25, 8), "Ann"),
            (local(tokyo, 2026, 10, 24, 20), local(tokyo, 2026, 10, 25, 8), "Ben"),
            (
                datetime(2026, 10, 24, 20, tzinfo=UTC),
                datetime(2026, 10, 24, 21, 30, tzinfo=UTC),
                "Cem",
            ),
        ]
    )


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "(UTC-05:00) Eastern Time (US & Canada)", "Eastern Time", "GMT-0500"]
)
def test_zone_that_nobody_knows_is_never_taken_for_another(name: str) -> None:
    """Neither of one time nor of the calendar, by whichever name."""
    event = f'SUMMARY:Ann\nDTSTART;TZID="{name}":20261024T200000\nDTEND;TZID="{name}":20261025T080000'
    found, (left_out,) = read(calendar(event))
    assert (found, left_out.why) == ([], f"its time zone “{name}” is unknown")
    begins = datetime(2026, 10, 24, 20, tzinfo=UTC)
    moments = [begins + timedelta(hours=hours) for hours in (-25, -23, 35, 37)]
    assert [left_out.may_be(each) for each in moments] == [False, True, True, False]
    floating = "SUMMARY:Ann\nDTSTART:20261024T200000\nDTEND:20261025T080000"
    found, (left_out,) = read(of_zone(name, floating, EVENT + "SUMMARY:Ben"))
    assert ([each.label for each in found], left_out.why) == (["Ben"], f"its time zone “{name}” is unknown")


@pytest.mark.parametrize(
    ("name", "zone"), [("W. Europe Standard Time", BERLIN), ("America/New_York", NEW_YORK), ("", BERLIN)]
)
def test_zone_of_the_calendar_counts_for_times_without_one(name: str, zone: ZoneInfo) -> None:
    once = "SUMMARY:Ann\nDTSTART:20261024T200000\nDTEND:20261025T080000"
    weekly = "SUMMARY:Ben\nDTSTART:20261024T090000\nDTEND:20261024T100000\nRRULE:FREQ=WEEKLY;COUNT=2"
    assert spans(shifts(of_zone(name, once, weekly))) == sorted(
        [
            (local(zone, 2026, 10, 24, 20), local(zone, 2026, 10, 25, 8), "Ann"),
            (local(zone, 2026, 10, 24, 9), local(zone, 2026, 10, 24, 10), "Ben"),
            (local(zone, 2026, 10, 31, 9), local(zone, 2026, 10, 31, 10), "Ben"),
        ]
    )


def of_zone(name: str, *events: str) -> bytes:
    """A calendar that names its time zone."""
    return calendar(*events).replace(b"VERSION:2.0", f"VERSION:2.0\r\nX-WR-TIMEZONE:{name}".encode(), 1)


def test_what_recurs_by_whole_days_with_added_and_left_out_ones() -> None:
    weekly = """
SUMMARY:Ann
DTSTART;VALUE=DATE:20260907
DTEND;VALUE=DATE:20260908
RRULE:FREQ=WEEKLY;UNTIL=20261102
RDATE;VALUE=DATE:20261105
EXDATE;VALUE=DATE:20261026"""
    days = [(11, 2), (11, 5)]
    assert spans(shifts(calendar(weekly))) == [
        (local(BERLIN, 2026, month, day), local(BERLIN, 2026, month, day + 1), "Ann") for month, day in days
    ]


EVENT = "DTSTART:20261024T080000Z\nDTEND:20261024T200000Z\n"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("SUMMARY:Ann Example <ann@example.com>", [("ann@example.com", ())]),
        (
            "SUMMARY:[L2] ann@example.com\\, ben@example.com",
            [("ann@example.com", ()), ("ben@example.com", ())],
        ),
        ("SUMMARY:On call\nATTENDEE;CN=Ann:MAILTO:Ann@Example.com", [("ann@example.com", ("Ann",))]),
        ("SUMMARY:On call\nATTENDEE;CN=ann@example.com:invalid:nomail", [("", ())]),
        ('SUMMARY:On call\nATTENDEE;CN="Example, Ann":invalid:nomail', [("", ("Example, Ann",))]),
        ("SUMMARY:Ann\nATTENDEE;PARTSTAT=DECLINED:mailto:ann@example.com", []),
        (
            "SUMMARY:Ann\nATTENDEE;CUTYPE=ROOM:mailto:room@example.com\nATTENDEE:mailto:ann@example.com",
            [("ann@example.com", ("Ann",))],
        ),
        (
            "SUMMARY:Pair\nATTENDEE:mailto:ann@example.com\nATTENDEE:mailto:ben@example.com",
            [("ann@example.com", ()), ("ben@example.com", ())],
        ),
        (
            """SUMMARY:On call: Ann
ORGANIZER:mailto:max@example.com
ATTENDEE;PARTSTAT=ACCEPTED:mailto:Max@example.com
ATTENDEE;ROLE=REQ-PARTICIPANT:mailto:ann@example.com
ATTENDEE;ROLE=NON-PARTICIPANT:mailto:lead@example.com
ATTENDEE;CUTYPE=GROUP:mailto:sre@example.com""",
            [("ann@example.com", ("On call: Ann", "Ann"))],
        ),
        (
            "SUMMARY:On call\nORGANIZER:mailto:ann@example.com\nATTENDEE:mailto:ann@example.com",
            [("ann@example.com", ())],
        ),
        (
            """SUMMARY:On call
ORGANIZER:mailto:max@example.com
ATTENDEE:mailto:max@example.com
ATTENDEE;PARTSTAT=DECLINED:mailto:ann@example.com""",
            [],
        ),
        (
            """SUMMARY:On call
ATTENDEE;PARTSTAT=DELEGATED;DELEGATED-TO="mailto:ben@example.com":mailto:ann@example.com
ATTENDEE;DELEGATED-FROM="mailto:ann@example.com":mailto:ben@example.com""",
            [("ben@example.com", ())],
        ),
        (
            "SUMMARY:Ann\nATTENDEE;CUTYPE=GROUP:mailto:sre@example.com\nATTENDEE;ROLE=NON-PARTICIPANT:mailto:x@example.com",
            [("", ("Ann",))],
        ),
        ("STATUS:CANCELLED\nSUMMARY:Ann", []),
        ("TRANSP:TRANSPARENT\nSUMMARY:Ann", [("", ("Ann",))]),
        ("DESCRIPTION:no title", [("", ())]),
    ],
)
def test_event_tells_who_it_is(event: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(each.email, each.names) for each in shifts(calendar(EVENT + event))] == expected


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("On Call - Ann Example - Platform", ("Ann Example", "Ann Example - Platform")),
        ("On Call - Ann Example", ("Ann Example",)),
        ("On Call - Ann - Lee - Platform", ("Ann - Lee", "Ann", "Ann - Lee - Platform")),
        ("Ann On-Call (GoAlert: A (b))", ("Ann",)),
        ("On-Call (GoAlert: Sched)", ()),
        ("Ann Example", ("Ann Example",)),
        ("Ann Example (primary)", ("Ann Example (primary)", "Ann Example")),
        ("Ann on call (primary)", ("Ann on call (primary)", "Ann on call", "Ann")),
        ("On-call: Ann", ("On-call: Ann", "Ann")),
        ("ONCALL – Ann", ("ONCALL – Ann", "Ann")),
        ("Ann is on call", ("Ann is on call", "Ann")),
        ("On call", ()),
        ("—", ()),
        ("", ()),
    ],
)
def test_names_in_titles(title: str, expected: tuple[str, ...]) -> None:
    assert names_in(title) == expected


HOURLY = "SUMMARY:Ann\nDTSTART:20261001T080000Z\nDTEND:20261001T090000Z\nRRULE:FREQ=HOURLY"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not iCalendar"),
        (b"<!doctype html><title>Sign in</title>", "not iCalendar"),
        (calendar(EVENT + "SUMMARY:Ann").replace(b"END:VCALENDAR\r\n", b""), "is cut off"),
        (calendar(*[HOURLY] * 3), "more than 2000 shifts"),
        (calendar(*["SUMMARY:Ann"] * 2001), "more than 2000 of its events"),
        (
            calendar(EVENT + "SUMMARY:Ann").replace(b"VERSION:2.0", b"CALSCALE:HEBREW"),
            "by the calendar “HEBREW”",
        ),
    ],
)
def test_what_is_no_feed_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        shifts(text)


WEEKLY = "SUMMARY:Ben\nDTSTART:20261021T080000Z\nDTEND:20261022T080000Z\nRRULE:FREQ=WEEKLY;COUNT=2\n"
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ("DTSTART:tomorrow\nDTEND:20261024T200000Z", "its DTSTART “tomorrow” cannot be read"),
        ("DTSTART:20261024T200000Z\nDTEND:", "its DTEND “” cannot be read"),
        ("DTSTART:20261024T200000Z\nDURATION:long", "its DURATION “long” cannot be read"),
        (EVENT + "DTSTART:20261025T080000Z", "Multiple DTSTART"),
        ("DTSTART", "No DTSTART"),
        ("DTSTART:P1D", "not a date"),
        ("DTSTART;VALUE=TEXT:20261024T200000Z", "not a date"),
        ("DTSTART:20261024T200000Z\nDTEND:20261024T080000Z", "does not end after it begins"),
        ("DTSTART:20261024T200000Z\nDURATION:-PT1H", "does not end after it begins"),
        ("DTSTART;VALUE=DATE:20261024\nDTEND;VALUE=DATE:20261024", "does not end after it begins"),
        (EVENT + "RRULE:FREQ=SOMETIMES", "its RRULE “FREQ=SOMETIMES” cannot be read"),
        (EVENT + "RRULE:INTERVAL=2", "malformed (TypeError)"),
        (EVENT + "RRULE:INTERVAL=5;FR\n EQ=Minutely", "more than 1000 shifts a month"),
        (
            EVENT + "".join(f"ATTENDEE:mailto:b{n}@example.com\n" for n in range(1001)),
            "more than 1000 shifts",
        ),
        ("DTSTART:20260101T000000Z\nDTEND:99991231T000000Z\nRRULE:FREQ=YEARLY", "malformed (OverflowError)"),
        (EVENT + "RECURRENCE-ID:TBD", "its RECURRENCE-ID “TBD” cannot be read"),
        (EVENT + 'ATTENDEE;CN="Ben:mailto:ben@example.com', "its line “” cannot be read"),
    ],
)
def test_event_that_cannot_be_read_is_left_out_with_the_reason_and_the_others_count(
    event: str, why: str
) -> None:
    event = f"SUMMARY:Ben\n{event}"
    found, (left_out,) = read(calendar(EVENT + "SUMMARY:Ann", event, EVENT + "SUMMARY:Cem"))
    assert [each.label for each in found] == ["Ann", "Cem"]
    assert left_out.what.startswith("“Ben”")
    assert why in left_out.why
    assert LeftOut.from_json(left_out.as_json()) == left_out
    assert read(calendar(f"{event}\nSTATUS:Cancelled"))[1] == [] or "RECURRENCE-ID" in event


@pytest.mark.parametrize(
    ("part", "days", "why"),
    [
        ("EXDATE:20261028T080000Z,", [21], None),
        ("EXDATE;TZID=Europe/Berlin:", [21, 28], None),
        ("EXDATE:TBD,20261028T080000Z", [21], "an EXDATE cannot be read and is ignored"),
        ("EXDATE;TZID=Mars:20261028T080000", [21, 28], "an EXDATE cannot be read and is ignored"),
        ("EXDATE;VALUE=TEXT:never", [21, 28], "an EXDATE cannot be read and is ignored"),
        ("RDATE;VALUE=TIME:133000Z", [21, 28], "an RDATE cannot be read and is ignored"),
        ("RDATE:20261024T080000Z,,tomorrow", [21, 24, 28], "an RDATE cannot be read and is ignored"),
        (
            "RDATE;VALUE=PERIOD:20261024T080000Z/20261023T080000Z",
            [21, 28],
            "an RDATE cannot be read and is ignored",
        ),
        ("RDATE;VALUE=PERIOD:20261024T080000Z/20261024T180000Z", [21, 24, 28], None),
        ("SEQUENCE:", [21, 28], None),
        ("SEQUENCE:1\nSEQUENCE:1", [21, 28], None),
        ("DURATION:PT1H", [21, 28], None),
        ("UID:one\nUID:two\nSUMMARY:Dee\nSTATUS:CONFIRMED\nSTATUS:CANCELLED", [21, 28], None),
        ("DTSTAMP:now\nCREATED:\nGEO:here\nX-ODD\n:\nCATEGORIES", [21, 28], None),
        ("BEGIN:VALARM\nTRIGGER:soon\nDTSTART:then\nEND:VALARM", [21, 28], None),
        ("DESCRIPTION:line\nbroken by hand\nEND:VALARM", [21, 28], None),
    ],
)
def test_odd_part_does_not_cost_the_shifts_that_are_told(part: str, days: list[int], why: str | None) -> None:
    found, left_out = read(calendar(EVENT + "SUMMARY:Ann", WEEKLY + part))
    assert [each.begins.day for each in found if each.label == "Ben"] == days
    assert [each.label for each in found if each.label != "Ben"] == ["Ann"]
    assert [each.why for each in left_out] == ([] if why is None else [why])


def test_end_that_no_calendar_reaches_is_a_shift_without_one() -> None:
    event = "SUMMARY:Ann\nDTSTART;VALUE=DATE:20260101\nDTEND;VALUE=DATE:99991231"
    for zone in (BERLIN, NEW_YORK, ZoneInfo("Pacific/Kiritimati")):
        (found,) = shifts(calendar(event), zone)
        assert Shift.from_json(found.as_json()) == found
        assert found.ends.year == 9999


def test_component_without_its_end_does_not_swallow_the_next() -> None:
    open_ended = calendar(EVENT + "SUMMARY:Ann", EVENT + "SUMMARY:Ben").replace(b"END:VEVENT\r\n", b"", 1)
    assert [each.label for each in shifts(open_ended)] == ["Ann", "Ben"]
    alarm = calendar("BEGIN:VALARM\nTRIGGER:-PT5M\n" + EVENT + "SUMMARY:Ann", EVENT + "SUMMARY:Ben")
    assert [each.label for each in shifts(alarm)] == ["Ann", "Ben"]


def test_zone_that_is_malformed_costs_only_the_events_that_need_it() -> None:
    zone = "BEGIN:VTIMEZONE\nTZID:Ours\nBEGIN:STANDARD\nDTSTART:once\nTZOFFSETFROM:x\nEND:STANDARD\nEND:VTIMEZONE\n"
    ours = "SUMMARY:Ben\nDTSTART;TZID=Ours:20261024T080000\nDTEND;TZID=Ours:20261024T200000"
    text = calendar(EVENT + "SUMMARY:Ann", ours).replace(b"VERSION:2.0\r\n", feed(zone), 1)
    found, (left_out,) = read(text)
    assert ([each.label for each in found], left_out.why) == (["Ann"], "its time zone “Ours” is unknown")


def test_events_that_share_one_uid_are_all_read() -> None:
    """As some programs write it; of versions of one event, the newest counts."""
    first = "UID:1\nSUMMARY:Ann\nDTSTART:20261024T080000Z\nDTEND:20261025T080000Z"
    second = "UID:1\nSUMMARY:Ben\nDTSTART:20261025T080000Z\nDTEND:20261026T080000Z"
    assert [each.label for each in shifts(calendar(first, second))] == ["Ann", "Ben"]
    assert [each.label for each in shifts(calendar(first, f"{second}\nSEQUENCE:2"))] == ["Ben"]


def test_event_that_cannot_be_read_and_is_long_over_is_not_told() -> None:
    assert shifts(calendar("SUMMARY:Ann\nDTSTART:20260101T080000Z")) == []


@pytest.mark.parametrize(
    ("event", "hours"),
    [
        ("DTSTART:20261024T200000Z\nDTEND:20261024T080000Z", (-4, 44)),  # it may end on the next day
        ("DTSTART:20261024T080000Z\nDTEND:later", (8, None)),
        ("DTSTART:soon\nDTEND:20261024T080000Z", (None, None)),
        (EVENT + "RRULE:FREQ=SOMETIMES\nRDATE:20261026T080000Z", (8, None)),
    ],
)
def test_event_that_cannot_be_read_says_when_it_may_put_someone_on_call(
    event: str, hours: tuple[float | None, float | None]
) -> None:
    _, (left_out,) = read(calendar(event))
    day = datetime(2026, 10, 24, tzinfo=UTC)
    assert (left_out.begins, left_out.ends) == tuple(
        None if each is None else day + timedelta(hours=each) for each in hours
    )


def test_of_years_of_history_what_still_counts_is_kept() -> None:
    events = []
    for number in range(2_000):
        begins = datetime(2015, 1, 1) + timedelta(hours=4 * number)  # noqa: DTZ001 - written as UTC
        ends = begins + timedelta(hours=4)
        events.append(
            f"SUMMARY:On Call - Ann Example - Platform\nATTENDEE:ann@example.com\nDESCRIPTION:{'x' * 60}\n"
            f"DTSTART:{begins:%Y%m%dT%H%M%SZ}\nDTEND:{ends:%Y%m%dT%H%M%SZ}"
        )
    old = "SUMMARY:Ben\nDTSTART;TZID=Europe/Berlin:20150105T090000\nDTEND;TZID=Europe/Berlin:20150106T090000\nRRULE:FREQ=WEEKLY"
    ended = f"{old};UNTIL=20180101T000000Z".replace("Ben", "Cem")
    long = "SUMMARY:Dee\nDTSTART:20150101T000000Z\nDTEND:20300101T000000Z"
    text = calendar(*events, old, ended, long)
    found = shifts(text)
    assert {each.label for each in found} == {"Ben", "Dee"}
    assert sum(each.label == "Ben" for each in found) == 5


def test_exception_of_long_ago_still_changes_a_shift_that_reaches_into_now() -> None:
    fortnight = (
        "UID:f\nSUMMARY:Ann\nDTSTART:20261012T080000Z\nDTEND:20261026T080000Z\nRRULE:FREQ=WEEKLY;COUNT=1"
    )
    shorter = (
        "UID:f\nRECURRENCE-ID:20261012T080000Z\nSUMMARY:Ann\nDTSTART:20261012T080000Z\nDTEND:20261014T080000Z"
    )
    assert len(shifts(calendar(fortnight))) == 1
    assert shifts(calendar(fortnight, shorter)) == []
