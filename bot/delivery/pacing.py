"""What is sent first. Pure."""

from __future__ import annotations

# Order of sending (design): pages, removal of dead controls, cards by time left, notices.
PAGE, DEAD_CONTROLS, CARD, NOTICE = range(4)


def card_priority(expires_at: float | None) -> tuple[int, float]:
    """Cards by time left; those that never expire last."""
    return (CARD, expires_at if expires_at is not None else float("inf"))
