from __future__ import annotations

from pathlib import Path

from bot.delivery.inflight import InFlight
from bot.delivery.pageplaces import PagePlaces
from bot.delivery.store import Store
from bot.paging.model import Destination, FreshIncident, Incident
from bot.paging.store import Batch, IncidentStore
from bot.ports import PagePlace
from tests.clocks import START


async def _begun(incidents: IncidentStore, clarification: str | None) -> Incident:
    fresh = FreshIncident(f"e:{clarification}", "escalated", "t", "r", clarification=clarification)
    incident = await incidents.begin(fresh, START)
    assert incident is not None
    return incident


async def test_open_pages_are_those_of_questions_that_wait_and_begin_threads(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "clarify.db")
    incidents, places = IncidentStore(store), PagePlaces(store, InFlight())
    ids = [(await _begun(incidents, about)).id for about in ("CLR-1-001", "CLR-2-001", None)]
    to = (Destination("slack", "U0ONCALL"),)
    await incidents.send(Batch("escalated", None, 0, tuple(ids), to), START)
    assert await places.open_pages() == []  # it is not there yet
    await store.execute("update messages set channel = 'D1', ts = '1.1'")
    await store.execute("update incidents set closed_at = 1 where id = ?", ids[1])
    assert await places.open_pages() == [PagePlace("D1", "1.1", "CLR-1-001")]
    await store.execute("update messages set thread_ts = '1.0'")
    assert await places.open_pages() == []
    await store.close()
