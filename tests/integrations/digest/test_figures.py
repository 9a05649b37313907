from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.integrations.digest.figures import (
    Approvals,
    Count,
    Digest,
    DigestBuilder,
    Share,
    Stretch,
    TimeToDecide,
    in_one_unit,
    nearest_rank,
)
from core.clarification import Approval, Clarification, Confirmation, Edit, Entry, Round, round_with
from tests.kit.builders import NOW, record


def made(seq: int, status: str, *thread: tuple[str, str, float], **more: Any) -> Clarification:
    """One whose thread is (type, who, seconds after NOW), asked at NOW."""
    base = record(seq=seq, topic=more.pop("topic", "Deploy"))
    number, entries = 1, list(base.thread)
    for kind, who, seconds in thread:
        number += kind == "question"
        at = NOW + timedelta(seconds=seconds)
        entries.append(
            Entry.model_validate({"round": number, "from": who, "type": kind, "body": "…", "timestamp": at})
        )
    return base.model_copy(update={"status": status, "thread": tuple(entries), "round": number, **more})


def digest_of(*records: Clarification) -> Digest:
    builder = DigestBuilder()
    for one in records:
        builder.add(one)
    return builder.result()


def test_digest_small_table() -> None:
    found = digest_of(
        made(1, "pending"),
        made(2, "escalated", ("escalation", "clarify-bot", 1800)),
        made(3, "answered", ("answer", "user:ade", 10)),
        made(
            4,
            "resolved",
            ("answer", "user:ade", 20),
            ("question", "planner", 100),
            ("answer", "user:bea", 140),
        ),
        made(5, "resolved", ("escalation", "clarify-bot", 1800), ("answer", "user:ade", 3600)),
        made(6, "abandoned", ("resolution", "clarify-bot", 50), topic="Port", from_="tester"),
        made(7, "stale", topic="  deploy "),
    )
    assert (found.total, found.open, found.answered, found.resolved, found.abandoned) == (7, 3, 1, 2, 1)
    assert found.total == found.open + found.answered + found.resolved + found.abandoned
    assert found.escalated == 2
    assert found.answers == 4
    assert found.median == timedelta(seconds=30)  # of 10, 20, 40, 3600
    assert found.p95 == timedelta(seconds=3600)
    assert found.rounds_mean == pytest.approx(8 / 7)
    assert found.rounds_max == 2
    assert found.topics == (Count("Deploy", 6), Count("Port", 1))
    assert found.askers == (Count("retirement-planner", 6), Count("tester", 1))
    assert found.answerers == (Count("user:ade", 3), Count("user:bea", 1))


def test_digest_counts_what_was_created_from_since_to_before_until() -> None:
    builder = DigestBuilder(NOW - timedelta(days=7), NOW)
    for at in (-timedelta(days=7, seconds=1), -timedelta(days=7), -timedelta(seconds=1), timedelta(0)):
        builder.add(made(1, "pending", created=NOW + at))
    assert builder.result().total == 2


def test_digest_counts_approvals_of_each_round() -> None:
    first, again = approval(1, response="reject"), approval(1, response="accept", by="user:bea")
    found = digest_of(again.model_copy(update={"rounds": (first.current, again.current)}))
    assert ("Approvals", "1 approved, 1 rejected") in found.words()
    assert dict(found.shares()[0][1])["user:bea"] == "1 answer, median 1 minute; 1 approved"


def test_digest_tells_routes_and_people_apart() -> None:
    builder = DigestBuilder()
    builder.add(made(1, "answered", ("answer", "user:ade", 10)), "r-*")
    builder.add(made(2, "answered", ("answer", "user:ade", 30)), "r-*")
    builder.add(made(3, "answered", ("answer", "user:bea", 5)), "*")
    builder.add(made(4, "answered", ("answer", "agent:architect", 1)), "*")
    builder.add(made(5, "pending"), "*")
    builder.add(made(6, "pending"), "quiet")
    found = builder.result()
    assert found.routes == (
        Share("*", 3, 2, timedelta(seconds=3)),
        Share("r-*", 2, 2, timedelta(seconds=20)),
        Share("quiet", 1, 0, None),
    )
    assert found.people == (
        Share("user:ade", 0, 2, timedelta(seconds=20)),
        Share("user:bea", 0, 1, timedelta(seconds=5)),
    )


