"""Tells people about problems with ledger files, once each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.api import Teller, as_name, as_value, listed, plain
from core.clarification import Clarification
from core.errors import LedgerUnreadable
from core.escalation import NewIncident
from core.ledgerfiles import InvalidRecord

_NAME, _FIELDS = 80, 300  # characters


@dataclass(frozen=True, slots=True)
class FileNotices:
    """Stores notices for people. Each method raises StorageUnavailable if nothing was stored."""

    teller: Teller

    async def file_unreadable(self, error: LedgerUnreadable) -> None:
        """Pages the person on call, because questions in the file may go unnoticed."""
        await self.teller.page(
            NewIncident(f"ledger:{error.name}", str(error), f"{error.what} cannot be read", "", None)
        )

    async def records_unreadable(self, odd: Sequence[InvalidRecord]) -> None:
        """Pages the person on call about open records in one file, because nobody sees their questions."""
        waiting = [each for each in odd if not each.is_over]
        if not waiting:
            return
        issue, names = waiting[0].issue, [each.name for each in waiting]
        fields = ", ".join(dict.fromkeys(field for each in waiting for field in each.fields))[:_FIELDS]
        if len(names) == 1:
            what, which, who, its, more = f"Record {names[0]}", names[0], "A record", "its question is", ""
        else:
            which, who, its, more = (
                _digest(names),
                f"{len(names)} records",
                "their questions are",
                listed(names),
            )
            what = who
        incident = NewIncident(
            f"ledger:issue-{issue}.json:{which}",
            f"{what} of issue-{issue}.json cannot be read, so {its} not posted. Fields: {fields}",
            f"{who} of issue {issue} cannot be read",
            more,
            waiting[0].agent_id,
        )
        await self.teller.page(incident)

    async def undone(self, issue: int, rewritten: Sequence[str], removed: Sequence[str]) -> None:
        """Tells operators that another program rewrote or removed records in a file."""
        ids = [*rewritten, *removed]
        what = "it" if len(ids) == 1 else f"{len(rewritten) or len(removed)} records"
        did = f"rewrote {what} in" if rewritten else f"removed {what} from"
        if rewritten and removed:
            did = f"rewrote {len(rewritten)} and removed {len(removed)} records in"
        told = (
            f"Another program {did} issue-{issue}.json. This had no effect, and the bot restored the file. Find out which program "
            "writes to the folder."
        )
        verbs = " or ".join(verb for verb, of in (("changed", rewritten), ("deleted", removed)) if of)
        which = f"{ids[0]} was" if len(ids) == 1 else f"{len(ids)} records of issue {issue} were"
        await self.teller.operators(
            f"undone:{issue}:{_digest([*rewritten, '', *removed])}",
            f"{which} {verbs} by another program",
            [told] if len(ids) == 1 else [told, f"They are {listed(ids)}."],
        )

    async def renumbered(self, issue: int, ids: Mapping[str, str]) -> None:
        """Tells operators that another program's questions got new ids. `ids`: the new id of each id that the program wrote."""
        told = (
            f"In issue-{issue}.json, a question had an ID that was already taken. Both questions are in the file. If the program that "
            "asked waits for an answer under its own ID, tell it the new one."
        )
        await self.teller.operators(
            f"renumbered:{issue}:{_digest([*ids.values()])}",
            "A question in a ledger file has a new ID",
            [listed([f"{old} is now {new}" for old, new in ids.items()]), told],
        )

    async def behind(self, folder: str, reason: str, at: datetime) -> None:
        """Tells operators that files are behind. `at`: when the bot noticed."""
        told = (
            f"The ledger files in {as_value(folder, _NAME)} are behind: {plain(reason)} Questions and answers work as always. Other "
            "programs that read the files see changes as soon as the bot can write them."
        )
        await self.teller.operators(f"files:{at.timestamp():.0f}", "Ledger files are behind", [told])

    async def refused(self, record: Clarification, by: str) -> None:
        """Says in a question's thread that an entry in the file did not count."""
        told = (
            f"{as_name(by, _NAME)} wrote an entry to issue-{record.issue_number}.json that does not count: it came too late, or does "
            "not fit the question. The bot corrected the file."
        )
        await self.teller.thread(record, "entry", f"Entry ignored · {record.id}", [told])

    async def for_people(self, record: Clarification, by: str) -> None:
        """Says in a question's thread that a program wrote a decision about an action to the file, and that it did not count."""
        told = (
            f"A program wrote to issue-{record.issue_number}.json that {as_name(by, _NAME)} decided this. That does not count: people "
            "decide in Slack. Nothing has changed."
        )
        await self.teller.thread(record, "consent", f"Not accepted · {record.id}", [told])


def _digest(texts: Sequence[str]) -> str:
    return hashlib.blake2b(" ".join(texts).encode(), digest_size=8).hexdigest()
