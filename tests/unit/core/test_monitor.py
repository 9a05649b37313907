from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.clarification import (
    Answer,
    Clarification,
    Entry,
    abandoned,
    answered,
    escalated,
    nudged,
    reply_settled,
    resolved,
)
from core.index import Summary, summarize
from core.matching import followed_up, reopened
from core.monitor import Finding, Monitor, repetitions
from tests.unit.core.records import ADE, NOW, SLA, ask, record

ORDER = ("architect", "engineer", "reviewer")
MINUTE = timedelta(minutes=1)
DB = "Which database should I use?"


@pytest.fixture
def monitor() -> Monitor:
    return Monitor(SLA, ORDER)


def asked(seq: int = 1, issue: int = 42, **more: Any) -> Summary:
    """Without a timeout of its own, so that the SLA alone counts."""
    return summarize(record(issue, seq, **({"expires_at": None} | more)))


def between(seq: int, asker: str, target: str, **more: Any) -> Summary:
    return asked(seq, **({"agent_id": asker, "to": target, "question": f"{DB} ({seq})"} | more))


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.clarification) for finding in findings]


def test_due_tells_the_longest_overdue_first_and_once(monitor: Monitor) -> None:
    late = NOW + timedelta(minutes=5)
    monitor.note(replace(asked(2), stale_after=late))
    monitor.note(asked(1))
    assert monitor.next_due() == late
    assert monitor.due(late - MINUTE) == []
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-002"), ("due", "CLR-42-001")]
    assert monitor.due(NOW + SLA) == []
    assert monitor.next_due() is None


def test_due_follows_what_was_noted_last(monitor: Monitor) -> None:
    first = record(expires_at=None)
    monitor.note(summarize(first))
    assert told(monitor.due(NOW + SLA)) == [("due", first.id)]
    after = nudged(first, NOW + SLA, SLA)
    monitor.note(summarize(after))
    assert monitor.next_due() == NOW + 2 * SLA
    assert told(monitor.due(NOW + 2 * SLA)) == [("due", first.id)]
    monitor.note(summarize(escalated(after, "stale", "…", NOW + 2 * SLA)))
    assert monitor.next_due() is None


def test_due_noted_later_is_not_told_at_its_old_time(monitor: Monitor) -> None:
    monitor.note(asked())
    monitor.note(replace(asked(), stale_after=NOW + 2 * SLA))
    assert monitor.next_due() == NOW + 2 * SLA
    assert monitor.due(NOW + SLA) == []


def test_due_closed_one_is_forgotten(monitor: Monitor) -> None:
    question = record(expires_at=None)
    monitor.note(summarize(question))
    monitor.again(question.id, 42, NOW + MINUTE)
    monitor.note(summarize(answered(question, Answer("yes", "yes"), ADE, NOW)))
    assert monitor.next_due() is None
    assert monitor.due(NOW + timedelta(days=9)) == []


def test_again_tells_once_more_and_leaves_what_is_due_otherwise(monitor: Monitor) -> None:
    monitor.note(asked())
    monitor.again("CLR-42-001", 42, NOW + MINUTE)
    assert monitor.next_due() == NOW + MINUTE
    assert monitor.due(NOW + MINUTE) == [Finding("due", "CLR-42-001", 42)]
    assert monitor.next_due() == NOW + SLA
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-001")]
    monitor.again("CLR-42-001", 42, NOW + SLA + MINUTE)
    assert monitor.due(NOW + SLA) == []
    assert told(monitor.due(NOW + SLA + MINUTE)) == [("due", "CLR-42-001")]


def test_again_counts_as_it_was_said_last(monitor: Monitor) -> None:
    monitor.again("CLR-42-001", 42, NOW + MINUTE)
    monitor.again("CLR-42-001", 42, NOW + 2 * MINUTE)
    assert monitor.due(NOW + MINUTE) == []
    assert told(monitor.due(NOW + 2 * MINUTE)) == [("due", "CLR-42-001")]
    assert monitor.next_due() is None


def test_due_again_and_by_itself_at_one_time_is_told_once(monitor: Monitor) -> None:
    monitor.note(asked())
    monitor.again("CLR-42-001", 42, NOW + SLA)
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-001")]
    assert monitor.next_due() is None


def test_due_clock_put_back_tells_at_its_time_again(monitor: Monitor) -> None:
    """Told by a clock that was wrong: the router found nothing due, and did not change what would be noted."""
    monitor.note(asked())
    assert monitor.due(NOW + timedelta(days=1)) != []
    assert monitor.due(NOW) == []
    assert monitor.next_due() == NOW + SLA
    assert told(monitor.due(NOW + SLA)) == [("due", "CLR-42-001")]


