"""Rate limits as Slack's tiers have them: token buckets, one per method, for posts one per channel.

Pure but for the buckets' own levels; the time is an argument. Source: docs.slack.dev, "Rate limits".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """`per_minute` calls on average, `burst` at once."""

    per_minute: float
    burst: int


TIERS = {
    "tier1": Tier(1, 3),
    "tier2": Tier(20, 20),
    "tier3": Tier(50, 50),
    "tier4": Tier(100, 100),
    "special": Tier(600, 100),
    "post": Tier(60, 4),
}


@dataclass
class _Bucket:
    level: float
    at: float


class Limiter:
    """Says how long a call has to wait; a refused call costs nothing."""

    def __init__(self, tiers: dict[str, Tier] | None = None) -> None:
        self._tiers = {**TIERS, **(tiers or {})}
        self._buckets: dict[str, _Bucket] = {}

    def wait(self, tier: str, key: str, now: float) -> float:
        """Seconds until the call may be made: 0 where it may be made now (and is then counted)."""
        limits = self._tiers[tier]
        rate = limits.per_minute / 60
        bucket = self._buckets.setdefault(key, _Bucket(float(limits.burst), now))
        bucket.level = min(float(limits.burst), bucket.level + max(0.0, now - bucket.at) * rate)
        bucket.at = now
        if bucket.level >= 1:
            bucket.level -= 1
            return 0.0
        return (1 - bucket.level) / rate
