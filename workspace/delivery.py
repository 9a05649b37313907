"""What Slack sends to the app: events, interactions and commands, over Socket Mode or to a request URL.

Sources: docs.slack.dev, "The Events API", "Using Socket Mode", "Verifying requests from Slack", "Handling user
interaction", "Slash commands". Everything is to be acknowledged within `Options.ack_timeout`. Events alone are tried
again: at once, after one minute and after five. Each envelope goes to any one of up to ten connections and may be
acknowledged over any of them. Over HTTP events are JSON, interactions a form with the JSON in `payload`, commands a
form of their fields; an answer other than 200, a redirect or none in time is a failure.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
from aiohttp import WSMsgType, web

from .context import Ack, Context
from .controls import ControlError
from .payloads import message_json
from .state import Channel, Json, Message

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 10
TICKET_LIFETIME = 30.0
REQUEST_FAULTS = {
    "bad_signature": "signed with the wrong secret",
    "unsigned": "without the signature headers",
    "old_timestamp": "signed correctly, but six minutes ago",
    "unreachable": "not sent",
    "lost": "sent and handled, but the response is lost",
}
_OLD = 360
_NOT_HEARD, _NOT_REACHED, _REFUSED = "http_timeout", "connection_failed", "http_error"
_HEADERS = {"User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)", "Accept": "*/*"}
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_CHANNEL_TYPES = {"channels": "channel", "groups": "group", "im": "im"}


class Response(NamedTuple):
    """What came of one attempt: `failure` in Slack's words for a retry's reason, or None; `status` is HTTP's."""

    failure: str | None = None
    status: int | None = None
    body: Any = None


@dataclass(frozen=True)
class Retry:
    """Which attempt at an envelope this is, and why the one before failed."""

    envelope_id: str
    attempt: int = 0
    reason: str = ""


@dataclass(eq=False)
class Connection:
    """One open socket. `half_open`: it neither sends nor answers, yet TCP stays up."""

    socket: web.WebSocketResponse
    transport: asyncio.Transport | None
    id: str
    half_open: bool = False
    leaving: bool = False

    async def send(self, message: Json) -> None:
        if self.half_open:
            return
        try:
            await self.socket.send_str(json.dumps(message))
        except ConnectionError:
            log.debug("connection %s closed while sending", self.id)


