"""The tables `[[webhooks]]`."""

from __future__ import annotations

from typing import Literal

from bot.api import (
    EnvironmentName,
    SettingsTable,
    WebAddress,
)

Event = Literal[
    "clarification-requested",
    "clarification-answered",
    "clarification-stale",
    "clarification-resolved",
    "clarification-escalated",
    "decisions-checkpoint",
]


class WebhookSettings(SettingsTable):
    """Posts events about clarifications to another system, signed as Standard Webhooks define."""

    url: WebAddress
    """Where the bot posts events."""
    secret_env: EnvironmentName
    """The variable with the secret that signs them: `whsec_…` or any text."""
    events: tuple[Event, ...] = ()
    """The events to post; without this key, all."""


def each_once(tables: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
    """Refuses a URL that stands twice: it has one secret and one queue. The URL may be a secret, so it is not repeated."""
    urls = [each.url for each in tables]
    for number, url in enumerate(urls):
        if (first := urls.index(url)) != number:
            raise ValueError(f"[{number}].url: duplicates that of webhooks[{first}]")
    return tables
