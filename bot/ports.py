"""The ports between the packages of the bot: what one side calls, and the values that cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
