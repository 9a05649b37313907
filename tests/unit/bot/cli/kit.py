"""A folder with a storage as the bot, agents and other implementations leave it, and a prompt in it.

Commands run in this process, as `clarify` would run them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from typer.testing import CliRunner

from bot.cli.app import app
from bot.storage import sqlite
from core.clarification import Answer, Clarification, Decider, parse_id
from core.clock import Clock, SystemClock
from core.router import Router
from tests.kit import builders
from tests.kit.builders import asking
from tests.kit.clocks import ManualClock
from tests.kit.databases import records_in
from tests.kit.ledgers import kept_ledger, write_records

_T = TypeVar("_T")
ASK = ("request", "--from", "engineer", "--to", "architect")
ARCHITECT = Decider("agent:architect", "responder")
FOLAKE = Decider("user:slack/T1/U1", "slack", "T1", "U1")
ROWS = "[ledger]\ndirectory = false\n"
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


@dataclass
class Prompt:
    """What `ask` and `answer` write was asked lately: `clock` starts five hours ago. Commands have the real time."""

    folder: Path
    runner: CliRunner = field(default_factory=CliRunner)
    clock: ManualClock = field(default_factory=lambda: ManualClock(datetime.now(UTC) - timedelta(hours=5)))

    @property
    def storage(self) -> Path:
        return self.folder / "clarify.db"

    def configure(self, settings: str) -> None:
        (self.folder / "clarify.toml").write_text(ROWS + settings)

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Said:
        """Run a command; an exception that it did not expect is the test's failure."""
        done = self.runner.invoke(app, arguments, input=stdin, catch_exceptions=False)
        return Said(done.exit_code, done.stdout, done.stderr)

    def fine(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """What a command prints that has to go well."""
        said = self(*arguments, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def json(self, *arguments: str) -> Any:
        """What a command prints as JSON that has to go well, without a word besides."""
        said = self(*arguments, "--json")
        assert (said.code, said.err) == (0, "")
        return said.json

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """What `export` prints."""
        said = self("export", *arguments)
        assert (said.code, said.err) == (0, "")
        return [json.loads(line) for line in said.out.splitlines()]

    def asked(self, question: str = "Which database?", *more: str, issue: int = 42) -> str:
        """The id of a question that the engineer puts to the architect."""
        return self.fine(*ASK, "--issue", str(issue), question, *more).strip()

    def ask(
        self, issue: int, asker: str, target: str, topic: str = "Topic", words: str = "Which?", **more: Any
    ) -> Clarification:
        """A question between agents, asked at `clock`'s time."""
        asked: dict[str, Any] = {"via": "shell", "blocking": True, "received_at": self.clock.now()} | more
        ask = asking(agent_id=asker, question=words, to=target, topic=topic, **asked)
        return self.using(lambda router: router.open(issue, ask), self.clock).record

    def answer(self, record: Clarification, text: str, decider: Decider = ARCHITECT) -> Clarification:
        def says(_: Clarification) -> Answer:
            return Answer(text, text)

        at = self.clock.now()
        return self.using(lambda router: router.answer(record.id, says, decider, at), self.clock)

    def later(self, **span: float) -> None:
        self.clock.jump(self.clock.now() + timedelta(**span))

    def event(self, issue: int = 42, **fields: Any) -> Clarification:
        """An agent's question as a producer's event brings it."""
        now = datetime.now(UTC)
        known: dict[str, Any] = {"asked_at": now, "received_at": now, "expires_at": now + timedelta(hours=1)}
        known |= {"reply_token": "rpl_secret", "kinds": ("yes_no",)}
        return self.using(lambda router: router.open(issue, builders.ask(**(known | fields)))).record

    def using(self, work: Callable[[Router], Coroutine[Any, Any, _T]], clock: Clock | None = None) -> _T:
        async def run() -> _T:
            async with kept_ledger(self.folder) as ledger:
                return await work(
                    Router(ledger, clock or SystemClock(), timedelta(minutes=30), lambda _: None)
                )

        return asyncio.run(run())

    def record(self, clarification: str) -> dict[str, Any]:
        """A record as its row has it."""
        found: list[dict[str, Any]] = records_in(self.storage, parse_id(clarification)[0])
        return next(each for each in found if each["id"] == clarification)

    def write(self, issue: int, *records: object) -> None:
        """Records as another implementation writes them."""
        write_records(self.folder, issue, *records)

    def tear(self, issue: int) -> None:
        """Records that cannot be read."""
        with sqlite.transaction(self.storage) as tx:
            assert tx.run("update clarifications set body = '{' where issue = :issue", issue=issue)


def entry(kind: str, by: str, body: str, at: str) -> dict[str, Any]:
    return {"round": 1, "from": by, "type": kind, "body": body, "timestamp": at}


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
        "thread": [entry("question", "engineer", question, now)],
    } | fields


def long_ago(issue: int, number: int, **fields: Any) -> dict[str, Any]:
    """A record of another implementation that was answered years ago."""
    created = "2020-01-02T03:04:05Z"
    thread = [
        entry("question", "dev", "q", created),
        entry("answer", "architect", "a", "2020-01-02T04:04:05Z"),
    ]
    known = {"from": "dev", "topic": "API", "status": "answered", "created": created, "thread": thread}
    return foreign(number, issue, **(known | fields))
