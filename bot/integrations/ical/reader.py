"""Reads shifts from an iCalendar feed (RFC 5545). Runs in a process of its own (`main`): a feed can keep the parser busy
forever, and a thread cannot be killed.

Each event is read alone, so that one that cannot be read costs only itself. A shift belongs to one person: an attendee's e-mail
address, an address in the event's title, or a name in it, as PagerDuty (`On Call - NAME - SCHEDULE`), GoAlert
(`NAME On-Call (GoAlert: SCHEDULE)`), Grafana OnCall (`[L1] NAME`) and hand-kept calendars write it.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from icalendar import Calendar, Event, Timezone
from icalendar.prop import vBroken
from icalendar.timezone import tzp
from recurring_ical_events import of

_DAY = timedelta(days=1)
_MOST, _MOST_OF_ONE = 2000, 1000  # shifts a month: of a feed, of one event
_FAR = datetime(9999, 12, 30, tzinfo=UTC)
_FOLD = re.compile(rb"(?<!\n)\n+[ \t]")
_BEGIN = re.compile(rb"^BEGIN:VCALENDAR[ \t]*\n", re.MULTILINE | re.IGNORECASE)
_END = re.compile(rb"^END:VCALENDAR[ \t]*$", re.MULTILINE | re.IGNORECASE)
# What lacks its end goes to where the next event begins.
_PART = re.compile(
    rb"^BEGIN:(VEVENT|VTIMEZONE)[ \t]*\n(.*?)(?=^BEGIN:(?:VEVENT|VTIMEZONE)[ \t]*$|^END:(?:\1|VCALENDAR)[ \t]*$)",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
_PROPERTY = re.compile(rb"[ \t]*([A-Za-z-]+)[ \t]*(?=[;:])")
_PARAMETERS = rb'(?:;(?:"[^"\n]*"|[^":\n])*)?:'
_LIST = re.compile(rb"([^:;\n]*" + _PARAMETERS + rb")(.*)")
_SPAN = re.compile(rb"^(?:DTSTART|DTEND)" + _PARAMETERS + rb"(\d{8})", re.MULTILINE | re.IGNORECASE)
_LINE = re.compile(rb"^([A-Za-z-]+)" + _PARAMETERS + rb"(.*)", re.MULTILINE)
_REPEATS = re.compile(rb"^(?:RRULE|RDATE|RECURRENCE-ID)[:;]", re.MULTILINE | re.IGNORECASE)
_LISTS = frozenset({"EXDATE", "RDATE"})
_TIMES = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID"})
_WORDS = frozenset({"UID", "SUMMARY", "STATUS", "SEQUENCE", "ORGANIZER"})
_READ = _LISTS | _TIMES | _WORDS | {"DURATION", "RRULE", "ATTENDEE"}
"""The properties of an event that count. Errors in others are ignored."""
_MEMORY = 1024**3  # bytes, of the process that reads a feed
_MOST_SAID = 5_000_000  # characters
TOO_MUCH = "expanding it takes too long or too much memory"

_LONGEST_TITLE = 500  # characters of it that are read
_EMAIL = re.compile(r"(?<![^\s<>()\[\],;:\"])[^\s<>()\[\],;:\"]+@[^\s<>()\[\],;:\"@]+\.[^\s<>()\[\],;:\"@.]+")
_LEVEL = re.compile(r"\[L(\d{1,3})\]", re.IGNORECASE)
_ON_CALL = r"on[\s\-‐‑]?call"
_PAGERDUTY = re.compile(rf"{_ON_CALL} - (.+)", re.IGNORECASE)
_GOALERT = re.compile(rf"(?>(?:(.+?) )?{_ON_CALL} \(GoAlert: ).*\)(?: Begins\*)?", re.IGNORECASE)
_BEFORE = re.compile(rf"{_ON_CALL} ?(?:[:|\-–—] ?)?(.+)", re.IGNORECASE)
_AFTER = re.compile(rf"(.+?) ?(?:[:|\-–—] ?)?(?:is )?{_ON_CALL}", re.IGNORECASE)
_REMARK = re.compile(r"(.+?) ?\([^()]*\)")
_NOBODY = re.compile(rf"(?:{_ON_CALL})?[\W_]*", re.IGNORECASE)
_NO_PERSON = frozenset({"ROOM", "RESOURCE", "GROUP"})
_NOT_COMING = frozenset({"DECLINED", "DELEGATED"})
_NO_PERSONS = ("@group.calendar.google.com", "@resource.calendar.google.com")


class _Unreadable(ValueError):
    """An event cannot be read; the message says why."""


class Unreadable(Exception):
    """It is no calendar, or takes too much to read."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One person's time on call, as `bot.api.Shift` has it: this program starts without the bot's modules."""

    begins: datetime
    ends: datetime
    level: int = 0
    email: str = ""
    names: tuple[str, ...] = ()

    def as_json(self) -> list[Any]:
        return [self.begins.timestamp(), self.ends.timestamp(), self.level, self.email, self.names, None, ""]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An event that cannot be read, or not in full: `what` and `why`, in words.

    It may put someone on call from `begins` to before `ends`; None: the time is unknown.
    """

    what: str
    why: str
    begins: datetime | None = None
    ends: datetime | None = None

    def may_be(self, moment: datetime) -> bool:
        """Returns whether it may put someone on call at a moment."""
        return (self.begins is None or self.begins <= moment) and (self.ends is None or moment < self.ends)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    def as_json(self) -> list[Any]:
        times = (None if each is None else each.timestamp() for each in (self.begins, self.ends))
        return [self.what, self.why, *times]

    @classmethod
    def from_json(cls, told: Sequence[Any]) -> LeftOut:
        what, why, *times = told
        return cls(
            what, why, *(None if each is None else datetime.fromtimestamp(each, UTC) for each in times)
        )


def main() -> None:
    """Reads a feed from standard input and prints as JSON its shifts and what is left out.

    Arguments: those of `in_calendar`, then the seconds of computing allowed.
    """
    zone, since, until, seconds = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
    with suppress(ValueError, OSError):  # the system has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    told: dict[str, Any]
    try:
        shifts, left_out = in_calendar(
            sys.stdin.buffer.read(),
            ZoneInfo(zone),
            datetime.fromisoformat(since),
            datetime.fromisoformat(until),
        )
        told = {"shifts": [each.as_json() for each in shifts]}
        told["left_out"] = [each.as_json() for each in left_out]
    except Unreadable as error:
        told = {"refused": str(error)}
    except MemoryError:
        told = {"refused": TOO_MUCH}
    said = json.dumps(told)
    sys.stdout.write(
        said if len(said) <= _MOST_SAID else json.dumps({"refused": "its shifts contain too much text"})
    )


def in_calendar(
    feed: bytes, zone: ZoneInfo, since: datetime, until: datetime
) -> tuple[list[Turn], list[LeftOut]]:
    """The shifts of an iCalendar feed between `since` and `until`, in the feed's order, and what of it cannot be read.
    Blocking, and slow: about ten milliseconds for a hundred events.

    `zone` applies to times without one, and to all-day events.

    Raises:
        Unreadable: it is not iCalendar, or takes too much to read.
    """
    text = feed.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    _, *calendars = _BEGIN.split(_FOLD.sub(b"", text))
    if not calendars:
        raise Unreadable("its response is not iCalendar")
    if not _END.search(calendars[-1]):
        raise Unreadable("it is cut off")
    shifts: list[Turn] = []
    left_out: list[LeftOut] = []
    for calendar in calendars:
        for each in _read(calendar, zone, since, until):
            if isinstance(each, Turn):
                shifts.append(each)
            elif each.ends is None or each.ends > since:
                left_out.append(each)
            if len(shifts) > _MOST:
                raise Unreadable(f"it has more than {_MOST} shifts a month")
            if len(left_out) > _MOST:
                raise Unreadable(f"more than {_MOST} of its events cannot be read")
    return shifts, left_out


@dataclass(frozen=True, slots=True)
class _Zones:
    """The zone of whole days, and the one of times without a zone: the calendar's own; None if `name`, as it calls it, is
    unknown.
    """

    days: ZoneInfo
    times: ZoneInfo | None
    name: str

    def placed(self, value: Any, params: Mapping[str, str]) -> date | datetime:
        """Returns a date, or a time with its zone.

        Raises:
            _Unreadable: it is neither, or its zone is unknown.
        """
        if not isinstance(value, date):
            raise _Unreadable("one of its times is not a date")
        if not isinstance(value, datetime) or value.tzinfo is not None:
            return value
        if params.get("TZID") or self.times is None:
            raise _Unreadable(f"its time zone “{params.get('TZID', self.name)[:100]}” is unknown")
        return value.replace(tzinfo=self.times)

    def place(self, prop: Any) -> None:
        """Gives each time of a property its zone. Raises _Unreadable as `placed`."""
        if isinstance(prop, vBroken):
            raise _Unreadable("one of its times cannot be read")
        for each in getattr(prop, "dts", (prop,)):
            if not isinstance(value := getattr(each, "dt", None), tuple):
                each.dt = self.placed(value, prop.params)
                continue
            begins, ends = value  # a period
            begins = self.placed(begins, prop.params)
            ends = begins + ends if isinstance(ends, timedelta) else self.placed(ends, prop.params)
            if self.moment(ends) <= self.moment(begins):
                raise _Unreadable("a period does not end after it begins")
            each.dt = begins, ends

    def moment(self, value: date | datetime) -> datetime:
        if not isinstance(value, datetime):
            value = datetime.combine(value, time(), self.days)
        try:
            return min(value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC), _FAR)
        except OverflowError:
            return _FAR


def _zone(name: str) -> ZoneInfo | None:
    """The zone of a name in the database of time zones or of Windows; None if it is unknown."""
    try:
        found: Any = tzp.timezone(name)
    except (OSError, ValueError):  # a name that is a folder of the database, or none at all
        return None
    return found if isinstance(found, ZoneInfo) else None


def _read(calendar: bytes, zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[Turn | LeftOut]:
    """Each shift of a calendar, and each event that cannot be read.

    Raises:
        Unreadable: none of its dates can be read.
    """
    scale, name = (_value(calendar, each) for each in (b"CALSCALE", b"X-WR-TIMEZONE"))
    if scale.upper() not in {"", "GREGORIAN"}:
        raise Unreadable(f"it counts days by the calendar “{scale[:60]}”")
    zones = _Zones(zone, _zone(name) if name else zone, name)
    parts = [(kind.upper(), text) for kind, text in _PART.findall(calendar)]
    for text in (text for kind, text in parts if kind == b"VTIMEZONE"):
        with suppress(Exception):  # the events that need it are left out
            Timezone.from_ical(b"BEGIN:VTIMEZONE\n%sEND:VTIMEZONE\n" % text)
    series: dict[object, list[Any]] = {}
    for text in (text for kind, text in parts if kind == b"VEVENT"):
        if _is_over(text, since):
            continue
        event: Any = Event()
        try:
            event = _event(_without_parts(text))
            yield from _prepare(event, zones)
        except Exception as error:  # noqa: BLE001 - whatever is odd in one event, the others count
            yield from _left_out(event, error, zones)
            continue
        uid = str(event.get("UID", ""))
        is_another = not uid or any(_is_another(event, each) for each in series.get(uid, ()))
        series.setdefault(object() if is_another else uid, []).append(event)
    for events in series.values():
        try:
            yield from _expanded(events, zones, since, until)
        except Exception as error:  # noqa: BLE001 - as above
            yield from _left_out(events[0], error, zones)


def _without_parts(event: bytes) -> bytes:
    """Returns an event without the parts inside it, such as alarms. What has no end is none."""
    kept, inside, part = list[bytes](), list[bytes](), b""
    for line in event.split(b"\n"):
        word = line.rstrip(b" \t").upper()
        if not part and word.startswith(b"BEGIN:"):
            part = word.removeprefix(b"BEGIN:")
        if part:
            inside.append(line)
            if word == b"END:" + part:
                inside, part = [], b""
        else:
            kept.append(line)
    return b"\n".join([*kept, *inside])


def _value(calendar: bytes, name: bytes) -> str:
    """The value of one of a calendar's own properties, or an empty text."""
    lines = _LINE.findall(_PART.sub(b"", calendar))
    value = next((given for each, given in lines if each.upper() == name), b"")
    return str(value.decode(errors="replace").strip())


