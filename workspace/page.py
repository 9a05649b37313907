"""The page: Slack as one person sees it, for trying things out.

Jinja2 renders whole parts from a `Scene`; htmx fetches a part again when `/feed` (Server-Sent Events) names its topic.
What a person does is posted to `/do/*`, which goes through `Workspace` like everything else and answers 204: what
changed comes back over the feed.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from . import controls
from .context import COMPLAINTS, TAB, Context, Way
from .controls import ControlError
from .mrkdwn import Names, plain_to_html, to_html, to_words, unescape
from .richtext import rich_html
from .seed import AGENTS, FOLAKE
from .state import Channel, Ephemeral, Json, Message, State, User, UserGroup, View
from .traffic import Line

if TYPE_CHECKING:
    from .server import Workspace

PARTS = {"sidebar", "channel", "thread", "modal", "home", "traffic"}
TOGETHER = timedelta(minutes=5)  # between messages of one author, to be grouped
RECENT = 150  # messages of a channel
WIRES = 100  # lines of the traffic
TONES = 6
FACES = 3
EXCERPT = 80
_TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain", ".svg": "image/svg+xml"}
_POLICY = "default-src 'self'; img-src 'self' https: data:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"
_FRESH = {"Cache-Control": "no-store"}


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
    user: User | None  # None: Slackbot
    author: str
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
    raw: str = ""  # as its author typed it
    root: str = ""  # of a reply that was sent to the channel too: the beginning of what it replies to
    repliers: tuple[User, ...] = ()  # the first few
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
    def connect(self) -> tuple[Way, ...]:
        return self._context.options.connect

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

    def traffic(self) -> list[Line]:
        """What went over the wires lately, oldest first."""
        return self._context.traffic.lines[-WIRES:]

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

    def moment(self, seconds: int | None) -> str:
        """A moment as the browser's field for one takes it, in UTC."""
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M")

    def html(self, text: Json) -> Markup:
        """A text object of Block Kit."""
        if text["type"] == "plain_text":
            return plain_to_html(text["text"])
        return to_html(text["text"], self._names, verbatim=bool(text.get("verbatim")))

    def rich(self, block: Json) -> Markup:
        """A rich text block."""
        return rich_html(block["elements"], self._names)

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
            if m.ts > read
            and m.user != self.where.user
            and m.subtype != "tombstone"
            and (not m.thread_ts or m.broadcast)
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
        replies = self.channel.replies.get(message.ts, [])
        day = "" if before and before.at.date() == at.date() else _day(at, self.now)
        sent = message if isinstance(message, Message) else None
        return Row(
            message,
            author,
            author.real_name if author else "Slackbot",
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
            continued=before is not None and self._continues(message, before, at),
            mine=user_id == self.where.user,
            found=message.ts == self.where.at,
            raw=unescape(message.text) if user_id == self.where.user else "",
            root=self._root_words(sent),
            repliers=self._repliers(replies),
            values=self.state.chosen.get((self.where.user, message.channel, message.ts), {}),
        )

    def _continues(self, message: Message | Ephemeral, before: Row, at: datetime) -> bool:
        """Whether a message stands below its author's last one without their name, as Slack groups them."""
        last = before.message
        return (
            isinstance(message, Message)
            and isinstance(last, Message)
            and message.user == last.user
            and at - before.at < TOGETHER
            and at.date() == before.at.date()
            and not (message.broadcast or before.replies or before.deleted)
        )

    def _root_words(self, sent: Message | None) -> str:
        """The beginning of what a reply that was sent to the channel too replies to."""
        root = (
            self.channel.messages.get(sent.thread_ts) if sent and sent.broadcast and sent.thread_ts else None
        )
        words = self.words(root.text) if root else ""
        return words if len(words) <= EXCERPT else f"{words[: EXCERPT - 1]}…"

    def _repliers(self, replies: list[str]) -> tuple[User, ...]:
        authors = dict.fromkeys(self.channel.messages[ts].user for ts in replies)
        known = [self.state.users[user] for user in authors if user in self.state.users]
        return tuple(known[:FACES])


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


