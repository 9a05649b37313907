"""Whether a decision is genuine: its receipt, what its record says, and its entry in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.decisions.chain import digest_of, opened
from bot.errors import StorageUnavailable
from bot.signing import Signing
from bot.storage.store import Store
from bot.storage.tx import Row
from bot.views.verify import Proof
from core.clarification import Clarification
from core.ledger import Ledger
from core.receipts import Checked, Problem, at_round, jti_of
from core.transitions import amended

ENTRY = "select seq, entry, receipt, (select max(seq) from decisions) as last from decisions where jti = :jti"


async def prove(
    signing: Signing | None, ledger: Ledger, store: Store, record: Clarification, number: int
) -> Proof:
    """Returns what checking the receipt of round `number` found: its signature, the record beside it, its entry in the log.

    `signing`: None: there are no keys.
    """
    # A follow-up after the last round keeps its number: the current round is meant by that of the record, too.
    ended = record if number >= record.round else at_round(record, number)
    if ended is None:
        return Proof(Checked("missing"), None, is_place_known=True)
    receipt = ended.current.receipt
    if signing is None:
        checked = Checked("missing" if receipt is None else "key")
    else:
        checked = await asyncio.to_thread(signing.check, ended)
    try:
        row, is_place_known = await store.read_one(ENTRY, jti=jti_of(ended)), True
    except StorageUnavailable:
        row, is_place_known = None, False
    if row is not None and signing is not None and checked.problem in {None, "missing"}:
        sha256 = _named_by(row, jti_of(ended), await signing.published(store))
        if sha256 is None:
            checked = replace(checked, problem="entry")
        elif sha256 != digest_of(receipt or ""):
            checked = _of_the_log(signing, ended, row["receipt"])
    if checked.problem is None and ended is record and await ledger.is_tampered(record):
        checked = replace(checked, problem="record")
    return Proof(checked, (row["seq"], row["last"]) if row is not None else None, is_place_known)


def _of_the_log(signing: Signing, ended: Clarification, logged: str | None) -> Checked:
    """Returns what is wrong with a record that lacks the receipt in the log, and what that receipt says."""
    if ended.current.receipt is None and logged is None:
        return Checked("missing")  # it was forgotten
    problem: Problem = "removed" if ended.current.receipt is None else "log"
    if logged is None:
        return Checked(problem)
    there = amended(ended, receipt=logged)
    return replace(signing.check(there), problem=problem)


def _named_by(row: Row, jti: str, keys: Mapping[str, Any]) -> str | None:
    """Returns the digest of the receipt that an entry of the log is about; None: it is not the entry of round `jti`."""
    try:
        claims, _ = opened(row["entry"], keys)
    except ValueError:
        return None
    is_its = (claims["seq"], claims.get("jti")) == (row["seq"], jti)
    return claims["sha256"] if is_its else None
