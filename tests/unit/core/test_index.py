from __future__ import annotations

from pathlib import Path

from core.errors import LedgerUnreadable
from core.index import Index, scan
from core.ledger import FileLedger
from core.records import Outline, digest_of
from tests.kit.builders import record

LONG = "Deploy to production? " * 400


async def test_long_texts_are_read_from_the_ledger(tmp_path: Path) -> None:
    ledger, index = FileLedger(tmp_path), Index()
    whole = record(question=LONG, context=LONG, topic="t" * 300)
    await ledger.transact(42, lambda book: book.put(whole))
    index.put(whole)
    known = index.get(whole.id)
    assert isinstance(known, Outline)
    assert len(known.model_dump_json()) < 2000
    assert (known.topic, known.asked_last) == ("t" * 200, whole.asked_last)
    assert digest_of(known) == digest_of(whole)
    found = await index.find(whole.id, ledger)
    assert (found.question, found.asked.context) == (LONG, LONG)
    ledger.close()


async def test_what_is_short_is_known_without_its_ledger(tmp_path: Path) -> None:
    ledger, index = FileLedger(tmp_path), Index()
    assert index.put(record()) is await index.find("CLR-42-001", ledger)
    ledger.close()


async def test_scan_reads_on_after_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    ledger.files.path(7).write_text("{")
    ledger.files.path(100_003).write_text('{"clarifications": [{"id": "junk"}]}')
    found = await scan(ledger, 100_003)
    assert [type(trouble) for trouble in found.troubles] == [LedgerUnreadable]
    assert (found.highest_issue, found.records) == (100_003, [])
    ledger.close()