def test_digest_answer_before_its_question_took_no_time() -> None:
    assert digest_of(made(1, "answered", ("answer", "user:ade", -5))).median == timedelta(0)


def test_digest_top_five_ties_by_name() -> None:
    found = digest_of(*(made(seq, "pending", topic=topic) for seq, topic in enumerate("gfedcbaa", 1)))
    assert found.topics == (Count("a", 2), Count("b", 1), Count("c", 1), Count("d", 1), Count("e", 1))


def test_digest_long_topics_are_clipped() -> None:
    (topic,) = digest_of(made(1, "pending", topic="x" * 500)).topics
    assert len(topic.name) == 120


@pytest.mark.parametrize(
    ("count", "rank"),
    [
        (1, 1),
        (19, 19),
        (20, 19),
        (100, 95),
    ],
)
def test_nearest_rank_of_95(count: int, rank: int) -> None:
    assert nearest_rank([float(n) for n in range(1, count + 1)], 95) == rank


def approval(seq: int, risk: str | None = "high", response: str | None = None, **more: Any) -> Clarification:
    """An approval; `after`: seconds until it was decided."""
    by, after = more.pop("by", "user:ade"), more.pop("after", 60)
    asked: dict[str, Any] = {"kinds": ("confirmation",), "received_at": NOW}
    asked["wanted"] = Confirmation(action="x", risk_level=risk)
    if response is not None:
        at = NOW + timedelta(seconds=after)
        asked |= {"response": response, "decided_by": by, "answered_at": at}
        return made(seq, "resolved", ("answer", by, after), rounds=(round_with(Round(), **(asked | more)),))
    return made(
        seq, "abandoned" if "closed" in more else "pending", rounds=(round_with(Round(), **(asked | more)),)
    )


def by(*people: str) -> tuple[Approval, ...]:
    return tuple(Approval(decided_by=each, at=NOW, digest="") for each in people)


def edits(*people: str) -> tuple[Edit, ...]:
    return tuple(Edit(changed={"to": "me"}, decided_by=each, at=NOW) for each in people)


@pytest.mark.parametrize(
    ("one", "counts", "people"),
    [
        (approval(1), Approvals(), {}),
        (approval(1, response="accept"), Approvals(approved=1), {"user:ade": Approvals(approved=1)}),
        (approval(1, response="reject"), Approvals(rejected=1), {"user:ade": Approvals(rejected=1)}),
        (approval(1, closed="expired"), Approvals(expired=1), {}),
        (approval(1, closed="withdrawn"), Approvals(), {}),
        (
            approval(1, response="accept", approvals=by("user:bea")),
            Approvals(approved=1),
            {"user:ade": Approvals(approved=1), "user:bea": Approvals(approved=1)},
        ),
        (
            approval(1, response="reject", approvals=by("user:bea")),
            Approvals(rejected=1),
            {"user:ade": Approvals(rejected=1)},
        ),
        (
            approval(1, response="accept", edits=edits("user:bea", "user:bea")),
            Approvals(approved=1, edited=1),
            {"user:ade": Approvals(approved=1), "user:bea": Approvals(edited=1)},
        ),
        (
            approval(1, closed="expired", edits=edits("user:ade")),
            Approvals(expired=1, edited=1),
            {"user:ade": Approvals(edited=1)},
        ),
        (approval(1, response="(forgotten)", by="(forgotten)"), Approvals(), {}),
        (made(1, "answered", ("answer", "user:ade", 1)), Approvals(), {"user:ade": Approvals()}),
    ],
)
def test_digest_counts_approvals(one: Clarification, counts: Approvals, people: dict[str, Approvals]) -> None:
    builder = DigestBuilder()
    builder.add(one, "r-*")
    found = builder.result()
    assert found.approvals == counts
    assert [each.approvals for each in found.routes] == [counts]
    assert {each.name: each.approvals for each in found.people} == people


