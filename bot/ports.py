"""The ports between the packages of the bot: what one side calls, and the values that cross."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from core.aaep import Event, Response


@dataclass(frozen=True, slots=True)
class Incoming:
    """One event as it came from a producer.

    `cursor` is the SSE `id` to resume after, where the producer sends ids. `live` tells that the
    event was just emitted (not a replayed backlog): only those say something of the producer's clock. `told`: the
    producer waits for an answer, so it can be refused.
    """

    producer: str
    event: Event
    received_at: datetime
    cursor: str | None = None
    live: bool = False
    told: bool = False


Arrived = Literal["new", "duplicate", "event_id used", "reply_token used"]
"""What an event is to the inbox. Used: that stood for something else; only where the producer is told, else it is new."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something critical that could not be taken in: a human is paged with `summary` (no contents).

    `key` groups what is alike; `agent_id` and `session_id` where they could be read.
    """

    producer: str
    key: str
    summary: str
    agent_id: str | None = None
    session_id: str | None = None


class Inbox(Protocol):
    async def put(self, *incoming: Incoming) -> Sequence[Arrived]:
        """Returns once the events, in this order, and their cursor are durable, but for those whose id or token is used.

        Raises:
            StorageUnavailable: nothing was stored; try again, and do not move on.
        """
        ...

    async def cursor(self, producer: str) -> str | None:
        """The last stored SSE id of a producer, to resume after."""
        ...

    async def subscription(self, producer: str) -> str | None:
        """What `keep_subscription` kept."""
        ...

    async def keep_subscription(self, producer: str, text: str | None) -> None:
        """Keep a producer's subscription over restarts: what it sent on it before our first cursor comes again."""
        ...


TellTrouble = Callable[[Trouble], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes to a producer for one token; the same on every try, but for the subscription. `bot.producers.replies`
    makes the message of it.

    `confirms`: it decides on a confirmation; `response` is then "accept" or "reject", and `rationale` why, if said.
    """

    reply_token: str
    response: Response
    answered_at: datetime
    decided_by: str
    correlation_id: str | None
    confirms: bool = False
    rationale: str | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """2xx. `proof` tells whether that says the reply was taken (standard dialect), or only received."""

    proof: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The producer will never take it; `reason` is for people, short, without secrets."""

    reason: str


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Not now. `may_have_arrived`: the outcome is unknown, the token may be consumed.

    `retry_after` in seconds where the producer said. `blocked`: waiting alone does not help, somebody has to mend
    something: a token that is refused, an address where something else answers.
    """

    reason: str
    may_have_arrived: bool
    retry_after: float | None = None
    blocked: bool = False


ReplyOutcome = Accepted | Refused | TryAgain


class Replies(Protocol):
    async def send(self, producer: str, reply: Reply) -> ReplyOutcome:
        """One try to hand a reply to a producer. Never raises for what the network does."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where in Slack something happened: enough to speak to the person there."""

    channel: str
    thread_ts: str | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """What a control that was pressed stands on. `installation`: whose control it is; empty: of a release whose controls
    did not say. `channel` and `ts`: its message; empty where it stands on none that we could find again: what one
    person alone was shown, a modal, a Home tab.
    """

    installation: str
    channel: str = ""
    ts: str = ""


class Teller(Protocol):
    async def tell(
        self, user: str, place: Place, text: str, blocks: list[dict[str, object]] | None = None
    ) -> bool:
        """Say something to one person only, there and then (ephemeral); whether Slack took it. Failures are logged."""
        ...

    async def say(
        self, place: Place, key: str, text: str, blocks: list[dict[str, object]] | None = None
    ) -> None:
        """Say something to everybody in a thread, once per `key`, durable: survives a restart."""
        ...


@dataclass(frozen=True, slots=True)
class Thread:
    """A Slack thread and the session that it belongs to."""

    producer: str
    session_id: str
    issue: int
    agent_id: str
    channel: str
    ts: str


@dataclass(frozen=True, slots=True)
class PagePlace:
    """Where an open page stands in Slack, and a clarification that it is about."""

    channel: str
    ts: str
    clarification: str

    def is_before(self, channel: str, ts: str) -> bool:
        """Whether it was there, in that conversation, when the message at `ts` was sent."""
        return self.channel == channel and float(self.ts) < float(ts)


class PageThreads(Protocol):
    """`bot.delivery.pageplaces.PagePlaces`. Raises StorageUnavailable: it is not known now."""

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        """The clarifications that the page at a place is about; none where it is no page."""
        ...

    async def open_pages(self) -> Sequence[PagePlace]:
        """The pages about questions that somebody still has to take, which begin threads of their own."""
        ...


@dataclass(frozen=True, slots=True)
class RollupPlace:
    """Where a roll-up card stands in Slack, and the clarifications that it holds."""

    channel: str
    ts: str
    holds: tuple[str, ...]


class RollupThreads(Protocol):
    """`bot.delivery.rollupplaces.RollupPlaces`. Raises StorageUnavailable: it is not known now."""

    async def held_at(self, channel: str, ts: str) -> tuple[str, ...] | None:
        """The clarifications that the roll-up card at a place holds now; None where it is none."""
        ...

    async def open_rollups(self) -> Sequence[RollupPlace]:
        """The roll-up cards that may still change."""
        ...


class SlackMemory(Protocol):
    """What the Slack surface must not forget. Each method is durable when it returns.

    Every method raises StorageUnavailable if nothing could be stored or read.
    """

    async def take_slack_event(self, event_id: str, body: dict[str, object]) -> bool:
        """Keep an event until it is done; False if it was taken before."""
        ...

    async def pending_slack_events(self) -> list[tuple[str, dict[str, object]]]: ...
    async def slack_event_done(self, event_id: str) -> None: ...

    async def thread_at(self, channel: str, ts: str) -> Thread | None: ...
    async def open_threads(self) -> list[Thread]:
        """The threads of sessions that may still have open questions."""
        ...

    async def card_at(self, channel: str, ts: str) -> tuple[str, int] | None:
        """The clarification and round whose card is the message at `ts`."""
        ...

    async def posted(self, channel: str, ts: str) -> bool:
        """Whether the message at `ts` is one that we posted."""
        ...

    async def shown_at(self, clarification: str, round: int, channel: str) -> str | None:  # noqa: A002 - the protocol's word
        """The `ts` of a round's card, if it is in `channel`."""
        ...

    async def first_time(self, key: str) -> bool:
        """True the first time that it is asked for `key`, ever."""
        ...

    async def keep_text(self, text_id: str, body: dict[str, object]) -> None: ...
    async def kept_text(self, text_id: str) -> dict[str, object] | None: ...
    async def watermark(self, channel: str) -> str | None:
        """The `ts` up to which the replies of a channel were taken in."""
        ...

    async def set_watermark(self, channel: str, ts: str) -> None: ...

    async def channel_renamed(self, old: str, new: str) -> None:
        """A channel got another id: its messages and threads are found under the new one."""
        ...
