"""What the local workspace holds in memory: people, channels, messages, views, tokens.

Plain data with lookups; nothing here talks to anybody. Times are seconds since the epoch as given by the
clock that the state was made with; a `ts` is Slack's: seconds, a dot, six digits, unique and rising.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class User:
    """A person or a bot, as `users.info` knows it."""

    id: str
    name: str
    real_name: str
    team_id: str
    email: str = ""
    is_bot: bool = False
    deleted: bool = False
    is_restricted: bool = False
    is_ultra_restricted: bool = False
    is_stranger: bool = False
    enterprise_id: str = ""  # the organization (Enterprise Grid) of `team_id`
    global_id: str = ""  # in all workspaces of the organization; empty: the same as here
    hidden: str = ""  # what `users.info` refuses with, where the app is told nothing of them
    tz: str = "Etc/UTC"
    locale: str = "en-US"
    updated: int = 0
    presence: str = "active"


@dataclass
class UserGroup:
    id: str
    handle: str
    name: str
    users: list[str]
    disabled: bool = False


@dataclass
class Message:
    """One message of a channel; `thread_ts` is its root's ts if it is a reply, otherwise None."""

    channel: str
    ts: str
    user: str
    text: str
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str | None = None
    subtype: str | None = None
    bot_id: str | None = None
    metadata: Json | None = None
    edited: Json | None = None
    broadcast: bool = False
    mrkdwn: bool = True
    client_msg_id: str | None = None
    attachments: list[Json] = field(default_factory=list)  # pasted tables, forwarded messages
    files: list[Json] = field(default_factory=list)


@dataclass
class Ephemeral:
    """A message that only `user` sees; it is in no history and cannot be fetched."""

    user: str
    channel: str
    ts: str
    text: str
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str | None = None


@dataclass
class Channel:
    id: str
    name: str
    members: list[str] = field(default_factory=list)
    is_private: bool = False
    is_archived: bool = False
    is_im: bool = False
    created: int = 0
    messages: dict[str, Message] = field(default_factory=dict)
    replies: dict[str, list[str]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)  # roots that are gone, or have left a tombstone

    @property
    def kind(self) -> str:
        """The prefix that scopes and event types use: channels, groups or im."""
        if self.is_im:
            return "im"
        return "groups" if self.is_private else "channels"

    def thread(self, root_ts: str) -> list[Message]:
        """Root and replies, oldest first; empty where there is no such root."""
        root = self.messages.get(root_ts)
        if root is None:
            return []
        return [root, *(self.messages[ts] for ts in self.replies.get(root_ts, []))]


@dataclass
class View:
    """A modal (or Home tab) as a user has it; `payload` is what the app sent."""

    id: str
    user: str
    payload: Json
    hash: str
    root_view_id: str
    previous_view_id: str | None = None
    errors: dict[str, str] = field(default_factory=dict)
    values: Json = field(default_factory=dict)
    tab: str = ""  # the browser tab that it opened in; "": any


@dataclass
class Trigger:
    user: str
    expires: float
    used: bool = False
    tab: str = ""


@dataclass
class ResponseUrl:
    """Where a `response_url` leads, and how much of its life is left."""

    user: str
    channel: str
    expires: float
    message_ts: str | None = None
    uses: int = 0


@dataclass(frozen=True)
class Shortcut:
    """An entry that the app adds to the menu of every message."""

    callback_id: str
    name: str


@dataclass
class App:
    """The one installed app."""

    id: str
    bot_id: str
    bot_user: str
    name: str
    commands: tuple[str, ...]
    shortcuts: tuple[Shortcut, ...] = ()
    home_tab: bool = True


@dataclass
class State:
    """All of it. `tokens` maps a token to the scopes it was given.

    With an `enterprise` the team is one of its organization's; `org_wide`: the app is installed for all of them.
    `uninstalled`: the tokens of an app that was removed, with their scopes.
    """

    app: App
    team: Json
    clock: Callable[[], float]
    users: dict[str, User] = field(default_factory=dict)
    channels: dict[str, Channel] = field(default_factory=dict)
    groups: dict[str, UserGroup] = field(default_factory=dict)
    tokens: dict[str, frozenset[str]] = field(default_factory=dict)
    uninstalled: dict[str, frozenset[str]] = field(default_factory=dict)
    ephemerals: list[Ephemeral] = field(default_factory=list)
    modals: dict[str, list[View]] = field(default_factory=dict)
    homes: dict[str, View] = field(default_factory=dict)
    triggers: dict[str, Trigger] = field(default_factory=dict)
    responses: dict[str, ResponseUrl] = field(default_factory=dict)
    chosen: dict[tuple[str, str, str], Json] = field(default_factory=dict)
    read: dict[tuple[str, str], str] = field(default_factory=dict)
    enterprise: str = ""
    org_wide: bool = False
    _count: int = 0
    _last_ts: int = 0

    def next_ts(self) -> str:
        """The next message timestamp: now, but always later than the one before."""
        self._last_ts = max(int(self.clock() * 1_000_000), self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def next_id(self, prefix: str) -> str:
        """A fresh id. It carries the time, so that a restarted workspace never repeats one."""
        self._count += 1
        return f"{prefix}{int(self.clock() * 1000):X}{self._count:X}"

    def permalink(self, message: Message) -> str:
        """Where the message is found under the team's own address; a reply's link names its thread."""
        link = f"{self.team['url']}archives/{message.channel}/p{message.ts.replace('.', '')}"
        return f"{link}?thread_ts={message.thread_ts}&cid={message.channel}" if message.thread_ts else link

    def direct_message(self, user: str) -> Channel | None:
        """The direct channel between the app's bot and `user`, if it was opened."""
        return next((c for c in self.channels.values() if c.is_im and user in c.members), None)

    def ephemeral(self, user: str, ts: str) -> Ephemeral | None:
        return next((e for e in self.ephemerals if e.user == user and e.ts == ts), None)

    def views_of(self, user: str) -> list[View]:
        """The user's open modals, the one on top last."""
        return self.modals.get(user, [])

    def view(self, view_id: str) -> View | None:
        views = [v for stack in self.modals.values() for v in stack] + list(self.homes.values())
        return next((v for v in views if v.id == view_id), None)
