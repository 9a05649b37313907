"""Says who is on call by a calendar, a feed in iCalendar's format: `ical_env` in `[[on_call]]`."""

from __future__ import annotations

import re

from bot.api import (
    EnvironmentName,
    Integration,
    OnCall,
    OnCallSource,
    Secrets,
    is_loopback,
    is_web_address,
    url_host,
)


def feed_url(value: str) -> str | None:
    """Returns the address of a calendar feed, or None if it is not one or would be fetched unencrypted."""
    url = re.sub(r"^webcals?://", "https://", value)
    if not is_web_address(url) or re.search(r"\s", url):
        return None
    return url if url.startswith("https://") or is_loopback(url_host(url)) else None


def _source(variable: str, zone: str, secret: Secrets) -> OnCallSource:
    from bot.integrations.ical.source import CalendarSource  # noqa: PLC0415 - a check of the settings needs none of it

    return CalendarSource(variable, secret(variable), zone)


integration = Integration(
    name="ical",
    on_call=OnCall(
        settings=EnvironmentName,
        about="Or a calendar: the variable with the address of an iCalendar feed, which is a secret.",
        label="calendar",
        source=_source,
        fits=(
            lambda value: feed_url(value) is not None,
            "be the address of an iCalendar feed: https:// or webcal://, or http:// on a loopback host",
        ),
    ),
)
