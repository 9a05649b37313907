"""The Bolt app: listeners in a row, nothing acknowledged before it is kept, every envelope met by somebody.

What Bolt does otherwise, and what is done about it (each seen by running it):

* it acknowledges events before their listener ran → `process_before_response`;
* a failing first auth.test turns events away with "please reinstall" → `authorize` from a result that is there;
* an envelope that no listener wants is never acknowledged → catch-alls, registered last;
* an exception is logged together with what was sent → an error handler that logs the envelope only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError, StorageUnavailable
from bot.people import People, lookup_budget
from bot.slack.connection import Envelope, Json
from bot.slack.http import Answer, Delivery, Handle
from bot.slack.listeners import (
    actions,
    catchall,
    commands,
    home,
    messages,
    pages,
    people,
    shortcuts,
    views,
)
from bot.slack.payloads import name_team
from bot.slack.socket import Dispatch, Unacknowledged
from bot.slack.surface import Surface

_log = logging.getLogger("clarify.slack")


async def who_am_i(people: People, web: AsyncWebClient) -> AuthorizeResult:
    """What auth.test says of us, as Bolt wants it.

    Raises:
        SlackRefusedError: the token is not good.
        SlackUnreachableError: no answer.
    """
    return AuthorizeResult.from_auth_test_response(bot_token=web.token, auth_test_response=await people.me())


def build_app(*, web: AsyncWebClient, me: AuthorizeResult, surface: Surface) -> AsyncApp:
    """The app with all its listeners. What it is given is Slack's: `bot.slack.http` has checked the signatures.

    Args:
        web: the Web API client that listeners are given.
        me: what `who_am_i` found.
        surface: what the listeners act on.
    """
    logger = logging.getLogger("slack_bolt.clarify")
    logger.setLevel(
        logging.ERROR
    )  # Bolt warns of SLACK_BOT_TOKEN in the environment, which is where it belongs

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
    actions.register(app, surface)
    views.register(app, surface)
    commands.register(app, surface)
    shortcuts.register(app, surface)
    pages.register(app, surface)
    messages.register(app, surface)
    people.register(app, surface)
    home.register(app, surface)
    catchall.register(app)
    return app


def dispatcher(
    app: AsyncApp, passed: Callable[[], None] = lambda: None, owed: Callable[[], None] = lambda: None
) -> Dispatch:
    """Hands an envelope of Socket Mode to the app; returns what goes with its acknowledgement.

    `passed` is told of each, `owed` of each event that was not taken: it has to be looked for.
    """

    async def dispatch(envelope: Envelope) -> Json | None:
        passed()
        headers = _headers(envelope.retry_attempt, envelope.retry_reason)
        request = AsyncBoltRequest(mode="socket_mode", body=envelope.payload, headers=headers)
        response = await _respond(app, request)
        if response.status != 200:
            if _is_event(request):
                owed()
            raise Unacknowledged(f"status {response.status}")
        return _payload(response)

    return dispatch


def handler(
    app: AsyncApp, passed: Callable[[], None] = lambda: None, owed: Callable[[], None] = lambda: None
) -> Handle:
    """Hands what came to the request URL to the app; returns the HTTP response.

    `passed` is told of each, `owed` of each event that was not taken: it has to be looked for.
    """

    async def handle(delivery: Delivery) -> Answer:
        passed()
        headers = _headers(delivery.attempt, delivery.reason) | {"content-type": "application/json"}
        body = json.dumps(
            delivery.payload
        )  # Bolt takes text in this mode; how forms are read: `bot.slack.http`
        request = AsyncBoltRequest(mode="http", body=body, headers=headers)
        response = await _respond(app, request)
        if response.status != 200:
            if _is_event(request):
                owed()
            return Answer.trouble(response.status, "NOT_TAKEN", "not taken; the log says why")
        content_type = response.first_headers_without_set_cookie().get("content-type", "text/plain")
        return Answer(response.status, response.body, content_type)

    return handle


async def _respond(app: AsyncApp, request: AsyncBoltRequest) -> BoltResponse:
    if _is_event(request):  # no person waits, and Slack sends it again
        return await app.async_dispatch(request)
    with lookup_budget():
        return await app.async_dispatch(request)


def _is_event(request: AsyncBoltRequest) -> bool:
    return bool(request.body.get("type") == "event_callback")


async def _failed(error: Exception, body: dict[str, Any]) -> BoltResponse:
    """Not acknowledged: Slack repeats an event, and shows an error to who clicked."""
    envelope = {"type": body.get("type"), "event_id": body.get("event_id"), "team": body.get("team_id")}
    if isinstance(error, (Unacknowledged, SlackError, StorageUnavailable)):
        _log.warning("a listener gave up: %s %s", error, envelope)
    else:
        _log.error("a listener failed: %s %s", type(error).__name__, envelope, exc_info=error)
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
