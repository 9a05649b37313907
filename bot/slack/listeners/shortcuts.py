"""The message shortcut “Use as answer”."""

from __future__ import annotations

from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.slack.payloads import use_of
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface

USE_AS_ANSWER = "clarify.use_as_answer"


def register(app: AsyncApp, surface: Surface) -> None:
    async def use(ack: AsyncAck, body: dict[str, Any]) -> None:
        chosen = use_of(body)
        text = surface.intake.plain(chosen.text)
        said = await surface.shortcut.use(
            text, chosen.ts, chosen.person, chosen.place, by_person=bool(chosen.author)
        )
        if not said.recorded and not await surface.answered(chosen.response_url, said):
            raise Unacknowledged("nobody could be told that a message was not taken as an answer")
        await ack()
        if said.recorded:
            surface.respond(chosen.response_url, said)

    app.shortcut({"callback_id": USE_AS_ANSWER, "type": "message_action"})(use)