class Form:
    """A posted form: single values and lists, all strings."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, [""])[-1]


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("workspace"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"options_of": controls.options_of, "initial": controls.initial}
    return made


class Page:
    """Serves `/`, its parts, its feed and what is done on it."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._context = workspace.context
        self._state = workspace.state
        self._templates = _templates()

    def add_routes(self, app: web.Application) -> None:
        app.router.add_get("/", self._whole)
        app.router.add_get("/archives/{channel}/{message}", self._archives)
        app.router.add_get("/part/{part}", self._part)
        app.router.add_get("/traffic/{number}", self._line)
        app.router.add_get("/feed", self._feed)
        app.router.add_get("/static/{name}", self._static)
        app.router.add_post("/do/{what}", self._do)

    async def _whole(self, request: web.Request) -> web.Response:
        where = self._where(request.query.get)
        if where.home or self._workspace.channel(where.channel).is_im:
            await self._workspace.open_home(where.user, "home" if where.home else "messages")
        return self._render("page", where, request.cookies.get("traffic", ""))

    async def _archives(self, request: web.Request) -> web.Response:
        """A permalink, as somebody who sees its channel: who is named, else Folake, else any member."""
        query = request.query
        channel = self._state.channels.get(request.match_info["channel"])
        if channel is None:
            raise web.HTTPNotFound(text="no such channel")
        people = [m for m in (query.get("as", ""), FOLAKE, *channel.members) if m in channel.members]
        user = next((m for m in people if not self._state.users[m].is_bot), FOLAKE)
        digits = request.match_info["message"].removeprefix("p")
        parts = {"at": f"{digits[:-6]}.{digits[-6:]}"}
        if "thread_ts" in query:
            parts["thread"] = query["thread_ts"]
        raise web.HTTPFound(Where(user, channel.id).link(**parts))

    async def _part(self, request: web.Request) -> web.Response:
        part = request.match_info["part"]
        if part not in PARTS:
            raise web.HTTPNotFound
        return self._render(part, self._where(request.query.get))

    async def _line(self, request: web.Request) -> web.Response:
        """What one line of the traffic carried, as text."""
        number = request.match_info["number"]
        line = self._context.traffic.line(int(number)) if number.isdecimal() else None
        if line is None:
            raise web.HTTPNotFound(text="no longer kept")
        return web.Response(text=line.text() or line.detail or line.title, headers=_FRESH)

    def _render(self, part: str, where: Where, panel: str = "") -> web.Response:
        scene = Scene(self._context, where)
        if part in {"page", "channel"} and scene.channel.messages:
            self._state.read[where.user, where.channel] = next(reversed(scene.channel.messages))
        html = self._templates.get_template(f"{part}.html.j2").render(
            scene=scene,
            where=where,
            version=self._context.changes.seen,
            panel="hidden" if panel == "hidden" else "auto",
        )
        headers = _FRESH | {"Content-Security-Policy": _POLICY}
        return web.Response(text=html, content_type="text/html", headers=headers)

    def _where(self, get: Callable[[str, str], str]) -> Where:
        """What was asked for, as far as it exists and this person may see it."""
        state = self._state
        user = get("as", FOLAKE) if get("as", FOLAKE) in state.users else FOLAKE
        visible = [c.id for c in state.channels.values() if user in c.members]
        channel = get("channel", AGENTS)
        if channel not in visible:
            channel = AGENTS if AGENTS in visible or not visible else visible[0]
        messages = state.channels[channel].messages
        thread = get("thread", "")
        at = get("at", "") or None
        shown = [m.ts for m in messages.values() if not m.thread_ts or m.broadcast]
        everything = bool(get("all", "")) or at in shown[:-RECENT]
        return Where(
            user,
            channel,
            thread if thread in messages else None,
            everything,
            home=bool(get("home", "")),
            at=at,
            tab=get("tab", ""),
        )

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        source = files("workspace") / "static" / name
        suffix = name[name.rfind(".") :]
        if suffix not in _TYPES or "/" in name or not source.is_file():
            raise web.HTTPNotFound
        return web.Response(text=source.read_text("utf-8"), content_type=_TYPES[suffix], charset="utf-8")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        """One `data:` line for each topic that changed; `refresh` if anything did since `version`, the page's own."""
        response = web.StreamResponse(headers=_FRESH | {"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with self._context.changes.listen() as queue:
            if request.query.get("version", "") not in {"", str(self._context.changes.seen)}:
                queue.put_nowait("refresh")
            while True:
                topics = [await queue.get()]
                while not queue.empty():
                    topics.append(queue.get_nowait())
                if None in topics:
                    return response
                names = ("traffic" if topic == "record" else topic for topic in dict.fromkeys(topics))
                try:
                    await response.write("".join(f"data: {name}\n\n" for name in names).encode())
                except ConnectionError:
                    return response

    async def _do(self, request: web.Request) -> web.Response:
        action = _ACTIONS.get(request.match_info["what"])
        if action is None:
            raise web.HTTPNotFound
        posted = await request.post()
        form = Form({name: [str(value) for value in posted.getall(name)] for name in posted})
        form.values.setdefault("text", [_prompted(request)])
        where = self._where(lambda name, default: form[name] or default)
        TAB.set(where.tab)
        complaints: list[str] = []
        COMPLAINTS.set(complaints)
        response = web.Response(status=204)
        try:
            target = await asyncio.shield(action(self._workspace, where, form))
        except ControlError as error:
            self._context.show_error(where.user, str(error), "not possible")
        else:
            if isinstance(target, Where):
                response.headers["HX-Redirect"] = target.link()
        if complaints:
            response.headers["X-Notice"] = json.dumps(complaints[-1])  # ASCII, as headers are
        return response


async def _say(ws: Workspace, where: Where, form: Form) -> None:
    text = form["text"].strip()
    if text.startswith("/"):
        command, _, rest = text.partition(" ")
        await ws.command(where.user, where.channel, command, rest.strip(), thread_ts=where.thread)
    elif text:
        broadcast = bool(form["broadcast"])
        words, table = _with_table(form["text"])
        await ws.post(where.user, where.channel, words, where.thread, broadcast=broadcast, table=table)


def _with_table(text: str) -> tuple[str, list[list[str]]]:
    """The words and the rows of a text: what is pasted from a spreadsheet, with tabs between its cells, is a table."""
    lines = text.splitlines()
    table = [line.split("\t") for line in lines if "\t" in line]
    if len(table) < 2:
        return text.strip(), []
    return "\n".join(line for line in lines if "\t" not in line).strip(), table


async def _forward(ws: Workspace, where: Where, form: Form) -> None:
    await ws.post(where.user, where.channel, "", where.thread, forward=(where.channel, form["ts"]))


async def _press(ws: Workspace, where: Where, form: Form) -> None:
    shown = ws.shown(where.user, where.channel, form["ts"])
    await ws.interactions.press(where.user, shown, *controls.pressed(shown.blocks, form.values))


async def _press_in_view(ws: Workspace, where: Where, form: Form) -> None:
    view = ws.view(where.user, form["view"])
    control, entered = controls.pressed(view.payload["blocks"], form.values)
    view.values |= controls.entered_in_view(view.payload["blocks"], form.values)
    await ws.interactions.press_in_view(where.user, view, control, entered)


async def _submit(ws: Workspace, where: Where, form: Form) -> None:
    for view in ws.views(where.user)[-1:]:
        view.values |= controls.entered_in_view(view.payload["blocks"], form.values)
        await ws.submit_view(where.user)


async def _edit(ws: Workspace, where: Where, form: Form) -> None:
    if form["text"].strip():
        await ws.edit(where.user, where.channel, form["ts"], form["text"])


async def _hide(ws: Workspace, where: Where, form: Form) -> None:
    shown = ws.state.ephemeral(where.user, form["ts"])
    if shown is not None:
        ws.board.unwhisper(shown)


async def _presence(ws: Workspace, where: Where, form: Form) -> None:
    ws.set_presence(where.user, "away" if form["presence"] == "away" else "active")


async def _direct(ws: Workspace, where: Where, _form: Form) -> Where:
    """Where to go then."""
    return Where(where.user, ws.board.open_direct(where.user).id)


# What is done on the page: `/do/{name}`.
_ACTIONS: dict[str, Callable[[Workspace, Where, Form], Coroutine[Any, Any, object]]] = {
    "say": _say,
    "press": _press,
    "press-in-view": _press_in_view,
    "submit": _submit,
    "edit": _edit,
    "forward": _forward,
    "hide": _hide,
    "presence": _presence,
    "direct": _direct,
    "delete": lambda ws, at, form: ws.delete_message(at.user, at.channel, form["ts"]),
    "close": lambda ws, at, form: ws.close_view(at.user, everything=bool(form["everything"])),
    "shortcut": lambda ws, at, form: ws.shortcut(at.user, form["callback_id"], form["ts"], at.channel),
}


def _prompted(request: web.Request) -> str:
    """What was typed into htmx's prompt; text beyond Latin-1 comes percent-encoded."""
    text = request.headers.get("HX-Prompt", "")
    return unquote(text) if request.headers.get("HX-Prompt-URI-AutoEncoded") == "true" else text