def _is_over(event: bytes, since: datetime) -> bool:
    """Returns whether an event certainly ended before `since`: parsing years of them takes a minute."""
    dates: list[bytes] = _SPAN.findall(event)
    recent = (since - 2 * _DAY).strftime("%Y%m%d").encode()
    return len(dates) > 1 and max(dates) < recent and not _REPEATS.search(event)


def _event(text: bytes) -> Any:
    """An event with the properties that count; of several dates in one line, each has a property of its own."""
    lines = list[bytes]()
    for line in text.split(b"\n"):
        found = _PROPERTY.match(line)
        name = found[1].decode().upper() if found else ""
        several = _LIST.fullmatch(line) if name in _LISTS else None
        if several is not None:
            lines += [several[1] + each for each in several[2].split(b",") if each.strip()]
        elif name in _READ:
            lines.append(line)
    return Event.from_ical(b"\n".join([b"BEGIN:VEVENT", *lines, b"END:VEVENT"]))


def _prepare(event: Any, zones: _Zones) -> Iterator[LeftOut]:
    """Gives every time of an event its zone, and the event an end. Yields the added and excluded dates that are ignored, as
    they cannot be read.

    Raises:
        ValueError: it does not say when it puts whom on call.
    """
    broken = {name or "line" for name, _ in event.errors}
    for name in _WORDS & {*event}:
        if isinstance(event[name], list):
            event[name] = event[name][0]
        if name in broken:
            del event[name]
    yield from _without_odd_dates(event, zones)
    for name in broken - _WORDS - _LISTS:
        text = next((str(each)[:60] for each in _all(event, name) if isinstance(each, vBroken)), "")
        raise _Unreadable(f"its {name} “{text}” cannot be read")
    if "DTEND" in event:
        event.pop("DURATION", None)
    for name in _TIMES & {*event}:
        if not isinstance(event[name], list):  # icalendar refuses several
            zones.place(event[name])
    begins, ends = event.start, event.end
    event.pop("DURATION", None)
    event.pop("DTEND", None)
    event.add("DTEND", ends)
    if zones.moment(ends) <= zones.moment(begins):
        raise _Unreadable("it does not end after it begins")


