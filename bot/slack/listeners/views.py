"""Submitted modals."""

from __future__ import annotations

import logging
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot import phrases
from bot.codec import ANSWER_CALLBACK
from bot.errors import BadPress
from bot.slack.payloads import submission_of
from bot.slack.surface import Surface

_log = logging.getLogger("clarify.slack")


def register(app: AsyncApp, surface: Surface) -> None:
    async def submitted(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            sent = submission_of(body)
        except BadPress as error:
            _log.warning("a submitted modal that cannot be read: %s", error)
            await ack(response_action="update", view=surface.desk.notice(phrases.UNREADABLE_PRESS))
            return
        if (why := surface.unbound_modal(sent)) is not None:
            words = surface.desk.plain(why)  # beside what was typed, which can be copied from there
            await ack(response_action="errors", errors=dict.fromkeys(sent.values, words))
            return
        reaction = await surface.desk.submit(sent.press, sent.values, sent.person, sent.place)
        if reaction.errors is not None:
            await ack(response_action="errors", errors=dict(reaction.errors))
        elif reaction.view is not None:
            await ack(response_action="update", view=reaction.view)
        else:
            await ack()

    app.view(ANSWER_CALLBACK)(submitted)
