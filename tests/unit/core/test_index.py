from __future__ import annotations

from pathlib import Path

from core.clarification import (
    Holder,
    escalated,
    handed,
    taken,
)
from core.errors import LedgerUnreadable
from core.index import scan, summarize
from core.ledger import FileLedger
from core.records import dump, parse
from tests.kit.builders import MINUTE, NOW, record


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


def test_summary_holds_whole_characters_only() -> None:
    half = {"from": "\ud83d", "to": "\ud83d", "topic": "\ud83d"}
    asked = dump(record())["aaep"] | dict.fromkeys(("agentId", "producer", "sessionId"), "\ud83d")
    found = parse(dump(record()) | half | {"aaep": asked})
    assert found is not None
    seen = summarize(found)
    texts = (seen.from_, seen.to, seen.topic, seen.agent_id, seen.producer, seen.session_id)
    assert texts == ("\ufffd",) * 6


async def test_scan_reads_on_after_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    ledger.files.path(7).write_text("{")
    ledger.files.path(100_003).write_text('{"clarifications": [{"id": "junk"}]}')
    found = await scan(ledger, 100_003)
    assert [type(trouble) for trouble in found.troubles] == [LedgerUnreadable]
    assert (found.highest_issue, found.summaries) == (100_003, [])
    ledger.close()
