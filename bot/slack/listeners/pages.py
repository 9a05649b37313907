"""The controls of pages: Take, Hand to…, Snooze, Not mine."""

from __future__ import annotations

import logging
import re
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot import phrases
from bot.commands.ports import Said
from bot.errors import BadPress
from bot.pagecodec import HAND_BLOCK, HAND_CALLBACK, PagePress
from bot.slack.payloads import handed_over, touch_of
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface

_log = logging.getLogger("clarify.slack")


def register(app: AsyncApp, surface: Surface) -> None:
    _controls(app, surface)
    _handing(app, surface)


def _controls(app: AsyncApp, surface: Surface) -> None:
    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = PagePress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a page's control that cannot be read: %s", error)
            await ack()
            surface.answer(touch, Said(phrases.UNREADABLE_PRESS))
            return
        unbound = await surface.unbound(press, touch.spot)
        reaction = unbound or await surface.page_actions.press(press, touch.person)
        if reaction.recorded:
            surface.react(touch, reaction)
        elif not await surface.told(touch, reaction.text or phrases.storage_failed()):
            raise Unacknowledged(f"nobody could be told that {press.verb} was not done")
        await ack()

    app.action(re.compile(r"oncall\..+"))(pressed)


def _handing(app: AsyncApp, surface: Surface) -> None:
    async def handed(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            sent = handed_over(body)
        except BadPress as error:
            _log.warning("a submitted modal that cannot be read: %s", error)
            await ack(response_action="update", view=surface.desk.notice(phrases.UNREADABLE_PRESS))
            return
        if (why := surface.unbound_modal(sent)) is not None:
            await ack(response_action="update", view=surface.desk.notice(why))
            return
        person, place = sent.person, sent.place
        reaction = await surface.page_actions.submit_hand(sent.press, sent.user, person)
        if reaction.errors is not None:
            await ack(response_action="errors", errors=dict(reaction.errors))
        elif reaction.text is not None and not reaction.recorded:
            await ack(response_action="errors", errors={HAND_BLOCK: surface.desk.plain(reaction.text)})
        else:
            await ack()
            if reaction.text is not None:
                surface.tell(person, place, reaction.text)

    app.view(HAND_CALLBACK)(handed)
