"""A bot of today on the files that the first version left: it goes on where that one stopped."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bot.retention.files import InFiles

from bot.errors import StorageError
from bot.retention import forget as forgetting
from bot.retention.upkeep import sweep_all
from bot.storage.store import Store
from core.ledger import FileLedger
from core.records import Subject

FIRST = Path(__file__).with_name("first_version")


def laid_out(folder: Path) -> Path:
    """The files of the first version in a folder; the storage among them."""
    shutil.copytree(FIRST / "ledgers", folder / "ledgers")
    with closing(sqlite3.connect(folder / "clarify.db")) as db:
        db.executescript((FIRST / "clarify.sql").read_text())
        assert db.execute("pragma user_version").fetchone() == (1,)
    return folder / "clarify.db"


def records(folder: Path) -> dict[str, dict[str, Any]]:
    found = [
        item
        for path in (folder / "ledgers").glob("issue-*.json")
        for item in json.loads(path.read_bytes())["clarifications"]
    ]
    return {item["id"]: item for item in found}


async def test_first_versions_rows_are_kept_only_so_long(tmp_path: Path) -> None:
    store = await Store.open(laid_out(tmp_path))
    try:
        month = timedelta(days=30).total_seconds()
        now = (await store.read("select max(received_at) as latest from inbox"))[0]["latest"] + 3 * month
        needed = Subject(
            frozenset({"CLR-42-002", "CLR-100001-001", "CLR-100002-001"}),
            frozenset({("planner", "sess_open"), ("planner", "sess_bare"), ("planner", "sess_sent")}),
        )
        await sweep_all(store, needed, now - month, now)
        gone = await sweep_all(store, needed, now, now + month)
        left = await store.read("select event_id from inbox where session_id in ('sess_done', 'sess_err')")
        cards = await store.read("select clarification from messages where kind = 'card' order by 1")
    finally:
        await store.close()
    assert left == []
    assert gone is not None
    assert [row["clarification"] for row in cards] == ["CLR-100001-001", "CLR-100002-001", "CLR-42-002"]


async def test_first_versions_session_can_be_forgotten_once_the_storage_was_opened(tmp_path: Path) -> None:
    database = laid_out(tmp_path)
    upkeep = FileLedger(tmp_path / "ledgers")
    try:
        with pytest.raises(StorageError, match="start the bot once"):
            forgetting.find(InFiles(upkeep.files, database), "sess_done")
        await (await Store.open(database)).close()
        found = forgetting.find(InFiles(upkeep.files, database), "sess_done")
        assert found.ids == ["CLR-42-001"]
        forgetting.forget(InFiles(upkeep.files, database), found)
    finally:
        upkeep.close()
    assert "Rotate" not in json.dumps(records(tmp_path)["CLR-42-001"])
    assert b"Rotate" not in database.read_bytes()
