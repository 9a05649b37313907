"""What SQLite and PostgreSQL have in common for `bot.storage.store`: a database, by default of one bot alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from bot.storage.tx import News, Outcome, Query, Row, Work
from core.clock import Clock


class Database:
    """An open database. What `Store` passes on is described there; as it is here, no other bot works on it."""

    installation: str
    clock: Clock
    is_shared = False
    name = ""
    polls = False

    async def commit(self, works: Sequence[Work[Any]]) -> list[Outcome]:
        """Do `works` in one transaction; when this returns, it is durable.

        Raises:
            StorageUnavailable: nothing was done.
            StorageInDoubt: it is not known whether it was, and will not be.
        """
        raise NotImplementedError

    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        """Each query's rows, or its exception: StorageUnavailable, or of who asked."""
        raise NotImplementedError

    def glance(self, query: Query) -> list[Row] | None:  # noqa: ARG002 - a server is asked for everything
        """The query's rows, without leaving the event loop; None where only `fetch` can tell."""
        return None

    @property
    def leads(self) -> bool:
        return True

    @property
    def doubt(self) -> float:
        return 0.0

    async def others(self) -> frozenset[str]:
        return frozenset()

    async def lead(self, *, wait: bool) -> bool:  # noqa: ARG002 - no other bot is waited for
        return True

    async def deposed(self) -> None:
        await asyncio.Event().wait()

    def acting(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def give_back(self) -> None:
        """Return disk space that is not needed any more, where the database does not do so on its own."""

    def news(self) -> AsyncGenerator[list[News] | None]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
