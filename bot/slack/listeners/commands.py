"""`/clarify`, and the controls of the lists that it answers with."""

from __future__ import annotations

import logging
import re
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot import phrases
from bot.commands.codec import ListPress
from bot.commands.ports import Said
from bot.errors import BadPress
from bot.slack.payloads import order_of, touch_of
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface

_log = logging.getLogger("clarify.slack")
COMMAND = "/clarify"


def register(app: AsyncApp, surface: Surface) -> None:
    async def command(ack: AsyncAck, body: dict[str, Any]) -> None:
        said = await surface.obey(order_of(body))
        if said is None:
            await ack()
        else:
            await ack(text=said.text, blocks=said.blocks, response_type="ephemeral")

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = ListPress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a list's control that cannot be read: %s", error)
            await ack()
            surface.answer(touch, Said(phrases.UNREADABLE_PRESS))
            return
        if (unbound := await surface.unbound(press, touch.spot)) is not None:
            if not await surface.told(touch, unbound.text or ""):
                raise Unacknowledged("nobody could be told that a list's control counts for nothing")
            await ack()
            return
        if press.verb == "page":
            await ack()
            surface.turn(touch, press)
            return
        said = await surface.commands.take(press.arg, touch.person)
        if not said.recorded and not await surface.told(touch, said.text):
            raise Unacknowledged(f"nobody could be told that {press.arg} was not taken")
        await ack()
        if said.recorded:
            surface.answer(touch, said)

    app.command(COMMAND)(command)
    app.action(re.compile(r"list\..+"))(pressed)
