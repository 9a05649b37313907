"""Waiting for what tells nobody that it changed: files, threads, other processes, the inside of a bot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def until(predicate: Callable[[], Any], timeout: float = 60.0) -> Any:
    """The first truthy value of `predicate()`; fails after `timeout` seconds of real time."""
    async with asyncio.timeout(timeout):
        while not (value := predicate()):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.003)
        return value
