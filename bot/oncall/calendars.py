"""Reads shifts from iCalendar feeds (RFC 5545) and PagerDuty. Pure but for `main`, which runs in a process of its own: a feed
can keep the parser busy forever, and a thread cannot be killed.

A shift belongs to one person: an attendee's e-mail address, an address in the event's title, or a name in it, as PagerDuty
(`On Call - NAME - SCHEDULE`), GoAlert (`NAME On-Call (GoAlert: SCHEDULE)`), Grafana OnCall (`[L1] NAME`) and hand-kept
calendars write it. `bot.oncall.feeds` finds the Slack user.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from math import inf
from typing import Any, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_SOON, _SAME_SHIFT, _MOVED = 2 * _DAY, 3 * _DAY, timedelta(minutes=5)
_LONGEST = timedelta(days=400)  # no shift is longer: older events and changes to them don't matter
_MOST, _MOST_OF_ONE = 2000, 1000  # shifts a month: of a feed, of one event
_LOOKED_AT = 200
_FAR = datetime(9999, 12, 30, tzinfo=UTC)
_OFFSETS = timedelta(hours=14)  # no zone is further from UTC
_FOLD = re.compile(rb"(?<!\n)\n+[ \t]")
_TAG = re.compile(rb"[ \t]*(BEGIN|END)[ \t]*:[ \t]*([\w-]+)[ \t]*", re.IGNORECASE)
_PROPERTY = re.compile(rb"[ \t]*([A-Za-z-]+)[ \t]*(?=[;:])")
_PARAMETERS = rb'(?:;(?:"[^"\n]*"|[^":\n])*)?:'
_VALUE = re.compile(rb"%s(.*)" % _PARAMETERS)
_NAME = rb"^%%s%s(\d{8})" % _PARAMETERS
_ENDS = re.compile(_NAME % rb"DTEND", re.MULTILINE | re.IGNORECASE)
_BEGINS = re.compile(_NAME % rb"DTSTART", re.MULTILINE | re.IGNORECASE)
_REPLACES = re.compile(_NAME % rb"RECURRENCE-ID", re.MULTILINE | re.IGNORECASE)
_UNTIL = re.compile(rb"^RRULE[^\n]*[:;]UNTIL=(\d{8})", re.MULTILINE | re.IGNORECASE)
_RECURS = re.compile(rb"^(?:RRULE|RDATE)[:;]", re.MULTILINE | re.IGNORECASE)
_FOLLOWING = re.compile(rb"^RECURRENCE-ID[^\n]*RANGE=", re.MULTILINE | re.IGNORECASE)
_TIMES = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID"})
_SEVERAL = frozenset({"RRULE", "ATTENDEE"})
_LISTS = frozenset({"EXDATE", "RDATE"})
_NEEDED = _TIMES | _SEVERAL | {"DURATION"}
_READ = _NEEDED | _LISTS | {"UID", "SUMMARY", "STATUS", "SEQUENCE", "ORGANIZER"}
"""The properties of an event that count. Errors in others are ignored."""
_TOO_OFTEN = {"SECONDLY": "second", "MINUTELY": "minute"}
_SHARE = 4  # one event may use this part of the computing time
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


class NoFeed(Exception):
    """The source cannot be read, or does not say who is on call."""


class _Unreadable(Exception):
    """An event cannot be read; the message says why."""


class _OutOfTime(BaseException):  # a parser that catches Exception does not catch this
    """The computing time is used up."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One person is on call from `begins` to before `ends`. Of overlapping shifts, those of the highest `level` count.

    email: empty if the source gives none. names: the person's possible names, the likeliest first.
    user: the Slack user; None if none was found, for the reason `why`.
    """

    begins: datetime
    ends: datetime
    level: int = 0
    email: str = ""
    names: tuple[str, ...] = ()
    user: str | None = None
    why: str = ""

    @property
    def person(self) -> tuple[str, tuple[str, ...]]:
        """The key of a person: the same in all of their shifts."""
        return self.email, self.names

    @property
    def label(self) -> str:
        """The person, in the source's words."""
        return self.email or next(iter(self.names), "someone without a name")

    def as_json(self) -> dict[str, Any]:
        return {
            "begins": self.begins.timestamp(),
            "ends": self.ends.timestamp(),
            "level": self.level,
            "email": self.email,
            "names": list(self.names),
            "user": self.user,
            "why": self.why,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Shift:
        begins, ends = (datetime.fromtimestamp(kept[name], UTC) for name in ("begins", "ends"))
        return cls(
            begins, ends, kept["level"], kept["email"], tuple(kept["names"]), kept["user"], kept["why"]
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An event that cannot be read, or not in full: `what` and `why`, in words.

    It may put someone on call from `begins` to before `ends`; None: the time is unknown.
    """

    what: str
    why: str
    begins: datetime | None = field(default=None, compare=False)
    ends: datetime | None = field(default=None, compare=False)

    def may_be(self, moment: datetime) -> bool:
        """Returns whether it may put someone on call at a moment."""
        return (self.begins is None or self.begins <= moment) and (self.ends is None or moment < self.ends)

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"

    def as_json(self) -> dict[str, Any]:
        begins, ends = (None if each is None else each.timestamp() for each in (self.begins, self.ends))
        return {"what": self.what, "why": self.why, "begins": begins, "ends": ends}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> LeftOut:
        begins, ends = (
            None if kept[name] is None else datetime.fromtimestamp(kept[name], UTC)
            for name in ("begins", "ends")
        )
        return cls(kept["what"], kept["why"], begins, ends)


def at(shifts: Sequence[Shift], moment: datetime) -> list[Shift]:
    """The current shifts of known Slack users: those of the highest level, in the feed's order."""
    now = [each for each in shifts if each.begins <= moment < each.ends and each.user is not None]
    highest = max((each.level for each in now), default=0)
    return [each for each in now if each.level == highest]


def users_at(shifts: Sequence[Shift], moment: datetime) -> tuple[str, ...]:
    """The Slack users on call at a moment."""
    return tuple(dict.fromkeys(each.user for each in at(shifts, moment) if each.user is not None))


def next_change(shifts: Sequence[Shift], moment: datetime) -> datetime | None:
    """When someone else, or no one, is on call; None if no change is known."""
    users, left = users_at(shifts, moment), [each for each in shifts if each.ends > moment]
    moments = sorted({at for each in left for at in (each.begins, each.ends) if at > moment})
    return next((at for at in moments[:_LOOKED_AT] if users_at(left, at) != users), None)


class Move(NamedTuple):
    """A person's shift that moved: its begin and end before and after."""

    user: str
    before: tuple[datetime, datetime]
    after: tuple[datetime, datetime]


def moves(before: Iterable[Shift], after: Iterable[Shift], now: datetime) -> list[Move]:
    """The shifts that begin or end at another time than before, by minutes, if the old or the new time is within the next
    two days.

    Shifts of one person that follow each other at once count as one. A shift that another person has now, that is new, or
    that was over did not move.
    """
    old, new = _spans(before), _spans(after)
    found = []
    for user in sorted(old.keys() & new.keys()):
        left = [each for each in old[user] if each not in new[user] and each[1] > now]
        for span in (each for each in new[user] if each not in old[user]):
            near = min(left, key=lambda each: abs(each[0] - span[0]), default=None)
            if near is None or abs(near[0] - span[0]) > _SAME_SHIFT:
                continue
            left.remove(near)
            changed = [
                each for a, b in zip(near, span, strict=True) if abs(a - b) >= _MOVED for each in (a, b)
            ]
            if any(now < each <= now + _SOON for each in changed):
                found.append(Move(user, near, span))
    return found


def _spans(shifts: Iterable[Shift]) -> dict[str, list[tuple[datetime, datetime]]]:
    """Returns each user's times on call, in order."""
    found: dict[str, list[tuple[datetime, datetime]]] = {}
    for each in sorted(shifts, key=lambda shift: shift.begins):
        if each.user is None:
            continue
        spans = found.setdefault(each.user, [])
        if spans and each.begins <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], each.ends)
        else:
            spans.append((each.begins, each.ends))
    return found


