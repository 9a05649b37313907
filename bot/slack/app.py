"""The Slack app: who we are, how Slack reaches us, what answers people, and what was missed.

Bolt decides which listener takes what. What it does otherwise, and what is done about it (each seen by running it):

* it acknowledges events before their listener ran → `process_before_response`;
* a failing first auth.test turns events away with "please reinstall" → `authorize` from a result that is there;
* an envelope that no listener wants is never acknowledged → a listener for the rest, registered last;
* an exception is logged together with what was sent → an error handler that logs the envelope only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.commands.commands import Commands
from bot.delivery.delivery import Delivery
from bot.delivery.memory import SlackMemory
from bot.errors import (
    ConfigurationError,
    SlackError,
    SlackRefusedError,
    SlackUnreachableError,
    StorageUnavailable,
)
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.people import AccessControl, People, lookup_budget
from bot.settings.model import Settings
from bot.slack.answering import Answering, Interactions
from bot.slack.backfill import Backfill, Unread
from bot.slack.binding import Binding
from bot.slack.conversation import Conversation
from bot.slack.http import Answer, RequestUrl, SlackRequest
from bot.slack.listeners import Handlers, register
from bot.slack.payloads import name_team
from bot.slack.replies import Replies
from bot.slack.socket import Background, Envelope, Json, SlackSocket, Timing, Unacknowledged
from bot.slack.threads import Threads
from bot.slackapi import Pulse, SlackBusyError
from bot.views import phrases
from core.clock import Clock

_log = structlog.get_logger("clarify.slack")
_bolt_log = logging.getLogger("clarify.slack")
# Cards wait until it is known who we are, and clicks can be taken. Seconds.
_FIRST_RETRY, _LONGEST_RETRY = 0.5, 4.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the Slack app is built from.

    `unread`: which questions wait for their threads to be read. `pulse`: whether Slack answers. `delivery` says words to
    people, `later` runs what follows an acknowledgement. `passed` is called with whatever comes from Slack, `counted` with
    the number of other bots' connections.
    """

    settings: Settings
    web: AsyncWebClient
    pulse: Pulse
    people: People
    access: AccessControl
    answering: Answering
    commands: Commands
    page_actions: PageActions
    home: HomeTabs
    binding: Binding
    threads: Threads
    unread: Unread
    memory: SlackMemory
    delivery: Delivery
    later: Background
    counted: Callable[[int], Coroutine[Any, Any, None]]
    passed: Callable[[], None]
    clock: Clock
    rng: random.Random


