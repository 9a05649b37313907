"""One visit to an issue on GitHub: look what is missing there, and do the next thing of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import structlog

from bot.delivery.github_memory import GithubMemory, Mirrored
from bot.github.api import GithubApi, Marked
from bot.github.outcomes import NotNow, Refused
from bot.github.plan import LABELS, Due, Plan, planned
from bot.github.words import comment
from core.clock import Clock
from core.records import Raw, parse

_log = structlog.get_logger("clarify.github")
# GitHub ends a request after 10 s: a comment whose outcome is not known is there by then, or will never be.
SETTLED_AFTER = 15.0


class Ledgers(Protocol):
    """Where the records are: `core.ledger.FileLedger`."""

    async def read(self, issue: int) -> list[Raw]: ...
    def issues(self) -> Iterator[int]: ...


class Visitor:
    """`since`: what was over before is not mirrored. `mention`: who is told of escalations."""

    def __init__(
        self,
        *,
        api: GithubApi,
        memory: GithubMemory,
        records: Ledgers,
        clock: Clock,
        mention: str | None,
        since: float,
    ) -> None:
        self._api = api
        self._memory = memory
        self._records = records
        self._clock = clock
        self._mention = mention
        self._since = datetime.fromtimestamp(since, UTC)
        self._listed: set[int] = set()  # issues whose comments we know
        self._created: set[str] = set()
        self._account: int | None = None
        self._asked_account = False
        self._searched = False
        self._alone: dict[int, str] = {}  # issues that GitHub refused, with what was in the ledger then
        self._told: dict[int, str] = {}

    async def visit(self, issue: int) -> bool:
        """Bring an issue one step further; whether all is as it should be, or cannot be.

        Raises:
            NotNow, StorageUnavailable, LockTimeout: to be tried again.
            LedgerUnreadable: the ledger has to change first.
        """
        raw = await self._records.read(issue)
        # Of a ledger with thousands of records this takes a second: nobody's click waits for it.
        state = await asyncio.to_thread(_state, raw)
        if self._alone.get(issue) == state:
            return True
        self._alone.pop(issue, None)
        try:
            await self._search()
            done = await self._step(issue, raw)
        except Refused as refused:
            self._alone[issue] = state
            self._tell(issue, str(refused))
            return True
        if done:
            self._told.pop(issue, None)
        return done

    async def _search(self) -> None:
        """Once per repository: find the labels that an earlier storage knew of, so that they are removed in time.

        Only of issues that we have a ledger of: others may use the repository, too.
        """
        if self._searched or await self._memory.searched():
            self._searched = True
            return
        numbers = {number for name in LABELS for number in await self._api.labelled(name)}
        if numbers:
            numbers &= await asyncio.to_thread(lambda: set(self._records.issues()))
        await self._memory.found(numbers)
        self._searched = True

    async def _step(self, issue: int, raw: list[Raw]) -> bool:
        mirrored = await self._memory.mirrored(issue)
        plan = await asyncio.to_thread(_plan, raw, mirrored, self._since)
        missing = next((due for due in plan.comments if not _is_there(mirrored, due.key)), None)
        if missing is None:
            await self._label(issue, plan.labels, mirrored)
            return True
        if issue in self._listed:
            await self._post(issue, missing)
        else:
            await self._look_up(issue, mirrored)
        return False

    async def _look_up(self, issue: int, mirrored: Mirrored) -> None:
        """Find what an earlier run, or a post whose outcome is not known, left on the issue."""
        now = self._clock.now().timestamp()
        open_since = max((p.begun_at for p in mirrored.posts.values() if p.comment is None), default=0.0)
        wait = open_since + SETTLED_AFTER - now
        if 0.0 < wait <= SETTLED_AFTER:  # more: the clock went back, and tells nothing
            raise NotNow("whether a comment arrived is not settled yet", wait)
        accounts = await self._accounts()
        for found in await self._api.marked(issue):
            if _is_ours(found, accounts) and not _is_there(mirrored, found.key):
                await self._memory.posted(issue, found.key, found.comment, now)
        self._listed.add(issue)

    async def _accounts(self) -> frozenset[int]:
        if not self._asked_account:
            self._account = await self._api.account()
            self._asked_account = True
        known = (self._account, await self._memory.author())
        return frozenset(account for account in known if account is not None)

    async def _post(self, issue: int, due: Due) -> None:
        body = comment(due.record, due.key, due.entry, self._mention)
        now = self._clock.now().timestamp()
        self._listed.discard(issue)  # until it is known what became of it
        begin = partial(self._begin, issue, due.key)
        try:
            made, author = await self._api.comment(issue, body, begin)
        except (NotNow, Refused) as trouble:
            if not (isinstance(trouble, NotNow) and trouble.unsure):
                await self._memory.never_began(issue, due.key)
                self._listed.add(issue)
            raise
        await self._memory.posted(issue, due.key, made, now)
        self._listed.add(issue)
        _log.info("mirrored", issue=issue, entry=due.key, comment=made)
        if author is not None and author != self._account:
            self._account = author
            await self._memory.written_by(author)

    async def _begin(self, issue: int, key: str) -> None:
        await self._memory.begin(issue, key, self._clock.now().timestamp())

    async def _label(self, issue: int, wanted: frozenset[str], mirrored: Mirrored) -> None:
        has = mirrored.labels
        if has is None:
            if not (wanted or mirrored.posts or mirrored.labelled):
                return  # nothing of ours was ever there
            has = await self._api.labels(issue) & LABELS.keys()
        if has != wanted:
            await self._memory.labelled(issue, None)  # until they are known to be there
            await self._change_labels(issue, sorted(wanted - has), sorted(has - wanted))
        if mirrored.labels != wanted:
            await self._memory.labelled(issue, wanted)

    async def _change_labels(self, issue: int, add: list[str], drop: list[str]) -> None:
        for name in drop:
            await self._api.remove_label(issue, name)
        if not add:
            return
        for name in add:
            await self._create(name)
        await self._api.add_labels(issue, add)

    async def _create(self, name: str) -> None:
        """Have the repository know a label. Where we may not, GitHub gives it colours of its own."""
        if name in self._created:
            return
        try:
            await self._api.create_label(LABELS[name])
        except Refused as refused:
            _log.warning("a label cannot be created on GitHub", label=name, reason=str(refused))
        self._created.add(name)

    def _tell(self, issue: int, reason: str) -> None:
        """Once per issue: it changes often, its trouble seldom."""
        if self._told.get(issue) != reason:
            self._told[issue] = reason
            _log.error("an issue on GitHub is left alone until it changes", issue=issue, reason=reason)


def _state(raw: list[Raw]) -> str:
    """Record by record: others get their turn in between."""
    content = hashlib.sha256()
    for item in raw:
        content.update(json.dumps(item, sort_keys=True).encode() + b"\n")
    return content.hexdigest()


def _plan(raw: list[Raw], mirrored: Mirrored, since: datetime) -> Plan:
    records = [record for item in raw if (record := parse(item)) is not None]
    return planned(records, mirrored.posts, since)


def _is_there(mirrored: Mirrored, key: str) -> bool:
    post = mirrored.posts.get(key)
    return post is not None and post.comment is not None


def _is_ours(found: Marked, accounts: frozenset[int]) -> bool:
    """An app's token may not ask whose it is: until a comment told, any app's marker counts, but no person's."""
    return found.author in accounts if accounts else found.by_app
