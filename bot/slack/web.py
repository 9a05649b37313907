"""The Web API client, set up so that nothing is sent twice."""

from __future__ import annotations

from typing import Any

from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.settings import Settings
from bot.settings.values import is_loopback, url_host
from bot.slack.calls import is_an_answer
from bot.slack.pulse import Pulse

_TIMEOUT = 10  # seconds


class _FeelingClient(AsyncWebClient):
    """Tells of each call whether Slack answered."""

    pulse: Pulse

    async def api_call(self, api_method: str, **arguments: Any) -> AsyncSlackResponse:
        try:
            response = await super().api_call(api_method, **arguments)
        except SlackApiError as error:
            if is_an_answer(error):
                self.pulse.felt()
            else:
                self.pulse.missed()
            raise
        except BaseException:  # a connection that failed, or somebody who gave up waiting for it
            self.pulse.missed()
            raise
        self.pulse.felt()
        return response


def web_client(settings: Settings, pulse: Pulse) -> AsyncWebClient:
    """A client without retry handlers: the default one repeats a dropped post, which makes two messages of one."""
    client = _FeelingClient(
        token=settings.secrets.bot_token.get_secret_value(),
        base_url=settings.slack_api_url,
        timeout=_TIMEOUT,
        retry_handlers=[],
    )
    client.pulse = pulse
    if is_loopback(url_host(settings.slack_api_url)):
        # The SDK takes a proxy from the environment whatever NO_PROXY says; a local workspace is not behind it.
        client.proxy = None
    return client
