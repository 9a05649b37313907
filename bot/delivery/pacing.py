"""When the next post may go, and what goes first. Pure: the clock's time comes in as a number."""

from __future__ import annotations

from dataclasses import dataclass

from core.clock import backoff

# Order of sending (design): pages, removal of dead controls, cards by time left, notices.
PAGE, DEAD_CONTROLS, CARD, NOTICE = range(4)


@dataclass(slots=True)
class Pace:
    """The slots of one channel: posts at least `1 / posts_per_second` apart, nothing while Slack said to wait.

    Times are seconds of a monotonic clock.
    """

    posts_per_second: float
    next_slot: float = 0.0
    paused_until: float = 0.0
    guessed: bool = False  # how long to pause: Slack did not say
    failures: int = 0

    def wait(self, now: float, *, post: bool) -> float:
        """Seconds until a post (or an update) may go."""
        until = max(self.paused_until, self.next_slot) if post else self.paused_until
        return max(0.0, until - now)

    def posted(self, now: float) -> None:
        """A post began."""
        self.next_slot = now + 1.0 / self.posts_per_second

    def refused(self, now: float, retry_after: float | None) -> None:
        """Slack said "later": wait as told, else longer each time, up to a minute."""
        self.failures += 1
        wait = retry_after if retry_after is not None else backoff(self.failures, first=0.5, longest=60.0)
        if now + wait >= self.paused_until:
            self.paused_until, self.guessed = now + wait, retry_after is None

    def slack_is_back(self) -> None:
        """Slack answers elsewhere: no need to guess any longer."""
        if self.guessed:
            self.paused_until, self.guessed = 0.0, False

    def went_well(self) -> None:
        self.failures = 0


def card_priority(expires_at: float | None) -> tuple[int, float]:
    """Cards by time left; those that never expire last."""
    return (CARD, expires_at if expires_at is not None else float("inf"))