def main() -> None:
    """Read a feed from standard input and print as JSON its shifts and what is left out.

    Arguments: those of `in_calendar`, then the seconds of computing allowed.
    """
    zone, since, until, seconds = sys.argv[1:]
    _limit(int(seconds))
    told: dict[str, Any]
    try:
        shifts, left_out = in_calendar(
            sys.stdin.buffer.read(),
            ZoneInfo(zone),
            datetime.fromisoformat(since),
            datetime.fromisoformat(until),
            share=int(seconds) / _SHARE,
        )
        told = {
            "shifts": [each.as_json() for each in shifts],
            "left_out": [each.as_json() for each in left_out],
        }
    except NoFeed as error:
        told = {"refused": str(error)}
    said = json.dumps(told)
    sys.stdout.write(
        said if len(said) <= _MOST_SAID else json.dumps({"refused": "its shifts contain too much text"})
    )


def _limit(seconds: int) -> None:
    """Raise _OutOfTime after so many seconds of computing, and end the process a second later if that did not help."""

    def give_up(*_: object) -> NoReturn:
        raise _OutOfTime

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1, seconds + 1))
    with suppress(ValueError, OSError):  # the system has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


@contextmanager
def _alone(share: float) -> Iterator[None]:
    """Turns any failure while one event is read into _Unreadable, so that the others count. It may use `share` seconds of
    the computing time.

    Raises:
        _OutOfTime: all of the computing time is used up.
    """
    left, _ = signal.getitimer(signal.ITIMER_PROF)  # 0: unlimited, or used up
    try:
        if left > share:
            signal.setitimer(signal.ITIMER_PROF, share)
        try:
            yield
        finally:
            if left > share:
                unused, _ = signal.getitimer(signal.ITIMER_PROF)
                signal.setitimer(signal.ITIMER_PROF, left - share + unused)
    except _Unreadable:
        raise
    except _OutOfTime:
        if left <= share:
            raise
        raise _Unreadable("it takes too long to expand") from None
    except MemoryError:
        raise _Unreadable("it takes too much memory to expand") from None
    except Exception as error:
        raise _Unreadable(f"it is malformed ({type(error).__name__})") from error


