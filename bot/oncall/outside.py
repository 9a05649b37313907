"""What the bot sends outside Slack: pages, the alert that Slack is down, the heartbeat.

Outside pagers (PagerDuty, Opsgenie, e-mail, SMS …) are reached through apprise, which can block for long. Each sending
therefore has a daemon thread of its own, abandoned after a timeout, so that one that hangs never delays shutdown.

To add a pager: name an environment variable with its apprise address in a step, as `apprise:VARIABLE`. To add a kind of
pager: see `PAGERS` in `bot.settings.model`; how it sends is a row of `_SENDERS` here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from pydantic import SecretStr

from bot.checks import CheckResult, right, wrong
from bot.errors import NotLeading, PagerError, SlackRefusedError, SlackUnreachableError
from bot.http import NETWORK, HttpClient, words
from bot.settings.environment import SERVICES
from bot.settings.model import Settings
from bot.storage.store import Acting
from bot.telemetry import Telemetry
from core.clock import Clock, event_or_time

_log = structlog.get_logger("clarify.pages")
_heartbeat_log = structlog.get_logger("clarify.heartbeat")
_LIMIT = 15.0
_MOST_HANGING = 32
_TITLE, _BODY = 200, 3000  # characters; services with lower limits truncate themselves
_OUTAGE = 180.0  # seconds that Slack may be down before the outside pagers are alerted
_EVERY = 15.0
REMOVED = (
    "the app was removed from the workspace, or its token was revoked. Install the app again, set SLACK_BOT_TOKEN to its "
    "new token, and restart the bot."
)
SendOutside = Callable[[str, str, str], Awaitable[None]]
"""Sends a title and a text to the address in an environment variable; see `Outside.send`."""


@dataclass(eq=False)
class Outside:
    """Sends to outside pagers. `kinds` and `secrets` (`Secrets.by_variable`): the kind and the address of each, by the
    environment variable that holds the address.

    acting: see `Store.acting`.
    limit: seconds that one sending may take.
    """

    kinds: Mapping[str, str]
    secrets: Mapping[str, SecretStr]
    telemetry: Telemetry
    acting: Acting = field(kw_only=True, default=nullcontext)
    limit: float = field(kw_only=True, default=_LIMIT)
    _hanging: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        # Its log lines quote addresses, which hold keys; PagerError says what went wrong.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)

    async def send(self, variable: str, title: str, body: str) -> None:
        """Send plain text to the address in `variable`; returns once the service accepted it.

        Raises:
            PagerError: it was not accepted, or the outcome is unknown. Names the variable, never the address.
        """
        try:
            await self._send(variable, title, body)
        except PagerError:
            self.telemetry.paged("outside", "failed")
            raise
        self.telemetry.paged("outside", "sent")

    async def _send(self, variable: str, title: str, body: str) -> None:
        secret = self.secrets.get(variable)
        if secret is None:
            raise PagerError(f"{variable} is not set")
        if self._hanging >= _MOST_HANGING:
            raise PagerError(f"{variable}: {self._hanging} earlier alerts are still being sent")
        try:
            async with self.acting(), asyncio.timeout(self.limit):
                await self._in_thread(variable, secret, title[:_TITLE], body[:_BODY])
        except NotLeading as error:
            raise PagerError(f"{variable}: {error}") from None
        except TimeoutError:
            raise PagerError(f"{variable}: no answer within {self.limit:g} s") from None

    def _in_thread(self, variable: str, secret: SecretStr, title: str, body: str) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(problem: PagerError | None) -> None:
            self._hanging -= 1
            if done.done():
                return
            if problem is not None:
                done.set_exception(problem)
            else:
                done.set_result(None)

        def work() -> None:
            problem = _SENDERS[self.kinds[variable]](variable, secret, title, body)
            with suppress(RuntimeError):  # the loop is closed: nothing waits for it
                loop.call_soon_threadsafe(tell, problem)

        self._hanging += 1
        threading.Thread(target=work, name=f"pager {variable}", daemon=True).start()
        return done


def _through_apprise(variable: str, secret: SecretStr, title: str, body: str) -> PagerError | None:
    """Blocks until the service accepted it, or did not."""
    import apprise  # noqa: PLC0415 - takes a second: not on the event loop, and only if a pager is configured

    asset = apprise.AppriseAsset(app_id="clarify-bot", app_desc="clarify-bot", async_mode=False)
    try:
        pager = apprise.Apprise(asset=asset)
        if not pager.add(secret.get_secret_value()):
            return PagerError(f"{variable} is not an address that apprise understands")
        accepted = pager.notify(
            body=body,
            title=title,
            notify_type=apprise.NotifyType.WARNING,
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001 - any plugin error; its message may hold the address
        return PagerError(f"{variable}: {type(error).__name__} in apprise")
    return None if accepted else PagerError(f"{variable}: the service rejected it or cannot be reached")


_SENDERS: Mapping[str, Callable[[str, SecretStr, str, str], PagerError | None]] = {
    "apprise": _through_apprise
}
"""How each kind of pager sends (variable, address, title, body); returns the error, or None."""


@dataclass(kw_only=True, eq=False)
class SlackOutageAlert:
    """Alerts the outside pagers when Slack cannot be reached, since no page in Slack arrives then; `run` until cancelled.

    Once per outage, after minutes of it, and once more when it is over; at once if Slack says that the app was removed
    (`look_now`). A pager that cannot be reached is retried while the outage lasts.

    targets: the environment variables with the addresses, see `outside_pagers`.
    connected: whether clicks can arrive (Socket Mode).
    probe: a cheap call to Slack; raises SlackError.
    seconds: a monotonic clock, so that setting the clock makes no outage; patience and every are in its seconds.
    is_raised: whether the pagers were alerted, and the outage is not over.
    """

    targets: Collection[str]
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
            if target not in self._told and await self._send(target, "clarify-bot cannot reach Slack", body):
                self._told.add(target)

    async def _recovered(self) -> None:
        """Send the all-clear to those who got the alert; once, since people look into an alarm that stays on."""
        told, self._told, self.is_raised = sorted(self._told), set(), False
        _log.info("Slack is reachable again", targets=told)
        for target in told:
            await self._send(target, "clarify-bot reaches Slack again", "The backlog is being delivered.")

    async def _send(self, target: str, title: str, body: str) -> bool:
        try:
            await self.send_outside(target, title, body)
        except PagerError as error:
            _log.error("cannot tell the outside pager", target=target, reason=str(error))
            return False
        _log.info("outside pager told", target=target, page=title)
        return True


def outside_pagers(settings: Settings) -> dict[str, str]:
    """The environment variables with pagers' addresses in any policy, with the kind of each."""
    return {variable: kind for policy in settings.on_call for variable, kind in policy.pagers.items()}


def check_pagers(settings: Settings) -> Iterator[CheckResult]:
    """Show the service behind each notification URL, and each step's hours. Sends nothing and never shows the URL."""
    for index, on_call in enumerate(settings.on_call):
        for number, step in enumerate(on_call.steps):
            if step.hours is not None:
                told = f"{', '.join(step.notify)} only {step.hours}, on the clocks of {on_call.zone}"
                yield right(f"on_call[{index}].steps[{number}]", told)
        for variable, kind in on_call.pagers.items():
            subject = f"on_call[{index}].steps"
            service = SERVICES[kind](settings.secrets.by_variable[variable].get_secret_value())
            if service is None:
                fix = "give it a URL as https://github.com/caronc/apprise/wiki describes"
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
