"""Runs the monitor, watches for changes by other processes, and watches what makes decisions verifiable.

The monitor runs on every trigger, and on an alarm at the next due time; nothing polls. `core.monitor` finds what is due;
the router decides again under the record's lock.

`Integrity` watches that records agree with their receipts, that each decision gets its receipt, and that no other key signs
unnoticed. It tells the fallback channel, or pages the person on call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf

import structlog

from bot.base import Base
from bot.decisions.log import is_vouched_for
from bot.intake.intake import AgentParts
from bot.signing import Owing, Signing, settled
from bot.slack.socket import Background
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import until_stored
from bot.storage.tx import batches
from core.clarification import Clarification, parse_id
from core.clock import Clock, event_or_time
from core.errors import (
    ClarifyError,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
    NotFound,
    RecordUnreadable,
)
from core.escalation import escalation_words
from core.index import Index
from core.ledger import Ledger
from core.monitor import Finding, Monitor, repetitions
from core.router import Router
from core.summary import Seen, Summary
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
_KEY_RETRY = 5.0  # seconds between attempts to read a signing key


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


@dataclass(eq=False, repr=False)
class Integrity:
    """Tells of each changed or unreadable record once, and signs the receipts that are owed. `signing`: None: decisions get no
    receipts. `later`: runs work in the background.
    """

    base: Base
    agents: AgentParts
    ledger: DatabaseLedger
    signing: Signing | None
    later: Background
    _told_of: set[str] = field(default_factory=set, init=False)  # changed and unreadable records

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ledger.found_tampered = self._tell_of_tampered
        self.ledger.found_unreadable = lambda name: loop.call_soon_threadsafe(self._tell_of_unreadable, name)

    async def check_key(self) -> None:
        """Tells the fallback channel if the signing key is one that the key before did not announce."""
        if (signing := self.signing) is None or signing.kid is None:
            return
        look = partial(is_vouched_for, self.base.store, signing)
        if not await until_stored(look, self.base.clock, _log, "reading the log later"):
            _log.warning("another key signs now, which the one before did not announce", kid=signing.kid)
            await self._notify(partial(self.agents.notices.another_key, signing.kid))

    def sign_what_is_owed(self, known: Iterable[Summary]) -> None:
        """Makes, in the background, the receipts that no one has made yet. `known`: the records that need something."""
        for record in known:
            if record.round > 1 or not (record.is_open or record.is_signed):
                self.later.run(self.agents.owing.sign_in_time(record.id), "receipt that is owed")
        if self.signing is not None and (self.signing.owes_some or self.signing.trouble):
            self.later.run(self._receipts_owed(self.signing), "receipts that are owed")

    async def _receipts_owed(self, signing: Signing) -> None:
        """Waits until the signing key can be read, then makes the receipts of what was decided meanwhile."""
        if (trouble := signing.trouble) is not None:
            await self._notify(partial(self.agents.notices.key_unreadable, trouble))
        while not await asyncio.to_thread(signing.load):
            await self.base.clock.sleep(_KEY_RETRY)
        note = partial(signing.note, self.base.store, self.base.clock.now())
        await until_stored(note, self.base.clock, _log, "cannot store the public key yet")
        await self.check_key()
        try:
            async with aclosing(self.ledger.every()) as every:
                async for some in every:
                    for record in some.records:
                        await self.agents.owing.sign_in_time(record.id)
        except LedgersAway as error:
            _log.warning("receipts that are owed follow at the next start", reason=str(error))
            return
        await until_stored(partial(settled, self.base.store), self.base.clock, _log, "receipts delayed")

    def _tell_of_tampered(self, records: Sequence[Clarification]) -> None:
        """Tells the fallback channel of records that do not agree with their receipts."""
        news = [each for each in records if each.id not in self._told_of]
        self._told_of.update(each.id for each in news)
        for issue in {each.issue_number for each in news}:
            ids = sorted(each.id for each in news if each.issue_number == issue)
            notice = partial(self.agents.notices.records_tampered, issue, ids)
            self.later.run(self._notify(notice), "tell of changed records")

    def _tell_of_unreadable(self, clarification: str) -> None:
        """Pages on-call about a record that cannot be read."""
        if clarification in self._told_of:
            return
        self._told_of.add(clarification)
        _log.error("cannot read a record", id=clarification)
        trouble = RecordUnreadable(clarification, parse_id(clarification)[0])
        notice = partial(self.agents.notices.ledger_unreadable, trouble)
        self.later.run(self._notify(notice), "tell of an unreadable record")

    async def _notify(self, notice: Callable[[], Awaitable[None]]) -> None:
        """Stores a notice; retries while the storage is unavailable."""
        await until_stored(notice, self.base.clock, _log, "notice delayed")
