from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bot.github.plan import ACTIVE, STALE, is_mirrored, labels_for, planned
from bot.github.words import keys
from core.clarification import Clarification

EARLY, SINCE, LATE = (datetime(2026, 11, day, tzinfo=UTC) for day in (1, 10, 20))


def record(status: str = "pending", at: datetime = EARLY, **more: Any) -> Clarification:
    when = at.isoformat()
    entry = {"round": 1, "from": "a", "type": "question", "body": "?", "timestamp": when}
    facts = {"id": "CLR-42-001", "issueNumber": 42, "from": "a", "to": "b", "created": when}
    return Clarification.model_validate(facts | {"status": status, "thread": [entry]} | more)


NUDGED = {"nudges": 1, "nudgedAt": LATE.isoformat()}


@pytest.mark.parametrize(
    ("records", "labels"),
    [
        ([], set()),
        ([record()], {ACTIVE}),
        ([record(aaep=NUDGED)], {ACTIVE, STALE}),
        ([record("stale")], {ACTIVE, STALE}),
        ([record("escalated")], {ACTIVE, STALE}),
        ([record("answered")], set()),
        ([record("answered", aaep=NUDGED)], set()),
        ([record("resolved"), record("abandoned")], set()),
        ([record("resolved"), record()], {ACTIVE}),
    ],
)
def test_labels_are_those_of_open_questions(records: list[Clarification], labels: set[str]) -> None:
    assert labels_for(records) == labels


@pytest.mark.parametrize(
    ("made", "known", "counts"),
    [
        (record(), False, True),
        (record("escalated"), False, True),
        (record("answered"), False, False),
        (record("resolved"), False, False),
        (record("resolved"), True, True),
        (record("resolved", LATE), False, True),
        (record("abandoned", resolvedAt=LATE.isoformat()), False, True),
    ],
    ids=str,
)
def test_plan_is_of_what_is_open_or_was_begun_or_has_changed(
    made: Clarification, known: bool, counts: bool
) -> None:
    begun = [key for key, _ in keys(made)] if known else []

    assert bool(planned([made], begun, SINCE).comments) == counts


@pytest.mark.parametrize(
    ("issue", "mirrored"),
    [(0, False), (-1, False), (1, True), (100_000, True), (100_001, False), (10**9, False)],
)
def test_reserved_numbers_are_not_mirrored(issue: int, mirrored: bool) -> None:
    assert is_mirrored(issue) == mirrored
