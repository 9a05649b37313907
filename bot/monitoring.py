"""Runs the core's monitor: on every trigger, and by one alarm at the earliest due time. Nothing polls.

What is found is decided by `core.monitor`; the router decides it once more under the ledger's lock, so that whatever
happened meanwhile, by whichever process, counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from core.clarification import Clarification, NotOpen, Why, parse_id
from core.clock import Clock
from core.errors import ClarifyError, LedgerUnreadable, LedgerUnwritable, LockTimeout, NotFound
from core.escalation import escalation_words
from core.index import Summary
from core.monitor import Finding, Monitor, repetitions
from core.records import Raw, parse
from core.router import Router

_log = structlog.get_logger("clarify.monitor")
_RETRY = timedelta(seconds=1)
# A ledger that was set aside, or is gone, may be put back as it was: that is no change which anybody would note.
_PUT_BACK = timedelta(minutes=1)
_AT_A_TIME = 10  # texts compared before others have their turn on the event loop
# A sleep counts monotonic time: when the wall clock jumps, the alarm notices within this. Seconds.
_LONGEST_SLEEP = 30.0
_HELD = timedelta(seconds=15)  # what holds a question may end unheard
_AT_ONCE = 8  # ledgers acted on side by side: one whose lock somebody holds does not hold up the others


class Reading(Protocol):
    async def read(self, issue: int) -> list[Raw]: ...
    async def find(self, clarification_id: str, issue: int) -> Clarification: ...


class Watchman:
    """`note` whatever changed, `trigger` whatever passes; `run` acts on what the monitor finds.

    With `alarm` false it acts on triggers only. `held` tells how long a question does not expire yet, at the latest,
    since an answer to it may not be known here; call `release` when it may be known.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        router: Router,
        ledger: Reading,
        clock: Clock,
        held: Callable[[str], datetime | None] = lambda _: None,
        alarm: bool = True,
    ) -> None:
        self._monitor = monitor
        self._router = router
        self._ledger = ledger
        self._clock = clock
        self._held = held
        self._alarm = alarm
        self._holding: dict[str, int] = {}  # what was due and is held, with its issue
        self._dirty: set[int] = set()
        self._left: list[Finding] = []  # stuck or deadlocked ones whose ledger could not be had
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def note(self, summary: Summary) -> None:
        """Take in a clarification as it is now."""
        self._monitor.note(summary)
        if summary.is_open and (summary.round > 1 or parse_id(summary.id)[1] > 1):
            self._dirty.add(summary.issue)
        self._wake.set()

    def trigger(self) -> None:
        """Something passed: a message, a click, an event. Costs nothing where nothing is due."""
        due = self._monitor.next_due()
        if due is not None and due <= self._clock.now():
            self._wake.set()

    def release(self) -> None:
        """What was held may be held no longer."""
        holding, self._holding = self._holding, {}
        for clarification, issue in holding.items():
            self._monitor.again(clarification, issue, self._clock.now())
        self._wake.set()

    async def run(self) -> None:
        """Act on what is found, when it is; runs until cancelled."""
        while True:
            self._wake.clear()
            await self.catch_up()
            await self._wait()

    async def catch_up(self) -> None:
        """Act on all that is due or suspect now. One ledger that cannot be had does not stop the others."""
        left, self._left = self._left, []
        found = [
            *self._monitor.due(self._clock.now()),
            *left,
            *await self._suspects(),
            *await self._repeated(),
        ]
        async with asyncio.TaskGroup() as group:
            for finding in found:
                group.create_task(self._in_turn(finding), name=f"monitor {finding.clarification}")

    async def _wait(self) -> None:
        waits: list[Coroutine[Any, Any, object]] = [self._wake.wait()]
        due = self._monitor.next_due()
        if self._alarm and due is not None:
            seconds = (due - self._clock.now()).total_seconds()
            waits.append(self._clock.sleep(min(max(seconds, 0.0), _LONGEST_SLEEP)))
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _suspects(self) -> list[Finding]:
        """What is stuck or deadlocked between agents, each once; on a start there may be thousands to compare."""
        found: dict[str, Finding] = {}
        while True:
            for each in self._monitor.suspects(_AT_A_TIME):
                known = found.setdefault(each.clarification, each)
                if known.kind == each.kind and len(known.others) < len(each.others):
                    found[each.clarification] = each
            if not self._monitor.has_suspects:
                return list(found.values())
            await asyncio.sleep(0)  # whoever waits meanwhile has their turn

    async def _repeated(self) -> list[Finding]:
        """What says the same again in the ledgers that changed."""
        issues, self._dirty = sorted(self._dirty), set()
        found: list[Finding] = []
        for issue in issues:
            try:
                items = await self._ledger.read(issue)
                # Beside the event loop: a session can have hundreds of records to compare.
                found += await asyncio.to_thread(_repetitions_in, items)
            except LockTimeout as error:
                _log.warning("a changed ledger is looked at later", issue=issue, reason=str(error))
                self._dirty.add(issue)
            except LedgerUnreadable as error:
                # Whoever changed it pages; nothing in it can be found to repeat itself.
                _log.warning("a changed ledger cannot be looked at", issue=issue, reason=str(error))
            except Exception:  # noqa: BLE001 - one odd ledger must not stop the watch over the others
                _log.exception("a changed ledger cannot be compared", issue=issue)
        return found

    async def _in_turn(self, finding: Finding) -> None:
        async with self._slots:
            try:
                await self._act(finding)
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("a finding has to wait", id=finding.clarification, reason=str(error))
                self._later(finding)
            except NotOpen:
                _log.info("answered or closed meanwhile", id=finding.clarification, kind=finding.kind)
            except (LedgerUnreadable, NotFound) as error:
                _log.error("a finding has no ledger", id=finding.clarification, reason=str(error))
                if finding.kind == "due":
                    self._monitor.again(finding.clarification, finding.issue, self._clock.now() + _PUT_BACK)
            except ClarifyError as error:
                _log.error("a finding cannot be acted on", id=finding.clarification, reason=str(error))
            except Exception:  # noqa: BLE001 - one odd record must not stop the watch over the others
                _log.exception("a finding cannot be acted on", id=finding.clarification)

    def _later(self, finding: Finding) -> None:
        if finding.kind != "due":
            self._left.append(finding)
        self._monitor.again(finding.clarification, finding.issue, self._clock.now() + _RETRY)

    async def _act(self, finding: Finding) -> None:
        if finding.kind == "due":
            call = await self._router.attend(finding.clarification)
            if call is not None:
                _log.warning("attended", id=finding.clarification, call=call.kind)
            elif (until := self._held(finding.clarification)) is not None:
                _log.info("its end waits until its thread was read", id=finding.clarification)
                self._holding[finding.clarification] = finding.issue
                at = min(until, self._clock.now() + _HELD)
                self._monitor.again(finding.clarification, finding.issue, at)
            return
        _log.warning("found", id=finding.clarification, kind=finding.kind, others=list(finding.others))
        words = await self._words(finding, finding.kind)
        await self._router.escalate(finding.clarification, finding.kind, words, only=_still_waits)

    async def _words(self, finding: Finding, why: Why) -> str:
        """The summary for people: this side's position and those of the others."""
        record = await self._ledger.find(finding.clarification, finding.issue)
        return escalation_words(record, why, await self._others(finding.others), finding.words)

    async def _others(self, ids: Sequence[str]) -> list[Clarification]:
        found = []
        for each in ids:
            try:
                found.append(await self._ledger.find(each, parse_id(each)[0]))
            except (NotFound, LedgerUnreadable) as error:
                _log.warning("a summary does without one side", id=each, reason=str(error))
        return found


def _repetitions_in(items: Sequence[Raw]) -> list[Finding]:
    return repetitions([record for item in items if (record := parse(item)) is not None])


def _still_waits(record: Clarification) -> bool:
    """Only what waits for an agent or a person can be found stuck; what was answered meanwhile is not."""
    return record.status in {"pending", "stale"}
