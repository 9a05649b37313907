"""What the storage holds of a session, or of one clarification, is forgotten: in one transaction, also beside a bot.

Names that keep things from being done twice (ids of events, keys of messages) stay; words and people go. What stands
in Slack is noted in `erasures`: `bot.delivery.erasing` carries that out. Blocking.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.errors import StorageUnavailable
from bot.storage.store import newest_version
from core.records import FORGOTTEN

Pair = tuple[str, str]
_BUSY_SECONDS = 10.0
_ID = re.compile(r"CLR-\d+-\d+")
_WHICH = "word:which:"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be forgotten. Sessions, events and reply tokens with their producer; of one clarification alone no
    session.
    """

    clarifications: frozenset[str]
    sessions: frozenset[Pair] = frozenset()
    events: frozenset[Pair] = frozenset()
    tokens: frozenset[Pair] = frozenset()


@dataclass(frozen=True, slots=True)
class Traces:
    """What the storage cannot reach itself. `in_flight`: messages being posted just now: nothing was changed, try again.
    `waiting`: events that are not worked off yet. `pagers`: pages that went outside Slack. `untaken`: what somebody
    still has to take, now without its words. `comments`: on GitHub.
    """

    in_flight: int = 0
    waiting: int = 0
    pagers: int = 0
    untaken: int = 0
    comments: tuple[str, ...] = ()


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The storage, also while a bot holds it.

    Raises:
        StorageUnavailable: it cannot be used, or is of another version.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as db:
            db.row_factory = sqlite3.Row
            version = db.execute("pragma user_version").fetchone()[0]
            if version != newest_version():
                raise StorageUnavailable(
                    f"{path} is of version {version}: start the bot once, which brings it up to date."
                )
            db.execute("pragma secure_delete = on")  # what is deleted is overwritten
            yield db
    except sqlite3.Error as error:
        raise StorageUnavailable(f"{path} could not be changed: {error}.") from error


def forget(db: sqlite3.Connection, subject: Subject, *, even_waiting: bool = False) -> Traces:
    """Forget; nothing is changed where messages are in flight, or events wait (unless `even_waiting`)."""
    _prepare(db, subject)
    db.execute("begin immediate")
    try:
        traces = _traces(db)
        if not traces.in_flight and (even_waiting or not traces.waiting):
            _change(db)
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise
    return traces


def emptied_log(db: sqlite3.Connection) -> bool:
    """Have SQLite's log, which still holds the old pages, written back and cut; False: somebody reads, try again."""
    return not db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]


def erasures(db: sqlite3.Connection) -> dict[str, list[Pair]]:
    """Where messages are to be erased, or could not be: by state, as (channel, ts)."""
    found: dict[str, list[Pair]] = {}
    for row in db.execute("select channel, ts, state from erasures order by channel, ts"):
        found.setdefault(row["state"], []).append((row["channel"], row["ts"]))
    return found


def producers_of(db: sqlite3.Connection, session: str, producer: str | None) -> set[str]:
    """Whose sessions have this id; only `producer`'s, if one is named."""
    rows = db.execute("select producer from sessions where session_id = ?", (session,)).fetchall()
    return {row["producer"] for row in rows if row["producer"] and producer in {None, row["producer"]}}


def _prepare(db: sqlite3.Connection, subject: Subject) -> None:
    """Temporary tables of what is meant, of this connection only."""

    def mentions(text: object) -> bool:
        return any(each in subject.clarifications for each in _ID.findall(str(text or "")))

    db.create_function("mentions", 1, mentions, deterministic=True)
    for name, rows in {
        "gone_ids": [(each,) for each in subject.clarifications],
        "gone_sessions": subject.sessions,
        "gone_events": subject.events,
        "gone_tokens": subject.tokens,
        "gone_messages": (),
        "gone_incidents": (),
    }.items():
        width = 1 if name in {"gone_ids", "gone_messages", "gone_incidents"} else 2
        _table(db, name, width, rows)


