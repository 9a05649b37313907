"""A folder with ledgers, as the bot, agents and other implementations leave it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from bot.cli import app
from core.clarification import Answer, Ask, Clarification, Decider
from core.ledger import FileLedger
from core.router import Router
from tests.clocks import ManualClock

LEDGERS = Path(".agentx/state/clarifications")
ARCHITECT = Decider("agent:architect", "responder")
FOLAKE = Decider("user:slack/T1/U1", "slack", "T1", "U1")


def says(text: str) -> Callable[[Clarification], Answer]:
    return lambda _: Answer(text, text)


@dataclass
class Place:
    """Everything in it was asked lately: `clock` starts five hours ago."""

    root: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(datetime.now(UTC) - timedelta(hours=5)))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ledger = FileLedger(self.folder)
        self.router = Router(self.ledger, self.clock, timedelta(minutes=30), lambda _: None)

    @property
    def folder(self) -> Path:
        return self.root / LEDGERS

    def close(self) -> None:
        self.ledger.close()

    def ask(
        self, issue: int, asker: str, target: str, topic: str = "Topic", words: str = "Which?", **more: Any
    ) -> Clarification:
        asked: dict[str, Any] = {"via": "shell", "blocking": True, "received_at": self.clock.now()} | more
        ask = Ask(agent_id=asker, question=words, to=target, topic=topic, **asked)
        return asyncio.run(self.router.open(issue, ask)).record

    def answer(self, record: Clarification, text: str, decider: Decider = ARCHITECT) -> Clarification:
        return asyncio.run(self.router.answer(record.id, says(text), decider, self.clock.now()))

    def later(self, **span: float) -> None:
        self.clock.jump(self.clock.now() + timedelta(**span))

    def archive(self, issue: int, name: str | None = None) -> None:
        (self.folder / "archive").mkdir(exist_ok=True)
        path = self.ledger.path(issue)
        path.rename(self.folder / "archive" / (name or path.name))

    def statuses(self, content: object) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder.parent / "agent-status.json").write_text(text)

    def run(self, *arguments: str) -> Result:
        """The command, in a pipe, in this folder."""
        with chdir(self.root):
            return CliRunner().invoke(app, arguments)

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert (done.exit_code, done.stderr) == (0, "")
        return json.loads(done.stdout)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.run("export", *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]


def foreign(issue: int, number: int, **more: Any) -> dict[str, Any]:
    """A record as another implementation writes it: no `aaep`."""
    created = more.pop("created", "2020-01-02T03:04:05Z")
    return {
        "id": f"CLR-{issue}-{number:03d}",
        "issueNumber": issue,
        "from": "dev",
        "to": "architect",
        "topic": "API",
        "blocking": True,
        "status": "answered",
        "round": 1,
        "maxRounds": 5,
        "created": created,
        "thread": [
            {"round": 1, "from": "dev", "type": "question", "body": "q", "timestamp": created},
            {
                "round": 1,
                "from": "architect",
                "type": "answer",
                "body": "a",
                "timestamp": "2020-01-02T04:04:05Z",
            },
        ],
    } | more


def ledger_of(issue: int, *records: object) -> str:
    return json.dumps({"issueNumber": issue, "clarifications": records})
