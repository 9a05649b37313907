"""Runs the monitor, and watches for changes by other processes.

The monitor runs on every trigger, and on an alarm at the next due time; nothing polls. `core.monitor` finds what is due;
the router decides again under the record's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

import structlog

from bot.signing import Owing
from bot.storage.tx import batches
from core.clarification import Clarification, parse_id
from core.clock import Clock, event_or_time
from core.errors import (
    ClarifyError,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
)
from core.escalation import escalation_words
from core.index import Index
from core.ledger import Ledger
from core.monitor import Finding, Monitor, repetitions
from core.router import Router
from core.summary import Seen
from core.transitions import NotOpen

_log = structlog.get_logger("clarify.monitor")
_RETRY = 1.0
# A record that cannot be read may be repaired in a way that causes no event.
_PUT_BACK = timedelta(minutes=1)
_LONGEST_SLEEP = (
    30.0  # seconds: sleeping counts monotonic time, so the alarm looks whether the wall clock jumped
)
_RECHECK_HELD = timedelta(seconds=15)  # what holds a question back may end without an event
_AT_ONCE = 8  # findings acted on concurrently, so that a locked one does not delay the others


@dataclass(kw_only=True, eq=False)
class Monitoring:
    """Acts on what the monitor finds: escalates, nudges and closes through the router.

    With `alarm` false it acts on triggers only. `held` returns until when at the latest a question must not expire, since an
    answer to it may not be known here yet; call `release` when that may have changed.
    """

    monitor: Monitor
    router: Router
    ledger: Ledger
    clock: Clock
    held: Callable[[str], datetime | None] = lambda _: None
    alarm: bool = True
    _holding: set[str] = field(default_factory=set, init=False)  # due but held clarifications
    _dirty: set[int] = field(default_factory=set, init=False)
    _left: list[Finding] = field(
        default_factory=list, init=False
    )  # stuck or deadlocked, but the record was locked
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)

    def record_changed(self, record: Seen) -> None:
        self.monitor.record_changed(record)
        if record.is_open and (record.round > 1 or parse_id(record.id)[1] > 1):
            self._dirty.add(record.issue_number)
        self._wake.set()

    def trigger(self) -> None:
        """Wake up if something is due. Cheap: call it on every message, click and event."""
        due = self.monitor.next_due()
        if due is not None and due <= self.clock.now():
            self._wake.set()

    def release(self) -> None:
        """Check the held questions again."""
        holding, self._holding = self._holding, set()
        for clarification in holding:
            self.monitor.again(clarification, self.clock.now())
        self._wake.set()

    async def run(self) -> None:
        """Act on findings as they come up, until cancelled."""
        while True:
            self._wake.clear()
            await self.catch_up()
            due, seconds = self.monitor.next_due(), inf
            if self.alarm and due is not None:
                seconds = min((due - self.clock.now()).total_seconds(), _LONGEST_SLEEP)
            if seconds <= 0:
                self._wake.set()
            await event_or_time(self.clock, self._wake, seconds)

    async def catch_up(self) -> None:
        """Act on everything due or suspect now. A locked record does not stop the others."""
        left, self._left = self._left, []
        due = self.monitor.due(self.clock.now())
        found = [*due, *left, *await self._suspects(), *await self._repeated()]
        async with asyncio.TaskGroup() as group:
            for finding in found:
                group.create_task(self._in_turn(finding), name=f"monitor {finding.clarification}")

    async def _suspects(self) -> list[Finding]:
        """What is stuck or deadlocked between agents, if some of them ask something new."""
        waits = self.monitor.new_waits()
        return await asyncio.to_thread(self.monitor.suspects, waits) if waits else []

    async def _repeated(self) -> list[Finding]:
        """Repeated questions and answers in the issues that changed."""
        issues, self._dirty = sorted(self._dirty), set()
        found: list[Finding] = []
        for issue in issues:
            try:
                records = (await self.ledger.read(issue)).records
                # In a thread: a session can have hundreds of records to compare.
                found += await asyncio.to_thread(repetitions, records)
            except LockTimeout as error:
                _log.warning("checking a changed issue later", issue=issue, reason=str(error))
                self._dirty.add(issue)
            except Exception:  # noqa: BLE001 - one odd record must not stop the watch over the others
                _log.exception("cannot compare a changed issue", issue=issue)
        return found

    async def _in_turn(self, finding: Finding) -> None:
        async with self._slots:
            try:
                await self._act(finding)
            except (LockTimeout, LedgerUnwritable) as error:
                _log.warning("due step delayed", id=finding.clarification, reason=str(error))
                if finding.kind != "due":
                    self._left.append(finding)
                self._again(finding, timedelta(seconds=_RETRY))
            except NotOpen:
                _log.info("already answered or closed", id=finding.clarification, kind=finding.kind)
            except (LedgerUnreadable, NotFound) as error:
                _log.error("due step has no record", id=finding.clarification, reason=str(error))
                if finding.kind == "due":
                    self._again(finding, _PUT_BACK)
            except ClarifyError as error:
                _log.error("cannot apply a due step", id=finding.clarification, reason=str(error))
            except Exception:  # noqa: BLE001 - one odd record must not stop the watch over the others
                _log.exception("cannot apply a due step", id=finding.clarification)

    def _again(self, finding: Finding, after: timedelta) -> None:
        self.monitor.again(finding.clarification, self.clock.now() + after)

    async def _act(self, finding: Finding) -> None:
        if finding.kind != "due":
            _log.warning(
                "found a problem", id=finding.clarification, kind=finding.kind, others=list(finding.others)
            )
            record = await self.ledger.find(finding.clarification)
            words = escalation_words(record, finding.kind, await self._others(finding.others), finding.words)
            await self.router.escalate(
                finding.clarification, finding.kind, words, only=lambda found: found.is_with_target
            )
            return
        call = await self.router.apply_due(finding.clarification)
        if call == "held":
            _log.info("expiry delayed until the thread is read", id=finding.clarification)
            self._holding.add(finding.clarification)
            # What held it may have ended already, without a call of `release`.
            now = self.clock.now()
            until = self.held(finding.clarification) or now
            self._again(finding, min(until - now, _RECHECK_HELD))
        elif call is not None:
            _log.warning("applied a due step", id=finding.clarification, call=call.kind)

    async def _others(self, ids: Sequence[str]) -> list[Clarification]:
        """The other clarifications, for the summary that people get."""
        found = []
        for each in ids:
            try:
                found.append(await self.ledger.find(each))
            except (NotFound, LedgerUnreadable) as error:
                _log.warning("summary leaves out a question", id=each, reason=str(error))
        return found


@dataclass(kw_only=True, eq=False)
class LedgerWatch:
    """Finds what other processes (the shell, another replica) wrote.

    `changed` is called with every record that another process changed, unless it does not agree with its receipts; `heard`
    whenever there may be one. `owing` signs the receipts that are owed.
    """

    ledger: Ledger
    index: Index
    changed: Callable[[Clarification], None]
    heard: Callable[[], None]
    owing: Owing
    clock: Clock

    async def run(self) -> None:
        """Take in what other processes write, until cancelled."""
        async with asyncio.TaskGroup() as group, aclosing(self.ledger.changes()) as changes:
            busy: dict[str, asyncio.Task[None]] = {}
            async for names in changes:
                self.heard()
                for some in batches(names, _AT_ONCE):
                    looked = zip(some, await asyncio.gather(*map(self.look, some)), strict=True)
                    for name in (name for name, is_done in looked if not is_done):
                        # Retry a locked record in a task of its own, so that it does not delay the others.
                        if name not in busy or busy[name].done():
                            busy[name] = group.create_task(self._until_looked(name), name=f"record {name}")

    async def _until_looked(self, clarification: str) -> None:
        await self.clock.sleep(_RETRY)
        while not await self.look(clarification):
            await self.clock.sleep(_RETRY)

    async def look(self, clarification: str) -> bool:
        """Take in a record that another process may have written; False: look again later."""
        try:
            record = await self.ledger.news(clarification)
            known = self.index.get(clarification)
            if record is None or await self.ledger.is_tampered(record) or not self._is_news(record):
                return True
            _log.info("another process changed a record", id=record.id, status=record.status)
            if await self.owing.sign(record):
                return True
        except (LockTimeout, LedgerUnwritable) as error:
            _log.warning("changed record delayed", id=clarification, reason=str(error))
            return False
        except (NotFound, LedgerUnreadable):
            return True
        if self.index.get(clarification) is known:  # nothing was written meanwhile
            self.changed(record)
        return True

    def _is_news(self, record: Clarification) -> bool:
        known = self.index.get(record.id)
        return known is None or known.revision < record.revision