def in_calendar(
    feed: bytes, zone: ZoneInfo, since: datetime, until: datetime, *, share: float = inf
) -> tuple[list[Shift], list[LeftOut]]:
    """The shifts of an iCalendar feed between `since` and `until`, in the feed's order, and what of it cannot be read. Each
    event is read alone. Blocking, and slow: about ten milliseconds for a hundred events.

    `zone` applies to times without one, and to all-day events. `share`: the seconds of computing for one event.

    Raises:
        NoFeed: it is not iCalendar, or takes too much to read.
    """
    text = feed.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    shifts: list[Shift] = []
    left_out: list[LeftOut] = []
    try:
        for calendar in _calendars(_FOLD.sub(b"", text)):
            for each in _read(calendar, zone, since, until, share):
                if isinstance(each, Shift):
                    shifts.append(each)
                elif each.ends is None or each.ends > since:
                    left_out.append(each)
                if len(shifts) > _MOST:
                    raise NoFeed(f"it has more than {_MOST} shifts a month")
                if len(left_out) > _MOST:
                    raise NoFeed(f"more than {_MOST} of its events cannot be read")
    except (_OutOfTime, MemoryError) as error:
        raise NoFeed(TOO_MUCH) from error
    return shifts, left_out


@dataclass(slots=True)
class _Calendar:
    """The unfolded lines of a VCALENDAR: its own properties, and those of each time zone and each event."""

    lines: list[bytes] = field(default_factory=list)
    zones: list[list[bytes]] = field(default_factory=list)
    events: list[list[bytes]] = field(default_factory=list)
    _inside: list[bytes] = field(default_factory=list)

    def take(self, line: bytes, tag: re.Match[bytes] | None) -> None:
        """Sorts in the next line; `tag`: of a BEGIN or END. What lacks its end goes to where the next event begins."""
        name = tag[2].upper() if tag else b""
        begins = tag is not None and tag[1].upper() == b"BEGIN"
        if begins and name in {b"VTIMEZONE", b"VEVENT"}:
            self._inside = []
            (self.events if name == b"VEVENT" else self.zones).append([])
        if begins:
            self._inside.append(name)
        if self._inside[:1] == [b"VTIMEZONE"]:
            self.zones[-1].append(line)
        elif tag is None and self._inside == [b"VEVENT"]:
            self.events[-1].append(line)
        elif tag is None and not self._inside:
            self.lines.append(line)
        if not begins and name in self._inside:
            del self._inside[self._inside.index(name) :]

    def value(self, name: bytes) -> str:
        """Returns the value of one of the calendar's own properties, or an empty text."""
        for line in self.lines:
            told = _PROPERTY.match(line)
            if told and told[1].upper() == name and (value := _VALUE.fullmatch(line, told.end())):
                return value[1].decode(errors="replace").strip()
        return ""


