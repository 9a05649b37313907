"""`/control/*`: the workspace driven from another process, in any language, as JSON.

`POST /control/{action}` does what the method of `Workspace` with that name does; the body has its arguments. What a person
does in Slack answers with its outcome, `{ok, error, errors, seconds}`, `post` with `{ts}`, all else with `{}`.
`POST /control/faults` lets calls of the Web API go wrong: `{method, kind, times?, channel?}`, see faults.py.

| route | answer |
| --- | --- |
| GET /control/messages?channel= | {messages} |
| GET /control/thread?channel=&ts= | {messages} |
| GET /control/direct?user=, /control/ephemerals?user= | {messages} |
| GET /control/views?user= | {views} |
| GET /control/home?user= | {home}: none or one view |
| GET /control/errors?user= | {errors} |
| GET /control/calls, /control/acks | {calls}, {acks} |
| GET /control/wait?version=&timeout= | {version}: answers when something changed after that version |

What cannot be done is 400 `{"error": why}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from .controls import ControlError
from .payloads import ephemeral_json, message_json, view_json
from .state import Json, Message

if TYPE_CHECKING:
    from .server import Workspace

_ACTIONS = {
    "click", "select", "post", "edit", "delete_message", "submit_view", "click_in_view", "close_view", "command",
    "open_home", "join", "leave", "archive", "change_user", "change_group", "emit", "choose_user", "shortcut", "press_home",
    "press_ephemeral", "set_presence", "disable_group", "join_enterprise", "delete_channel", "uninstall",
}  # fmt: skip


class Control:
    """Adds the routes; each action calls the method of `Workspace` that has its name."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/control/faults", _json_in_json_out(self._add_fault))
        app.router.add_post("/control/{action}", _json_in_json_out(self._act))
        app.router.add_get("/control/wait", self._wait)
        app.router.add_get("/control/{what}", self._read)

    async def _act(self, request: web.Request, body: Json) -> Json:
        action = request.match_info["action"]
        if action not in _ACTIONS:
            raise web.HTTPNotFound(text=f"no action {action}")
        result = getattr(self._workspace, action)(**body)
        if asyncio.iscoroutine(result):
            result = await result
        if action == "post":
            return {"ts": result.ts}
        return asdict(result) if result is not None else {}

    async def _add_fault(self, _request: web.Request, body: Json) -> Json:
        self._workspace.faults.add(**body)
        return {}

    async def _wait(self, request: web.Request) -> web.Response:
        changes = self._workspace.context.changes
        seen = int(request.query.get("version", "0"))
        with suppress(TimeoutError):  # nothing changed: the same version says so
            await changes.wait(lambda: changes.version > seen, float(request.query.get("timeout", "30")))
        return web.json_response({"version": changes.version})

    async def _read(self, request: web.Request) -> web.Response:
        ws, query, what = self._workspace, request.query, request.match_info["what"]
        readers: dict[str, Callable[[], list[Any]]] = {
            "messages": lambda: self._messages(ws.messages(query["channel"])),
            "thread": lambda: self._messages(ws.thread(query["channel"], query["ts"])),
            "direct": lambda: self._messages(ws.direct(query["user"])),
            "ephemerals": lambda: [ephemeral_json(ws.state, e) for e in ws.ephemerals(query["user"])],
            "views": lambda: [view_json(ws.state, v) for v in ws.views(query["user"])],
            "home": lambda: [view_json(ws.state, v) for v in [ws.home(query["user"])] if v is not None],
            "errors": lambda: [asdict(e) for e in ws.errors(query["user"])],
            "calls": lambda: [asdict(call) for call in ws.calls],
            "acks": lambda: [asdict(ack) for ack in ws.acks],
        }
        if what not in readers:
            raise web.HTTPNotFound(text=f"unknown name {what}")
        try:
            rows = readers[what]()
        except (ControlError, KeyError) as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response({"messages" if what in {"thread", "direct", "ephemerals"} else what: rows})

    def _messages(self, messages: list[Message]) -> list[Json]:
        return [message_json(self._workspace.state, m, metadata=True) for m in messages]


def _json_in_json_out(
    handler: Callable[[web.Request, Json], Awaitable[Json]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Serves `handler`: its body is a JSON object, and what it raises is the body of a 400."""

    async def handle(request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.text() or "{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return web.json_response({"error": "the body must be a JSON object"}, status=400)
        try:
            return web.json_response(await handler(request, body))
        except (ControlError, ValueError, TypeError, KeyError) as error:
            return web.json_response({"error": str(error)}, status=400)

    return handle
