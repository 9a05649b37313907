"""The page: Slack as one person sees it, for trying things out.

Jinja2 renders whole parts; htmx fetches a part again when `/feed` (Server-Sent Events) names its topic. What a
person does is posted to `/do/*`, which goes through `People` like everything else and answers 204: what changed
comes back over the feed.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import unquote

from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from . import controls
from .context import COMPLAINTS, TAB
from .controls import ControlError
from .forms import entered_in_view, pressed
from .scene import RECENT, Scene, Where
from .seed import AGENTS, FOLAKE

if TYPE_CHECKING:
    from multidict import MultiDictProxy

    from .server import Workspace

PARTS = {"sidebar", "channel", "thread", "modal", "home", "traffic"}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".txt": "text/plain", ".svg": "image/svg+xml"}
_PANEL = {"shown", "hidden"}
_POLICY = "default-src 'self'; img-src 'self' https: data:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'"
_Do = Callable[["Fields", Where], Awaitable[web.Response | None]]


class Fields:
    """A posted form: single values and lists, all strings."""

    def __init__(self, posted: MultiDictProxy[str | bytearray | web.FileField | bytes]) -> None:
        self.values = {name: [str(value) for value in posted.getall(name)] for name in posted}

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, [""])[-1]


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("templates", "workspace"),
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
        return self._render("page.html.j2", where, request.cookies.get("traffic", ""))

    async def _archives(self, request: web.Request) -> web.Response:
        """A permalink, as somebody who sees its channel: who is named, else Folake, else any member."""
        state, query = self._context.state, request.query
        channel = state.channels.get(request.match_info["channel"])
        if channel is None:
            raise web.HTTPNotFound(text="no such channel")
        people = [m for m in (query.get("as", ""), FOLAKE, *channel.members) if m in channel.members]
        user = next((m for m in people if not state.users[m].is_bot), FOLAKE)
        digits = request.match_info["message"].removeprefix("p")
        parts = {"at": f"{digits[:-6]}.{digits[-6:]}"}
        if "thread_ts" in query:
            parts["thread"] = query["thread_ts"]
        raise web.HTTPFound(Where(user, channel.id).link(**parts))

    async def _part(self, request: web.Request) -> web.Response:
        part = request.match_info["part"]
        if part not in PARTS:
            raise web.HTTPNotFound
        return self._render(f"{part}.html.j2", self._where(request.query.get))

    async def _line(self, request: web.Request) -> web.Response:
        """What one line of the traffic carried, as text."""
        number = request.match_info["number"]
        line = self._context.traffic.line(int(number)) if number.isdecimal() else None
        if line is None:
            raise web.HTTPNotFound(text="no longer kept")
        return web.Response(
            text=line.text() or line.detail or line.title, headers={"Cache-Control": "no-store"}
        )

    def _render(self, template: str, where: Where, panel: str = "") -> web.Response:
        scene = Scene(self._context, where)
        if template in {"page.html.j2", "channel.html.j2"} and scene.channel.messages:
            self._context.state.read[where.user, where.channel] = next(reversed(scene.channel.messages))
        html = self._templates.get_template(template).render(
            scene=scene,
            where=where,
            version=self._context.changes.seen,
            panel=panel if panel in _PANEL else "auto",
        )
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-store"}
        return web.Response(text=html, content_type="text/html", headers=headers)

    def _where(self, get: Callable[[str, str], str]) -> Where:
        """What was asked for, as far as it exists and this person may see it."""
        state = self._context.state
        user = get("as", FOLAKE) if get("as", FOLAKE) in state.users else FOLAKE
        visible = [c.id for c in state.channels.values() if user in c.members]
        channel = get("channel", AGENTS)
        if channel not in visible:
            channel = AGENTS if AGENTS in visible or not visible else visible[0]
        thread = get("thread", "")
        thread_there = thread if thread in state.channels[channel].messages else None
        at = get("at", "") or None
        everything = bool(get("all", "")) or (at is not None and not self._is_recent(channel, at))
        home, tab = bool(get("home", "")), get("tab", "")
        return Where(user, channel, thread_there, everything, home=home, at=at, tab=tab)

    def _is_recent(self, channel: str, ts: str) -> bool:
        """Whether the page shows this message without the earlier ones."""
        shown = [m.ts for m in self._workspace.messages(channel) if not m.thread_ts or m.broadcast]
        return ts not in shown or ts in shown[-RECENT:]

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        source = files("bot.workspace") / "static" / name
        suffix = name[name.rfind(".") :]
        if suffix not in _TYPES or "/" in name or not source.is_file():
            raise web.HTTPNotFound
        return web.Response(text=source.read_text("utf-8"), content_type=_TYPES[suffix], charset="utf-8")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        """One `data:` line for each topic that changed; `refresh` if anything did since `version`, the page's own."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        with self._context.changes.listen() as queue:
            if request.query.get("version", "") not in {"", str(self._context.changes.seen)}:
                queue.put_nowait("refresh")
            while True:
                topics = {await queue.get(): None}
                while not queue.empty():
                    topics[queue.get_nowait()] = None
                names = ("traffic" if topic == "record" else topic for topic in topics)
                lines = "".join(f"data: {name}\n\n" for name in names)
                try:
                    await response.write(lines.encode())
                except ConnectionError:
                    return response

    # What is done on the page

    async def _do(self, request: web.Request) -> web.Response:
        fields = Fields(await request.post())
        where = self._where(lambda name, default: fields[name] or default)
        actions: dict[str, _Do] = {
            "say": self._say,
            "press": self._press,
            "press-in-view": self._press_in_view,
            "submit": self._submit,
            "edit": self._edit,
            "delete": self._delete,
            "close": self._close,
            "direct": self._direct,
            "shortcut": self._shortcut,
            "hide": self._hide,
            "presence": self._presence,
        }
        what = request.match_info["what"]
        if what not in actions:
            raise web.HTTPNotFound
        TAB.set(where.tab)
        complaints: list[str] = []
        COMPLAINTS.set(complaints)
        try:
            fields.values.setdefault("text", [_prompted(request)])
            response = await asyncio.shield(actions[what](fields, where))
        except ControlError as error:
            self._context.show_error(where.user, str(error), "not possible")
            response = None
        response = response or web.Response(status=204)
        if complaints:
            response.headers["X-Notice"] = json.dumps(complaints[-1])  # ASCII, as headers are
        return response

    async def _say(self, fields: Fields, where: Where) -> None:
        text = fields["text"].strip()
        if text.startswith("/"):
            command, _, rest = text.partition(" ")
            await self._workspace.command(
                where.user, where.channel, command, rest.strip(), thread_ts=where.thread
            )
        elif text:
            broadcast = bool(fields["broadcast"])
            await self._workspace.post(where.user, where.channel, text, where.thread, broadcast=broadcast)

    async def _press(self, fields: Fields, where: Where) -> None:
        shown = self._workspace.shown(where.user, where.channel, fields["ts"])
        control, value = pressed(shown.blocks, fields.values)
        await self._workspace.people.press(where.user, shown, control, value)

    async def _edit(self, fields: Fields, where: Where) -> None:
        if fields["text"].strip():
            await self._workspace.edit(where.user, where.channel, fields["ts"], fields["text"])

    async def _delete(self, fields: Fields, where: Where) -> None:
        await self._workspace.delete_message(where.user, where.channel, fields["ts"])

    async def _press_in_view(self, fields: Fields, where: Where) -> None:
        view = self._workspace.view(where.user, fields["view"])
        control, value = pressed(view.payload["blocks"], fields.values)
        view.values |= entered_in_view(view.payload["blocks"], fields.values)
        await self._workspace.people.press_in_view(where.user, view, control, value)

    async def _submit(self, fields: Fields, where: Where) -> None:
        views = self._workspace.views(where.user)
        if views:
            views[-1].values |= entered_in_view(views[-1].payload["blocks"], fields.values)
            await self._workspace.submit_view(where.user)

    async def _shortcut(self, fields: Fields, where: Where) -> None:
        await self._workspace.shortcut(where.user, fields["callback_id"], fields["ts"], where.channel)

    async def _hide(self, fields: Fields, where: Where) -> None:
        shown = self._context.state.ephemeral(where.user, fields["ts"])
        if shown is not None:
            self._workspace.board.unwhisper(shown)

    async def _presence(self, fields: Fields, where: Where) -> None:
        self._workspace.set_presence(where.user, "away" if fields["presence"] == "away" else "active")

    async def _close(self, fields: Fields, where: Where) -> None:
        await self._workspace.close_view(where.user, everything=bool(fields["everything"]))

    async def _direct(self, fields: Fields, where: Where) -> web.Response:  # noqa: ARG002 — every action has this signature
        channel = self._workspace.board.open_direct(where.user)
        target = Where(where.user, channel.id).link()
        return web.Response(status=204, headers={"HX-Redirect": target})


def _prompted(request: web.Request) -> str:
    """What was typed into htmx's prompt; text beyond Latin-1 comes percent-encoded."""
    text = request.headers.get("HX-Prompt", "")
    return unquote(text) if request.headers.get("HX-Prompt-URI-AutoEncoded") == "true" else text
