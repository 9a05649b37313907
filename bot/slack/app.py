"""The Slack app: our identity, the connection, the listeners, and the catch-up on missed messages.

Bolt dispatches to the listeners. Its other habits, each seen by running it, and what we do about them:

* it acknowledges events before their listener ran → `process_before_response`;
* if its first auth.test fails, it answers events with "please reinstall" → `authorize` with a result that we have;
* it never acknowledges an envelope without a listener → ours take everything;
* it logs exceptions together with the payload → an error handler that logs the envelope only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import structlog
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import (
    ConfigurationError,
    SlackError,
    SlackRefusedError,
    SlackUnreachableError,
    StorageUnavailable,
)
from bot.oncall.outside import REMOVED
from bot.people.access import require_answerers
from bot.settings.model import Settings
from bot.slack.conversation import Backfill
from bot.slack.listeners import Handlers
from bot.slack.request_url import RequestUrl
from bot.slack.socket import Background, Envelope, Json, SlackSocket, Unacknowledged
from bot.slackapi import Availability, SlackBusyError, ask
from bot.views import phrases
from core.clock import Clock, ConcurrencyLimit, backoff

_log = structlog.get_logger("clarify.slack")
_listener_log = logging.getLogger("clarify.slack")
# Short, since cards wait until Slack has told us who we are. Seconds.
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 4.0
_ANY = re.compile("")


@dataclass(kw_only=True, eq=False, repr=False)
class SlackApp:
    """Connects to Slack, passes requests to the listeners, starts the catch-up on missed messages.

    Call `introduce`, `look_back`, `run`, in this order; `stop` at any time.

    `ready` is set when clicks are taken. `availability`: whether Slack answers. `later` runs work after an acknowledgement.
    `acts` limits how many clicks and commands run at once: together they would all be late. `passed` is called for each
    request from Slack.
    """

    settings: Settings
    web: AsyncWebClient
    transport: SlackSocket | RequestUrl
    handlers: Handlers
    backfill: Backfill
    later: Background
    availability: Availability
    acts: ConcurrencyLimit
    passed: Callable[[], None]
    clock: Clock

    def __post_init__(self) -> None:
        self.ready = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._looked_back = False
        self._bolt: AsyncApp | None = None

    @property
    def request_url(self) -> RequestUrl | None:
        """In mode "http": the handler for Slack's requests, from the start on."""
        return self.transport if isinstance(self.transport, RequestUrl) else None

    @property
    def connected(self) -> bool:
        """Whether clicks reach us now, or other replicas."""
        return self.transport.connected or self.is_spare

    @property
    def is_spare(self) -> bool:
        """Whether other replicas have all connections that Slack gives the app."""
        return isinstance(self.transport, SlackSocket) and self.transport.spare

    async def trouble(self) -> str | None:
        """Returns why people cannot use the bot in Slack now, or None. If Slack refused the bot, asks again: nothing else may."""
        if self.availability.refused is not None:
            with suppress(SlackError):
                await ask("auth.test", self.web.auth_test)
        if (code := self.availability.refused) is not None:
            return f"Slack refuses the bot ({code}): {REMOVED}"
        return None if self.connected else "not connected to Slack"

    @property
    def deaf_since(self) -> datetime | None:
        """When we lost the connection to Slack; None: we are connected, or never were."""
        return None if self.connected or not self.ready.is_set() else self.transport.since

    @property
    def other_bots(self) -> str | None:
        """A warning if another bot shares our Slack app, else None."""
        others = self.transport.others if isinstance(self.transport, SlackSocket) else 0
        return f"{phrases.OTHER_BOT} (connections besides ours: {others})" if others else None

    async def introduce(self) -> None:
        """Learn from Slack who we are and who may answer; waits as long as Slack is away.

        Raises:
            ConfigurationError: Slack refuses the token, or a route has no answerers.
        """
        for failures in count():
            try:
                await self.handlers.people.installation()
                await require_answerers(self.settings, self.handlers.people)
            except SlackBusyError as error:
                _log.warning("Slack does not respond", reason=str(error))
                await self.clock.sleep(error.after)
            except SlackUnreachableError as error:
                _log.warning("Slack does not respond", reason=str(error))
                await self.availability.rest(backoff(failures, first=_FIRST_RETRY, longest=_LONGEST_RETRY))
            except SlackRefusedError as error:
                raise ConfigurationError(
                    [f"Slack refuses the token in SLACK_BOT_TOKEN: {error.code}"]
                ) from error
            else:
                self._bolt = bolt_app(self.web, self.handlers)
                return

    def look_back(self) -> None:
        """Start reading, in the background, what people wrote while the bot was away."""
        if not self._looked_back:
            self._looked_back = True
            self.watch_for_gaps()
            self.backfill.catch_up.schedule()

    def watch_for_gaps(self) -> None:
        """Start the background task that catches up whenever that is scheduled."""
        if self._looking is None:
            self._looking = asyncio.create_task(self.backfill.run(), name="what was missed")

    async def run(self) -> None:
        """Take clicks and replies, until `stop` or until the connection fails for good."""
        try:
            await self.transport.start(self.dispatch)
        except SlackRefusedError as error:
            raise ConfigurationError([f"Slack refuses the token in SLACK_APP_TOKEN: {error.code}"]) from error
        self.ready.set()
        _log.info("ready for clicks")
        await self.transport.wait()

    async def stop(self) -> None:
        """Take nothing more; finish and acknowledge what is running."""
        await self.transport.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self.later.drain()

    async def dispatch(self, envelope: Envelope) -> Json | None:
        """Hand an envelope to the listeners; returns the payload of its acknowledgement.

        Raises:
            Unacknowledged: they did not take it. Slack resends an event, and shows an error to the person who clicked.
        """
        body = envelope.payload
        if self._bolt is None:
            raise Unacknowledged("it is not known yet who we are")
        self.passed()
        request = AsyncBoltRequest(mode="socket_mode", body=body)
        if body.get("type") == "event_callback":  # without a slot: no person waits for an event
            response = await self._bolt.async_dispatch(request)
            if response.status != 200:
                self.backfill.catch_up.schedule()
        else:
            async with self.acts.slot():
                response = await self._bolt.async_dispatch(request)
        if response.status != 200:
            raise Unacknowledged(f"status {response.status}")
        return json.loads(response.body) if response.body else None