def _without_odd_dates(event: Any, zones: _Zones) -> Iterator[LeftOut]:
    for name in sorted(_LISTS & {*event}):
        props = _all(event, name)
        del event[name]
        for prop in props:
            try:
                zones.place(prop)
                event.add(name, prop, encode=False)
            except _Unreadable:
                never = _FAR if name == "EXDATE" else None
                yield LeftOut(_what(event), f"an {name} cannot be read and is ignored", never, never)


def _left_out(event: Any, error: Exception, zones: _Zones) -> Iterator[LeftOut]:
    """What to tell of an event that cannot be read: nothing if it is cancelled."""
    if _is_cancelled(event) and "RECURRENCE-ID" not in event:
        return
    why = str(error) if isinstance(error, ValueError) else f"it is malformed ({type(error).__name__})"
    begins, ends = (_time(event, name) for name in ("DTSTART", "DTEND"))
    first = last = None
    if begins is not None:
        first = zones.moment(begins)
        if ends is not None and not {"RRULE", "RDATE"} & {*event}:
            last = max(first, zones.moment(ends))
    if last is not None and (last == first or isinstance(error, _Unreadable)):
        # Its zone may be unknown, or its end one of the next day.
        first, last = first and first - _DAY, min(last, _FAR - _DAY) + _DAY
    yield LeftOut(_what(event), why, first, last)


