"""What iCalendar feeds (RFC 5545) and PagerDuty say about who is on call when. Pure but for the log.

A shift is one person's. Who it is, is told by an attendee's e-mail address, by one in the event's title, or by a name in
it, as PagerDuty (`On Call - NAME - SCHEDULE`), GoAlert (`NAME On-Call (GoAlert: SCHEDULE)`), Grafana OnCall (`[L1] NAME`)
and people in calendars of their own write it. Whom in Slack that means is for `bot.oncall.feeds` to find out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import structlog

_log = structlog.get_logger("clarify.oncall")
_DAY = timedelta(days=1)
# Of what ended before, no change is needed to know what holds now: no shift is longer.
_LONGEST = timedelta(days=400)
_MOST = 2000
_LOOKED_AT = 200
_ORDER = "X-CLARIFY-ORDER"
_EVENT = re.compile(
    rb"^BEGIN:VEVENT[ \t]*\n.*?^END:VEVENT[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL | re.IGNORECASE
)
_NAME = rb"^%s(?:;[^:\n]*(?:\n[ \t][^:\n]*)*)?:(\d{8})"
_ENDS = re.compile(_NAME % rb"DTEND", re.MULTILINE | re.IGNORECASE)
_BEGINS = re.compile(_NAME % rb"DTSTART", re.MULTILINE | re.IGNORECASE)
_REPLACES = re.compile(_NAME % rb"RECURRENCE-ID", re.MULTILINE | re.IGNORECASE)
_UNTIL = re.compile(rb"^RRULE[^\n]*[:;]UNTIL=(\d{8})", re.MULTILINE | re.IGNORECASE)
_RECURS = re.compile(rb"^(?:RRULE|RDATE)[:;]", re.MULTILINE | re.IGNORECASE)
_FOLLOWING = re.compile(rb"^RECURRENCE-ID[^\n]*RANGE=", re.MULTILINE | re.IGNORECASE)
_TOO_OFTEN = re.compile(rb"^RRULE[^\n]*FREQ=(?:SECONDLY|MINUTELY)", re.MULTILINE | re.IGNORECASE)

_EMAIL = re.compile(r"[^\s<>()\[\],;:\"]+@[^\s<>()\[\],;:\"@]+\.[^\s<>()\[\],;:\"@.]+")
_LEVEL = re.compile(r"\[L(\d{1,3})\]", re.IGNORECASE)
_ON_CALL = r"on[\s\-‐‑]?call"
_PAGERDUTY = re.compile(rf"{_ON_CALL} - (.+)", re.IGNORECASE)
_GOALERT = re.compile(rf"(?:(.+?) )?{_ON_CALL} \(GoAlert: .*\)(?: Begins\*)?", re.IGNORECASE)
_BEFORE = re.compile(rf"{_ON_CALL}\s*(?:[:|\-–—]\s*)?(.+)", re.IGNORECASE)
_AFTER = re.compile(rf"(.+?)\s*(?:[:|\-–—]\s*)?(?:is\s+)?{_ON_CALL}", re.IGNORECASE)
_REMARK = re.compile(r"(.+?)\s*\([^()]*\)")
_NO_PERSON = frozenset({"ROOM", "RESOURCE"})
_NO_PERSONS = ("@group.calendar.google.com", "@resource.calendar.google.com")


class NoFeed(Exception):
    """What came does not say who is on call."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Somebody is on call from `begins` to before `ends`. Of shifts that overlap those of the highest `level` count.

    email: empty where there is none. names: what else the person may be called, the likeliest first.
    user: who that is in Slack; None: nobody was found, `why` says for what reason.
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
        """The same for all shifts of one person."""
        return self.email, self.names

    @property
    def label(self) -> str:
        """The person, in the source's words."""
        return self.email or next(iter(self.names), "somebody without a name")

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
    """The shifts that somebody known has at a moment: those of the highest level, in the feed's order."""
    now = [each for each in shifts if each.begins <= moment < each.ends and each.user is not None]
    highest = max((each.level for each in now), default=0)
    return [each for each in now if each.level == highest]


def users_at(shifts: Sequence[Shift], moment: datetime) -> tuple[str, ...]:
    """Who in Slack is on call at a moment."""
    return tuple(dict.fromkeys(each.user for each in at(shifts, moment) if each.user is not None))


def next_change(shifts: Sequence[Shift], moment: datetime) -> datetime | None:
    """When others than at `moment` are on call, or nobody any more; None: not as far as is known."""
    users, left = users_at(shifts, moment), [each for each in shifts if each.ends > moment]
    moments = sorted({at for each in left for at in (each.begins, each.ends) if at > moment})
    return next((at for at in moments[:_LOOKED_AT] if users_at(left, at) != users), None)


