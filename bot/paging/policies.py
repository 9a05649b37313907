"""The on-call policies of the configuration, as the policy's own arithmetic takes them."""

from __future__ import annotations

from datetime import timedelta

from bot.settings.model import OnCallSettings, Settings
from core.escalation import Policy, Step

LAST = "last resort"
_TAKE_TIMEOUT = timedelta(minutes=15)


class Policies:
    """A route without a policy has the last resort only; so has one whose policy is configured no more."""

    def __init__(self, settings: Settings) -> None:
        self._nobody = Policy((), _TAKE_TIMEOUT)
        self._by_name = {each.name: _policy(each) for each in settings.on_call}

    def of(self, name: str | None) -> Policy:
        return self._by_name.get(name or "", self._nobody)

    def known(self, name: str | None) -> str | None:
        """`name`, if it is configured."""
        return name if name in self._by_name else None

    def notify(self, name: str | None, step: int, holder: str | None) -> tuple[str, ...]:
        """Whom a step tells. Without steps, what somebody was handed goes to them."""
        policy = self.of(name)
        if 0 <= step < len(policy.steps):
            return policy.steps[step].notify
        return ("dm",) if holder is not None and not policy.steps else (LAST,)


def _policy(settings: OnCallSettings) -> Policy:
    steps = tuple(Step(each.after, tuple(each.notify), each.every) for each in settings.steps)
    return Policy(steps, settings.take_timeout)
