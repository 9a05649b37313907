from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.clarification import Clarification, Direct, Holder, round_with
from core.errors import RecordUnreadable
from core.index import (
    AgentNode,
    BlockedOn,
    Index,
    SessionFact,
    going_on,
    ready_queue,
    tree,
)
from core.ledger import OfIssue
from core.records import dump, packed, parse, unpacked
from core.summary import Seen, packed_summary, summary_of, unpacked_summary
from tests.kit.builders import NOW, changed, record
from tests.kit.ledgers import kept_ledger

MINUTE = timedelta(minutes=1)


async def test_record_is_read_only_if_it_is_not_in_memory_as_it_is_known(tmp_path: Path) -> None:
    index, first = Index(), record(question="Deploy to production? " * 400)
    async with kept_ledger(tmp_path) as ledger:
        written = await ledger.transact(OfIssue(42), lambda book: book.put(first))
        index.put(written)
        assert await index.find(first.id, ledger) is written
        assert ledger.recent(first.id, written.revision) is written
        assert ledger.recent(first.id, written.revision - 1) is None
        index.put(changed(written, revision=9))
        assert await index.find(first.id, ledger) == written


def with_field_of_another(record: Clarification) -> Clarification:
    """With what no JSON takes, where somebody has it."""
    (asked,) = record.rounds
    holder = Holder.model_validate({"user": "U0ADE", "at": NOW, "theirs": "\ud800"})
    return record.copied(rounds=(round_with(asked, taken_by=holder),))


@pytest.mark.parametrize("status", ["pending", "stale", "escalated", "answered", "resolved", "abandoned"])
def test_summary_says_what_its_record_says(status: str) -> None:
    whole = changed(record(), status=status, taken_by="U0ADE", handed_to="U0BEA", asked_last=NOW)
    summary = summary_of(whole)
    for name in ("short_topic", "asked_last", "is_open", "needs_something", "claimed_by", "offered_to"):
        assert getattr(summary, name) == getattr(whole, name), name
    assert summary_of(summary) is summary
    assert "theirs" not in (packed_summary(with_field_of_another(whole)) or "")
    as_read = parse(unpacked(packed(dump(whole))))
    assert as_read is not None
    kept = packed_summary(whole)
    assert (kept is not None) == whole.needs_something
    assert kept is None or unpacked_summary(kept) == summary_of(as_read)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from(["planner", "reviewer"]),
            st.booleans(),
            st.sampled_from(["pending", "stale", "escalated", "answered", "resolved", "abandoned"]),
        )
    )
)
def test_open_questions_of_a_caller_are_counted(puts: list[tuple[int, str, bool, str]]) -> None:
    index = Index()
    for seq, producer, is_direct, status in puts:
        direct = Direct(kind="text") if is_direct else None
        index.put(changed(record(seq=seq), producer=producer, direct=direct, status=status))
    for producer in ("planner", "reviewer"):
        waits = [each for each in index if each.is_direct and each.is_open and each.producer == producer]
        assert index.waiting_of(producer) == len(waits)


class Broken:
    """Cannot read the records in `lost`."""

    def __init__(self, *lost: Clarification) -> None:
        self.lost = {each.id for each in lost}

    async def whole(self, seen: Seen) -> Clarification:
        if seen.id in self.lost:
            raise RecordUnreadable(seen.id, 42)
        return record(seq=int(seen.id[-3:]))


async def test_list_leaves_out_what_cannot_be_read_and_fails_if_nothing_can() -> None:
    index, some = Index(), [record(seq=seq) for seq in (1, 2)]
    for each in some:
        index.put(each)
    one: Any = Broken(some[0])
    both: Any = Broken(*some)
    assert [each.id for each in await index.readable(some, one)] == [some[1].id]
    with pytest.raises(RecordUnreadable):
        await index.readable(some, both)


def session(
    agent: str, number: int = 1, *, ended: bool = False, minutes: int = 0, **more: Any
) -> SessionFact:
    fact = SessionFact("planner", f"sess_{agent}_{number}", agent, None, 42, ended, NOW + minutes * MINUTE)
    return replace(fact, **more)


def wait(seq: int, asker: str, target: str, minutes: int = 0, **more: Any) -> Clarification:
    """Asked `minutes` after NOW, in the first session of the asker."""
    found = record(seq=seq, agent_id=asker, to=target, session_id=f"sess_{asker}_1")
    return changed(found, asked_last=NOW + minutes * MINUTE, **more)


def shape(nodes: Sequence[AgentNode]) -> str:
    """The agents in their order, each as deep as it stands."""
    return " ".join(f"{'>' * node.depth}{node.agent}" for node in nodes)


@pytest.mark.parametrize(
    ("summaries", "sessions", "expected"),
    [
        ([], [session("engineer")], {"engineer": "working"}),
        ([], [session("engineer", ended=True)], {"engineer": "idle"}),
        ([], [session("engineer", 1, ended=True), session("engineer", 2)], {"engineer": "working"}),
        ([wait(1, "engineer", "human")], [session("engineer")], {"engineer": "blocked"}),
        ([wait(1, "engineer", "human", blocking=False)], [session("engineer")], {"engineer": "working"}),
        ([wait(1, "engineer", "human", status="answered")], [session("engineer")], {"engineer": "working"}),
        ([wait(1, "engineer", "human", status="escalated")], [session("engineer")], {"engineer": "blocked"}),
        (
            [wait(1, "engineer", "architect", blocking=False)],
            [],
            {"engineer": "idle", "architect": "clarifying"},
        ),
        (
            [wait(1, "engineer", "architect"), wait(2, "Architect", "human")],
            [session("engineer"), session("architect")],
            {"engineer": "blocked", "architect": "blocked"},
        ),
    ],
)
def test_tree_statuses(
    summaries: list[Clarification], sessions: list[SessionFact], expected: dict[str, str]
) -> None:
    found = {node.agent: node.status for node in tree(summaries, sessions)}
    assert found == expected


