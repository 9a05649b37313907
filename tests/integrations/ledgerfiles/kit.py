"""A ledger folder in tests, beside a bot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bot.app import Bot
from bot.integrations.ledgerfiles.bridge import Bridge
from tests.kit.databases import issues_in, records_in
from tests.kit.until import until
from tests.kit.world import World, config, said
from tests.unit.core.test_ledgeracts import asked
from workspace.seed import AGENTS, FALLBACK
from workspace.state import Message

Json = dict[str, Any]
DIRECTORY = 'directory = "ledgers"'
ROLES = '[responders.architect]\npeople = ["C0AGENTS"]\n'


def text(stage: World, **more: Any) -> str:
    return config(stage.producer.url, **more)


async def notice(stage: World, words: str) -> Message:
    """The bot's message that says so, wherever it stands."""
    found: Message = await stage.until(
        lambda: next((m for c in (AGENTS, FALLBACK) for m in messages(stage, c) if words in said(m)), None)
    )
    return found


def messages(stage: World, channel: str) -> list[Message]:
    return stage.workspace.messages(channel) if channel in stage.workspace.state.channels else []


def accused(stage: World) -> list[str]:
    """What people were told that others did to files."""
    told = [said(each) for channel in (AGENTS, FALLBACK) for each in messages(stage, channel)]
    return [each for each in told if "another program" in each.lower() or "does not count" in each]


def file_of(stage: World, issue: int = 100001) -> Path:
    return stage.folder / f"ledgers/issue-{issue}.json"


def in_file(stage: World, issue: int = 100001) -> list[Json]:
    path = file_of(stage, issue)
    return json.loads(path.read_text())["clarifications"] if path.exists() else []


def in_store(stage: World, issue: int = 100001) -> list[Json]:
    return records_in(stage.rows, issue)


async def in_step(stage: World, issue: int = 100001) -> list[Json]:
    """The records, once the file has them all as they are."""
    await until(lambda: in_store(stage, issue) and in_file(stage, issue) == in_store(stage, issue))
    return in_file(stage, issue)


def rewrite(stage: World, change: Callable[[list[Json]], None], issue: int = 100001) -> None:
    """As a program does that keeps no rules: without the marker."""
    path = file_of(stage, issue)
    whole = json.loads(path.read_text())
    change(whole["clarifications"])
    path.with_suffix(".new").write_text(json.dumps(whole))
    path.with_suffix(".new").replace(path)


def theirs(number: int = 1, question: str = "Which database?", **more: Any) -> Json:
    """A clarification as another implementation begins it."""
    begun = asked() | {
        "id": f"CLR-7-{number:03}",
        "created": f"2026-11-28T10:{number // 60:02}:{number % 60:02}.000Z",
    }
    del begun["aaep"]
    begun["thread"][0]["body"] = question
    return begun | more


def put(stage: World, *records: Json) -> None:
    whole = {"issueNumber": 7, "clarifications": list(records), "by": "them"}
    file_of(stage, 7).parent.mkdir(exist_ok=True)
    file_of(stage, 7).write_text(json.dumps(whole))


def stage_issues(stage: World) -> list[int]:
    return issues_in(stage.rows)


def bridge_of(bot: Bot) -> Bridge:
    (found,) = bot.integrated.mirrors
    assert isinstance(found, Bridge)
    return found