def _calendars(text: bytes) -> list[_Calendar]:
    """Takes a feed apart.

    Raises:
        NoFeed: it is none, or its end is missing.
    """
    found: list[_Calendar] = []
    is_cut_off = False
    for line in text.split(b"\n"):
        tag = _TAG.fullmatch(line)
        if tag is not None and tag[2].upper() == b"VCALENDAR":
            is_cut_off = tag[1].upper() == b"BEGIN"
            if is_cut_off:
                found.append(_Calendar())
        elif found:
            found[-1].take(line, tag)
    if not found:
        raise NoFeed("its response is not iCalendar")
    if is_cut_off:
        raise NoFeed("it is cut off")
    return found


@dataclass(frozen=True, slots=True)
class _Zones:
    """The zone of whole days, and the one of times without a zone: the calendar's own; None if `name`, as it calls it, is
    unknown.
    """

    days: ZoneInfo
    times: ZoneInfo | None
    name: str

    @classmethod
    def of(cls, calendar: _Calendar, zone: ZoneInfo) -> _Zones:
        name = calendar.value(b"X-WR-TIMEZONE")
        return cls(zone, _zone(name) if name else zone, name)

    def moment(self, value: date | datetime) -> datetime:
        if not isinstance(value, datetime):
            value = datetime.combine(value, time(), self.days)
        elif value.tzinfo is None:
            value = value.replace(tzinfo=self.times or UTC)
        try:
            return min(value.astimezone(UTC), _FAR)
        except OverflowError:
            return _FAR


def _zone(name: str) -> ZoneInfo | None:
    """The zone of a name in the database of time zones or of Windows; None if it is unknown."""
    from icalendar.timezone import tzp  # noqa: PLC0415 - slow to import, and only needed for feeds

    try:
        found: Any = tzp.timezone(name)
    except (OSError, ValueError):  # a name that is a folder of the database, or none at all
        return None
    return found if isinstance(found, ZoneInfo) else None


