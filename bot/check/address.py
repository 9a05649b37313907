"""Tries the address that the HTTP server is to listen at."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.check.findings import Finding, right, wrong
from bot.check.local import is_running
from bot.errors import AddressInUseError, ConfigurationError
from bot.settings.model import Settings
from bot.web.server import bind

_SUBJECT = "http.listen"


async def probe(settings: Settings) -> AsyncIterator[Finding]:
    """Nothing where a bot runs on this storage: the address is taken by itself, and that it runs is told already."""
    if is_running(settings.storage.path):
        return
    http = settings.http
    try:
        sockets = await bind(http.host, http.port)
    except (AddressInUseError, ConfigurationError) as error:
        text = str(error).removeprefix(f"{_SUBJECT}: ")
        if settings.must_listen:
            yield wrong(_SUBJECT, text, "stop what listens there, or set another address")
        else:
            text = f"{text}: without it there is no /readyz and no /metrics; nothing else needs it"
            yield Finding(ok=True, subject=_SUBJECT, text=text, mend="set http.listen for another address")
        return
    for each in sockets:
        each.close()
    yield right(_SUBJECT, f"{http.listen} is free")
