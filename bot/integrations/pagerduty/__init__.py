"""Says who is on call by a schedule in PagerDuty: `pagerduty = {…}` in `[[on_call]]`."""

from __future__ import annotations

from bot.api import Integration, OnCall, OnCallSource, Secrets
from bot.integrations.pagerduty.settings import PagerDutySettings


def _source(settings: PagerDutySettings, _zone: str, secret: Secrets) -> OnCallSource:
    from bot.integrations.pagerduty.source import PagerDutySource  # noqa: PLC0415 - a check of the settings needs none of it

    return PagerDutySource(settings, secret(settings.token_env))


integration = Integration(
    name="pagerduty",
    on_call=OnCall(
        settings=PagerDutySettings, about="Or a schedule in PagerDuty.", label="PagerDuty", source=_source
    ),
)
