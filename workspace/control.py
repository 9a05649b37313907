"""`/control/*`: the workspace driven from another process, as JSON.

| route | body | answer |
| --- | --- | --- |
| POST /control/click | user, channel, ts, action_id or label | outcome |
| POST /control/select | user, channel, ts, label, option | outcome |
| POST /control/post | user, channel, text, thread_ts?, broadcast?, table? [[cell]], forward? [channel, ts], files? [name] | {ts} |
| POST /control/edit | user, channel, ts, text, table? | {} |
| POST /control/delete_message | user, channel, ts | {} |
| POST /control/submit_view | user, values {label or id: value} | outcome |
| POST /control/click_in_view | user, action_id or label | outcome |
| POST /control/select_in_view | user, label, option | outcome |
| POST /control/close_view | user, everything? | outcome |
| POST /control/command | user, channel, command, text, thread_ts? | outcome |
| POST /control/choose_user | user, view (id or null), user_id | outcome |
| POST /control/shortcut | user, callback_id, message_ts, channel | outcome |
| POST /control/open_home | user, tab? | {} |
| POST /control/press_home | user, label_or_action_id | outcome |
| POST /control/press_ephemeral | user, ephemeral (its ts), label | outcome |
| POST /control/set_presence | user, presence: active or away | {} |
| POST /control/join, /leave | user, channel | {} |
| POST /control/archive | channel, undo? | {} |
| POST /control/delete_channel | channel | {} |
| POST /control/uninstall | undo? | {} |
| POST /control/change_user | user, and the fields to change: `hidden` is the error that users.info gives | {} |
| POST /control/change_group | group, users | {} |
| POST /control/disable_group | group, undo? | {} |
| POST /control/join_enterprise | enterprise, org_wide? | {} |
| POST /control/emit | event | {} |
| POST /control/traffic | direction, and title, detail?, failure?, body? or message: see traffic.py | {} |
| POST /control/faults | method, kind, times?, channel? | {pending} |
| DELETE /control/faults | | {pending} |
| POST /control/sockets | action: cut, half_open, reject_wss (times?), disconnect (reason?), refuse (seconds) | {} |
| POST /control/request_url | url | {}: events, clicks and commands go there over HTTP, see delivery.py |
| POST /control/requests | kind, times?: one of `REQUEST_FAULTS` in delivery.py | {} |
| GET /control/messages?channel= | | {messages} |
| GET /control/thread?channel=&ts= | | {messages} |
| GET /control/direct?user= | | {messages} |
| GET /control/ephemerals?user= | | {messages} |
| GET /control/views?user= | | {views} |
| GET /control/home?user= | | {home}: none or one view |
| GET /control/errors?user= | | {errors} |
| GET /control/calls, /control/acks | | {calls}, {acks} |
| GET /control/wait?version=&timeout= | | {version}: answers when something changed after that version |

An outcome is `{ok, error, errors, seconds}`. What cannot be done is 400 `{"error": why}`.
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
    "click", "select", "post", "edit", "delete_message", "submit_view", "click_in_view", "select_in_view",
    "close_view", "command", "open_home", "join", "leave", "archive", "change_user", "change_group", "emit",
    "choose_user", "shortcut", "press_home", "press_ephemeral", "set_presence", "disable_group",
    "join_enterprise", "delete_channel", "uninstall",
}  # fmt: skip


class Control:
    """Adds the routes; each action calls the method of `Workspace` that has its name."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def add_routes(self, app: web.Application) -> None:
        for name, handler in {
            "faults": self._add_fault,
            "sockets": self._sockets,
            "request_url": self._use_request_url,
            "requests": self._spoil_requests,
            "traffic": self._note,
            "{action}": self._act,
        }.items():
            app.router.add_post(f"/control/{name}", _json_in_json_out(handler))
        app.router.add_delete("/control/faults", _json_in_json_out(self._clear_faults))
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
        return {"pending": self._workspace.faults.pending()}

    async def _clear_faults(self, _request: web.Request, _body: Json) -> Json:
        self._workspace.faults.clear()
        return {"pending": []}

    async def _sockets(self, _request: web.Request, body: Json) -> Json:
        link, action = self._workspace.link, body.get("action")
        match action:
            case "cut":
                link.cut()
            case "half_open":
                link.half_open()
            case "reject_wss":
                link.reject(int(body.get("times", 1)))
            case "disconnect":
                await link.disconnect(str(body.get("reason", "refresh_requested")))
            case "refuse":
                refusing = self._refuse(float(body.get("seconds", 1)))
                self._workspace.context.spawn(refusing, "refuse connections")
            case _:
                msg = f"action {action!r}: expected cut, half_open, reject_wss, disconnect or refuse"
                raise ControlError(msg)
        return {}

    async def _refuse(self, seconds: float) -> None:
        await self._workspace.refuse_connections()
        await asyncio.sleep(seconds)
        await self._workspace.accept_connections()

    async def _use_request_url(self, _request: web.Request, body: Json) -> Json:
        await self._workspace.link.requests.set_url(str(body["url"]))
        return {}

    async def _spoil_requests(self, _request: web.Request, body: Json) -> Json:
        self._workspace.link.requests.spoil(str(body.get("kind")), int(body.get("times", 1)))
        return {}

    async def _note(self, _request: web.Request, body: Json) -> Json:
        self._workspace.traffic.posted(body)
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
