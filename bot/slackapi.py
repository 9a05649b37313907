"""Calls to Slack: the Web API client, calls that read, calls that post, and their outcomes.

Calls that read (`ask`) raise SlackUnreachableError or SlackRefusedError. Calls that post, change or look up messages
(`Gateway`) return an `Outcome`, as the next step depends on whether Slack may have accepted the message. Nothing here
repeats a post. We read Retry-After ourselves: it may be missing or fractional, and slack_sdk's handler fails on "1.5".
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.errors import NotLeading, SlackRefusedError, SlackUnreachableError
from bot.settings.model import Settings, is_loopback, url_host
from bot.telemetry import Telemetry
from bot.views.blockkit import classic, newer
from core.clock import Clock, event_or_time

if TYPE_CHECKING:
    from bot.storage.store import Acting

_log = structlog.get_logger("clarify.delivery")
_T = TypeVar("_T")
Call = Callable[[], Awaitable[AsyncSlackResponse]]
NETWORK_ERRORS = (SlackClientError, aiohttp.ClientError, TimeoutError, OSError)
_LIMITED = frozenset({"ratelimited", "rate_limited"})
# Only this message is refused for now: the others of its channel need not wait.
_LATER_ALONE = frozenset({"update_failed", "streaming_state_conflict", "message_limit_exceeded"})
_LATER = (
    _LIMITED
    | _LATER_ALONE
    | {
        "service_unavailable",
        "team_added_to_org",
        "org_login_required",
        "accesslimited",
        "app_access_restricted",
        "ekm_access_denied",
        "external_channel_migrating",
    }
)
_UNKNOWN = frozenset({"internal_error", "fatal_error", "request_timeout"})
_DEFAULT_WAIT = 5.0
# No connection, so nothing can have arrived.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class SlackBusyError(SlackUnreachableError):
    """Slack's rate limit. `after`: seconds to wait."""

    def __init__(self, message: str, after: float) -> None:
        self.after = after
        super().__init__(message)


async def ask(method: str, call: Call, timeout: float = 10.0) -> AsyncSlackResponse:
    """Makes one call that reads, and returns the response.

    Raises:
        SlackBusyError: a rate limit.
        SlackUnreachableError: no answer within `timeout` seconds, or an error on Slack's side.
        SlackRefusedError: Slack refused; `code` is its error code.
    """
    try:
        async with asyncio.timeout(timeout):
            return await call()
    except NETWORK_ERRORS as error:
        failed = failure(error)
        if isinstance(failed, Never):
            raise SlackRefusedError(f"{method}: {failed.code}", code=failed.code) from error
        if isinstance(failed, Later) and failed.reason in _LIMITED:
            raise SlackBusyError(f"{method}: Slack's rate limit", failed.after or _DEFAULT_WAIT) from error
        raise SlackUnreachableError(f"{method}: {failed.reason}") from error


async def permalink(web: AsyncWebClient, channel: str, ts: str) -> str:
    """Returns the web address of a message. Raises as `ask` does."""
    call = partial(web.chat_getPermalink, channel=channel, message_ts=ts)
    return str((await ask("chat.getPermalink", call))["permalink"])


async def replies_since(web: AsyncWebClient, place: Place, since: datetime) -> list[dict[str, Any]]:
    """Returns up to 200 replies of a thread since a moment, oldest first. Raises as `ask` does."""
    call = partial(
        web.conversations_replies,
        channel=place.channel,
        ts=place.thread_ts or "",
        oldest=f"{since.timestamp():.6f}",
        limit=200,
    )
    return list((await ask("conversations.replies", call)).get("messages") or [])


