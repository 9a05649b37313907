"""A mirror with a real storage, a real ledger and a small GitHub, on a clock that moves by itself."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from bot.delivery.store import Store
from bot.github.mirror import GithubMirror
from bot.settings.github import GithubSettings
from core.clarification import Answer, Ask, Clarification, Decider, answered, escalated, opened
from core.index import summarize
from core.ledger import FileLedger
from tests.clocks import ManualClock, until
from tests.unit.bot.github.fake import PREFIX, TOKEN, Github

SLA = timedelta(minutes=30)
ADA = Decider("user:slack/T1/U1", "slack", "T1", "U1")


class World:
    def __init__(self, folder: Path, github: Github, clock: ManualClock, store: Store) -> None:
        self.folder = folder
        self.github = github
        self.clock = clock
        self.store = store
        self.ledger = FileLedger(folder)
        self.mention: str | None = "@acme/on-call"
        self.timeout = 10.0
        self.mirror = self._mirror()
        self._task: asyncio.Task[None] | None = None
        self._sequence: dict[int, int] = {}

    def _mirror(self, token: str = TOKEN) -> GithubMirror:
        return GithubMirror(
            settings=GithubSettings(
                repo="acme/app",
                token_env="GITHUB_TOKEN",
                api_url=self.github.address + PREFIX,
                mention=self.mention,
            ),
            token=SecretStr(token),
            records=self.ledger,
            store=self.store,
            clock=self.clock,
            rng=random.Random(1),  # noqa: S311 - no secret
            seconds=lambda: self.clock.now().timestamp(),
            timeout=self.timeout,
        )

    async def start(self, token: str = TOKEN) -> None:
        """As when the bot starts: a new mirror, which knows what the storage and the ledgers say."""
        self.mirror = self._mirror(token)
        await self.mirror.restore(())
        self._task = asyncio.create_task(self.mirror.run())

    async def kill(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def forget(self) -> None:
        """The storage is lost."""
        await self.store.close()
        for file in self.folder.parent.glob("clarify.db*"):
            file.unlink()
        self.store = await Store.open(self.folder.parent / "clarify.db")

    async def close(self) -> None:
        await self.kill()
        self.ledger.close()
        await self.store.close()

    async def put(self, record: Clarification) -> Clarification:
        """Written to the ledger, and noted."""
        await self.ledger.transact(record.issue_number, lambda book: book.put(record))
        self.mirror.note(summarize(record))
        return record

    async def ask(
        self, issue: int = 42, question: str = "Which database?", topic: str = "db"
    ) -> Clarification:
        self._sequence[issue] = number = self._sequence.get(issue, 0) + 1
        ask = Ask("engineer", question, "architect", topic, True, self.clock.now(), via="shell")
        return await self.put(opened(issue, number, ask, self.clock.now(), SLA))

    async def answer(self, record: Clarification, text: str = "Postgres") -> Clarification:
        return await self.put(answered(record, Answer(text, text), ADA, self.clock.now()))

    async def escalate(self, record: Clarification, words: str = "Nobody answered.") -> Clarification:
        return await self.put(escalated(record, "stale", words, self.clock.now()))

    async def shows(self, count: int, issue: int = 42) -> list[str]:
        """The issue's comments, once nothing is left to do."""
        await self.quiet()
        bodies = self.github.bodies(issue)
        assert len(bodies) == count
        return bodies

    async def quiet(self) -> None:
        """Nothing is left to do."""
        await until(lambda: self.mirror.idle)
