"""What is said in threads and to the bot, and where threads went."""

from __future__ import annotations

from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.slack.hearing import gone, heard
from bot.slack.surface import Surface


def register(app: AsyncApp, surface: Surface) -> None:
    async def message(ack: AsyncAck, body: dict[str, Any]) -> None:
        event = body.get("event") or {}
        if (said := heard(event, surface.intake.bot_user)) is not None:
            await surface.intake.take(said)
        elif (place := gone(event)) is not None:
            await surface.desk.show_again(*place)
        await ack()

    async def renamed(ack: AsyncAck, event: dict[str, Any]) -> None:
        await surface.intake.channel_renamed(
            str(event.get("old_channel_id")), str(event.get("new_channel_id"))
        )
        await ack()

    app.event("message")(message)
    app.event("app_mention")(message)  # the same again, where both come
    app.event("channel_id_changed")(renamed)
