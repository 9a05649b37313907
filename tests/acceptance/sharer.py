"""A process of ours that writes ledgers through the router, told what to do by its arguments.

    write FOLDER ISSUE NAME COUNT   ask, and answer what others ask, COUNT times
    hold FOLDER ISSUE NAME          say "held" inside a decision; go on with it at a line of input; then add a record

Says as JSON what it did, as `foreign.py` does; `error`: the code of what was raised.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from core.answers import from_text
from core.clarification import Ask, Clarification, Decider, NotOpen, opened
from core.clock import SystemClock
from core.errors import ClarifyError
from core.ledger import LOCK_TIMEOUT, FileLedger
from core.records import Book
from core.router import Router

PATIENCE = 10.0
SLA = timedelta(minutes=30)
_T = TypeVar("_T")
Did = dict[str, Any]


class Patient(FileLedger):
    """Waits for a lock as long as a program can that nobody waits for."""

    async def transact(
        self,
        issue: int,
        decide: Callable[[Book], _T],
        timeout: float = LOCK_TIMEOUT,
        written: Callable[[], None] | None = None,
    ) -> _T:
        return await super().transact(issue, decide, max(timeout, PATIENCE), written)


def ask(name: str, number: int) -> Ask:
    return Ask(
        agent_id=name,
        question=f"{name} asks {number}",
        to="architect",
        topic=f"{name} asks {number}",
        blocking=True,
        received_at=datetime.now(UTC),
        via="shell",
    )


async def write(ledger: FileLedger, issue: int, name: str, count: int) -> Did:
    router = Router(ledger, SystemClock(), SLA, lambda _: None)
    records: dict[str, str] = {}
    answers: dict[str, str] = {}
    for number in range(count):
        record = (await router.open(issue, ask(name, number))).record
        records[record.id] = record.topic
        answers.update(await _answer(ledger, router, issue, name))
    return {"records": records, "answers": answers}


async def _answer(ledger: FileLedger, router: Router, issue: int, name: str) -> dict[str, str]:
    """Answer what is asked of engineers, unless somebody was quicker."""
    done = {}
    for item in await ledger.read(issue):
        if item["to"] != "engineer" or item["status"] != "pending":
            continue
        body = f"{name} answers {item['id']}"

        def read(record: Clarification, body: str = body) -> Any:
            return from_text(record.asked, body)

        try:
            await router.answer(item["id"], read, Decider(f"agent:{name}", "shell"), datetime.now(UTC))
        except NotOpen:
            continue
        done[item["id"]] = body
    return done


async def hold(ledger: FileLedger, issue: int, name: str) -> Did:
    def decide(book: Book) -> Clarification:
        say("held")
        sys.stdin.readline()
        now = datetime.now(UTC)
        return book.put(opened(issue, book.next_seq(), ask(name, 0), now, SLA))

    record = await ledger.transact(issue, decide)
    return {"records": {record.id: record.topic}, "answers": {}}


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main(command: str, folder: str, issue: str, name: str, count: str = "0") -> None:
    ledger = Patient(Path(folder))
    try:
        if command == "write":
            did = await write(ledger, int(issue), name, int(count))
        else:
            did = await hold(ledger, int(issue), name)
        say(json.dumps(did))
    except ClarifyError as error:
        say(json.dumps({"error": error.code}))
    finally:
        ledger.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
