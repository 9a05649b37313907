from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from core.clarification import Direct
from core.index import Index
from core.ledger import OfIssue
from core.records import Outline
from tests.kit.builders import changed, record
from tests.kit.ledgers import kept_ledger

LONG = "Deploy to production? " * 400


async def test_long_texts_are_read_from_the_ledger(tmp_path: Path) -> None:
    index, whole = Index(), record(question=LONG, context=LONG, topic="t" * 300)
    index.put(whole)
    known = index.get(whole.id)
    assert isinstance(known, Outline)
    assert len(known.model_dump_json()) < 2000
    assert (known.topic, known.asked_last) == ("t" * 200, whole.asked_last)
    assert known.revision == whole.revision
    async with kept_ledger(tmp_path) as ledger:
        await ledger.transact(OfIssue(42), lambda book: book.put(whole))
        found = await index.find(whole.id, ledger)
    assert (found.question, found.asked.context) == (LONG, LONG)


async def test_what_is_short_is_known_without_its_ledger(tmp_path: Path) -> None:
    index = Index()
    async with kept_ledger(tmp_path) as ledger:
        assert index.put(record()) is await index.find("CLR-42-001", ledger)


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