def test_note_often_keeps_the_heap_small(monitor: Monitor) -> None:
    for minutes in range(1000):
        monitor.note(replace(asked(), stale_after=NOW + timedelta(days=400) - minutes * MINUTE))
    assert len(monitor._heap) < 100
    assert monitor.next_due() == NOW + timedelta(days=400) - 999 * MINUTE


def test_suspects_deadlock_across_issues_names_the_circle(monitor: Monitor) -> None:
    monitor.note(between(1, "engineer", "architect", issue=7))
    assert monitor.suspects() == []
    monitor.note(between(2, "architect", "engineer", issue=8))
    assert monitor.suspects() == [
        Finding(
            "deadlocked",
            "CLR-7-001",
            7,
            "architect and engineer wait for each other in a circle; architect goes on waiting.",
            ("CLR-8-002",),
        )
    ]
    assert monitor.suspects() == []


def test_suspects_waits_for_itself(monitor: Monitor) -> None:
    monitor.note(between(1, "engineer", "engineer"))
    assert [f.words for f in monitor.suspects()] == ["engineer waits for itself."]


def test_suspects_words_name_a_few_agents(monitor: Monitor) -> None:
    agents = [f"{'a' * 60}{number}" for number in range(9)]
    for seq, agent in enumerate(agents, 1):
        monitor.note(between(seq, agent, agents[seq % 9]))
    words = monitor.suspects()[0].words or ""
    assert "and 3 more wait for each other in a circle" in words
    assert len(words) < 400


@pytest.mark.parametrize(
    "change",
    [
        {"blocking": False},
        {"to": "human"},
        {"to": "Human "},
        {"status": "escalated"},
        {"status": "answered"},
        {"status": "abandoned"},
    ],
    ids=str,
)
def test_suspects_what_blocks_nobody_is_no_deadlock(monitor: Monitor, change: dict[str, Any]) -> None:
    monitor.note(between(1, "engineer", "architect"))
    monitor.note(replace(between(2, "architect", "engineer"), **change))
    assert monitor.suspects() == []


def test_suspects_people_are_no_agent(monitor: Monitor) -> None:
    """Also if an agent calls itself so: who waits for people waits for nobody's turn."""
    monitor.note(between(1, "human", "engineer"))
    monitor.note(between(2, "engineer", "human"))
    assert monitor.suspects() == []


@pytest.mark.parametrize("after", ["escalated", "answered", "resolved"])
def test_suspects_circle_that_was_ended_is_none(monitor: Monitor, after: Any) -> None:
    first = between(1, "engineer", "architect")
    monitor.note(first)
    monitor.note(replace(first, status=after))
    monitor.note(between(2, "architect", "engineer"))
    assert monitor.suspects() == []


def test_suspects_stale_ones_still_block(monitor: Monitor) -> None:
    monitor.note(replace(between(1, "engineer", "architect"), status="stale"))
    monitor.note(between(2, "architect", "engineer"))
    assert told(monitor.suspects()) == [("deadlocked", "CLR-42-001")]


def test_suspects_one_that_expired_blocks_nobody(monitor: Monitor) -> None:
    """After a long downtime a circle may have ended by itself: nobody is woken for it."""
    monitor.note(between(1, "engineer", "architect"))
    monitor.note(between(2, "architect", "engineer", expires_at=NOW + MINUTE))
    monitor.due(NOW + timedelta(hours=1))
    assert monitor.suspects() == []


@pytest.mark.parametrize("blocking", [True, False])
def test_suspects_flipped_topic_is_stuck_both(monitor: Monitor, blocking: bool) -> None:
    monitor.note(between(1, "engineer", "architect", question=DB, blocking=blocking))
    monitor.note(between(2, "architect", "engineer", question="What database should we use?", blocking=False))
    found = {finding.clarification: finding for finding in monitor.suspects()}
    assert {key: (f.kind, f.others) for key, f in found.items()} == {
        "CLR-42-001": ("stuck", ("CLR-42-002",)),
        "CLR-42-002": ("stuck", ("CLR-42-001",)),
    }
    assert found["CLR-42-001"].words == "engineer and architect ask each other the same thing."


def test_suspects_flipped_and_deadlocked_is_told_once_each(monitor: Monitor) -> None:
    monitor.note(between(1, "engineer", "architect", question=DB))
    monitor.note(between(2, "architect", "engineer", question=DB))
    assert sorted(told(monitor.suspects())) == [("stuck", "CLR-42-001"), ("stuck", "CLR-42-002")]


def test_suspects_asking_back_after_an_answer_is_not_stuck(monitor: Monitor) -> None:
    monitor.note(replace(between(1, "engineer", "architect", question=DB), status="answered"))
    monitor.note(between(2, "architect", "engineer", question=DB, blocking=False))
    assert monitor.suspects() == []


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
        Finding("stuck", "CLR-42-001", 42, "The question of round 1 is asked again in round 2.")
    ]


