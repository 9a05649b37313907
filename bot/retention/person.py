"""Forgets a person: what the bot stores about them where no signed decision names them.

What they answered, approved or edited stays as it is, since receipts and the log of decisions prove it; `Remains` says where.
Works beside a running bot, in short transactions. If it is killed, the same call does the rest. Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bot.oncall import incidents, roster
from bot.retention.forget import in_step
from bot.show import memory
from bot.storage import ledger
from bot.storage.opening import Kept
from bot.storage.tx import Tx, batches
from core.clarification import Clarification
from core.records import is_unsettled, names_of, without_person

_RECORDS = 20  # in one transaction, for which a bot on SQLite waits
_ROWS = 100


@dataclass(frozen=True, slots=True)
class Removed:
    """How much was deleted, or had the person removed."""

    home: int = 0
    texts: int = 0
    overrides: int = 0
    pages: int = 0
    questions: int = 0


@dataclass(frozen=True, slots=True)
class Remains:
    """What still names the person. `decided`: the ids of closed questions; `unsettled`: of those that agents wait for; a
    later call removes them there. `overrides`: how many still apply.
    """

    decided: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()
    overrides: int = 0


def forget_person(
    kept: Kept, user: str, names: Collection[str], *, now: datetime, forget_viewer: Callable[[Tx, str], bool]
) -> tuple[Removed, Remains]:
    """Forgets a Slack user id.

    Args:
        kept: where the records are.
        user: their Slack user id.
        names: what agents are told instead of it, besides what their decisions say.
        now: overrides that ended before are deleted.
        forget_viewer: `bot.home.forget_viewer`.

    Raises:
        StorageUnavailable: repeating the call does the rest.
    """
    with kept.read_only() as tx:
        texts, onces = memory.find_naming(tx, user)
        entries = incidents.naming(tx, user)
        found = _records(tx, ledger.naming(tx, user))
        names = {*names, *(name for record in found for name in names_of(record, user))}
        named = ledger.naming(tx, user, names)
    home = in_step(kept, lambda tx: forget_viewer(tx, user))
    for some in batches(texts, _ROWS):
        in_step(kept, partial(_forget_texts, some, ()))
    for some in batches(onces, _ROWS):
        in_step(kept, partial(_forget_texts, (), some))
    for numbers in batches(entries, _ROWS):
        in_step(kept, partial(_forget_entries, numbers, user))
    overrides, planned = in_step(kept, lambda tx: roster.forget_person(tx, user, now))
    questions = 0
    for ids in batches(named, _RECORDS):
        questions += in_step(kept, partial(_forget_in_records, ids, user, names, now))
    in_step(kept, lambda tx: tx.tell("forgotten"))
    kept.purge()
    with kept.read_only() as tx:
        left = list(_records(tx, ledger.naming(tx, user, names)))
    remains = Remains(
        tuple(record.id for record in left if not is_unsettled(record)),
        tuple(record.id for record in left if is_unsettled(record)),
        planned,
    )
    return Removed(int(home), len(texts) + len(onces), overrides, len(entries), questions), remains


def _forget_texts(texts: Collection[str], onces: Collection[str], tx: Tx) -> None:
    memory.forget(tx, list(texts), list(onces))


def _forget_entries(entries: Collection[int], user: str, tx: Tx) -> None:
    incidents.forget_person(tx, list(entries), user)


def _forget_in_records(ids: Collection[str], user: str, names: Collection[str], now: datetime, tx: Tx) -> int:
    ledger.hold(tx, ids)
    return ledger.rewrite(tx, ids, lambda raw: without_person(raw, user, names), "", now)


def _records(tx: Tx, ids: list[str]) -> Iterator[Clarification]:
    for some in batches(ids, _ROWS):
        for row in tx.rows("select body from clarifications where id in :ids", ids=some):
            if (record := ledger.record_of(row["body"])) is not None:
                yield record
