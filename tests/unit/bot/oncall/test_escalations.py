"""What becomes of an escalation that cannot be handled. How they are paged: `tests/scenario/test_paging.py`."""

from __future__ import annotations

from math import inf

import pytest

from bot.oncall.incidents import Incident, Incidents
from bot.oncall.pager import Escalations
from bot.storage.changes import Position, RecordChange
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from core.escalation import NewIncident
from core.ledger import OfIssue
from core.transitions import escalated
from tests.kit import builders
from tests.kit.builders import LATER
from tests.kit.clocks import ManualClock

FIRST, SECOND = "CLR-42-001", "CLR-42-002"


async def test_escalation_that_cannot_be_handled_is_tried_again_ever_later_while_others_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    ledger, incidents = DatabaseLedger(store, clock), Incidents(store, clock, lambda _: None)
    escalations, tries, raise_ = Escalations(incidents, ledger, clock), list[float](), incidents.raise_

    async def defective(new: NewIncident) -> Incident | None:
        if new.clarification == FIRST:
            tries.append(clock.steady())
            raise KeyError("a defect")
        return await raise_(new)

    def paged() -> list[str | None]:
        return [each.incident.clarification for each in incidents]

    async def pass_by(seconds: int) -> None:
        for _ in range(seconds):
            await escalations.work()
            await escalations.work()
            assert escalations.seconds_left() > 0
            assert not incidents.awake.is_set()
            await clock.advance(1)

    with monkeypatch.context() as patched:
        patched.setattr(incidents, "raise_", defective)
        for seq, name in ((1, FIRST), (2, SECOND)):
            record = escalated(builders.record(seq=seq), "by hand", "", LATER)
            await ledger.transact(OfIssue(42), lambda book, record=record: book.put(record))  # type: ignore[misc]
            escalations.observe(RecordChange(Position(1, seq), name, 1, "escalated/1", LATER))
        await escalations.work()
        incidents.awake.clear()
        assert paged() == [SECOND]
        await pass_by(190)
    assert tries == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    assert escalations.undone == Position(1, 1), "the next start is told of it again"
    assert escalations.trouble() == f"1 not followed, will retry: {FIRST}"
    await clock.advance(60)
    assert escalations.seconds_left() == 0
    await escalations.work()
    assert paged() == [SECOND, FIRST]
    assert escalations.undone is None
    assert escalations.trouble() is None
    assert escalations.seconds_left() == inf
