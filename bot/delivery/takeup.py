"""A storage that begins beside ledgers which are there: what they tell of sessions and of cards is kept in it.

What the storage alone knew is gone: where messages stand, which replies may have arrived. So every card is a post of
unknown outcome, which is looked up before it is repeated, and every reply on its way may have arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.delivery.messages import TAKEN_UP, Fresh, put
from bot.storage.store import Store, Tx


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A producer's session, and the issue whose ledger has its questions."""

    producer: str
    session_id: str
    agent_id: str
    agent_name: str | None
    issue: int


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A card that may be in Slack, in `channel`, since `asked_at` (seconds since 1970)."""

    card: Fresh
    channel: str
    asked_at: float


async def is_empty(store: Store) -> bool:
    """Whether a storage has never heard nor shown anything."""
    rows = await store.read(
        "select 1 from inbox union all select 1 from messages union all select 1 from sessions limit 1"
    )
    return not rows


async def take_up(
    store: Store,
    sessions: Sequence[KnownSession],
    cards: Sequence[InDoubt],
    notices: Sequence[Fresh],
    former: str,
) -> None:
    """Keep all of it, or nothing. `former`: the installation that posted the cards, empty if that is not known.

    Replies in the threads of the cards are owed since the oldest of their questions.

    Raises:
        StorageUnavailable: nothing was kept.
    """
    marks: dict[str, float] = {}
    for each in cards:
        marks[each.channel] = min(each.asked_at, marks.get(each.channel, each.asked_at))

    def work(db: Tx) -> None:
        db.executemany(
            "insert into sessions (producer, session_id, agent_id, agent_name, issue) values (?, ?, ?, ?, ?)",
            [(s.producer, s.session_id, s.agent_id, s.agent_name, s.issue) for s in sessions],
        )
        put(db, [each.card for each in cards])
        db.executemany(
            "update messages set intent_at = ?, channel = ?, shown = ? where key = ?",
            [(each.asked_at, each.channel, f"{TAKEN_UP}{former}", each.card.key) for each in cards],
        )
        db.executemany(
            "insert into watermarks values (?, ?)", [(channel, f"{at:.6f}") for channel, at in marks.items()]
        )
        put(db, notices)

    await store.write(work)
