"""Waiting for what tells nobody that it changed: files, threads, other processes, the inside of a bot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.router import Router

_SHORTEST, _LONGEST = 0.003, 0.025  # seconds


async def until(predicate: Callable[[], Any], timeout: float = 60.0) -> Any:
    """The first truthy value of `predicate()`; fails after `timeout` seconds of real time."""
    pause = _SHORTEST
    async with asyncio.timeout(timeout):
        while not (value := predicate()):
            await asyncio.sleep(pause)
            pause = min(
                pause * 1.2, _LONGEST
            )  # what takes longer anyway is looked for less often: looking costs time, too
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
