"""What a producer that pushes is to the rest: the values, the port to what is kept, and what its messages mean (pure).

Source: AAEP specification chapter 5 for the handshake, whose parts are the other way round here: the agent asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Protocol

from bot.errors import ClarifyBotError
from bot.ports import Arrived, Reply
from bot.producers.dialects import AAEP_VERSION
from core.aaep import CLARIFICATION, CRITICAL_TYPES, KNOWN_TYPES, Event

_OURS = ("supports_confirmation_reply", "supports_clarification_reply")
_LEVELS = (1, 2, 3)
_LONGEST_TYPE = 80
_NEAR = 0.8  # of difflib's ratio
_FIELDS = {
    "multiple_choice without choices": "choices",
    "a choice has neither value nor label": "choices",
    "neither accept nor reject is allowed": "allowed_replies",
    "not UTF-8": None,
}


USED: Mapping[Arrived, tuple[str, str]] = {
    "event_id used": ("event_id", "This event_id came with another event before; expected one of its own."),
    "reply_token used": (
        "reply_token",
        "This reply_token came with another question before; expected one of its own.",
    ),
}


class NotTaken(ClarifyBotError):
    """What a producer sent is not taken in; `field` is at fault, where one is. Never holds what was sent."""

    def __init__(self, message: str, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


class Broken(NotTaken):
    """An event that its producer has to mend: shown as it is, nobody could answer it, or it would be another one."""


class NoSuchSubscription(NotTaken):
    """A message is about a subscription that there is not."""


class TooManyReaders(ClarifyBotError):
    """Too many read the replies of this producer already."""


@dataclass(frozen=True, slots=True)
class Place:
    """A producer's stream: `epoch` begins the ids of its frames; `subscription` is in its replies."""

    epoch: str
    subscription: str


@dataclass(frozen=True, slots=True)
class KeptReply:
    """One reply in the stream. `state`: "waiting", "begun" (may have arrived), "written" or "confirmed"."""

    id: int
    body: str = field(repr=False)
    state: str


@dataclass(frozen=True, slots=True)
class Taken:
    """An event that is in the inbox; `problems`: what breaks its schema, in words without contents. `duplicate`: it was
    there before.
    """

    event_id: str
    problems: tuple[str, ...]
    duplicate: bool = False


class PushedReplies(Protocol):
    """`bot.delivery.pushed.SqlitePushed`. Every method raises StorageUnavailable if it cannot be done."""

    async def place(self, producer: str, fresh: Place) -> Place: ...
    async def subscribe(self, producer: str, subscription: str) -> None: ...
    async def keep(
        self, producer: str, reply: Reply, digest: str, body: str, now: datetime
    ) -> tuple[int, str]: ...
    async def after(
        self, producer: str, position: int, now: datetime, *, resumed: bool
    ) -> Sequence[KeptReply]: ...
    async def begin(self, ids: Sequence[int]) -> None: ...
    async def wrote(self, ids: Sequence[int], now: datetime) -> None: ...
    async def had(self, producer: str, position: int, now: datetime) -> None: ...
    async def went_on(self, producer: str, event_id: str, session_id: str, sent: datetime) -> None: ...


def handshake_message(text: str) -> Mapping[str, Any] | None:
    """The message of a handshake or a reply that `text` is; None: an event, or not even that."""
    if '"subscription.' not in text and '.reply"' not in text:
        return None
    try:
        message: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(kind, str):
        return None
    return message if kind.startswith("subscription.") or kind.endswith(".reply") else None


def check_event(event: Event) -> None:
    """Does nothing for an event that people can be shown as its producer means it. On a stream, where nobody can be told,
    such an event is shown as far as it can be read.

    Raises:
        Broken: a critical event that breaks its schema, or one that asks and has a type that nobody knows.
    """
    if event.type not in KNOWN_TYPES and (meant := _type_meant(event)) is not None:
        raise Broken(f"No event has this type; expected {meant}, for example.", "type")
    if event.critical and event.problems:
        raise Broken(
            f"The event breaks its schema: {'; '.join(event.problems)}.", _field_of(event.problems[0])
        )


def _type_meant(event: Event) -> str | None:
    """The type that an unknown one may be a misspelling of; None: it is an extension, or of a later version."""
    prefix, _, name = event.type[:_LONGEST_TYPE].casefold().rpartition(":")
    if prefix in {"", "aaep"}:
        near = get_close_matches(name, sorted(CRITICAL_TYPES), 1, _NEAR)
        if near or "awaiting" in name:
            return near[0] if near else CLARIFICATION
    return CLARIFICATION if "reply_token" in event.raw else None


def _field_of(problem: str) -> str | None:
    """The field that a problem of `core.aaep` is about: most begin with it."""
    return _FIELDS[problem] if problem in _FIELDS else problem.partition(" ")[0]


def checked_request(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The capabilities that a `subscription.request` asks for.

    Raises:
        NotTaken: it is none.
    """
    subscriber = message.get("subscriber_id")
    if not isinstance(subscriber, str) or not 0 < len(subscriber) <= 256:
        raise NotTaken("expected a string of 1 to 256 characters", "subscriber_id")
    if not isinstance(message.get("aaep_version"), str):
        raise NotTaken(f'expected a version such as "{AAEP_VERSION}"', "aaep_version")
    capabilities = message.get("capabilities")
    if not isinstance(capabilities, dict):
        raise NotTaken("expected an object, which may be empty", "capabilities")
    return capabilities


def speaks_our_version(message: Mapping[str, Any]) -> bool:
    return str(message.get("aaep_version")).partition(".")[0] == AAEP_VERSION.partition(".")[0]


def rejected(reason: str) -> dict[str, Any]:
    """A `subscription.rejected` for a version that we do not speak."""
    return {
        "type": "subscription.rejected",
        "reason_code": "version_unsupported",
        "reason_message": reason,
    }


def accepted(producer: str, subscription: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A `subscription.accepted`: of what was asked, what means something to us, and never more of it (§5.4.4)."""
    honoured: dict[str, Any] = {name: asked[name] is True for name in _OURS if name in asked}
    levels = asked.get("supported_conformance_levels")
    shared = [level for level in _LEVELS if isinstance(levels, list) and level in levels]
    if shared:
        honoured["supported_conformance_levels"] = shared
    return {
        "type": "subscription.accepted",
        "subscription_id": subscription,
        "aaep_version": AAEP_VERSION,
        "producer": {"agent_id": producer},
        "honored_capabilities": honoured,
    }


def position_in(last_event_id: str | None, epoch: str) -> int | None:
    """Where a reader says it was, if that is a place in this stream. Ids are `{epoch}.{number}`."""
    before, dot, number = (last_event_id or "").partition(".")
    known = before == epoch and dot and number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if known else None


def frame(reply: KeptReply, epoch: str) -> bytes:
    """A reply as it goes into the stream: JSON has no line ends of its own."""
    return f"id: {epoch}.{reply.id}\ndata: {reply.body}\n\n".encode()
