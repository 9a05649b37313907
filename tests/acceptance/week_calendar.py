"""The calendars of a simulated week: who has which shift, as plain intervals, and the same as iCalendar text.

The intervals come from counting days on a wall clock, not from reading the text: they judge whoever reads it. What
changes in a calendar during the week, and when its address answers something else, is decided by the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Literal, get_args
from zoneinfo import ZoneInfo

BERLIN = ZoneInfo("Europe/Berlin")
NOBODY = ""  # somebody whom nobody in Slack is
ADDRESSES = {
    "U0DA": ("ada@week.example", "Ada Desk"),
    "U0DB": ("ben@week.example", "Ben O'Desk-Overly-Long-Name-That-Has-To-Be-Folded"),
    "U0DC": ("cleo@week.example", "Cléo Desk - Night"),
    "U0SA": ("sam@week.example", "Sam Shop"),
    "U0SB": ("sue@week.example", "Sue, Shop"),
    "U0SC": ("stan@week.example", "Stan Shop"),
    NOBODY: ("zoe@elsewhere.example", "Zoe Unknown"),
}
NICKNAMES = {"U0DC": "The Captain", "U0SC": "Skipper"}  # the configuration's `people`
Trouble = Literal["500", "silent", "refused", "a web page", "half of it"]
Form = Literal["zone", "floating", "UTC", "days"]
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_STYLES = 6
_CHANGES = (
    *("swap", "swap", "move", "drop", "cancel a day", "unknown", "extra", "extra", "extra"),
    *("cancel an extra", "level", "empty", "end", "zone"),
)
# Berlin under a name that nobody knows, as some products write it: its rules stand in the feed.
_OWN_ZONE = """BEGIN:VTIMEZONE
TZID:Own Berlin
BEGIN:STANDARD
DTSTART:19961027T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:19960331T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE"""


@dataclass(frozen=True)
class Turn:
    """`user` is on call from `begins` to before `ends`, in seconds since 1970; NOBODY: somebody who is not in Slack."""

    user: str
    begins: float
    ends: float
    level: int


@dataclass(frozen=True)
class Version:
    """What a calendar says from `at` (true time) on; `turns` in its order."""

    at: float
    turns: tuple[Turn, ...]
    text: bytes


@dataclass(frozen=True)
class Outage:
    """The address of a calendar answers something else, or nothing."""

    policy: str
    trouble: Trouble
    begins: float
    ends: float


@dataclass(frozen=True)
class _Change:
    """One day of an event is another's, at another time, or is cancelled (`user` None)."""

    user: str | None
    begins: datetime
    ends: datetime


@dataclass(frozen=True)
class _Event:
    """`begins` and `ends` are on the wall clock, of the first day; `days` (weekdays) or `every` (days): it recurs."""

    uid: str
    user: str
    begins: datetime
    ends: datetime
    style: int
    form: Form = "zone"
    level: int = 0
    days: frozenset[int] = frozenset()
    every: int = 0
    last: date = date.max
    dropped: frozenset[date] = frozenset()
    changed: dict[date, _Change] = field(default_factory=dict)
    is_cancelled: bool = False

    @property
    def zone(self) -> tzinfo:
        return UTC if self.form == "UTC" else BERLIN

    @property
    def recurs(self) -> bool:
        return bool(self.days or self.every)

    def falls_on(self, day: date) -> bool:
        first = self.begins.date()
        if not first <= day <= self.last or day in self.dropped:
            return False
        if self.every:
            return (day - first).days % self.every == 0
        return day.weekday() in self.days if self.days else day == first

    def on(self, day: date) -> _Change:
        """Who has it on a day of its, from when to when."""
        plain = day - self.begins.date()
        return self.changed.get(day, _Change(self.user, self.begins + plain, self.ends + plain))

    def turns(self, days: list[date]) -> Iterator[Turn]:
        for each in [] if self.is_cancelled else map(self.on, filter(self.falls_on, days)):
            if each.user is not None:
                begins, ends = (at.replace(tzinfo=self.zone).timestamp() for at in (each.begins, each.ends))
                yield Turn(each.user, begins, ends, self.level)