class SlackApp:
    """`introduce`, `look_back`, `run`, in this order; `stop` at any time. `expect` before questions can expire.

    `ready` is set when clicks are taken. `timing` is Socket Mode's.
    """

    def __init__(self, parts: Parts, timing: Timing | None = None) -> None:
        self._parts = parts
        self.ready = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._bolt: AsyncApp | None = None
        self._line: SlackSocket | RequestUrl = self._request_url() or self._socket(timing)
        replies = Replies(
            answering=parts.answering,
            commands=parts.commands,
            threads=parts.threads,
            memory=parts.memory,
            people=parts.people,
            clock=parts.clock,
        )
        self.conversation = Conversation(
            replies=replies,
            memory=parts.memory,
            delivery=parts.delivery,
            clock=parts.clock,
            later=parts.later,
            owed=self._owe,
        )
        self.backfill = Backfill(
            web=parts.web,
            memory=parts.memory,
            threads=parts.threads,
            unread=parts.unread,
            pulse=parts.pulse,
            conversation=self.conversation,
            clock=parts.clock,
        )
        self.interactions = Interactions(
            answering=parts.answering,
            commands=parts.commands,
            binding=parts.binding,
            delivery=parts.delivery,
            web=parts.web,
            later=parts.later,
        )
        self._handlers = Handlers(
            answering=parts.answering,
            interactions=self.interactions,
            replies=replies,
            page_actions=parts.page_actions,
            conversation=self.conversation,
            people=parts.people,
            home=parts.home,
        )

    def _request_url(self) -> RequestUrl | None:
        secret = self._parts.settings.secrets.signing_secret
        if self._parts.settings.slack.mode != "http" or secret is None:
            return None
        return RequestUrl(
            signing_secret=secret.get_secret_value(),
            handle=self._handle,
            on_gap=self._owe,
            clock=self._parts.clock,
        )

    def _socket(self, timing: Timing | None) -> SlackSocket:
        parts, token = self._parts, self._parts.settings.secrets.app_token
        return SlackSocket(
            web=parts.web,
            app_token=token.get_secret_value() if token else "",
            dispatch=self.dispatch,
            clock=parts.clock,
            jitter=parts.rng.random,
            counted=parts.counted,
            on_return=self._owe,
            pulse=parts.pulse,
            timing=timing,
        )

    @property
    def request_url(self) -> RequestUrl | None:
        """In mode "http": what the server is to hand Slack's requests to, from the beginning."""
        return self._line if isinstance(self._line, RequestUrl) else None

    @property
    def connected(self) -> bool:
        """Whether clicks reach us now."""
        return self._line.connected

    @property
    def deaf_since(self) -> datetime | None:
        """Since when nothing reaches us that reached us before; None: it does, or nothing did yet."""
        return None if self.connected or not self.ready.is_set() else self._line.since

    @property
    def other_bots(self) -> str | None:
        """That another bot shares our Slack app; None: we are alone."""
        others = self._line.others if isinstance(self._line, SlackSocket) else 0
        return f"{phrases.OTHER_BOT} (connections besides ours: {others})" if others else None

    def suspect(self) -> None:
        """A click came here that was meant for another bot."""
        if isinstance(self._line, SlackSocket):
            self._line.suspect()

    async def expect(self) -> None:
        """Before anything is asked of Slack: whatever is open may have been answered while we were away.

        Raises:
            StorageUnavailable: what is open in Slack is not known.
        """
        self._parts.unread.expect(await self._parts.threads.open())

    async def introduce(self) -> None:
        """Learn from Slack who we are and who may answer; waits for as long as Slack is away.

        Raises:
            ConfigurationError: a token that Slack refuses, or a route that nobody could answer.
        """
        wait = _FIRST_RETRY
        while True:
            try:
                response = await self._parts.people.me()
                await self._parts.access.check()
                break
            except SlackUnreachableError as error:
                _log.warning("Slack does not answer", reason=str(error))
                if isinstance(error, SlackBusyError):
                    await self._parts.clock.sleep(error.after)
                    continue
                await self._parts.pulse.rest(wait)
                wait = min(_LONGEST_RETRY, wait * 2)
            except SlackRefusedError as error:
                raise ConfigurationError(
                    [f"Slack refuses the token in SLACK_BOT_TOKEN: {error.code}"]
                ) from error
        me = AuthorizeResult.from_auth_test_response(
            bot_token=self._parts.web.token, auth_test_response=response
        )
        self.build(me)

    def build(self, me: AuthorizeResult) -> None:
        """Listen, now that it is known who we are."""
        self._bolt = bolt_app(self._parts.web, me)
        register(self._bolt, self._handlers)

    def look_back(self) -> None:
        """Read what people wrote while nobody listened, if that was not begun: in the background, until it is read."""
        if self._looking is None:
            self._looking = asyncio.create_task(self.backfill.run(), name="what was missed")
            self.backfill.owe()

    def _owe(self) -> None:
        """Something may have been missed."""
        if self._bolt is not None:
            self.backfill.owe()

    async def run(self) -> None:
        """Take clicks and replies, until `stop` or until the supervision dies."""
        try:
            await self._line.start()
        except SlackRefusedError as error:
            raise ConfigurationError([f"Slack refuses the token in SLACK_APP_TOKEN: {error.code}"]) from error
        self.ready.set()
        _log.info("ready for clicks")
        await self._line.wait()

    async def stop(self) -> None:
        """Take nothing more; what is in work finishes and is acknowledged."""
        await self._line.stop()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await self._parts.later.drain()

    async def dispatch(self, envelope: Envelope) -> Json | None:
        """Hand an envelope of Socket Mode to the listeners; returns what goes with its acknowledgement."""
        headers = _headers(envelope.retry_attempt, envelope.retry_reason)
        request = AsyncBoltRequest(mode="socket_mode", body=envelope.payload, headers=headers)
        response = await self._respond(request)
        if response.status != 200:
            raise Unacknowledged(f"status {response.status}")
        return _payload(response)

    async def _handle(self, sent: SlackRequest) -> Answer:
        """Hand what came to the request URL to the listeners; returns the HTTP response."""
        headers = _headers(sent.attempt, sent.reason) | {"content-type": "application/json"}
        # Bolt takes text in this mode; how forms are read: `bot.slack.http`.
        request = AsyncBoltRequest(mode="http", body=json.dumps(sent.payload), headers=headers)
        response = await self._respond(request)
        if response.status != 200:
            return Answer.trouble(response.status, "NOT_TAKEN", "not taken; the log says why")
        content_type = response.first_headers_without_set_cookie().get("content-type", "text/plain")
        return Answer(response.status, response.body, content_type)

    async def _respond(self, request: AsyncBoltRequest) -> BoltResponse:
        """What the listeners say. An event that was not taken has to be looked for."""
        if self._bolt is None:
            raise Unacknowledged("it is not known yet who we are")
        self._parts.passed()
        if request.body.get("type") != "event_callback":
            with lookup_budget():
                return await self._bolt.async_dispatch(request)
        response = await self._bolt.async_dispatch(request)  # no person waits, and Slack sends it again
        if response.status != 200:
            self._owe()
        return response