def test_tree_says_on_whom_since_when() -> None:
    summaries = [
        wait(2, "engineer", "human", 9, issue_number=43, status="escalated"),
        wait(1, "engineer", "architect", 3),
    ]
    architect, engineer = tree(summaries, [session("engineer", agent_name="Edna", minutes=4)])
    assert (engineer.under, engineer.depth, architect.under) == ("architect", 1, None)
    assert architect.asked == ("CLR-42-001",)
    assert engineer.name == "Edna"
    assert engineer.since == NOW + 3 * MINUTE
    assert engineer.waits == (
        BlockedOn("CLR-42-001", "architect", NOW + 3 * MINUTE, escalated=False),
        BlockedOn("CLR-42-002", "human", NOW + 9 * MINUTE, escalated=True),
    )
    assert engineer.issues == (42, 43)
    assert engineer.last_event_at == NOW + 4 * MINUTE


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ([("c", "b"), ("b", "a"), ("d", "a")], "a >b >>c >d"),
        ([("c", "a"), ("c", "b")], "a >c b"),  # under the one it waits for longest
        ([("a", "b"), ("b", "a")], "a >b"),
        ([("b", "c"), ("c", "a"), ("a", "b"), ("d", "c")], "a >c >>b >>d"),
        ([("a", "a")], "a"),
        ([("a", "human"), ("b", "human")], "a b"),
    ],
)
def test_tree_nests_who_waits_for_whom(waits: list[tuple[str, str]], expected: str) -> None:
    summaries = [wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)]
    assert shape(tree(summaries, [])) == expected


def test_tree_order_is_by_urgency() -> None:
    summaries = [
        wait(1, "late", "human", 5),
        wait(2, "early", "human", 1),
        wait(3, "x", "asked", blocking=False),
    ]
    sessions = [session("gone", ended=True), session("busy")]
    assert shape(tree(summaries, sessions)) == "early late asked busy gone x"


_AGENT = st.sampled_from("abcdefg")


@settings(deadline=None)
@given(st.lists(st.tuples(_AGENT, _AGENT), max_size=20))
def test_tree_shows_each_agent_once(waits: list[tuple[str, str]]) -> None:
    rows = tree([wait(seq, asker, target, seq) for seq, (asker, target) in enumerate(waits, 1)], [])
    seen = [node.agent for node in rows]
    assert sorted(seen) == sorted({agent for edge in waits for agent in edge})


def test_ready_queue_those_that_can_go_on_first() -> None:
    summaries = [
        wait(1, "late", "human", 5),
        wait(2, "early", "architect", 1),
        wait(3, "early", "human", 2),
        wait(4, "free", "human", blocking=False),
        wait(5, "told", "human", status="answered"),
    ]
    sessions = [
        session("late"),
        session("early"),
        session("free", minutes=1),
        session("told", minutes=2),
        session("gone", ended=True),
    ]
    queue = ready_queue(summaries, sessions)
    assert [(item.agent, item.blocked_by) for item in queue] == [
        ("told", ()),
        ("free", ()),
        ("early", ("CLR-42-002", "CLR-42-003")),
        ("late", ("CLR-42-001",)),
    ]
    assert queue[2].since == NOW + MINUTE
    assert queue[0].since is None


def test_ready_queue_agents_without_a_session() -> None:
    foreign: dict[str, Any] = {"producer": None, "session_id": None}
    summaries = [
        wait(1, "engineer", "architect", **foreign),
        wait(2, "Engineer", "human", 1, **foreign),
        wait(3, "engineer", "human", 2, issue_number=43, **foreign),
    ]
    queue = ready_queue(summaries, [])
    assert [(item.agent, item.issue, item.session_id, item.blocked_by) for item in queue] == [
        ("engineer", 42, None, ("CLR-42-001", "CLR-42-002")),
        ("engineer", 43, None, ("CLR-42-003",)),
    ]


@pytest.mark.parametrize(
    ("direct", "waits", "heard", "over", "stays"),
    [
        (True, False, -10, None, False),
        (True, False, -9, None, True),
        (True, False, -60, -9, True),
        (True, False, -60, -10, False),
        (True, True, -60, -30, True),
        (False, False, -60, -30, True),
    ],
)
def test_direct_session_goes_ten_minutes_after_its_last_answer_was_taken(
    *, direct: bool, waits: bool, heard: int, over: int | None, stays: bool
) -> None:
    fact = replace(session("captain", minutes=heard), is_direct=direct)
    key = (fact.producer, fact.session_id)
    ended = {} if over is None else {key: NOW + over * MINUTE}
    assert going_on([fact], lambda _: waits, ended, NOW) == ([fact] if stays else [])
