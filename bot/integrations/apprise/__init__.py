"""Pages people outside Slack, through apprise: PagerDuty, Opsgenie, e-mail, SMS … `notify = "apprise:VARIABLE"`."""

from __future__ import annotations

import logging

from bot.api import Integration, OutsidePager, Paging


def _pager(address: str) -> OutsidePager:
    from bot.integrations.apprise.pager import ApprisePager  # noqa: PLC0415 - a check needs none of it

    return ApprisePager(address)


def _service(url: str) -> str | None:
    """The URL contains keys and passwords, so it is never shown."""
    from apprise import Apprise  # noqa: PLC0415 - loads some hundred plugins

    logger = logging.getLogger("apprise")
    was, logger.disabled = logger.disabled, True  # it would log the URL with its secrets
    try:
        service = Apprise.instantiate(url, suppress_exceptions=True)
    finally:
        logger.disabled = was
    return None if service is None else str(getattr(service, "service_name", "") or "notification service")


integration = Integration(name="apprise", paging=Paging(service=_service, pager=_pager))
