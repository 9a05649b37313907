"""The facts of the Home tabs: read in slices, so that thousands of open questions hold nobody up."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import structlog

from bot.audience import audience_of
from bot.errors import StorageUnavailable
from bot.home.facts import Fleet
from bot.home.model import Answered, Snapshot, by_time_left
from bot.home.ports import Duties, Open, Paged, Records, SeeFleet
from bot.rounds import round_of
from core.clarification import Clarification
from core.errors import ClarifyError, LedgersAway
from core.index import Summary
from core.ledger import FileLedger
from core.records import parse

_log = structlog.get_logger("clarify.home")
_SLICE = 500  # items: well below a millisecond
_MOST_ANSWERS = 80
_MOST_WORDS = 2000
_KEPT_WORDS = 600  # characters: more than is shown
_RESTORED_FILES = 100

Offload = Callable[..., Awaitable[Any]]


class Answers:
    """The newest answers, at most 80."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int], Answered] = {}

    def note(self, record: Clarification) -> bool:
        """Take in a record as it is now; whether that changed anything."""
        found = answered(record)
        if found is None or self._kept.get((record.id, found.round)) == found:
            return False
        self._kept[record.id, found.round] = found
        if len(self._kept) > _MOST_ANSWERS:
            oldest = min(self._kept, key=lambda key: self._kept[key].at)
            del self._kept[oldest]
            return oldest != (record.id, found.round)
        return True

    def newest(self) -> tuple[Answered, ...]:
        """The newest first."""
        return tuple(
            sorted(self._kept.values(), key=lambda each: (each.at, each.clarification), reverse=True)
        )

    async def restore(self, ledger: FileLedger, offload: Offload = asyncio.to_thread) -> None:
        """At the start: what the hundred ledgers that were written last say. One that cannot be read is left out."""
        try:
            issues: list[int] = await offload(_written_last, ledger, _RESTORED_FILES)
        except LedgersAway as error:
            _log.warning("answers are left out", reason=str(error))
            return
        for issue in issues:
            try:
                items = await ledger.read(issue)
            except ClarifyError as error:
                _log.warning("answers of a ledger are left out", issue=issue, reason=str(error))
                continue
            for item in items:
                if (record := parse(item)) is not None:
                    self.note(record)


def answered(record: Clarification) -> Answered | None:
    """The answer of a record's newest round that has one."""
    shown = round_of(record)
    if shown.stage != "answered" and record.round > 1:
        shown = round_of(record, record.round - 1)
    if shown.stage != "answered" or shown.answered_at is None:
        return None
    agent, to = audience_of(record)
    return Answered(
        clarification=record.id,
        round=shown.number,
        agent=agent,
        to=to,
        question=shown.question[:_KEPT_WORDS],
        answer=shown.answer_label[:_KEPT_WORDS],
        at=shown.answered_at,
        by=shown.answered_by,
        user=shown.slack_user,
    )


class Questions:
    """The words of questions, looked up in their ledgers once for each change."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._kept: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def words(self, summaries: Iterable[Summary]) -> dict[str, str]:
        """The question of each; one whose ledger cannot be read is left out."""
        found = {}
        for each in summaries:
            if (words := await self._words(each)) is not None:
                found[each.id] = words
        return found

    async def _words(self, summary: Summary) -> str | None:
        key = (summary.id, summary.digest)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        try:
            record = await self._records.find(summary.id, summary.issue)
        except ClarifyError as error:
            _log.warning("a question cannot be read for a Home tab", id=summary.id, reason=str(error))
            return None
        self._kept[key] = record.question[:_KEPT_WORDS]
        if len(self._kept) > _MOST_WORDS:
            self._kept.popitem(last=False)
        return self._kept[key]


class Gathering:
    """Takes snapshots. `shows` says whether people are asked; `offload` runs long work elsewhere: a thread."""

    def __init__(
        self,
        *,
        index: Open,
        answers: Answers,
        fleet: SeeFleet,
        duties: Duties,
        paged: Paged,
        shows: Callable[[Summary], bool],
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._index = index
        self._answers = answers
        self._fleet = fleet
        self._duties = duties
        self._paged = paged
        self._shows = shows
        self._offload = offload
        self._last_fleet = Fleet()

    async def snapshot(self, number: int) -> Snapshot:
        """The facts as they are now. Changes while it is taken are in it or not: they call for another one."""
        known = await self._known()
        duties = await self._duties()
        fleet = await self._fleet_of(known)
        questions: list[Summary] = await self._offload(self._for_people, known)
        answers = self._answers.newest()
        return Snapshot(
            number=number,
            questions=questions,
            audiences=frozenset(
                {
                    *map(audience_of, known),
                    *(each.audience for each in answers),
                    *(each.audience for each in fleet.agents),
                    *(each.audience for each in fleet.ready),
                }
            ),
            paged=await self._paged_of(questions),
            fleet=fleet,
            duties=tuple(duties),
            answers=answers,
        )

    async def _known(self) -> list[Summary]:
        known = []
        for count, each in enumerate(self._index):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            known.append(each)
        return known

    async def _paged_of(self, questions: Sequence[Summary]) -> dict[str, frozenset[str]]:
        found = {}
        for count, each in enumerate(questions):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            if each.status == "escalated" and (users := self._paged(each.id)):
                found[each.id] = users
        return found

    async def _fleet_of(self, known: Sequence[Summary]) -> Fleet:
        """How the agents stood last, where it cannot be known now: the questions do not wait for it."""
        try:
            self._last_fleet = await self._fleet(known)
        except StorageUnavailable as error:
            _log.warning("the agents' sessions cannot be read", reason=str(error))
        return self._last_fleet

    def _for_people(self, known: Sequence[Summary]) -> list[Summary]:
        return by_time_left([each for each in known if each.is_open and self._shows(each)])


def _written_last(ledger: FileLedger, most: int) -> list[int]:
    """The issues whose files were written last. Blocking."""
    written = []
    for issue in ledger.issues():
        try:
            written.append((ledger.path(issue).stat().st_mtime_ns, issue))
        except FileNotFoundError:
            continue  # archived in the meantime
    return [issue for _, issue in heapq.nlargest(most, written)]
