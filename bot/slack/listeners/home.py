"""The Home tab: somebody looks at theirs, or presses a control on it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.desk import Person
from bot.errors import BadPress
from bot.home.codec import ACTIONS, HomePress, pressed
from bot.home.publisher import HomePublisher
from bot.slack.payloads import Click
from bot.slack.socket import Unacknowledged
from bot.slack.surface import Surface

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
        try:
            press = pressed(body)
        except BadPress as error:
            _log.warning("a control of a Home tab that cannot be read: %s", error)
            await home.opened(_person(body).user, shown=False)  # it is of another release: shown anew
            await ack()
            return
        if press.verb == "page":
            await home.press(press, _person(body))
        else:
            await _on_question(home, surface, press, body)
        await ack()

    app.event("app_home_opened")(opened)
    app.action(ACTIONS)(acted)


async def _on_question(home: HomePublisher, surface: Surface, press: HomePress, body: dict[str, Any]) -> None:
    """As a press on the question's card; but nothing can be said beside a Home tab, so words come in a modal."""
    person = _person(body)
    click = Click(press.on_question(), person, home.place_of(person.user), str(body.get("trigger_id") or ""))
    reaction = await surface.desk.press(click.press, person, click.place)
    if reaction.text is not None:
        reaction = replace(reaction, text=None, view=surface.desk.notice(reaction.text))
    surface.react(click, reaction)
    if not reaction.recorded:
        raise Unacknowledged(f"nothing was recorded of a press for {press.subject}")


def _person(body: dict[str, Any]) -> Person:
    user, team = body.get("user") or {}, body.get("team") or {}
    return Person(str(user.get("team_id") or team.get("id") or ""), str(user.get("id") or ""))
