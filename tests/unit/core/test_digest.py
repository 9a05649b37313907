from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clarification import Clarification, Entry
from core.digest import Count, Digest, DigestBuilder, Share, nearest_rank
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


def digest_of(*records: Clarification, since: timedelta | None = None) -> Digest:
    builder = DigestBuilder(None if since is None else NOW + since)
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


def test_digest_since_counts_what_was_created_since() -> None:
    old = made(1, "resolved", ("answer", "user:ade", 10), created=NOW - timedelta(days=8))
    at = made(2, "pending", created=NOW - timedelta(days=7))
    found = digest_of(old, at, since=-timedelta(days=7))
    assert (found.total, found.open, found.answers) == (1, 1, 0)
    assert found.since == NOW - timedelta(days=7)


def test_digest_until_leaves_out_what_was_created_from_then_on() -> None:
    builder = DigestBuilder(NOW - timedelta(days=7), NOW)
    for at in (-timedelta(days=7), -timedelta(seconds=1), timedelta(0)):
        builder.add(made(1, "pending", created=NOW + at))
    assert builder.result().total == 2


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