class _Calendar:
    """One calendar, while the week is planned."""

    def __init__(self, rng: random.Random, crew: tuple[str, ...], beginning: datetime) -> None:
        self._rng, self._crew, self._beginning = rng, crew, beginning
        self._own_zone = rng.random() < 0.5
        self._empty = False
        self._count = 0
        self._events: list[_Event] = []
        start = beginning.date() - 21 * _DAY
        for user, days in zip(crew, ({0, 2, 4}, {1, 3}, {5, 6}), strict=True):
            first = next(d for d in (start + n * _DAY for n in range(7)) if d.weekday() in days)
            begins, ends = _hours(first, 8, 20)
            form: Form = "floating" if 5 in days else "zone"
            self._add(user, begins, ends, form=form, days=frozenset(days))
        for number, user in enumerate(crew):
            begins, ends = _hours(start + number * _DAY, 20, 32)
            self._add(user, begins, ends, every=len(crew))

    def versions(self, moments: tuple[float, ...]) -> Iterator[Version]:
        """From the beginning on; it changes around `moments`."""
        yield self._version(0.0)
        changes = [*_CHANGES, *_CHANGES]
        self._rng.shuffle(changes)
        times = sorted(max(60.0, self._rng.choice(moments) + self._rng.uniform(-1800, 3600)) for _ in changes)
        for at, what in zip(times, changes, strict=True):
            self._change(what, self._beginning + timedelta(seconds=at))
            yield self._version(at)
            if self._empty:
                self._empty = False
                yield self._version(at + self._rng.uniform(600, 2 * 3600))

    def _change(self, what: str, now: datetime) -> None:
        """Mostly of what holds soon: the rest is seen by nobody."""
        here = (now + _HOUR).astimezone(BERLIN).replace(tzinfo=None)
        match what:
            case "empty":
                self._empty = True
            case "zone":
                self._own_zone = not self._own_zone
            case "extra" | "level":
                self._extra(here, self._rng.choice((1, 2, 10)) if what == "level" else 0)
            case "cancel an extra":
                now_on = [n for n, e in enumerate(self._events) if not e.recurs and e.begins <= here < e.ends]
                if not now_on:
                    self._extra(here, 2)
                chosen = now_on[0] if now_on else -1
                self._events[chosen] = replace(self._events[chosen], is_cancelled=True)
            case "end":
                self._end(here.date())
            case _:
                self._change_day(what, here)

    def _extra(self, here: datetime, level: int) -> None:
        form = self._rng.choice(get_args(Form))
        begins = here.replace(minute=15, second=0, microsecond=0) - self._rng.randint(0, 4) * _HOUR
        ends = begins + self._rng.randint(3, 14) * _HOUR
        if form == "days":
            begins, ends = (datetime.combine(here.date() + n * _DAY, time()) for n in (0, 1))
        self._add(self._rng.choice((*self._crew, NOBODY)), begins, ends, form=form, level=level)

    def _end(self, today: date) -> None:
        """A recurring event ends; somebody else has one like it from then on."""
        number = self._rng.choice([n for n, each in enumerate(self._events) if each.recurs])
        old = self._events[number]
        days = [today + n * _DAY for n in range(14)]
        first = next((day for day in days if old.falls_on(day)), None)
        if first is None:
            return
        self._events[number] = replace(old, last=first - _DAY)
        begins, ends = old.begins + (first - old.begins.date()), old.ends + (first - old.begins.date())
        self._add(self._other(old.user), begins, ends, form=old.form, days=old.days, every=old.every)

    def _change_day(self, what: str, here: datetime) -> None:
        days = [here.date() + n * _DAY for n in (-1, 0, 1)]
        found = [(n, day) for n, e in enumerate(self._events) for day in days if e.recurs and e.falls_on(day)]
        now_on = [
            (n, d) for n, d in found if self._events[n].on(d).begins <= here < self._events[n].on(d).ends
        ]
        number, day = self._rng.choice(now_on or found)
        event = self._events[number]
        was = event.on(day)
        if what == "drop":
            changed = {each: how for each, how in event.changed.items() if each != day}
            self._events[number] = replace(event, dropped=event.dropped | {day}, changed=changed)
            return
        now = {
            "swap": replace(was, user=self._other(event.user)),
            "move": replace(was, begins=was.begins + self._rng.choice((-3, 2, 5)) * _HOUR),
            "cancel a day": replace(was, user=None),
            "unknown": replace(was, user=NOBODY),
        }[what]
        self._events[number] = replace(event, changed=event.changed | {day: now})

    def _other(self, user: str) -> str:
        return self._rng.choice([each for each in self._crew if each != user])

    def _add(self, user: str, begins: datetime, ends: datetime, **more: object) -> None:
        self._count += 1
        style = self._rng.randrange(_STYLES)
        self._events.append(_Event(f"e{self._count}", user, begins, ends, style, **more))  # type: ignore[arg-type]

    def _version(self, at: float) -> Version:
        events = [] if self._empty else self._events
        days = [self._beginning.date() + n * _DAY for n in range(-4, 13)]
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//week//EN"]
        if self._own_zone:
            lines += _OWN_ZONE.splitlines()
        zone = "Own Berlin" if self._own_zone else "Europe/Berlin"
        lines += [line for event in events for line in _written(event, zone)]
        text = "\r\n".join(map(_folded, [*lines, "END:VCALENDAR"])) + "\r\n"
        return Version(at, tuple(turn for event in events for turn in event.turns(days)), text.encode())


