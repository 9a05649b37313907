"""The words of an escalation: everything to decide, short, and nobody's words in the place of ours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clarification import Answer, Choice, Clarification, Why
from core.escalation import (
    LAST_RESORT,
    WORDS_LIMIT,
    Began,
    EscalationStep,
    Failed,
    Handed,
    Happening,
    Hours,
    IncidentClosed,
    Left,
    NotMine,
    Override,
    Paged,
    Policy,
    Snoozed,
    Taken,
    Wanted,
    changes_at,
    escalation_words,
    is_news,
    quiet_until,
    turn,
    turn_until,
    wanted,
)
from core.transitions import answered
from tests.kit.builders import ADE, LATER, NOW, record

T = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
LAST = LAST_RESORT


def at(minutes: float) -> datetime:
    return T + timedelta(minutes=minutes)


def step(after: float, every: float | None = None, hours: str | None = None) -> EscalationStep:
    return EscalationStep(
        timedelta(minutes=after),
        ("dm",),
        timedelta(minutes=every) if every is not None else None,
        Hours.read(hours) if hours is not None else None,
    )


def policy(*steps: EscalationStep, take_timeout: float = 15) -> Policy:
    return Policy(steps, timedelta(minutes=take_timeout))


USUAL = policy(step(0, every=5), step(15))  # as in the design
ONCE = policy(step(0), step(10))
LATE = policy(step(2), step(10, every=10))
NOBODY = policy()


def course(text: str) -> list[Happening]:
    """`0 began, 0.5 sent 0, 1 snoozed U1 11`: what happened, each with its minute first."""
    return [_happening(*each.split()) for each in text.split(", ") if each]


def _happening(minute: str, what: str, who: str = "", until: str = "0") -> Happening:
    then, step = at(float(minute)), LAST if who == "last" else int(who) if who.isdecimal() else 0
    made: dict[str, Happening] = {
        "began": Began(then),
        "sent": Paged(then, step),
        "failed": Failed(then, step),
        "taken": Taken(then, who),
        "handed": Handed(then, who, "U1"),
        "snoozed": Snoozed(then, at(float(until)), who),
        "notmine": NotMine(then, who),
        "left": Left(then, who),
        "closed": IncidentClosed(then),
    }
    return made[what]


def minutes(found: Wanted) -> float | None:
    return None if found.next_at is None else (found.next_at - T) / timedelta(minutes=1)


@pytest.mark.parametrize(
    ("of", "history", "now", "send", "next_at"),
    [
        pytest.param(USUAL, "", 0, (), None, id="nothing began"),
        pytest.param(USUAL, "0 began", 0, (0,), 15, id="at once"),
        pytest.param(USUAL, "0 began, 0 sent 0", 0, (), 5, id="told"),
        pytest.param(USUAL, "0 began, 0 sent 0", 5, (0,), 15, id="again"),
        pytest.param(USUAL, "0 began, 12 sent 0", 12, (), 15, id="missed repeats are not caught up"),
        pytest.param(USUAL, "0 began, 10 sent 0", 15, (0, 1), None, id="two at once"),
        pytest.param(USUAL, "0 began", 60, (0, 1), None, id="after a long downtime each once"),
        pytest.param(LATE, "0 began", 0, (), 2, id="waits for its first step"),
        pytest.param(ONCE, "0 began, 0 sent 0, 10 sent 1", 10, (), 25, id="last resort later"),
        pytest.param(ONCE, "0 began, 0 sent 0, 10 sent 1, 25 sent last", 25, (), 40, id="last resort again"),
        pytest.param(NOBODY, "0 began", 0, (LAST,), None, id="no policy: last resort at once"),
        pytest.param(NOBODY, "0 began, 0 sent last", 999, (), None, id="no policy: once"),
        pytest.param(USUAL, "0 began, 0 sent 0, 0.3 failed 0", 0.3, (1,), 5, id="failed: next step at once"),
        pytest.param(
            USUAL, "0 began, 0 sent 0, 0.3 failed 0, 0.3 sent 1", 0.4, (), 5, id="failed: and goes on"
        ),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 0.2 failed 0, 0.2 sent 1, 0.3 failed 0",
            0.3,
            (),
            5,
            id="failed twice of one sending counts once",
        ),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 0.2 failed 0, 0.2 sent 1, 5 sent 0, 5.2 failed 0",
            5.2,
            (LAST,),
            10,
            id="a repeat failed with nothing after it",
        ),
        pytest.param(USUAL, "0 began, 0 failed 0", 0, (1,), 5, id="nobody there, alone"),
        pytest.param(
            ONCE,
            "0 began, 0 sent 0, 0.1 failed 0, 0.1 sent 1, 0.2 failed 1, 0.2 sent last, 0.3 failed last",
            0.3,
            (),
            15.2,
            id="all failed: no hammering",
        ),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 0.1 failed 0, 0.1 sent 1, 0.2 failed 1, 0.2 sent last, 0.3 failed last, 5 sent 0, 10 sent 0, 15 sent 0",
            15.3,
            (0,),
            30.3,
            id="all failed: from the beginning after the time of trust",
        ),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 taken U1", 16, (0,), 31, id="taken, not answered"),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 0.1 taken U1, 0.3 failed 0",
            0.3,
            (),
            15.1,
            id="taken, though another was not reached",
        ),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 snoozed U1 11", 10.9, (), 11, id="snoozed"),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 snoozed U1 11", 11, (0,), 26, id="the snooze is over"),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 notmine U1", 1, (1,), 5, id="not mine: next step"),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 1 notmine U1, 1 notmine U2",
            1,
            (1,),
            5,
            id="not mine said by two at once",
        ),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 1 notmine U1, 1 sent 1, 2 notmine U2",
            2,
            (LAST,),
            5,
            id="not mine after the last step",
        ),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 taken U1, 3 notmine U1", 3, (1,), 8, id="given back"),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 taken U1, 3 left U1", 3, (1,), 8, id="holder is gone"),
        pytest.param(
            USUAL, "0 began, 0 sent 0, 1 taken U1, 3 left U2", 3, (), 16, id="somebody else is gone"
        ),
        pytest.param(
            USUAL,
            "0 began, 0 sent 0, 1 taken U1, 3 notmine U2",
            3,
            (),
            16,
            id="not mine, but taken by another",
        ),
        pytest.param(USUAL, "0 began, 0 sent 0, 1 handed U2", 1, (0,), 16, id="handed: at once"),
        pytest.param(LATE, "0 began, 1 handed U2", 1, (0,), 11, id="handed: without delay"),
        pytest.param(
            USUAL,
            "0 began, 1 handed U2, 1 sent 0, 6 sent 0, 11 sent 0",
            16,
            (0,),
            31,
            id="handed, not taken: the people on call again",
        ),
        pytest.param(
            USUAL,
            "0 began, 1 handed U2, 1 sent 0, 2 notmine U2",
            2,
            (0,),
            17,
            id="handed, refused: the people on call at once",
        ),
        pytest.param(
            USUAL,
            "0 began, 1 handed U2, 1 sent 0, 2 snoozed U2 12",
            12,
            (0,),
            16,
            id="handed, snoozed: theirs for the rest",
        ),
        pytest.param(USUAL, "0 began, 1 closed, 2 taken U1", 99, (), None, id="closed for ever"),
        pytest.param(LATE, "0 began, 1 taken U1", 16, (0,), 26, id="resumes without delay"),
    ],
)
def test_wanted_table(
    of: Policy, history: str, now: float, send: tuple[int, ...], next_at: float | None
) -> None:
    found = wanted(of, course(history), at(now))

    assert (found.send, minutes(found)) == (send, pytest.approx(next_at) if next_at is not None else None)
    assert wanted(of, course(history), at(now)) == found


NIGHT = "20:00-06:00"  # it is 9:00 when all of this begins
FROM_HALF_PAST = "Sat 09:30-10:00"
UNTIL_TEN_PAST = "Sat 09:00-09:10"
MIDDLE = policy(step(0), step(10, hours=NIGHT), step(30), step(60))
LATER_ON = policy(step(0), step(10, hours=FROM_HALF_PAST), step(40))
AT_THE_END = policy(step(0), step(10, hours=FROM_HALF_PAST))
REPEATS = policy(step(0, every=5, hours=UNTIL_TEN_PAST))
NONE_YET = policy(step(0, every=5, hours=FROM_HALF_PAST), step(10, hours="Sat 09:40-10:00"))


@pytest.mark.parametrize(
    ("of", "history", "now", "send", "next_at"),
    [
        pytest.param(MIDDLE, "0 began, 0 sent 0", 9, (), 10, id="not yet"),
        pytest.param(MIDDLE, "0 began, 0 sent 0", 10, (2,), 60, id="passed over: the next takes its moment"),
        pytest.param(MIDDLE, "0 began, 0 sent 0, 10 sent 2", 30, (), 60, id="and no other one"),
        pytest.param(
            MIDDLE, "0 began, 0 sent 0, 1 failed 0", 1, (2,), 60, id="failed: the next one that may go"
        ),
        pytest.param(
            LATER_ON, "0 began, 0 sent 0, 10 sent 2", 29, (LAST,), 30, id="nothing more until its hours"
        ),
        pytest.param(LATER_ON, "0 began, 0 sent 0, 10 sent 2", 30, (1,), None, id="its hours begin: it goes"),
        pytest.param(LATER_ON, "0 began, 0 sent 0, 10 sent 2, 20 taken U1", 30, (), 35, id="unless taken"),
        pytest.param(LATER_ON, "0 began, 0 sent 0", 31, (1,), 40, id="down meanwhile: by the hours of now"),
        pytest.param(LATER_ON, "0 began, 0 sent 0", 61, (2,), 24 * 60 * 7 + 30, id="down until they were over"),
        pytest.param(AT_THE_END, "0 began, 0 sent 0", 10, (LAST,), 30, id="no other one: the last resort"),
        pytest.param(AT_THE_END, "0 began, 0 sent 0, 10 sent last", 24, (), 25, id="at its pace"),
        pytest.param(
            AT_THE_END, "0 began, 0 sent 0, 10 sent last, 25 sent last", 30, (1,), None, id="until they begin"
        ),
        pytest.param(REPEATS, "0 began, 0 sent 0", 5, (0,), None, id="repeated in its hours"),
        pytest.param(REPEATS, "0 began, 5 sent 0", 10, (), 20, id="not repeated outside of them"),
        pytest.param(REPEATS, "0 began, 5 sent 0", 20, (LAST,), 24 * 60 * 7, id="the last resort goes on"),
        pytest.param(
            policy(step(0, every=5, hours=UNTIL_TEN_PAST), step(6, hours=NIGHT)),
            "0 began, 5 sent 0",
            6,
            (),
            10,
            id="the last resort once the last one that repeats may go no more",
        ),
        pytest.param(REPEATS, "-5 began", -5, (LAST,), 0, id="none may go yet: the last resort at once"),
        pytest.param(NONE_YET, "0 began", 0, (LAST,), 30, id="none of several: the last resort at once"),
        pytest.param(NONE_YET, "0 began, 0 sent last, 15 sent last", 30, (0,), 40, id="where no step could go"),
        pytest.param(
            NONE_YET, "0 began, 0 sent last, 1 failed last", 1, (), 15, id="nobody heard: not hammered"
        ),
        pytest.param(NONE_YET, "0 began, 0 failed last", 0, (), 15, id="nobody there: not hammered"),
        pytest.param(
            NONE_YET,
            "0 began, 0 sent last, 15 failed last",
            15,
            (),
            30,
            id="nobody there the second time: not hammered",
        ),
        pytest.param(AT_THE_END, "0 began, 0 sent 0, 1 handed U2", 1, (0,), 16, id="handed: the first that may"),
        pytest.param(NONE_YET, "0 began, 1 handed U2", 1, (LAST,), 16, id="handed: the last resort where none may"),
        pytest.param(NONE_YET, "0 began, 1 taken U1, 2 notmine U1", 2, (LAST,), 30, id="given back: no step"),
        pytest.param(
            policy(step(0, hours=NIGHT), step(10), step(20)),
            "0 began, 0 sent 1, 1 taken U1, 2 notmine U1",
            2,
            (2,),
            11 * 60,
            id="given back: past the one that may go",
        ),
    ],
)  # fmt: skip
def test_wanted_with_hours(
    of: Policy, history: str, now: float, send: tuple[int, ...], next_at: float | None
) -> None:
    found = wanted(of, course(history), at(now))

    assert (found.send, minutes(found)) == (send, next_at)
    assert wanted(of, course(history), at(now)) == found


@pytest.mark.parametrize(
    ("history", "now", "state", "holder"),
    [
        ("0 began", 0, "paging", None),
        ("0 began, 1 taken U1", 2, "taken", "U1"),
        ("0 began, 1 handed U2", 16, "paging", None),
        ("0 began, 1 handed U2, 2 taken U2", 16, "taken", "U2"),
        ("0 began, 1 handed U2, 2 notmine U2", 2, "paging", None),
        ("0 began, 1 handed U2, 2 left U2", 2, "paging", None),
        ("0 began, 1 handed U2, 2 snoozed U2 12", 5, "snoozed", "U2"),
        ("0 began, 1 handed U2, 2 snoozed U2 12", 12, "paging", "U2"),
        ("0 began, 1 snoozed U1 11, 2 notmine U1", 2, "paging", None),
        ("0 began, 1 taken U1, 2 closed", 3, "closed", None),
    ],
)
def test_wanted_says_who_has_it(history: str, now: float, state: str, holder: str | None) -> None:
    found = wanted(USUAL, course(history), at(now))

    assert (found.state, found.holder) == (state, holder)


@pytest.mark.parametrize(
    ("history", "now", "send"),
    [
        pytest.param([Began(at(0)), Paged(at(0), 0)], -0.5, (), id="a little: waited for"),
        pytest.param([Began(at(0)), Paged(at(0), 0)], -60, (0,), id="an hour: told again"),
        pytest.param(
            [Began(at(0)), Paged(at(0), 0), Paged(at(-60), 0)], -55, (0,), id="and on by the new time"
        ),
        pytest.param(
            [Began(at(0)), Paged(at(0), 0), Paged(at(-60), 0)], -45, (0, 1), id="by the new time, too"
        ),
        pytest.param([Began(at(0)), Taken(at(1), "U1")], -5, (), id="taken: trusted as long again"),
        pytest.param([Began(at(0)), Taken(at(1), "U1")], -14, (0,), id="taken: not for ever"),
        pytest.param(
            [Began(at(0)), Taken(at(1), "U1"), Paged(at(-60), 0)], -45, (0, 1), id="resumed for good"
        ),
        pytest.param([Began(at(0)), IncidentClosed(at(1))], -60, (), id="closed"),
    ],
)
def test_wanted_clock_set_back(history: list[Happening], now: float, send: tuple[int, ...]) -> None:
    assert wanted(USUAL, history, at(now)).send == send


@pytest.mark.parametrize(
    ("ends", "until"),
    [
        (None, 10),
        (10, 5),
        (1, 0.5),
        (0, 0),
    ],
)
def test_quiet_until_is_never_beyond_half_of_what_is_left(ends: float | None, until: float) -> None:
    assert quiet_until(at(0), None if ends is None else at(ends)) == at(until)


HOURS = st.sampled_from((None, None, NIGHT, FROM_HALF_PAST, UNTIL_TEN_PAST, "09:05-09:07, 09:55-11:00"))
STEPS = st.lists(
    st.tuples(st.integers(0, 20), st.none() | st.integers(3, 20), HOURS),
    min_size=0,
    max_size=3,
    unique_by=lambda s: s[0],
)
PEOPLE = st.sampled_from(("U1", "U2"))
DEEDS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(("take", "hand", "snooze", "not mine", "fail", "close", "look")),
        PEOPLE,
    ),
    max_size=12,
)


class Engine:
    """Sends what is wanted when it is wanted, as a real one does; remembers when, and what it waited for."""

    def __init__(self, of: Policy) -> None:
        self.policy = of
        self.history: list[Happening] = [Began(at(0))]
        self.now = at(0)
        self.sendings: list[tuple[datetime, int]] = []

    def run_to(self, end: datetime) -> None:
        while True:
            found = wanted(self.policy, self.history, self.now)
            assert wanted(self.policy, self.history, self.now) == found
            assert found.next_at is None or found.next_at > self.now
            for each in found.send:
                assert found.state == "paging"
                self.history.append(Paged(self.now, each))
                self.sendings.append((self.now, each))
            if found.send:
                assert not wanted(self.policy, self.history, self.now).send, "sent twice at once"
                continue
            if found.next_at is None or found.next_at > end:
                break
            self.now = found.next_at
        self.now = end

    def do(self, deed: str, who: str) -> None:
        now = self.now
        made: dict[str, Happening | None] = {
            "take": Taken(now, who),
            "hand": Handed(now, who, "U9"),
            "snooze": Snoozed(now, now + timedelta(minutes=10), who),
            "not mine": NotMine(now, who),
            "fail": Failed(now, self.sendings[-1][1]) if self.sendings else None,
            "close": IncidentClosed(now),
            "look": None,
        }
        if (happening := made[deed]) is not None:
            self.history.append(happening)


def longest_silence(of: Policy) -> timedelta:
    """By the policy itself: until its last step; then its shortest repeat, or the pace of the last resort. Those with
    hours may be missing.
    """
    always = [s.every for s in of.steps if s.every is not None and s.hours is None]
    limited = [s.every for s in of.steps if s.every is not None and s.hours is not None]
    after = [s.after for s in of.steps]
    return max(
        [*after, min(always, default=of.take_timeout), *([of.take_timeout, *limited] if limited else [])]
    )


@settings(deadline=None, max_examples=25)
@given(steps=STEPS, deeds=DEEDS)
def test_wanted_is_never_silent_longer_than_the_policy_says_unless_acknowledged(
    steps: list[tuple[int, int | None, str | None]], deeds: list[tuple[int, str, str]]
) -> None:
    of = policy(*(step(*each) for each in sorted(steps, key=lambda s: s[0])))
    engine = Engine(of)
    for gap, deed, who in deeds:
        engine.run_to(engine.now + timedelta(minutes=gap))
        engine.do(deed, who)
    engine.run_to(engine.now + timedelta(minutes=120))

    assert_quiet_after_acknowledging(engine.history, of)
    if of.steps:
        assert_never_silent(engine.history, engine.now, of)


def assert_quiet_after_acknowledging(history: Sequence[Happening], of: Policy) -> None:
    for index, happening in enumerate(history):
        if not isinstance(happening, Taken | IncidentClosed | Snoozed):
            continue
        later = history[index + 1 :]
        quiet = datetime.max.replace(tzinfo=UTC)
        if isinstance(happening, Taken):
            quiet = happening.at + of.take_timeout
        elif isinstance(happening, Snoozed):
            quiet = happening.until
        for each in later:
            if not isinstance(happening, IncidentClosed) and not isinstance(
                each, Paged | Failed | IncidentClosed
            ):
                break  # somebody decided otherwise
            assert not (isinstance(each, Paged) and each.at < quiet), (happening, each)


def assert_never_silent(history: Sequence[Happening], end: datetime, of: Policy) -> None:
    """From each sending, or each beginning, to the next."""
    spoke: datetime | None = at(0)
    for happening in (*history, None):
        moment = end if happening is None else happening.at
        if spoke is not None:
            assert moment - spoke <= longest_silence(of), (spoke, happening)
        match happening:
            case Paged() | Handed():
                spoke = moment
            case Taken():
                spoke = moment + of.take_timeout
            case Snoozed():
                spoke = max(moment, happening.until)
            case IncidentClosed():
                return
            case _:
                pass


USERS = ("U1", "U2", "U3")
DAY = timedelta(days=1)
BERLIN = "Europe/Berlin"
NINE = datetime(2026, 10, 19, 9, 0)  # noqa: DTZ001 - local time of the rotation
HALF_PAST_TWO = datetime(2026, 10, 24, 2, 30)  # noqa: DTZ001 - in the hour that comes twice on the 25th
IN_SPRING = datetime(2026, 3, 28, 2, 30)  # noqa: DTZ001 - in the hour that is left out on the 29th


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "now", "user", "until"),
    [
        pytest.param(NINE, utc(10, 18, 0), "U1", utc(10, 20, 7), id="before the start"),
        pytest.param(NINE, utc(10, 19, 7), "U1", utc(10, 20, 7), id="at the start"),
        pytest.param(NINE, utc(10, 20, 6, 59), "U1", utc(10, 20, 7), id="until the last minute"),
        pytest.param(NINE, utc(10, 20, 7), "U2", utc(10, 21, 7), id="handed over"),
        pytest.param(NINE, utc(10, 22, 7), "U1", utc(10, 23, 7), id="round"),
        pytest.param(NINE, utc(10, 24, 7), "U3", utc(10, 25, 8), id="a day of 25 hours"),
        pytest.param(NINE, utc(10, 25, 7, 30), "U3", utc(10, 25, 8), id="9:00 stays 9:00"),
        pytest.param(NINE, utc(10, 25, 8), "U1", utc(10, 26, 8), id="in winter time"),
        pytest.param(HALF_PAST_TWO, utc(10, 25, 0, 29), "U1", utc(10, 25, 0, 30), id="before the first 2:30"),
        pytest.param(HALF_PAST_TWO, utc(10, 25, 0, 30), "U2", utc(10, 26, 1, 30), id="the first 2:30"),
        pytest.param(
            HALF_PAST_TWO, utc(10, 25, 1, 10), "U2", utc(10, 26, 1, 30), id="2:10 for the second time"
        ),
        pytest.param(
            IN_SPRING, utc(3, 29, 1, 29), "U1", utc(3, 29, 1, 30), id="before a time that is left out"
        ),
        pytest.param(IN_SPRING, utc(3, 29, 1, 30), "U2", utc(3, 30, 0, 30), id="after it"),
        pytest.param(utc(10, 19, 7), utc(10, 25, 8), "U1", utc(10, 26, 8), id="start with a zone"),
    ],
)
def test_turn_and_its_end_table(start: datetime, now: datetime, user: str, until: datetime) -> None:
    assert turn(USERS, start, DAY, BERLIN, now) == user
    assert turn_until(start, DAY, BERLIN, now) == until


@given(
    now=st.integers(0, 60 * 24 * 400).map(lambda minutes: utc(1, 1, 0) + timedelta(minutes=minutes)),
    shift=st.sampled_from((timedelta(hours=1), timedelta(hours=8), timedelta(hours=12), DAY, 7 * DAY)),
    hour=st.integers(0, 23),
)
def test_turn_lasts_until_its_end_and_the_next_one_follows(
    now: datetime, shift: timedelta, hour: int
) -> None:
    start = datetime(2026, 1, 1, hour, 30)  # noqa: DTZ001 - local time of the rotation
    end = turn_until(start, shift, BERLIN, now)
    mine = turn(USERS, start, shift, BERLIN, now)

    assert end > now
    assert turn(USERS, start, shift, BERLIN, end - timedelta(minutes=1)) == mine
    assert turn_until(start, shift, BERLIN, end - timedelta(minutes=1)) == end
    if now >= start.replace(tzinfo=UTC):
        assert turn(USERS, start, shift, BERLIN, end) == USERS[(USERS.index(mine) + 1) % 3]


@pytest.mark.parametrize(
    ("hour", "changes"),
    [(8, 9), (9, 10), (10, 11), (11, 17), (17, 20), (20, 22), (22, None)],
)
def test_override_holds_until_another_one_does(hour: int, changes: int | None) -> None:
    made = [
        Override("U1", utc(10, 1, 9), utc(10, 1, 17), "U1"),
        Override("U2", utc(10, 1, 10), utc(10, 1, 11), "U9"),
        Override("U3", utc(10, 1, 20), utc(10, 1, 22), "U9"),
    ]

    assert changes_at(made, utc(10, 1, hour)) == (utc(10, 1, changes) if changes else None)


WHYS: tuple[Why, ...] = get_args(Why)


def asking(issue: int, from_: str, to: str, question: str) -> Clarification:
    return record(issue=issue, agent_id=from_, to=to, question=question)


def test_words_of_a_plain_question() -> None:
    found = record(
        agent_id="engineer",
        to="architect",
        topic="Which database",
        question="Postgres or SQLite?",
        choices=(Choice("pg", "Postgres"), Choice("lite", "SQLite")),
        default_response="pg",
    )
    assert escalation_words(found, "stale") == (
        "No answer, even after a reminder.\n"
        "Topic: “Which database”\n"
        "engineer asks architect: “Postgres or SQLite?”\n"
        "Options: “Postgres” · “SQLite”\n"
        "Default if no one answers: “Postgres”"
    )


def test_words_of_a_large_circle_say_how_many_more() -> None:
    others = [asking(n, f"agent-{n}", f"agent-{n + 1}", "Why? " * 500) for n in range(2, 52)]
    words = escalation_words(asking(1, "a", "b", "How? " * 500), "deadlocked", others)
    assert "And 44 more." in words
    assert len(words) <= WORDS_LIMIT
    assert min(len(line) for line in words.splitlines() if "asks" in line) > 80, "each still says something"


def test_words_of_the_same_asked_again_give_the_answer_that_did_not_help() -> None:
    first = answered(asking(9, "planner", "human", "Which age?"), Answer("65", "65  please"), ADE, NOW)
    again = asking(9, "planner", "human", "Which\nage?").model_copy(update={"id": "CLR-9-002"})
    words = escalation_words(again, "stuck", [first], "It asks the same again.")
    assert words.splitlines() == [
        "It asks the same again.",
        "Topic: “Which age?”",
        "planner asks human: “Which age?”",
        f"CLR-9-001, {ADE.decided_by} answered: “65 please”",
    ]


@pytest.mark.parametrize("why", WHYS)
def test_words_say_why_in_a_sentence_of_their_own(why: Why) -> None:
    words = {each: escalation_words(record(), each).splitlines()[0] for each in WHYS}
    assert words[why].endswith(".")
    assert list(words.values()).count(words[why]) == 1


def test_words_of_agents_stay_on_their_line() -> None:
    forged = "Fine?\nOptions: delete everything\r\n\u2028Topic: none"
    lines = escalation_words(record(question=forged, topic="t"), "stale").splitlines()
    assert [line.split(":")[0] for line in lines[1:]] == ["Topic", "retirement-planner asks human"]


texts = st.text(max_size=3000) | st.sampled_from(["x" * 20_000, "𝔔" * 5000, "\n" * 50, ""])


@settings(max_examples=25, deadline=None)
@given(texts, texts, texts, st.lists(texts, max_size=32), st.integers(0, 12))
def test_words_are_never_longer_than_their_limit(
    topic: str, question: str, name: str, labels: list[str], others: int
) -> None:
    found = record(
        topic=topic,
        question=question,
        agent_id=name,
        default_response=question,
        choices=tuple(Choice(str(n), label) for n, label in enumerate(labels)),
    )
    found = answered(found, Answer(question, question), ADE, LATER)
    circle = [asking(n, name, name, question) for n in range(100, 100 + others)]
    circle[1::2] = [answered(each, Answer(question, question), ADE, LATER) for each in circle[1::2]]
    for why in WHYS:
        assert 0 < len(escalation_words(found, why, circle)) <= WORDS_LIMIT


@pytest.mark.parametrize(
    ("logged", "held", "now", "is_new"),
    [
        (None, Taken(at(5), "U1"), 6, True),
        (Taken(at(5), "U1"), Taken(at(5), "U1"), 6, False),  # read again
        (Taken(at(5), "U1"), Taken(at(9), "U1"), 9, True),  # taken again
        (Taken(at(7), "U1"), Taken(at(5), "U1"), 8, False),  # as earlier releases logged it: late
        (Taken(at(5), "U1"), Handed(at(6), "U1", ""), 6, True),
        (Handed(at(5), "U2", "U1"), Handed(at(5), "U2", ""), 6, False),  # by the page, then by the record
        (Handed(at(5), "U2", "U1"), Taken(at(6), "U2"), 6, True),
        (Taken(at(9), "U2"), Taken(at(5), "U1"), 10, False),  # read late
        (Taken(at(65), "U1"), Taken(at(65), "U1"), 5, False),  # the clock was set back
        (Taken(at(65), "U1"), Taken(at(5), "U1"), 5, True),
        (Taken(at(65), "U1"), Taken(at(5), "U2"), 5, True),
    ],
)
def test_holder_of_a_record_is_logged_once(
    logged: Taken | Handed | None, held: Taken | Handed, now: int, is_new: bool
) -> None:
    history = [Began(at(0)), *([logged] if logged else []), NotMine(at(6), "U3")]
    assert is_news(held, history, at(now)) is is_new
