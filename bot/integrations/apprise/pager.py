"""Pagers outside Slack, through apprise: PagerDuty, Opsgenie, e-mail, SMS …"""

from __future__ import annotations

import logging

from bot.api import Delivered, GivenUp, Outcome, PagerText, RetryLater, in_own_thread

_MOST_HANGING = 32


class ApprisePager:
    """Sends to an apprise address. apprise can block for long, so each sending has a thread of its own; one that is given up
    goes on in it.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._hanging = 0
        # Its log lines quote addresses, which hold keys.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)

    async def send(self, page: PagerText) -> Outcome:
        """As `OutsidePager.send`."""
        if self._hanging >= _MOST_HANGING:
            return RetryLater(f"{self._hanging} earlier alerts are still being sent")
        self._hanging += 1
        return await in_own_thread(lambda: self._send(page))

    def _send(self, page: PagerText) -> Outcome:
        """Blocks until the service accepted it, or did not."""
        import apprise  # noqa: PLC0415 - takes a second: not on the event loop

        asset = apprise.AppriseAsset(app_id="clarify-bot", app_desc="clarify-bot", async_mode=False)
        try:
            pager = apprise.Apprise(asset=asset)
            if not pager.add(self._address):
                return GivenUp("its value is not an address that apprise understands")
            accepted = pager.notify(
                body=page.body,
                title=page.title,
                notify_type=apprise.NotifyType.WARNING,
                body_format=apprise.NotifyFormat.TEXT,
            )
        except Exception as error:  # noqa: BLE001 - any plugin error; its message may hold the address
            return RetryLater(f"{type(error).__name__} in apprise")
        finally:
            self._hanging -= 1
        return Delivered() if accepted else RetryLater("the service rejected it or cannot be reached")
