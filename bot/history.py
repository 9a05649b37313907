"""What the storage knows of decisions besides the ledgers: the log's receipts (`decisions`), and the keys that signed them.

A program that can write the ledgers and read the key of their seals can rewrite a record so that its seal matches, and remove its
receipt or put another one there. The storage still knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import jwt

from bot.storage.tx import Row, batches
from core.clarification import Clarification
from core.receipts import decided_at, jti_of, number_of
from core.records import sealed_revision, unsigned_rounds

_AHEAD = 5  # rounds after a record's own that are looked for
_LOGGED = "select jti, receipt from decisions where jti in :jtis"
_SHOWN = (
    "select clarification, max(revision) as revision from messages where clarification in :ids and kind = 'card'"
    " group by clarification"
)
_KEYS = "select kid from signing_keys"
_SINCE = "select since from receipts"


@dataclass(frozen=True, slots=True)
class Known:
    """What a storage knows of some records. `receipts` by jti (None: it is not kept); `rounds`: the last that has one, by
    id; `revisions`: the highest that people were shown, by id; `kids` of our keys; `since`: when it began to make receipts.
    """

    receipts: dict[str, str | None] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)
    kids: frozenset[str] = frozenset()
    since: datetime | None = None

    def contradicts(self, record: Clarification) -> bool:
        """Whether a record lacks the end of a round or what people did, has another receipt, or a stranger signed it."""
        if (record.asked.model_extra or {}).get("forgotten"):
            return False
        number = number_of(record)
        return (
            self._is_behind(record, number) or self._has_another(record, number) or self._is_strange(record)
        )

    def _is_behind(self, record: Clarification, number: int) -> bool:
        if self.rounds.get(record.id, 0) > number:
            return True
        sealed = sealed_revision(record) if record.is_open else None
        return sealed is not None and sealed < self.revisions.get(record.id, 0)

    def _has_another(self, record: Clarification, number: int) -> bool:
        if any(jti_of(then) in self.receipts for _, then in unsigned_rounds(record)):
            return True
        if (jti := f"{record.id}/{number}") not in self.receipts:
            return False
        known, own = self.receipts[jti], record.asked.receipt
        return record.is_open or own is None or (known is not None and known != own)

    def _is_strange(self, record: Clarification) -> bool:
        own = record.asked.receipt
        if own is None or self.since is None or _kid_of(own) in self.kids:
            return False
        # A lost storage knew the keys of what was signed before.
        return decided_at(record) >= self.since


def _jtis(records: Iterable[Clarification]) -> Iterator[str]:
    """Yields the ids of the receipts that records may have, also of rounds that they lack."""
    for each in records:
        number = number_of(each)
        yield from (f"{each.id}/{n}" for n in range(number, number + 1 + _AHEAD))
        yield from (jti_of(then) for _, then in unsigned_rounds(each))


def _kid_of(receipt: str) -> str | None:
    try:
        return str(jwt.get_unverified_header(receipt).get("kid"))
    except jwt.PyJWTError:
        return None


def _open(records: Iterable[Clarification]) -> list[str]:
    return [each.id for each in records if each.is_open]


def _known(
    logged: Iterable[Row], shown: Iterable[Row], keys: Iterable[Row] = (), since: Sequence[Row] = ()
) -> Known:
    receipts = {row["jti"]: row["receipt"] for row in logged}
    numbered = sorted((int(number), id_) for id_, _, number in (jti.rpartition("/") for jti in receipts))
    return Known(
        receipts,
        {id_: number for number, id_ in numbered},
        {row["clarification"]: row["revision"] or 0 for row in shown},
        frozenset(row["kid"] for row in keys),
        datetime.fromtimestamp(since[0]["since"], UTC) if since else None,
    )


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """Compares records with the storage of a bot (`core.ledger.History`). `read` runs a query (`Store.read`); `own`: the
    keys of this process, by id, of which the newest may not be stored yet; `load` reads that one, if it can.
    """

    read: Callable[..., Awaitable[list[Row]]]
    own: Mapping[str, object]
    load: Callable[[], object] = lambda: None

    async def known(self, records: Sequence[Clarification]) -> Callable[[Clarification], bool]:
        """Raises StorageUnavailable if it cannot tell."""
        logged = [row for some in batches(_jtis(records)) for row in await self.read(_LOGGED, jtis=some)]
        shown = [row for some in batches(_open(records)) for row in await self.read(_SHOWN, ids=some)]
        known = _known(logged, shown)
        if any(_kid_of(each.asked.receipt) not in self.own for each in records if each.asked.receipt):
            known = _known(logged, shown, await self.read(_KEYS), await self.read(_SINCE))
            await asyncio.to_thread(self.load)
            known = replace(known, kids=known.kids.union(self.own))
        return known.contradicts
