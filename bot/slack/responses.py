"""Answers through a `response_url`: to commands, and to clicks in messages that one person alone sees.

Good for five answers within thirty minutes, also where the bot is no member. Source: docs.slack.dev, "Handling user
interaction", message responses.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from slack_sdk.webhook.async_client import AsyncWebhookClient

from bot.slackapi import NETWORK_ERRORS

_log = logging.getLogger("clarify.slack")
_TIMEOUT = 10


class Responses:
    """`proxy`: as the Web API client's."""

    def __init__(self, proxy: str | None = None) -> None:
        self._proxy = proxy

    async def send(
        self,
        url: str,
        text: str,
        blocks: Sequence[dict[str, Any]] | None = None,
        *,
        replace: bool = False,
        thread_ts: str | None = None,
    ) -> bool:
        """Say something to the person who acted; `replace`: in place of the message that was acted on. Without
        `thread_ts` Slack says it in the channel, also of an act in a thread.

        Whether Slack took it; failures are logged, without the address.
        """
        if urlsplit(url).scheme not in {"http", "https"}:
            return False
        client = AsyncWebhookClient(url, timeout=_TIMEOUT, retry_handlers=[])
        client.proxy = self._proxy
        body: dict[str, Any] = {"text": text, "response_type": "ephemeral", "replace_original": replace}
        if thread_ts:
            body["thread_ts"] = thread_ts
        if blocks:
            body["blocks"] = list(blocks)
        try:
            response = await client.send_dict(body)
        except NETWORK_ERRORS as error:
            _log.warning("an answer did not reach the person: %s", type(error).__name__)
            return False
        if response.status_code != 200:
            _log.warning("an answer was refused by Slack: status %d", response.status_code)
        return response.status_code == 200
