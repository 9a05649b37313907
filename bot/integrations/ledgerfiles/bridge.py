"""Keeps the ledger files of the Clarification Protocol in step with the records: writes what was decided, and takes in
what other implementations add.

Nothing waits for a file: no click, card or reply. A file follows its record within 100 ms, then at most twice a second; it
is replaced under the marker, and never synced, since it can be made again. What others did is found by comparing three
(`acts`): what the bridge last wrote or read, which is in the database, the file, and the record. Before a file is replaced,
what it will hold is stored, so that after a kill neither the old nor the new state counts as somebody's act.

A file decides nothing about an action: it neither accepts nor rejects. What it may not do is undone, and told.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from math import inf
from pathlib import Path
from typing import NamedTuple

import structlog
from watchfiles import awatch

from bot.errors import StorageUnavailable
from bot.intake.notices import Notices
from bot.integrations.ledgerfiles.acts import (
    Act,
    Adds,
    Base,
    Moves,
    Opens,
    Removes,
    Rewrites,
    Seen,
    acts,
    base_of,
    is_forgotten_item,
    opening,
    rendered,
)
from bot.storage.ledger import CHANNEL
from bot.storage.store import Store, until_stored
from core.answers import from_text
from core.archive import FIRST_RESERVED
from core.clarification import Answer, Ask, Clarification, Decider, parse_id
from core.clock import Clock, event_or_time
from core.errors import (
    ClarifyError,
    LedgerInDoubt,
    LedgersAway,
    LedgerUnreadable,
    LedgerUnwritable,
    LockTimeout,
)
from core.files import DEBOUNCE, STEP, reason
from core.ledger import Ledger
from core.ledgerfiles import LedgerFiles, State, state_of
from core.matching import author_of
from core.records import Raw, decode, encode, forget_in, identity, is_over
from core.router import Router

_log = structlog.get_logger("clarify.ledger")
_SOON, _APART = 0.1, 0.5  # seconds from a change to its file, and between writes of one file
_LOCK, _COMMIT = 2.0, 5.0  # seconds
_RETRY, _LONGEST_RETRY = 0.5, 10.0  # seconds
_TOLD_AFTER = 15.0  # seconds
_AT_ONCE = 4  # files exchanged at once
_DAY = 86_400.0  # seconds
_STILL_THERE = 2000  # milliseconds between looks whether the folder is still the same
_AWAY = (LockTimeout, LedgerUnwritable, LedgersAway, LedgerInDoubt, StorageUnavailable, OSError, TimeoutError)


class _Kept(NamedTuple):
    """The records of an issue and their version; the states in which the bridge may have left the file, and when and with
    which version it wrote it last.
    """

    record: Raw
    version: int
    base: Base
    state: str | None
    written: int

    def is_behind(self, state: State | None) -> bool:
        """Whether what is stored of the file is older than it, though nothing is to be written."""
        return self.written != self.version or self.state != _text(state)


class _Found(NamedTuple):
    """What others did to a file, with what it holds by now; or what was written."""

    acts: Sequence[Act]
    file: dict[str, Seen]
    state: State | None


@dataclass(kw_only=True, eq=False, repr=False)  # holds what was asked
class Bridge:
    """`record_changed` tells it of each change; `run` does the rest until cancelled."""

    files: LedgerFiles
    ledger: Ledger
    store: Store
    router: Router
    notices: Notices
    clock: Clock
    archive_after: timedelta
    _due: dict[int, float] = field(default_factory=dict, init=False)  # by the loop's clock
    _wrote: dict[int, float] = field(default_factory=dict, init=False)
    _own: dict[int, State] = field(default_factory=dict, init=False)  # files as we left them
    _failing: dict[int, tuple[float, int, str]] = field(default_factory=dict, init=False)
    _is_told: bool = field(default=False, init=False)
    _busy: set[int] = field(default_factory=set, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def record_changed(self, record: Clarification) -> None:
        """Has the record's file follow."""
        last = self._wrote.get(record.issue_number, 0.0)
        self._look_at(record.issue_number, max(self._now() + _SOON, last + _APART))

    def overdue(self) -> str | None:
        """Returns why a file has not followed its record for 15 seconds, or None."""
        late = [each for each in self._failing.values() if self._now() - each[0] >= _TOLD_AFTER]
        if not late:
            return None
        count = "1 ledger file is" if len(late) == 1 else f"{len(late)} ledger files are"
        return f"{count} behind: {late[0][2]}"

    async def run(self) -> None:
        """Exchanges files and records, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="ledger files")
            group.create_task(self._follow_others(), name="changed ledgers")
            group.create_task(self._archive(), name="finished ledger files")
            slots = asyncio.Semaphore(_AT_ONCE)
            while True:
                self._wake.clear()
                now = self._now()
                for issue in [each for each, at in self._due.items() if at <= now and each not in self._busy]:
                    del self._due[issue]
                    self._busy.add(issue)
                    group.create_task(self._in_turn(issue, slots), name=f"ledger file {issue}")
                due = [at for issue, at in self._due.items() if issue not in self._busy]
                await event_or_time(self.clock, self._wake, min(due) - now if due else inf)

    def _look_at(self, issue: int, at: float) -> None:
        self._due[issue] = min(at, self._due.get(issue, at))
        self._wake.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _in_turn(self, issue: int, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await self._follow(issue)
            except _AWAY as error:
                await self._later(issue, reason(error) if isinstance(error, OSError) else str(error))
            except Exception as error:  # noqa: BLE001 - one odd file must not stop the others
                _log.exception("cannot follow a ledger file", issue=issue)
                await self._later(issue, f"issue-{issue}.json: {type(error).__name__}, see the log")
            else:
                self._failing.pop(issue, None)
                self._is_told &= bool(self._failing)
            finally:
                self._busy.discard(issue)
                self._wake.set()

    async def _later(self, issue: int, why: str) -> None:
        since, tries, _ = self._failing.get(issue, (self._now(), 0, ""))
        self._failing[issue] = since, tries + 1, why
        _log.warning("ledger file delayed", issue=issue, reason=why)
        self._look_at(issue, self._now() + min(_RETRY * 2 ** min(tries, 5), _LONGEST_RETRY))
        if self._now() - since >= _TOLD_AFTER and not self._is_told:
            self._is_told = True
            tell = partial(self.notices.files_behind, str(self.files.directory), why, at=self.clock.now())
            await self._tell(tell)

    async def _follow(self, issue: int) -> None:
        """Takes in what others did to a file, or else writes it."""
        kept, loop = await self._kept(issue), asyncio.get_running_loop()

        def remember(states: Sequence[dict[str, Seen]], state: State | None) -> None:
            stored = asyncio.run_coroutine_threadsafe(
                self._remember(issue, kept.version, states, state), loop
            )
            stored.result(_COMMIT)

        try:
            found = await asyncio.to_thread(self._exchange, issue, kept, remember, self.clock.now())
        except LedgerUnreadable as error:
            if error.quarantined is None:
                raise LedgerUnwritable(issue, str(error)) from error
            await self._tell(partial(self.notices.ledger_unreadable, error))
            self._look_at(issue, self._now())
            return
        if found.state is not None:
            self._own[issue] = found.state
            self._wrote[issue] = self._now()
        else:  # there is no file
            self._own.pop(issue, None)
            self._wrote.pop(issue, None)
        for act in found.acts:
            await self._do(issue, act)
        if found.acts:
            # From now on this is what we read; then the file is set right.
            await self._remember(issue, 0, [found.file], None)
            self._look_at(issue, self._now())

    def _exchange(
        self,
        issue: int,
        kept: _Kept,
        remember: Callable[[Sequence[dict[str, Seen]], State | None], None],
        now: datetime,
    ) -> _Found:
        """Reads a file and replaces it, or archives it, under its marker. Blocking."""
        self.files.require(issue)
        self._blank(issue, kept.record)
        is_old = is_over(kept.record["clarifications"], now, self.archive_after)
        with self.files.hold(issue, _LOCK) as check:
            file, live, state = self.files.open(issue, check), self.files.path(issue), self.files.state(issue)
            found = list(acts(kept.base, file["clarifications"], kept.record["clarifications"]))
            before, wanted = base_of(file["clarifications"]), rendered(file, kept.record)
            if found or not wanted["clarifications"]:
                return _Found(found, before, state)
            if wanted != _plain(file) or (state is None and not is_old):
                if issue >= FIRST_RESERVED:
                    self.files.numbers.give_out(issue)
                after = base_of(wanted["clarifications"])
                with self.files.replacing(issue, live, encode(wanted), durable=False) as draft:
                    remember([before, after], state := state_of(draft))
                    check()
                self.files.archive.drop(issue, wanted)
                before = after
            elif kept.is_behind(state):
                remember([before], state)
            if is_old and state is not None:
                remember([before], state := None)
                check()
                self.files.archive.put(issue, live, wanted)
            return _Found([], before, state)

    def _blank(self, issue: int, record: Raw) -> None:
        """Forgets in archived files what was forgotten."""
        names = {identity(item) for item in record["clarifications"] if is_forgotten_item(item)}
        if names and any(number == issue for number, _ in self.files.archive.files()):
            self.files.rewrite(
                issue,
                lambda raw: forget_in(
                    raw, [at for at, item in enumerate(raw["clarifications"]) if identity(item) in names]
                ),
            )

    async def _kept(self, issue: int) -> _Kept:
        row = await self.store.read_one(
            "select body, ledgers.version as version, base, state, bridge.version as written from ledgers"
            " left join bridge on bridge.issue = ledgers.issue where ledgers.issue = :issue",
            issue=issue,
        )
        if row is None:
            return _Kept({"issueNumber": issue, "clarifications": []}, 0, {}, None, 0)
        base = json.loads(row["base"] or "{}")
        # What this process stored, it also wrote; of an earlier one nobody knows whether it came to that.
        is_written = row["state"] is not None and row["state"] == _text(self._own.get(issue))
        return _Kept(
            decode(row["body"].encode(), issue),
            row["version"],
            {
                name: [each and Seen.from_json(each) for each in left if each or not is_written]
                for name, left in base.items()
            },
            row["state"],
            row["written"] or 0,
        )

    async def _remember(
        self, issue: int, version: int, states: Sequence[dict[str, Seen]], state: State | None
    ) -> None:
        names = dict.fromkeys(name for each in states for name in each)
        base = {name: dict.fromkeys(each.get(name) for each in states) for name in names}
        await self.store.run(
            "insert into bridge (issue, base, state, version) values (:issue, :base, :state, :version)"
            " on conflict (issue) do update set base = excluded.base, state = excluded.state, version = excluded.version",
            issue=issue,
            base=json.dumps(
                {name: [each and each.as_json() for each in left] for name, left in base.items()}
            ),
            state=_text(state),
            version=version,
        )

    # What others did

    async def _do(self, issue: int, act: Act) -> None:
        match act:
            case Opens(item, is_ours):
                await self._open(item, is_ours=is_ours)
            case Adds(clarification, entries):
                for entry in entries:
                    await self._add(clarification, entry)
            case Moves(clarification, status):
                await self._move(clarification, status)
            case Rewrites(clarification):
                await self._tell(partial(self.notices.records_tampered, issue, [clarification], []))
            case Removes(clarification):
                await self._tell(partial(self.notices.records_tampered, issue, [], [clarification]))

    async def _open(self, item: Raw, *, is_ours: bool) -> None:
        record = opening(item)
        if record is None:
            _log.warning("a ledger has a clarification that begins without a question", id=identity(item))
            return
        taken = await self.router.take_in(record)
        _log.info("another implementation asks", id=taken.id, renumbered=is_ours)
        for entry in item["thread"][1:]:
            await self._add(taken.id, entry)

    async def _add(self, clarification: str, entry: Raw) -> None:
        body, kind = str(entry.get("body") or ""), entry.get("type")
        by = Decider(author_of(str(entry.get("from"))), "ledger")
        record = await self._find(clarification)
        async with self._told(record, by):
            if kind == "question":
                asker = by.decided_by.removeprefix("agent:")
                ask = Ask(asker, body, record.to, record.topic, record.blocking, self.clock.now())
                await self.router.follow_up(clarification, ask)
            elif kind == "answer" and record.asked.is_confirmation:
                await self._tell(partial(self.notices.consent_refused, record, by.decided_by))
            elif kind == "answer":
                await self.router.answer(clarification, partial(_read, body), by, self.clock.now())
            elif kind == "resolution" and not record.asked.is_confirmation:
                await self.router.resolve(clarification, partial(_read, body), body, by, self.clock.now())
            elif kind == "escalation":
                await self.router.escalate(clarification, "by hand", body or None, by)
            else:
                await self._tell(
                    partial(self.notices.records_tampered, record.issue_number, [clarification], [])
                )

    async def _move(self, clarification: str, status: str) -> None:
        record = await self._find(clarification)
        by = Decider(f"ledger:issue-{record.issue_number}.json", "ledger")  # nobody put a name to it
        async with self._told(record, by):
            if status == "escalated":
                await self.router.escalate(clarification, "by hand", None, by)
            elif record.asked.is_confirmation:
                await self._tell(partial(self.notices.entry_refused, record, by.decided_by))
            elif status == "resolved":
                await self.router.resolve(clarification, partial(_read, ""), "", by, self.clock.now())
            else:
                await self.router.abandon(clarification, by)

    async def _find(self, clarification: str) -> Clarification:
        return await self.ledger.find(clarification, parse_id(clarification)[0])

    @asynccontextmanager
    async def _told(self, record: Clarification, by: Decider) -> AsyncIterator[None]:
        """Tells people that what another implementation wrote did not count: it came second, or does not fit."""
        try:
            yield
        except _AWAY:
            raise
        except ClarifyError as error:
            _log.info("another implementation's entry does not count", id=record.id, reason=str(error))
            await self._tell(partial(self.notices.entry_refused, record, by.decided_by))

    async def _tell(self, notice: Callable[[], Awaitable[None]]) -> None:
        await until_stored(notice, self.clock, _log, "notice delayed")

    # What changes

    async def _archive(self) -> None:
        """Once a day, looks at all files: those that are finished go to the archive."""
        while True:
            try:
                for issue in await asyncio.to_thread(lambda: list(self.files.issues())):
                    self._look_at(issue, self._now())
            except _AWAY as error:
                _log.warning("archiving ledger files later", reason=str(error))
            await self.clock.sleep(_DAY)

    async def _watch(self) -> None:
        """Looks at files that others write, beginning with those that changed while nobody looked."""
        while True:
            identity = await asyncio.to_thread(self.files.identity)
            if identity is None:
                await asyncio.sleep(_RETRY)
                continue
            watcher = awatch(
                self.files.directory,
                watch_filter=None,
                recursive=False,
                step=STEP,
                debounce=DEBOUNCE,
                rust_timeout=_STILL_THERE,
                yield_on_timeout=True,
            )
            change = asyncio.ensure_future(anext(watcher))
            try:
                await asyncio.sleep(0)  # its first step: from here on the system queues events
                await self._look_at_all()
                while True:
                    changes = await change
                    for name in {Path(path).name for _, path in changes}:
                        await self._written(name)
                    if not changes and await asyncio.to_thread(self.files.identity) != identity:
                        break
                    change = asyncio.ensure_future(anext(watcher))
            finally:
                change.cancel()
                await asyncio.wait([change])
                await watcher.aclose()

    async def _written(self, name: str) -> None:
        issue = self.files.listing.issue_of(name)
        if issue is not None and self.files.state(issue) != self._own.get(issue):
            self._look_at(issue, self._now())

    async def _follow_others(self) -> None:
        """Looks at what other processes write into the database."""
        async with aclosing(self.store.notices(CHANNEL)) as told:
            async for heard in told:
                for issue in heard or ():
                    self._look_at(int(issue), self._now() + _SOON)
                if heard:
                    continue
                try:
                    rows = await self.store.read(
                        "select ledgers.issue as issue from ledgers left join bridge on bridge.issue = ledgers.issue"
                        " where bridge.version is null or bridge.version <> ledgers.version"
                    )
                except StorageUnavailable as error:
                    _log.warning("looking at changed ledgers later", reason=str(error))
                    continue
                for row in rows:
                    self._look_at(row["issue"], self._now() + _SOON)

    async def _look_at_all(self) -> None:
        """Looks at each file that is not as the bridge left it."""
        while True:
            try:
                rows = await self.store.read("select issue, state from bridge")
                there = await asyncio.to_thread(self._states)
            except _AWAY as error:
                _log.warning("looking at the ledger files later", reason=str(error))
                await asyncio.sleep(_RETRY)
            else:
                break
        left = {row["issue"]: row["state"] for row in rows}
        for issue in left.keys() | there.keys():
            if left.get(issue) != there.get(issue):
                self._look_at(issue, self._now())

    def _states(self) -> dict[int, str]:
        found = {}
        for issue in self.files.issues():
            if (state := self.files.state(issue)) is not None:
                found[issue] = str(_text(state))
        return found


def _text(state: State | None) -> str | None:
    return None if state is None else f"{state[0]}:{state[1]}"


def _plain(file: Raw) -> Raw:
    return {
        **file,
        "clarifications": [dict(each) if isinstance(each, dict) else each for each in file["clarifications"]],
    }


def _read(body: str, record: Clarification) -> Answer:
    return from_text(record.asked, body)