def retry_after(error: BaseException) -> float | None:
    """Returns the seconds that Slack asked to wait, at most 3600, or None if it named no valid number."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    try:
        seconds = float(str(value[0] if isinstance(value, list) else value))
    except (ValueError, IndexError):
        return None
    return max(0.0, min(seconds, 3600.0)) if math.isfinite(seconds) else None


def reason(error: BaseException) -> str:
    """Returns Slack's error code or the exception's class, for the log. No URLs, no payloads."""
    return _code(error) or type(error).__name__


def _code(error: BaseException) -> str | None:
    """Returns Slack's error code, or None if the response is not Slack's."""
    data = getattr(getattr(error, "response", None), "data", None)
    code = data.get("error") if isinstance(data, dict) else None
    return code if isinstance(code, str) and code else None


def _status(error: BaseException) -> int:
    return int(getattr(getattr(error, "response", None), "status_code", 0))


@dataclass(frozen=True, slots=True)
class Place:
    """A channel, and the thread in it, where the bot can reply to a person."""

    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Slack has the message. `thread_ts`: its thread, unless it is the thread's first message."""

    word: ClassVar[str] = "sent"
    channel: str
    ts: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Slack did not accept it now; try again. `after`: seconds, if Slack said. `alone`: it takes other messages."""

    word: ClassVar[str] = "later"
    reason: str
    after: float | None = None
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Slack may have accepted it: look it up before repeating it."""

    word: ClassVar[str] = "unknown"
    reason: str


@dataclass(frozen=True, slots=True)
class Never:
    """Slack will never accept it. `what` is at fault; an `unknown` code may be a temporary one. `details`: what Slack says of
    it, which may quote the content.
    """

    word: ClassVar[str] = "never"
    code: str
    what: Literal["place", "content", "message", "app", "unknown"]
    details: str = field(default="", repr=False, compare=False)


Failure = Later | Unknown | Never
Outcome = Sent | Failure

PLACE = frozenset(
    [
        "channel_not_found",
        "not_in_channel",
        "is_archived",
        "channel_is_archived",
        "channel_type_not_supported",
        "user_not_found",
        "restricted_action",
        "restricted_action_read_only_channel",
        "restricted_action_thread_only_channel",
        "restricted_action_non_threadable_channel",
        "restricted_action_thread_locked",
        "cannot_dm_bot",
        "user_disabled",
        "messages_tab_disabled",
        "team_access_not_granted",
        "not_allowed",
    ]
)
MESSAGE = frozenset(
    [
        "message_not_found",
        "cant_update_message",
        "edit_window_closed",
        "thread_not_found",
        "cannot_reply_to_message",
        "is_inactive",
    ]
)
GONE = frozenset({"message_not_found", "thread_not_found", "channel_not_found"})
"""The codes with which Slack says that a message is no longer there."""
APP = frozenset(
    [
        "not_authed",
        "invalid_auth",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "missing_scope",
        "no_permission",
        "access_denied",
        "two_factor_setup_required",
    ]
)


CONTENT = frozenset(
    [
        "invalid_blocks",
        "invalid_blocks_format",
        "invalid_arguments",
        "invalid_attachments",
        "attachment_payload_limit_exceeded",
        "too_many_attachments",
        "msg_too_long",
        "msg_blocks_too_long",
        "markdown_text_conflict",
        "no_text",
        "no_dual_broadcast_content_update",
        "invalid_metadata_format",
        "invalid_metadata_schema",
        "metadata_too_large",
        "metadata_must_be_sent_from_app",
    ]
)


def failure(error: BaseException) -> Failure:
    """Classifies the exception of a Slack call; raises it again if it is none of Slack's or the network's.

    Sources: slack.dev method pages for the error codes; the SDK raises SlackApiError for `ok: false` and for 429.
    """
    if isinstance(error, SlackApiError):
        return _refusal(error)
    if isinstance(error, _NOT_SENT):
        return Later(f"no connection ({type(error).__name__})")
    if isinstance(error, NotLeading):
        return Later(str(error))
    if isinstance(error, (asyncio.TimeoutError, aiohttp.ClientError, SlackClientError, OSError)):
        return Unknown(type(error).__name__)
    raise error


def _refusal(error: SlackApiError) -> Failure:
    status, code = _status(error), _code(error)
    if status == 429 or code in _LATER:
        return Later(code or "ratelimited", retry_after(error), alone=code in _LATER_ALONE)
    if code is None or code in _UNKNOWN or status >= 500:
        return Unknown(code or f"HTTP {status}")
    if code in PLACE:
        return Never(code, "place")
    if code in MESSAGE:
        return Never(code, "message")
    if code in APP:
        return Never(code, "app", _details(error))
    return Never(code, "content" if code in CONTENT else "unknown", _details(error))


def _details(error: SlackApiError) -> str:
    """Returns Slack's messages about a call, which name the fields that it refused."""
    data = getattr(error.response, "data", None)
    about = data.get("response_metadata") if isinstance(data, dict) else None
    return str(about.get("messages") or "") if isinstance(about, dict) else ""


