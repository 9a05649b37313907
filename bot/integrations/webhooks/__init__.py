"""Tells other systems what happens to clarifications, as Standard Webhooks: `[[webhooks]]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from pydantic import AfterValidator

from bot.api import CheckResult, Follower, Host, Integration, Secrets, Tables, right
from bot.integrations.webhooks.settings import WebhookSettings, each_once


def _follower(host: Host, settings: Sequence[WebhookSettings]) -> Follower:
    from bot.integrations.webhooks.webhooks import Webhooks, endpoint_of  # noqa: PLC0415 - a check needs none of it

    return Webhooks([endpoint_of(each, host.secret(each.secret_env)) for each in settings], host)


async def _check(settings: Sequence[WebhookSettings], _: Secrets) -> AsyncIterator[CheckResult]:
    for number, each in enumerate(settings):
        yield right(f"webhooks[{number}]", f"signed with {each.secret_env}; nothing is sent by this check")


integration = Integration(
    name="webhooks",
    settings=Annotated[tuple[WebhookSettings, ...], AfterValidator(each_once)],
    follows=_follower,
    check=_check,
    tables=Tables(),
)