def _is_another(event: Any, known: Any) -> bool:
    """Returns whether two events with the same UID are not two versions or parts of one: some calendars give all their events
    the same.
    """
    if "RECURRENCE-ID" in event or "RECURRENCE-ID" in known:
        return False
    return bool(event["DTSTART"].dt != known["DTSTART"].dt and event.get("SEQUENCE") == known.get("SEQUENCE"))


def _expanded(events: Sequence[Any], zones: _Zones, since: datetime, until: datetime) -> list[Turn]:
    """The shifts of an event with its recurrences and the changes to them."""
    found: Iterable[Any] = events
    if len(events) > 1 or {"RRULE", *_LISTS} & {*events[0]}:
        calendar = Calendar()
        calendar.subcomponents = list(events)
        found = (
            occurrence.as_component(keep_recurrence_attributes=False)
            for series in of(calendar).series
            for occurrence in series.between(since, until)
        )
    every = (shift for event in found for shift in _of_event(event, zones))
    shifts = list(
        islice((each for each in every if each.begins < until and each.ends > since), _MOST_OF_ONE + 1)
    )
    if len(shifts) > _MOST_OF_ONE:
        raise _Unreadable(f"it has more than {_MOST_OF_ONE} shifts a month")
    return shifts


def _what(event: Any) -> str:
    title, begins = _title(event)[:60], _time(event, "DTSTART")
    named = f"“{title}”" if title else "an event without a title"
    return named if begins is None else f"{named} of {begins:%Y-%m-%d}"


