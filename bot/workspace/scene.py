"""What the page shows to one person, as plain values for the templates. Reads the state, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from markupsafe import Markup

from .context import Context
from .controls import controls
from .mrkdwn import Names, plain_to_html, to_html, to_words
from .state import Channel, Ephemeral, File, Json, Message, State, User, UserGroup, View
from .wires import Wire, wires
from .writing import unescape

TOGETHER = timedelta(minutes=5)
RECENT = 150
TONES = 6
FACES = 3
EXCERPT = 80


@dataclass(frozen=True)
class Where:
    """Whom the page acts as, and what it looks at."""

    user: str
    channel: str
    thread: str | None = None
    everything: bool = False
    home: bool = False
    at: str | None = None
    tab: str = ""

    def link(self, **changes: str) -> str:
        """The page's address for the same person and channel, with other parts."""
        return "/?" + urlencode({"as": self.user, "channel": self.channel} | changes)


@dataclass(frozen=True)
class Row:
    """One message as it is shown."""

    message: Message | Ephemeral
    author: str
    is_app: bool
    at: datetime
    html: Markup
    whisper: bool = False
    deleted: bool = False
    edited: bool = False
    broadcast: bool = False
    replies: int = 0
    last_reply: datetime | None = None
    day: str = ""
    continued: bool = False
    mine: bool = False
    found: bool = False
    live: bool = False  # has controls
    raw: str = ""  # as its author typed it
    root: str = ""  # of a reply that was sent to the channel too: the beginning of what it replies to
    repliers: tuple[tuple[str, bool], ...] = ()  # name, is it an app; the first few
    values: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One line of the sidebar."""

    channel: Channel
    name: str
    unread: int
    current: bool


class Scene:
    """Everything that the templates ask for, for one request."""

    def __init__(self, context: Context, where: Where) -> None:
        self._context = context
        self.state: State = context.state
        self.where = where
        self.now = datetime.fromtimestamp(context.now(), UTC).astimezone()
        self._names = _names(self.state, self.now, where.user)

    @property
    def me(self) -> User:
        return self.state.users[self.where.user]

    @property
    def channel(self) -> Channel:
        return self.state.channels[self.where.channel]

    def people(self) -> list[User]:
        """Whom one can act as: everybody who is no bot and not deactivated."""
        return [u for u in self.state.users.values() if not u.is_bot and not u.deleted]

    def choosable(self) -> list[User]:
        """Whom a list of people offers: everybody who is not deactivated, apps too."""
        return [u for u in self.state.users.values() if not u.deleted]

    def role(self, user: User) -> str:
        """What sets a person apart from a full member; "" for those."""
        if user.is_bot:
            return "app"
        if user.team_id != self.state.team["id"]:
            return "external"
        return "guest" if user.is_restricted or user.is_ultra_restricted else ""

    def members(self) -> list[User]:
        """Who is in the channel, people first."""
        return sorted((self.state.users[m] for m in self.channel.members), key=lambda u: u.is_bot)

    def groups(self) -> list[tuple[UserGroup, str]]:
        """The user groups, and the names of those in them."""
        return [
            (group, ", ".join(self.state.users[u].real_name for u in group.users))
            for group in self.state.groups.values()
            if not group.disabled
        ]

    def tone(self, name: str) -> int:
        """Which of the avatars' colours a name has."""
        return sum(name.encode()) % TONES

    def traffic(self) -> list[Wire]:
        """What went over the wires, oldest first."""
        return wires(self._context.traffic.lines, self.now.tzinfo, self.state.app.name)

    def name(self, channel: Channel) -> str:
        if not channel.is_im:
            return channel.name
        return self.state.users[next(m for m in channel.members if m != self.where.user)].real_name

    def sidebar(self, *, direct: bool) -> list[Entry]:
        """The person's channels, or their direct conversations."""
        mine = [c for c in self.state.channels.values() if self.where.user in c.members and c.is_im is direct]
        here = None if self.where.home else self.where.channel
        return [Entry(c, self.name(c), self._unread(c), c.id == here) for c in mine]

    def can_write(self) -> bool:
        return not self.channel.is_archived and self.where.user in self.channel.members

    def channel_rows(self) -> list[Row]:
        """The channel's messages and what is whispered to this person there, oldest first."""
        shown: list[Message | Ephemeral] = [
            m for m in self.channel.messages.values() if not m.thread_ts or m.broadcast
        ]
        shown += [e for e in self._whispers() if e.thread_ts is None]
        shown.sort(key=lambda m: m.ts)
        return self._rows(shown if self.where.everything else shown[-RECENT:])

    def has_earlier(self) -> bool:
        """Whether `channel_rows` leaves out older messages, to stay quick."""
        return not self.where.everything and len(self.channel.messages) > RECENT

    def thread_rows(self) -> list[Row]:
        if self.where.thread is None:
            return []
        shown: list[Message | Ephemeral] = [*self.channel.thread(self.where.thread)]
        shown += [e for e in self._whispers() if e.thread_ts == self.where.thread]
        return self._rows(sorted(shown, key=lambda m: m.ts))

    def modal(self) -> View | None:
        """The modal on top, in the tab that opened it."""
        views = self.state.views_of(self.where.user)
        return views[-1] if views and views[-1].tab in {"", self.where.tab} else None

    def home(self) -> View | None:
        return self.state.homes.get(self.where.user)

    def direct(self) -> Channel | None:
        """The conversation of this person and the app, if there is one yet."""
        return self.state.direct_message(self.where.user)

    def href(self, url: str) -> str:
        """Where a link leads: one to a message of this workspace stays with the acting person."""
        return self._names.local(url) or url

    def is_local(self, url: str) -> bool:
        return self._names.local(url) is not None

    def html(self, text: Json) -> Markup:
        """A text object of Block Kit."""
        if text["type"] == "plain_text":
            return plain_to_html(text["text"])
        return to_html(text["text"], self._names, verbatim=bool(text.get("verbatim")))

    def files(self, message: Message | Ephemeral) -> list[File]:
        """What was shared with a message, as far as it is still kept."""
        named = message.files if isinstance(message, Message) else []
        return [self.state.files[name] for name in named if name in self.state.files]

    def words(self, text: str) -> str:
        return to_words(text, self._names)

    def latest(self, rows: list[Row]) -> str:
        """What the live region says: the last message, with its author."""
        if not rows:
            return ""
        row = rows[-1]
        return f"{row.author}: {self.words(row.message.text) or 'a message with controls'}"

    def _whispers(self) -> list[Ephemeral]:
        return [
            e for e in self.state.ephemerals if e.user == self.where.user and e.channel == self.where.channel
        ]

    def _unread(self, channel: Channel) -> int:
        if channel.id == self.where.channel:
            return 0
        read = self.state.read.get((self.where.user, channel.id), "")
        return sum(
            1
            for m in channel.messages.values()
            if m.ts > read and m.user != self.where.user and (not m.thread_ts or m.broadcast)
        )

    def _rows(self, shown: list[Message | Ephemeral]) -> list[Row]:
        rows: list[Row] = []
        for message in shown:
            rows.append(self._row(message, rows[-1] if rows else None))
        return rows

    def _row(self, message: Message | Ephemeral, before: Row | None) -> Row:
        at = datetime.fromtimestamp(float(message.ts), self.now.tzinfo)
        whisper = isinstance(message, Ephemeral)
        user_id = self.state.app.bot_user if isinstance(message, Ephemeral) else message.user
        author = self.state.users.get(user_id)
        name = author.real_name if author else "Slackbot"
        replies = self.channel.replies.get(message.ts, [])
        day = "" if before and before.at.date() == at.date() else _day(at, self.now)
        close = (
            before is not None and before.author == name and at - before.at < TOGETHER and not message.blocks
        )
        sent = message if isinstance(message, Message) else None
        return Row(
            message,
            name,
            is_app=bool(author and author.is_bot),
            at=at,
            html=plain_to_html(unescape(message.text))
            if sent and not sent.mrkdwn
            else to_html(message.text, self._names),
            whisper=whisper,
            deleted=bool(sent and sent.subtype == "tombstone"),
            edited=bool(sent and sent.edited and not sent.bot_id),
            broadcast=bool(sent and sent.broadcast),
            replies=len(replies),
            last_reply=datetime.fromtimestamp(float(replies[-1]), self.now.tzinfo) if replies else None,
            day=day,
            continued=close and not day and not whisper and not (before and before.whisper),
            mine=user_id == self.where.user,
            found=message.ts == self.where.at,
            live=next(controls(message.blocks), None) is not None,
            raw=unescape(message.text) if user_id == self.where.user else "",
            root=self._root_words(sent),
            repliers=self._repliers(replies),
            values=self.state.chosen.get((self.where.user, message.channel, message.ts), {}),
        )

    def _root_words(self, sent: Message | None) -> str:
        """The beginning of what a reply that was sent to the channel too replies to."""
        root = (
            self.channel.messages.get(sent.thread_ts) if sent and sent.broadcast and sent.thread_ts else None
        )
        words = self.words(root.text) if root else ""
        return words if len(words) <= EXCERPT else f"{words[: EXCERPT - 1]}…"

    def _repliers(self, replies: list[str]) -> tuple[tuple[str, bool], ...]:
        authors = dict.fromkeys(self.channel.messages[ts].user for ts in replies)
        known = [self.state.users[user] for user in authors if user in self.state.users]
        return tuple((user.real_name, user.is_bot) for user in known[:FACES])


def _names(state: State, now: datetime, viewer: str) -> Names:
    return Names(
        {u.id: u.real_name for u in state.users.values()},
        {c.id: c.name for c in state.channels.values()},
        {g.id: g.handle for g in state.groups.values()},
        now,
        archives=f"{state.team['url']}archives/",
        viewer=viewer,
    )


def _day(at: datetime, now: datetime) -> str:
    days = (now.date() - at.date()).days
    return {0: "Today", 1: "Yesterday"}.get(days) or f"{at:%A}, {at.day} {at:%B}"