def _table(db: sqlite3.Connection, name: str, width: int, rows: Iterable[tuple[object, ...]]) -> None:
    columns, marks = ("a", "?") if width == 1 else ("a, b", "?, ?")
    db.execute(f"drop table if exists temp.{name}")
    db.execute(f"create temp table {name} ({columns})")
    db.executemany(f"insert into temp.{name} values ({marks})", list(rows))  # noqa: S608 - names from above


def _traces(db: sqlite3.Connection) -> Traces:
    for statement in _FIND:
        db.execute(statement)
    return Traces(
        in_flight=_count(db, "messages where key in gone_messages and ts is null and intent_at is not null"),
        waiting=_count(db, f"inbox where state = 'new' and ({_HEARD})"),
        pagers=_count(
            db,
            """page_sendings where via = 'apprise' and state = 'sent' and page in (
               select page from page_items where incident in gone_incidents)""",
        ),
        untaken=_count(db, "incidents where closed_at is null and id in gone_incidents"),
        comments=tuple(
            f"{row['repo']}#{row['issue']}"
            for row in db.execute(
                "select distinct repo, issue from github_comments where comment is not null and mentions(entry)"
            )
        ),
    )


def _count(db: sqlite3.Connection, what: str) -> int:
    return int(db.execute(f"select count(*) from {what}").fetchone()[0])  # noqa: S608 - constants of this module


def _change(db: sqlite3.Connection) -> None:
    which = [
        row["key"].removeprefix(_WHICH)
        for row in db.execute(
            "select key from messages where key in gone_messages and key like ?", (f"{_WHICH}%",)
        )
    ]
    db.executemany("delete from texts where id = ?", [(each,) for each in which])
    for statement in _CHANGE:
        db.execute(statement, {"forgotten": FORGOTTEN} if ":forgotten" in statement else {})


_HEARD = "(producer, session_id) in gone_sessions or (producer, event_id) in gone_events"
# A page is erased where all that it is about goes; else it is drawn again, from what is left.
_FIND = (
    """insert into gone_messages select key from messages where kind not in ('page', 'rollup') and (
         clarification in gone_ids or (producer, session_id) in gone_sessions or mentions(key)
         or (clarification is null and kind in ('word', 'more') and mentions(body))
         or (channel, thread_ts) in (select channel, thread_ts from sessions
           where thread_ts is not null and (producer, session_id) in gone_sessions))""",
    """insert into gone_incidents select id from incidents where clarification in gone_ids or mentions(key)
         or 'notice:' || substr(key, instr(key, ':') + 1) in gone_messages""",
    """insert into gone_messages select s.message from page_sendings s where s.message is not null
         and s.page in (select page from page_items where incident in gone_incidents)
         and s.page not in (select page from page_items where incident not in gone_incidents)""",
)
_CHANGE = (
    """insert into erasures (channel, ts) select channel, ts from messages
         where key in gone_messages and ts is not null and channel is not null
         on conflict (channel, ts) do update set state = 'wanted', note = null where state = 'failed'""",
    """update messages set body = null, wanted = null, shown = null, channel = null, ts = null, thread_ts = null,
         intent_at = null, final = 1, failed = 'forgotten' where key in gone_messages""",
    """update messages set shown = null, final = 0 where kind = 'page' and failed is null and key in (
         select s.message from page_sendings s join page_items i on i.page = s.page
         where i.incident in gone_incidents)""",
    "update incidents set title = :forgotten, reason = :forgotten, body = '', link = null where id in gone_incidents",
    """update incident_log set user_id = null, done_by = null where incident in (
         select id from incidents where id in gone_incidents and closed_at is not null)""",
    f"update inbox set body = null, words = null, contents = null, state = 'done' where {_HEARD}",  # noqa: S608 - a constant
    "delete from replies where clarification in gone_ids",
    "delete from webhook_outbox where clarification in gone_ids",
    """delete from pushed_replies where (producer, session_id) in gone_sessions
         or (producer, token) in gone_tokens""",
    "delete from texts where mentions(body)",
    "delete from onces where mentions(key)",
    """update sessions set agent_name = null, channel = null, thread_ts = null
         where (producer, session_id) in gone_sessions""",
)
