"""Synchronizes the ledger files of the Clarification Protocol with the records: writes decisions to the files, and imports what
other implementations add.

No click, card or reply waits for a file. The bridge updates a file within 100 ms of a change, then at most twice a second. It
replaces the file while it holds the marker, and never syncs it to disk, because it can write the file again. The feed says which
files are behind, and repeats that after a kill, so a start looks only at these files and at those that others changed.

To find out what others did, the bridge compares three states (`core.ledgeracts`): what it last wrote or read (stored in the
database), the file, and the record. Before it replaces a file, it stores the new content, so that after a kill neither the old
nor the new state looks like a change by someone else.

A file decides nothing about an action: it can neither accept nor reject. If a program changes what it may not change, the bridge
undoes that and tells people. It leaves records of another installation alone (`folder.owner_of`). Files that are older than the
database are imported before (`earlier`).
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import NamedTuple

import structlog
from watchfiles import awatch

from bot.api import (
    NOT_NOW,
    Counted,
    Host,
    Position,
    RecordChange,
    StorageUnavailable,
    Tx,
    following,
    until_stored,
)
from bot.integrations.ledgerfiles.folder import FolderSettings, blank, of_others, own, owner_of, without
from bot.integrations.ledgerfiles.notices import FileNotices
from core.clarification import Clarification, Decider, Entry, parse_id
from core.clock import event_or_time
from core.errors import LedgersAway, LedgerUnreadable, LedgerUnwritable
from core.files import DEBOUNCE, STEP, reason
from core.ledgeracts import (
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
    finished_at,
    gives_up,
    may_move,
    opening,
    rendered,
    unreadable,
)
from core.ledgerfiles import (
    FIRST_RESERVED,
    InvalidRecord,
    State,
    as_item,
    encode,
    identity,
    read_item,
    state_of,
)
from core.matching import author_of
from core.records import Raw, is_forgotten, unpacked

_log = structlog.get_logger("clarify.ledger")
_APART = 0.5  # seconds between writes of one file
_LOCK, _COMMIT = 2.0, 5.0  # seconds
_RETRY, _LONGEST_RETRY = 0.5, 10.0  # seconds
_TOLD_AFTER = 15.0  # seconds
_AT_ONCE = 4  # files exchanged at once
_MOST_LEFT = 1000  # changes that are looked at when the bot stops
_DAY = 86_400.0  # seconds
_STILL_THERE = 2000  # milliseconds between looks whether the folder is still the same
FOLDER = 0  # instead of an issue: the folder does not belong to us yet
# Instead of a file's state. Behind: look at the file, whatever its state is. Unknown: nobody knows how the bridge left the file,
# so it keeps only what it knows about records that the database no longer has.
BEHIND, _UNKNOWN = "behind", "unknown"
_AWAY = (*NOT_NOW, OSError, TimeoutError)


REMEMBER = (
    "insert into ledgerfiles (issue, base, state) values (:issue, :base, :state)"
    " on conflict (issue) do update set base = excluded.base, state = excluded.state"
)


def remembered(issue: int, states: Iterable[Mapping[str, Seen]], state: State | None) -> dict[str, object]:
    """Returns the row for a file that may be in one of these states. `state`: the file's; None if there is no file, or if the next
    start should look at it.
    """
    each_of = list(states)
    names = dict.fromkeys(name for each in each_of for name in each)
    base = {name: dict.fromkeys(each.get(name) for each in each_of) for name in names}
    text = json.dumps({name: [each and each.as_json() for each in left] for name, left in base.items()})
    return {"issue": issue, "base": text, "state": state}


class _Ours(NamedTuple):
    """What the database has about an issue: its records and the states in which the bridge may have left its file.
    `finished`: when all records were finished; inf if some are open, None if there are no records.
    """

    record: Raw
    finished: float | None
    base: Base
    state: str | None


class _Exchanged(NamedTuple):
    """The result of an exchange: what others did to the file and what it now contains, or what the bridge wrote.

    `left`: the ids of another installation's records in the file. `odd`: unreadable records that people don't know about yet.
    `is_new`: the bridge wrote the file.
    """

    acts: Sequence[Act]
    file: dict[str, Seen]
    state: State | None
    left: set[str]
    odd: Sequence[InvalidRecord]
    is_new: bool = False


@dataclass(eq=False, repr=False)  # holds what was asked
class Bridge:
    """Observes the feed to learn which files are behind. `run` does the rest until cancelled."""

    host: Host
    settings: FolderSettings
    gather: float = 0.05  # changes that follow within this time are written together
    part: str = "ledgers"
    undone: Position | None = field(default=None, init=False)
    _done: Callable[[], None] = field(default=lambda: None, init=False)
    _heard: Position = field(default=Position(0, 0), init=False)
    _behind: dict[int, Position] = field(default_factory=dict, init=False)  # since which change
    # By the loop's clock. Finding and removing the first is fast even with a hundred thousand files.
    _due: OrderedDict[int, float] = field(default_factory=OrderedDict, init=False)
    _wrote: dict[int, float] = field(default_factory=dict, init=False)
    _own: dict[int, State] = field(default_factory=dict, init=False)  # the states in which we left files
    _failing: dict[int, tuple[float, int, str]] = field(default_factory=dict, init=False)
    _is_told: bool = field(default=False, init=False)
    _folder: tuple[int, int] | None = field(default=None, init=False)  # the folder known to be ours
    _foreign: set[int] = field(default_factory=set, init=False)  # issues with another installation's records
    _busy: set[int] = field(default_factory=set, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        host = self.host
        self.name, self.store, self.clock, self.ledger, self.entries = (
            host.name,
            host.store,
            host.clock,
            host.ledger,
            host.entries,
        )
        self.files, self.notices = self.settings.files(), FileNotices(host.teller)

    def observe(self, change: RecordChange) -> None:
        """Schedules an update of the record's file."""
        issue, _ = parse_id(change.clarification)
        self._heard = change.place
        self._behind.setdefault(issue, change.place)
        self._note_undone()
        self._look_at(issue, max(self._now(), self._wrote.get(issue, 0.0) + _APART))

    def begin_anew(self, tx: Tx) -> None:
        """Marks all files to be looked at; the marks survive kills."""
        self._look_at_all_again(tx, BEHIND)

    def _look_at_all_again(self, tx: Tx, state: str) -> None:
        tx.run("update ledgerfiles set state = :state where issue > :folder", state=state, folder=FOLDER)
        tx.run(
            "insert into ledgerfiles (issue, base, state) select distinct issue, '{}', :state from clarifications"
            " where issue > :folder on conflict (issue) do nothing",
            state=state,
            folder=FOLDER,
        )

    def _note_undone(self) -> None:
        self.undone = next(iter(self._behind.values()), None)  # changes are heard in order

    def trouble(self) -> str | None:
        """Returns why a file has been behind its record for 15 seconds, or None if none has."""
        late = {issue: why for issue, (since, _, why) in self._failing.items() if self._is_late(since)}
        if not late:
            return None
        count, why = len(late.keys() - {FOLDER}), next(iter(late.values()))
        what = {0: "no ledger file is read", 1: "1 ledger file is behind"}
        return f"{what.get(count, f'{count} ledger files are behind')}: {why}"

    def _is_late(self, since: float) -> bool:
        return self._now() - since >= _TOLD_AFTER

    async def run(self, done: Callable[[], None]) -> None:
        """Synchronizes files and records until cancelled."""
        self._done = done
        if await asyncio.to_thread(self.files.identity) is None:
            await self._missing()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(), name="ledger files")
            group.create_task(self._archive(), name="finished ledger files")
            while True:
                self._wake.clear()
                now, free = self._now(), _AT_ONCE - len(self._busy)
                ready = (each for each, at in self._due.items() if at <= now and each not in self._busy)
                for issue in list(islice(ready, free)):
                    del self._due[issue]
                    self._busy.add(issue)
                    group.create_task(self._in_turn(issue), name=f"ledger file {issue}")
                if len(self._busy) == _AT_ONCE:
                    await self._wake.wait()
                    continue
                due = [at for issue, at in self._due.items() if issue not in self._busy]
                await event_or_time(self.clock, self._wake, min(due) - now if due else inf)

    async def settle(self) -> None:
        """Writes the latest decisions to the files, for 2 s at most. The next start imports what others did. Call it after `run`."""
        try:
            async with asyncio.timeout(_LOCK), asyncio.TaskGroup() as group:
                for change in (await following(self.store, self._heard, _MOST_LEFT))[0]:
                    self.observe(change)
                left = iter(dict.fromkeys([*self._behind, *self._due]))
                self._due.clear()
                for _ in range(_AT_ONCE):
                    group.create_task(self._all_in_turn(left))
        except* (StorageUnavailable, TimeoutError) as error:
            why = str(error.exceptions[0]) or f"not written within {_LOCK:g} s"
            _log.warning("ledger files follow at the next start", reason=why)

    def _look_at(self, issue: int, at: float) -> None:
        self._due[issue] = min(at, self._due.get(issue, at))
        self._wake.set()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _all_in_turn(self, issues: Iterator[int]) -> None:
        for issue in issues:
            await self._in_turn(issue, takes_in=False)

    async def _in_turn(self, issue: int, *, takes_in: bool = True) -> None:
        try:
            await self._follow(issue, takes_in=takes_in)
            if issue not in self._due:  # nothing has changed since
                await self._in_step(issue)
        except _AWAY as error:
            await self._later(issue, reason(error) if isinstance(error, OSError) else str(error))
        except Exception as error:  # noqa: BLE001 - one odd file must not stop the others
            _log.exception("cannot follow a ledger file", issue=issue)
            await self._later(issue, f"issue-{issue}.json: {type(error).__name__}, see the log")
        else:
            self._works(issue)
        finally:
            self._busy.discard(issue)
            self._wake.set()

    async def _in_step(self, issue: int) -> None:
        before = self.undone
        self._behind.pop(issue, None)
        self._note_undone()
        if self.undone != before:
            self._done()

    async def _later(self, issue: int, why: str) -> None:
        _log.warning("ledger file delayed", issue=issue, reason=why)
        tries = await self._fails(issue, why)
        self._look_at(issue, self._now() + min(_RETRY * 2 ** min(tries, 5), _LONGEST_RETRY))

    def _works(self, issue: int) -> None:
        self._failing.pop(issue, None)
        self._is_told &= bool(self._failing)

    async def _fails(self, issue: int, why: str) -> int:
        """Notes a failure, and tells people once if it lasts for 15 seconds. Returns how often it failed before. `issue` may be
        `FOLDER`.
        """
        since, tries, _ = self._failing.get(issue, (self._now(), 0, ""))
        self._failing[issue] = since, tries + 1, why
        if self._is_late(since) and not self._is_told:
            self._is_told = True
            folder = str(self.files.directory)
            await self._tell(partial(self.notices.behind, folder, why, self.clock.now()))
        return tries

    async def _follow(self, issue: int, *, takes_in: bool) -> None:
        """Imports what others did to the file; if they did nothing, writes it."""
        kept = await self._kept(issue)
        try:
            found = await self._exchanged(issue, kept)
        except LedgerUnreadable as error:
            if error.quarantined is None:
                raise LedgerUnwritable(issue, str(error)) from error
            await self._tell(partial(self.notices.file_unreadable, error))
            self._look_at(issue, self._now())
            return
        if found.left and issue not in self._foreign:
            self._foreign.add(issue)
            _log.warning(
                "another installation's records are left alone", issue=issue, records=len(found.left)
            )
        if found.state is not None:
            self._own[issue] = found.state
            self._wrote[issue] = self._now()
        else:  # there is no file
            self._own.pop(issue, None)
            self._wrote.pop(issue, None)
        if found.is_new:
            # The file was stored as being in the old or the new state. Now it is in the new one.
            known = remembered(issue, [found.file], found.state)
            await self.store.write_soon(lambda tx: tx.run(REMEMBER, **known))
        if takes_in:
            await self._take_in(issue, found)

    async def _take_in(self, issue: int, found: _Exchanged) -> None:
        if found.odd:
            for each in found.odd:
                _log.warning("cannot read a ledger record", issue=issue, id=each.name, fields=each.fields)
            await self._tell(partial(self.notices.records_unreadable, found.odd))
        undone = [act for act in found.acts if isinstance(act, Rewrites | Removes)]
        if undone:
            rewritten = [act.clarification for act in undone if isinstance(act, Rewrites)]
            removed = [act.clarification for act in undone if isinstance(act, Removes)]
            await self._tell(partial(self.notices.undone, issue, rewritten, removed))
        renumbered = dict[str, str]()
        for act in found.acts:
            await self._do(act, renumbered)
        if renumbered:
            await self._tell(partial(self.notices.renumbered, issue, renumbered))
        if found.acts or found.odd:
            # Remember that we read this; then correct the file.
            await self._remember(issue, [found.file], None)
            self._look_at(issue, self._now() + (_APART if undone else 0))

    async def _exchanged(self, issue: int, kept: _Ours) -> _Exchanged:
        """Exchanges a file in a thread. If cancelled, waits for the thread, which needs the database until it ends."""
        loop = asyncio.get_running_loop()

        def remember(states: Sequence[dict[str, Seen]], state: State | None) -> None:
            stored = asyncio.run_coroutine_threadsafe(self._remember(issue, states, state), loop)
            stored.result(_COMMIT)

        exchange = asyncio.ensure_future(
            asyncio.to_thread(self._exchange, issue, kept, remember, self.clock.now())
        )
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            await asyncio.wait({exchange})
            exchange.exception()  # marks it as seen
            raise

    def _exchange(
        self,
        issue: int,
        kept: _Ours,
        remember: Callable[[Sequence[dict[str, Seen]], State | None], None],
        now: datetime,
    ) -> _Exchanged:
        """Reads a file and replaces or archives it while holding its marker. Blocking."""
        self.files.require()
        is_ours, items = self._is_ours(issue), kept.record["clarifications"]
        gone = self._blank(issue, kept, is_ours=is_ours)
        if items and issue >= FIRST_RESERVED:
            self.files.numbers.give_out(issue)
        with self.files.hold(issue, _LOCK) as check:
            file, live, state = self.files.open(issue, check), self.files.path(issue), self.files.state(issue)
            left = set() if is_ours else of_others(file["clarifications"], kept.base)
            odd = unreadable(issue, file["clarifications"], left | {identity(item) for item in items})
            mine, record = without(file, left)["clarifications"], without(kept.record, left)
            finished = finished_at(mine) if kept.finished is None else kept.finished
            is_old = not left and finished <= (now - self.settings.archive_after).timestamp()
            # In another installation's folder, a missing file may have stayed in an earlier folder.
            base = kept.base if is_ours or state is not None else {}
            found = list(acts(base, mine, record["clarifications"]))
            told = dict.fromkeys(odd, Seen("", "odd", ()))
            before, wanted = base_of(mine) | told, rendered(file, record)
            news = [each for name, each in odd.items() if name not in kept.base]
            if found or news or not wanted["clarifications"]:
                return _Exchanged(found, before, state, left, news)
            is_new = False
            if wanted != _plain(file) or (state is None and not is_old):
                after = base_of(without(wanted, left)["clarifications"]) | told
                with self.files.replacing(issue, live, encode(wanted), durable=False) as draft:
                    was = before | {
                        name: after[name] for name in gone & after.keys()
                    }  # no digests of its words
                    remember([was, after], state := state_of(draft))
                    check()
                self.files.archive.drop(issue, wanted)
                before, is_new = after, True
            elif kept.state != state:
                remember([before], state)
            if is_old and state is not None:
                remember([before], state := None)
                check()
                self.files.archive.put(issue, live, wanted)
            return _Exchanged([], before, state, left, [], is_new)

    def _is_ours(self, issue: int) -> bool:
        """Returns whether the folder is ours. If the file that says so was removed, writes it again.

        Raises:
            LedgerUnwritable: the folder has no owner, or is not the one that was ours.
        """
        if owner := owner_of(self.files):
            return owner == self.store.installation
        if self.files.identity() != self._folder:
            raise LedgerUnwritable(issue, f"{self.files.private} no longer says whose folder it is")
        own(self.files, self.store.installation)
        return True

    def _blank(self, issue: int, kept: _Ours, *, is_ours: bool) -> set[str]:
        """Removes the text of forgotten records from archived files. Returns the names of these records."""
        items = kept.record["clarifications"]
        records = [record for record in map(read_item, items) if record is not None]
        names = {record.id for record in records if is_forgotten(record)}
        names = names if is_ours else names & kept.base.keys()
        if names and any(number == issue for number, _ in self.files.archive.files()):
            blank(self.files, issue, names)
        return names

    async def _kept(self, issue: int) -> _Ours:
        rows = await self.store.read(
            "select clarifications.id as id, body, closed, base, state from installation"
            " left join ledgerfiles on ledgerfiles.issue = :issue left join clarifications on clarifications.issue = :issue"
            " order by number",
            issue=issue,
        )
        records = list[Raw]()
        for row in rows:
            with suppress(ValueError):  # someone broke that row; the watch reports it
                records += [as_item(unpacked(row["body"]))] if row["id"] is not None else []
        closed = [row["closed"] for row in rows if row["id"] is not None]
        base = json.loads(rows[0]["base"] or "{}")
        if rows[0]["state"] == _UNKNOWN:
            there = {row["id"] for row in rows}
            base = {name: left for name, left in base.items() if name not in there}
        return _Ours(
            {"issueNumber": issue, "clarifications": records},
            inf if None in closed else max(closed, default=None),
            {name: [each and Seen.from_json(each) for each in left] for name, left in base.items()},
            rows[0]["state"],
        )

    async def _remember(self, issue: int, states: Sequence[dict[str, Seen]], state: State | None) -> None:
        await self.store.run(REMEMBER, **remembered(issue, states, state))

    # What others did

    async def _do(self, act: Act, renumbered: dict[str, str]) -> None:
        match act:
            case Opens(item):
                await self._open(item, renumbered)
            case Adds(clarification, entries, abandons):
                await self._add(clarification, entries, abandons=abandons)
            case Moves(clarification, status):
                await self._move(clarification, status)

    async def _open(self, item: Raw, renumbered: dict[str, str]) -> None:
        begun, theirs = opening(item)
        taken = await self.entries.open(begun)
        _log.info("another implementation asks", id=taken.id, named=begun.id)
        if taken.id != begun.id:
            renumbered[begun.id] = taken.id
        await self._add(taken.id, theirs.thread[1:], abandons=gives_up(theirs))
        if may_move((await self.ledger.find(taken.id)).status, theirs.status):
            await self._move(taken.id, theirs.status)

    async def _add(self, clarification: str, entries: Sequence[Entry], *, abandons: bool) -> None:
        for place, entry in enumerate(entries, 1):
            record = await self.ledger.find(clarification)
            by = Decider(author_of(entry.from_), "ledger")
            is_last = place == len(entries)
            counted = await self.entries.add(record, entry, by, abandons=abandons and is_last)
            await self._told(record, by, counted)

    async def _move(self, clarification: str, status: str) -> None:
        record = await self.ledger.find(clarification)
        by = Decider(f"ledger:issue-{record.issue_number}.json", "ledger")  # the file doesn't say who did it
        await self._told(record, by, await self.entries.move(record, status, by))

    async def _told(self, record: Clarification, by: Decider, counted: Counted) -> None:
        """Tells people if the entry did not count."""
        if counted == "refused":
            await self._tell(partial(self.notices.refused, record, by.decided_by))
        elif counted == "for people":
            await self._tell(partial(self.notices.for_people, record, by.decided_by))

    async def _tell(self, notice: Callable[[], Awaitable[None]]) -> None:
        await until_stored(notice, self.clock, _log, "notice delayed")

    # What changes

    async def _archive(self) -> None:
        """Once a day, schedules the files whose records are all finished, so that they move to the archive."""
        while True:
            since = (self.clock.now() - self.settings.archive_after).timestamp()
            try:
                for row in await self.store.read(
                    "select issue from ledgerfiles where state is not null and not exists (select 1 from clarifications"
                    " where clarifications.issue = ledgerfiles.issue and (closed is null or closed > :since))",
                    since=since,
                ):
                    self._look_at(row["issue"], self._now())
            except StorageUnavailable as error:
                _log.warning("archiving ledger files later", reason=str(error))
            await self.clock.sleep(_DAY)

    async def _watch(self) -> None:
        """Watches for files that others write. Starts with those that changed while nothing was watching."""
        while True:
            try:
                identity = await asyncio.to_thread(self.files.identity)
                if identity is None:
                    await self._missing()
                else:
                    await self._watch_while(identity)
                    continue
            # RuntimeError: of the watcher, as where the system has no watches left
            except (*_AWAY, RuntimeError) as error:
                _log.warning("looking at the ledger files later", reason=str(error))
                await self._fails(FOLDER, reason(error) if isinstance(error, OSError) else str(error))
            await asyncio.sleep(_RETRY)

    async def _watch_while(self, identity: tuple[int, int]) -> None:
        """Watches the folder. Returns when another folder has taken its place."""
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
            await asyncio.sleep(0)  # runs its first step: from here on, the system queues events
            await self._look_at_all(identity)
            self._works(FOLDER)
            while True:
                changes = await change
                for name in {Path(path).name for _, path in changes}:
                    await self._written(name)
                if not changes and await asyncio.to_thread(self.files.identity) != identity:
                    return
                change = asyncio.ensure_future(anext(watcher))
        finally:
            change.cancel()
            await asyncio.wait([change])
            if not change.cancelled():
                change.exception()  # marks it as seen
            await watcher.aclose()

    async def _missing(self) -> None:
        """Creates the folder, unless it contained files before: then its disk is not mounted."""
        try:
            if await self.store.read_one("select 1 from ledgerfiles where base <> '{}' limit 1") is None:
                await asyncio.to_thread(self.files.make)
                return
            why = str(LedgersAway(self.files.directory))
        except _AWAY as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
        await self._fails(FOLDER, why)

    async def _written(self, name: str) -> None:
        def look() -> tuple[int | None, State | None]:
            issue = self.files.listing.issue_of(name)
            return issue, None if issue is None else self.files.state(issue)

        issue, state = await asyncio.to_thread(look)  # a disk may be far away
        if issue is not None and state != self._own.get(issue):
            self._look_at(issue, self._now())

    async def _look_at_all(self, identity: tuple[int, int]) -> None:
        """Schedules each file that is not as the bridge left it. If the folder has no owner (a new folder, for example), its missing
        files don't count as removed: the bridge writes all of them.
        """
        owner, ours = await asyncio.to_thread(owner_of, self.files), self.store.installation
        to_do = await self.store.read_one("select 1 from ledgerfiles where issue = :folder", folder=FOLDER)
        is_to_be_ours = to_do is not None
        if not owner and not is_to_be_ours:
            await self.store.write(partial(self._look_at_all_again, state=_UNKNOWN))
        if not owner or (is_to_be_ours and owner != ours):
            await asyncio.to_thread(own, self.files, owner := ours)
        self._folder = identity if owner == ours else None
        if is_to_be_ours:
            await self.store.run("delete from ledgerfiles where issue = :folder", folder=FOLDER)
        await self._drop_drafts()
        rows = await self.store.read("select issue, state from ledgerfiles where state is not null")
        there = await asyncio.to_thread(self._states)
        left = {row["issue"]: row["state"] for row in rows}
        for issue in left.keys() | there.keys():
            if left.get(issue) != there.get(issue):
                self._look_at(issue, self._now())

    async def _drop_drafts(self) -> None:
        """Removes half-written files of killed processes, which may contain text that was forgotten since."""

        def drop(issue: int) -> None:
            with self.files.hold(issue, _LOCK):
                self.files.drop_drafts(issue)

        for issue in await asyncio.to_thread(self.files.drafts):
            try:
                await asyncio.to_thread(drop, issue)
            except _AWAY as error:  # its holder is writing it, or has died; then the next start removes it
                _log.warning("a draft of a ledger file stays", issue=issue, reason=str(error))

    def _states(self) -> dict[int, State]:
        self.files.require()
        found = {issue: self.files.state(issue) for issue, _ in self.files.listing.ledgers()}
        return {issue: state for issue, state in found.items() if state is not None}


def _plain(file: Raw) -> Raw:
    return {
        **file,
        "clarifications": [dict(each) if isinstance(each, dict) else each for each in file["clarifications"]],
    }
