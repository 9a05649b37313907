"""`POST /response/{key}`: what an app does with a `response_url`. Five uses within thirty minutes.

| body | with a message that was clicked | of a command or a message shortcut |
| --- | --- | --- |
| `replace_original` | other content in its place; an ephemeral one stays ephemeral | a new message: there is no original |
| `delete_original` | it is gone | nothing |
| `response_type: in_channel` | a new message for all | the same |
| none of them, `ephemeral` | a new message for the person alone | the same |

Source: docs.slack.dev, "Handling user interaction"; that a command's url replaces nothing: bolt-python issue
1268. Apps should say `replace_original` either way: without it clients were seen to do both.
"""

from __future__ import annotations

import json

from aiohttp import web

from . import rules
from .board import Board
from .context import Call, Context
from .interactions import Interactions
from .state import Ephemeral, Json, ResponseUrl


class Responses:
    """Serves response_urls."""

    def __init__(self, context: Context, board: Board, interactions: Interactions) -> None:
        self._context = context
        self._state = context.state
        self._board = board
        self._interactions = interactions

    async def handle(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.text())
        except ValueError:
            body = None
        if (fault := self._context.faults.take("response_url")) is not None and fault.name == "5xx":
            self._context.record_call(
                Call("response_url", {}, self._context.now(), fault.name, int(fault.detail))
            )
            return web.Response(status=int(fault.detail), text="no answer to be had")
        outcome = self._use(request.match_info["key"], body) if isinstance(body, dict) else "invalid_payload"
        status = 200 if outcome == "ok" else 404 if outcome in {"used_url", "expired_url"} else 400
        args = body if isinstance(body, dict) else {}
        self._context.record_call(Call("response_url", args, self._context.now(), outcome, status))
        if outcome == "ok":
            return web.Response(text="ok")
        return web.json_response({"ok": False, "error": outcome}, status=status)

    def _use(self, key: str, body: Json) -> str:
        url = self._state.responses.get(key)
        if url is None or self._context.now() > url.expires:
            return "expired_url"
        if url.uses >= self._context.options.response_uses:
            return "used_url"
        problems = [] if body.get("delete_original") else rules.message_problems(body)
        if problems:
            return problems[0].code
        url.uses += 1
        self._apply(url, body)
        return "ok"

    def _apply(self, url: ResponseUrl, body: Json) -> None:
        channel = self._state.channels[url.channel]
        text, blocks = str(body.get("text") or ""), body.get("blocks") or []
        whisper = self._state.ephemeral(url.user, url.message_ts or "")
        message = channel.messages.get(url.message_ts or "")
        if body.get("delete_original"):
            if whisper is not None:
                self._board.unwhisper(whisper)
            elif message is not None:
                self._board.delete(message)
        elif body.get("replace_original") and whisper is not None:
            whisper.text, whisper.blocks = text, self._board.with_ids(blocks)
            self._context.changes.notify(f"user:{url.user}")
        elif body.get("replace_original") and message is not None:
            self._board.change(message, self._state.app.bot_user, {"text": text, "blocks": blocks})
        elif body.get("response_type") == "in_channel":
            self._interactions.say(channel, body, body.get("thread_ts"))
        else:
            # In the channel unless the app names the thread (bolt-js issue 963).
            whisper = Ephemeral(url.user, channel.id, "", text, blocks, body.get("thread_ts"))
            self._board.whisper(whisper)