def test_repetitions_reminder_within_a_round_is_none() -> None:
    """Another implementation asks its responder again: that is how the protocol says it."""
    question = record(question=DB)
    reminded = question.model_copy(update={"thread": (*question.thread, question.thread[0])})
    assert repetitions([reminded]) == []
    third = round_two(DB, "Which port?")
    assert repetitions([third.model_copy(update={"thread": (*third.thread, third.thread[-1])})]) == []


def test_repetitions_another_question_is_progress() -> None:
    assert repetitions([round_two(DB, "Which port should it listen on?")]) == []
    assert repetitions([round_two("Open port 8080?", "Open port 9090?")]) == []


def test_repetitions_answer_given_again() -> None:
    assert repetitions([round_three("Ask the product manager.", "Please ask the product managers")]) == [
        Finding("stuck", "CLR-42-001", 42, "The answer of round 1 is given again in round 2.")
    ]


@pytest.mark.parametrize("answer", ["yes", "No.", "OK!", "3", "12.5"])
def test_repetitions_bare_answers_say_nothing_alone(answer: str) -> None:
    assert repetitions([round_three(answer, answer)]) == []


def test_repetitions_choice_made_again_says_nothing_alone() -> None:
    chosen = round_three("Postgres", "Postgres")
    assert len(repetitions([chosen])) == 1
    option = {"value": "pg", "label": "Postgres"}
    asked_with_choices = chosen.model_copy(
        update={"aaep": chosen.asked.model_validate(chosen.asked.model_dump() | {"choices": [option]})}
    )
    assert repetitions([asked_with_choices]) == []


@pytest.mark.parametrize("reply", ["sending", "refused", "too_late"])
def test_repetitions_who_did_not_get_the_answer_may_ask_again(reply: Any) -> None:
    lost = reply_settled(answered(record(question=DB), YES, ADE, NOW + MINUTE), reply, None)
    again = ask(question=DB, event_id="evt_2", reply_token="rpl_2")
    assert repetitions([followed_up(lost, again, NOW + 2 * MINUTE, SLA)]) == []
    assert repetitions([lost, later()]) == []
    assert repetitions([reply_settled(lost, "delivered", None), later()]) != []


def test_repetitions_question_we_opened_again_is_not_stuck() -> None:
    """Another implementation's answer did not fit: the requester did not ask twice."""
    asked_once = record(question=DB)
    foreign = asked_once.model_copy(
        update={
            "status": "answered",
            "thread": (
                *asked_once.thread,
                Entry(round=1, from_="architect", type="answer", body="Hm.", timestamp=NOW),
            ),
        }
    )
    assert repetitions([reopened(foreign, NOW, SLA)]) == []


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


def done(seq: int = 1, at: datetime = NOW + MINUTE, **more: Any) -> Clarification:
    """Answered at `at`, taken, resolved."""
    question = record(seq=seq, question=DB, **more)
    return resolved(reply_settled(answered(question, YES, ADE, at), "confirmed", None), at)


def later(seq: int = 2, minutes: int = 5, **more: Any) -> Clarification:
    """A new question of the session, asked `minutes` later."""
    new = record(seq=seq, reply_token=f"rpl_{seq}", **({"question": "What database should we use?"} | more))
    entry = new.thread[0].model_copy(update={"timestamp": NOW + minutes * MINUTE})
    return new.model_copy(update={"created": entry.timestamp, "thread": (entry,)})


def test_repetitions_session_asks_again_what_was_answered() -> None:
    words = "The same question was answered before in this session (CLR-42-001)."
    assert repetitions([done(), later()]) == [Finding("stuck", "CLR-42-002", 42, words, ("CLR-42-001",))]


@pytest.mark.parametrize(
    ("earlier", "asked_again"),
    [
        (done(), later(session_id="sess_2")),
        (done(), later(producer="another")),
        (done(), later(question="Which port should it listen on?")),
        (record(question=DB), later()),  # two that are open side by side
        (abandoned(record(question=DB), "expired", NOW), later()),
        (done(at=NOW + 10 * MINUTE), later()),  # answered only after it was asked again: they were parallel
    ],
    ids=["other session", "other producer", "other question", "parallel", "never answered", "answered later"],
)
def test_repetitions_session_that_may_ask(earlier: Clarification, asked_again: Clarification) -> None:
    assert repetitions([earlier, asked_again]) == []


def test_repetitions_without_sessions_are_not_compared() -> None:
    foreign = [one.model_copy(update={"aaep": None}) for one in (done(), later())]
    assert repetitions(foreign) == []
