from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.clarification import Clarification, Direct, Holder, round_with
from core.errors import RecordUnreadable
from core.index import Index
from core.ledger import OfIssue
from core.records import dump, packed, parse, unpacked
from core.summary import Seen, packed_summary, summary_of, unpacked_summary
from tests.kit.builders import NOW, changed, record
from tests.kit.ledgers import kept_ledger


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
