from __future__ import annotations

from datetime import UTC, datetime

from structlog.testing import capture_logs

from bot.lifecycle import log_lifecycle
from core.bus import Answered, Bus, Escalated, LifecycleEvent, Requested, Resolved, Stale


def event(kind: type[LifecycleEvent]) -> LifecycleEvent:
    at = datetime(2026, 5, 24, tzinfo=UTC)
    return kind("CLR-42-001", 42, "engineer", "architect", "which database", blocking=True, timestamp=at)


def test_each_event_is_logged_by_name_and_id_never_the_topic() -> None:
    bus = Bus()
    log_lifecycle(bus)
    kinds = [Requested, Stale, Escalated, Answered, Resolved]
    with capture_logs() as logs:
        for kind in kinds:
            bus.publish(event(kind))
    assert logs == [{"event": kind.name, "id": "CLR-42-001", "log_level": "info"} for kind in kinds]


def test_log_ends_when_told() -> None:
    bus = Bus()
    stop = log_lifecycle(bus)
    stop()
    with capture_logs() as logs:
        bus.publish(event(Requested))
    assert logs == []
