"""What came of a call to Slack, as the few cases that matter for what to do next. Pure."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Literal

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError


@dataclass(frozen=True, slots=True)
class Sent:
    """`thread_ts`: the thread in which it was found, if it does not begin one."""

    channel: str
    ts: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Slack did not take it, and will later. `after` in seconds where Slack said."""

    reason: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been taken: look it up before repeating it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Never:
    """Slack will never take this, there. `what` tells what is at fault."""

    code: str
    what: Literal["place", "content", "message", "app"]


Outcome = Sent | Later | Unknown | Never

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
        "external_channel_migrating",
        "team_access_not_granted",
        "ekm_access_denied",
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
APP = frozenset(
    [
        "not_authed",
        "invalid_auth",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "missing_scope",
        "no_permission",
        "org_login_required",
        "access_denied",
        "two_factor_setup_required",
    ]
)
UNKNOWN = frozenset({"internal_error", "fatal_error", "request_timeout"})
LATER = frozenset({"ratelimited", "rate_limited", "service_unavailable", "message_limit_exceeded"})


def failure(error: BaseException) -> Later | Unknown | Never:
    """The case behind an exception of a Slack call.

    Sources: slack.dev method pages for the error codes; the SDK raises SlackApiError for `ok: false` and for 429.
    """
    if isinstance(error, SlackApiError):
        return _refusal(error)
    # Not connected: nothing can have arrived.
    if isinstance(error, aiohttp.ClientConnectorError):
        return Later(f"Slack is unreachable ({type(error).__name__})")
    if isinstance(error, (asyncio.TimeoutError, aiohttp.ClientError, SlackClientError, OSError)):
        return Unknown(type(error).__name__)
    raise error


def _refusal(error: SlackApiError) -> Later | Unknown | Never:
    status = getattr(error.response, "status_code", 200)
    data = error.response.data if hasattr(error.response, "data") else error.response
    code = str(data.get("error", "")) if isinstance(data, dict) else ""
    if status == 429 or code in LATER:
        return Later(code or "ratelimited", _retry_after(error))
    if code in UNKNOWN or status >= 500 or not code:
        return Unknown(code or f"HTTP {status}")
    if code in PLACE:
        return Never(code, "place")
    if code in MESSAGE:
        return Never(code, "message")
    return Never(code, "app" if code in APP else "content")


def _retry_after(error: SlackApiError) -> float | None:
    headers = getattr(error.response, "headers", None) or {}
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    try:
        seconds = float(str(value[0] if isinstance(value, list) else value))
    except (ValueError, IndexError):
        return None
    return max(0.0, min(seconds, 3600.0)) if math.isfinite(seconds) else None
