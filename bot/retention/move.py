"""Moves everything into another database, as it is: the bot continues there as if it had only been restarted. Blocking.

Unlike a restore, nothing has happened since: numbers continue, messages and ledger files stay as they are. No moment of it
leaves two databases that a bot starts on, whenever it is interrupted:

1. The target gets the rows, marked as incomplete (`moved_from`): no bot starts on it.
2. The source is marked as moved (`moved_to`): no bot and no command starts on it any more.
3. The target loses its mark.

The source takes no writes meanwhile. The same call again continues an interrupted move: before 2 from the beginning, after it
with 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.errors import BackupError
from bot.retention.backup import DATABASE, aside_name
from bot.storage.beside import Columns, InSqlite
from bot.storage.outside import Kept
from bot.storage.store import require_here
from bot.storage.tx import NUMBERED, Row, Tx


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows were moved, by table. `aside`: where the target's previous contents are now, if it had any."""

    rows: Mapping[str, int]
    aside: str | None


def move(source: Kept, target: Kept, *, now: datetime, replace: bool) -> Moved:
    """Copies everything from `source` to `target`, compares it, and has bots start on `target` alone.

    Raises:
        BackupError: the target holds data and `replace` is False, or is the source itself; or something cannot be copied.
        StorageMoved: the source has moved to another database already.
        StorageInUseError: a bot runs on one of them.
        StorageUnavailable: one of them cannot be used. Unless it says otherwise, the same call may be repeated.
    """
    if source.name == target.name:
        raise BackupError(f"{source.name} is the database that is in use already.")
    with TemporaryDirectory() as folder:
        draft = Path(folder) / DATABASE
        with source.held(draft) as tx:
            compared, installation = _look(InSqlite(draft))
            is_unfinished = target.unfinished() == installation["id"]
            aside = None
            if installation["moved_to"] != target.name or not is_unfinished:
                require_here(source.name, installation)

                def prepare(new: Tx) -> None:
                    new.run("update installation set moved_from = :name", name=source.name)

                keep = aside_name("move", now) if replace else None
                aside = target.put(draft, prepare, aside=keep, drop=is_unfinished)
            rows = _compared(source, target, compared)
            tx.run("update installation set moved_to = :name", name=target.name)
        target.change(lambda new: new.run("update installation set moved_from = null"))
    return Moved(rows, aside)


def _look(copied: InSqlite) -> tuple[Columns, Row]:
    """Returns what the move must not change, and the installation."""
    own = {("installation", "moved_to"), ("installation", "moved_from"), *NUMBERED.items()}
    compared = {
        table: [name for name in names if (table, name) not in own]
        for table, names in copied.columns().items()
    }
    with copied.read_only() as tx:
        (row,) = tx.rows("select id, moved_to, moved_from from installation")
    return compared, row


def _compared(source: Kept, target: Kept, wanted: Columns) -> Mapping[str, int]:
    """Returns how many rows each table has.

    Raises:
        BackupError: a table differs.
    """
    before, after = source.contents(wanted), target.contents(wanted)
    for table, of in before.items():
        if of != after[table]:
            raise BackupError(
                f"The table {table} in {target.name} differs from the original. {source.name} is unchanged; run the command again."
            )
    return {table: of.rows for table, of in before.items()}