async def try_call(call: Awaitable[_T]) -> _T | Failure:
    """Awaits a Slack call; returns its result or its `failure`."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
        return failure(error)


# How far to look for a post whose outcome is unknown: it is recent. Slack returns a channel's history newest first, a
# thread's replies oldest first. No limit in time, as Slack's clock is not ours.
_HISTORY_PAGES, _REPLIES_PAGES = 5, 50
_INSTALLATION = "installation"
_TIMEOUT = 10  # seconds


@dataclass(frozen=True, slots=True)
class Post:
    """A message to post. Every app in the workspace can read `metadata`: no secrets."""

    text: str
    blocks: list[dict[str, Any]]
    metadata: Mapping[str, Any]
    thread_ts: str | None = None
    broadcast: bool = False

    @property
    def kind(self) -> str:
        """`card`, `page`, or the first part of a notice's key."""
        kind = str(self.metadata["event_type"]).removeprefix("clarify_")
        return str(self.metadata["event_payload"]["key"]).partition(":")[0] if kind == "notice" else kind


_BLOCKS_REFUSED = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "invalid_arguments", "invalid_attachments"}
)
_REFUSED_FOR = timedelta(days=1)  # then Slack may have rolled them out


@dataclass(eq=False)
class NewerBlocks:
    """Sends a message or a view in Slack's newer blocks, or in classic ones where the workspace refuses those.

    Slack rolls blocks out in phases and refuses a message with an unknown one. The same content is then sent again in
    classic blocks (`bot.views.blockkit`). If Slack takes it, newer blocks are not tried for a day, or until a restart.

    A modal is sent once more with the same trigger, which works once and for three seconds. Slack does not document whether
    a refused view uses it up. If it does, the refusal is remembered all the same: the person's next click opens the modal.
    """

    clock: Clock
    _refused_until: datetime | None = field(default=None, init=False)

    async def send(
        self,
        blocks: Sequence[dict[str, Any]],
        call: Callable[[list[dict[str, Any]]], Awaitable[_T | Failure]],
    ) -> _T | Failure:
        """Awaits `call` with the blocks to send, again if newer ones are refused; returns the last outcome."""
        now, kinds = self.clock.now(), newer(blocks)
        if kinds and self._refused_until is not None and now < self._refused_until:
            return await call(classic(blocks))
        outcome = await call(list(blocks))
        if not kinds or not isinstance(outcome, Never) or not _refuses_blocks(outcome):
            return outcome
        outcome = await call(classic(blocks))
        if not isinstance(outcome, Failure) or _refuses_trigger(outcome):
            _log.warning("Slack refuses newer blocks; sending classic ones", blocks=sorted(kinds))
            self._refused_until = now + _REFUSED_FOR
        return outcome


def _refuses_trigger(failed: Failure) -> bool:
    """Returns whether Slack refused a modal because its trigger was used or is too old, in either of the forms in which it
    says so.
    """
    return isinstance(failed, Never) and "trigger_id" in f"{failed.code} {failed.details}"


def _refuses_blocks(failed: Never) -> bool:
    return failed.code in _BLOCKS_REFUSED and not _refuses_trigger(failed)