def bolt_app(web: AsyncWebClient, to: Handlers) -> AsyncApp:
    """Returns a Bolt app that hands everything to `to`. `bot.slack.request_url` has checked the signatures of its requests."""
    logger = logging.getLogger("slack_bolt.clarify")
    # Bolt warns about SLACK_BOT_TOKEN in the environment, where it belongs.
    logger.setLevel(logging.ERROR)

    async def authorize() -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=None, team_id=to.people.team, bot_user_id=to.people.bot_user, bot_token=web.token
        )

    app = AsyncApp(
        name="clarify-bot",
        logger=logger,
        client=AsyncWebClient(base_url=web.base_url, ssl=web.ssl, proxy=web.proxy),
        authorize=authorize,
        request_verification_enabled=False,
        ssl_check_enabled=False,
        process_before_response=True,
        ignoring_self_events_enabled=False,  # we need to know when a card of ours is deleted
        attaching_conversation_kwargs_enabled=False,
    )
    logger.setLevel(logging.WARNING)

    async def hear(ack: AsyncAck, body: dict[str, Any]) -> None:
        await to.hear(body)
        await ack()

    async def act(ack: AsyncAck, body: dict[str, Any]) -> None:
        answer = await to.act(body)
        await (ack() if answer is None else ack(answer))

    event: Any = app.event  # its type lacks patterns, which the method takes
    event(_ANY)(hear)
    for kind in (app.action, app.view, app.view_closed, app.shortcut, app.command, app.options):
        kind(_ANY)(act)
    app.error(_failed)
    return app


async def _failed(error: Exception, body: dict[str, Any]) -> BoltResponse:
    """Log an error; without an acknowledgement Slack resends an event, and shows an error to the person who clicked."""
    envelope = {"type": body.get("type"), "event_id": body.get("event_id"), "team": body.get("team_id")}
    if isinstance(error, (Unacknowledged, SlackError, StorageUnavailable)):
        _listener_log.warning("listener gave up: %s %s", error, envelope)
    else:
        _listener_log.error("listener failed: %s %s", type(error).__name__, envelope, exc_info=error)
    return BoltResponse(status=500, body="")
