"""Open questions as the index knows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from core.clarification import Clarification
from core.index import AgentNode, ReadyItem
from tests.kit.builders import changed, record
from tests.kit.clocks import START

ADE, BEA = "U0ADE", "U0BEA"


def asked(seq: int = 1, **more: Any) -> Clarification:
    """An open question of the planner that never expires; `more` replaces fields, as in `changed`."""
    fields: dict[str, Any] = {
        "created": START + timedelta(seconds=seq),
        "expires_at": None,
        "agent_id": "planner",
        "from_": "planner",
        "topic": f"Topic {seq}",
    }
    fields = {"asked_last": more.get("created", fields["created"])} | fields
    fields |= more
    return changed(record(42, seq, question=fields["topic"]), **fields)


def agent(name_: str, **more: Any) -> AgentNode:
    """An agent of the tree, at work."""
    known: dict[str, Any] = {"name": None, "status": "working", "waits": (), "asked": ()}
    return AgentNode(agent=name_, issues=(), last_event_at=None, **(known | more))


def ready(
    agent: str, session: str, blocked_by: tuple[str, ...] = (), *, name: str | None = None
) -> ReadyItem:
    """A session of the ready queue."""
    return ReadyItem(agent, name, "p", session, 1, blocked_by, None, None)


def words(view: Any) -> str:
    """All that a view says, joined by newlines."""
    return "\n".join(_texts(view))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            yield value["text"]
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
