"""The listeners: each decodes what Slack sent, makes one call, shows the person the result, acknowledges.

Listeners acknowledge only what is stored. If nothing was recorded and the person could not be told, they raise
`Unacknowledged`: Slack shows an error to the person who clicked, or resends an event. Bolt takes the first listener that
matches: the most frequent come first, since every mismatch costs time, and the one for the rest comes last.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from slack_bolt.async_app import AsyncAck, AsyncApp

from bot.errors import BadPress
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.people.access import lookup_deadline
from bot.people.directory import Fact, People
from bot.slack.answering import Answering, Interactions
from bot.slack.control_origin import AnyPress
from bot.slack.conversation import Conversation
from bot.slack.payloads import (
    Click,
    Submission,
    click_of,
    command_of,
    deleted_message,
    message_event,
    shortcut_of,
    submission_of,
)
from bot.slack.socket import Unacknowledged
from bot.slack.typed import TypedMessages
from bot.storage.tx import Topic
from bot.views import phrases
from bot.views.codec import (
    ACCEPT_CALLBACK,
    ANSWER_CALLBACK,
    HAND_CALLBACK,
    HOME_ACTIONS,
    LINK_ACTION,
    SEARCH_ACTION,
    HomePress,
    ListPress,
    PagePress,
    Press,
)
from bot.views.phrases import FieldErrors, OpenModal, Reaction, Tell, Unrecorded

COMMAND = "/clarify"
USE_AS_ANSWER = "clarify.use_as_answer"
_ANY = re.compile(".*", re.DOTALL)
_Press = TypeVar("_Press", bound=AnyPress)
_log = logging.getLogger("clarify.slack")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Handlers:
    """The services that the listeners call. `tell_others` sends news to the other bots on the same database;
    `channel_renamed` moves a channel's decisions to its new id; `look_at` has a channel looked at that the bot may have lost
    or have again, `app_removed` the app itself.
    """

    answering: Answering
    interactions: Interactions
    typed: TypedMessages
    page_actions: PageActions
    conversation: Conversation
    people: People
    home: HomeTabs
    tell_others: Callable[[Topic, str], Awaitable[None]]
    channel_renamed: Callable[[str, str], Awaitable[None]]
    look_at: Callable[[str], None]
    app_removed: Callable[[], None]


def register(app: AsyncApp, to: Handlers) -> None:
    """Add all listeners to `app`; they call `to`."""

    async def press(press: Press, click: Click) -> Reaction:
        return await to.answering.press(press, click.person, click.place)

    async def press_page(press: PagePress, click: Click) -> Reaction:
        return await to.page_actions.press(press, click.person)

    async def hand(press: PagePress, sent: Submission) -> Reaction:
        return await to.page_actions.submit_hand(press, sent.chosen_user(), sent.person)

    app.action(LINK_ACTION)(_nothing)
    _buttons(app, to, r"clarify\..+", Press.unpack, press)
    _messages(app, to)
    _buttons(app, to, r"list\..+", ListPress.unpack, to.interactions.press_list)
    _buttons(app, to, r"oncall\..+", PagePress.unpack, press_page)
    _home(app, to)
    for callback in (ANSWER_CALLBACK, ACCEPT_CALLBACK):
        _modal(app, to, callback, Press.unpack, to.answering.submit)
    _modal(app, to, HAND_CALLBACK, PagePress.unpack, hand)
    _command(app, to)
    _shortcut(app, to)
    _people(app, to)
    _places(app, to)
    _rest(app)


def _buttons(
    app: AsyncApp,
    to: Handlers,
    actions: str,
    unpack: Callable[[str], _Press],
    press: Callable[[_Press, Click], Awaitable[Reaction]],
) -> None:
    """Adds the controls of cards, modals, lists and pages. Rejects controls that are unreadable or not ours."""

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        click = click_of(body, lookup_deadline())
        try:
            packed = unpack(click.value)
        except BadPress as error:
            _log.warning("cannot read a control: %s", error)
            await ack()
            to.interactions.react(click, Tell(phrases.UNREADABLE_PRESS))
            return
        to.interactions.seen(click.control.channel)
        reaction = await to.interactions.rejection(packed, click.control) or await press(packed, click)
        await to.interactions.settle(click, reaction, is_answer=isinstance(packed, Press))
        await ack()

    app.action(re.compile(actions))(pressed)


def _home(app: AsyncApp, to: Handlers) -> None:
    """Adds the Home tab: a person opens it, or clicks a control on it."""

    async def opened(ack: AsyncAck, body: dict[str, Any], event: dict[str, Any]) -> None:
        if event.get("tab", "home") == "home":
            team, channel = str(body.get("team_id") or ""), str(event.get("channel") or "")
            await to.home.opened(str(event["user"]), team, channel, shown="view" in event)
        await ack()

    async def pressed(ack: AsyncAck, body: dict[str, Any]) -> None:
        click = click_of(body, lookup_deadline())
        user = click.person.user
        try:
            press = HomePress.unpack(click.value)
        except BadPress as error:
            _log.warning("cannot read a control of a Home tab: %s", error)
            await to.home.opened(user, shown=False)  # of another release: renders the tab again
            await ack()
            return
        if (why := to.interactions.origin.elsewhere(click.control)) is not None:
            to.interactions.react(click, Tell(why))
            await to.home.opened(user, shown=False)
        elif press.verb == "page":
            await to.home.press(press, click.person)
        else:
            click = replace(click, place=to.home.place_of(user))
            reaction = await to.answering.press(press.on_question(), click.person, click.place)
            await to.interactions.settle(click, reaction, is_answer=True)
        await ack()

    async def search(ack: AsyncAck, body: dict[str, Any]) -> None:
        click = click_of(body, lookup_deadline())
        if (why := to.interactions.origin.elsewhere(click.control)) is not None:
            to.interactions.react(click, Tell(why))
            await to.home.opened(click.person.user, shown=False)
        elif click.value.strip():
            to.interactions.react(click, await to.interactions.search(click.value, click))
        await ack()

    app.event("app_home_opened")(opened)
    app.action(SEARCH_ACTION)(search)
    app.action(HOME_ACTIONS)(pressed)


def _modal(
    app: AsyncApp,
    to: Handlers,
    callback: str,
    unpack: Callable[[str], _Press],
    submit: Callable[[_Press, Submission], Awaitable[Reaction]],
) -> None:
    """Adds a modal's submission. Errors are shown in the form, so that the person can send it again or copy the text."""

    async def submitted(ack: AsyncAck, body: dict[str, Any]) -> None:
        sent = submission_of(body, lookup_deadline())
        try:
            press = unpack(sent.value)
        except BadPress as error:
            _log.warning("cannot read a submitted modal: %s", error)
            await ack(response_action="update", view=to.answering.notice(phrases.UNREADABLE_PRESS))
            return
        reaction = to.interactions.modal_rejection(sent) or await submit(press, sent)
        match reaction:
            case Unrecorded(words) if sent.values:
                errors = dict.fromkeys(sent.values, to.answering.plain(words))
                await ack(response_action="errors", errors=errors)
            case FieldErrors(errors):
                await ack(response_action="errors", errors=dict(errors))
            case OpenModal(view):
                await ack(response_action="update", view=view)
            case _:
                await ack()
                to.interactions.tell(sent.person, sent.place, reaction.text)

    app.view(callback)(submitted)