class Link:
    """The way to the app: all Socket Mode connections, or `requests` where there is a request URL."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tickets: dict[str, float] = {}
        self._pending: dict[str, asyncio.Future[Any]] = {}
        self._next = 0
        self._reject = 0
        self.connections: list[Connection] = []
        self.refused_upgrades = 0
        self.requests = Requests(context)

    def new_url(self) -> str:
        """Where to open one connection, with a ticket that is good for 30 seconds."""
        ticket = self._context.state.next_id("ticket-")
        self._tickets[ticket] = self._context.now() + TICKET_LIFETIME
        return f"{self._context.state.team['url'].replace('http', 'ws', 1)}link/?ticket={ticket}"

    async def deliver(
        self, kind: str, payload: Json, *, accepts_response: bool = False, retry: Retry | None = None
    ) -> Ack:
        """Send one envelope to one connection, or one request, and wait for its answer; the outcome is recorded."""
        retry = retry or Retry(self._context.state.next_id("env-"))
        clock = asyncio.get_running_loop().time
        started, at = clock(), self._context.now()
        if self.requests.url is not None:
            response = await self.requests.post(kind, payload, retry)
        else:
            response = await self._over_socket(kind, payload, retry, accepts_response=accepts_response)
        ack = Ack(
            retry.envelope_id,
            kind,
            _payload_type(kind, payload),
            at,
            retry.attempt,
            None if response.failure else clock() - started,
            response.failure,
            response.body,
            response.status,
        )
        self._context.record_ack(ack, payload)
        return ack

    async def _over_socket(
        self, kind: str, payload: Json, retry: Retry, *, accepts_response: bool
    ) -> Response:
        usable = [c for c in self.connections if not c.leaving and not c.socket.closed]
        if not usable:
            return Response("no_connection")
        self._next += 1
        envelope: Json = {
            "envelope_id": retry.envelope_id,
            "type": kind,
            "payload": payload,
            "accepts_response_payload": accepts_response,
        }
        if kind == "events_api":
            envelope |= {"retry_attempt": retry.attempt, "retry_reason": retry.reason}
        future = self._pending[retry.envelope_id] = asyncio.get_running_loop().create_future()
        try:
            await usable[self._next % len(usable)].send(envelope)
            async with asyncio.timeout(self._context.options.ack_timeout):
                return Response(body=await future)
        except TimeoutError:
            return Response("timeout")
        finally:
            self._pending.pop(retry.envelope_id, None)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /link/?ticket=…`: one connection, from its upgrade to its end."""
        expires = self._tickets.pop(request.query.get("ticket", ""), None)
        if self._reject > 0 or expires is None or expires < self._context.now():
            self._reject = max(0, self._reject - 1)
            self.refused_upgrades += 1
            self._context.changes.notify("record")
            raise web.HTTPForbidden(text="invalid ticket")
        socket = web.WebSocketResponse(autoping=False)
        await socket.prepare(request)
        connection = Connection(socket, request.transport, self._context.state.next_id("conn-"))
        if len(self.connections) >= MAX_CONNECTIONS:
            await connection.send({"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close()
            return socket
        self.connections.append(connection)
        self._context.changes.notify("record")
        try:
            await connection.send(self._hello())
            async for message in socket:
                if message.type == WSMsgType.PING and not connection.half_open:
                    await socket.pong(message.data)
                elif message.type == WSMsgType.TEXT and not connection.half_open:
                    self._acknowledge(message.data)
        finally:
            self.connections.remove(connection)
            self._context.changes.notify("record")
        return socket

    def _hello(self) -> Json:
        debug = {"host": "applink-local", "build_number": 1, "approximate_connection_time": 18060}
        return {
            "type": "hello",
            "num_connections": len(self.connections),
            "connection_info": {"app_id": self._context.state.app.id},
            "debug_info": debug,
        }

    def _acknowledge(self, text: str) -> None:
        try:
            message = json.loads(text)
        except ValueError:
            log.warning("ignored a Socket Mode message that is not JSON")
            return
        if not isinstance(message, dict):
            return
        future = self._pending.get(str(message.get("envelope_id")))
        if future is not None and not future.done():
            future.set_result(message.get("payload"))

    # Faults on demand

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Ask every connection to leave, as Slack does every few hours: `warning` comes before, `refresh_requested`
        closes, `link_disabled`.
        """
        for connection in list(self.connections):
            connection.leaving = reason != "warning"
            await connection.send({"type": "disconnect", "reason": reason, "debug_info": {}})

    def cut(self) -> None:
        """Cut every connection's TCP at once, without a close frame."""
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()

    def half_open(self) -> None:
        """Stop sending on and answering to every present connection, but keep their TCP up."""
        for connection in self.connections:
            connection.half_open = True

    def reject(self, times: int = 1) -> None:
        """Refuse the next `times` upgrades to a WebSocket with HTTP 403."""
        self._reject = times

    async def close(self) -> None:
        for connection in list(self.connections):
            connection.half_open = False
            await connection.socket.close()
        await self.requests.close()


def _payload_type(kind: str, payload: Json) -> str:
    if kind == "events_api":
        event = payload["event"]
        return f"{event['type']}.{event['subtype']}" if event.get("subtype") else str(event["type"])
    return str(payload.get("command") or payload.get("type", kind))


class Requests:
    """HTTP in place of Socket Mode: each thing a signed POST to `url`, if there is one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._faults: list[str] = []
        self._http: aiohttp.ClientSession | None = None
        self.url = context.options.request_url

    async def set_url(self, url: str) -> None:
        """Make `url` the request URL, as in the app's settings: it has to repeat a challenge.

        Raises:
            ControlError: it does not; the URL before stays.
        """
        challenge = self._context.state.next_id("challenge-")
        body = {"token": "local-verification", "challenge": challenge, "type": "url_verification"}
        sent = json.dumps(body).encode()
        answer = await self._timed(url, sent, {"Content-Type": _JSON} | self._signature(sent))
        said = answer.body.get("challenge") if isinstance(answer.body, dict) else answer.body
        if answer.failure is not None or said != challenge:
            msg = f"the request URL did not repeat the challenge: {answer.failure or 'a different body'} ({answer.status})"
            raise ControlError(msg)
        self.url = url

    def spoil(self, kind: str, times: int = 1) -> None:
        """Let the next `times` requests go wrong, in one of the ways of `REQUEST_FAULTS`.

        Raises:
            ControlError: the kind is unknown.
        """
        if kind not in REQUEST_FAULTS:
            msg = f"fault {kind!r}: expected one of {sorted(REQUEST_FAULTS)}"
            raise ControlError(msg)
        self._faults += [kind] * times

    async def post(self, kind: str, payload: Json, retry: Retry) -> Response:
        """Send an event (`events_api`), an interaction (`interactive`) or a command (`slash_commands`)."""
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "unreachable" or self.url is None:
            return Response(_NOT_REACHED)
        fields = payload if kind == "slash_commands" else {"payload": json.dumps(payload)}
        is_event = kind == "events_api"
        body = (json.dumps(payload) if is_event else urlencode(fields)).encode()
        headers = {"Content-Type": _JSON if is_event else _FORM}
        if retry.attempt:
            headers |= {"X-Slack-Retry-Num": str(retry.attempt), "X-Slack-Retry-Reason": retry.reason}
        if fault != "unsigned":
            headers |= self._signature(body, fault)
        answer = await self._timed(self.url, body, headers)
        if fault == "lost":
            return Response(_NOT_HEARD)
        is_view = payload.get("type") == "view_submission"
        if answer.failure is None and is_view and isinstance(answer.body, str):
            return answer._replace(failure=_REFUSED)  # Slack takes JSON or nothing there
        return answer

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _timed(self, url: str, body: bytes, headers: dict[str, str]) -> Response:
        try:
            async with asyncio.timeout(self._context.options.ack_timeout):
                return await self._send(url, body, headers | _HEADERS)
        except TimeoutError:
            return Response(_NOT_HEARD)
        except (aiohttp.ClientError, OSError):
            return Response(_NOT_REACHED)

    async def _send(self, url: str, body: bytes, headers: dict[str, str]) -> Response:
        if self._http is None:
            # One connection a request: none can end at the moment it is used again, which would lose a click.
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        async with self._http.post(url, data=body, headers=headers, allow_redirects=False) as response:
            text = await response.text()
            if response.status != 200:
                return Response(_REFUSED, response.status)
            if response.content_type != _JSON or not text:
                return Response(None, 200, text or None)
            try:
                return Response(None, 200, json.loads(text))
            except ValueError:
                return Response(_REFUSED, 200)

    def _signature(self, body: bytes, fault: str = "") -> dict[str, str]:
        at = int(self._context.now()) - (_OLD if fault == "old_timestamp" else 0)
        secret = self._context.options.signing_secret + ("x" if fault == "bad_signature" else "")
        made = hmac.new(secret.encode(), b"v0:%d:%b" % (at, body), hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": f"v0={made}"}


class Events:
    """Builds event payloads and sees to their delivery: what happened, told until it is acknowledged."""

    def __init__(self, context: Context, link: Link) -> None:
        self._context = context
        self._state = context.state
        self._link = link

    def emit(self, event: Json) -> None:
        """Send one event to the app, in the background, if the app subscribed to its type."""
        if event["type"] in self._context.options.events:
            self._context.spawn(self._deliver(self._wrap(event)), f"event {event['type']}")

    def posted(self, message: Message) -> None:
        """`message` (and `app_mention`) for a new message in a conversation that the bot is in."""
        channel = self._state.channels[message.channel]
        if not self._hears(channel):
            return
        body = message_json(self._state, message)
        self.emit(body | self._place(channel, message.ts))
        mention = f"<@{self._state.app.bot_user}>"
        if mention in message.text and not channel.is_im and not message.bot_id:
            mentioned = {k: v for k, v in body.items() if k != "subtype"}
            self.emit(mentioned | {"type": "app_mention", "channel": channel.id, "event_ts": message.ts})

    def changed(self, message: Message, previous: Json) -> None:
        """`message_changed`; `previous` is the message's JSON before the change."""
        now = message_json(self._state, message)
        self._about(message, "message_changed", {"message": now, "previous_message": previous})

    def deleted(self, message: Message, previous: Json) -> None:
        """`message_deleted`; of a root that leaves a tombstone Slack tells with `message_changed`."""
        self._about(message, "message_deleted", {"deleted_ts": message.ts, "previous_message": previous})

    def joined(self, channel: Channel, user: str, *, left: bool = False) -> None:
        """`member_joined_channel` or `member_left_channel`; also when it is the bot itself."""
        if self._hears(channel) or user == self._state.app.bot_user:
            event: Json = {
                "type": "member_left_channel" if left else "member_joined_channel",
                "user": user,
                "channel": channel.id,
                "channel_type": "G" if channel.is_private else "C",
                "team": self._state.team["id"],
                "event_ts": self._state.next_ts(),
            }
            self.emit(event)

    def about_channel(self, channel: Channel, kind: str, user: str) -> None:
        """`channel_archive` and its like; for private channels Slack calls them `group_…`."""
        if self._hears(channel):
            name = kind.replace("channel_", "group_") if channel.is_private else kind
            who = "actor_id" if kind == "channel_left" else "user"
            event = {"type": name, "channel": channel.id, who: user, "event_ts": self._state.next_ts()}
            self.emit(event)

    def _about(self, message: Message, subtype: str, fields: Json) -> None:
        channel = self._state.channels[message.channel]
        if self._hears(channel):
            place = self._place(channel, self._state.next_ts())
            self.emit({"type": "message", "subtype": subtype, "hidden": True, **place, **fields})

    def _hears(self, channel: Channel) -> bool:
        return self._state.app.bot_user in channel.members

    def _place(self, channel: Channel, ts: str) -> Json:
        kind = _CHANNEL_TYPES[channel.kind]
        return {"channel": channel.id, "ts": ts, "event_ts": ts, "channel_type": kind}

    def _wrap(self, event: Json) -> Json:
        state = self._state
        authorization: Json = {
            "enterprise_id": state.enterprise or None,
            "team_id": None if state.org_wide else state.team["id"],
            "user_id": state.app.bot_user,
            "is_bot": True,
            "is_enterprise_install": state.org_wide,
        }
        return {
            "token": "local-verification",
            "team_id": state.team["id"],
            "context_team_id": state.team["id"],
            "context_enterprise_id": state.enterprise or None,
            "api_app_id": state.app.id,
            "event": event,
            "type": "event_callback",
            "event_id": state.next_id("Ev"),
            "event_time": int(self._context.now()),
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": state.next_id("4-"),
        }

    async def _deliver(self, payload: Json) -> None:
        envelope_id, reason = self._state.next_id("env-"), ""
        for attempt, delay in enumerate((None, *self._context.options.retry_delays)):
            if delay:
                await asyncio.sleep(delay)
            ack = await self._link.deliver("events_api", payload, retry=Retry(envelope_id, attempt, reason))
            if ack.failure is None:
                return
            reason = ack.failure