def test_digest_times_decisions_by_risk_as_it_counts() -> None:
    found = digest_of(
        approval(1, "high", "accept", after=600),
        approval(2, "high", "reject", after=60),
        approval(3, "enormous", "accept", after=120),
        approval(4, None, "accept", after=30),
        approval(5, "low", "accept", after=-5),
        approval(6, "low"),
        approval(7, "low", closed="expired"),
    )
    assert found.decided == (
        TimeToDecide("high", 3, timedelta(seconds=120)),
        TimeToDecide("medium", 1, timedelta(seconds=30)),
        TimeToDecide("low", 1, timedelta(0)),
    )
    name, words = found.words()[-1]
    assert name == "Time to decide"
    assert words.startswith("high risk median 2 minutes (3), medium risk median 30 seconds (1), low risk")


def test_digest_lists_people_who_only_approved_with_others() -> None:
    found = digest_of(
        *(approval(n, response="accept", approvals=by("user:bea")) for n in range(1, 4)),
        made(9, "answered", ("answer", "user:cem", 1)),
    )
    assert [(each.name, each.answers, each.approvals.approved) for each in found.people] == [
        ("user:ade", 3, 3),
        ("user:bea", 0, 3),
        ("user:cem", 1, 0),
    ]
    assert dict(found.shares()[0][1])["user:bea"] == "3 approved"


def stretches(
    *created: datetime, since: datetime | None, until: datetime, zone: str = "UTC"
) -> list[Stretch]:
    builder = DigestBuilder(since, zone=ZoneInfo(zone))
    for seq, moment in enumerate(created, start=1):
        builder.add(made(seq, "pending", created=moment))
    return list(builder.result(until).stretches)


def test_stretches_are_days_with_what_became_of_their_questions() -> None:
    statuses = ("pending", "stale", "escalated", "answered", "resolved", "abandoned")
    found = digest_of(*(made(seq, status) for seq, status in enumerate(statuses, start=1)))
    assert found.stretches == (Stretch(NOW.date(), 1, answered=2, open=3, closed=1),)
    assert found.stretches[0].words == "2 answered, 3 open, 1 closed without an answer"


def test_stretches_have_every_day_also_one_without_questions() -> None:
    until = datetime(2026, 11, 26, 12, tzinfo=UTC)
    asked = (until - timedelta(days=7), until - timedelta(days=1))
    found = stretches(*asked, since=until - timedelta(days=7), until=until)
    assert [each.first.day for each in found] == list(range(19, 27))
    assert [each.open for each in found] == [1, 0, 0, 0, 0, 0, 1, 0]
    assert found[1].words == "none"


def test_stretches_of_no_questions_are_none() -> None:
    assert stretches(since=NOW - timedelta(days=7), until=NOW) == []


@pytest.mark.parametrize(
    ("days", "length", "number"), [(19, 1, 20), (20, 2, 11), (30, 2, 16), (365, 19, 20), (5000, 251, 20)]
)
def test_stretches_are_twenty_at_most(days: int, length: int, number: int) -> None:
    found = stretches(NOW - timedelta(days=days), NOW, since=NOW - timedelta(days=days), until=NOW)
    assert ([each.days for each in found], len(found)) == ([length] * number, number)
    assert (found[0].open, found[-1].open) == (1, 1)
    assert len({each.first for each in found}) == number


def test_stretches_are_days_of_their_zone_also_where_clocks_change() -> None:
    """In Berlin the 25th of October 2026 has 25 hours, and its last one is the 25th in UTC, too."""
    asked = datetime(2026, 10, 25, 22, 30, tzinfo=UTC)
    for moment, day in (
        (asked, 25),
        (asked + timedelta(hours=1), 26),
        (asked - timedelta(hours=24.75), 24),
        (asked - timedelta(hours=24), 25),
    ):
        (found,) = stretches(moment, since=None, until=moment, zone="Europe/Berlin")
        assert found.first == date(2026, 10, day), moment


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_stretches_bear_another_programs_clock(moment: datetime, zone: str) -> None:
    found = stretches(moment, NOW, since=None, until=NOW, zone=zone)
    assert sum(each.open for each in found) == 2
    assert len(found) <= 20


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((0.26, 59.94), ("seconds", [0.3, 59.9])),
        ((6, 60), ("minutes", [0.1, 1.0])),
        ((5400,), ("hours", [1.5])),
        ((129_600, 60), ("days", [1.5, 0.0])),
    ],
)
def test_in_one_unit_takes_that_of_the_longest(
    seconds: tuple[float, ...], expected: tuple[str, list[float]]
) -> None:
    assert in_one_unit([timedelta(seconds=each) for each in seconds]) == expected
