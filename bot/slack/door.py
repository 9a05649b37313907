"""The Slack side as one part: who we are, what was missed, then the open door for clicks and replies."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Protocol

import structlog
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bot import phrases
from bot.audience import Audiences
from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.slack.allowance import HistoryAllowance
from bot.slack.app import build_app, dispatcher, handler, who_am_i
from bot.slack.backfill import Backfill
from bot.slack.build import Parts
from bot.slack.http import RequestUrl
from bot.slack.later import Later
from bot.slack.lookback import LookBack
from bot.slack.socket import SlackSocket
from bot.slack.unread import OpenThreads
from bot.slack.wiring import Ports
from bot.slackapi import SlackBusyError

_log = structlog.get_logger("clarify.slack")
# Cards wait until it is known who we are, and clicks can be taken. Seconds.
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 4.0


class Line(Protocol):
    """How Slack reaches us."""

    @property
    def connected(self) -> bool: ...

    @property
    def since(self) -> datetime:
        """Since when `connected` is what it is."""
        ...

    async def start(self) -> None:
        """Returns when clicks come in; raises SlackRefusedError where they never will."""
        ...

    async def wait(self) -> None:
        """Returns after `stop`; raises what ended the line."""
        ...

    async def stop(self) -> None: ...


class SlackDoor:
    """`introduce`, `look_back`, `open`, in this order; `close` at any time. `expect` before questions can expire.

    `request_url`: in mode "http", what the server is to hand Slack's requests to, from the beginning.
    """

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._settings, self._web, self._people = ports.settings, ports.web, ports.people
        self._memory, self._clock, self._rng = ports.memory, ports.clock, ports.rng
        self._later = Later()
        self.ready = asyncio.Event()  # clicks are taken
        self._threads = OpenThreads(
            memory=ports.memory,
            pages=ports.pages,
            rollups=ports.rollup_threads,
            index=ports.index,
            audiences=Audiences(ports.settings),
        )
        self._allowance = HistoryAllowance()
        self._look_back: LookBack | None = None
        self._looking: asyncio.Task[None] | None = None
        secret = self._settings.secrets.signing_secret
        self.request_url = (
            RequestUrl(signing_secret=secret.get_secret_value(), clock=self._clock)
            if self._settings.slack.mode == "http" and secret is not None
            else None
        )
        self._line: Line | None = None

    @property
    def connected(self) -> bool:
        """Whether clicks reach us now."""
        return self._line is not None and self._line.connected

    @property
    def deaf_since(self) -> datetime | None:
        """Since when nothing reaches us that reached us before; None: it does, or nothing did yet."""
        if self._line is None or self._line.connected or not self.ready.is_set():
            return None
        return self._line.since

    @property
    def other_bots(self) -> str | None:
        """That another bot shares our Slack app; None: we are alone."""
        others = self._line.others if isinstance(self._line, SlackSocket) else 0
        return f"{phrases.OTHER_BOT} (connections besides ours: {others})" if others else None

    def suspect(self) -> None:
        """A click came here that was meant for another bot."""
        if isinstance(self._line, SlackSocket):
            self._line.suspect()

    @property
    def history_trouble(self) -> str | None:
        """What keeps us from reading what was missed, if anything does."""
        return self._allowance.trouble

    async def expect(self) -> None:
        """Before anything is asked of Slack: whatever is open may have been answered while we were away.

        Raises:
            StorageUnavailable: what is open in Slack is not known.
        """
        self._ports.unread.expect(await self._threads.now())

    @property
    def unusable_answerers(self) -> str | None:
        """Which entries of the lists of answerers admit nobody, and why; None if all are well."""
        return "; ".join(self._ports.access.troubles()) or None

    async def introduce(self) -> None:
        """Learn from Slack who we are and who may answer; waits for as long as Slack is away.

        Raises:
            ConfigurationError: a token that Slack refuses, or a route that nobody could answer.
        """
        wait = _FIRST_RETRY
        while True:
            try:
                me = await who_am_i(self._people, self._web)
                await self._ports.access.check()
                break
            except SlackUnreachableError as error:
                _log.warning("Slack does not answer", reason=str(error))
                if isinstance(error, SlackBusyError):
                    await self._clock.sleep(error.after)
                    continue
                await self._ports.pulse.rest(wait)
                wait = min(_LONGEST_RETRY, wait * 2)
            except SlackRefusedError as error:
                raise ConfigurationError(
                    [f"Slack refuses the token in SLACK_BOT_TOKEN: {error.code}"]
                ) from error
        self._build(me)

    def _build(self, me: AuthorizeResult) -> None:
        parts = Parts(self._ports, self._later, me.bot_user_id or "", me.team_id or "", owed=self._owe)
        app = build_app(web=self._web, me=me, surface=parts.surface)
        backfill = Backfill(
            web=self._web,
            memory=self._memory,
            threads=self._threads,
            unread=self._ports.unread,
            allowance=self._allowance,
            pulse=self._ports.pulse,
            intake=parts.intake,
            clock=self._clock,
        )
        self._look_back = LookBack(backfill, parts.intake, self._clock)
        self._line = self._joined(app)

    def _owe(self) -> None:
        """Something may have been missed."""
        if self._look_back is not None:
            self._look_back.owe()

    async def _returned(self) -> None:
        """Slack reaches us again."""
        self._owe()

    def _joined(self, app: AsyncApp) -> Line:
        """The app at the end of its line, which tells when something may have been missed."""
        if self.request_url is not None:
            self.request_url.use(handler(app, self._ports.passed, self._owe), self._returned)
            return self.request_url
        token = self._settings.secrets.app_token
        return SlackSocket(
            web=self._web,
            app_token=token.get_secret_value() if token else "",
            dispatch=dispatcher(app, self._ports.passed, self._owe),
            clock=self._clock,
            jitter=self._rng.random,
            counted=self._ports.counted,
            on_return=self._returned,
            pulse=self._ports.pulse,
        )

    def look_back(self) -> None:
        """Read what people wrote while nobody listened, if that was not begun: in the background, until it is read."""
        if self._look_back is None:
            raise RuntimeError("look_back() before introduce()")
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_back.run(), name="what was missed")
            self._look_back.owe()

    async def caught_up(self) -> None:
        """Returns when everything that is owed was read and handled."""
        if self._look_back is not None:
            await self._look_back.paid()

    async def open(self) -> None:
        """Take clicks and replies, until `close` or until the supervision dies."""
        if self._line is None:
            raise RuntimeError("open() before introduce()")
        try:
            await self._line.start()
        except SlackRefusedError as error:
            raise ConfigurationError([f"Slack refuses the token in SLACK_APP_TOKEN: {error.code}"]) from error
        self.ready.set()
        _log.info("ready for clicks")
        await self._line.wait()

    async def close(self) -> None:
        """Take nothing more; what is in work finishes and is acknowledged."""
        if self._line is not None:
            await self._line.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._later.drain()
