"""Whether Slack lets this app read history as it does most apps, or about once a minute. Pure but for what it remembers.

Apps that are sold outside of Slack's Marketplace get one call of conversations.history and of conversations.replies a
minute (docs.slack.dev, "Rate limits", since May 2025); all others get fifty. Nothing tells an app which it is, but who
is refused after hardly any call, and for most of a minute, is of the former.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

LIMITED = (
    "Slack seems to allow this app one history call a minute, as for apps sold outside its Marketplace: "
    "replies written while the bot was away may be found minutes late"
)
_MINUTE = timedelta(minutes=1)
_LONG = 20.0  # seconds
_HARDLY_ANY, _MANY = 2, 4  # calls within a minute


class HistoryAllowance:
    """Told of every history call, `trouble` says what seems to be wrong, if anything."""

    def __init__(self) -> None:
        self._let: deque[datetime] = deque(maxlen=_MANY)
        self._limited = False

    def allowed(self, now: datetime) -> None:
        self._let.append(now)
        if len(self._recent(now)) >= _MANY:
            self._limited = False

    def refused(self, now: datetime, retry_after: float) -> None:
        if retry_after >= _LONG and len(self._recent(now)) <= _HARDLY_ANY:
            self._limited = True

    @property
    def trouble(self) -> str | None:
        return LIMITED if self._limited else None

    def _recent(self, now: datetime) -> list[datetime]:
        return [at for at in self._let if now - at < _MINUTE]
