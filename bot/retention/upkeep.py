"""Once a day, deletes what is no longer needed: clarifications that are over, with what hangs on them, and other rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog

from bot.ask import inbox, push
from bot.ask.questions import KEYS_KEPT
from bot.errors import StorageUnavailable
from bot.oncall import incidents, pages, roster
from bot.show import erasing, memory, messages
from bot.storage import ledger
from bot.storage.store import Store, Sweep
from bot.storage.tx import Row, Tx
from core.clock import Clock
from core.index import session_of
from core.records import Subject
from core.summary import Summary

_log = structlog.get_logger("clarify.retention")
_DAY = timedelta(days=1)
_BATCH = 200  # rows per transaction
_CLARIFICATIONS = 50  # with what hangs on them
# What is over. A question stays while its key counts, and what Slack may be about to show.
_OVER = """
  select id, closed, issue, number from clarifications
  where closed < :horizon and (closed, issue, number) > (:closed, :issue, :number)
    and not exists (select 1 from questions where clarification = clarifications.id and expires_at >= :keys_since)
    and not exists (select 1 from messages where clarification = clarifications.id and intent_at is not null)
  order by closed, issue, number limit :most"""
# In this order, because rows protect the rows that they belong to.
_SWEEPS = (
    inbox.SWEEP_EVENTS,
    messages.SWEEP_SHOWN,
    messages.SWEEP_NEVER_SHOWN,
    push.SWEEP,
    *memory.SWEEPS,
    incidents.SWEEP,
    messages.SWEEP_PAGES,
    pages.SWEEP,
    roster.SWEEP,
    inbox.SWEEP_SESSIONS,
    erasing.SWEEP,
)


@dataclass(kw_only=True, eq=False)
class Upkeep:
    """Runs the daily clean-up. `index`: what still needs something, filled before `run`. `keep`: how long the storage
    keeps finished things; None means forever. `sweeps`: rows of other packages to delete. `forget_decisions`
    deletes what the log need not keep any more.
    """

    store: Store
    index: Iterable[Summary]
    clock: Clock
    keep: timedelta | None
    sweeps: Sequence[Sweep] = ()
    forget_decisions: Callable[[], Awaitable[None]] | None = None

    async def run(self) -> None:
        """Cleans up now and then daily, until cancelled."""
        while True:
            await self.tidy()
            await self.clock.sleep(_DAY.total_seconds())

    async def tidy(self) -> None:
        """Cleans up once. Failures are logged and retried the next day."""
        if self.keep is not None:
            await self._sweep(self.keep)
        if self.forget_decisions is not None:
            await self.forget_decisions()

    async def _sweep(self, keep: timedelta) -> None:
        now = self.clock.now()
        needed = Subject(
            frozenset(each.id for each in self.index), frozenset(session_of(each) for each in self.index)
        )
        horizon = (now - keep).timestamp()
        try:
            gone = await sweep_all(self.store, needed, horizon, now.timestamp(), self.sweeps)
        except StorageUnavailable as error:
            _log.warning("cannot delete old rows", reason=str(error))
            return
        if gone:
            _log.info("deleted old rows", **gone)


async def sweep_all(
    store: Store, needed: Subject, horizon: float, now: float, more: Sequence[Sweep] = ()
) -> Counter[str]:
    """Deletes rows finished before `horizon` (seconds since 1970) that are not `needed`. Returns the number of rows
    by table.

    Raises:
        StorageUnavailable: some rows may already be deleted.
    """
    is_needed = partial(_is_about, needed)
    gone: Counter[str] = Counter(clarifications=await _delete_over(store, horizon, now))
    for rule in (*_SWEEPS, *more):
        gone[rule.table] += await _delete(store, rule, is_needed, horizon=horizon, now=now)
    await store.give_back()
    return +gone


async def _delete_over(store: Store, horizon: float, now: float) -> int:
    """Deletes clarifications that were over before `horizon`. Returns their number."""
    gone, last = 0, {"closed": 0.0, "issue": 0, "number": 0}
    keys_since = now - KEYS_KEPT.total_seconds()
    while rows := await store.read(
        _OVER, horizon=horizon, keys_since=keys_since, most=_CLARIFICATIONS, **last
    ):
        last = {name: rows[-1][name] for name in last}
        ids = [row["id"] for row in rows]
        gone += await store.write(partial(ledger.delete, clarifications=ids, over_before=horizon))
    return gone


async def _delete(
    store: Store, rule: Sweep, is_needed: Callable[[Row], bool], *, horizon: float, now: float
) -> int:
    """Deletes the rows of one table, in small transactions that let other writers in. Returns their number."""
    gone, after = 0, rule.first
    while rows := await store.read(rule.find, after=after, horizon=horizon, most=_BATCH):
        after = rows[-1]["name"]
        names = [row["name"] for row in rows if not is_needed(row)]
        if names:
            gone += await store.write(_deleting(rule, names, horizon, now))
    return gone


def _deleting(rule: Sweep, names: Sequence[object], horizon: float, now: float) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        going = _ripe(tx, rule.table, names, horizon, now) if rule.timeless else names
        if rule.locked is not None:
            going = [name for name in going if tx.lock(f"{rule.locked}{name}")]
        count = 0
        for statement in rule.delete if going else ():
            count = tx.run(statement, names=going)
        return count

    return work


def _ripe(tx: Tx, table: str, names: Sequence[object], horizon: float, now: float) -> Sequence[object]:
    """Returns the names noted as finished before `horizon`. Notes the others now."""
    tx.many(
        "insert into over (kind, name, since) values (:kind, :name, :now) on conflict (kind, name) do nothing",
        [{"kind": table, "name": name, "now": now} for name in names],
    )
    rows = tx.rows(
        "delete from over where kind = :kind and since < :horizon and name in :names returning name",
        kind=table,
        horizon=horizon,
        names=names,
    )
    return [row["name"] for row in rows]


def _is_about(needed: Subject, row: Row) -> bool:
    """Returns whether a row that a `Sweep` found belongs to something needed."""
    found = dict(row)
    return (
        found.get("clarification") in needed.clarifications
        or (found.get("producer"), found.get("session_id")) in needed.sessions
        or needed.is_in(found.get("said"))
    )
