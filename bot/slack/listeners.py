"""The listeners: each decodes what Slack sent, checks where a click came from, makes one call, shows the person the result,
returns the acknowledgement.

Listeners acknowledge only what is stored. If nothing was recorded and the person could not be told, they raise
`Unacknowledged`: Slack shows an error to the person who clicked, or resends an event. Kinds of requests that no listener is
for are acknowledged: Slack would resend them, or show an error.

A click counts if the control carries our installation id and, if it is on a message, that message shows the question
(`OriginCheck`). Any other click is rejected with a reason. A click on a post of unknown outcome counts, too: it shows where
the post is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog

from bot.errors import BadPress, StorageUnavailable
from bot.home import HomeTabs
from bot.oncall.actions import PageActions
from bot.oncall.incidents import Incidents
from bot.oncall.pages import Pages
from bot.people.directory import Fact, People
from bot.routing import Group
from bot.show.desired import rolled_up
from bot.show.messages import MessageRow, Messages
from bot.slack.answering import Answering, Interactions
from bot.slack.conversation import Conversation
from bot.slack.payloads import (
    Click,
    ControlOrigin,
    Invocation,
    Submission,
    click_of,
    command_of,
    deleted_message,
    message_event,
    person_of,
    shortcut_of,
    submission_of,
)
from bot.slack.socket import Json, Unacknowledged
from bot.slack.typed import TypedMessages
from bot.storage.tx import Topic
from bot.views import phrases
from bot.views.codec import (
    ACCEPT_CALLBACK,
    ANSWER_CALLBACK,
    HAND_CALLBACK,
    LINK_ACTION,
    SEARCH_ACTION,
    AnyPress,
    HomePress,
    ListPress,
    PagePress,
    Press,
    carried,
)
from bot.views.phrases import FieldErrors, OpenModal, Reaction, Tell, Told, Unrecorded, explained

COMMAND = "/clarify"
USE_AS_ANSWER = "clarify.use_as_answer"
_PRESSES: Mapping[str, Callable[[str], AnyPress]] = {
    each.PREFIX: each.unpack for each in (Press, PagePress, ListPress, HomePress)
}
_MODALS: Mapping[str, Callable[[str], Press | PagePress]] = {
    ANSWER_CALLBACK: Press.unpack,
    ACCEPT_CALLBACK: Press.unpack,
    HAND_CALLBACK: PagePress.unpack,
}
_LOST_OR_BACK = {
    f"{place}_{what}"
    for place in ("channel", "group")  # a private channel is a group
    for what in ("archive", "unarchive", "left", "deleted")
}
_log = logging.getLogger("clarify.slack")
_origin_log = structlog.get_logger("clarify.slack")
_MOST_LOCATED = 1000


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Handlers:
    """The listeners, and the services that they call. `tell_others` sends news to the other bots on the same database;
    `channel_renamed` moves a channel's decisions to its new id; `look_at` has a channel looked at that the bot may have lost
    or have again, `app_removed` the app itself.
    """

    answering: Answering
    interactions: Interactions
    origin: OriginCheck
    typed: TypedMessages
    page_actions: PageActions
    conversation: Conversation
    people: People
    home: HomeTabs
    tell_others: Callable[[Topic, str], Awaitable[None]]
    channel_renamed: Callable[[str, str], Awaitable[None]]
    look_at: Callable[[str], None]
    app_removed: Callable[[], None]

    async def act(self, body: Json) -> Json | None:
        """Do what a person asks for; returns the payload of the acknowledgement.

        Raises:
            Unacknowledged: nothing was recorded, and nobody could be told.
        """
        person = person_of(body, self.people.team)
        match body.get("type"):
            case "block_actions":
                await self._click(click_of(body, person))
            case "view_submission":
                return await self._submit(submission_of(body, person))
            case "message_action" if body.get("callback_id") == USE_AS_ANSWER:
                await self._use_as_answer(shortcut_of(body, person))
            case "block_suggestion":
                return {"options": []}
            case None if body.get("command") == COMMAND:
                return await self._command(command_of(body, person))
        return None

    async def hear(self, body: Json) -> None:
        """Take an event.

        Raises:
            Unacknowledged, SlackError, StorageUnavailable: it is not stored; Slack has to send it again.
        """
        event: dict[str, Any] = body["event"]
        match event.get("type"):
            case "message" | "app_mention":  # one message, where Slack sends both
                await self._message(event)
            case "app_home_opened" if event.get("tab", "home") == "home":
                team, channel = str(body.get("team_id") or ""), str(event.get("channel") or "")
                await self.home.opened(str(event["user"]), team, channel, shown="view" in event)
            case "channel_id_changed":
                old, new = str(event.get("old_channel_id")), str(event.get("new_channel_id"))
                await self.conversation.memory.channel_renamed(old, new)
                await self.channel_renamed(old, new)
            case "app_uninstalled" | "tokens_revoked":
                _log.warning("Slack says that the app was removed from the workspace, or a token revoked")
                self.app_removed()
                await self.tell_others("app", "")
            case kind if kind in _LOST_OR_BACK:
                await self._lost_or_back(event)
            case _:
                await self._people_changed(event)

    async def _people_changed(self, event: Mapping[str, Any]) -> None:
        """Drop what is cached about people, if the event makes it outdated."""
        user = event.get("user")
        match event.get("type"):
            case "user_change":
                await self._forget("user", user.get("id") if isinstance(user, dict) else user)
            case "subteam_members_changed":
                await self._forget("group", event.get("subteam_id"))
            case "subteam_updated":
                await self._forget("group itself", (event.get("subteam") or {}).get("id"))
            case "member_joined_channel" | "member_left_channel":
                await self._forget("channels of", user)
                if user == self.people.bot_user:
                    await self._lost_or_back(event)
                await self._forget("channel", event.get("channel"))

    async def _click(self, click: Click) -> None:
        """Handle a control of a card, list, page, modal or Home tab, unless it is unreadable or not ours."""
        unpack = _PRESSES.get(click.action.partition(".")[0])
        if click.action == SEARCH_ACTION:
            return await self._search(click)
        if unpack is None or click.action == LINK_ACTION:
            return None
        try:
            press = unpack(click.value)
        except BadPress as error:
            _log.warning("cannot read a control: %s", error)
            if click.surface == "home":
                await self.home.opened(
                    click.person.user, shown=False
                )  # of another release: renders the tab again
            else:
                self.interactions.react(click, Tell(phrases.UNREADABLE_PRESS))
            return None
        self.interactions.seen(click.control.channel)
        refused = await self.origin.refusal(press, click.control)
        if isinstance(press, HomePress):
            return await self._click_at_home(press, click, refused)
        reaction: Reaction
        if refused is not None:
            reaction = refused
        elif isinstance(press, Press):
            reaction = await self.answering.press(press, click.person, click.place)
        elif isinstance(press, PagePress):
            reaction = await self.page_actions.press(press, click.person)
        else:
            reaction = await self.interactions.press_list(press, click)
        return await self.interactions.settle(click, reaction, is_answer=isinstance(press, Press))

    async def _click_at_home(self, press: HomePress, click: Click, refused: Reaction | None) -> None:
        if refused is not None:
            self.interactions.react(click, refused)
            await self.home.opened(click.person.user, shown=False)
        elif press.verb == "page":
            await self.home.press(press, click.person)
        else:
            click = replace(click, place=self.home.place_of(click.person.user))
            reaction = await self.answering.press(press.on_question(), click.person, click.place)
            await self.interactions.settle(click, reaction, is_answer=True)

    async def _search(self, click: Click) -> None:
        if (why := self.origin.elsewhere(click.control)) is not None:
            self.interactions.react(click, why)
            await self.home.opened(click.person.user, shown=False)
        elif click.value.strip():
            self.interactions.react(click, await self.interactions.search(click.value, click))

    async def _submit(self, sent: Submission) -> Json | None:
        """Handle a submitted modal. Shows errors in the form, so that the person can send it again or copy the text."""
        if (unpack := _MODALS.get(sent.callback)) is None:
            return None
        try:
            press = unpack(sent.value)
        except BadPress as error:
            _log.warning("cannot read a submitted modal: %s", error)
            return {"response_action": "update", "view": self.answering.notice(phrases.UNREADABLE_PRESS)}
        reaction: Reaction
        if (refused := self.origin.modal_refusal(sent)) is not None:
            reaction = refused
        elif isinstance(press, Press):
            reaction = await self.answering.submit(press, sent)
        else:
            reaction = await self.page_actions.submit_hand(press, sent.chosen_user(), sent.person)
        match reaction:
            case Unrecorded(words) if sent.values:
                errors = dict.fromkeys(sent.values, self.answering.plain(words))
                return {"response_action": "errors", "errors": errors}
            case FieldErrors(errors):
                return {"response_action": "errors", "errors": dict(errors)}
            case OpenModal(view):
                return {"response_action": "update", "view": view}
        self.interactions.tell(sent.person, sent.place, reaction.text)
        return None

    async def _command(self, request: Invocation) -> Json | None:
        reaction = await self.interactions.run_command(request)
        if reaction is None:
            return None
        blocks = {"blocks": reaction.blocks} if reaction.blocks else {}
        return {"text": reaction.text, "response_type": "ephemeral", **blocks}

    async def _use_as_answer(self, chosen: Invocation) -> None:
        """Handle the message shortcut “Use as answer”."""
        reaction = await self.typed.take_as_answer(chosen)
        if isinstance(reaction, Tell):
            self.interactions.respond(chosen, reaction)
        elif not await self.interactions.tell_in_time(chosen, reaction):
            raise Unacknowledged("nobody could be told that a message was not taken as an answer")

    async def _message(self, event: Mapping[str, Any]) -> None:
        """Take what a person wrote, changed or deleted in a thread or to the bot."""
        if (sent := message_event(event, self.people.bot_user)) is not None:
            self.interactions.seen(sent.channel)
            await self.conversation.receive(sent)
        elif (place := deleted_message(event)) is not None:
            await self.answering.show_again(*place)

    async def _forget(self, fact: Fact, name: object) -> None:
        self.people.drop(fact, str(name))
        await self.tell_others("people", f"{fact} {name}")

    async def _lost_or_back(self, event: Mapping[str, Any]) -> None:
        """Have a channel looked at where the bot can no longer post, or can again."""
        channel = str(event.get("channel"))
        self.people.drop("channel", channel)
        self.look_at(channel)
        await self.tell_others("channel", channel)


@dataclass(kw_only=True, eq=False, repr=False)
class OriginCheck:
    """Decides whether a click counts, and why not.

    `adopt(row, ts)` records that a post of unknown outcome is at `ts`. `group_of` returns the group whose roll-up card
    would show a question; None: not known. `foreign` is called when Slack sends us another installation's click.
    """

    installation: str
    messages: Messages
    incidents: Incidents
    pages: Pages
    adopt: Callable[[MessageRow, str], None]
    group_of: Callable[[str], Group | None]
    foreign: Callable[[], None]

    def __post_init__(self) -> None:
        # Posts of unknown outcome by the place of a click, until `adopt` is recorded: a list may show another page by then.
        self._located: dict[tuple[str, str], MessageRow] = {}

    def elsewhere(self, control: ControlOrigin) -> Tell | None:
        """Returns the reason to reject a control outside our messages (modal, Home tab), or None."""
        if control.installation == self.installation:
            return None
        _origin_log.warning(
            "ignored a click on another installation's message",
            installation=control.installation or "none",
            channel=control.channel,
        )
        if not control.installation:
            return Tell(phrases.UNKNOWN_CARD)
        self.foreign()
        return Tell(phrases.ANOTHERS)

    def modal_refusal(self, sent: Submission) -> Unrecorded | None:
        """Returns the reason to reject this modal, or None."""
        if (why := self.elsewhere(sent.control)) is not None:
            return Unrecorded(why.text)
        return None if sent.opened_by == sent.person.user else Unrecorded(phrases.NOT_YOUR_WINDOW)

    async def refusal(self, press: AnyPress, control: ControlOrigin) -> Told | None:
        """Returns the reason to reject this click, or None."""
        if not control.ts or control.installation != self.installation:
            return self.elsewhere(control)
        try:
            row = await self._row(press, control)
            if row is None and isinstance(press, Press) and press.verb in {"view", "verify"}:
                return None  # it only shows what the record has, also after the card is forgotten
            if row is not None and await self._shows(row, press):
                return None
        except StorageUnavailable as error:
            return explained(error, "this message")
        _origin_log.warning("ignored a click on an unknown or changed message", channel=control.channel)
        return Tell(phrases.UNKNOWN_CARD)

    async def _row(self, press: AnyPress, control: ControlOrigin) -> MessageRow | None:
        """Returns the message that was clicked. Its place may become known meanwhile."""
        row = await self.messages.at(control.channel, control.ts) or self._located.get(
            (control.channel, control.ts)
        )
        if row is not None:
            return row
        begun = await self.messages.begun_in(control.channel)
        meant = [each for each in begun if await self._posts(each, press)]
        if len(meant) == 1:
            if len(self._located) >= _MOST_LOCATED:
                self._located.clear()
            self._located[control.channel, control.ts] = meant[0]
            self.adopt(meant[0], control.ts)
            _origin_log.info(
                "a click confirmed a post of unknown outcome", key=meant[0].key, channel=control.channel
            )
        # With several, the post stays in doubt until it is looked up; here any of them will do.
        return meant[0] if meant else await self.messages.at(control.channel, control.ts)

    async def _shows(self, row: MessageRow, press: AnyPress) -> bool:
        """Returns whether our message may carry this control. Lists in direct messages change their pages in place."""
        turned = row.kind == "word" and (isinstance(press, ListPress) or press.verb in {"answer", "view"})
        return turned or await self._posts(row, press)

    async def _posts(self, row: MessageRow, press: AnyPress) -> bool:
        """Returns whether the message carried this control when it was posted."""
        posts = False
        match row.kind, press:
            case "word", _:
                posts = press.pack() in carried((row.body or {}).get("blocks") or ())
            case "handoff", PagePress():
                handed = await self.incidents.get(press.incident)
                posts = handed is not None and handed.key == f"handoff:{row.key.partition(':')[2]}"
            case _, PagePress():
                posts = row.page == press.page
            case "card", Press():
                posts = (press.clarification, press.round) == (row.clarification, row.round)
            case "rollup", Press(verb="answer" | "list"):
                posts = self.group_of(press.clarification) in {None, rolled_up(row)}
            case "page", Press():
                posts = press.clarification in await self.pages.clarifications_of(row)
        return posts
