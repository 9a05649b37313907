"""Places in Slack: the values that cross between the parts of the bot."""

from __future__ import annotations

from dataclasses import dataclass


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
