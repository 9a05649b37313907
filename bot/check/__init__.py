"""`clarify check`: the configuration against the live parties, without starting anything."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.check import address, agents, local, producers, slack
from bot.check.findings import Finding
from bot.settings.model import Settings

__all__ = ["Finding", "check_all"]


async def check_all(settings: Settings) -> AsyncIterator[Finding]:
    """Yield a finding for each thing looked at, as soon as it is known."""
    for finding in local.probe(settings):
        yield finding
    async for finding in address.probe(settings):
        yield finding
    async for finding in slack.probe(settings):
        yield finding
    async for finding in producers.probe(settings):
        yield finding
    async for finding in agents.probe(settings):
        yield finding
