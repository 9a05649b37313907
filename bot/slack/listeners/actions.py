"""Clicks on cards and in modals."""

from __future__ import annotations

import logging
import re
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot import phrases
from bot.codec import LINK_ACTION
from bot.errors import BadPress
from bot.people import Reaction
from bot.slack.payloads import click_of, touch_of
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface

_log = logging.getLogger("clarify.slack")


def register(app: AsyncApp, surface: Surface) -> None:
    async def link(ack: AsyncAck) -> None:
        await ack()

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            click = click_of(body)
        except BadPress as error:
            _log.warning("a click that cannot be read: %s", error)
            await ack()
            surface.react(touch_of(body), Reaction(phrases.UNREADABLE_PRESS))
            return
        unbound = await surface.unbound(click.press, click.spot)
        reaction = unbound or await surface.desk.press(click.press, click.person, click.place)
        if reaction.busy and reaction.text and click.view_id is None:
            # Nothing was taken: acknowledged only if the person knows, so that no error shown means nothing lost.
            if not await surface.told(click, reaction.text):
                raise Unacknowledged(f"nobody could be told that {click.press.clarification} is busy")
            await ack()
            return
        surface.react(click, reaction)
        if not reaction.recorded:
            raise Unacknowledged(f"nothing was recorded of a click for {click.press.clarification}")
        await ack()

    app.action(LINK_ACTION)(link)
    app.action(re.compile(r"clarify\..+"))(pressed)
