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
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any, NamedTuple, NoReturn
from zoneinfo import ZoneInfo

_DAY = timedelta(days=1)
_SOON, _SAME_SHIFT, _MOVED = 2 * _DAY, 3 * _DAY, timedelta(minutes=5)
_LONGEST = timedelta(days=400)  # no shift is longer: older events and changes to them don't matter
_MOST = 2000
_LOOKED_AT = 200
_ORDER = "X-CLARIFY-ORDER"
_EVENT = re.compile(
    rb"^BEGIN:VEVENT[ \t]*\n(?:(?!(?:BEGIN|END):VEVENT)[^\n]*\n)*+END:VEVENT[ \t]*(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_NAME = rb"^%s(?:;[^:\n]*(?:\n[ \t][^:\n]*)*)?:(\d{8})"
_ENDS = re.compile(_NAME % rb"DTEND", re.MULTILINE | re.IGNORECASE)
_BEGINS = re.compile(_NAME % rb"DTSTART", re.MULTILINE | re.IGNORECASE)
_REPLACES = re.compile(_NAME % rb"RECURRENCE-ID", re.MULTILINE | re.IGNORECASE)
_UNTIL = re.compile(rb"^RRULE[^\n]*[:;]UNTIL=(\d{8})", re.MULTILINE | re.IGNORECASE)
_RECURS = re.compile(rb"^(?:RRULE|RDATE)[:;]", re.MULTILINE | re.IGNORECASE)
_FOLLOWING = re.compile(rb"^RECURRENCE-ID[^\n]*RANGE=", re.MULTILINE | re.IGNORECASE)
_TOO_OFTEN = {"SECONDLY": "second", "MINUTELY": "minute"}
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
_NO_PERSON = frozenset({"ROOM", "RESOURCE"})
_NO_PERSONS = ("@group.calendar.google.com", "@resource.calendar.google.com")


class NoFeed(Exception):
    """The source cannot be read, or does not say who is on call."""


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
    """Read a feed from standard input and print its shifts as JSON.

    Arguments: those of `in_calendar`, then the seconds of computing allowed.
    """
    zone, since, until, seconds = sys.argv[1:]
    _limit(int(seconds))
    told: dict[str, Any]
    try:
        shifts, undated = in_calendar(
            sys.stdin.buffer.read(),
            ZoneInfo(zone),
            datetime.fromisoformat(since),
            datetime.fromisoformat(until),
        )
        told = {"shifts": [each.as_json() for each in shifts], "undated": undated}
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


def in_calendar(feed: bytes, zone: ZoneInfo, since: datetime, until: datetime) -> tuple[list[Shift], int]:
    """The shifts of an iCalendar feed between `since` and `until`, in the feed's order, and how many events have no readable
    time. Blocking, and slow: about ten milliseconds for a hundred events.

    `zone` applies to times without one, and to all-day events.

    Raises:
        NoFeed: it is not iCalendar, or takes too much to read.
    """
    text = feed.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.lstrip().upper().startswith(b"BEGIN:VCALENDAR"):
        raise NoFeed("its response is not iCalendar")
    if not text.rstrip().upper().endswith(b"END:VCALENDAR"):
        raise NoFeed("it is cut off")
    found: list[tuple[tuple[int, int], Shift]] = []
    undated = 0
    try:
        for number, calendar in enumerate(_calendars(_without_history(text, since))):
            broken = [event for event in calendar.walk("VEVENT") if not _is_dated(event)]
            calendar.subcomponents = [each for each in calendar.subcomponents if each not in broken]
            undated += len(broken)
            shifts = _parsed(calendar, zone, since, until)
            found += [((number, at), each) for at, each in islice(shifts, _MOST + 1)]
    except NoFeed:
        raise
    except (_OutOfTime, MemoryError) as error:
        raise NoFeed(TOO_MUCH) from error
    except Exception as error:
        # Any parser error: the last good copy stays in use.
        raise NoFeed(f"it is malformed ({type(error).__name__})") from error
    if len(found) > _MOST:
        raise NoFeed(f"it has more than {_MOST} shifts a month")
    found.sort(key=lambda each: each[0])
    return [shift for _, shift in found if shift.begins < until and shift.ends > since], undated


def _calendars(text: bytes) -> Sequence[Any]:
    from icalendar import Calendar  # noqa: PLC0415 - slow to import, and only needed for feeds

    found: Sequence[Any] = Calendar.from_ical(text, multiple=True)
    return found


def _parsed(calendar: Any, zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[tuple[int, Shift]]:
    """Each shift, with its event's position in the calendar.

    Raises:
        NoFeed: an event cannot be expanded; the message names it.
    """
    from recurring_ical_events import of  # noqa: PLC0415 - as above

    order: dict[str, int] = {}
    named: dict[str, str] = {}
    for event in calendar.walk("VEVENT"):
        uid = str(event.get("UID", id(event)))
        event[_ORDER] = str(order.setdefault(uid, len(order)))
        named.setdefault(uid, f"“{_title(event)[:60]}” of {event['DTSTART'].dt:%Y-%m-%d}")
        for rule in _rules(event):
            for often in map(str, rule.get("FREQ", [])):
                if each := _TOO_OFTEN.get(often.upper()):
                    raise NoFeed(f"{named[uid]} repeats each {each}")
    query = of(calendar, skip_bad_series=True)
    for series in query.series:
        try:
            with suppress(*query.suppressed_errors):
                for occurrence in series.between(since, until):
                    event = occurrence.as_component(keep_recurrence_attributes=False)
                    for shift in _of_event(event, zone):
                        yield int(event[_ORDER]), shift
        except _OutOfTime as error:
            what = named.get(str(series.uid), "one of its events")
            raise NoFeed(f"{what} takes too long to expand") from error


def _without_history(text: bytes, since: datetime) -> bytes:
    """Drops events that certainly ended before `since`: parsing years of them takes seconds."""
    recent, ancient = ((since - by).strftime("%Y%m%d").encode() for by in (2 * _DAY, _LONGEST))

    def is_over(event: bytes) -> bool:
        begins, ends, replaces = _BEGINS.search(event), _ENDS.search(event), _REPLACES.search(event)
        if begins is None or ends is None or _FOLLOWING.search(event):
            return False
        last: bytes = max(begins[1], ends[1])
        if replaces is not None:
            return max(last, bytes(replaces[1])) < ancient
        if _RECURS.search(event):
            over = _UNTIL.search(event)
            return (
                over is not None and max(last, bytes(over[1])) < ancient and b"\nRDATE" not in event.upper()
            )
        return last < recent

    return _EVENT.sub(lambda event: b"" if is_over(event[0]) else event[0], text)


def _of_event(event: Any, zone: ZoneInfo) -> Iterator[Shift]:
    """One shift for each person."""
    if str(event.get("STATUS", "")).upper() == "CANCELLED":
        return
    begins, ends = _moment(event["DTSTART"].dt, zone), _moment(event.end, zone)
    if ends <= begins:
        return
    title = _title(event)
    level = max((int(number) for number in _LEVEL.findall(title)), default=0)
    title = " ".join(_LEVEL.sub(" ", title).split())
    shift = Shift(begins, ends, level)
    invited = event.get("ATTENDEE", [])
    invited = [each for each in (invited if isinstance(invited, list) else [invited]) if _is_person(each)]
    if invited:
        # A person who declined is not on call, even if the title names them.
        coming = [each for each in invited if _parameter(each, "PARTSTAT") != "DECLINED"]
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


def _rules(event: Any) -> list[Any]:
    rules = event.get("RRULE", [])
    return rules if isinstance(rules, list) else [rules]


def _is_dated(event: Any) -> bool:
    from icalendar import vDDDTypes, vRecur  # noqa: PLC0415 - as above

    return (
        isinstance(event.get("DTSTART"), vDDDTypes)
        and isinstance(event.get("DTEND", event["DTSTART"]), vDDDTypes)
        and all(isinstance(rule, vRecur) for rule in _rules(event))
    )


def _moment(value: date | datetime, zone: ZoneInfo) -> datetime:
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return (value.replace(tzinfo=zone) if value.tzinfo is None else value).astimezone(UTC)


def _is_person(attendee: Any) -> bool:
    return _parameter(attendee, "CUTYPE") not in _NO_PERSON and not _address(attendee).endswith(_NO_PERSONS)


def _parameter(attendee: Any, name: str) -> str:
    return str(getattr(attendee, "params", {}).get(name, "")).upper()


def _address(attendee: Any) -> str:
    """The e-mail address, written with or without `mailto:`; empty if it is none."""
    found = _EMAIL.search(re.sub(r"(?i)^mailto:", "", str(attendee).strip()))
    return found[0].lower() if found else ""


def _common_name(attendee: Any) -> Iterator[str]:
    name = " ".join(str(getattr(attendee, "params", {}).get("CN", "")).split())
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


def in_pagerduty(pages: Collection[Mapping[str, Any]], since: datetime, until: datetime) -> list[Shift]:
    """The shifts in PagerDuty's responses to `GET /oncalls`, each once, even if the schedule is in several policies.

    Raises:
        NoFeed: a response has another format.
    """
    found: dict[Shift, None] = {}
    try:
        for page in pages:
            for each in page["oncalls"]:
                begins = datetime.fromisoformat(each["start"]) if each.get("start") else since
                ends = datetime.fromisoformat(each["end"]) if each.get("end") else until
                person = each["user"]
                names = (person.get("name"), person.get("summary"))
                shift = Shift(
                    begins.astimezone(UTC),
                    ends.astimezone(UTC),
                    email=str(person.get("email") or "").lower(),
                    names=tuple(dict.fromkeys(str(name) for name in names if name)),
                )
                if shift.ends > since and shift.begins < until:
                    found[shift] = None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NoFeed(f"its response is not an on-call schedule ({type(error).__name__})") from error
    return sorted(found, key=lambda shift: shift.begins)


if __name__ == "__main__":
    main()
