"""What time makes of a question, against the design's own words; and which texts say the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clarification import Answer, Choice, Clarification, Entry, Holder, Status, round_with
from core.matching import followed_up
from core.monitor import (
    THRESHOLD,
    DueCall,
    Finding,
    Monitor,
    due_call,
    next_call,
    repetitions,
    saying_of,
    says_again,
    similarity,
)
from core.records import dump, parse
from core.router import after_due_call
from core.transitions import abandoned, answered, escalated, nudged, opened, reply_settled, resolved, taken
from tests.kit.builders import ADE, MINUTE, NOW, SLA, ask, changed, record

ORDER = ("architect", "engineer", "reviewer")
DB = "Which database should I use?"


@pytest.fixture
def monitor() -> Monitor:
    return Monitor(SLA, ORDER)


def asked(seq: int = 1, issue: int = 42, **more: Any) -> Clarification:
    """Without a timeout of its own, so that the SLA alone counts."""
    return record(issue, seq, **({"expires_at": None} | more))


def between(seq: int, asker: str, target: str, **more: Any) -> Clarification:
    return asked(seq, **({"agent_id": asker, "to": target, "question": f"{DB} ({seq})"} | more))


def suspects(monitor: Monitor) -> list[Finding]:
    return monitor.suspects(monitor.new_waits())


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.clarification) for finding in findings]


def test_due_follows_what_was_noted_last(monitor: Monitor) -> None:
    first = record(expires_at=None)
    monitor.record_changed(first)
    assert told(monitor.due(NOW + SLA)) == [("due", first.id)]
    after = nudged(first, NOW + SLA, SLA)
    monitor.record_changed(after)
    assert monitor.next_due() == NOW + 2 * SLA
    assert told(monitor.due(NOW + 2 * SLA)) == [("due", first.id)]
    monitor.record_changed(escalated(after, "stale", "…", NOW + 2 * SLA))
    assert monitor.next_due() is None


def test_due_closed_one_is_forgotten(monitor: Monitor) -> None:
    question = record(expires_at=None)
    monitor.record_changed(question)
    monitor.again(question.id, NOW + MINUTE)
    monitor.record_changed(answered(question, Answer("yes", "yes"), ADE, NOW))
    assert monitor.next_due() is None
    assert monitor.due(NOW + timedelta(days=9)) == []


def test_again_tells_once_more_and_leaves_what_is_due_otherwise(monitor: Monitor) -> None:
    monitor.record_changed(asked())
    monitor.again("CLR-42-001", NOW + MINUTE)
    assert monitor.next_due() == NOW + MINUTE
    assert monitor.due(NOW + MINUTE) == [Finding("due", "CLR-42-001")]
    assert monitor.next_due() == NOW + SLA
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-001")]
    monitor.again("CLR-42-001", NOW + SLA + MINUTE)
    assert monitor.due(NOW + SLA) == []
    assert told(monitor.due(NOW + SLA + MINUTE)) == [("due", "CLR-42-001")]


def test_due_clock_put_back_tells_at_its_time_again(monitor: Monitor) -> None:
    """Told by a clock that was wrong: the router found nothing due, and did not change what would be noted."""
    monitor.record_changed(asked())
    assert monitor.due(NOW + timedelta(days=1)) != []
    assert monitor.due(NOW) == []
    assert monitor.next_due() == NOW + SLA
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-001")]


@pytest.mark.parametrize(
    "change",
    [
        {"blocking": False},
        {"to": "human"},
        {"status": "escalated"},
        {"status": "answered"},
    ],
    ids=str,
)
def test_suspects_what_blocks_nobody_is_no_deadlock(monitor: Monitor, change: dict[str, Any]) -> None:
    monitor.record_changed(between(1, "engineer", "architect"))
    monitor.record_changed(changed(between(2, "architect", "engineer"), **change))
    assert suspects(monitor) == []


def test_suspects_one_that_expired_blocks_nobody(monitor: Monitor) -> None:
    """After a long downtime a circle may have ended by itself: nobody is woken for it."""
    monitor.record_changed(between(1, "engineer", "architect"))
    monitor.record_changed(between(2, "architect", "engineer", expires_at=NOW + MINUTE))
    monitor.due(NOW + timedelta(hours=1))
    assert suspects(monitor) == []


def test_suspects_flipped_and_deadlocked_is_told_once_each(monitor: Monitor) -> None:
    monitor.record_changed(between(1, "engineer", "architect", question=DB))
    monitor.record_changed(between(2, "architect", "engineer", question=DB))
    assert sorted(told(suspects(monitor))) == [("stuck", "CLR-42-001"), ("stuck", "CLR-42-002")]


YES = Answer("yes", "yes")


def round_two(first: str, second: str, *, answer: str = "We never decided.", **more: Any) -> Clarification:
    """Answered once, taken by the producer, asked again."""
    told_once = reply_settled(
        answered(record(question=first), Answer(answer, answer), ADE, NOW + MINUTE), "delivered", None
    )
    again = ask(question=second, event_id="evt_2", reply_token="rpl_2", **more)
    return followed_up(told_once, again, NOW + 2 * MINUTE, SLA)


def round_three(answer: str, again: str, **more: Any) -> Clarification:
    """Three different questions; the first two answers are given."""
    second = round_two("Which database?", "Which port?", answer=answer, **more)
    told_twice = reply_settled(
        answered(second, Answer(again, again), ADE, NOW + 3 * MINUTE), "delivered", None
    )
    third = ask(question="Which region?", event_id="evt_3", reply_token="rpl_3")
    return followed_up(told_twice, third, NOW + 4 * MINUTE, SLA)


def test_repetitions_question_asked_again_after_an_answer() -> None:
    assert repetitions([round_two(DB, "What database should we use?")]) == [
        Finding("stuck", "CLR-42-001", "Round 2 repeats the question of round 1.")
    ]


def test_repetitions_reminder_within_a_round_is_none() -> None:
    """Another implementation asks its responder again: that is how the protocol says it."""
    question = record(question=DB)
    reminded = question.model_copy(update={"thread": (*question.thread, question.thread[0])})
    assert repetitions([reminded]) == []
    third = round_two(DB, "Which port?")
    assert repetitions([third.model_copy(update={"thread": (*third.thread, third.thread[-1])})]) == []


def test_repetitions_answer_given_again() -> None:
    assert repetitions([round_three("Ask the product manager.", "Please ask the product managers")]) == [
        Finding("stuck", "CLR-42-001", "Round 2 repeats the answer of round 1.")
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        "3",
    ],
)
def test_repetitions_bare_answers_say_nothing_alone(answer: str) -> None:
    assert repetitions([round_three(answer, answer)]) == []


def test_repetitions_choice_made_again_says_nothing_alone() -> None:
    chosen = round_three("Postgres", "Postgres")
    assert len(repetitions([chosen])) == 1
    option = {"value": "pg", "label": "Postgres"}
    asked_with_choices = chosen.model_copy(
        update={"rounds": (round_with(chosen.current, choices=(Choice(**option),)),)}
    )
    assert repetitions([asked_with_choices]) == []


@pytest.mark.parametrize("reply", ["sending", "refused", "too_late"])
def test_repetitions_who_did_not_get_the_answer_may_ask_again(reply: Any) -> None:
    lost = reply_settled(answered(record(question=DB), YES, ADE, NOW + MINUTE), reply, None)
    again = ask(question=DB, event_id="evt_2", reply_token="rpl_2")
    assert repetitions([followed_up(lost, again, NOW + 2 * MINUTE, SLA)]) == []
    assert repetitions([lost, later()]) == []
    assert repetitions([reply_settled(lost, "delivered", None), later()]) != []


@pytest.mark.parametrize("how", [answered, escalated, abandoned])
def test_repetitions_only_what_still_waits(how: Any) -> None:
    stuck = round_two(DB, DB)
    arguments: dict[Any, tuple[Any, ...]] = {
        answered: (YES, ADE, NOW),
        escalated: ("by hand", "…", NOW),
        abandoned: ("expired", NOW),
    }
    assert repetitions([stuck]) != []
    assert repetitions([how(stuck, *arguments[how])]) == []


def finished(seq: int = 1, at: datetime = NOW + MINUTE, **more: Any) -> Clarification:
    """Answered at `at`, taken, resolved."""
    question = record(seq=seq, question=DB, **more)
    return resolved(reply_settled(answered(question, YES, ADE, at), "confirmed", None), at)


def later(seq: int = 2, minutes: int = 5, **more: Any) -> Clarification:
    """A new question of the session, asked `minutes` later."""
    new = record(seq=seq, reply_token=f"rpl_{seq}", **({"question": "What database should we use?"} | more))
    entry = new.thread[0].model_copy(update={"timestamp": NOW + minutes * MINUTE})
    return new.model_copy(update={"created": entry.timestamp, "thread": (entry,)})


def test_repetitions_session_asks_again_what_was_answered() -> None:
    words = "This question was already answered in this session (CLR-42-001)."
    assert repetitions([finished(), later()]) == [Finding("stuck", "CLR-42-002", words, ("CLR-42-001",))]


@pytest.mark.parametrize(
    ("earlier", "asked_again"),
    [
        (finished(), later(session_id="sess_2")),
        (finished(), later(producer="another")),
        (finished(), later(question="Which port should it listen on?")),
        (record(question=DB), later()),  # two that are open side by side
        (abandoned(record(question=DB), "expired", NOW), later()),
        (
            finished(at=NOW + 10 * MINUTE),
            later(),
        ),  # answered only after it was asked again: they were parallel
    ],
    ids=["other session", "other producer", "other question", "parallel", "never answered", "answered later"],
)
def test_repetitions_session_that_may_ask(earlier: Clarification, asked_again: Clarification) -> None:
    assert repetitions([earlier, asked_again]) == []


MS = timedelta(milliseconds=1)


def minutes(call: DueCall | None) -> tuple[str, float] | None:
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
        (60, ("nudge", 30), ("escalate", 45)),
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
    assert (again.status, again.nudges, again.attention.nudged_at) == ("pending", 1, call.at)
    passed_on = escalated(again, "stale", "words", NOW + second[1] * MINUTE)
    assert minutes(next_call(passed_on, SLA)) == (("expire", timeout) if timeout is not None else None)


@pytest.mark.parametrize(
    ("timeout", "nudged_after", "stale_after"),
    [
        (None, 300, 330),  # the bot was down for hours
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


@pytest.mark.parametrize(("status", "nudges"), list(product(["pending", "stale"], [0, 1])))
@pytest.mark.parametrize("stale_after", [None, 10, -10, 500])
def test_foreign_record_is_chased_like_ours(status: Status, nudges: int, stale_after: int | None) -> None:
    """Another implementation marks a record `stale`, leaves `staleAfter` out or renews it."""
    found = record().model_copy(
        update={
            "status": status,
            "stale_after": None if stale_after is None else NOW + stale_after * MINUTE,
            "rounds": (),
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
    assert (again.attention.nudges, again.nudges) == (1, 0)
    assert next_call(again, SLA) == DueCall("nudge", later + SLA)
    assert nudged(again, later + SLA, SLA).nudges == 1
    behind = nudged(again, NOW, SLA)
    assert behind.nudges == 1, "also if our clock is behind the one that asked"


def test_follow_up_is_chased_anew() -> None:
    first = taken(nudged(record(), NOW + 30 * MINUTE, SLA), Holder(user="U1", at=NOW))
    later = NOW + 50 * MINUTE
    second = followed_up(
        answered(first, Answer("x", "x"), ADE, later), ask(reply_token="rpl_2", expires_at=None), later, SLA
    )
    assert (second.nudges, second.attention.taken_by) == (0, None)
    assert next_call(second, SLA) == next_call(second, SLA) == DueCall("nudge", later + SLA)


def test_the_end_of_time_is_no_error() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    entry = record().thread[0].model_copy(update={"timestamp": end})
    never = record().model_copy(update={"thread": (entry,), "stale_after": None, "rounds": ()})
    assert next_call(never, SLA) == DueCall("nudge", end)


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
            after = parse(dump(after_due_call(self.record, call, now, self.sla)))
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


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=40, deadline=None)
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


SAME = [
    ("Which database should I use?", "Which database should I use?"),
    ("Which database should I use?", "which database should we use"),
    ("Which database should I use?", "What database should I use?"),
    ("Which database should be used?", "Which DB should I use?"),
    ("Should I deploy to production?", "Should I deploy to production or not?"),
    ("Should I deploy to production?", "Should we deploy to prod?"),
    ("Should I deploy to production?", "Again: should I deploy to production?"),
    ("Should I deploy to production?", "Just to be sure - should I deploy to production?"),
    ("Should I use Postgres or MySQL?", "Should I use MySQL or Postgres?"),
    ("Use A-1, B-2 or C-3?", "Use C-3, B-2 or A-1?"),
    (
        "For the staging deployment, which region should I use?",
        "Which region should I use for the staging deployment?",
    ),
    ("Don't touch the schema.", "Do not touch the schema!"),
    ("You can't drop the table.", "You cannot drop the table."),
    ("What is the retry limit: 3?", "What is the retry limit: three?"),
    ("May I spend 1,200 dollars?", "May I spend 1200 dollars?"),
    ("Who owns the billing service?", "who owns the Billing service?"),
    ("Ask the product manager.", "Please ask the product managers."),
    ("The API isn’t versioned, is it?", "The API isn't versioned, is it?"),
    (
        "The orders endpoint returns 500 with large carts; should I add paging to it?",
        "The orders endpoint returns 500 with large carts. Should I add paging to the endpoint?",
    ),
    ("???", "???"),
    ("我应该部署吗?", "我应该部署吗?"),
]
DIFFERENT = [
    ("Should I open port 8080?", "Should I open port 9090?"),
    ("Do delete the old backups.", "Do not delete the old backups."),
    ("Should I delete the backups?", "Shouldn't I delete the backups?"),
    ("Should I deploy to staging?", "Should I deploy to production?"),
    (
        "Shall I deploy the new billing service with all the feature flags and the nightly jobs switched on to staging?",
        "Shall I deploy the new billing service with all the feature flags and the nightly jobs switched on to prod?",
    ),
    ("Migrate from Postgres to MySQL?", "Migrate from MySQL to Postgres?"),
    ("Should the client call the server?", "Should the server call the client?"),
    ("Use Redis instead of Kafka for the queue?", "Use Kafka instead of Redis for the queue?"),
    ("Run the tests before the migration?", "Run the tests after the migration?"),
    ("Set the timeout to 5 minutes?", "Set the timeout to 5 hours?"),
    (
        "Set the idle timeout of the payment gateway connection pool behind the load balancer to 5 minutes?",
        "Set the idle timeout of the payment gateway connection pool behind the load balancer to 5 hours?",
    ),
    ("When should I deploy the release?", "Where should I deploy the release?"),
    ("Who approves the release?", "When approves the release?"),
    ("Enable the cache for the search endpoint?", "Disable the cache for the search endpoint?"),
    ("Which database should I use?", "Which database should I use for the billing service?"),
    ("Which database should I use?", "Which queue should I use?"),
    ("May I edit src/app.py?", "May I edit src/api.py?"),
    ("Is the flag user_id_v2 right?", "Is the flag user_id_v3 right?"),
    (
        "Should the service listen on http in the cluster?",
        "Should the service listen on https in the cluster?",
    ),
    ("Delete all the rows of the table?", "Delete only the rows of the table?"),
    ("Did you run the migration?", "Should I run the migration?"),
    ("Should I run the tests?", "Should I run the tests again?"),
    (
        "Please ask the team of Anna about the retention of the customer data and of the logs in the warehouse",
        "Please ask the team of Bert about the retention of the customer data and of the logs in the warehouse",
    ),
    ("Use 3 replicas?", "Use 5 replicas?"),
    ("Is -1 right as the limit?", "Is 1 right as the limit?"),
    ("Raise it by 5%?", "Raise it by 5?"),
    ("Yes.", "No."),
    ("Deploy A and not B?", "Deploy B and not A?"),
    ("Could you?", "Should I?"),
    ("???", "!!!"),
    ("", "Which database should I use?"),
    ("我应该部署吗?", "我应该删除吗?"),
    ("Should I write it in C++?", "Should I write it in C#?"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_says_again_what_is_the_same(a: str, b: str) -> None:
    assert says_again(a, b)
    assert says_again(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_says_again_in_doubt_differs(a: str, b: str) -> None:
    assert not says_again(a, b)
    assert not says_again(b, a)


def test_threshold_is_met_at_four_words_of_five() -> None:
    assert THRESHOLD == 0.8
    assert says_again("large orange boat floats", "large orange boat floats well")
    assert not says_again("orange boat floats", "orange boat floats well")


_WORDS = st.sampled_from(
    "which database port 8080 9090 not deploy production staging region cache boat floats well a the".split()  # noqa: SIM905
)
_TEXTS = st.lists(_WORDS, max_size=8).map(" ".join)


@settings(deadline=None)
@given(_TEXTS, _TEXTS)
def test_similarity_has_no_direction_and_knows_itself(a: str, b: str) -> None:
    one, other = saying_of(a), saying_of(b)
    assert similarity(one, other) == similarity(other, one)
    assert 0.0 <= similarity(one, other) <= 1.0
    assert similarity(one, one) == 1.0


@settings(deadline=None)
@given(st.text(max_size=80))
def test_says_again_takes_any_text(text: str) -> None:
    assert says_again(text, text)


def test_says_again_very_long_texts_only_if_equal() -> None:
    long = "very long " * 1000
    assert says_again(long, long.upper())
    assert not says_again(long, long + ".")