def _command(app: AsyncApp, to: Handlers) -> None:
    """Adds `/clarify`."""

    async def command(ack: AsyncAck, body: dict[str, Any]) -> None:
        reaction = await to.interactions.run_command(command_of(body, lookup_deadline()))
        if reaction is None:
            await ack()
        else:
            await ack(text=reaction.text, blocks=reaction.blocks, response_type="ephemeral")

    app.command(COMMAND)(command)


def _shortcut(app: AsyncApp, to: Handlers) -> None:
    """Adds the message shortcut “Use as answer”."""

    async def use(ack: AsyncAck, body: dict[str, Any]) -> None:
        chosen = shortcut_of(body, lookup_deadline())
        reaction = await to.typed.take_as_answer(chosen)
        if isinstance(reaction, Tell):
            await ack()
            to.interactions.respond(chosen, reaction)
        elif await to.interactions.tell_in_time(chosen, reaction):
            await ack()
        else:
            raise Unacknowledged("nobody could be told that a message was not taken as an answer")

    app.shortcut({"callback_id": USE_AS_ANSWER, "type": "message_action"})(use)


def _messages(app: AsyncApp, to: Handlers) -> None:
    """Adds messages in threads and to the bot, and renamed channels."""

    async def message(ack: AsyncAck, body: dict[str, Any]) -> None:
        event = body.get("event") or {}
        if (sent := message_event(event, to.people.bot_user)) is not None:
            to.interactions.seen(sent.channel)
            await to.conversation.take(sent)
        elif (place := deleted_message(event)) is not None:
            await to.answering.show_again(*place)
        await ack()

    async def renamed(ack: AsyncAck, event: dict[str, Any]) -> None:
        old, new = str(event.get("old_channel_id")), str(event.get("new_channel_id"))
        await to.conversation.memory.channel_renamed(old, new)
        await to.channel_renamed(old, new)
        await ack()

    app.event("message")(message)
    app.event("app_mention")(message)  # the same message, where Slack sends both
    app.event("channel_id_changed")(renamed)


