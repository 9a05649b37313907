"""One Web API call from its request to its answer: arguments, faults, token, scope, rate limit, method."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from bot.workspace.context import Call
from bot.workspace.faults import Fault
from bot.workspace.state import Json

from . import chat, conversations, files, people, views
from .base import ApiError, Args, Caller, Method, Office

METHODS: Mapping[str, Method] = {
    **chat.METHODS,
    **conversations.METHODS,
    **files.METHODS,
    **people.METHODS,
    **views.METHODS,
}


@dataclass(frozen=True)
class Incoming:
    """One call as it came in; `started` in the loop's seconds."""

    name: str
    args: Args
    fault: Fault | None
    started: float


class WebApi:
    """Serves `GET` and `POST /api/{method}`."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._context = office.context

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name, started = request.match_info["method"], _seconds()
        try:
            args = Args(await _arguments(request))
        except ApiError as error:
            incoming = Incoming(name, Args({}), None, started)
            return self._answer(incoming, web.json_response(error.body), error.code)
        fault = self._context.faults.take(name, str(args.raw().get("channel", "")) or None)
        return await self._with_fault(request, Incoming(name, args, fault, started))

    async def _with_fault(self, request: web.Request, incoming: Incoming) -> web.StreamResponse:
        """Carry the call out, with the fault that it meets."""
        fault = incoming.fault
        kind, detail = (fault.name, fault.detail) if fault else ("", "")
        if kind in {"drop", "refuse", "429", "5xx"}:
            response = _instead(kind, detail)
            self._answer(incoming, response, detail or kind)
            return _hang_up(request) if kind == "drop" else response
        if kind == "delay":
            await asyncio.sleep(float(detail))
        response, outcome = await self._call(request, incoming.name, incoming.args)
        self._answer(incoming, response, outcome)
        if kind == "accept_then_delay":
            await asyncio.sleep(float(detail))
        if kind == "accept_then_error":
            return web.json_response({"ok": False, "error": detail})
        return _hang_up(request) if kind == "accept_then_drop" else response

    async def _call(self, request: web.Request, name: str, args: Args) -> tuple[web.Response, str]:
        method = METHODS.get(name)
        if method is None:
            return web.json_response(
                {"ok": False, "error": "unknown_method", "req_method": name}
            ), "unknown_method"
        try:
            caller = self._caller(request, method, args)
            if wait := self._wait(name, method, args):
                return _too_many(str(max(1, math.ceil(wait)))), "ratelimited"
            body = await method.handler(self._office, caller, args)
        except ApiError as error:
            return web.json_response(error.body), error.code
        headers = {
            "x-oauth-scopes": ",".join(sorted(caller.scopes)),
            "x-accepted-oauth-scopes": method.scope or "",
        }
        return web.json_response({"ok": True, **body}, headers=headers), "ok"

    def _caller(self, request: web.Request, method: Method, args: Args) -> Caller:
        """Whose call it is, from the `Authorization` header or the `token` argument."""
        state = self._context.state
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        token = bearer.strip() if scheme.lower() == "bearer" else args.text("token", "")
        if not method.auth:
            return Caller(state.app.bot_user, frozenset())
        if not token:
            raise ApiError("not_authed")
        scopes = state.tokens.get(token)
        if scopes is None:
            raise ApiError("invalid_auth")
        if token.startswith("xapp-") != method.app_token:
            raise ApiError("not_allowed_token_type")
        caller = Caller(state.app.bot_user, scopes)
        if method.scope:
            caller.need(method.scope)
        return caller

    def _wait(self, name: str, method: Method, args: Args) -> float:
        if not self._context.options.rate_limits:
            return 0.0
        key = f"{name}:{args.text('channel', '')}" if method.tier == "post" else name
        return self._context.limiter.wait(method.tier, key, self._context.now())

    def _answer(self, incoming: Incoming, response: web.Response, outcome: str) -> web.Response:
        kind = incoming.fault.kind if incoming.fault else None
        at, took = self._context.now(), _seconds() - incoming.started
        args = incoming.args.raw()
        self._context.record_call(Call(incoming.name, args, at, outcome, response.status, kind, took))
        return response


def _seconds() -> float:
    return asyncio.get_running_loop().time()


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
        return _too_many(detail or None)
    status = int(detail) if kind == "5xx" else 500
    return web.Response(status=status, text="<html>upstream trouble</html>", content_type="text/html")


def _too_many(retry_after: str | None) -> web.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)


def _hang_up(request: web.Request) -> web.Response:
    """Close the TCP connection; the response that the server wants is never sent."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()