def _read(
    calendar: _Calendar, zone: ZoneInfo, since: datetime, until: datetime, share: float
) -> Iterator[Shift | LeftOut]:
    """Each shift of a calendar, and each event that cannot be read.

    Raises:
        NoFeed: none of its dates can be read.
    """
    from icalendar import Event, Timezone  # noqa: PLC0415 - as above

    if (scale := calendar.value(b"CALSCALE")).upper() not in {"", "GREGORIAN"}:
        raise NoFeed(f"it counts days by the calendar “{scale[:60]}”")
    for lines in calendar.zones:
        with suppress(_Unreadable), _alone(share):  # the events that need it are left out
            Timezone.from_ical(b"\n".join(lines))
    zones = _Zones.of(calendar, zone)
    series: dict[object, list[Any]] = {}
    for lines in calendar.events:
        if _is_over(b"\n".join(lines), since):
            continue
        event, ignored = Event(), list[LeftOut]()
        try:
            with _alone(share):
                _fill(event, lines, zones, ignored)
        except _Unreadable as error:
            yield from _left_out(event, str(error), zones, ignored)
            continue
        yield from ignored
        uid = str(event.get("UID", ""))
        is_another = not uid or any(_is_another(event, each) for each in series.get(uid, ()))
        series.setdefault(object() if is_another else uid, []).append(event)
    for events in series.values():
        try:
            with _alone(share):
                shifts = _expanded(events, zones, since, until)
        except _Unreadable as error:
            yield from _left_out(events[0], str(error), zones)
        else:
            yield from shifts


def _is_another(event: Any, known: Any) -> bool:
    """Returns whether two events with the same UID are not two versions or parts of one: some calendars give all their events
    the same.
    """
    if "RECURRENCE-ID" in event or "RECURRENCE-ID" in known:
        return False
    return bool(event["DTSTART"].dt != known["DTSTART"].dt and event.get("SEQUENCE") == known.get("SEQUENCE"))


def _expanded(events: Sequence[Any], zones: _Zones, since: datetime, until: datetime) -> list[Shift]:
    """The shifts of an event with its recurrences and the changes to them."""
    found: Iterable[Any] = events
    if len(events) > 1 or {"RRULE", *_LISTS} & {*events[0]}:
        found = _recurrences(events, zones, since, until)
    every = (shift for event in found for shift in _of_event(event, zones))
    shifts = list(
        islice((each for each in every if each.begins < until and each.ends > since), _MOST_OF_ONE + 1)
    )
    if len(shifts) > _MOST_OF_ONE:
        raise _Unreadable(f"it has more than {_MOST_OF_ONE} shifts a month")
    return shifts


def _recurrences(events: Iterable[Any], zones: _Zones, since: datetime, until: datetime) -> Iterator[Any]:
    from icalendar import Calendar  # noqa: PLC0415 - as above
    from recurring_ical_events import of  # noqa: PLC0415 - as above

    calendar = Calendar()
    calendar.subcomponents = list(events)
    if zones.name and zones.times is not None:
        calendar.add("X-WR-TIMEZONE", zones.times.key)
    for series in of(calendar).series:
        for occurrence in series.between(since, until):
            yield occurrence.as_component(keep_recurrence_attributes=False)


def _is_over(event: bytes, since: datetime) -> bool:
    """Returns whether an event certainly ended before `since`: parsing years of them takes seconds."""
    recent, ancient = ((since - by).strftime("%Y%m%d").encode() for by in (2 * _DAY, _LONGEST))
    begins, ends, replaces = _BEGINS.search(event), _ENDS.search(event), _REPLACES.search(event)
    if begins is None or ends is None or _FOLLOWING.search(event):
        return False
    last: bytes = max(begins[1], ends[1])
    if replaces is not None:
        return max(last, bytes(replaces[1])) < ancient
    if _RECURS.search(event):
        over = _UNTIL.search(event)
        return over is not None and max(last, bytes(over[1])) < ancient and b"\nRDATE" not in event.upper()
    return last < recent