def bolt_app(web: AsyncWebClient, me: AuthorizeResult) -> AsyncApp:
    """A Bolt app without listeners. What it is given is Slack's: `bot.slack.http` has checked the signatures."""
    logger = logging.getLogger("slack_bolt.clarify")
    # Bolt warns of SLACK_BOT_TOKEN in the environment, which is where it belongs.
    logger.setLevel(logging.ERROR)

    async def authorize() -> AuthorizeResult:
        return me

    app = AsyncApp(
        name="clarify-bot",
        logger=logger,
        client=AsyncWebClient(base_url=web.base_url, ssl=web.ssl, proxy=web.proxy),
        authorize=authorize,
        request_verification_enabled=False,
        ssl_check_enabled=False,
        process_before_response=True,
        ignoring_self_events_enabled=False,  # what we said is told apart by us: that a card was deleted concerns us
        attaching_conversation_kwargs_enabled=False,
    )
    logger.setLevel(logging.WARNING)

    async def of_a_team(body: dict[str, Any], next_: Callable[[], Awaitable[None]]) -> None:
        name_team(body, me.team_id or "")
        await next_()

    app.middleware(of_a_team)
    app.error(_failed)
    return app


async def _failed(error: Exception, body: dict[str, Any]) -> BoltResponse:
    """Not acknowledged: Slack repeats an event, and shows an error to who clicked."""
    envelope = {"type": body.get("type"), "event_id": body.get("event_id"), "team": body.get("team_id")}
    if isinstance(error, (Unacknowledged, SlackError, StorageUnavailable)):
        _bolt_log.warning("a listener gave up: %s %s", error, envelope)
    else:
        _bolt_log.error("a listener failed: %s %s", type(error).__name__, envelope, exc_info=error)
    return BoltResponse(status=500, body="")


def _headers(attempt: int, reason: str) -> dict[str, str | Sequence[str]]:
    """Nothing else of what came: Bolt obeys some headers, and signatures do not cover them."""
    return {"x-slack-retry-num": str(attempt), "x-slack-retry-reason": reason} if attempt else {}


def _payload(response: BoltResponse) -> Json | None:
    if not response.body:
        return None
    if response.first_headers_without_set_cookie().get("content-type", "").startswith("application/json"):
        body: Json = json.loads(response.body)
        return body
    return {"text": response.body}