def in_calendar(feed: bytes, zone: ZoneInfo, since: datetime, until: datetime) -> list[Shift]:
    """The shifts of an iCalendar feed that overlap the time from `since` to `until`, in the feed's order. Blocking, and
    slow: some ten milliseconds for a hundred events.

    `zone`: of times without one, and of whole days.

    Raises:
        NoFeed: it is no iCalendar.
    """
    text = feed.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not text.lstrip().upper().startswith(b"BEGIN:VCALENDAR"):
        raise NoFeed("what it gives is no iCalendar")
    if not text.rstrip().upper().endswith(b"END:VCALENDAR"):
        raise NoFeed("it ends in the middle")
    if _TOO_OFTEN.search(text):
        raise NoFeed("an event in it repeats each minute or second")
    try:
        found = list(islice(_parsed(_without_history(text, since), zone, since, until), _MOST + 1))
    except Exception as error:
        # Whatever a parser stumbles over in somebody else's words: the copy of what was said before goes on to count.
        raise NoFeed(f"it is broken ({type(error).__name__})") from error
    if len(found) > _MOST:
        raise NoFeed(f"it has more than {_MOST} shifts a month")
    found.sort(key=lambda each: each[0])
    return [shift for _, shift in found if shift.begins < until and shift.ends > since]


def _parsed(
    text: bytes, zone: ZoneInfo, since: datetime, until: datetime
) -> Iterator[tuple[tuple[int, int], Shift]]:
    """Each shift, with its place in the feed."""
    from icalendar import Calendar  # noqa: PLC0415 - only where there are feeds: a start is to be fast
    from recurring_ical_events import of  # noqa: PLC0415 - as above

    for number, calendar in enumerate(Calendar.from_ical(text, multiple=True)):
        order: dict[str, int] = {}
        events = calendar.walk("VEVENT")
        if broken := [event for event in events if not _is_dated(event)]:
            _log.warning("events of a calendar without a time that can be read", count=len(broken))
            calendar.subcomponents = [each for each in calendar.subcomponents if each not in broken]
        for event in events:
            event[_ORDER] = str(order.setdefault(str(event.get("UID", id(event))), len(order)))
        for event in of(calendar, skip_bad_series=True).between(since, until):
            for shift in _of_event(event, zone):
                yield (number, int(event[_ORDER])), shift


def _without_history(text: bytes, since: datetime) -> bytes:
    """Without events that ended before: to parse years of them would take seconds. What is in doubt stays."""
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
    title = " ".join(str(event.get("SUMMARY", "")).split())
    level = max((int(number) for number in _LEVEL.findall(title)), default=0)
    title = " ".join(_LEVEL.sub(" ", title).split())
    shift = Shift(begins, ends, level)
    invited = event.get("ATTENDEE", [])
    invited = [each for each in (invited if isinstance(invited, list) else [invited]) if _is_somebody(each)]
    if invited:
        # Somebody who declined is not on call, nor by the title.
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


def _is_dated(event: Any) -> bool:
    from icalendar import vDDDTypes, vRecur  # noqa: PLC0415 - as above

    rules = event.get("RRULE", [])
    return (
        isinstance(event.get("DTSTART"), vDDDTypes)
        and isinstance(event.get("DTEND", event["DTSTART"]), vDDDTypes)
        and all(isinstance(rule, vRecur) for rule in (rules if isinstance(rules, list) else [rules]))
    )


def _moment(value: date | datetime, zone: ZoneInfo) -> datetime:
    if not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return (value.replace(tzinfo=zone) if value.tzinfo is None else value).astimezone(UTC)


def _is_somebody(attendee: Any) -> bool:
    return _parameter(attendee, "CUTYPE") not in _NO_PERSON and not _address(attendee).endswith(_NO_PERSONS)


def _parameter(attendee: Any, name: str) -> str:
    return str(getattr(attendee, "params", {}).get(name, "")).upper()


def _address(attendee: Any) -> str:
    """With or without `mailto:`, as products write it; empty: it is no e-mail address."""
    found = _EMAIL.search(re.sub(r"(?i)^mailto:", "", str(attendee).strip()))
    return found[0].lower() if found else ""


def _common_name(attendee: Any) -> Iterator[str]:
    name = " ".join(str(getattr(attendee, "params", {}).get("CN", "")).split())
    if name and "@" not in name:
        yield name


def names_in(title: str) -> tuple[str, ...]:
    """What the person may be called whom an event's title names, the likeliest first; without a name: nothing."""
    if told := _GOALERT.fullmatch(title):
        return (told[1],) if told[1] else ()
    if told := _PAGERDUTY.fullmatch(title):
        # Both a name and a schedule may have such a dash.
        parts = told[1].split(" - ")
        names = [" - ".join(parts[:count]) for count in range(max(1, len(parts) - 1), 0, -1)]
        return tuple(dict.fromkeys(name.strip() for name in [*names, told[1]]))
    names = [title]
    for form in (_BEFORE, _AFTER):
        if told := form.fullmatch(title):
            names.append(told[1].strip())
    for name in list(names):
        if told := _REMARK.fullmatch(name):
            names.append(told[1])
            if inner := _AFTER.fullmatch(told[1]):
                names.append(inner[1].strip())
    bare = re.compile(rf"(?:{_ON_CALL})?[\W_]*", re.IGNORECASE)
    return tuple(dict.fromkeys(name for name in names if not bare.fullmatch(name)))


def in_pagerduty(pages: Collection[Mapping[str, Any]], since: datetime, until: datetime) -> list[Shift]:
    """The shifts that PagerDuty's answers to `GET /oncalls` tell: each once, though a schedule may be in many policies.

    Raises:
        NoFeed: they are no such answers.
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
        raise NoFeed(f"what it gives is not who is on call ({type(error).__name__})") from error
    return sorted(found, key=lambda shift: shift.begins)
