"""What shares files with the bot: other implementations of the Clarification Protocol, other programs, a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tests.kit.databases import change_rows, row_held
from tests.kit.until import impatient
from tests.kit.world import World

Json = dict[str, Any]


@contextmanager
def held(stage: World, issue: int) -> Iterator[None]:
    """Hold a ledger file as the protocol has it: whoever creates the marker file exclusively is its writer."""
    lock = stage.folder / "ledgers" / f"issue-{issue}.json.lock"
    handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(handle, json.dumps({"pid": os.getpid(), "timestamp": "now", "agent": "architect"}).encode())
    os.close(handle)
    try:
        yield
    finally:
        lock.unlink()


async def another_writes(stage: World, change: Callable[[Json], None], issue: int = 100001) -> None:
    """Another implementation changes the first record of a ledger file, in place, and counts no revision."""
    if stage.bots:
        await stage.in_step(issue)
    path = stage.ledger_file(issue)
    while True:
        try:
            with held(stage, issue):
                whole = json.loads(path.read_text())
                change(whole["clarifications"][0])
                path.write_text(json.dumps(whole))
                return
        except FileExistsError:  # the bot is writing; the protocol says: try again
            await asyncio.sleep(0.01)


def change_row(stage: World, change: Callable[[Json], object], issue: int = 100001) -> None:
    """Somebody who can write the database changes the first record of an issue there."""

    def changed(records: list[Json]) -> list[Json]:
        change(records[0])
        return records

    change_rows(stage.rows, issue, changed)


def answers(body: str, *, role: str = "architect") -> Callable[[Json], None]:
    """The change that another implementation's `answer` makes."""

    def change(record: Json) -> None:
        record["status"] = "answered"
        entry = {"round": record["round"], "from": role, "type": "answer", "body": body}
        record["thread"].append(entry | {"timestamp": "2026-11-21T10:00:00.000Z"})

    return change


def in_a_persons_name(body: str, user: str, **claimed: Any) -> Callable[[Json], None]:
    """The change of a program that writes all that the bot writes when that person answers, or what is `claimed`."""

    def change(record: Json) -> None:
        name = f"user:slack/T0LOCAL/{user}"
        answers(body, role=name)(record)
        record["aaep"] |= {
            "response": body,
            "label": body.title(),
            "decidedBy": name,
            "answeredAt": "2026-11-21T10:00:00.000Z",
            "answeredBy": {"surface": "slack", "team": "T0LOCAL", "user": user},
            "reply": "sending",
        } | claimed

    return change


@asynccontextmanager
async def record_held(stage: World, *names: str) -> AsyncIterator[None]:
    """Another process is about to change these records, and does not finish; in SQLite that holds all of them. What is on
    its way to Slack has landed by then.
    """
    await stage.bots[0].board.messages.in_flight.settled()
    held = database_locked(stage) if stage.database is None else row_held(stage.database, *names)
    with impatient(*stage.routers), held:
        yield


@contextmanager
def database_locked(stage: World) -> Iterator[None]:
    """Another program has the bot's database to itself."""
    other = sqlite3.connect(stage.folder / "clarify.db", isolation_level=None)
    other.execute("begin exclusive")
    try:
        yield
    finally:
        other.execute("rollback")
        other.close()