def _people(app: AsyncApp, to: Handlers) -> None:
    """Adds the events that make cached facts about people outdated."""

    async def out_of_date(ack: AsyncAck, fact: Fact, name: str) -> None:
        to.people.forget(fact, name)
        await to.tell_others("people", f"{fact} {name}")
        await ack()

    async def membership(ack: AsyncAck, event: dict[str, Any]) -> None:
        user = str(event.get("user"))
        to.people.forget("channels of", user)
        await to.tell_others("people", f"channels of {user}")
        if user == to.people.bot_user:
            await _lost_or_back(to, event)
        await out_of_date(ack, "channel", str(event.get("channel")))

    async def person(ack: AsyncAck, event: dict[str, Any]) -> None:
        user = event.get("user")
        await out_of_date(ack, "user", str(user.get("id") if isinstance(user, dict) else user))

    async def group(ack: AsyncAck, event: dict[str, Any]) -> None:
        await out_of_date(ack, "group", str(event.get("subteam_id")))

    async def group_itself(ack: AsyncAck, event: dict[str, Any]) -> None:
        await out_of_date(ack, "group itself", str((event.get("subteam") or {}).get("id")))

    for kind in ("member_joined_channel", "member_left_channel"):
        app.event(kind)(membership)
    app.event("user_change")(person)
    app.event("subteam_members_changed")(group)
    app.event("subteam_updated")(group_itself)


def _places(app: AsyncApp, to: Handlers) -> None:
    """Adds the events that say where the bot can no longer post, or can again: channels, or the whole workspace."""

    async def channel(ack: AsyncAck, event: dict[str, Any]) -> None:
        await _lost_or_back(to, event)
        await ack()

    async def removed(ack: AsyncAck) -> None:
        _log.warning("Slack says that the app was removed from the workspace, or a token revoked")
        to.app_removed()
        await to.tell_others("app", "")
        await ack()

    for what in ("channel", "group"):  # a private channel is a group
        for kind in ("archive", "unarchive", "left", "deleted"):
            app.event(f"{what}_{kind}")(channel)
    app.event("app_uninstalled")(removed)
    app.event("tokens_revoked")(removed)


async def _lost_or_back(to: Handlers, event: dict[str, Any]) -> None:
    channel = str(event.get("channel"))
    to.people.forget("channel", channel)
    to.look_at(channel)
    await to.tell_others("channel", channel)


def _rest(app: AsyncApp) -> None:
    """Acknowledges the rest, so that Slack neither resends it nor shows an error."""

    async def options(ack: AsyncAck) -> None:
        await ack(options=[])

    everything: Any = app.event  # its type lacks patterns, which the method takes
    for kind in (everything, app.function, app.action, app.shortcut, app.command, app.view, app.view_closed):
        kind(_ANY)(_nothing)
    app.options(_ANY)(options)


async def _nothing(ack: AsyncAck) -> None:
    await ack()
