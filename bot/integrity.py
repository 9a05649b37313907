"""Watches what makes decisions verifiable: that records agree with their receipts, that each decision gets its receipt, and that
no other key signs unnoticed. Tells the fallback channel, or pages the person on call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import structlog

from bot.base import Base
from bot.decisions.log import is_vouched_for
from bot.intake.build import IntakeParts
from bot.signing import Signing, settled
from bot.slack.socket import Background
from bot.storage.ledger import DatabaseLedger
from bot.storage.store import until_stored
from core.clarification import Clarification, parse_id
from core.errors import LedgersAway, RecordUnreadable
from core.summary import Summary

_log = structlog.get_logger("clarify")
_KEY_RETRY = 5.0  # seconds between attempts to read a signing key


@dataclass(eq=False, repr=False)
class Integrity:
    """Tells of each changed or unreadable record once, and signs the receipts that are owed. `signing`: None: decisions get no
    receipts. `later`: runs work in the background.
    """

    base: Base
    told: IntakeParts
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
            await self._notify(partial(self.told.notices.another_key, signing.kid))

    def sign_what_is_owed(self, known: Iterable[Summary]) -> None:
        """Makes, in the background, the receipts that no one has made yet. `known`: the records that need something."""
        for record in known:
            if record.round > 1 or not (record.is_open or record.is_signed):
                self.later.run(self.told.owing.sign_in_time(record.id), "receipt that is owed")
        if self.signing is not None and (self.signing.owes_some or self.signing.trouble):
            self.later.run(self._receipts_owed(self.signing), "receipts that are owed")

    async def _receipts_owed(self, signing: Signing) -> None:
        """Waits until the signing key can be read, then makes the receipts of what was decided meanwhile."""
        if (trouble := signing.trouble) is not None:
            await self._notify(partial(self.told.notices.key_unreadable, trouble))
        while not await asyncio.to_thread(signing.load):
            await self.base.clock.sleep(_KEY_RETRY)
        note = partial(signing.note, self.base.store, self.base.clock.now())
        await until_stored(note, self.base.clock, _log, "cannot store the public key yet")
        await self.check_key()
        try:
            async with aclosing(self.ledger.every()) as every:
                async for some in every:
                    for record in some.records:
                        await self.told.owing.sign_in_time(record.id)
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
            notice = partial(self.told.notices.records_tampered, issue, ids)
            self.later.run(self._notify(notice), "tell of changed records")

    def _tell_of_unreadable(self, clarification: str) -> None:
        """Pages on-call about a record that cannot be read."""
        if clarification in self._told_of:
            return
        self._told_of.add(clarification)
        _log.error("cannot read a record", id=clarification)
        trouble = RecordUnreadable(clarification, parse_id(clarification)[0])
        notice = partial(self.told.notices.ledger_unreadable, trouble)
        self.later.run(self._notify(notice), "tell of an unreadable record")

    async def _notify(self, notice: Callable[[], Awaitable[None]]) -> None:
        """Stores a notice; retries while the storage is unavailable."""
        await until_stored(notice, self.base.clock, _log, "notice delayed")
