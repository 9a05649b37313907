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
from collections.abc import Callable, Sequence
from typing import Any

from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError
from bot.slack.calls import ask_patiently
from bot.slack.connection import Envelope, Json
from bot.slack.haste import hurried
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
from bot.slack.socket import Dispatch, Unacknowledged
from bot.slack.surface import Surface
from core.clock import Clock

_log = logging.getLogger("clarify.slack")


async def who_am_i(web: AsyncWebClient, clock: Clock, tries: int = 8) -> AuthorizeResult:
    """auth.test, again until it succeeds.

    Raises:
        SlackRefusedError: the token is not good.
        SlackUnreachableError: no answer after `tries` tries.
    """
    response = await ask_patiently("auth.test", web.auth_test, clock, tries)
    return AuthorizeResult.from_auth_test_response(bot_token=web.token, auth_test_response=response)


def build_app(
    *, web: AsyncWebClient, me: AuthorizeResult, surface: Surface, signing_secret: str | None = None
) -> AsyncApp:
    """The app with all its listeners.

    Args:
        web: the Web API client that listeners are given.
        me: what `who_am_i` found.
        surface: what the listeners act on.
        signing_secret: for mode "http"; Socket Mode needs none.
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
        signing_secret=signing_secret or "",
        authorize=authorize,
        process_before_response=True,
        ignoring_self_events_enabled=False,  # what we said is told apart by us: that a card was deleted concerns us
        attaching_conversation_kwargs_enabled=False,
    )
    logger.setLevel(logging.WARNING)
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


def dispatcher(app: AsyncApp, passed: Callable[[], None] = lambda: None) -> Dispatch:
    """Hands an envelope of Socket Mode to the app; returns what goes with its acknowledgement.

    `passed` is told of each.
    """

    async def dispatch(envelope: Envelope) -> Json | None:
        passed()
        request = AsyncBoltRequest(mode="socket_mode", body=envelope.payload, headers=_headers(envelope))
        if envelope.kind == "events_api":  # no person waits, and Slack sends it again
            response = await app.async_dispatch(request)
        else:
            with hurried():
                response = await app.async_dispatch(request)
        if response.status != 200:
            raise Unacknowledged(f"status {response.status}")
        return _payload(response)

    return dispatch


async def _failed(error: Exception, body: dict[str, Any]) -> BoltResponse:
    """Not acknowledged: Slack repeats an event, and shows an error to who clicked."""
    envelope = {"type": body.get("type"), "event_id": body.get("event_id"), "team": body.get("team_id")}
    if isinstance(error, (Unacknowledged, SlackError)):
        _log.warning("a listener gave up: %s %s", error, envelope)
    else:
        _log.error("a listener failed: %s %s", type(error).__name__, envelope, exc_info=error)
    return BoltResponse(status=500, body="")


def _headers(envelope: Envelope) -> dict[str, str | Sequence[str]]:
    if not envelope.retry_attempt:
        return {}
    return {"x-slack-retry-num": str(envelope.retry_attempt), "x-slack-retry-reason": envelope.retry_reason}


def _payload(response: BoltResponse) -> Json | None:
    if not response.body:
        return None
    if response.first_headers_without_set_cookie().get("content-type", "").startswith("application/json"):
        body: Json = json.loads(response.body)
        return body
    return {"text": response.body}
