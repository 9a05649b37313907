"""What time makes of a question, against the design's own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clarification import (
    AlreadyAnswered,
    Answer,
    Clarification,
    Closed,
    Entry,
    Holder,
    Status,
    abandoned,
    answered,
    escalated,
    handed,
    nudged,
    opened,
    taken,
)
from core.errors import IllegalTransition
from core.index import Summary, summarize
from core.matching import followed_up
from core.monitor import Call, due_call, next_call
from core.records import dump, parse
from core.router import done
from tests.unit.core.records import ADE, NOW, SLA, ask, record

MINUTE = timedelta(minutes=1)
MS = timedelta(milliseconds=1)


def minutes(call: Call | None) -> tuple[str, float] | None:
    """What, and how many minutes after the question."""
    return None if call is None else (call.kind, (call.at - NOW) / MINUTE)


def asked_with(timeout: float | None) -> Clarification:
    """A question with that many minutes to live."""
    return record(expires_at=None if timeout is None else NOW + timeout * MINUTE)


# The SLA is 30 minutes; all times are minutes after the question.
@pytest.mark.parametrize(
    ("timeout", "first", "second"),
    [
        (None, ("nudge", 30), ("escalate", 60)),
        (1000, ("nudge", 30), ("escalate", 60)),
        (80, ("nudge", 30), ("escalate", 60)),
        (60, ("nudge", 30), ("escalate", 45)),
        (70, ("nudge", 30), ("escalate", 52.5)),
        (40, ("nudge", 20), ("escalate", 30)),
        (1, ("nudge", 0.5), ("escalate", 0.75)),
    ],
)
def test_nudge_then_escalation_on_time(
    timeout: float | None, first: tuple[str, float], second: tuple[str, float]
) -> None:
    fresh = asked_with(timeout)
    call = next_call(fresh, SLA)
    assert minutes(call) == first
    assert call is not None
    again = nudged(fresh, call.at, SLA)
    assert minutes(next_call(again, SLA)) == second
    assert again.stale_after == NOW + second[1] * MINUTE
    assert (again.status, again.nudges, again.asked.nudged_at) == ("pending", 1, call.at)
    passed_on = escalated(again, "stale", "words", NOW + second[1] * MINUTE)
    assert minutes(next_call(passed_on, SLA)) == (("expire", timeout) if timeout is not None else None)


@pytest.mark.parametrize(
    ("timeout", "nudged_after", "stale_after"),
    [
        (None, 300, 330),  # the bot was down for hours
        (1000, 300, 330),
        (1000, 740, 750),  # three quarters
        (1000, 750, 750),
        (1000, 900, 900),  # beyond: never before now
    ],
)
def test_late_nudge_renews_from_now(timeout: float | None, nudged_after: float, stale_after: float) -> None:
    at = NOW + nudged_after * MINUTE
    late = nudged(asked_with(timeout), at, SLA)
    assert late.stale_after == NOW + stale_after * MINUTE
    call = due_call(late, SLA, at)
    assert (call is not None) == (stale_after == nudged_after), (
        "escalation follows at once where time is short"
    )


@pytest.mark.parametrize(
    ("status", "call"),
    [
        ("pending", "nudge"),
        ("stale", "nudge"),
        ("escalated", "expire"),
        ("answered", None),
        ("resolved", None),
        ("abandoned", None),
    ],
)
def test_only_open_ones_call(status: Status, call: str | None) -> None:
    found = next_call(record().model_copy(update={"status": status}), SLA)
    assert (found and found.kind) == call


@pytest.mark.parametrize(("status", "nudges"), list(product(["pending", "stale"], [0, 1])))
@pytest.mark.parametrize("stale_after", [None, 10, -10, 500])
def test_foreign_record_is_chased_like_ours(status: Status, nudges: int, stale_after: int | None) -> None:
    """Another implementation marks a record `stale`, leaves `staleAfter` out or renews it."""
    found = record().model_copy(
        update={
            "status": status,
            "stale_after": None if stale_after is None else NOW + stale_after * MINUTE,
            "aaep": None,
        }
    )
    if nudges:
        found = nudged(found, NOW, SLA).model_copy(
            update={"status": status, "stale_after": found.stale_after}
        )
        assert found.asked.producer is None
    default = 60 if nudges else 30
    due = default if stale_after is None else stale_after
    assert minutes(next_call(found, SLA)) == ("escalate" if nudges else "nudge", due)
    assert parse(dump(found)) == found


def test_nudges_of_the_question_before_do_not_count() -> None:
    """Another implementation asks again in the same record: our fields stay, the question is new."""
    first = nudged(record(expires_at=None), NOW + 30 * MINUTE, SLA)
    later = NOW + 40 * MINUTE
    entry = Entry(round=2, from_="engineer", type="question", body="And now?", timestamp=later)
    again = first.model_copy(update={"round": 2, "thread": (*first.thread, entry), "stale_after": None})
    assert (again.asked.nudges, again.nudges) == (1, 0)
    assert next_call(again, SLA) == Call("nudge", later + SLA)
    assert nudged(again, later + SLA, SLA).nudges == 1
    behind = nudged(again, NOW, SLA)
    assert behind.nudges == 1, "also if our clock is behind the one that asked"


def test_follow_up_is_chased_anew() -> None:
    first = taken(nudged(record(), NOW + 30 * MINUTE, SLA), Holder(user="U1", at=NOW))
    later = NOW + 50 * MINUTE
    second = followed_up(
        answered(first, Answer("x", "x"), ADE, later), ask(reply_token="rpl_2", expires_at=None), later, SLA
    )
    assert (second.nudges, second.asked.taken_by) == (0, None)
    assert next_call(second, SLA) == next_call(summarize(second), SLA) == Call("nudge", later + SLA)


def test_expired_before_it_was_seen_is_not_nudged() -> None:
    gone = asked_with(60)
    assert due_call(gone, SLA, NOW + 59 * MINUTE) == Call("nudge", NOW + 30 * MINUTE)
    assert due_call(gone, SLA, NOW + 60 * MINUTE) == Call("expire", NOW + 60 * MINUTE)
    assert minutes(next_call(asked_with(-10), SLA)) == ("expire", -10)
    assert minutes(next_call(asked_with(0), SLA)) == ("expire", 0)


def test_the_end_of_time_is_no_error() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    entry = record().thread[0].model_copy(update={"timestamp": end})
    never = record().model_copy(update={"thread": (entry,), "stale_after": None, "aaep": None})
    assert next_call(never, SLA) == Call("nudge", end)


@pytest.mark.parametrize("status", ["answered", "resolved", "abandoned", "escalated"])
def test_nudge_is_of_what_waits_for_its_answerers(status: Status) -> None:
    with pytest.raises((AlreadyAnswered, Closed, IllegalTransition)):
        nudged(record().model_copy(update={"status": status}), NOW, SLA)


@pytest.mark.parametrize("status", ["answered", "resolved", "abandoned", "pending", "stale", "escalated"])
def test_take_and_hand_are_of_open_ones_and_keep_the_status(status: Status) -> None:
    found = record().model_copy(update={"status": status})
    ade, bea = Holder(user="U1", team="T1", at=NOW), Holder(user="U2", team="T1", at=NOW + MINUTE)
    if not found.is_open:
        for change in (taken, handed):
            with pytest.raises(Closed):
                change(found, ade)
        return
    offered = handed(taken(found, ade), bea)
    assert (offered.asked.taken_by, offered.asked.handed_to) == (None, bea)
    accepted = taken(offered, bea)
    assert (accepted.asked.taken_by, accepted.asked.handed_to) == (bea, None)
    assert dump(accepted)["aaep"]["takenBy"] == {"user": "U2", "team": "T1", "at": "2026-05-24T14:23:00.000Z"}
    assert (accepted.status, accepted.revision) == (status, found.revision + 3)
    assert escalated(taken(record(), ade), "by hand", "words", NOW).asked.taken_by is None


def test_escalated_says_why_when_and_by_whom() -> None:
    after = escalated(record(), "by hand", "Too late for me", NOW + MINUTE, ADE.decided_by)
    assert (after.asked.escalated_for, after.asked.escalated_at) == ("by hand", NOW + MINUTE)
    assert (after.thread[-1].from_, after.thread[-1].body) == (ADE.decided_by, "Too late for me")
    with pytest.raises(IllegalTransition):
        escalated(after, "stale", "again", NOW)
    with pytest.raises(IllegalTransition):
        escalated(abandoned(record(), "expired", NOW), "stale", "words", NOW)


# Properties: a week of visits, at any times

moments = st.integers(0, 7 * 86_400_000).map(lambda ms: NOW + ms * MS)
spans = st.integers(1, 3 * 86_400_000).map(lambda ms: ms * MS)


@dataclass
class Life:
    """A record as it is after every visit, read back from what was written."""

    record: Clarification
    sla: timedelta
    nudged: list[datetime] = field(default_factory=list)
    escalated: list[datetime] = field(default_factory=list)

    def visit(self, now: datetime) -> int:
        for count in range(4):
            call = due_call(self.record, self.sla, now)
            if call is None:
                return count
            assert call.at <= now
            after = parse(dump(done(self.record, call, now, self.sla)))
            assert after is not None
            self.record = after
            {"nudge": self.nudged, "escalate": self.escalated, "expire": []}[call.kind].append(now)
        raise AssertionError("it never comes to rest")

    def judge(self, now: datetime) -> None:
        """The design, from what happened: nothing too early, nothing missed, nothing twice."""
        asked, expires = self.record.asked_last, self.record.expires_at
        half = asked + (expires - asked) / 2 if expires is not None else None
        latest = asked + (expires - asked) * 0.75 if expires is not None else None
        first = asked + self.sla if half is None else min(asked + self.sla, half)
        assert len(self.nudged) <= 1
        assert len(self.escalated) <= len(self.nudged)
        assert all(at >= first - MS for at in self.nudged)
        if self.nudged:
            second = self.nudged[0] + self.sla
            second = second if latest is None else max(self.nudged[0], min(second, latest))
            assert all(at >= second - MS for at in self.escalated)
            assert self.escalated or self.record.status == "abandoned" or now < second
        else:
            assert self.record.status == "abandoned" or now < first
        assert self.record.status == "abandoned" or expires is None or now < expires


@settings(max_examples=100, deadline=None)
@given(st.none() | spans, spans, st.lists(moments, min_size=1, max_size=12))
def test_no_call_early_none_missed_none_twice_whatever_the_clock_does(
    timeout: timedelta | None, sla: timedelta, visits: list[datetime]
) -> None:
    """The visits go forward and back: jumps of the clock, downtimes, several at one time."""
    expires = None if timeout is None else NOW + timeout
    life = Life(opened(42, 1, ask(expires_at=expires), NOW, sla), sla)
    for now in visits:
        life.visit(now)
        life.judge(now)


@settings(max_examples=80, deadline=None)
@given(st.none() | spans.filter(lambda span: span >= timedelta(seconds=1)), spans)
def test_who_sleeps_until_the_next_call_misses_nothing_and_wakes_for_something(
    timeout: timedelta | None, sla: timedelta
) -> None:
    expires = None if timeout is None else NOW + timeout
    life = Life(opened(42, 1, ask(expires_at=expires), NOW, sla), sla)
    woken = 0
    while (call := next_call(life.record, sla)) is not None:
        assert due_call(life.record, sla, call.at - timedelta(microseconds=1)) is None
        assert life.visit(call.at) > 0
        life.judge(call.at)
        woken += 1
    assert woken == (2 if expires is None else 3)
    assert life.record.status == ("escalated" if expires is None else "abandoned")


@settings(max_examples=100, deadline=None)
@given(st.none() | spans, spans, st.lists(moments, max_size=3))
def test_summary_calls_as_its_record_does(
    timeout: timedelta | None, sla: timedelta, visits: list[datetime]
) -> None:
    life = Life(opened(42, 1, ask(expires_at=timeout and NOW + timeout), NOW, sla), sla)
    for now in visits:
        life.visit(now)
    assert next_call(summarize(life.record), sla) == next_call(life.record, sla)


def test_summary_tells_what_the_monitor_and_the_lists_need() -> None:
    topic = "t" * 300
    found = escalated(record(topic=topic, to="architect", blocking=False), "stuck", "words", NOW + MINUTE)
    seen = summarize(handed(found, Holder(user="U2", team="T1", at=NOW)))
    assert (seen.from_, seen.to, seen.blocking, seen.topic) == (
        "retirement-planner",
        "architect",
        False,
        topic[:200],
    )
    assert (seen.escalated_at, seen.escalated_for, seen.taken_by, seen.handed_to) == (
        NOW + MINUTE,
        "stuck",
        None,
        "U2",
    )
    assert (seen.asked_last, seen.stale_after, seen.max_rounds) == (NOW, found.stale_after, 6)
    assert summarize(taken(found, Holder(user="U1", at=NOW))).taken_by == "U1"


def test_summary_without_the_time_of_its_question_takes_the_records() -> None:
    bare = Summary("CLR-1-001", 1, "pending", 1, "d", NOW, None, None, None, None, None, adoptable=False)
    assert bare.asked_last == NOW
    assert next_call(bare, SLA) == Call("nudge", NOW + SLA)
