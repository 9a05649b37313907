from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from core.clock import iso
from tests.kit.databases import open_store
from tests.unit.bot.cli.kit import Prompt


async def _hear(root: Path, *agents: str) -> None:
    """Have a storage in which a bot heard of the agents an hour ago, a second after one another."""
    store = await open_store(root / "clarify.db")
    first = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    try:
        for at, agent in enumerate(agents, round(first)):
            await store.run(
                "insert into sessions (producer, session_id, agent_id) values ('p', 'sess_' || :agent, :agent)",
                agent=agent,
            )
            await store.run(
                "insert into inbox (producer, event_id, session_id, received_at, at, live)"
                " values ('p', 'evt_' || :agent, 'sess_' || :agent, :at, :at, 1)",
                agent=agent,
                at=at,
            )
    finally:
        await store.close()


def test_agents_says_who_waits_for_whom_since_when(prompt: Prompt) -> None:
    waited = prompt.ask(42, "engineer", "architect")
    prompt.later(hours=1)
    prompt.ask(43, "qa", "engineer")
    rows = prompt.json("agents")
    assert [(row["agent"], row["status"], row["under"]) for row in rows] == [
        ("architect", "clarifying", None),
        ("engineer", "blocked", "architect"),
        ("qa", "blocked", "engineer"),
    ]
    assert rows[0]["toAnswer"] == ["CLR-42-001"]
    assert rows[1]["waitsFor"] == [
        {
            "agent": "architect",
            "clarification": "CLR-42-001",
            "since": iso(waited.asked_last),
            "escalated": False,
        }
    ]
    assert rows[1]["issues"] == [42]


def test_agents_in_a_pipe_are_lines_of_which_nothing_is_cut(prompt: Prompt) -> None:
    name = "engineer-" + "x" * 200
    for _ in range(5):
        prompt.ask(42, name, "architect", topic="")
    prompt.ask(43, name, "architect")
    done = prompt("agents")
    assert name in done.out
    assert all(f"CLR-42-{number:03d}" in done.out for number in range(1, 6))
    assert "…" not in done.out


def test_ready_says_who_can_go_on_and_who_is_blocked_by_what(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect")
    answered = prompt.ask(44, "planner", "architect")
    prompt.answer(answered, "yes")
    asyncio.run(_hear(prompt.folder, "planner"))
    items = prompt.json("ready")
    assert [(item["agent"], item["ready"], item["issue"]) for item in items] == [
        ("planner", True, None),
        ("engineer", False, 42),
    ]
    assert items[1]["blockedBy"] == [{"clarification": "CLR-42-001", "agent": "architect"}]
    assert prompt("ready").out.splitlines()[1].startswith("engineer\t42\tblocked\tCLR-42-001 (architect)\t")


def test_boards_show_the_sessions_of_a_bot(prompt: Prompt) -> None:
    asyncio.run(_hear(prompt.folder, "engineer", "qa"))
    prompt.ask(
        42,
        "engineer",
        "human",
        via=None,
        producer="p",
        session_id="sess_engineer",
        reply_token="t",
        event_id="e",
    )
    assert [
        (item["agent"], item["ready"], item["issue"], item["session"]) for item in prompt.json("ready")
    ] == [
        ("qa", True, None, "sess_qa"),
        ("engineer", False, 42, "sess_engineer"),
    ]
    assert [(row["agent"], row["status"]) for row in prompt.json("agents")] == [
        ("engineer", "blocked"),
        ("qa", "working"),
    ]
