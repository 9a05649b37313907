"""The Web API client, set up so that nothing is sent twice."""

from __future__ import annotations

from slack_sdk.web.async_client import AsyncWebClient

from bot.settings import Settings
from bot.settings.values import is_loopback, url_host

_TIMEOUT = 10  # seconds


def web_client(settings: Settings) -> AsyncWebClient:
    """A client without retry handlers: the default one repeats a dropped post, which makes two messages of one."""
    client = AsyncWebClient(
        token=settings.secrets.bot_token.get_secret_value(),
        base_url=settings.slack_api_url,
        timeout=_TIMEOUT,
        retry_handlers=[],
    )
    if is_loopback(url_host(settings.slack_api_url)):
        # The SDK takes a proxy from the environment whatever NO_PROXY says; a local workspace is not behind it.
        client.proxy = None
    return client
