"""The facts that Home tabs are made of. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from bot.audience import Audience

AgentStatus = Literal["idle", "working", "clarifying", "blocked"]


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One agent. `depth` counts from 0: it is nested below the agent that it waits for.

    `on`: whom it is blocked on; `human` stands for people. `since`: since when it is as it is, where known. `id`: by which it is decided who sees
    it; empty: its name.
    """

    name: str
    status: AgentStatus
    depth: int = 0
    on: tuple[str, ...] = ()
    since: datetime | None = None
    clarifications: tuple[str, ...] = ()
    id: str = ""

    @property
    def agent(self) -> str:
        return self.id or self.name

    @property
    def audience(self) -> Audience:
        return Audience(self.agent)


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """One session that can go on, or that is blocked by the clarifications which it waits for. `id` as `AgentLine`'s."""

    name: str
    session: str
    blocked_by: tuple[str, ...] = ()
    id: str = ""

    @property
    def agent(self) -> str:
        return self.id or self.name

    @property
    def audience(self) -> Audience:
        return Audience(self.agent)


@dataclass(frozen=True, slots=True)
class Fleet:
    """How the agents stand."""

    agents: tuple[AgentLine, ...] = ()
    ready: tuple[ReadyLine, ...] = ()


@dataclass(frozen=True, slots=True)
class DutyLine:
    """Who is on call by one policy: `users` are Slack ids, `source` says why it is they."""

    policy: str
    users: tuple[str, ...]
    source: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The audiences whose questions somebody may answer. `unsure`: Slack did not tell for all of them."""

    audiences: frozenset[Audience]
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who opened their Home tab, last at `opened_at` (seconds since 1970, our clock).

    `channel`: their direct messages with the bot. `pages`: what page of a section they look at, from 1.
    `digest` tells what Slack shows them; None: not known.
    """

    user: str
    team: str
    channel: str
    opened_at: float
    pages: Mapping[str, int] = field(default_factory=dict)
    digest: str | None = None
