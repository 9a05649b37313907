"""What other processes write into the ledgers: noticed, compared, acted on."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path

import structlog
from watchfiles import awatch

from bot.errors import StorageUnavailable
from bot.notifier import Notifier
from core.clarification import Clarification, parse_id
from core.clock import Clock, SystemClock
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.index import Index, Summary, summarize
from core.ledger import FileLedger
from core.matching import claim_of
from core.records import Oddity, Raw, is_unsettled, oddity, parse
from core.router import Router

Noted = Callable[[Summary, Clarification], None]
_log = structlog.get_logger("clarify.monitor")
_ASIDE = re.compile(r"issue-([0-9]{1,9})\.json\.unreadable-.+")
_RETRY = 1.0
_STILL_THERE = 2000  # milliseconds


class LedgerWatch:
    """Notices ledgers that other processes wrote, by content: they need not count revisions.

    `noted` is told every record that somebody else changed.
    """

    def __init__(
        self,
        *,
        ledger: FileLedger,
        index: Index,
        router: Router,
        noted: Noted,
        notifier: Notifier,
        clock: Clock | None = None,
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._router = router
        self._noted = noted
        self._notifier = notifier
        self._clock = clock or SystemClock()

    async def run(self) -> None:
        """Watch the ledgers' folder until cancelled; one that goes away, from the moment that it is back."""
        async with asyncio.TaskGroup() as group:
            busy: dict[int, asyncio.Task[None]] = {}
            while True:
                watched = await self._folder()
                # A task begins at the next wait; the folder is watched by then, so nothing falls in between.
                sweep = group.create_task(self._sweep(), name="ledgers that changed before they were watched")
                await self._watch(watched, group, busy)
                _log.warning("the folder with the ledgers is gone, or another one")
                sweep.cancel()

    async def _folder(self) -> tuple[int, int]:
        """What the folder is on its disk, once it is there."""
        while True:
            if (found := await asyncio.to_thread(self._found)) is not None:
                return found
            await self._clock.sleep(_RETRY)

    def _found(self) -> tuple[int, int] | None:
        try:
            stat = self._ledger.directory.stat()
        except OSError:
            return None
        return (stat.st_dev, stat.st_ino) if self._ledger.is_there() else None

    async def _watch(
        self, watched: tuple[int, int], group: asyncio.TaskGroup, busy: dict[int, asyncio.Task[None]]
    ) -> None:
        """Returns when the folder is not `watched` any more: nobody tells of what goes on in the one that is."""
        changes_of = awatch(
            self._ledger.directory,
            recursive=False,
            step=20,
            debounce=200,
            rust_timeout=_STILL_THERE,
            yield_on_timeout=True,
        )
        try:
            async with aclosing(changes_of):
                async for changes in changes_of:
                    names = {Path(path).name for _, path in changes}
                    if not names and await asyncio.to_thread(self._found) != watched:
                        return
                    await self._page_asides(names)
                    found = [self._ledger.issue_of(name) for name in names]
                    for issue in sorted({issue for issue in found if issue is not None}):
                        # One that has to wait is looked at again by itself, and does not keep the others waiting.
                        if not await self.look(issue) and (issue not in busy or busy[issue].done()):
                            busy[issue] = group.create_task(self._look_again(issue), name=f"ledger {issue}")
        except FileNotFoundError:
            return

    async def _sweep(self) -> None:
        try:
            names = await asyncio.to_thread(os.listdir, self._ledger.directory)
            changed = await asyncio.to_thread(self._ledger.changed)
        except (OSError, LedgersAway):
            return  # it is gone again, which the watch notices
        await self._page_asides(names)
        for issue in changed:
            while not await self.look(issue):
                await self._clock.sleep(_RETRY)

    async def _page_asides(self, names: Iterable[str]) -> None:
        """Whichever part or process set a ledger aside, somebody has to know; one page for each."""
        for name in sorted(names):
            if match := _ASIDE.fullmatch(name):
                aside = self._ledger.directory / name
                issue = int(match.group(1))
                await self._page_until_kept(
                    LedgerUnreadable(issue, self._ledger.path(issue), "found set aside", aside)
                )

    async def _look_again(self, issue: int) -> None:
        while True:
            await self._clock.sleep(_RETRY)
            if await self.look(issue):
                return

    async def look(self, issue: int) -> bool:
        """Compare one ledger with what is known of it, and act on the differences; False: look again later."""
        try:
            items = await self._ledger.news(issue)
        except LockTimeout as error:
            _log.warning("a changed ledger has to wait", issue=issue, reason=str(error))
            return False
        except LedgerUnreadable as error:
            _log.error("a ledger cannot be read", issue=issue, reason=str(error))
            await self._page_until_kept(error)
            return True
        return await self._compare(issue, items) if items is not None else True

    async def _compare(self, issue: int, items: list[Raw]) -> bool:
        done = True
        for position, item in enumerate(items, 1):
            record = parse(item)
            if record is None:
                if (odd := oddity(issue, position, item)) is not None:
                    await self._page_until_kept(odd)
                continue
            if is_unsettled(record) and not await self._ledger.is_as_asked(record):
                done &= await self.adopt(record.id)
                continue
            summary = summarize(record)
            known = self._index.get(record.id, issue)
            if (known.digest != summary.digest) if known is not None else summary.needs_something:
                _log.info("a ledger was changed by another process", id=record.id, status=record.status)
                self._noted(summary, record)
            if summary.adoptable or (known is not None and not await self._ledger.vouches(record)):
                done &= await self.adopt(record.id)
        if not done:
            self._ledger.forget(issue)
        return done

    async def adopt(self, clarification: str) -> bool:
        """Take over an answer that another implementation wrote, or close what another program changed; False: it has to
        be tried again.
        """
        try:
            await self._tell(clarification)
            await self._router.adopt(clarification)
        except (LockTimeout, LedgerUnwritable) as error:
            _log.warning("another process's answer has to wait", id=clarification, reason=str(error))
            return False
        except (LedgerUnreadable, NotFound) as error:
            _log.error("another process's answer cannot be used", id=clarification, reason=str(error))
        return True

    async def _tell(self, clarification: str) -> None:
        """Of a question that was changed, and of a consent: before it is undone, so that it is told whatever happens in
        between.
        """
        record = await self._ledger.find(clarification, parse_id(clarification)[0])
        if is_unsettled(record) and await self._ledger.is_as_asked(record) is False:
            await self._page_until_kept(record)
            return
        claim = claim_of(record, vouched=await self._ledger.vouches(record))
        while claim is not None and claim.consents:
            try:
                await self._notifier.consent_refused(record, claim.by)
                break
            except StorageUnavailable as problem:
                _log.warning("a notice has to wait", id=clarification, reason=str(problem))
                await self._clock.sleep(_RETRY)

    async def _page_until_kept(self, what: LedgerUnreadable | Oddity | Clarification) -> None:
        while True:
            try:
                if isinstance(what, Clarification):
                    return await self._notifier.question_changed(what)
                if isinstance(what, Oddity):
                    return await self._notifier.record_unreadable(what)
                return await self._notifier.ledger_unreadable(what, None)
            except StorageUnavailable as problem:
                issue = what.issue_number if isinstance(what, Clarification) else what.issue
                _log.warning("a page has to wait", issue=issue, reason=str(problem))
                await self._clock.sleep(_RETRY)
