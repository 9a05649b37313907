"""The log's part in the lifecycle of clarifications: which event, of which clarification. Never what it is about."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from core.bus import Bus, LifecycleEvent

_log = structlog.get_logger("clarify.lifecycle")


def log_lifecycle(bus: Bus) -> Callable[[], None]:
    """Log every event on `bus` from now on; returns what ends it."""
    return bus.subscribe(LifecycleEvent, _write)


def _write(event: LifecycleEvent) -> None:
    _log.info(event.name, id=event.clarification_id)
