"""Pictures for one person: to their direct messages with the bot, in three steps as Slack wants it.

Source: docs.slack.dev, "Working with files", `files.getUploadURLExternal`, `files.completeUploadExternal`. The SDK's
own `files_upload_v2` would put the description into the address of a request, which is too long where it is Chinese.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO

import aiohttp
import structlog
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slackapi import Later, Never, Unknown, failure

_log = structlog.get_logger("clarify.delivery")
_TIMEOUT = 30.0  # seconds, for the bytes


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG. `alt` says in plain text what it shows, in at most 1000 characters; `comment` is mrkdwn of ours."""

    name: str
    title: str
    alt: str
    comment: str
    content: bytes


class _NotTakenError(Exception):
    """The address that Slack gave for the bytes did not take them."""


class Pictures:
    """`client` has no retry handlers: what was shared is not shared again."""

    def __init__(self, client: AsyncWebClient) -> None:
        self._client = client

    async def send(self, user: str, picture: Picture) -> str | None:
        """Share a picture with one person alone, once. None: it is there; else why not, in words for that person."""
        try:
            opened = await self._client.conversations_open(users=user)
            await self._share(str(opened["channel"]["id"]), picture)
        except _NotTakenError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - failure() raises what it does not know
            trouble = _words(error, failure(error))
        else:
            return None
        _log.warning("a picture was not sent", reason=trouble)
        return trouble

    async def _share(self, channel: str, picture: Picture) -> None:
        about = {"filename": picture.name, "length": len(picture.content), "alt_txt": picture.alt}
        ticket = await self._client.api_call("files.getUploadURLExternal", data=about)
        await self._upload(str(ticket["upload_url"]), picture.content)
        files = json.dumps([{"id": ticket["file_id"], "title": picture.title}])
        share = {"files": files, "channel_id": channel, "initial_comment": picture.comment}
        await self._client.api_call("files.completeUploadExternal", data=share)

    async def _upload(self, url: str, content: bytes) -> None:
        """Nothing is shared yet: whatever goes wrong here, there is no picture."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    url, data=BytesIO(content), proxy=self._client.proxy, ssl=self._client.ssl or True
                ) as response,
            ):
                if response.status != 200:
                    raise _NotTakenError(f"Slack did not take the file (status {response.status})")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _NotTakenError(f"Slack did not take the file ({type(error).__name__})") from error


def _words(error: Exception, outcome: Later | Unknown | Never) -> str:
    match outcome:
        case Later():
            return "Slack is busy or out of reach, please try again in a minute"
        case Unknown():
            return "Slack did not confirm it, so it may be there all the same"
        case Never(code="missing_scope"):
            return f"the app lacks the scope {_needed(error)}, see manifest.yml"
        case Never(code=code):
            return f"Slack says {code}"


def _needed(error: Exception) -> str:
    data = error.response.data if isinstance(error, SlackApiError) and hasattr(error.response, "data") else {}
    return str(data.get("needed") or "files:write") if isinstance(data, dict) else "files:write"
