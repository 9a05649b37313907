"""The `[monitor]` table: when a question counts as stale, which errors page, who watches the watcher."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import field_validator

from bot.settings.table import EnvironmentName, LongerThanNothing, Table

DEADLOCK_ORDER = ("product-manager", "architect", "ux-designer", "engineer", "reviewer", "devops-engineer")
# AAEP's own, then those found in the wild.
ErrorCategory = Literal[
    "transient",
    "permanent",
    "requires_user",
    "unknown",
    "network",
    "timeout",
    "authorization",
    "invalid_input",
    "internal",
    "policy",
]
# They name themselves; any other category, and none, is `unknown`.
_APART = frozenset({"transient", "permanent", "requires_user", "unknown", "network", "timeout"})


class MonitorSettings(Table):
    """`heartbeat_env` names a variable whose value, a URL, is called every `heartbeat_every` while all is well."""

    sla: LongerThanNothing = timedelta(minutes=30)
    alarm: bool = True
    deadlock_order: tuple[str, ...] = DEADLOCK_ORDER
    page_errors: tuple[ErrorCategory, ...] = ("requires_user", "permanent", "unknown")
    heartbeat_env: EnvironmentName | None = None
    heartbeat_every: LongerThanNothing = timedelta(minutes=1)

    @field_validator("deadlock_order")
    @classmethod
    def _told_apart(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < len(order) or not all(name.strip() for name in order):
            raise ValueError("expected each agent once, the most upstream first")
        return order

    def pages_error(self, category: str | None) -> bool:
        """Whether a session that ended with an error of this category pages on-call."""
        if category in self.page_errors:
            return True
        return category not in _APART and "unknown" in self.page_errors
