"""Whatever no other listener wants is acknowledged, so that Slack neither repeats it nor shows an error."""

from __future__ import annotations

import re
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

_ANY = re.compile(".*", re.DOTALL)


def register(app: AsyncApp) -> None:
    """To be called after all others: Bolt takes the first listener that matches."""

    async def taken(ack: AsyncAck) -> None:
        await ack()

    async def options(ack: AsyncAck) -> None:
        await ack(options=[])

    events: Any = app.event(_ANY)
    for listen in (
        events,
        app.function(_ANY),
        app.action(_ANY),
        app.shortcut(_ANY),
        app.command(_ANY),
        app.view(_ANY),
        app.view_closed(_ANY),
    ):
        listen(taken)
    app.options(_ANY)(options)
