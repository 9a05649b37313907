"""On start: what the ledgers say, read once."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.errors import ClarifyError, LedgersAway, LedgerUnwritable
from core.files import reason
from core.index import Summary, summarize
from core.ledger import FileLedger
from core.records import is_unsettled, parse


@dataclass(slots=True)
class Scan:
    """All that needs something; the ledgers that could not be read, with why; the highest issue number, archived or not."""

    summaries: list[Summary] = field(default_factory=list)
    troubles: list[ClarifyError] = field(default_factory=list)
    highest_issue: int = 0


def scan(ledger: FileLedger, last_issue: int = 0) -> Scan:
    """Read every live ledger. Blocking. A ledger that cannot be read does not stop the others.

    `last_issue`: the reserved number that the storage knows to be given out last.
    """
    found = Scan()
    try:
        ledger.claim(last_issue)
    except OSError as error:
        found.troubles.append(LedgerUnwritable(last_issue, reason(error)))
    except LedgersAway as error:
        found.troubles.append(error)
        return found
    issues = list(ledger.issues())
    found.highest_issue = max((issue for issue, _ in ledger.archive.files()), default=0)
    for issue in issues:
        found.highest_issue = max(found.highest_issue, issue)
        try:
            ledger.forget(issue)
            items = ledger.news_now(issue) or []
        except ClarifyError as error:
            found.troubles.append(error)
            continue
        records = [record for item in items if (record := parse(item)) is not None]
        found.summaries += [summary for record in records if (summary := summarize(record)).needs_something]
        if len(records) < len(items) or any(
            is_unsettled(record) and not ledger.is_as_asked_now(record) for record in records
        ):
            ledger.forget(issue)  # the watch looks at it again, and tells of what is wrong with it
    return found
