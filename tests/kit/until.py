"""Waiting for what tells nobody that it changed: files, threads, other processes, the inside of a bot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.router import Router


async def until(predicate: Callable[[], Any], timeout: float = 60.0) -> Any:
    """The first truthy value of `predicate()`; fails after `timeout` seconds of real time."""
    async with asyncio.timeout(timeout):
        while not (value := predicate()):  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.003)
        return value


@contextmanager
def impatient(*routers: Router, seconds: float = 0.5) -> Iterator[None]:
    """Inside, no ledger that somebody holds is waited for as long as elsewhere in tests (`tests.conftest`), or in life."""
    before = [each.patience for each in routers]
    for each in routers:
        each.patience = seconds
    try:
        yield
    finally:
        for each, patience in zip(routers, before, strict=True):
            each.patience = patience
