"""The interface of SQLite and PostgreSQL for `bot.storage.store`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from bot.errors import StorageMoved
from bot.storage.tx import News, Outcome, Query, Row, Work
from core.clock import Clock


def require_here(name: str, installation: Row) -> Row:
    """Returns the row of the installation.

    Raises:
        StorageMoved: the database has moved to another, or is not yet complete.
    """
    if (source := installation["moved_from"]) is not None:
        raise StorageMoved(
            f"{name} is not complete: the move from {source} was interrupted. Run the same `clarify move` again."
        )
    if (target := installation["moved_to"]) is not None:
        raise StorageMoved(
            f"{name} has moved to {target}. Name that one in [storage] of clarify.toml, and never run both."
        )
    return installation


class Database(ABC):
    """An open database. `Store` documents what it passes on. The defaults suit a database that one bot has to itself."""

    installation: str
    secret: bytes
    clock: Clock
    horizon = "(select coalesce(max(written), 0) + 1 from clarifications)"
    """SQL for the lowest `Tx.stamp` that a transaction may still commit with."""
    is_shared = False
    name = ""

    @abstractmethod
    async def commit(self, works: Sequence[Work[Any]]) -> list[Outcome]:
        """Runs `works` in one transaction, durable on return.

        Raises:
            StorageUnavailable: nothing was stored.
            StorageInDoubt: whether it was stored will never be known.
        """

    @abstractmethod
    async def fetch(self, queries: Sequence[Query]) -> list[list[Row] | Exception]:
        """Returns each query's rows or its exception: StorageUnavailable, or the caller's own mistake."""

    def glance(self, query: Query) -> list[Row] | None:  # noqa: ARG002 - a server is asked for everything
        """Returns the query's rows without leaving the event loop, or None if only `fetch` can tell."""
        return None

    @property
    def leads(self) -> bool:
        return True

    @property
    def polls(self) -> bool:
        return False

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

    async def give_back(self) -> None:  # noqa: B027 - most databases need do nothing
        """Returns unused disk space to the file system, if the database does not do so itself."""

    @abstractmethod
    def notices(self, channel: str) -> AsyncGenerator[list[str] | None]:
        """Yields what other processes say on a channel (`Tx.notify`); None or nothing: some may have been
        missed, as at first.
        """

    @abstractmethod
    def news(self) -> AsyncGenerator[list[News] | None]: ...

    @abstractmethod
    async def close(self) -> None: ...
