"""The bot's database: durable writes with group commit, reads, sweeps. `sqlite` and `postgres` implement it.

The waiting work of all callers goes into one transaction, each part in its own savepoint, so that many small durable
writes cost one sync. Waiting reads are batched too.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from structlog.typing import FilteringBoundLogger

from bot.errors import StorageBusy, StorageMoved, StorageSilent, StorageUnavailable
from bot.storage.tx import News, Outcome, Query, Row, Topic, Tx, Work, bound
from core.clock import Clock

_T = TypeVar("_T")
Acting = Callable[[], AbstractAsyncContextManager[None]]
"""`Store.acting`, for parts that make outside calls."""
_BATCH = 256
_RETRY = 0.5  # seconds
_PATIENCE = 2.0  # seconds
_LOOK = 0.5  # seconds between checks on a slow commit


class Store(ABC):
    """The open storage; the defaults suit a database that one bot has to itself. `write` and `read` raise StorageUnavailable if
    nothing was done.

    `installation`: identifies this bot among others on the same Slack app; `secret` keys what must not be guessed. Both are
    created with the storage, and are in its backups. `clock`: the time that all bots on this database share: the server's, or
    with SQLite the machine's. `is_shared`: other bots may use this database; `name`: identifies this process among them.
    `horizon`: SQL for the lowest `Tx.stamp` that a transaction may still commit with.
    """

    installation: str
    secret: bytes
    clock: Clock
    horizon = Tx.stamp
    soon = (
        0.05  # seconds that `write_soon` waits for a transaction to join: longer than a card or a click takes
    )
    is_shared = False
    name = ""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[Work[Any], asyncio.Future[Any]]] = asyncio.Queue()
        self._soon: list[tuple[Work[Any], asyncio.Future[Any]]] = []
        self._hurry_at = 0.0  # when they start a transaction
        self._task = asyncio.create_task(self._commit_batches(), name="storage")
        self._unread: list[tuple[Query, asyncio.Future[list[Row]]]] = []
        self._reading: asyncio.Task[None] | None = None
        self._refuses = False  # a commit failed, and it was not looked at since

    async def write(self, work: Work[_T]) -> _T:
        """Runs `work` in a transaction, in the connection's thread. Durable on return. An exception undoes only its
        own changes.
        """
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._hurry()
        self._queue.put_nowait((work, done))
        return await done

    def write_soon(self, work: Work[_T], within: float | None = None) -> asyncio.Future[_T]:
        """Like `write`, but joins the next transaction, or starts one after `within` seconds, or `soon`."""
        loop = asyncio.get_running_loop()
        at = loop.time() + (self.soon if within is None else within)
        if not self._soon or at < self._hurry_at:
            self._hurry_at = at
            loop.call_at(at, self._hurry)
        done: asyncio.Future[_T] = loop.create_future()
        self._soon.append((work, done))
        return done

    def _hurry(self) -> None:
        for each in self._soon:
            self._queue.put_nowait(each)
        self._soon.clear()

    async def run(self, sql: str, **values: object) -> int:
        """Runs one statement as a transaction. Returns the number of changed rows."""
        return await self.write(lambda tx: tx.run(sql, **values))

    async def read(self, sql: str, **values: object) -> list[Row]:
        """Returns the rows of a query, as last committed."""
        found: asyncio.Future[list[Row]] = asyncio.get_running_loop().create_future()
        self._unread.append((bound(sql, values), found))
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_batches(), name="storage reads")
        return await found

    async def find(self, sql: str, **values: object) -> list[Row]:
        """Like `read`, for a few indexed rows: SQLite reads them faster than a thread wakes up."""
        rows = self.glance(bound(sql, values))
        return await self.read(sql, **values) if rows is None else rows

    async def read_one(self, sql: str, **values: object) -> Row | None:
        """Returns the first indexed row, or None."""
        return next(iter(await self.find(sql, **values)), None)

    async def trouble(self) -> str | None:
        """Returns why the storage cannot be read or written, or None. Tries to write only if a commit failed."""
        try:
            async with asyncio.timeout(_PATIENCE):
                await self.read("select id from installation")
                if self._refuses:
                    await self.run("update installation set probes = probes + 1")
                    self._refuses = False
        except TimeoutError:
            return f"it does not answer within {_PATIENCE:g} s"
        except StorageUnavailable as error:
            return str(error)
        return None

    async def note_shell(self, *, consents: bool) -> None:
        """Stores whether the shell may accept approvals."""
        await self.run("update installation set shell_consents = :consents", consents=int(consents))

    async def shell_consents(self) -> bool:
        """Returns what the bot that led last said of it."""
        row = await self.read_one("select shell_consents from installation")
        return row is not None and bool(row["shell_consents"])

    async def note_connections(self, others: int, at: datetime) -> None:
        """Stores how many connections of the Slack app are not ours, for `clarify check`."""
        await self.run(
            "update installation set others = :others, told_at = :at", others=others, at=at.timestamp()
        )

    async def others(self) -> frozenset[str]:
        """Returns the names of the other live bots on this database.

        Raises:
            StorageUnavailable: they cannot be read now.
        """
        return frozenset()

    @property
    def doubt(self) -> float:
        """For how many seconds the outcome of a commit has been unknown; 0 if it is not."""
        return 0.0

    @property
    def polls(self) -> bool:
        """Whether the bot polls for news, because notices do not arrive."""
        return False

    @property
    def leads(self) -> bool:
        """Whether this bot leads: only the leader sends, delivers and runs timers. With SQLite it always does."""
        return True

    async def lead(self, *, wait: bool = True) -> bool:  # noqa: ARG002 - no other bot is waited for
        """Takes the lead unless another bot has it; returns whether this bot leads. `wait`: until it does."""
        return True

    async def deposed(self) -> None:
        """Returns when another bot leads because this one was stopped or cut off for too long. It stores nothing from
        then on.
        """
        await asyncio.Event().wait()

    def acting(self) -> AbstractAsyncContextManager[None]:
        """Wraps an outside call that only the leader makes. The call is cut off when another bot may lead.

        Raises:
            NotLeading: this bot does not lead; the call was not made.
            TimeoutError: it was cut off.
        """
        return nullcontext()

    async def give_back(self) -> None:  # noqa: B027 - most databases do so themselves
        """Returns unused disk space to the file system."""

    @abstractmethod
    def notices(self, channel: str) -> AsyncGenerator[list[str] | None]:
        """Yields what other processes say on a channel (`Tx.notify`); None or nothing: some may have been
        missed, as at first.
        """

    async def tell(self, topic: Topic, name: object = "") -> None:
        """Tells the other bots, like `Tx.tell`, without storing anything else.

        Raises:
            StorageUnavailable: they were not told.
        """
        if self.is_shared:
            await self.write(lambda tx: tx.tell(topic, name))

    @abstractmethod
    def news(self) -> AsyncGenerator[list[News] | None]:
        """Yields what other bots tell (`Tx.tell`) and what another process forgot (`sqlite.tell_changed`), as topics with
        names. Yields None when some may have been missed, as at first.
        """

    async def close(self) -> None:
        """Finishes waiting work and closes, so that another instance can open it."""
        self._hurry()
        await self._queue.join()
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._reading is not None:
            await self._reading

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

    async def _read_batches(self) -> None:
        """Runs the waiting queries until there are no more."""
        while batch := self._unread[:_BATCH]:
            del self._unread[:_BATCH]
            results: list[list[Row] | Exception]
            try:
                results = await self.fetch([query for query, _ in batch])
            except Exception as error:  # noqa: BLE001 - passed to all callers
                results = [error] * len(batch)
            if any(
                isinstance(each, StorageSilent) for each in results
            ):  # the others would get no answer either
                batch += self._unread
                results += [StorageSilent()] * len(self._unread)
                self._unread.clear()
            for (_, found), result in zip(batch, results, strict=True):
                if found.done():
                    continue
                if isinstance(result, Exception):
                    found.set_exception(result)
                else:
                    found.set_result(result)
        self._reading = None

    async def _commit_batches(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while not self._queue.empty() and len(batch) < _BATCH:
                batch.append(self._queue.get_nowait())
            self._watch_commit()
            try:
                await self._commit(batch)
            finally:
                self._slow.cancel()

    def _watch_commit(self) -> None:
        """Refuses the work that waits behind a commit once the database has been silent for too long."""
        if self.doubt > _PATIENCE:
            self._refuse()
        self._slow = asyncio.get_running_loop().call_later(_LOOK, self._watch_commit)

    async def _commit(self, batch: list[tuple[Work[Any], asyncio.Future[Any]]]) -> None:
        results: list[Outcome]
        try:
            results = await self.commit([work for work, _ in batch])
        except StorageUnavailable as error:
            self._refuses |= not isinstance(error, StorageBusy)
            results = [(None, error)] * len(batch)
            if isinstance(error, StorageSilent):
                self._refuse()
        self._settle(batch, results)

    def _refuse(self) -> None:
        """Refuses all waiting work, because the database does not answer."""
        waiting = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        self._settle(waiting, [(None, StorageSilent())] * len(waiting))

    def _settle(
        self, batch: Sequence[tuple[Work[Any], asyncio.Future[Any]]], results: Sequence[Outcome]
    ) -> None:
        for (_, done), (result, problem) in zip(batch, results, strict=True):
            self._queue.task_done()
            if done.cancelled():
                continue
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)


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


async def until_stored(
    work: Callable[[], Awaitable[_T]], clock: Clock, log: FilteringBoundLogger, otherwise: str
) -> _T:
    """Returns the result of `work`, retried while the storage is unavailable. Logs each failure as `otherwise`."""
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            log.warning(otherwise, reason=str(error))
            await clock.sleep(_RETRY)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Tells which rows of a table to delete once they are unneeded (`bot.retention.forget`). Defined by the table's
    owner.

    Row ids appear in names elsewhere (`notice:17`, `page:3:…`), and SQLite reuses the highest id once its row is
    deleted. So keep the row with the highest id.

    `find` takes `:after` (the name of the last row seen, at first `first`), `:horizon` and `:most`. It selects `name`
    and the columns that show whether an open question needs the row: `clarification`, `producer` and `session_id`, or
    ids anywhere in `said`. `delete` (several statements, in order) takes `:names`. `timeless`: rows without a time of
    their own are noted when first found unneeded, and deleted once that was before the horizon. `locked`: what is before a
    row's name in the name of its lock; rows whose lock another bot holds stay until the next time.
    """

    table: str
    find: str
    delete: Sequence[str]
    timeless: bool = False
    locked: str | None = None
    first: object = ""
