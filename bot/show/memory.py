"""Stores what the Slack app must not forget: unfinished events, texts behind buttons, how far channels were read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.show.messages import move_channel
from bot.storage.store import Store, Sweep
from bot.storage.tx import Tx
from core.records import Subject

_TAKEN_BY = "taken_by"


@dataclass(eq=False)
class SlackMemory:
    """Stores what was read and said in Slack. Each method is durable on return.

    Every method raises StorageUnavailable if nothing could be stored or read.
    """

    store: Store

    async def take_slack_event(self, event_id: str, body: dict[str, object]) -> bool:
        """Stores an event until it is done. Returns False if this or another bot already has it."""
        changed = await self.store.run(
            "insert into slack_events (event_id, body) values (:id, :body) on conflict (event_id) do nothing",
            id=event_id,
            body=json.dumps(body | {_TAKEN_BY: self.store.name}),
        )
        return changed > 0

    async def pending_slack_events(self) -> list[tuple[str, dict[str, object]]]:
        """Returns the unfinished events, without those of other live bots."""
        rows = await self.store.read(
            "select event_id, body from slack_events where state = 'new' order by seq"
        )
        found = [(row["event_id"], json.loads(row["body"])) for row in rows]
        others = await self.store.others() if found else frozenset()
        return [(name, body) for name, body in found if body.pop(_TAKEN_BY, "") not in others]

    async def tell_gap(self) -> None:
        """Tells the leader that something from Slack may have been missed here."""
        await self.store.tell("gap")

    async def slack_event_done(self, event_id: str) -> None:
        await self.store.run(
            "update slack_events set state = 'done', body = null where event_id = :id", id=event_id
        )

    async def first_time(self, key: str) -> bool:
        """Returns True on the first call ever for `key`."""
        new = await self.store.run(
            "insert into onces (key) values (:key) on conflict (key) do nothing", key=key
        )
        return new > 0

    async def is_due(self, key: str, now: datetime, pause: timedelta) -> bool:
        """Returns whether no bot claimed `key` within `pause` of now, by its own clock; if so, claims it."""
        due = await self.store.run(
            """insert into texts (id, body) values (:id, :body) on conflict (id) do update set body = excluded.body
               where not texts.body between :since and :until""",
            id=key,
            body=f"{now.isoformat(timespec='microseconds')} {key}",
            since=(now - pause).isoformat(timespec="microseconds"),
            until=(now + pause).isoformat(
                timespec="microseconds"
            ),  # a replica that was asked later may be first
        )
        return due > 0

    async def keep_text(self, text_id: str, body: dict[str, object]) -> None:
        await self.store.run(
            "insert into texts (id, body) values (:id, :body) on conflict (id) do update set body = excluded.body",
            id=text_id,
            body=json.dumps(body),
        )

    async def kept_text(self, text_id: str) -> dict[str, object] | None:
        row = await self.store.read_one("select body from texts where id = :id", id=text_id)
        if row is None:
            return None
        body: dict[str, object] = json.loads(row["body"])
        return body

    async def watermark(self, channel: str) -> str | None:
        """Returns the `ts` up to which a channel's replies were read."""
        row = await self.store.read_one("select ts from watermarks where channel = :channel", channel=channel)
        return row["ts"] if row else None

    async def set_watermark(self, channel: str, ts: str) -> None:
        await self.store.write(lambda tx: mark(tx, channel, ts))

    async def channel_renamed(self, old: str, new: str) -> None:
        """Moves a channel's messages and threads to its new id."""

        def work(tx: Tx) -> None:
            move_channel(tx, old, new)
            for row in tx.rows("delete from watermarks where channel = :old returning ts", old=old):
                mark(tx, new, row["ts"])

        await self.store.write(work)


def mark(tx: Tx, channel: str, ts: str) -> None:
    """`SlackMemory.set_watermark` within a transaction."""
    tx.run(
        """insert into watermarks (channel, ts) values (:channel, :ts)
           on conflict (channel) do update set ts = excluded.ts""",
        channel=channel,
        ts=ts,
    )


_WHICH = "word:which:"  # the message that asks which question a stored text answers
SWEEPS = (
    Sweep(
        "texts",
        "select id as name, body as said from texts where id > :after order by id limit :most",
        ("delete from texts where id in :names",),
        timeless=True,
    ),
    Sweep(
        "onces",
        "select key as name, key as said from onces where key > :after order by key limit :most",
        ("delete from onces where key in :names",),
        timeless=True,
    ),
    Sweep(
        "slack_events",
        """select event_id as name from slack_events where event_id > :after and state = 'done'
           order by event_id limit :most""",
        ("delete from slack_events where event_id in :names and state = 'done'",),
        timeless=True,
    ),
)


def find_about(tx: Tx, subject: Subject) -> tuple[list[str], list[str]]:
    """Returns the ids of stored texts, and the one-time keys, about `subject`."""
    texts = [row["id"] for row in tx.rows("select id, body from texts") if subject.is_in(row["body"])]
    return texts, [row["key"] for row in tx.rows("select key from onces") if subject.is_in(row["key"])]


def find_naming(tx: Tx, user: str) -> tuple[list[str], list[str]]:
    """Returns the ids of the stored texts that a person, by their Slack user id, wrote or was told, and the one-time keys about
    them. A text in which someone else names them is not theirs.
    """
    named = re.compile(rf"\b{re.escape(user)}\b")
    texts = [
        row["id"]
        for row in tx.rows("select id, body from texts")
        if named.search(row["id"]) or _written_by(row["body"]) == user
    ]
    return texts, [row["key"] for row in tx.rows("select key from onces") if named.search(row["key"])]


def _written_by(body: str) -> object:
    with suppress(ValueError):
        kept = json.loads(body)
        return kept.get("user") if isinstance(kept, dict) else None
    return None


def forget(tx: Tx, texts: Sequence[str], onces: Sequence[str]) -> None:
    """Forgets a few stored texts and one-time keys."""
    tx.run("delete from texts where id in :texts", texts=texts)
    tx.run("delete from onces where key in :onces", onces=onces)


def forget_asked(tx: Tx, messages: Iterable[str]) -> None:
    """Forgets the texts of which messages ask which question they answer."""
    texts = [{"id": key.removeprefix(_WHICH)} for key in messages if key.startswith(_WHICH)]
    tx.many("delete from texts where id = :id", texts)
