"""One Web API call from its request to its answer: arguments, faults, token, scope, method."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from .board import Board
from .context import Call, Context
from .delivery import Link
from .methods import METHODS, ApiCall, ApiError, Method
from .state import Json


class WebApi:
    """Serves the routes; the methods themselves are in `methods.py`."""

    def __init__(self, context: Context, board: Board, link: Link) -> None:
        self._context = context
        self._state = context.state
        self._board = board
        self._link = link

    def add_routes(self, app: web.Application) -> None:
        for verb in ("GET", "POST"):
            app.router.add_route(verb, "/api/{method}", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        """Carry a call out, with the fault that it meets, and record it."""
        name, clock = request.match_info["method"], asyncio.get_running_loop().time
        started = clock()
        try:
            values, refusal = await _arguments(request), None
        except ApiError as error:
            values, refusal = {}, error
        shown = {key: value for key, value in values.items() if value is not None and key != "token"}
        fault = None
        if refusal is None:
            fault = self._context.faults.take(name, str(shown.get("channel", "")) or None)
        kind, detail = (fault.name, fault.detail) if fault else ("", "")
        if kind == "delay":
            await asyncio.sleep(float(detail))
        if refusal is not None:
            response, outcome = web.json_response(refusal.body), refusal.code
        elif kind in {"drop", "refuse", "429", "5xx"}:
            response, outcome = _instead(kind, detail), detail or kind
        else:
            response, outcome = self._call(request, name, values)
        met = fault.kind if fault else None
        call = Call(name, shown, self._context.now(), outcome, response.status, met, clock() - started)
        self._context.record_call(call)
        if kind == "accept_then_delay":
            await asyncio.sleep(float(detail))
        if kind == "accept_then_error":
            return web.json_response({"ok": False, "error": detail})
        return _hang_up(request) if kind in {"drop", "accept_then_drop"} else response

    def _call(self, request: web.Request, name: str, values: Json) -> tuple[web.Response, str]:
        method = METHODS.get(name)
        if method is None:
            body = {"ok": False, "error": "unknown_method", "req_method": name}
            return web.json_response(body), "unknown_method"
        try:
            scopes = self._scopes(request, method, values)
            call = ApiCall(self._context, self._board, self._link, values, scopes)
            if method.scope:
                call.need(method.scope)
            answer = method.handler(call)
        except ApiError as error:
            return web.json_response(error.body), error.code
        headers = {
            "x-oauth-scopes": ",".join(sorted(scopes)),
            "x-accepted-oauth-scopes": method.scope or "",
        }
        return web.json_response({"ok": True, **answer}, headers=headers), "ok"

    def _scopes(self, request: web.Request, method: Method, values: Json) -> frozenset[str]:
        """What the token may do: it stands in the `Authorization` header or in the `token` argument."""
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        token = bearer.strip() if scheme.lower() == "bearer" else str(values.get("token") or "")
        if not token:
            raise ApiError("not_authed")
        scopes = self._state.tokens.get(token)
        if scopes is None:
            raise ApiError("account_inactive" if token in self._state.uninstalled else "invalid_auth")
        if token.startswith("xapp-") != method.app_token:
            raise ApiError("not_allowed_token_type")
        return scopes


async def _arguments(request: web.Request) -> Json:
    """Query and body together; the body wins."""
    values: Json = dict(request.query)
    if request.method != "POST":
        return values
    if request.content_type == "application/json":
        try:
            body = json.loads(await request.text() or "{}")
        except ValueError:
            raise ApiError("invalid_json") from None
        if not isinstance(body, dict):
            raise ApiError("json_not_object")
        return values | body
    if request.content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}:
        return values | dict(await request.post())
    if request.can_read_body:
        raise ApiError("invalid_post_type")
    return values


def _instead(kind: str, detail: str) -> web.Response:
    if kind == "refuse":
        return web.json_response({"ok": False, "error": detail})
    if kind == "429":
        headers = {"Retry-After": detail} if detail else {}
        return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
    status = int(detail) if kind == "5xx" else 500
    return web.Response(status=status, text="<html>upstream trouble</html>", content_type="text/html")


def _hang_up(request: web.Request) -> web.Response:
    """Close the TCP connection; the response that the server wants is never sent."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()
