"""On-call sources: where people keep whose turn it is, such as a calendar or PagerDuty.

A source reads its timetable, and no more. The product finds its people in Slack, uses its last good timetable for a day while it
is away, and tells people of its troubles (`bot.oncall.feeds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from bot.http import HttpStream
    from bot.settings.model import Source

_DAY = timedelta(days=1)
BEFORE, AHEAD = _DAY, 31 * _DAY
"""How far a timetable reaches into the past and the future."""
_SOON, _SAME_SHIFT, _MOVED = 2 * _DAY, 3 * _DAY, timedelta(minutes=5)
_LOOKED_AT = 200
_MOST_BYTES = 20 * 1024 * 1024


class SourceError(Exception):
    """The source cannot be read, or does not say who is on call now. The message contains no secrets."""


@dataclass(frozen=True, slots=True)
class Shift:
    """One person is on call from `begins` to before `ends`. Of overlapping shifts, those of the highest `level` count.

    email: empty if the source gives none. names: the person's possible names, the likeliest first.
    user: the Slack user; None if none was found, for the reason `why`. Sources leave both out.
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

    def is_at(self, moment: datetime) -> bool:
        return self.begins <= moment < self.ends

    def as_json(self) -> list[Any]:
        return [
            *(self.begins.timestamp(), self.ends.timestamp(), self.level),
            *(self.email, self.names, self.user, self.why),
        ]

    @classmethod
    def from_json(cls, kept: Sequence[Any]) -> Shift:
        begins, ends, level, email, names, user, why = kept
        first, last = (datetime.fromtimestamp(each, UTC) for each in (begins, ends))
        return cls(first, last, level, email, tuple(names), user, why)


@dataclass(frozen=True, slots=True)
class Timetable:
    """The shifts of a source, in its own order, from a day before it was read to a month after. `faults`: what of the source
    cannot be read and is left out, in words.
    """

    shifts: tuple[Shift, ...] = ()
    faults: tuple[str, ...] = ()

    def now(self, at: datetime) -> tuple[str, ...]:
        """The Slack users on call at a moment: those of the highest level."""
        there = [(each.level, each.user) for each in self.shifts if each.is_at(at) and each.user is not None]
        highest = max((level for level, _ in there), default=0)
        return tuple(dict.fromkeys(user for level, user in there if level == highest))

    def next(self, at: datetime) -> datetime | None:
        """When someone else, or no one, is on call; None if no change is known."""
        users, left = self.now(at), Timetable(tuple(each for each in self.shifts if each.ends > at))
        moments = sorted({then for each in left.shifts for then in (each.begins, each.ends) if then > at})
        return next((then for then in moments[:_LOOKED_AT] if left.now(then) != users), None)


class OnCallSource(Protocol):
    """Where one policy's people on call are kept.

    title: what to call it within a sentence, such as "the calendar".
    origin: identifies what it reads; a timetable of another origin does not count. A digest, as an address may be secret.
    variable: the environment variable with its address or token.
    advice: what to check if it lists nobody, or no names.
    """

    title: str
    origin: str
    variable: str
    advice: str

    async def read(self, at: datetime, /) -> Timetable:
        """Reads the shifts from `at - BEFORE` to `at + AHEAD`. Called every few minutes, never by two at a time.

        Raises:
            SourceError: it cannot be read, or does not say who is on call at `at`.
            aiohttp.ClientError, OSError: as `bot.http.HttpClient`.
        """
        ...


class BrokenSource:
    """In place of a source whose integration cannot be used."""

    advice = "update the integration"

    def __init__(self, source: Source, why: str) -> None:
        self.title, self.variable, self.origin, self._why = f"[{source.name}]", source.key, "", why

    async def read(self, _: datetime) -> Timetable:
        raise SourceError(f"its integration cannot be used ({self._why}); see the log")


async def whole(response: HttpStream, fix: str) -> bytes:
    """Reads the body of a source's successful response. `fix`: what may be wrong if access is refused.

    Raises:
        SourceError: it is another response, or too large.
    """
    status = response.status
    if status != HTTPStatus.OK:
        hint = f": {fix}" if status in {401, 403, 404, 410} else ""
        raise SourceError(f"it returned HTTP {status}{hint}")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise SourceError("it sends a compressed response although none was requested")
    body = await response.body(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise SourceError(f"it is larger than {_MOST_BYTES // 1024**2} MB")
    return body


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


def _spans(shifts: Iterable[Shift]) -> Mapping[str, list[tuple[datetime, datetime]]]:
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