def _time(event: Any, name: str) -> date | datetime | None:
    prop = event.get(name)
    value = None if isinstance(prop, vBroken) else getattr(prop, "dt", None)
    return value if isinstance(value, date) else None


def _of_event(event: Any, zones: _Zones) -> Iterator[Turn]:
    """One shift for each person."""
    begins, ends = (zones.moment(event[name].dt) for name in ("DTSTART", "DTEND"))
    if _is_cancelled(event) or ends <= begins:
        return
    title = _title(event)
    level = max((int(number) for number in _LEVEL.findall(title)), default=0)
    title = " ".join(_LEVEL.sub(" ", title).split())
    shift = Turn(begins, ends, level)
    invited = [each for each in _all(event, "ATTENDEE") if _is_person(each)]
    organizer = _address(event.get("ORGANIZER", ""))
    # The organizer of an event with other attendees is not on call.
    invited = [each for each in invited if not organizer or _address(each) != organizer] or invited
    if invited:
        # A person who declined is not on call, even if the title names them.
        coming = [each for each in invited if _parameter(each, "PARTSTAT") not in _NOT_COMING]
        by_title = names_in(title) if len(coming) == 1 else ()
        for each in coming:
            names = tuple(dict.fromkeys([*_common_name(each), *by_title]))
            yield replace(shift, email=_address(each), names=names)
    elif emails := _EMAIL.findall(title):
        for email in dict.fromkeys(emails):
            yield replace(shift, email=email.strip("."))
    else:
        yield replace(shift, names=names_in(title))


def _title(event: Any) -> str:
    return " ".join(str(event.get("SUMMARY", ""))[:_LONGEST_TITLE].split())


def _is_cancelled(event: Any) -> bool:
    return str(event.get("STATUS", "")).strip().upper() == "CANCELLED"


def _all(event: Any, name: str) -> list[Any]:
    found = event.get(name, [])
    return found if isinstance(found, list) else [found]


def _is_person(attendee: Any) -> bool:
    """Returns whether an attendee takes part: not a room or a group, nor someone who is only informed."""
    return (
        _parameter(attendee, "CUTYPE") not in _NO_PERSON
        and _parameter(attendee, "ROLE") != "NON-PARTICIPANT"
        and not _address(attendee).endswith(_NO_PERSONS)
    )


def _parameter(attendee: Any, name: str) -> str:
    return str(getattr(attendee, "params", {}).get(name, "")).upper()


def _address(attendee: Any) -> str:
    """The e-mail address, written with or without `mailto:`; empty if it is none."""
    found = _EMAIL.search(re.sub(r"(?i)^mailto:", "", str(attendee).strip()))
    return found[0].lower() if found else ""


def _common_name(attendee: Any) -> Iterator[str]:
    name = " ".join(str(getattr(attendee, "params", {}).get("CN", ""))[:_LONGEST_TITLE].split())
    if name and "@" not in name:
        yield name


def names_in(title: str) -> tuple[str, ...]:
    """The possible names of the person in an event's title, the likeliest first."""
    if told := _GOALERT.fullmatch(title):
        return (told[1],) if told[1] else ()
    if told := _PAGERDUTY.fullmatch(title):
        # A name may contain " - ", and so may a schedule.
        parts = told[1].split(" - ")
        names = [" - ".join(parts[:count]) for count in range(max(1, len(parts) - 1), 0, -1)]
        return tuple(dict.fromkeys(name.strip() for name in [*names, told[1]]))
    names = [title]
    names += [told[1].strip() for told in (_BEFORE.fullmatch(title), _AFTER.fullmatch(title)) if told]
    for name in list(names):
        if told := _REMARK.fullmatch(name):
            names.append(told[1])
            if inner := _AFTER.fullmatch(told[1]):
                names.append(inner[1].strip())
    return tuple(dict.fromkeys(name for name in names if not _NOBODY.fullmatch(name)))


if __name__ == "__main__":
    main()
