"""A folder with ledgers and a prompt in it: commands run in this process, as `clarify` would run them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from typer.testing import CliRunner

from bot.cli import app
from core.clarification import Ask, Clarification
from core.clock import SystemClock
from core.ledger import FileLedger
from core.locks import Locks
from core.router import Router

WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect", "product-manager"]
clarify_max_rounds = 2

[[steps]]
agent = "reviewer"
can_clarify = ["engineer"]
clarify_blocking_allowed = false
"""


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Prompt:
    folder: Path
    runner: CliRunner = field(default_factory=CliRunner)

    @property
    def ledgers(self) -> Path:
        return self.folder / ".agentx/state/clarifications"

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Said:
        """Run a command; an exception that it did not expect is the test's failure."""
        done = self.runner.invoke(app, arguments, input=stdin, catch_exceptions=False)
        return Said(done.exit_code, done.stdout, done.stderr)

    def fine(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """What a command prints that has to go well."""
        said = self(*arguments, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def asked(self, question: str = "Which database?", *more: str, issue: int = 42) -> str:
        """The id of a question that the engineer puts to the architect."""
        command = (
            "request",
            "--from",
            "engineer",
            "--to",
            "architect",
            "--issue",
            str(issue),
            question,
            *more,
        )
        return self.fine(*command).strip()

    def event(self, issue: int = 42, **fields: Any) -> Clarification:
        """An agent's question as a producer's event brings it."""
        opened = self.using(lambda router: router.open(issue, ask(**fields)))
        return cast("Clarification", opened.record)

    def using(self, work: Callable[[Router], Any]) -> Any:
        async def run() -> Any:
            self.ledgers.mkdir(parents=True, exist_ok=True)
            ledger = FileLedger(self.ledgers)
            try:
                return await work(Router(ledger, SystemClock(), timedelta(minutes=30), lambda _: None))
            finally:
                ledger.close()

        return asyncio.run(run())

    def record(self, clarification: str) -> dict[str, Any]:
        """A record as it is in its ledger."""
        issue = clarification.split("-")[1]
        raw = json.loads((self.ledgers / f"issue-{issue}.json").read_text())
        return next(item for item in raw["clarifications"] if item["id"] == clarification)

    def write(self, issue: int, *records: dict[str, Any]) -> None:
        """A ledger as another implementation writes it."""
        self.ledgers.mkdir(parents=True, exist_ok=True)
        (self.ledgers / f"issue-{issue}.json").write_text(
            json.dumps({"issueNumber": issue, "clarifications": records})
        )

    @contextmanager
    def held(self, issue: int) -> Iterator[None]:
        """Meanwhile somebody else has the ledger."""
        locks = Locks(self.ledgers)
        with locks.hold(issue, 5.0):
            yield
        locks.close()


def ask(**fields: Any) -> Ask:
    now = datetime.now(UTC)
    known: dict[str, Any] = {
        "producer": "planner",
        "agent_id": "retirement-planner",
        "session_id": "sess_1",
        "event_id": "evt_1",
        "reply_token": "rpl_secret",
        "asked_at": now,
        "received_at": now,
        "expires_at": now + timedelta(hours=1),
        "question": "Deploy to production?",
        "kinds": ("yes_no",),
        "to": "human",
        "topic": None,
        "blocking": True,
    }
    return Ask(**(known | fields))


def foreign(seq: int, issue: int = 7, **fields: Any) -> dict[str, Any]:
    """A record of another implementation."""
    now = "2026-05-24T14:22:00Z"
    question = fields.pop("question", "Is it done?")
    return {
        "id": f"CLR-{issue}-{seq:03d}",
        "issueNumber": issue,
        "from": "engineer",
        "to": "architect",
        "topic": "t",
        "blocking": True,
        "status": "pending",
        "round": 1,
        "maxRounds": 5,
        "created": now,
        "staleAfter": "2026-05-24T14:52:00Z",
        "resolvedAt": None,
        "thread": [{"round": 1, "from": "engineer", "type": "question", "body": question, "timestamp": now}],
    } | fields
