"""What tells that kept facts about people are out of date."""

from __future__ import annotations

from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.slack.surface import Surface


def register(app: AsyncApp, surface: Surface) -> None:
    async def membership(ack: AsyncAck, event: dict[str, Any]) -> None:
        surface.people.forget_channel(str(event.get("channel")))
        await ack()

    async def person(ack: AsyncAck, event: dict[str, Any]) -> None:
        user = event.get("user")
        surface.people.forget_user(str(user.get("id") if isinstance(user, dict) else user))
        await ack()

    async def group(ack: AsyncAck, event: dict[str, Any]) -> None:
        surface.people.forget_group(str(event.get("subteam_id")))
        await ack()

    async def group_itself(ack: AsyncAck, event: dict[str, Any]) -> None:
        surface.people.ask_again(str((event.get("subteam") or {}).get("id")))
        await ack()

    for kind in ("member_joined_channel", "member_left_channel"):
        app.event(kind)(membership)
    app.event("user_change")(person)
    app.event("subteam_members_changed")(group)
    app.event("subteam_updated")(group_itself)