def _fill(event: Any, lines: Iterable[bytes], zones: _Zones, ignored: list[LeftOut]) -> None:
    """Puts into `event` what its lines say, so that it has a start and an end, and into `ignored` the parts that do no more
    than add or take away single recurrences, where they cannot be read.

    Raises:
        _Unreadable: it does not say when it puts whom on call.
    """
    why, odd = "", list[tuple[str, str]]()
    for name, text, value in _properties(lines):
        if name in _LISTS:
            if value is not None and _is_date_of(name, value, zones):
                event.add(name, value, encode=False)
            else:
                odd.append((name, text[:60]))
        elif value is not None and (name in _SEVERAL or name not in event):
            event.add(name, value, encode=False)
        elif name in _NEEDED:
            why = why or f"its {name} “{text[:60]}” cannot be read"
    for name, text in odd:
        never = _FAR if name == "EXDATE" else None
        ignored.append(
            LeftOut(_what(event), f"its {name} “{text}” cannot be read and is ignored", never, never)
        )
    if why:
        raise _Unreadable(why)
    _check_times(event, zones)
    _check_rules(event)


def _properties(lines: Iterable[bytes]) -> Iterator[tuple[str, str, Any]]:
    """The name, text and value of each property that counts; of one that cannot be read, the value is None. Each of several
    dates is a property of its own.
    """
    from icalendar import Event  # noqa: PLC0415 - as above

    for line in lines:
        told = _PROPERTY.match(line)
        name = told[1].decode().upper() if told else ""
        if told is None or name not in _READ:
            continue
        value = _VALUE.fullmatch(line, told.end())
        head, text = (line[: value.start(1)], value[1]) if value else (line, b"")
        texts = [each.strip() for each in text.split(b",")] if name in _LISTS and value else [text]
        for each in filter(None, texts) if name in _LISTS else texts:
            read = None
            with suppress(ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
                alone = Event.from_ical(b"BEGIN:VEVENT\n%s%s\nEND:VEVENT" % (head, each))
                read = None if alone.errors else alone.get(name)
            yield name, (each if value else line).decode(errors="replace").strip(), read


def _is_date_of(name: str, value: Any, zones: _Zones) -> bool:
    """Returns whether the value of an EXDATE or RDATE is a date or a time; of an RDATE, it may be a period."""
    (one,) = (each.dt for each in getattr(value, "dts", (value,)))
    if not isinstance(one, tuple):
        return isinstance(one, date) and not _unknown_zone(value, one, zones)
    begins, ends = one
    if name == "EXDATE" or _unknown_zone(value, begins, zones):
        return False
    ends = begins + ends if isinstance(ends, timedelta) else ends
    return zones.moment(begins) < zones.moment(ends)


def _check_times(event: Any, zones: _Zones) -> None:
    """Gives an event the end that its duration implies.

    Raises:
        _Unreadable: it has no time that can be told, or ends before it begins.
    """
    if "DTSTART" not in event:
        raise _Unreadable("it has no DTSTART")
    for name in sorted(_TIMES & {*event}):
        value = _time(event, name)
        if value is None:
            raise _Unreadable(f"its {name} is not a date")
        if unknown := _unknown_zone(event[name], value, zones):
            raise _Unreadable(f"its time zone “{unknown[:100]}” is unknown")
    begins, ends = event["DTSTART"].dt, _end(event)
    event.pop("DURATION", None)
    event.pop("DTEND", None)
    event.add("DTEND", ends)
    if (lasts := zones.moment(ends) - zones.moment(begins)) <= timedelta(0):
        raise _Unreadable("it ends before it begins" if lasts else "it has no length")


def _check_rules(event: Any) -> None:
    for rule in _all(event, "RRULE"):
        for often in map(str, rule.get("FREQ", [])):
            if each := _TOO_OFTEN.get(often.upper()):
                raise _Unreadable(f"it repeats each {each}")


def _end(event: Any) -> date | datetime:
    begins: date | datetime = event["DTSTART"].dt
    if (ends := _time(event, "DTEND")) is not None:
        return ends
    if "DURATION" not in event:
        return begins if isinstance(begins, datetime) else begins + _DAY
    lasts: timedelta = event["DURATION"].dt
    if not isinstance(begins, datetime) and lasts % _DAY:
        begins = datetime.combine(begins, time())
    return begins + lasts


def _unknown_zone(prop: Any, value: date | datetime, zones: _Zones) -> str:
    """Returns the name of a time's zone if it is unknown, else an empty text."""
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return ""
    return str(prop.params.get("TZID", "")) or ("" if zones.times is not None else zones.name)


def _left_out(event: Any, why: str, zones: _Zones, ignored: Iterable[LeftOut] = ()) -> Iterator[LeftOut]:
    """What to tell of an event that cannot be read: nothing if it is cancelled."""
    if _is_cancelled(event) and "RECURRENCE-ID" not in event:
        return
    begins, ends = (_time(event, name) for name in ("DTSTART", "DTEND"))
    span = [_bounds(each, zones) for each in (begins, ends) if each is not None and 1 < each.year < _FAR.year]
    first = last = None
    if begins is not None and span:
        first, last = min(span)[0], max(each[1] for each in span)
        if ends is None or {"RRULE", "RDATE"} & {*event}:
            last = None
        elif span[0] > span[-1]:
            last += _DAY  # its end may be one of the next day
    yield LeftOut(_what(event), why, first, last)
    yield from ignored


def _bounds(value: date | datetime, zones: _Zones) -> tuple[datetime, datetime]:
    """The earliest and the latest moment that a time may be."""
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
        return value - _OFFSETS, value + _OFFSETS
    return (moment := zones.moment(value)), moment


def _what(event: Any) -> str:
    title, begins = _title(event)[:60], _time(event, "DTSTART")
    named = f"“{title}”" if title else "an event without a title"
    return named if begins is None else f"{named} of {begins:%Y-%m-%d}"


def _time(event: Any, name: str) -> date | datetime | None:
    value = getattr(event.get(name), "dt", None)
    return value if isinstance(value, date) else None


def _of_event(event: Any, zones: _Zones) -> Iterator[Shift]:
    """One shift for each person."""
    begins, ends = (zones.moment(event[name].dt) for name in ("DTSTART", "DTEND"))
    if _is_cancelled(event) or ends <= begins:
        return
    title = _title(event)
    level = max((int(number) for number in _LEVEL.findall(title)), default=0)
    title = " ".join(_LEVEL.sub(" ", title).split())
    shift = Shift(begins, ends, level)
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


def in_pagerduty(
    pages: Collection[Mapping[str, Any]], since: datetime, until: datetime
) -> tuple[list[Shift], list[LeftOut]]:
    """The shifts in PagerDuty's responses to `GET /oncalls`, each once, even if the schedule is in several policies, and what
    of them cannot be read.

    Raises:
        NoFeed: a response has another format.
    """
    found: dict[Shift, None] = {}
    left_out: list[LeftOut] = []
    try:
        every = [each for page in pages for each in page["oncalls"]]
    except (KeyError, TypeError) as error:
        raise NoFeed(f"its response is not an on-call schedule ({type(error).__name__})") from error
    for number, each in enumerate(every, 1):
        try:
            shift = _of_pagerduty(each, since, until)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            left_out.append(LeftOut(f"entry {number}", f"it is malformed ({type(error).__name__})"))
            continue
        if shift.ends > since and shift.begins < until:
            found[shift] = None
    return sorted(found, key=lambda shift: shift.begins), left_out


def _of_pagerduty(entry: Mapping[str, Any], since: datetime, until: datetime) -> Shift:
    begins = datetime.fromisoformat(entry["start"]) if entry.get("start") else since
    ends = datetime.fromisoformat(entry["end"]) if entry.get("end") else until
    person = entry["user"]
    names = (person.get("name"), person.get("summary"))
    return Shift(
        begins.astimezone(UTC),
        ends.astimezone(UTC),
        email=str(person.get("email") or "").lower(),
        names=tuple(dict.fromkeys(str(name) for name in names if name)),
    )


if __name__ == "__main__":
    main()
