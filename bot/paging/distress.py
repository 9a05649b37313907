"""The bot's own distress: while Slack cannot be reached, no page in Slack arrives, so the pagers outside are told.

Once an outage, after minutes of it, and once more when it is over. What stays undelivered is tried again for as long
as the outage lasts. Time is counted on a monotonic clock: a clock that is set must not make an outage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from bot.errors import PagerError, SlackRefusedError, SlackUnreachableError
from bot.settings.model import Settings
from core.clock import Clock

_log = structlog.get_logger("clarify.pages")
_PATIENCE = 180.0
_EVERY = 15.0


class Sender(Protocol):
    async def send(self, variable: str, title: str, body: str) -> None:
        """Raises PagerError if it was not accepted."""
        ...


class Distress:
    """`run` until cancelled.

    targets: the environment variables with the addresses to tell, see `outside_targets`.
    connected: whether clicks can arrive (Socket Mode).
    probe: a cheap call to Slack; raises SlackError.
    seconds: a monotonic clock; patience and every are in its seconds.
    """

    def __init__(
        self,
        *,
        targets: Iterable[str],
        outside: Sender,
        connected: Callable[[], bool],
        probe: Callable[[], Awaitable[object]],
        clock: Clock,
        seconds: Callable[[], float],
        patience: float = _PATIENCE,
        every: float = _EVERY,
    ) -> None:
        self._targets = tuple(targets)
        self._outside = outside
        self._connected = connected
        self._probe = probe
        self._clock = clock
        self._seconds = seconds
        self._patience = patience
        self._every = every
        self._since: float | None = None
        self._told: set[str] = set()
        self._raised = False

    @property
    def in_distress(self) -> bool:
        """Whether Slack was out of reach for so long that the pagers outside were told."""
        return self._raised

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._every)  # at the start nothing can be up yet
            await self.look()

    async def look(self) -> None:
        """See how things are, and tell where that is due."""
        trouble = await self._trouble()
        if trouble is None:
            self._since = None
            if self._raised:
                await self._recovered()
            return
        if self._since is None:
            self._since = self._seconds()
            _log.warning("Slack cannot be reached", reason=trouble)
        if self._seconds() - self._since >= self._patience:
            await self._raise(trouble)

    async def _trouble(self) -> str | None:
        """What is wrong, in words for people."""
        try:
            await self._probe()
        except SlackUnreachableError:
            return "Slack does not answer"
        except SlackRefusedError as error:
            return f"Slack refuses the bot ({error.code})"
        return None if self._connected() else "Slack's connection for clicks and replies is down"

    async def _raise(self, trouble: str) -> None:
        if not self._raised:
            self._raised = True
            _log.error("in distress", reason=trouble, targets=list(self._targets))
        body = (
            f"{trouble}, for {int(self._patience // 60)} minutes or more. Questions of agents and pages to people on call "
            "do not get through in Slack, or cannot be answered there. Nothing is lost: it is delivered once Slack is back."
        )
        for target in self._targets:
            if target not in self._told and await self._send(target, "clarify-bot cannot reach Slack", body):
                self._told.add(target)

    async def _recovered(self) -> None:
        """Those who were told are told; once, since an alarm that stays on is looked into anyway."""
        told, self._told, self._raised = sorted(self._told), set(), False
        _log.info("Slack is back", targets=told)
        for target in told:
            await self._send(
                target, "clarify-bot reaches Slack again", "What waited meanwhile is being delivered."
            )

    async def _send(self, target: str, title: str, body: str) -> bool:
        try:
            await self._outside.send(target, title, body)
        except PagerError as error:
            _log.error("a pager outside was not told", target=target, reason=str(error))
            return False
        _log.info("a pager outside was told", target=target, page=title)
        return True


def outside_targets(settings: Settings) -> tuple[str, ...]:
    """The environment variables with pagers' addresses that any policy names, each once."""
    notify = [target for policy in settings.on_call for step in policy.steps for target in step.notify]
    return tuple(
        dict.fromkeys(target.removeprefix("apprise:") for target in notify if target.startswith("apprise:"))
    )
