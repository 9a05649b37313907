"""What time makes of clarifications: pure functions from what is open and the time to findings.

So far the one finding that needs nobody's judgement: abandoned, because the question's own time ran out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from core.index import Summary


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Literal["abandoned"]
    clarification: str
    issue: int


def findings(open_ones: Iterable[Summary], now: datetime) -> list[Finding]:
    """What is due at `now`, the longest overdue first."""
    due = [s for s in open_ones if s.is_open and s.expires_at is not None and s.expires_at <= now]
    due.sort(key=lambda s: (s.expires_at or now, s.id))
    return [Finding("abandoned", summary.id, summary.issue) for summary in due]


def next_due(open_ones: Iterable[Summary]) -> datetime | None:
    """When `findings` can next say something new, if nothing changes."""
    return min((s.expires_at for s in open_ones if s.is_open and s.expires_at is not None), default=None)
