"""Clarifications page by page, out of the ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from bot.web.clarification_shapes import Page, Wanted, shown
from core.clarification import Clarification, parse_id
from core.errors import LedgerUnreadable, LockTimeout
from core.ledger import Raw, parse


class Ledgers(Protocol):
    """`core.ledger.FileLedger`."""

    def issues(self) -> Iterator[int]: ...
    async def read(self, issue: int) -> list[Raw]: ...


async def page(ledger: Ledgers, may_see: Callable[[Clarification], bool], wanted: Wanted) -> Page:
    """The next clarifications that fit. Ledgers are read one by one, and no more of them than it takes."""
    place = parse_id(wanted.after) if wanted.after else (0, 0)
    found: list[Clarification] = []
    unreadable: list[int] = []
    for number in await _issues(ledger, wanted.issue, place[0]):
        try:
            records = _in_order(await ledger.read(number))
        except (LedgerUnreadable, LockTimeout):
            unreadable.append(number)
            continue
        found += [
            each
            for each in records
            if parse_id(each.id) > place and _has(each, wanted.status) and may_see(each)
        ]
        if len(found) > wanted.limit:
            break
    listed = found[: wanted.limit]
    following = listed[-1].id if len(found) > wanted.limit else None
    return Page(clarifications=[shown(each) for each in listed], next=following, unreadable=unreadable)


def _has(record: Clarification, status: str | None) -> bool:
    return status is None or (record.is_open if status == "open" else record.status == status)


async def _issues(ledger: Ledgers, issue: int | None, start: int) -> list[int]:
    if issue is not None:
        return [issue]
    return await asyncio.to_thread(lambda: sorted(each for each in ledger.issues() if each >= start))


def _in_order(items: list[Raw]) -> list[Clarification]:
    records = [record for item in items if (record := parse(item)) is not None]
    return sorted(records, key=lambda record: parse_id(record.id))