def history(
    seed: int, crew: tuple[str, ...], beginning: datetime, moments: tuple[float, ...]
) -> tuple[Version, ...]:
    """What a calendar says from when on. It changes mostly around `moments`, in seconds from the beginning."""
    calendar = _Calendar(random.Random(f"{seed} {crew}"), crew, beginning)  # noqa: S311 - a plan, not a secret
    return tuple(sorted(calendar.versions(moments), key=lambda each: each.at))


def outages(rng: random.Random, policies: tuple[str, ...]) -> tuple[Outage, ...]:
    """Of each calendar one that lasts for longer than a day, and some short ones."""
    found = []
    for policy in policies:
        hours = [rng.uniform(26, 40), *(rng.choice((0.1, 1, 4)) * rng.random() for _ in range(5))]
        for length in hours:
            begins = rng.uniform(2, 150 - length) * 3600
            found.append(Outage(policy, rng.choice(get_args(Trouble)), begins, begins + length * 3600))
    return tuple(found)


def _hours(day: date, begins: int, ends: int) -> tuple[datetime, datetime]:
    midnight = datetime.combine(day, time())
    return midnight + begins * _HOUR, midnight + ends * _HOUR


def _written(event: _Event, zone: str) -> Iterator[str]:
    """An event and what is another on some days, as components of a feed."""
    own = [_at(event, zone, "EXDATE", event.on(day).begins) for day in sorted(event.dropped)]
    if event.recurs:
        own.append(_rule(event))
    if event.is_cancelled:
        own.append("STATUS:CANCELLED")
    elif event.style % 2:
        own.append("TRANSP:TRANSPARENT")
    shifts = [(_Change(event.user, event.begins, event.ends), own)]
    for day, change in event.changed.items():
        if event.falls_on(day):
            which = _at(event, zone, "RECURRENCE-ID", event.begins + (day - event.begins.date()))
            shifts.append((change, [which, *(["STATUS:CANCELLED"] if change.user is None else [])]))
    for shift, more in shifts:
        yield from ("BEGIN:VEVENT", f"UID:{event.uid}@week.example", "DTSTAMP:20260101T000000Z")
        yield from (_at(event, zone, "DTSTART", shift.begins), _at(event, zone, "DTEND", shift.ends))
        yield from (*_naming(event, shift.user or NOBODY), *more, "END:VEVENT")


def _at(event: _Event, zone: str, name: str, moment: datetime) -> str:
    match event.form:
        case "days":
            return f"{name};VALUE=DATE:{moment:%Y%m%d}"
        case "UTC":
            return f"{name}:{moment:%Y%m%dT%H%M%S}Z"
        case "floating":
            return f"{name}:{moment:%Y%m%dT%H%M%S}"
        case _:
            return f"{name};TZID={zone}:{moment:%Y%m%dT%H%M%S}"


def _rule(event: _Event) -> str:
    rule = f"RRULE:FREQ=DAILY;INTERVAL={event.every}"
    if event.days:
        rule = f"RRULE:FREQ=WEEKLY;BYDAY={','.join(_WEEKDAYS[day] for day in sorted(event.days))}"
    if event.last == date.max:
        return rule
    until = datetime.combine(event.last, event.begins.time())
    if event.form == "zone":
        until = until.replace(tzinfo=BERLIN).astimezone(UTC)
    return f"{rule};UNTIL={until:%Y%m%dT%H%M%S}{'Z' if event.form == 'zone' else ''}"


def _naming(event: _Event, user: str) -> list[str]:
    """Who it is, in one of the ways in which products write it."""
    address, name = ADDRESSES[user]
    level = f"[L{event.level}] " if event.level else ""
    shown = name.replace(",", "\\,")
    match event.style:
        case 0:
            return [f"ATTENDEE;PARTSTAT=ACCEPTED:mailto:{address}", f"SUMMARY:{level}On call"]
        case 1:
            return [f"SUMMARY:{level}{address}"]
        case 2:
            return [f"SUMMARY:{level}On Call - {shown} - Week"]
        case 3:
            return [f"SUMMARY:{level}{shown} On-Call (GoAlert: Week)"]
        case 4:
            return [f"SUMMARY:{level}{NICKNAMES.get(user, shown)}"]
        case _:
            return [f"ATTENDEE:{address.upper()}", f"SUMMARY:{level}On call: {shown}"]


def _folded(line: str) -> str:
    """No line is longer than 75 characters; what goes on begins with a blank."""
    return "\r\n ".join(line[at : at + 74] for at in range(0, len(line), 74)) if len(line) > 75 else line
