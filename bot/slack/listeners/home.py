"""The Home tab: somebody looks at theirs, or presses a control on it."""

from __future__ import annotations

import logging
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.errors import BadPress
from bot.slack.payloads import Click, Touch, touch_of
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface
from bot.views.home import ACTIONS, HomePress

_log = logging.getLogger("clarify.slack")


def register(app: AsyncApp, surface: Surface) -> None:
    """Nothing where the surface has no Home tab."""
    if (home := surface.home) is None:
        return

    async def opened(ack: AsyncAck, body: dict[str, Any], event: dict[str, Any]) -> None:
        if event.get("tab", "home") == "home":
            team, channel = str(body.get("team_id") or ""), str(event.get("channel") or "")
            await home.opened(str(event["user"]), team, channel, shown="view" in event)
        await ack()

    async def acted(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = HomePress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a control of a Home tab that cannot be read: %s", error)
            await home.opened(touch.person.user, shown=False)  # it is of another release: shown anew
            await ack()
            return
        if (unbound := surface.unbound_at_home(touch.spot)) is not None:
            surface.react_in_modal(touch, unbound)
            await home.opened(touch.person.user, shown=False)
        elif press.verb == "page":
            await home.press(press, touch.person)
        else:
            await _on_question(surface, press, touch)
        await ack()

    app.event("app_home_opened")(opened)
    app.action(ACTIONS)(acted)


async def _on_question(surface: Surface, press: HomePress, touch: Touch) -> None:
    """As a press on the question's card; but nothing can be said beside a Home tab, so words come in a modal."""
    place = surface.place_at_home(touch.person)
    click = Click(press.on_question(), touch.person, place, touch.spot, touch.trigger)
    reaction = await surface.desk.press(click.press, click.person, click.place)
    surface.react_in_modal(click, reaction)
    if not reaction.recorded:
        raise Unacknowledged(f"nothing was recorded of a press for {press.subject}")
