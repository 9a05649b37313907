"""Sends the five lifecycle events to webhooks: signed, retried, in order for each clarification, at least once.

The events of a decision carry its receipt. Events never wait for the signing key: if the receipt follows later, the events of
the decision come again, with it.

The format and the signature are those of Standard Webhooks (github.com/standard-webhooks/standard-webhooks).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlsplit

from bot.api import (
    Host,
    Message,
    Outcome,
    Post,
    RecordChange,
    Tx,
    json_body,
    outcome_of,
    signature,
    signing_key,
)
from bot.integrations.webhooks.settings import WebhookSettings
from core.clarification import Clarification
from core.clock import iso
from core.ledger import RECEIPT, Name, lifecycle, payload, told_in
from core.receipts import at_round, is_decided
from core.records import agrees

_REMEMBERED = timedelta(days=30)  # how long the receipt of a decision may follow
# The events that carry the receipt, in order.
_OF_DECISIONS: tuple[Name, ...] = ("clarification-answered", "clarification-resolved")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One webhook and the names of the `events` it wants. Its URL may hold a secret, so logs show `label` instead."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    events: frozenset[str] = frozenset()  # empty: all

    @property
    def id(self) -> str:
        """The endpoint's name in the storage."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """The host and, if given, the port."""
        found = urlsplit(self.url)
        return f"{found.hostname}:{found.port}" if found.port else found.hostname or "?"

    def wants(self, event: str) -> bool:
        return not self.events or event in self.events


def endpoint_of(settings: WebhookSettings, secret: str) -> Endpoint:
    return Endpoint(settings.url, signing_key(secret), frozenset(settings.events))


@dataclass
class Webhooks:
    """The `Follower` that tells all webhooks, and the `EventFollower` for checkpoints."""

    endpoints: Sequence[Endpoint]
    host: Host

    def __post_init__(self) -> None:
        self._by_id = {each.id: each for each in self.endpoints}
        self.parties: Mapping[str, str] = {each.id: each.label for each in self.endpoints}

    def wants(self, change: RecordChange) -> bool:
        return any(self._is_wanted(name) for name, _ in told_in(change.what))

    def _is_wanted(self, name: Name | Literal["receipt"]) -> bool:
        names = _OF_DECISIONS if name == RECEIPT else (name,)
        return any(endpoint.wants(each) for endpoint in self.endpoints for each in names)

    def owes(self, change: RecordChange, record: Clarification, tx: Tx) -> Iterator[Message]:
        for name, receipt in _events(tx, change, record):
            data = payload(record, change.at)
            if receipt is not None:  # only it holds question and answer
                data |= {"receipt": receipt}
            yield from self._messages(record.id, name, change.at, data, change.revision)

    def announcement(self, event: str, data: Mapping[str, object], now: datetime) -> Iterator[Message]:
        return self._messages(event, event, now, data, 0)

    def _messages(
        self, about: str, event: str, at: datetime, data: Mapping[str, object], revision: int
    ) -> Iterator[Message]:
        said = {"type": event, "timestamp": iso(at), "data": data}
        # The same for the same event, so that receivers deduplicate also what a restored backup tells again.
        told = json_body(said | {"revision": revision})
        message_id = f"msg_{hmac.digest(self.host.store.secret, told, 'sha256').hex()[:32]}"
        body = json_body({"id": message_id} | said)
        for endpoint in self.endpoints:
            if endpoint.wants(event):
                yield Message(message_id, about, body, event, endpoint.id)

    async def send(self, message: Message, post: Post) -> Outcome:
        """Makes one attempt; only the status counts."""
        endpoint, now = self._by_id[message.party], self.host.clock.now()
        headers = signature(endpoint.key, message.id, int(now.timestamp()), message.body)
        return outcome_of(await post(endpoint.url, message.body, headers))


# Which events a change means


def _events(tx: Tx, change: RecordChange, record: Clarification) -> Iterator[tuple[Name, str | None]]:
    """Yields the events of a change, in order, those of a decision with its receipt. Notes those that lack one: they come
    again with it.
    """
    told = told_in(change.what)
    if not told:  # it begins again with what is open
        yield from ((name, None) for name in lifecycle(None, record))
    for name, number in told:
        if name == RECEIPT:
            receipt = _receipt(record, at_round(record, number))
            if receipt is not None:
                for each in _unsigned(tx, record.id, number):
                    yield each, receipt
        elif name in _OF_DECISIONS:
            ended = at_round(record, number)
            if ended is not None and is_decided(ended) and ended.current.receipt is None:
                _note_unsigned(tx, record.id, number, name, change.at)
            yield name, _receipt(record, ended)
        else:
            yield name, None


def _receipt(record: Clarification, ended: Clarification | None) -> str | None:
    """Returns the receipt of a round that `ended` so, if the record agrees with all of its receipts."""
    if ended is None or not is_decided(ended) or not agrees(record, None):
        return None
    return ended.current.receipt


# Decisions that were told without a receipt


def _note_unsigned(tx: Tx, clarification: str, number: int, name: Name, at: datetime) -> None:
    tx.run("delete from webhooks_unsigned where at < :before", before=(at - _REMEMBERED).timestamp())
    tx.run(
        """insert into webhooks_unsigned (clarification, round, type, at) values (:id, :number, :name, :at)
           on conflict (clarification, round, type) do nothing""",
        id=clarification,
        number=number,
        name=name,
        at=at.timestamp(),
    )


def _unsigned(tx: Tx, clarification: str, number: int) -> list[Name]:
    """Returns the events of a round that were told without its receipt, in order, and forgets them."""
    found = tx.rows(
        "delete from webhooks_unsigned where clarification = :id and round = :number returning type",
        id=clarification,
        number=number,
    )
    types = {row["type"] for row in found}
    return [each for each in _OF_DECISIONS if each in types]
