"""The local Slack workspace: a Web API subset, Socket Mode or a request URL, and a page, on 127.0.0.1.

```python
async with Workspace() as ws:
    client = AsyncWebClient(BOT_TOKEN, base_url=ws.api_url)
    ...
    await ws.click(ADE, AGENTS, ts, label="Yes")
```
It is a party of its own: it imports nothing from the bot, and the bot meets it over HTTP only. Everything is in
memory and gone when it closes. `seed.py` tells what is in it at the start, `control.py` how another process
drives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from aiohttp import web

from . import controls
from .api import WebApi
from .board import Board
from .context import Context, Options, Shown
from .control import Control
from .controls import ControlError
from .delivery import Events, Link
from .faults import Faults
from .interactions import SELECTS, Interactions, Outcome
from .mrkdwn import compose
from .page import Page
from .payloads import forwarded, group_json, pasted_table, uploaded, user_json
from .seed import seeded
from .state import Channel, Ephemeral, Json, Message, User, View

T = TypeVar("T")
HOST = "127.0.0.1"
_HOSTS = {HOST, "localhost"}
_ACCEPT_STEPS = 5  # turns of the event loop from an accepted connection to its handler


async def stop_accepting(what: web.AppRunner | asyncio.Server) -> None:
    """Accepts no more connections, and waits until accepted ones have their handlers; stop or close it afterwards.

    Closing a listening socket between `accept` and the connection's task leaks the connection (CPython 3.11).
    """
    loop = asyncio.get_running_loop()
    # aiohttp has no other way to a site's server
    servers = [what] if isinstance(what, asyncio.Server) else [site._server for site in what.sites]  # noqa: SLF001
    for server in servers:
        for listening in server.sockets if isinstance(server, asyncio.Server) else ():
            loop.remove_reader(listening)
    for _ in range(_ACCEPT_STEPS):
        await asyncio.sleep(0)


class Workspace:
    """A running workspace; use it as an async context manager. `port` 0 takes any free one.

    Every action names the acting user and the channel by id. What cannot be done raises `ControlError`.
    """

    def __init__(self, port: int = 0, options: Options | None = None) -> None:
        options = options or Options()
        self.context = Context(options, seeded(options.clock))
        self.state = self.context.state  # everything there is; tests may seed it further
        self.calls = self.context.calls  # every Web API call so far
        self.acks = self.context.acks  # every envelope sent so far, with its latency or why it failed
        self.traffic = self.context.traffic  # what the page's panel shows; `note` and `aaep` add to it
        self.link = Link(self.context)
        self.events = Events(self.context, self.link)
        self.board = Board(self.context, self.events)
        self.interactions = Interactions(self.context, self.board, self.events, self.link)
        self._port = port
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    # Where it listens

    @property
    def url(self) -> str:
        """The page."""
        return f"http://{HOST}:{self._port}/"

    @property
    def api_url(self) -> str:
        """What `SLACK_API_URL` is to be set to."""
        return f"{self.url}api/"

    async def __aenter__(self) -> Self:
        self._runner = web.AppRunner(self._app(), shutdown_timeout=0.5, access_log=None)
        await self._runner.setup()
        try:
            await self.accept_connections()
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.context.stop()
        await self.link.close()
        if self._runner is not None:
            await stop_accepting(self._runner)
            await self._runner.cleanup()

    async def accept_connections(self) -> None:
        """Listen; after `refuse_connections` again on the same port."""
        if self._runner is None or self._site is not None:
            return
        self._site = web.TCPSite(self._runner, HOST, self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]
        self.state.team["url"] = self.url
        self.context.changes.notify("record")

    async def refuse_connections(self) -> None:
        """Be gone: cut every connection and listen no more, until `accept_connections`."""
        if self._runner is None or self._site is None:
            return
        await stop_accepting(self._runner)
        await self._site.stop()
        self._site = None
        server = self._runner.server
        for handler in list(server.connections) if server is not None else []:
            if handler.transport is not None:
                handler.transport.abort()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[_local_only], client_max_size=4 * 1024 * 1024)
        WebApi(self.context, self.board, self.link).add_routes(app)
        app.router.add_get("/link/", self.link.handle)
        app.router.add_post("/response/{key}", self.interactions.respond)
        Control(self).add_routes(app)
        Page(self).add_routes(app)
        return app

    @property
    def faults(self) -> Faults:
        """Those of the Web API; those of the sockets: `link`."""
        return self.context.faults

    # Acting on messages

    async def click(
        self, user: str, channel: str, ts: str, action_id: str | None = None, *, label: str | None = None
    ) -> Outcome:
        """Press a button of a message, or what its overflow menu offers, by its action_id or by the words on it."""
        shown = self.shown(user, channel, ts)
        control, chosen = controls.find_button(shown.blocks, action_id or label)
        return await self.interactions.press(user, shown, control, chosen)

    async def click_as_seen(self, user: str, shown: Message, label: str) -> Outcome:
        """Press a button of a message that may be gone by now: Slack delivers a click that was made before."""
        control, chosen = controls.find_button(shown.blocks, label)
        return await self.interactions.press(user, shown, control, chosen)

    async def select(self, user: str, channel: str, ts: str, label: str | None, option: Any) -> Outcome:
        """Choose in a select, menu, radio or checkbox group of a message (a list of options for several)."""
        shown = self.shown(user, channel, ts)
        control = controls.find(shown.blocks, label, kinds=SELECTS)
        return await self.interactions.press(user, shown, control, option)

    async def press_ephemeral(self, user: str, ephemeral: Ephemeral | str, label: str) -> Outcome:
        """Press a button of a message that only this user sees: by its words or action_id (a str: its ts)."""
        ts = ephemeral if isinstance(ephemeral, str) else ephemeral.ts
        shown = self.state.ephemeral(user, ts)
        if shown is None:
            msg = f"{user} sees no ephemeral message {ts}. Ephemeral messages: {[e.ts for e in self.ephemerals(user)]}"
            raise ControlError(msg)
        return await self.interactions.press(
            user, shown, controls.find(shown.blocks, label, kinds={"button"})
        )

    async def post(
        self,
        user: str,
        channel: str,
        text: str,
        thread_ts: str | None = None,
        *,
        broadcast: bool = False,
        table: Sequence[Sequence[str]] = (),
        forward: tuple[str, str] | None = None,
        files: Sequence[str] = (),
    ) -> Message:
        """Say something in a channel or thread; names (`@ade`) and links become marks as in Slack.

        `broadcast` sends a reply to the channel as well. What else a person can send along, none of which is in the text:
        a pasted `table` by its rows, the message to `forward` by its channel and ts, `files` by their names.
        """
        place = self.channel(channel)
        if user not in place.members or place.is_archived or self.state.users[user].deleted:
            msg = f"{user} cannot write in {channel}: not a member, archived, or deactivated"
            raise ControlError(msg)
        if thread_ts is not None and not place.thread(thread_ts):
            msg = f"no thread {thread_ts} in {channel}"
            raise ControlError(msg)
        message = Message(channel, "", user, compose(self.state, text), thread_ts=thread_ts)
        message.client_msg_id, message.broadcast = self.state.next_id("client-"), broadcast
        message.attachments = [pasted_table(table)] if table else []
        if forward is not None:
            message.attachments.append(forwarded(self.state, self.message(*forward)))
        if files:
            message.files, message.subtype = [uploaded(self.state, name) for name in files], "file_share"
        return self.board.post(place, message)

    async def edit(
        self, user: str, channel: str, ts: str, text: str, *, table: Sequence[Sequence[str]] | None = None
    ) -> None:
        """Give a message another text, and another `table` (an empty one: none); without it, attachments stay."""
        changes: dict[str, Any] = {"text": compose(self.state, text)}
        if table is not None:
            changes["attachments"] = [pasted_table(table)] if table else []
        self.board.change(self._own(user, channel, ts), user, changes)

    async def delete_message(self, user: str, channel: str, ts: str) -> None:
        self.board.delete(self._own(user, channel, ts))

    async def command(
        self, user: str, channel: str, command: str, text: str = "", *, thread_ts: str | None = None
    ) -> Outcome:
        """Type a slash command. In a thread Slack takes none, and says so."""
        in_thread = thread_ts is not None
        return await self.interactions.command(user, self.channel(channel), command, text, thread=in_thread)

    async def shortcut(self, user: str, callback_id: str, message_ts: str, channel: str) -> Outcome:
        """Choose a message shortcut in the menu of a message; ephemeral messages have none."""
        return await self.interactions.shortcut(user, callback_id, self.message(channel, message_ts))

    # Acting on modals and Home tabs

    async def submit_view(self, user: str, values: dict[str, Any] | None = None) -> Outcome:
        """Fill in the modal on top by label, block_id or action_id, and submit it."""
        return await self.interactions.submit(user, values or {})

    async def click_in_view(
        self, user: str, action_id: str | None = None, *, label: str | None = None
    ) -> Outcome:
        """Press a button of the modal on top, or of the Home tab where no modal is open."""
        return await self._use_in(user, self.view(user), action_id or label, {"button"})

    async def choose_user(self, user: str, view: View | str | None, user_id: str) -> Outcome:
        """Choose a person in a view's list of people (`view`: it or its id, None: the one shown).

        In an input block the choice waits for `submit_view`; elsewhere it is sent at once.
        """
        return await self._use_in(user, self.view(user, view), None, {"users_select"}, user_id)

    async def press_home(self, user: str, label_or_action_id: str) -> Outcome:
        """Press a button of the user's Home tab, whatever modal may be open."""
        home = self.home(user)
        if home is None:
            msg = f"nothing was published on {user}'s Home tab"
            raise ControlError(msg)
        return await self._use_in(user, home, label_or_action_id, {"button"})

    async def type_on_home(self, user: str, label: str, text: str) -> Outcome:
        """Type into a field of the user's Home tab, and press Enter."""
        home = self.home(user)
        if home is None:
            msg = f"nothing was published on {user}'s Home tab"
            raise ControlError(msg)
        return await self._use_in(user, home, label, {"plain_text_input"}, text)

    async def _use_in(
        self, user: str, view: View, name: str | None, kinds: set[str], entered: Any = None
    ) -> Outcome:
        control = controls.find(view.payload["blocks"], name, kinds=kinds)
        return await self.interactions.press_in_view(user, view, control, entered)

    async def close_view(self, user: str, *, everything: bool = False) -> Outcome:
        return await self.interactions.close(user, everything=everything)

    async def open_home(self, user: str, tab: str = "home") -> None:
        """Look at a tab of the app: `home` or `messages`; the app gets `app_home_opened`."""
        self.interactions.open_home(user, tab)

    # Changing what is around them; the app is told as Slack tells it

    def set_presence(self, user: str, presence: Literal["active", "away"]) -> None:
        """Be there or be away, as `users.getPresence` tells; no event goes with it."""
        if presence not in {"active", "away"}:
            msg = f"presence {presence!r}: expected active or away"
            raise ControlError(msg)
        self.state.users[user].presence = presence
        self.context.changes.notify("sidebar")

    def join(self, user: str, channel: str) -> None:
        self.board.join(self.channel(channel), user)

    def leave(self, user: str, channel: str) -> None:
        self.board.leave(self.channel(channel), user)

    def archive(self, channel: str, by: str = "U0FOLAKE", *, undo: bool = False) -> None:
        place = self.channel(channel)
        place.is_archived = not undo
        self.events.about_channel(place, "channel_unarchive" if undo else "channel_archive", by)
        self.context.changes.notify(f"channel:{channel}", "sidebar")

    def delete_channel(self, channel: str, by: str = "U0FOLAKE") -> None:
        """Delete a channel for good; the app is told where it was a member."""
        place = self.channel(channel)
        self.events.about_channel(place, "channel_deleted", by)
        del self.state.channels[channel]
        self.context.changes.notify("sidebar")

    def uninstall(self, *, undo: bool = False) -> None:
        """Remove the app from the workspace: its tokens are refused from now on, and the app is told while it is connected.

        `undo` lets the same tokens in again; Slack would make new ones.
        """
        state = self.state
        if undo:
            state.tokens, state.uninstalled = state.tokens | state.uninstalled, {}
            return
        bots = {token: scopes for token, scopes in state.tokens.items() if not token.startswith("xapp-")}
        state.uninstalled = state.uninstalled | bots
        state.tokens = {token: scopes for token, scopes in state.tokens.items() if token not in bots}
        self.emit({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [state.app.bot_user]}})
        self.emit({"type": "app_uninstalled"})

    def change_user(self, user: str, **changes: Any) -> None:
        """Give a person's fields other values, `deleted=True` for instance; the app gets `user_change`."""
        person = self.state.users[user]
        for name, value in changes.items():
            setattr(person, name, value)
        person.updated = int(self.context.now())
        ts = self.state.next_ts()
        body = user_json(self.state, person, email=True)
        self.emit({"type": "user_change", "user": body, "cache_ts": person.updated, "event_ts": ts})
        self.context.changes.notify("sidebar")

    def change_group(self, group: str, users: list[str]) -> None:
        """Give a user group other members; the app gets `subteam_members_changed`."""
        before = self.state.groups[group].users
        self.state.groups[group].users = users
        self.emit(
            {
                "type": "subteam_members_changed",
                "subteam_id": group,
                "team_id": self.state.team["id"],
                "added_users": [u for u in users if u not in before],
                "removed_users": [u for u in before if u not in users],
                "event_ts": self.state.next_ts(),
            }
        )

    def disable_group(self, group: str, *, undo: bool = False) -> None:
        """Disable a user group, as its owner or an admin may; the app gets `subteam_updated`."""
        changed = self.state.groups[group]
        changed.disabled = not undo
        body = group_json(self.state, changed)
        self.emit({"type": "subteam_updated", "subteam": body, "event_ts": self.state.next_ts()})

    def join_enterprise(self, enterprise: str, *, org_wide: bool = False) -> None:
        """Make the workspace one of an Enterprise Grid organization; `org_wide`: the app is installed for all of it.

        The people of the workspace belong to the organization, others where their `enterprise_id` says so.
        """
        self.state.enterprise, self.state.org_wide = enterprise, org_wide
        for user in self.state.users.values():
            if user.team_id == self.state.team["id"]:
                user.enterprise_id = enterprise

    def emit(self, event: Json) -> None:
        """Send any event to the app, for what the workspace has no action for."""
        self.events.emit(event)

    def add_user(self, user: User) -> User:
        self.state.users[user.id] = user
        self.context.changes.notify("sidebar")
        return user

    def add_channel(self, channel: Channel) -> Channel:
        self.state.channels[channel.id] = channel
        self.context.changes.notify("sidebar")
        return channel

    # Reading

    def channel(self, channel: str) -> Channel:
        found = self.state.channels.get(channel)
        if found is None:
            msg = f"no channel {channel}. Channels: {sorted(self.state.channels)}"
            raise ControlError(msg)
        return found

    def message(self, channel: str, ts: str) -> Message:
        found = self.channel(channel).messages.get(ts)
        if found is None:
            msg = f"no message {ts} in {channel}"
            raise ControlError(msg)
        return found

    def _own(self, user: str, channel: str, ts: str) -> Message:
        message = self.message(channel, ts)
        if message.user != user:
            msg = f"message {ts} is {message.user}'s, not {user}'s"
            raise ControlError(msg)
        return message

    def shown(self, user: str, channel: str, ts: str) -> Message | Ephemeral:
        """The message that the user sees under this ts, an ephemeral one included."""
        return self.state.ephemeral(user, ts) or self.message(channel, ts)

    def messages(self, channel: str) -> list[Message]:
        """All messages of a channel, replies included, oldest first."""
        return list(self.channel(channel).messages.values())

    def thread(self, channel: str, ts: str) -> list[Message]:
        """Root and replies, oldest first."""
        return self.channel(channel).thread(ts)

    def direct(self, user: str) -> list[Message]:
        """The direct conversation of the bot and this user; empty where there is none."""
        channel = self.state.direct_message(user)
        return list(channel.messages.values()) if channel else []

    def ephemerals(self, user: str) -> list[Ephemeral]:
        return [e for e in self.state.ephemerals if e.user == user]

    def views(self, user: str) -> list[View]:
        """The user's open modals, the one on top last."""
        return list(self.state.views_of(user))

    def home(self, user: str) -> View | None:
        """What was last published on the user's Home tab."""
        return self.state.homes.get(user)

    def view(self, user: str, asked: View | str | None = None) -> View:
        """The view asked for, as it is now; else the modal on top; else the Home tab."""
        if asked is not None:
            view = self.state.view(asked if isinstance(asked, str) else asked.id)
            if view is None or view.user != user:
                msg = f"{user} no longer has this view open"
                raise ControlError(msg)
            return view
        view = next(reversed(self.state.views_of(user)), None) or self.home(user)
        if view is None:
            msg = f"{user} has neither a modal nor a Home tab open"
            raise ControlError(msg)
        return view

    def permalink(self, channel: str, ts: str) -> str:
        """The link that `chat.getPermalink` gives; it opens the page at the message."""
        return self.state.permalink(self.message(channel, ts))

    def errors(self, user: str) -> list[Shown]:
        """What this person saw fail."""
        return [shown for shown in self.context.shown if shown.user == user]

    async def wait_for(self, predicate: Callable[[], T], timeout: float = 60.0) -> T:
        """The predicate's first truthy value; it is asked again at every change of the workspace.

        Raises:
            TimeoutError: with the last calls and envelopes, to see what happened instead.
        """
        try:
            return await self.context.changes.wait(predicate, timeout)
        except TimeoutError:
            calls = [f"{call.method} {call.outcome}" for call in self.calls[-8:]]
            acks = [f"{ack.payload_type} {ack.failure or 'acknowledged'}" for ack in self.acks[-8:]]
            msg = f"the condition was not met within {timeout} s; last calls: {calls}; last envelopes: {acks}"
            raise TimeoutError(msg) from None


@web.middleware
async def _local_only(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Keep other web sites out: a browser on this machine may be led here by any page that it shows.

    Refused are requests under a foreign host name (DNS rebinding) and those that another site's page sent.
    """
    if request.url.host not in _HOSTS:
        raise web.HTTPForbidden(text="use 127.0.0.1 or localhost to reach this workspace")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise web.HTTPForbidden(text="requests from other sites are refused")
    return await handler(request)


async def serve(port: int, ready: Callable[[Workspace], None], options: Options | None = None) -> None:
    """Run a workspace until cancelled; `ready` is told once it listens.

    Raises:
        OSError: the port is taken.
    """
    async with Workspace(port, options) as workspace:
        ready(workspace)
        await asyncio.Event().wait()
