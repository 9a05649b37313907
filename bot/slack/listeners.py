"""The listeners: each decodes what Slack sent, makes one call, brings what came of it to the person, acknowledges.

Nothing is acknowledged before it is kept: where nothing was recorded and nobody could be told, `Unacknowledged` is raised,
and Slack shows an error to who clicked, or sends an event again. Bolt takes the first listener that matches, so the one
for whatever is left comes last.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.commands.commands import Commands
from bot.errors import BadPress
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.people import People, Reaction
from bot.slack.answering import Answering, Interactions
from bot.slack.conversation import Conversation
from bot.slack.payloads import (
    Click,
    Touch,
    click_of,
    deleted_message,
    handed_over,
    message_event,
    order_of,
    submission_of,
    touch_of,
    use_of,
)
from bot.slack.replies import UseAsAnswer
from bot.slack.socket import Unacknowledged
from bot.views import phrases
from bot.views.codec import ANSWER_CALLBACK, LINK_ACTION
from bot.views.home import ACTIONS, HomePress
from bot.views.listcodec import ListPress
from bot.views.pagecodec import HAND_BLOCK, HAND_CALLBACK, PagePress

COMMAND = "/clarify"
USE_AS_ANSWER = "clarify.use_as_answer"
_ANY = re.compile(".*", re.DOTALL)
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """What the listeners call."""

    answering: Answering
    interactions: Interactions
    commands: Commands
    shortcut: UseAsAnswer
    page_actions: PageActions
    conversation: Conversation
    people: People
    home: HomeTabs


def register(app: AsyncApp, to: Handlers) -> None:
    """Add all listeners to `app`; they call `to`."""
    _cards(app, to)
    _answer_modal(app, to)
    _command(app, to)
    _lists(app, to)
    _shortcut(app, to)
    _pages(app, to)
    _hand_modal(app, to)
    _messages(app, to)
    _people(app, to)
    _home(app, to)
    _rest(app)


def _cards(app: AsyncApp, to: Handlers) -> None:
    """Clicks on cards and in modals."""

    async def link(ack: AsyncAck) -> None:
        await ack()

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            click = click_of(body)
        except BadPress as error:
            _log.warning("a click that cannot be read: %s", error)
            await ack()
            to.interactions.react(touch_of(body), Reaction(phrases.UNREADABLE_PRESS))
            return
        unbound = await to.interactions.unbound(click.press, click.spot)
        reaction = unbound or await to.answering.press(click.press, click.person, click.place)
        if reaction.busy and reaction.text and click.view_id is None:
            # Nothing was taken: acknowledged only if the person knows, so that no error shown means nothing lost.
            if not await to.interactions.told(click, reaction.text):
                raise Unacknowledged(f"nobody could be told that {click.press.clarification} is busy")
            await ack()
            return
        to.interactions.react(click, reaction)
        if not reaction.recorded:
            raise Unacknowledged(f"nothing was recorded of a click for {click.press.clarification}")
        await ack()

    app.action(LINK_ACTION)(link)
    app.action(re.compile(r"clarify\..+"))(pressed)


def _answer_modal(app: AsyncApp, to: Handlers) -> None:
    """The submitted answer modal."""

    async def submitted(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            sent = submission_of(body)
        except BadPress as error:
            _log.warning("a submitted modal that cannot be read: %s", error)
            await ack(response_action="update", view=to.answering.notice(phrases.UNREADABLE_PRESS))
            return
        if (why := to.interactions.unbound_modal(sent)) is not None:
            words = to.answering.plain(why)  # beside what was typed, which can be copied from there
            await ack(response_action="errors", errors=dict.fromkeys(sent.values, words))
            return
        reaction = await to.answering.submit(sent.press, sent.values, sent.person, sent.place)
        if reaction.errors is not None:
            await ack(response_action="errors", errors=dict(reaction.errors))
        elif reaction.view is not None:
            await ack(response_action="update", view=reaction.view)
        else:
            await ack()

    app.view(ANSWER_CALLBACK)(submitted)


def _command(app: AsyncApp, to: Handlers) -> None:
    """`/clarify`."""

    async def command(ack: AsyncAck, body: dict[str, Any]) -> None:
        said = await to.interactions.obey(order_of(body))
        if said is None:
            await ack()
        else:
            await ack(text=said.text, blocks=said.blocks, response_type="ephemeral")

    app.command(COMMAND)(command)


def _lists(app: AsyncApp, to: Handlers) -> None:
    """The controls of the lists that `/clarify` answers with."""

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = ListPress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a list's control that cannot be read: %s", error)
            await ack()
            to.interactions.answer(touch, Reaction(phrases.UNREADABLE_PRESS))
            return
        if (unbound := await to.interactions.unbound(press, touch.spot)) is not None:
            if not await to.interactions.told(touch, unbound.text or ""):
                raise Unacknowledged("nobody could be told that a list's control counts for nothing")
            await ack()
            return
        if press.verb == "page":
            await ack()
            to.interactions.turn(touch, press)
            return
        said = await to.commands.take(press.arg, touch.person)
        if not said.recorded and not await to.interactions.told(touch, said.text):
            raise Unacknowledged(f"nobody could be told that {press.arg} was not taken")
        await ack()
        if said.recorded:
            to.interactions.answer(touch, said)

    app.action(re.compile(r"list\..+"))(pressed)


def _shortcut(app: AsyncApp, to: Handlers) -> None:
    """The message shortcut “Use as answer”."""

    async def use(ack: AsyncAck, body: dict[str, Any]) -> None:
        chosen = use_of(body)
        text = to.conversation.plain(chosen.text)
        said = await to.shortcut.use(
            text, chosen.ts, chosen.person, chosen.place, by_person=bool(chosen.author)
        )
        if not said.recorded and not await to.interactions.answered(chosen.response_url, said):
            raise Unacknowledged("nobody could be told that a message was not taken as an answer")
        await ack()
        if said.recorded:
            to.interactions.respond(chosen.response_url, said)

    app.shortcut({"callback_id": USE_AS_ANSWER, "type": "message_action"})(use)


def _pages(app: AsyncApp, to: Handlers) -> None:
    """The controls of pages: Take, Hand to…, Snooze, Not mine."""

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = PagePress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a page's control that cannot be read: %s", error)
            await ack()
            to.interactions.answer(touch, Reaction(phrases.UNREADABLE_PRESS))
            return
        unbound = await to.interactions.unbound(press, touch.spot)
        reaction = unbound or await to.page_actions.press(press, touch.person)
        if reaction.recorded:
            to.interactions.react(touch, reaction)
        elif not await to.interactions.told(touch, reaction.text or phrases.storage_failed()):
            raise Unacknowledged(f"nobody could be told that {press.verb} was not done")
        await ack()

    app.action(re.compile(r"oncall\..+"))(pressed)


def _hand_modal(app: AsyncApp, to: Handlers) -> None:
    """The submitted modal behind Hand to…."""

    async def handed(ack: AsyncAck, body: dict[str, Any]) -> None:
        try:
            sent = handed_over(body)
        except BadPress as error:
            _log.warning("a submitted modal that cannot be read: %s", error)
            await ack(response_action="update", view=to.answering.notice(phrases.UNREADABLE_PRESS))
            return
        if (why := to.interactions.unbound_modal(sent)) is not None:
            await ack(response_action="update", view=to.answering.notice(why))
            return
        person, place = sent.person, sent.place
        reaction = await to.page_actions.submit_hand(sent.press, sent.user, person)
        if reaction.errors is not None:
            await ack(response_action="errors", errors=dict(reaction.errors))
        elif reaction.text and not reaction.recorded:
            await ack(response_action="errors", errors={HAND_BLOCK: to.answering.plain(reaction.text)})
        else:
            await ack()
            if reaction.text:
                to.interactions.tell(person, place, reaction.text)

    app.view(HAND_CALLBACK)(handed)


def _messages(app: AsyncApp, to: Handlers) -> None:
    """What is said in threads and to the bot, and where threads went."""

    async def message(ack: AsyncAck, body: dict[str, Any]) -> None:
        event = body.get("event") or {}
        if (said := message_event(event, to.conversation.bot_user)) is not None:
            await to.conversation.take(said)
        elif (place := deleted_message(event)) is not None:
            await to.answering.show_again(*place)
        await ack()

    async def renamed(ack: AsyncAck, event: dict[str, Any]) -> None:
        await to.conversation.channel_renamed(
            str(event.get("old_channel_id")), str(event.get("new_channel_id"))
        )
        await ack()

    app.event("message")(message)
    app.event("app_mention")(message)  # the same again, where both come
    app.event("channel_id_changed")(renamed)


def _people(app: AsyncApp, to: Handlers) -> None:
    """What tells that kept facts about people are out of date."""

    async def membership(ack: AsyncAck, event: dict[str, Any]) -> None:
        to.people.forget("channel", str(event.get("channel")))
        await ack()

    async def person(ack: AsyncAck, event: dict[str, Any]) -> None:
        user = event.get("user")
        to.people.forget("user", str(user.get("id") if isinstance(user, dict) else user))
        await ack()

    async def group(ack: AsyncAck, event: dict[str, Any]) -> None:
        to.people.forget("group", str(event.get("subteam_id")))
        await ack()

    async def group_itself(ack: AsyncAck, event: dict[str, Any]) -> None:
        to.people.ask_again(str((event.get("subteam") or {}).get("id")))
        await ack()

    for kind in ("member_joined_channel", "member_left_channel"):
        app.event(kind)(membership)
    app.event("user_change")(person)
    app.event("subteam_members_changed")(group)
    app.event("subteam_updated")(group_itself)


def _home(app: AsyncApp, to: Handlers) -> None:
    """The Home tab: somebody looks at theirs, or presses a control on it."""

    async def opened(ack: AsyncAck, body: dict[str, Any], event: dict[str, Any]) -> None:
        if event.get("tab", "home") == "home":
            team, channel = str(body.get("team_id") or ""), str(event.get("channel") or "")
            await to.home.opened(str(event["user"]), team, channel, shown="view" in event)
        await ack()

    async def acted(ack: AsyncAck, body: dict[str, Any]) -> None:
        touch = touch_of(body)
        try:
            press = HomePress.unpack(touch.value)
        except BadPress as error:
            _log.warning("a control of a Home tab that cannot be read: %s", error)
            await to.home.opened(touch.person.user, shown=False)  # it is of another release: shown anew
            await ack()
            return
        if (unbound := to.interactions.unbound_at_home(touch.spot)) is not None:
            to.interactions.react_in_modal(touch, unbound)
            await to.home.opened(touch.person.user, shown=False)
        elif press.verb == "page":
            await to.home.press(press, touch.person)
        else:
            await _on_question(to, press, touch)
        await ack()

    app.event("app_home_opened")(opened)
    app.action(ACTIONS)(acted)


async def _on_question(to: Handlers, press: HomePress, touch: Touch) -> None:
    """As a press on the question's card; but nothing can be said beside a Home tab, so words come in a modal."""
    place = to.home.place_of(touch.person.user)
    click = Click(press.on_question(), touch.person, place, touch.spot, touch.trigger)
    reaction = await to.answering.press(click.press, click.person, click.place)
    to.interactions.react_in_modal(click, reaction)
    if not reaction.recorded:
        raise Unacknowledged(f"nothing was recorded of a press for {press.subject}")


def _rest(app: AsyncApp) -> None:
    """Whatever no other listener wants is acknowledged, so that Slack neither repeats it nor shows an error."""

    async def anything(ack: AsyncAck) -> None:
        await ack()

    async def options(ack: AsyncAck) -> None:
        await ack(options=[])

    events: Any = app.event(_ANY)
    for listen in (
        events,
        app.function(_ANY),
        app.action(_ANY),
        app.shortcut(_ANY),
        app.command(_ANY),
        app.view(_ANY),
        app.view_closed(_ANY),
    ):
        listen(anything)
    app.options(_ANY)(options)
