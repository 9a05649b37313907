"""Calls to Slack that read: failures become typed errors, and waiting for a rate limit is bounded.

Retry-After may be missing or fractional (slack_sdk's own handler fails on "1.5"), so it is read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.errors import SlackRefusedError, SlackUnreachableError
from core.clock import Clock

Call = Callable[[], Awaitable[AsyncSlackResponse]]
NETWORK_ERRORS = (SlackClientError, aiohttp.ClientError, TimeoutError, OSError)
_COME_AGAIN = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)
_DEFAULT_WAIT = 5.0
_LONGEST_WAIT = 60.0


class SlackBusyError(SlackUnreachableError):
    """Slack asks to come again later. `after` is in seconds."""

    def __init__(self, message: str, after: float) -> None:
        self.after = after
        super().__init__(message)


async def ask(method: str, call: Call, timeout: float = 10.0) -> AsyncSlackResponse:
    """One call that reads.

    Raises:
        SlackBusyError: a rate limit.
        SlackUnreachableError: no answer within `timeout` seconds, or Slack's own trouble.
        SlackRefusedError: Slack said no; `code` is its word for it.
    """
    try:
        async with asyncio.timeout(timeout):
            return await call()
    except NETWORK_ERRORS as error:
        code, status = _code(error), _status(error)
        if code in {"ratelimited", "rate_limited"} or status == 429:
            raise SlackBusyError(
                f"{method}: Slack's rate limit", retry_after(error) or _DEFAULT_WAIT
            ) from error
        if code is None or code in _COME_AGAIN or status >= 500:
            raise SlackUnreachableError(f"{method}: {code or type(error).__name__}") from error
        raise SlackRefusedError(f"{method}: {code}", code=code) from error


async def permalink(web: AsyncWebClient, channel: str, ts: str) -> str:
    """The web address of a message.

    Raises:
        SlackUnreachableError, SlackRefusedError: as `ask` does.
    """
    call = partial(web.chat_getPermalink, channel=channel, message_ts=ts)
    return str((await ask("chat.getPermalink", call))["permalink"])


async def ask_patiently(method: str, call: Call, clock: Clock, tries: int = 5) -> AsyncSlackResponse:
    """`ask`, again after trouble that passes: at most `tries` times, waiting as Slack says or ever longer.

    Raises:
        SlackUnreachableError, SlackRefusedError: as `ask` does.
    """
    for attempt in range(1, tries + 1):
        try:
            return await ask(method, call)
        except SlackUnreachableError as error:
            if attempt == tries:
                raise
            after = error.after if isinstance(error, SlackBusyError) else 0.5 * 2**attempt
        await clock.sleep(min(after, _LONGEST_WAIT))
    raise SlackUnreachableError(f"{method}: not tried")


def retry_after(error: BaseException) -> float | None:
    """The seconds that Slack asked to wait, where it said a number that makes sense."""
    headers = error.response.headers if isinstance(error, SlackApiError) and _has_response(error) else {}
    value = next((v for k, v in headers.items() if k.lower() == "retry-after"), None)
    try:
        seconds = float(str(value[0] if isinstance(value, list) else value))
    except (IndexError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None


def is_an_answer(error: SlackApiError) -> bool:
    """Whether Slack itself said no, and not what stands in front of it."""
    return _code(error) is not None and _status(error) < 500


def reason(error: BaseException) -> str:
    """What may be logged of a failed call: Slack's code, or the kind of failure. No URLs, no payloads."""
    return _code(error) or type(error).__name__


def _code(error: BaseException) -> str | None:
    if not _has_response(error):
        return None
    data: Any = getattr(error, "response").data  # noqa: B009 - typed as Any by slack_sdk
    code = data.get("error") if isinstance(data, dict) else None
    return code if isinstance(code, str) else None


def _status(error: BaseException) -> int:
    return int(getattr(error, "response").status_code) if _has_response(error) else 0  # noqa: B009 - as above


def _has_response(error: BaseException) -> bool:
    return isinstance(error, SlackApiError) and isinstance(error.response, AsyncSlackResponse)
