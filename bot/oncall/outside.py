"""What the bot sends outside Slack: pages, the alert that Slack is down, the heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol

import structlog
from pydantic import SecretStr

from bot import integrations
from bot.checks import CheckResult, right, wrong
from bot.errors import NotLeading, SlackRefusedError, SlackUnreachableError
from bot.http import NETWORK, HttpClient, words
from bot.settings.model import Settings
from bot.show.outbox import Delivered, Outcome, RetryLater
from bot.storage.store import Acting
from bot.telemetry import Telemetry
from core.clock import Clock, event_or_time

_log = structlog.get_logger("clarify.pages")
_heartbeat_log = structlog.get_logger("clarify.heartbeat")
_LIMIT = 15.0
_TITLE, _BODY = 200, 3000  # characters; services with lower limits truncate themselves
_OUTAGE = 180.0  # seconds that Slack may be down before the outside pagers are alerted
_EVERY = 15.0
REMOVED = (
    "the app was removed from the workspace, or its token was revoked. Install the app again, set SLACK_BOT_TOKEN to its "
    "new token, and restart the bot."
)


class PagerText(NamedTuple):
    """A page in plain text."""

    title: str
    body: str


class OutsidePager(Protocol):
    """A pager that needs no Slack: one for each address."""

    async def send(self, page: PagerText, /) -> Outcome:
        """Makes one attempt: only the caller retries. The reason of a failure contains no secrets."""
        ...


@dataclass(frozen=True)
class BrokenPager:
    """In place of a pager whose integration cannot be used."""

    kind: str
    why: str

    async def send(self, _: PagerText) -> Outcome:
        return RetryLater(f"{self.kind} cannot be used ({self.why}); see the log")


SendOutside = Callable[[str, PagerText], Awaitable[Outcome]]
"""Sends to the address in an environment variable; see `Outside.send`."""


@dataclass(eq=False)
class Outside:
    """Sends to the outside pagers, which are named by the environment variable that holds the address of each.

    acting: see `Store.acting`.
    limit: seconds that one sending may take.
    """

    pagers: Mapping[str, OutsidePager]
    telemetry: Telemetry
    acting: Acting = field(kw_only=True, default=nullcontext)
    limit: float = field(kw_only=True, default=_LIMIT)

    async def send(self, variable: str, page: PagerText) -> Outcome:
        """Returns once the service accepted the page, or did not."""
        shown = PagerText(page.title[:_TITLE], page.body[:_BODY])
        outcome: Outcome
        try:
            async with self.acting(), asyncio.timeout(self.limit):
                outcome = await self.pagers[variable].send(shown)
        except NotLeading as error:
            outcome = RetryLater(str(error))
        except TimeoutError:
            outcome = RetryLater(f"no answer within {self.limit:g} s")
        except Exception as error:  # noqa: BLE001 - a fault of a pager; its message may hold the address
            outcome = RetryLater(type(error).__name__)
        self.telemetry.paged("outside", "sent" if isinstance(outcome, Delivered) else "failed")
        if not isinstance(outcome, Delivered):
            _log.error("an outside pager did not take a page", through=variable, reason=outcome.reason)
        return outcome


@dataclass(kw_only=True, eq=False)
class SlackOutageAlert:
    """Alerts the outside pagers when Slack cannot be reached, since no page in Slack arrives then; `run` until cancelled.

    Once per outage, after minutes of it, and once more when it is over; at once if Slack says that the app was removed
    (`look_now`). A pager that cannot be reached is retried while the outage lasts.

    targets: the environment variables with the addresses.
    connected: whether clicks can arrive (Socket Mode).
    probe: a cheap call to Slack; raises SlackError.
    seconds: a monotonic clock, so that setting the clock makes no outage; patience and every are in its seconds.
    is_raised: whether the pagers were alerted, and the outage is not over.
    """

    targets: Iterable[str]
    send_outside: SendOutside
    connected: Callable[[], bool]
    probe: Callable[[], Awaitable[object]]
    clock: Clock
    seconds: Callable[[], float]
    patience: float = _OUTAGE
    every: float = _EVERY
    _since: float | None = field(default=None, init=False)
    _told: set[str] = field(default_factory=set, init=False)
    _is_removed: bool = field(default=False, init=False)  # says Slack
    _awake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    is_raised: bool = field(default=False, init=False)

    async def run(self) -> None:
        while True:
            await event_or_time(self.clock, self._awake, self.every)  # at the start nothing can be up yet
            self._awake.clear()
            await self.look()

    def look_now(self) -> None:
        """Have Slack asked at once, since it says that the app was removed or its token revoked. If it refuses the bot, the
        pagers are alerted without more patience.
        """
        self._is_removed = True
        self._awake.set()

    async def look(self) -> None:
        """Check Slack, and send the alert or the all-clear if due."""
        trouble, is_refused = await self._trouble()
        if trouble is None:
            self._since, self._is_removed = None, False
            if self.is_raised:
                await self._recovered()
            return
        if self._since is None:
            self._since = self.seconds()
            _log.warning("Slack cannot be reached", reason=trouble)
        removed = self._is_removed and is_refused
        if removed or self.seconds() - self._since >= self.patience:
            await self._raise(trouble, removed=removed)

    async def _trouble(self) -> tuple[str | None, bool]:
        """What is wrong, in words for people, and whether it is that Slack refuses the bot."""
        try:
            await self.probe()
        except SlackUnreachableError:
            return "Slack does not answer", False
        except SlackRefusedError as error:
            return f"Slack refuses the bot ({error.code})", True
        return None if self.connected() else "Slack's connection for clicks and replies is down", False

    async def _raise(self, trouble: str, *, removed: bool) -> None:
        if not self.is_raised:
            self.is_raised = True
            _log.error("Slack outage alert", reason=trouble, targets=list(self.targets))
        body = (
            f"{trouble}: {REMOVED}"
            if removed
            else f"{trouble}, for {int(self.patience // 60)} minutes or more."
        )
        body += (
            " Agents' questions and pages to on-call don't reach Slack, or can't be answered there. "
            "Nothing is lost: everything is delivered once Slack is back."
        )
        for target in self.targets:
            if target not in self._told:
                outcome = await self.send_outside(target, PagerText("clarify-bot cannot reach Slack", body))
                if not isinstance(outcome, RetryLater):
                    self._told.add(target)

    async def _recovered(self) -> None:
        """Send the all-clear to those who got the alert; once, since people look into an alarm that stays on."""
        told, self._told, self.is_raised = sorted(self._told), set(), False
        _log.info("Slack is reachable again", targets=told)
        for target in told:
            text = PagerText("clarify-bot reaches Slack again", "The backlog is being delivered.")
            await self.send_outside(target, text)


def check_pagers(settings: Settings) -> Iterator[CheckResult]:
    """Show the service behind each notification URL, and each step's hours. Sends nothing and never shows the URL."""
    for index, on_call in enumerate(settings.on_call):
        for number, step in enumerate(on_call.steps):
            if step.hours is not None:
                told = f"{', '.join(step.notify)} only {step.hours}, on the clocks of {on_call.zone}"
                yield right(f"on_call[{index}].steps[{number}]", told)
        for variable, kind in on_call.pagers.items():
            subject = f"on_call[{index}].steps"
            try:
                paging = integrations.load(kind).paging
                service = None if paging is None else paging.service(settings.secret(variable))
            except Exception as error:  # noqa: BLE001 - others wrote it
                yield wrong(subject, f"{kind} cannot be used ({type(error).__name__})", "update it")
                continue
            if service is None:
                fix = "give it an address as the documentation of that pager describes"
                yield wrong(subject, f"the value of {variable} is not a URL that {kind} can notify", fix)
            else:
                yield right(subject, f"{variable} notifies through {service}")


@dataclass(eq=False)
class Heartbeat:
    """Sends a GET to a monitoring service while `is_well()`; without it, the service raises the alarm.

    `url` is a secret: monitoring services put their key into it.
    """

    url: SecretStr
    every: timedelta
    clock: Clock
    is_well: Callable[[], Awaitable[bool]]
    _trouble: str | None = field(default=None, init=False)

    async def run(self) -> None:
        async with HttpClient(None) as http:
            while True:
                if await self.is_well():
                    self._note(await self._beat(http))
                await self.clock.sleep(self.every.total_seconds())

    async def _beat(self, http: HttpClient) -> str | None:
        """Send one heartbeat; returns the error, without the address, or None."""
        try:
            async with http.stream("GET", self.url.get_secret_value()) as response:
                return None if 200 <= response.status < 300 else f"HTTP {response.status}"
        except NETWORK as error:
            return words(error)

    def _note(self, trouble: str | None) -> None:
        """Log changes only, not every minute."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            _heartbeat_log.info("heartbeat works again")
        else:
            _heartbeat_log.warning("heartbeat failed", reason=trouble)
