"""Removes forgotten records from the ledger files. Blocking."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path

from bot.integrations.ledgerfiles.acts import named
from core.files import is_odd, read_regular
from core.ledgerfiles import LedgerFiles
from core.ledgerformat import blanked, decode
from core.records import Raw


def blank(files: LedgerFiles, issue: int, names: Container[str], timeout: float) -> None:
    """Removes what the records `names` said from the files of an issue, live and archived.

    A running bot does it as its files follow: beside it, nobody else may, or the bot takes that for another program's act.

    Raises:
        LockTimeout: another program holds the ledger. LedgerUnwritable: the disk refused.
    """
    files.rewrite(issue, partial(_blank, names), timeout)


def delete(quarantined: Sequence[Path]) -> int:
    """Deletes quarantined files, which cannot be read and may contain anything. Returns how many."""
    found = [path for path in quarantined if not is_odd(path)]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def leftovers(files: LedgerFiles, issue: int, names: Container[str]) -> list[Path]:
    """Returns the files of an issue, live, archived or half written, that may still contain what the records `names` said."""
    found = [*files.by_issue().get(issue, []), *files.drafts().get(issue, [])]
    return [path for path in found if _may_contain(path, issue, names)]


def _may_contain(path: Path, issue: int, names: Container[str]) -> bool:
    try:
        return _blank(names, decode(read_regular(path), issue))
    except (OSError, ValueError):
        return True


def _blank(names: Container[str], raw: Raw) -> bool:
    before = raw["clarifications"]
    raw["clarifications"] = [blanked(item) if name in names else item for name, item in named(before)]
    return bool(raw["clarifications"] != before)
