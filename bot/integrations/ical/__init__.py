"""Says who is on call by a calendar, a feed in iCalendar's format: `ical_env` in `[[on_call]]`."""

from __future__ import annotations

from bot.api import EnvironmentName, Integration, OnCall, OnCallSource, Secrets


def _fits(value: str) -> bool:
    from bot.integrations.ical.source import feed_url  # noqa: PLC0415 - most programs that read the settings need none of it

    return feed_url(value) is not None


def _source(variable: str, zone: str, secret: Secrets) -> OnCallSource:
    from bot.integrations.ical.source import CalendarSource  # noqa: PLC0415 - a check of the settings needs none of it

    return CalendarSource(variable, secret(variable), zone)


integration = Integration(
    name="ical",
    on_call=OnCall(
        settings=EnvironmentName,
        about="Or a calendar: the variable with the secret address of an iCalendar feed.",
        label="calendar",
        source=_source,
        fits=(
            _fits,
            "be the address of an iCalendar feed: https:// or webcal://, or http:// on a loopback host",
        ),
    ),
)
