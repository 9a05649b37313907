"""Pagers outside Slack (PagerDuty, Opsgenie, e-mail, SMS …) through apprise.

apprise blocks, for as long as the other side lets it. Each sending therefore has a thread of its own, which is left
behind when its time is over: a daemon, so that one that hangs never holds up the end of the process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import suppress

from pydantic import SecretStr

from bot.errors import PagerError

_LIMIT = 15.0
_MOST_HANGING = 32
_TITLE, _BODY = 200, 3000  # characters; services cut on their own below that


class Outside:
    """`secrets`: the apprise addresses by the name of their environment variable (`Secrets.by_variable`).

    limit: seconds that one sending may take.
    """

    def __init__(self, secrets: Mapping[str, SecretStr], *, limit: float = _LIMIT) -> None:
        self._secrets = secrets
        self._limit = limit
        self._hanging = 0
        # Its log lines quote addresses, which hold keys; what went wrong is told by PagerError.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)

    async def send(self, variable: str, title: str, body: str) -> None:
        """Send plain text to the address in `variable`; returns once it was accepted.

        Raises:
            PagerError: it was not, or nobody knows. Its message names the variable, never the address.
        """
        secret = self._secrets.get(variable)
        if secret is None:
            raise PagerError(f"{variable} is not set")
        if self._hanging >= _MOST_HANGING:
            raise PagerError(f"{variable}: {self._hanging} earlier sendings have not ended yet")
        try:
            async with asyncio.timeout(self._limit):
                await self._in_thread(variable, secret, title[:_TITLE], body[:_BODY])
        except TimeoutError:
            raise PagerError(f"{variable}: no answer within {self._limit:g} s") from None

    def _in_thread(self, variable: str, secret: SecretStr, title: str, body: str) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(problem: PagerError | None) -> None:
            self._hanging -= 1
            if done.done():
                return
            if problem is not None:
                done.set_exception(problem)
            else:
                done.set_result(None)

        def work() -> None:
            problem = _notify(variable, secret, title, body)
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell, problem)

        self._hanging += 1
        threading.Thread(target=work, name=f"pager {variable}", daemon=True).start()
        return done


def _notify(variable: str, secret: SecretStr, title: str, body: str) -> PagerError | None:
    """Blocks until the service took it, or did not."""
    import apprise  # noqa: PLC0415 - takes a second: not on the event loop, and only where a pager is configured

    asset = apprise.AppriseAsset(app_id="clarify-bot", app_desc="clarify-bot", async_mode=False)
    try:
        pager = apprise.Apprise(asset=asset)
        if not pager.add(secret.get_secret_value()):
            return PagerError(f"{variable} does not hold an address that apprise understands")
        accepted = pager.notify(
            body=body,
            title=title,
            notify_type=apprise.NotifyType.WARNING,
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # noqa: BLE001 - each service is a plugin of its own; its words may hold the address
        return PagerError(f"{variable}: {type(error).__name__} in apprise")
    return None if accepted else PagerError(f"{variable}: the service did not take it, or cannot be reached")
