"""Tells other systems what happens to clarifications, as Standard Webhooks: `[[webhooks]]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator

from bot.api import (
    CheckResult,
    EnvironmentName,
    Follower,
    Host,
    Integration,
    Secrets,
    SettingsTable,
    WebAddress,
    right,
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
    """Tells another system what happens to clarifications, signed as Standard Webhooks define."""

    url: WebAddress
    """Where events are posted."""
    secret_env: EnvironmentName
    """The variable with the secret that signs them: `whsec_…` or any text."""
    events: tuple[Event, ...] = ()
    """Which events; without this key, all."""


def _each_once(tables: tuple[WebhookSettings, ...]) -> tuple[WebhookSettings, ...]:
    """Refuses a URL that stands twice: it has one secret and one queue. The URL may be a secret, so it is not repeated."""
    urls = [each.url for each in tables]
    for number, url in enumerate(urls):
        if (first := urls.index(url)) != number:
            raise ValueError(f"[{number}].url: duplicates that of webhooks[{first}]")
    return tables


def _follower(host: Host, settings: Sequence[WebhookSettings]) -> Follower:
    from bot.integrations.webhooks.webhooks import Webhooks, endpoint_of  # noqa: PLC0415 - a check needs none of it

    return Webhooks([endpoint_of(each, host.secret(each.secret_env)) for each in settings], host)


async def _check(settings: Sequence[WebhookSettings], _: Secrets) -> AsyncIterator[CheckResult]:
    for number, each in enumerate(settings):
        yield right(f"webhooks[{number}]", f"signed with {each.secret_env}; nothing is sent by this check")


integration = Integration(
    name="webhooks",
    settings=Annotated[tuple[WebhookSettings, ...], AfterValidator(_each_once)],
    follows=_follower,
    check=_check,
)
