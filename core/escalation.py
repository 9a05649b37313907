"""Decides whom to page and when, by the escalation policy, and words the escalation. Pure.

`wanted` takes the policy, the history and the time, and returns what to send.

The history is the log of one incident, in the order of writing. A *cycle* runs through the steps of the policy. It begins
with `Began`. It begins again, with its first step at once, when a snooze ends, `take_timeout` after a take or a hand-over
without an answer, and `take_timeout` after even the last resort failed. A step is skipped outside its `hours`: the next one
takes its time, and it goes when they begin. If no step may go, the last resort does.

`Paged` is written before something is sent, `Failed` once it is known that it reached no one (without `Paged` if there was no
address).

Clocks get set back. An entry dated before its predecessor shows by how much, and everything earlier is dated back with it.
While only `now` shows it, the last sending is repeated.

Hours are those of the week on the wall clock of a time zone: "Mon-Fri 09:00-18:00, Sat 10:00-12:00".
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from core import answers
from core.approvals import RISKS
from core.clarification import Clarification, Why, one_line
from core.names import named, quoted

LAST_RESORT = -1
IncidentState = Literal["paging", "taken", "snoozed", "closed"]
_SNOOZE = timedelta(minutes=10)
_ROUNDING = timedelta(milliseconds=1)  # ledgers keep milliseconds
_SET_BACK = timedelta(minutes=1)  # a smaller setback is waited out

WORDS_LIMIT = 1500
_POSITION = 300
_NAME, _ANSWERER = 24, 45
_SHOWN = 6  # lines of others
_REASONS: dict[Why, str] = {
    "stale": "No answer, even after a reminder.",
    "stuck": "The discussion is repeating itself and needs a person to move it on.",
    "deadlocked": "Agents are waiting for each other in a loop. A person must break it.",
    "rounds exhausted": "Rounds exhausted: a follow-up was asked after {rounds} rounds.",
    "agent failed": "The agent that was asked failed to answer twice.",
    "too few people": "This needs more approvals than there are people who may answer.",
    "by hand": "Someone escalated this by hand.",
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEK: Final = len(_DAYS)
_DAY: Final = 24 * 60  # minutes
_SPAN = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_EXPECTED = 'expected hours such as "Mon-Fri 09:00-18:00, Sat 10:00-12:00", or "22:00-06:00" for every night'


@dataclass(frozen=True, slots=True)
class NewIncident:
    """An incident to open. `key` makes it unique; the renderer neutralizes all markup in its words.

    `agent_id`: the agent whose on-call people are paged. `clarification`: the one it is about, if any. `expires_at`: when an
    answer comes too late.
    """

    key: str
    reason: str
    title: str
    body: str = ""
    agent_id: str | None = None
    clarification: str | None = None
    expires_at: datetime | None = None

    @classmethod
    def about(cls, record: Clarification, key: str, reason: str, title: str) -> NewIncident:
        return cls(
            key,
            reason,
            title,
            agent_id=record.asked.agent_id or record.from_,
            clarification=record.id,
            expires_at=record.asked.expires_at if record.is_open else None,
        )


Raise = Callable[[NewIncident], Awaitable[object]]
"""Opens an incident; durable when it returns. Raises StorageUnavailable if it was not stored."""


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """One step of a policy. `after` counts from the beginning of a cycle; `every` repeats it until acknowledged, None: once.
    `hours`: when it may go; None: always.
    """

    after: timedelta
    notify: tuple[str, ...]
    every: timedelta | None = None
    hours: Hours | None = None

    def next(self, moment: datetime) -> datetime:
        """The first moment from `moment` on at which it may go."""
        return moment if self.hours is None else self.hours.next(moment)


@dataclass(frozen=True, slots=True)
class Policy:
    """`steps` in the order of `after`; without any, only the last resort goes, once.

    `take_timeout`: how long a take or a hand-over stops paging, and the interval of the last resort.
    """

    steps: tuple[EscalationStep, ...]
    take_timeout: timedelta


class _Cycle:
    """One run through the steps: what was sent, and what is due when."""

    def __init__(self, policy: Policy, start: datetime) -> None:
        self._policy = policy
        self._steps = policy.steps
        self._start = start
        self._sent: dict[int, datetime] = {}  # the last sending of each step
        self._pulled: dict[int, datetime] = {}  # due earlier than planned
        self._failed: set[int] = set()  # steps whose latest sending reached no one
        self._latest: int | None = None

    def dues(self, now: datetime) -> list[tuple[int, datetime]]:
        """The steps still to be sent and when, in order, the last resort at the end."""
        found: list[tuple[int, datetime]] = []
        passed_over: datetime | None = None  # when a step outside its hours was due: the next one goes then
        repeats_end, may_one_go = self._start, False
        for index, step in enumerate(self._steps):
            due, left = self._due(index), passed_over
            passed_over = None
            if due is None:
                continue
            is_first = index not in self._sent
            if is_first and left is not None:
                due = min(due, left)
            asked = max(due, now)
            opens = step.next(asked)
            if opens == asked:
                may_one_go = True
                found.append((index, due))
                continue
            found.append((index, opens))
            if is_first:
                passed_over = due
            else:
                repeats_end = max(repeats_end, due)
        if passed_over is not None:
            passed_over = max(passed_over, repeats_end)
        last = self._last_resort_due(passed_over, may_one_go=may_one_go)
        return found if last is None else [*found, (LAST_RESORT, last)]

    def again(self, now: datetime) -> int:
        """The step to send when the age of the last sending is unknown."""
        latest = self._latest
        if latest is None:
            return self._next_unsent(now)
        is_closed = 0 <= latest < len(self._steps) and self._steps[latest].next(now) != now
        return self._next_unsent(now) if is_closed else latest

    def mark(self, step: int, at: datetime) -> None:
        self._sent[step] = at
        self._latest = step
        self._pulled.pop(step, None)
        self._failed.discard(step)

    def fail(self, step: int, at: datetime) -> None:
        """The latest sending of `step` reached no one: the next step is due, or the last resort after the last one."""
        due = dict(self.dues(at)).get(step)
        if step not in self._sent or (due is not None and due <= at):
            self.mark(step, at)  # there was no one to send to
        elif step in self._failed:
            return
        self._failed.add(step)
        if self._next_unsent(at) != LAST_RESORT or LAST_RESORT not in self._failed:
            self.pull(at)

    def skip(self, at: datetime) -> None:
        """Go on after someone declined: as if the sending had failed, but the last resort goes only once."""
        if self._next_unsent(at) != LAST_RESORT or LAST_RESORT not in self._sent:
            self.pull(at)

    def skip_first(self, at: datetime) -> None:
        """Go on with the second step that may go: the person paged by the first one declined."""
        if (first := self._next_unsent(at)) != LAST_RESORT:
            self.mark(first, at)
        self.skip(at)

    def pull(self, at: datetime) -> None:
        step = self._next_unsent(at)
        if step == LAST_RESORT or self._start + self._steps[step].after > at:
            self._pulled.setdefault(step, at)

    def date_back(self, by: timedelta) -> None:
        self._start -= by
        for moments in (self._sent, self._pulled):
            moments.update({step: at - by for step, at in moments.items()})

    def _due(self, index: int) -> datetime | None:
        step = self._steps[index]
        if index not in self._sent:
            return self._pulled.get(index, self._start + step.after)
        if step.every is None:
            return None
        return (
            self._sent[index] + step.every
        )  # from the actual sending, even if it was late: never two in a row

    def _last_resort_due(self, passed_over: datetime | None, *, may_one_go: bool) -> datetime | None:
        """`passed_over`: when a skipped step was due and no other could take its place; `may_one_go`: whether a step may."""
        if LAST_RESORT in self._pulled:
            return self._pulled[LAST_RESORT]
        if not self._steps:
            return None if LAST_RESORT in self._sent else self._start
        if may_one_go:
            return None
        if passed_over is not None and LAST_RESORT not in self._sent:
            return passed_over
        return max(self._sent.values()) + self._policy.take_timeout  # nothing else would be sent

    def _next_unsent(self, at: datetime) -> int:
        """The first unsent step that may go at `at`."""
        steps = enumerate(self._steps)
        return next((i for i, step in steps if i not in self._sent and step.next(at) == at), LAST_RESORT)


@dataclass(frozen=True, slots=True)
class Began:
    at: datetime


@dataclass(frozen=True, slots=True)
class Paged:
    """A sending of `step` (an index into the policy's steps, or LAST_RESORT) was begun, as the page with this number."""

    at: datetime
    step: int
    page: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The latest page of `step` reached no one; a repetition counts once. `page`: see `Paged`; None if there was no one to page."""

    at: datetime
    step: int
    page: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Taken:
    at: datetime
    user: str


@dataclass(frozen=True, slots=True)
class Handed:
    at: datetime
    user: str
    by: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    at: datetime
    until: datetime
    by: str


@dataclass(frozen=True, slots=True)
class NotMine:
    """Someone declined. If they hold it, they give it back; if another person holds it, nothing changes."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class Left:
    """The user who held it is gone, which counts like declining."""

    at: datetime
    user: str


@dataclass(frozen=True, slots=True)
class IncidentClosed:
    at: datetime


Happening: TypeAlias = Began | Paged | Failed | Taken | Handed | Snoozed | NotMine | Left | IncidentClosed


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the policy wants.

    send: the steps to send now, in order, LAST_RESORT at the end.
    next_at: when to ask again unless something happens before; None: never.
    holder: the user who took it or was handed it: a step's "dm" goes to them.
    """

    send: tuple[int, ...]
    next_at: datetime | None
    holder: str | None
    state: IncidentState


def is_news(held: Taken | Handed, history: Sequence[Happening], now: datetime) -> bool:
    """Whether the holder in a record is missing from the log: records may be read late, and more than once. A log ahead of
    the clock was written before the clock was set back.
    """
    last = next((each for each in reversed(history) if isinstance(each, (Taken, Handed))), None)
    if last is None:
        return True
    is_same = isinstance(last, type(held)) and last.user == held.user
    if is_same and abs(held.at - last.at) <= _ROUNDING:
        return False
    if last.at > now:
        return True
    return held.at > last.at if is_same else held.at >= last.at - _ROUNDING


def wanted(policy: Policy, history: Sequence[Happening], now: datetime) -> Wanted:
    """What `policy` wants at `now` after `history`."""
    course = _Course(policy)
    for happening in history:
        course.take_in(happening)
    return course.wants(now)


def quiet_until(now: datetime, ends: datetime | None) -> datetime:
    """The end of a snooze that begins at `now`: after 10 minutes, at most half of the time left until `ends`."""
    if ends is None:
        return now + _SNOOZE
    return now + min(_SNOOZE, max(timedelta(0), (ends - now) / 2))


class _Course:
    """The state of one incident, worked out from its history."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._trust = policy.take_timeout
        self._state: IncidentState = "closed"  # nothing began
        self._cycle = _Cycle(policy, datetime.fromtimestamp(0, UTC))
        self._over = False
        self._holder: str | None = None
        self._acknowledged: tuple[str, datetime] | None = None  # who took or snoozed it, and when
        self._held: datetime | None = None  # until when a hand-over counts
        self._resume: datetime | None = None  # when the next cycle begins
        self._last: datetime | None = None  # of the latest happening

    def take_in(self, happening: Happening) -> None:
        if self._over:
            return
        at = happening.at
        self._advance(at)
        self._date_back(at)
        match happening:
            case Began():
                self._begin(at)
            case Paged(step=step):
                self._cycle.mark(step, at)
            case Failed(step=step):
                self._fail(step, at)
            case Taken(user=user):
                self._state, self._holder, self._held = "taken", user, None
                self._acknowledged, self._resume = (user, at), at + self._trust
            case Handed(user=user):
                self._hand(user, at)
            case Snoozed(until=until, by=by):
                self._state, self._acknowledged, self._resume = "snoozed", (by, at), until
            case NotMine(by=by) | Left(user=by):
                self._pass_on(by, at)
            case IncidentClosed():
                self._over, self._state, self._resume = True, "closed", None

    def wants(self, now: datetime) -> Wanted:
        self._advance(now)
        if self._state == "closed":
            return Wanted((), None, None, "closed")
        send: tuple[int, ...] = ()
        moments = [] if self._resume is None else [self._resume]
        if self._state == "paging":
            dues = self._cycle.dues(now)
            send = tuple(step for step, at in dues if at <= now)
            if not send and self._last is not None and now < self._last - _SET_BACK:
                send = (self._cycle.again(now),)
            moments += [at for step, at in dues if step not in send]
        return Wanted(send, min(moments, default=None), self._holder, self._state)

    def _begin(self, at: datetime) -> None:
        self._state, self._cycle = "paging", _Cycle(self._policy, at)
        self._holder = self._acknowledged = self._held = self._resume = None

    def _hand(self, user: str, at: datetime) -> None:
        self._begin(at)
        self._cycle.pull(at)
        self._holder, self._held, self._resume = user, at + self._trust, at + self._trust

    def _fail(self, step: int, at: datetime) -> None:
        if self._state != "paging" or step >= len(self._policy.steps):
            return  # from a sending before a take, or a step that was removed from the policy
        self._cycle.fail(step, at)
        if step == LAST_RESORT:
            self._resume = min(at + self._trust, self._resume or datetime.max.replace(tzinfo=UTC))

    def _pass_on(self, by: str, at: datetime) -> None:
        if self._state == "paging" and by == self._holder:
            self._begin(at)
            self._cycle.pull(at)
        elif self._state == "paging":
            self._cycle.skip(at)
        elif self._acknowledged is not None and by == self._acknowledged[0]:
            self._begin(at)
            self._cycle.skip_first(at)

    def _advance(self, to: datetime) -> None:
        """Begin the cycles that are due by `to`."""
        while self._resume is not None and (to >= self._resume or self._far_back(to)):
            at, held, holder = min(to, self._resume), self._held, self._holder
            self._begin(at)
            self._cycle.pull(at)
            self._last = at if self._last is None else min(at, self._last)
            if held is not None and at < held:  # a snooze within a hand-over
                self._holder, self._held, self._resume = holder, held, held

    def _far_back(self, to: datetime) -> bool:
        """Whether the clock was set back by as much as a take or a snooze lasts, so that its end is unknown."""
        if self._acknowledged is None or self._resume is None:
            return False
        since = self._acknowledged[1]
        return to < since and to <= since - (self._resume - since)

    def _date_back(self, at: datetime) -> None:
        """Date everything back by as much as the clock was, if `at` shows that it was."""
        by = timedelta(0) if self._last is None else self._last - at
        self._last = at
        if by <= timedelta(0):
            return
        self._cycle.date_back(by)
        if self._acknowledged is not None:
            self._acknowledged = (self._acknowledged[0], self._acknowledged[1] - by)
        self._held = self._held - by if self._held is not None else None
        self._resume = self._resume - by if self._resume is not None else None


@dataclass(frozen=True, slots=True)
class Override:
    """`user` is on call from `since` to before `until`, instead of the usual person; `by` made the override. `number` is its
    name for people.
    """

    user: str
    since: datetime
    until: datetime
    by: str
    policy: str = ""
    number: int = 0


def turn(users: Sequence[str], start: datetime, shift: timedelta, timezone: str, now: datetime) -> str:
    """The one of `users` whose shift `now` falls into.

    Shifts are counted on the wall clock of `timezone` (a handover at 9:00 stays at 9:00 through daylight saving).
    `start` without a zone is local to it. Before the start, it is the first user.
    """
    return users[max(0, _shift_number(start, shift, ZoneInfo(timezone), now)) % len(users)]


def turn_until(start: datetime, shift: timedelta, timezone: str, now: datetime) -> datetime:
    """When the shift that `now` falls into ends, in UTC; before the start, the first shift's end."""
    zone = ZoneInfo(timezone)
    return _handover(start, shift, zone, max(0, _shift_number(start, shift, zone, now)) + 1)


def in_force(overrides: Sequence[Override], now: datetime) -> Override | None:
    """The override in force at `now`: the latest of `overrides`, which are in the order in which they were made."""
    return next((o for o in reversed(overrides) if o.since <= now < o.until), None)


def changes_at(overrides: Sequence[Override], now: datetime) -> datetime | None:
    """When the override in force changes or ends; None if none will."""
    holds = in_force(overrides, now)
    moments = sorted(moment for each in overrides for moment in (each.since, each.until) if moment > now)
    return next((moment for moment in moments if in_force(overrides, moment) is not holds), None)


def _shift_number(start: datetime, shift: timedelta, zone: ZoneInfo, now: datetime) -> int:
    """Wall clocks show an hour twice in autumn and skip one in spring: handovers are compared as moments."""
    number = (now.astimezone(zone).replace(tzinfo=None) - _local(start, zone)) // shift
    while _handover(start, shift, zone, number + 1) <= now:
        number += 1
    while number > 0 and _handover(start, shift, zone, number) > now:
        number -= 1
    return number


def _handover(start: datetime, shift: timedelta, zone: ZoneInfo, number: int) -> datetime:
    """When shift `number` begins: in an hour that comes twice, the first time."""
    return (_local(start, zone) + number * shift).replace(tzinfo=zone).astimezone(UTC)


def _local(start: datetime, zone: ZoneInfo) -> datetime:
    return start.astimezone(zone).replace(tzinfo=None) if start.tzinfo else start


def reason_words(record: Clarification, why: Why) -> str:
    """Returns why it was escalated, in one sentence or two."""
    return _REASONS[why].format(rounds=record.max_rounds)


def escalation_words(
    record: Clarification, why: Why, others: Sequence[Clarification] = (), reason: str | None = None
) -> str:
    """Why it was escalated, its topic, each side's position in its own words, and the options on the table.

    One line each, at most 1500 characters in all.

    Args:
        record: the clarification as it stands, the latest question in it.
        why: the reason.
        others: the others of the loop, or those that ask the same in the other direction.
        reason: more exact words than those of `why`.
    """
    head = [one_line(reason, _POSITION) if reason else reason_words(record, why)]
    if record.topic.strip():
        head.append(f"Topic: {quoted(one_line(record.topic, 150))}")
    sides, untold = _sides(record, [other for other in others if other.id != record.id])
    tail = [f"And {untold} more."] if untold else []
    tail += [*_options(record), *_otherwise(record)]
    around = sum(len(line) + 1 for line in (*head, *tail)) + sum(len(who) + len(": “”\n") for who, _ in sides)
    each = min(_POSITION, (WORDS_LIMIT - around) // len(sides))
    return "\n".join([*head, *(f"{who}: {quoted(one_line(said, each))}" for who, said in sides), *tail])


def _sides(record: Clarification, others: Sequence[Clarification]) -> tuple[list[tuple[str, str]], int]:
    """Each side with what it said last, and how many of `others` are left out to make room."""
    sides = [_question(record), *_answer(record)]
    room = len(sides) + _SHOWN
    for told, other in enumerate(others):
        lines = _of_other(other, record)
        if len(sides) + len(lines) > room:
            return sides, len(others) - told
        sides += lines
    return sides, 0


def _of_other(other: Clarification, record: Clarification) -> list[tuple[str, str]]:
    """What was said in another clarification, without a question that was quoted already."""
    named = f"{other.id}, "
    answer = _answer(other, named)
    is_over = bool(answer) or not other.is_open
    return answer if is_over and _asked(other) == _asked(record) else [_question(other, named), *answer]


def _asked(record: Clarification) -> tuple[str, str, str]:
    return record.from_, record.to, one_line(record.question)


def _question(record: Clarification, prefix: str = "") -> tuple[str, str]:
    who, whom = named(one_line(record.from_, _NAME)), named(one_line(record.to, _NAME))
    return f"{prefix}{who} asks {whom}", record.question


def _answer(record: Clarification, prefix: str = "") -> list[tuple[str, str]]:
    last = next((entry for entry in reversed(record.thread) if entry.type == "answer"), None)
    if last is None:
        return []
    return [(f"{prefix}{named(one_line(last.from_, _ANSWERER))} answered", last.body)]


def _options(record: Clarification) -> list[str]:
    if wanted := record.current.confirmation:
        way_back = ", irreversible" if wanted.is_irreversible else ""
        risk = one_line(wanted.risk_level or "not said", 60)
        risk = risk if risk in ("not said", *RISKS) else f"unknown, {quoted(risk)}"
        return [f"Options: {' · '.join(wanted.allowed)} (risk: {risk}{way_back})"]
    labels = [quoted(one_line(option.label, 60)) for option in record.asked.choices]
    return [f"Options: {one_line(' · '.join(labels), 200)}"] if labels else []


def _otherwise(record: Clarification) -> list[str]:
    default = answers.default_label(record.asked)
    return [f"Default if no one answers: {quoted(one_line(default, 100))}"] if default else []


@dataclass(frozen=True, slots=True)
class Window:
    """From `begins` on `weekday` (0: Monday) to before `ends`, in minutes since midnight; `ends` may be on the next day."""

    weekday: int
    begins: int
    ends: int


@dataclass(frozen=True, slots=True)
class Hours:
    """Windows of the week in the zone named `timezone`.

    An hour that comes twice in autumn is inside both times. A window that begins or ends in the hour that spring skips is
    extended: better a page too early than none.
    """

    windows: tuple[Window, ...]
    timezone: str

    @classmethod
    def read(cls, text: str, timezone: str = "UTC") -> Hours:
        """Windows are separated by commas. One without days has those of the one before, the first every day; one whose
        end is not after its beginning ends on the next day.

        Raises:
            ValueError: the text cannot be read.
        """
        windows: list[Window] = []
        days, more = tuple(range(_WEEK)), tuple[int, ...]()
        for part in re.sub("[‐‑‒–—−]", "-", text).split(","):
            words = re.sub(r"(?:(?<!\s)\s+)?-\s*", "-", part.strip()).split()
            span = _SPAN.fullmatch(words[-1]) if words else None
            named = [day for word in (words[:-1] if span else words) for day in _days(word)]
            if named or not span:
                more += tuple(named)
            if span:
                days, more = more or days, ()
                begins, ends = _minutes(span[1], span[2]), _minutes(span[3], span[4])
                if begins in {ends, _DAY}:
                    raise ValueError(f'{_EXPECTED}; the whole day is "00:00-24:00"')
                windows += [Window(day, begins, ends if ends > begins else ends + _DAY) for day in days]
            elif not named:
                raise ValueError(_EXPECTED)
        if more or not windows:
            raise ValueError(_EXPECTED)
        return cls(tuple(dict.fromkeys(windows)), timezone)

    def include(self, moment: datetime) -> bool:
        """Whether `moment` is inside."""
        return self.next(moment) == moment

    def next(self, moment: datetime) -> datetime:
        """The first moment inside, from `moment` on."""
        zone = ZoneInfo(self.timezone)
        today = moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for ahead in range(-1, _WEEK + 1):  # from windows that began yesterday to the same day next week
            windows = self._on(today + timedelta(days=ahead), zone)
            if found := [max(moment, begins) for begins, ends in windows if moment < ends]:
                return min(found)
        raise AssertionError("hours that never occur")

    def _on(self, day: datetime, zone: ZoneInfo) -> list[tuple[datetime, datetime]]:
        """The beginning and end of each window that begins on a day."""
        return [
            (
                min(_moments(day + timedelta(minutes=each.begins), zone)),
                max(_moments(day + timedelta(minutes=each.ends), zone)),
            )
            for each in self.windows
            if each.weekday == day.weekday()
        ]


def _moments(local: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The moments at which a wall clock shows `local`; they differ only where clocks change."""
    aware = local.replace(tzinfo=zone)
    return aware.replace(fold=0).astimezone(UTC), aware.replace(fold=1).astimezone(UTC)


def _days(word: str) -> list[int]:
    """The days that "Mon", "Mon-Fri" or "Sat-Mon" names."""
    first, dash, last = word.casefold().partition("-")
    begins, ends = _day(first), _day(last) if dash else _day(first)
    return [day % _WEEK for day in range(begins, begins + (ends - begins) % _WEEK + 1)]


def _day(name: str) -> int:
    for number, day in enumerate(_DAYS):
        if len(name) >= 3 and day.startswith(name):
            return number
    raise ValueError(_EXPECTED)


def _minutes(hours: str, minutes: str) -> int:
    found = int(hours) * 60 + int(minutes)
    if int(minutes) >= 60 or found > _DAY:
        raise ValueError(_EXPECTED)
    return found
