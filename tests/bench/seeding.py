"""A bot's past: its storage as it is after a long time, written at once."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.storage.ledger import write
from bot.storage.tx import Tx
from core.clarification import Answer, Ask, Clarification, Decider, round_with
from core.records import dump, packed
from core.transitions import answered, opened, reply_settled, resolved
from tests.kit.builders import ask
from tests.kit.databases import make_tables
from workspace import Workspace
from workspace.seed import AGENTS, BOT_ID, BOT_USER
from workspace.state import Message

PRODUCER = "planner"
FIRST, _FIRST_DECIDED = 200_001, 300_001
_PER_AGENT = 20
_SLA = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Seed:
    """`size` characters of question each."""

    open: int
    decided: int = 0
    size: int = 1000


async def seed(folder: Path, workspace: Workspace, past: Seed) -> None:
    """One session, issue and posted card per clarification, as for sessions that name no issue."""
    storage, template = folder / "clarify.db", _closed(past.size)
    make_tables(storage)
    with sqlite3.connect(storage) as db:
        tx = Tx(db)
        db.execute("insert into counters values ('issue', ?)", (_FIRST_DECIDED + past.decided,))
        for record in _open(past):
            write(tx, record, packed(dump(record)), None)
            _remember(db, record, final=False)
            _show(workspace, record)  # what is over is not looked for
        for number in range(past.decided):
            record = _decided(_FIRST_DECIDED + number, past.open + number, template)
            write(tx, record, packed(dump(record)), None)
            _remember(db, record, final=True)
    db.close()


def _open(past: Seed) -> Iterator[Clarification]:
    now = datetime.now(UTC)
    for number in range(past.open):
        yield opened(FIRST + number, 1, _ask(number, past.size, now), now, _SLA)


def _closed(size: int) -> Clarification:
    """Asked, answered and delivered long ago; what all decided ones are made after."""
    now = datetime.now(UTC) - timedelta(days=40)
    who = Decider("user:slack/T0LOCAL/U0ADE", "slack", "T0LOCAL", "U0ADE")
    record = opened(_FIRST_DECIDED, 1, _ask(0, size, now), now, _SLA)
    record = answered(record, Answer(response=True, label="Yes"), who, now)
    return resolved(reply_settled(record, "confirmed", None), now)


def _decided(issue: int, number: int, template: Clarification) -> Clarification:
    own = {
        "session_id": f"seeded-session-{number}",
        "event_id": f"evt_seeded_{number}",
        "reply_token": f"seeded-token-{number}",
    }
    asked = round_with(template.current, **own)
    return template.model_copy(update={"id": f"CLR-{issue}-001", "issue_number": issue, "rounds": (asked,)})


def _ask(number: int, size: int, now: datetime) -> Ask:
    words = random.Random(number)  # noqa: S311 - the same words in every run
    text = " ".join(f"{words.getrandbits(24):06x}" for _ in range(size // 7 + 1))[:size]
    return ask(
        agent_id=f"seeded-{number // _PER_AGENT}",
        session_id=f"seeded-session-{number}",
        event_id=f"evt_seeded_{number}",
        reply_token=f"seeded-token-{number}",
        asked_at=now,
        received_at=now,
        expires_at=now + timedelta(days=1),
        question=text,
        kinds=("yes_no",),
    )


def _remember(db: sqlite3.Connection, record: Clarification, *, final: bool) -> None:
    asked, at, ts = record.asked, record.created.timestamp(), _ts(record)
    session = (PRODUCER, asked.session_id)
    db.execute(
        """insert into inbox (producer, event_id, session_id, issue, token, contents, received_at, at, live, state)
           values (?, ?, ?, ?, ?, ?, ?, ?, 1, 'done')""",
        (PRODUCER, asked.event_id, asked.session_id, record.issue_number, asked.reply_token, "w", at, at),
    )
    db.execute(
        "insert into sessions values (?, ?, ?, null, ?, ?, ?, 0)",
        (*session, asked.agent_id, record.issue_number, AGENTS, ts),
    )
    db.execute(
        """insert into messages (key, kind, clarification, round, producer, session_id, target, channel, ts, shown, final)
           values (?, 'card', ?, 1, ?, ?, ?, ?, ?, ?, ?)""",
        (
            f"card:{record.id}:1",
            record.id,
            *session,
            AGENTS,
            AGENTS,
            ts,
            str(record.revision),
            int(final),
        ),
    )


def _show(workspace: Workspace, record: Clarification) -> None:
    """The card in the workspace, so that what the bot looks up there is found."""
    workspace.channel(AGENTS).messages[_ts(record)] = Message(
        channel=AGENTS, ts=_ts(record), user=BOT_USER, text=record.id, bot_id=BOT_ID
    )


def _ts(record: Clarification) -> str:
    return f"{record.created.timestamp() - 3600 + record.issue_number / 1e6:.6f}"