@dataclass(eq=False)
class Gateway:
    """Posts, changes, finds and removes messages; shows views.

    `client` has no retry handlers: the SDK's default one repeats a dropped post, which makes two messages. The metadata
    of every post names our `installation`, so we never take another bot's messages for ours.
    """

    client: AsyncWebClient
    installation: str
    telemetry: Telemetry

    def __post_init__(self) -> None:
        # A modal or a Home tab may lack a block that messages have.
        self._newer_in = {kind: NewerBlocks(self.telemetry.clock) for kind in ("message", "modal", "home")}

    async def post(self, channel: str, post: Post) -> Outcome:
        """Calls chat.postMessage once, and again if the workspace refuses newer blocks (`NewerBlocks`)."""
        arguments: dict[str, Any] = {"thread_ts": post.thread_ts} if post.thread_ts else {}
        if post.thread_ts and post.broadcast:
            arguments["reply_broadcast"] = True

        async def call(blocks: list[dict[str, Any]]) -> Outcome:
            response = await try_call(
                self.client.chat_postMessage(
                    channel=channel,
                    text=post.text,
                    blocks=blocks,
                    metadata=self._signed(post.metadata),
                    mrkdwn=False,
                    parse="none",
                    unfurl_links=False,
                    unfurl_media=False,
                    **arguments,
                )
            )
            if isinstance(response, Failure):
                return response
            # A post into a thread whose first message was deleted lands in the channel; nothing else says so.
            return _sent(str(response["channel"]), {**(response.get("message") or {}), "ts": response["ts"]})

        outcome = await self._newer_in["message"].send(post.blocks, call)
        if post.kind == "page" and isinstance(outcome, Sent | Never):
            self.telemetry.paged("slack", "sent" if isinstance(outcome, Sent) else "failed")
        self.telemetry.delivered(post.kind, outcome.word)
        return outcome

    async def update(self, channel: str, ts: str, post: Post) -> Outcome:
        """Calls chat.update as `post` does. An update with an unknown outcome can be repeated safely."""

        async def call(blocks: list[dict[str, Any]]) -> Outcome:
            failed = await try_call(
                self.client.chat_update(
                    channel=channel,
                    ts=ts,
                    text=post.text,
                    blocks=blocks,
                    metadata=self._signed(post.metadata),
                    parse="none",
                )
            )
            return failed if isinstance(failed, Failure) else Sent(channel, ts)

        outcome = await self._newer_in["message"].send(post.blocks, call)
        self.telemetry.delivered(post.kind, outcome.word)
        return outcome

    async def show(
        self,
        method: Callable[..., Awaitable[AsyncSlackResponse]],
        view: Mapping[str, Any],
        **where: str,
    ) -> Failure | None:
        """Shows a modal or a Home tab with one of the client's views methods, called once, and again if the workspace
        refuses newer blocks (`NewerBlocks`). `where`: the method's other arguments. Returns why it is not shown, or None.
        """

        async def call(blocks: list[dict[str, Any]]) -> Failure | None:
            failed = await try_call(method(view={**view, "blocks": blocks}, **where))
            return failed if isinstance(failed, Failure) else None

        return await self._newer_in[view["type"]].send(view["blocks"], call)

    async def open_dm(self, user: str) -> str | Failure:
        """Returns the channel of the direct messages with a user."""
        response = await try_call(self.client.conversations_open(users=user))
        return response if isinstance(response, Failure) else str(response["channel"]["id"])

    async def find(
        self, channel: str, thread_ts: str | None, matches: Mapping[str, Any], known: set[str]
    ) -> Outcome | None:
        """Returns our message whose metadata contains `matches` and whose ts is not in `known`, or None.

        A post into a thread may have landed in the channel, if the thread's first message was deleted.
        """

        def fits(message: Mapping[str, Any]) -> bool:
            return message.get("ts") not in known and self._carries(message, matches)

        found = await try_call(self._first(channel, thread_ts, None, fits))
        is_gone = isinstance(found, Never) and found.code in GONE
        if thread_ts and (found is None or is_gone):
            return await try_call(self._first(channel, None, None, fits))
        return found

    async def find_card(
        self, channel: str, matches: Mapping[str, Any], since: float, former: str
    ) -> Outcome | None:
        """Returns the latest message of a channel, broadcasts included, whose metadata contains `matches`, or None.

        It was posted after `since` (seconds since 1970), by us or under our `former` installation id. `channel` may be
        a user's id, for their direct messages.
        """
        place = await self.open_dm(channel) if channel.startswith(("U", "W")) else channel
        if not isinstance(place, str):
            return place
        return await try_call(
            self._first(place, None, since, lambda message: self._carries(message, matches, former))
        )

    async def _first(
        self,
        channel: str,
        thread_ts: str | None,
        since: float | None,
        fits: Callable[[Mapping[str, Any]], bool],
    ) -> Sent | None:
        """Returns the first message that fits, in the order in which Slack returns them."""
        async for message in self._messages(channel, thread_ts, since):
            if fits(message):
                return _sent(channel, message)
        return None

    async def ours(
        self, channel: str, thread_ts: str | None, since: float
    ) -> dict[str, Mapping[str, Any]] | Failure:
        """Returns the metadata, by ts, of our messages in a channel or thread after `since`."""

        async def search() -> dict[str, Mapping[str, Any]]:
            found: dict[str, Mapping[str, Any]] = {}
            async for message in self._messages(channel, thread_ts, since):
                metadata = message.get("metadata")
                if isinstance(metadata, Mapping) and self._is_ours(metadata.get("event_payload")):
                    found[str(message["ts"])] = metadata
            return found

        return await try_call(search())

    def _is_ours(self, payload: object) -> bool:
        return isinstance(payload, Mapping) and payload.get(_INSTALLATION) == self.installation

    async def delete(self, channel: str, ts: str) -> Outcome:
        """Deletes a message; returns Sent also if it was gone already."""
        failed = await try_call(self.client.chat_delete(channel=channel, ts=ts))
        is_gone = isinstance(failed, Never) and failed.code in GONE
        outcome = failed if isinstance(failed, Failure) and not is_gone else Sent(channel, ts)
        self.telemetry.attempted("delete", outcome.word)
        return outcome

    async def replies(self, channel: str, ts: str) -> set[str] | Failure:
        """Returns the ts of the replies in a message's thread."""

        async def search() -> set[str]:
            return {str(message["ts"]) async for message in self._messages(channel, ts)} - {ts}

        found = await try_call(search())
        return set() if isinstance(found, Never) and found.code in GONE else found

    async def remove(self, channel: str, ts: str, instead: str) -> Outcome:
        """Deletes a message, or replaces it with the text `instead` if Slack does not let us delete it."""
        failed: object = await self.delete(channel, ts)
        if isinstance(failed, Never) and failed.code not in MESSAGE:
            words = [{"type": "section", "text": {"type": "plain_text", "text": instead}}]
            failed = await try_call(
                self.client.chat_update(channel=channel, ts=ts, text=instead, blocks=words)
            )
        return failed if isinstance(failed, Failure) else Sent(channel, ts)

    async def _messages(
        self, channel: str, thread_ts: str | None, since: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        for _ in range(_HISTORY_PAGES if thread_ts is None and since is None else _REPLIES_PAGES):
            arguments: dict[str, Any] = {
                "channel": channel,
                "limit": 200,
                "include_all_metadata": True,
            } | ({"cursor": cursor} if cursor else {})
            if since is not None:
                arguments["oldest"] = f"{since:.6f}"
            if thread_ts:
                response = await self.client.conversations_replies(ts=thread_ts, **arguments)
            else:
                response = await self.client.conversations_history(**arguments)
            for message in response.get("messages") or []:
                yield message
            cursor = (response.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return

    async def tell(
        self, user: str, place: Place, text: str, blocks: list[dict[str, Any]] | None = None
    ) -> bool:
        """Posts an ephemeral message once; logs a failure. Returns whether Slack accepted it.

        Other people's and agents' words in `text` must be inert already.
        """
        failed = await try_call(
            self.client.chat_postEphemeral(
                channel=place.channel, user=user, text=text, thread_ts=place.thread_ts, blocks=blocks or None
            )
        )
        if isinstance(failed, Failure):
            _log.warning(
                "ephemeral message not delivered", user=user, channel=place.channel, outcome=repr(failed)
            )
            self.telemetry.attempted("whisper", failed.word)
            return False
        self.telemetry.attempted("whisper", Sent.word)
        return True

    async def respond(self, url: str, body: Mapping[str, Any]) -> bool:
        """Responds through a `response_url`, once; logs a failure, without the address. Returns whether Slack accepted it.

        A response_url takes five responses within thirty minutes, also where the bot is no member (docs.slack.dev,
        "Handling user interaction", message responses).
        """
        webhook = AsyncWebhookClient(url, timeout=_TIMEOUT, retry_handlers=[])
        webhook.proxy = self.client.proxy

        response = await try_call(webhook.send_dict(dict(body)))
        if isinstance(response, Failure):
            _log.warning("response not delivered", outcome=repr(response))
            return False
        code = _refusal_in(response.body)
        if response.status_code != 200 or code is not None:
            refused = Never(code or f"HTTP {response.status_code}", "content", response.body)
            _log.warning("response not delivered", outcome=repr(refused))
            return False
        return True

    def _signed(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        payload = {**metadata["event_payload"], _INSTALLATION: self.installation}
        return {**metadata, "event_payload": payload}

    def _carries(
        self, message: Mapping[str, Any], matches: Mapping[str, Any], former: str | None = None
    ) -> bool:
        metadata = message.get("metadata")
        if not isinstance(metadata, Mapping) or metadata.get("event_type") != matches["event_type"]:
            return False
        payload = metadata.get("event_payload")
        wanted: Mapping[str, Any] = matches["event_payload"]
        if not isinstance(payload, Mapping):
            return False
        if payload.get(_INSTALLATION, "") not in {self.installation, former}:
            return False
        return all(payload.get(key) == value for key, value in wanted.items())


def _sent(channel: str, message: Mapping[str, Any]) -> Sent:
    root, ts = message.get("thread_ts"), str(message["ts"])
    return Sent(channel, ts, str(root) if root and root != ts else None)


def _refusal_in(body: str) -> str | None:
    """Returns the error code in what a `response_url` answers, or None. Slack also refuses with HTTP 200: `{"ok": false}`."""
    try:
        said = json.loads(body)
    except ValueError:
        return next((code for code in _BLOCKS_REFUSED if code in body), None)
    if not isinstance(said, dict) or said.get("ok") is not False:
        return None
    return str(said.get("error") or "not ok")


_LEAST = 1.0  # seconds between two attempts, even if Slack is back sooner


@dataclass(eq=False)
class Availability:
    """Knows whether Slack can be reached. Callers report `failed` or `answered`, and `rest` between attempts.

    The first answer after a failure ends every `rest` and `is_back`. `refused`: Slack's code, if it last refused the bot itself.
    """

    clock: Clock
    refused: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._away = False
        self._back = asyncio.Event()

    def failed(self) -> None:
        self._away = True

    def answered(self) -> None:
        if not self._away:
            return
        self._away = False
        self._back.set()
        self._back = asyncio.Event()

    async def is_back(self) -> None:
        """Waits until Slack answers again after a failure."""
        await self._back.wait()

    async def rest(self, seconds: float) -> None:
        """Waits `seconds`, or until Slack is back."""
        back = self._back
        await self.clock.sleep(min(seconds, _LEAST))
        if seconds > _LEAST:
            await event_or_time(self.clock, back, seconds - _LEAST)


_CONNECT_TIMEOUT = 5.0  # less than _TIMEOUT, so that a timeout shows whether anything was sent
_DISOWNED = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_LEADERS = frozenset({"chat.postMessage", "chat.update", "chat.delete", "views.publish"})


class SlackClient(AsyncWebClient):
    """A Web API client that keeps its connections open until `close`, unlike the SDK's own.

    It reports to `availability` whether Slack answered, and counts rate limits in `telemetry`. It has no retry handlers,
    see `Gateway`; it repeats a call once, at once, only if it could not connect. Only the leader posts, changes or
    deletes what stays in Slack (`acting`: see `Store.acting`).
    """

    def __init__(
        self,
        settings: Settings,
        availability: Availability,
        telemetry: Telemetry,
        acting: Acting = nullcontext,
    ) -> None:
        super().__init__(
            token=settings.bot_token.get_secret_value(),
            base_url=settings.slack_api_url,
            timeout=_TIMEOUT,
            retry_handlers=[],
        )
        self._availability = availability
        self._telemetry = telemetry
        self._acting = acting
        if is_loopback(url_host(settings.slack_api_url)):
            # The SDK uses the environment's proxy despite NO_PROXY; a local workspace is not behind it.
            self.proxy = None

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()

    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        if self.session is None:
            self.session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT, connect=_CONNECT_TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if api_method not in _LEADERS:
            return await self._call(api_method, **arguments)
        async with self._acting():
            return await self._call(api_method, **arguments)

    async def _call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        try:
            try:
                response = await super().api_call(api_method, **arguments)
            except aiohttp.ClientConnectorError:  # nothing was sent; often the next connection can be made
                response = await super().api_call(api_method, **arguments)
        except SlackApiError as error:
            code = _code(error)
            if code in _DISOWNED:
                self._availability.refused = code
            if _status(error) == 429 or code in _LIMITED:
                self._telemetry.rate_limited.labels(api_method).inc()
            if code is not None and _status(error) < 500:
                self._availability.answered()
            else:  # the error came from something in front of Slack
                self._availability.failed()
            raise
        except BaseException:  # the connection failed, or the caller stopped waiting
            self._availability.failed()
            raise
        self._availability.answered()
        self._availability.refused = None
        return response
