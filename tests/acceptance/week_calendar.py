"""The calendars of a simulated week: who has which shift, as plain intervals, and the same as iCalendar text.

What changes in a calendar during the week, and when its address answers something else, is decided by the seed. Which
ways products have to write a shift is tested in tests/unit/bot/oncall/test_calendars.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Literal, get_args
from zoneinfo import ZoneInfo

BERLIN = ZoneInfo("Europe/Berlin")
NOBODY = ""  # somebody whom nobody in Slack is
ADDRESSES = {
    "U0DA": ("ada@week.example", "Ada Desk"),
    "U0DB": ("ben@week.example", "Ben Desk"),
    "U0DC": ("cleo@week.example", "Cléo Desk"),
    "U0SA": ("sam@week.example", "Sam Shop"),
    "U0SB": ("sue@week.example", "Sue Shop"),
    "U0SC": ("stan@week.example", "Stan Shop"),
    NOBODY: ("zoe@elsewhere.example", "Zoe Unknown"),
}
Trouble = Literal["500", "silent", "refused", "a web page", "half of it"]
_HOUR = 3600
_CHANGES = ("swap", "swap", "move", "drop", "unknown", "extra", "extra", "extra", "level", "empty")


@dataclass(frozen=True)
class Turn:
    """`user` is on call from `begins` to before `ends`, in seconds since 1970; NOBODY: somebody who is not in Slack."""

    user: str
    begins: float
    ends: float
    level: int = 0


@dataclass(frozen=True)
class Version:
    """What a calendar says from `at` (true time) on; `turns` in its order."""

    at: float
    turns: tuple[Turn, ...]

    @property
    def text(self) -> bytes:
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//week//EN"]
        for number, turn in enumerate(self.turns):
            address, name = ADDRESSES[turn.user]
            level = f"[L{turn.level}] " if turn.level else ""
            lines += ["BEGIN:VEVENT", f"UID:e{number}@week.example", "DTSTAMP:20260101T000000Z"]
            lines += [f"DTSTART:{_utc(turn.begins)}", f"DTEND:{_utc(turn.ends)}"]
            if number % 2:
                lines += [f"SUMMARY:{level}On Call - {name} - Week", "END:VEVENT"]
            else:
                lines += [f"ATTENDEE:mailto:{address}", f"SUMMARY:{level}On call", "END:VEVENT"]
        return "\r\n".join([*lines, "END:VCALENDAR", ""]).encode()


@dataclass(frozen=True)
class Outage:
    """The address of a calendar answers something else, or nothing."""

    policy: str
    trouble: Trouble
    begins: float
    ends: float


def history(
    seed: int, crew: tuple[str, ...], beginning: datetime, moments: tuple[float, ...]
) -> tuple[Version, ...]:
    """What a calendar says from when on. It changes mostly around `moments`, in seconds from the beginning."""
    rng = random.Random(f"{seed} {crew}")  # noqa: S311 - a plan, not a secret
    turns = list(_days_and_nights(crew, beginning))
    found = [Version(0.0, tuple(turns))]
    changes = [*_CHANGES, *_CHANGES]
    rng.shuffle(changes)
    times = sorted(max(60.0, rng.choice(moments) + rng.uniform(-1800, 3600)) for _ in changes)
    for at, what in zip(times, changes, strict=True):
        if what == "empty":
            found += [Version(at, ()), Version(at + rng.uniform(600, 2 * _HOUR), tuple(turns))]
            continue
        _change(rng, turns, what, crew, (beginning.timestamp() + at) // 60 * 60 + _HOUR)
        found.append(Version(at, tuple(turns)))
    return tuple(sorted(found, key=lambda each: each.at))


def _days_and_nights(crew: Sequence[str], beginning: datetime) -> Iterator[Turn]:
    """By turns from 8 to 20 and from 20 to 8 on Berlin's clocks, which are changed during the week."""
    for day in range(-2, 11):
        midnight = datetime.combine(beginning.date() + timedelta(days=day), time())
        edges = [
            (midnight + timedelta(hours=hour)).replace(tzinfo=BERLIN).timestamp() for hour in (8, 20, 32)
        ]
        yield Turn(crew[day % len(crew)], edges[0], edges[1])
        yield Turn(crew[(day + 1) % len(crew)], edges[1], edges[2])


def _change(rng: random.Random, turns: list[Turn], what: str, crew: Sequence[str], soon: float) -> None:
    """Of what holds `soon`: the rest is seen by nobody."""
    there = [number for number, turn in enumerate(turns) if turn.begins <= soon < turn.ends]
    if what in {"extra", "level"} or not there:
        begins = soon - rng.randint(0, 4) * _HOUR
        level = rng.choice((1, 2, 10)) if what == "level" else 0
        turns.append(Turn(rng.choice((*crew, NOBODY)), begins, begins + rng.randint(3, 14) * _HOUR, level))
        return
    number = rng.choice(there)
    was = turns[number]
    match what:
        case "swap":
            turns[number] = replace(was, user=rng.choice([each for each in crew if each != was.user]))
        case "unknown":
            turns[number] = replace(was, user=NOBODY)
        case "move":
            begins = min(was.begins + rng.choice((-3, 2, 5)) * _HOUR, was.ends - _HOUR)
            turns[number] = replace(was, begins=begins)
        case "drop":
            del turns[number]


def outages(rng: random.Random, policies: tuple[str, ...]) -> tuple[Outage, ...]:
    """Of each calendar one that lasts for longer than a day, and some short ones."""
    found = []
    for policy in policies:
        hours = [rng.uniform(26, 40), *(rng.choice((0.1, 1, 4)) * rng.random() for _ in range(5))]
        for length in hours:
            begins = rng.uniform(2, 150 - length) * _HOUR
            found.append(Outage(policy, rng.choice(get_args(Trouble)), begins, begins + length * _HOUR))
    return tuple(found)


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y%m%dT%H%M%SZ}"
