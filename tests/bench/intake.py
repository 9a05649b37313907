"""Durable intake: until every question is in its ledger and its inbox row is done."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path

from tests.bench.files import replace
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median, spread
from tests.kit.until import until

SESSIONS = 20


async def durable(folder: Path, rounds: int, each: int) -> list[Row]:
    """In each round 20 new sessions ask `each` questions, all at once; then the loop writes the same files.

    The card posts are paced as by default, so that they weigh what they weigh in life.
    """
    ours, loop, total = [], [], SESSIONS * each
    async with stage(folder / "intake") as on, bot(on, pace=1.0):
        for number in range(-1, rounds):
            mine = await _take_in(on, number, each)
            theirs = await asyncio.to_thread(_write_the_same, on, number, each)
            if number >= 0:
                ours.append(total / mine)
                loop.append(total / theirs)
            await asyncio.sleep(0.5)
    ratios = [mine / theirs for mine, theirs in zip(ours, loop, strict=True)]
    return [
        Row(
            f"durable intake, {total} questions of {SESSIONS} sessions, against a loop of fsynced file replaces",
            median(ratios),
            "{:.2f}×",
            f"{median(ours):.0f}/s (ratio {spread(ratios)})",
            f"{median(loop):.0f}/s ({spread(loop, '{:.0f}')})",
            goal=0.45,
            better="more",
        )
    ]


def _session(number: int, which: int) -> str:
    return f"ses-i{number}-{which}"


async def _take_in(on: Stage, number: int, each: int) -> float:
    """Seconds until the inbox has worked off what this round asks."""
    before = _done(on)
    began = time.perf_counter()
    for turn in range(each):
        for which in range(SESSIONS):
            token = f"i{number}-{which}-{turn}"
            await on.ask(token, session=_session(number, which), agent=f"intake-{number}-{which}")
    await until(lambda: _done(on) == before + SESSIONS * each, 60)
    return time.perf_counter() - began


def _done(on: Stage) -> int:
    with sqlite3.connect(f"file:{on.folder / 'clarify.db'}?mode=ro", uri=True) as db:
        found: int = db.execute("select count(*) from inbox where state = 'done'").fetchone()[0]
    db.close()
    return found


def _write_the_same(on: Stage, number: int, each: int) -> float:
    """The files of this round, as they grew, one after the other. The contents are made beforehand."""
    with sqlite3.connect(f"file:{on.folder / 'clarify.db'}?mode=ro", uri=True) as db:
        issues = [
            db.execute(
                "select issue from sessions where session_id = ?", (_session(number, which),)
            ).fetchone()[0]
            for which in range(SESSIONS)
        ]
    db.close()
    folder = on.folder / "loop"
    folder.mkdir(exist_ok=True)
    writes: list[tuple[Path, bytes]] = []
    ledgers = [json.loads((on.folder / "ledgers" / f"issue-{issue}.json").read_bytes()) for issue in issues]
    for turn in range(each):
        for issue, ledger in zip(issues, ledgers, strict=True):
            if len(ledger["clarifications"]) != each:
                raise RuntimeError(f"issue {issue} has not every question")
            grown = ledger | {"clarifications": ledger["clarifications"][: turn + 1]}
            content = json.dumps(grown, ensure_ascii=False, indent=2).encode()
            writes.append((folder / f"issue-{issue}.json", content))
    began = time.perf_counter()
    for path, content in writes:
        replace(path, content)
    return time.perf_counter() - began
