"""HTTP instead of Socket Mode, Slack's side: each event, interaction and command a signed POST to the request URL.

Sources: docs.slack.dev, "Verifying requests from Slack", "The Events API", "Handling user interaction", "Slash
commands". Events are JSON, interactions a form with the JSON in `payload`, commands a form of their fields. An answer
other than 200, a redirect or none within `Options.ack_timeout` is a failure; events alone are tried again.

Faults on demand, for the next requests:

| kind | what happens |
| --- | --- |
| `bad_signature` | signed with another secret |
| `unsigned` | without the two headers |
| `old_timestamp` | rightly signed, six minutes ago |
| `unreachable` | not sent |
| `lost` | sent and handled; the answer does not arrive |
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp

from .context import Context
from .controls import ControlError
from .state import Json

FAULTS = frozenset({"bad_signature", "unsigned", "old_timestamp", "unreachable", "lost"})
_OLD = 360
_AGENT = "Slackbot 1.0 (+https://api.slack.com/robots)"
_NOT_HEARD = "http_timeout"


class Response(NamedTuple):
    """How a request fared: `failure` in Slack's words for a retry's reason, or None; `status` where one came."""

    failure: str | None = None
    status: int | None = None
    body: Any = None


class Requests:
    """Sends to `url`, if there is one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._faults: list[str] = []
        self._http: aiohttp.ClientSession | None = None
        self.url = context.options.request_url

    async def use(self, url: str) -> None:
        """Make `url` the request URL, as in the app's settings: it has to repeat a challenge.

        Raises:
            ControlError: it does not; the URL before stays.
        """
        challenge = self._context.state.next_id("challenge-")
        body = {"token": "local-verification", "challenge": challenge, "type": "url_verification"}
        sent = json.dumps(body).encode()
        answer = await self._timed(url, sent, self._headers("application/json") | self._signature(sent))
        said = answer.body.get("challenge") if isinstance(answer.body, dict) else answer.body
        if answer.failure is not None or said != challenge:
            msg = f"the request URL did not repeat the challenge: {answer.failure or 'another body'} ({answer.status})"
            raise ControlError(msg)
        self.url = url

    def spoil(self, kind: str, times: int = 1) -> None:
        """Let the next `times` requests go wrong.

        Raises:
            ControlError: the kind is unknown.
        """
        if kind not in FAULTS:
            msg = f"fault {kind!r}: expected one of {sorted(FAULTS)}"
            raise ControlError(msg)
        self._faults += [kind] * times

    async def post(self, kind: str, payload: Json, attempt: int = 0, reason: str = "") -> Response:
        """Send an event (`events_api`), an interaction (`interactive`) or a command (`slash_commands`)."""
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "unreachable" or self.url is None:
            return Response("connection_failed")
        body, media_type = _encoded(kind, payload)
        headers = self._headers(media_type)
        if attempt:
            headers |= {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": reason}
        if fault != "unsigned":
            headers |= self._signature(body, fault)
        answer = await self._timed(self.url, body, headers)
        if fault == "lost":
            return Response(_NOT_HEARD)
        if (
            answer.failure is None
            and payload.get("type") == "view_submission"
            and isinstance(answer.body, str)
        ):
            return Response("http_error", answer.status, answer.body)  # Slack takes JSON or nothing there
        return answer

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _timed(self, url: str, body: bytes, headers: dict[str, str]) -> Response:
        try:
            async with asyncio.timeout(self._context.options.ack_timeout):
                return await self._send(url, body, headers)
        except TimeoutError:
            return Response(_NOT_HEARD)
        except (aiohttp.ClientError, OSError):
            return Response("connection_failed")

    async def _send(self, url: str, body: bytes, headers: dict[str, str]) -> Response:
        if self._http is None:
            # One connection a request: none can end at the moment it is used again, which would lose a click.
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        async with self._http.post(url, data=body, headers=headers, allow_redirects=False) as response:
            text = await response.text()
            if response.status != 200:
                return Response("http_error", response.status)
            if response.content_type != "application/json":
                return Response(None, 200, text or None)
            try:
                return Response(None, 200, json.loads(text) if text else None)
            except ValueError:
                return Response("http_error", 200)

    def _headers(self, media_type: str) -> dict[str, str]:
        return {"Content-Type": media_type, "User-Agent": _AGENT, "Accept": "*/*"}

    def _signature(self, body: bytes, fault: str = "") -> dict[str, str]:
        at = int(self._context.now()) - (_OLD if fault == "old_timestamp" else 0)
        secret = self._context.options.signing_secret + ("x" if fault == "bad_signature" else "")
        made = hmac.new(secret.encode(), b"v0:%d:%b" % (at, body), hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={made}"}


def _encoded(kind: str, payload: Json) -> tuple[bytes, str]:
    if kind == "events_api":
        return json.dumps(payload).encode(), "application/json"
    fields = payload if kind == "slash_commands" else {"payload": json.dumps(payload)}
    return urlencode(fields).encode(), "application/x-www-form-urlencoded"
