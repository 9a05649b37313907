"""What somebody has to take: kept once, with what happened to it, and taken up after a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.oncall.incidents import Incident, Incidents
from bot.storage.opening import open_storage
from bot.storage.store import Store
from core.escalation import (
    Began,
    Failed,
    Handed,
    Happening,
    IncidentClosed,
    Left,
    NewIncident,
    NotMine,
    Paged,
    Snoozed,
    Taken,
)
from tests.kit.clocks import START, ManualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_storage(tmp_path / "clarify.db")
    yield opened
    await opened.close()


@pytest.fixture
def incidents(store: Store) -> Incidents:
    return fresh(store)


def fresh(store: Store) -> Incidents:
    """As after a start, before `restore`."""
    return Incidents(store, ManualClock(), lambda agent: f"policy of {agent}")


async def raised(incidents: Incidents, key: str = "errored:1", clarification: str | None = None) -> Incident:
    found = await incidents.raise_(NewIncident(key, "r", "t", agent_id="a", clarification=clarification))
    assert found is not None
    return found


def there(incidents: Incidents) -> list[Incident]:
    return [each.incident for each in incidents]


async def test_incident_is_kept_once_also_when_it_is_closed(incidents: Incidents) -> None:
    first = await raised(incidents)
    assert (first.kind, first.policy) == ("errored", "policy of a")
    assert await incidents.raise_(NewIncident("errored:1", "r", "t")) is None
    assert there(incidents) == [first]
    await incidents.happened([(first.id, IncidentClosed(START))])
    assert await incidents.raise_(NewIncident("errored:1", "r", "t")) is None
    assert there(incidents) == []
    half = "half \ud800 a character"  # of another implementation
    odd = await incidents.raise_(NewIncident("errored:2", half, half, half))
    assert odd is not None
    assert there(incidents) == [odd]


async def test_history_is_read_back_as_it_was_written(store: Store, incidents: Incidents) -> None:
    incident = await raised(incidents)
    at = START + timedelta(seconds=1, microseconds=123)
    history: list[Happening] = [
        Paged(at, 0),
        Failed(at, 0),
        Paged(at, -1),
        Taken(at, "U1"),
        Handed(at, "U2", "U1"),
        Snoozed(at, at + timedelta(minutes=10), "U2"),
        NotMine(at, "U2"),
        Left(at, "U2"),
    ]
    await incidents.happened([(incident.id, each) for each in history])
    (read,) = await incidents.all([incident.id])
    assert read.history == [Began(START), *history]
    again = fresh(store)
    await again.load()
    (each,) = again
    assert (each.incident, each.history) == (incident, [Began(START), *history])
    assert again.take_due(START) == [each]
    assert again.awake.is_set()


async def test_what_is_due_comes_once_by_its_latest_time(incidents: Incidents) -> None:
    for n in range(2):
        await raised(incidents, f"errored:{n}")
    one, other = incidents
    other.due = START + timedelta(seconds=9)
    assert incidents.take_due(START) == [one]
    assert incidents.take_due(START) == []
    assert incidents.next_due() == START + timedelta(seconds=1), "unless it is scheduled anew"
    one.due = None
    assert incidents.next_due() == START + timedelta(seconds=9)
    await incidents.close([other])
    assert incidents.next_due() is None
    assert list(incidents) == [one]


async def test_set_back_clock_has_everything_looked_at(incidents: Incidents) -> None:
    await raised(incidents)
    (each,) = incidents.take_due(START)
    each.due = START + timedelta(hours=1)
    assert incidents.take_due(START - timedelta(minutes=5)) == [each]
