"""A process beside a running bot on its SQLite file, as the shell is one: asks and answers through the router, again and again.

FILE ISSUE COUNT    says as JSON what it asked and answered, by id, what it left open, and its slowest write in seconds
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from core.answers import from_text
from core.clarification import Answer, Ask, Clarification, Decider, Question
from core.clock import SystemClock
from core.router import Router
from core.transitions import NotOpen

PATIENCE = 10.0
SLA = timedelta(minutes=30)


def asked(number: int) -> Ask:
    words = f"Shell asks {number}"
    return Ask(
        "engineer", words, "architect", words, True, Question(received_at=datetime.now(UTC), via="shell")
    )


def read(body: str, record: Clarification) -> Answer:
    return from_text(record.asked, body)


async def main(file: str, issue: str, count: str) -> None:
    store = await open_storage(Path(file), beside=True)
    router = Router(DatabaseLedger(store), SystemClock(), SLA, lambda _: None, PATIENCE)
    did, slowest = dict[str, str](), 0.0
    by = Decider("agent:architect", "shell")
    for number in range(int(count)):
        began = time.monotonic()
        record = (await router.open(int(issue), asked(number))).record
        body = f"Shell answers {record.id}"
        with suppress(NotOpen):  # another implementation answered it in the file
            await router.answer(record.id, partial(read, body), by, datetime.now(UTC))
            did[record.id] = body
        slowest = max(slowest, time.monotonic() - began)
    last = (await router.open(int(issue), asked(int(count)))).record
    await store.close()
    sys.stdout.write(json.dumps({"did": did, "open": last.id, "slowest": slowest}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
