"""URLs of notification services (`notify = ["apprise:VARIABLE"]`), as far as they can be judged without sending.

They hold keys and passwords: they are looked at here, and never shown.
"""

from __future__ import annotations

import logging


def service_of(url: str) -> str | None:
    """The name of the service that `url` notifies, such as "PagerDuty"; None: it is no such URL."""
    from apprise import Apprise  # noqa: PLC0415 - loads some hundred plugins: only where a pager is configured

    logger = logging.getLogger("apprise")
    was, logger.disabled = logger.disabled, True  # it logs the URL, with what is secret in it
    try:
        service = Apprise.instantiate(url, suppress_exceptions=True)
    finally:
        logger.disabled = was
    return None if service is None else str(getattr(service, "service_name", "") or "notification service")
