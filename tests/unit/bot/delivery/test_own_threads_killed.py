"""A question between agents whose bot dies before any write, or around any post: one card, one thread, all rounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bot.settings.load import parse_settings
from bot.slackapi import Draft
from bot.workspace.seed import APP_TOKEN, BOT_TOKEN
from core.clarification import Answer, Clarification, Decider
from core.index import summarize
from tests.kit.builders import ask
from tests.unit.bot.oncall.stage import CONFIGURATION, World

THERE = "C0ARCHITECTS"
ENVIRON = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN, "PAGER_URL": "json://127.0.0.1:1"}
ROLES = f'\n[responders.architect]\npeople = ["{THERE}"]\n'


class Life:
    """Everything halts for good at step `at`: a write or a post that begins, or a post that ended."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = 0
        self.over = asyncio.Event()

    def threatens(
        self, call: Callable[..., Awaitable[Any]], *, twice: bool = False
    ) -> Callable[..., Awaitable[Any]]:
        async def doomed(*arguments: Any) -> Any:
            await self._step()
            result = await call(*arguments)
            if twice:
                await self._step()
            return result

        return doomed

    async def _step(self) -> None:
        self._count += 1
        if self._count >= self._at:
            self.over.set()
            await asyncio.Event().wait()


class Bot(World):
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.settings = self.unpaced(
            parse_settings(CONFIGURATION + ROLES, file=folder / "clarify.toml", environ=ENVIRON)
        )

    def threaten(self, life: Life) -> None:
        self.store.write = life.threatens(self.store.write)  # type: ignore[assignment,method-assign]
        self._post = self.slack.post
        self.slack.post = life.threatens(self.slack.post, twice=True)  # type: ignore[assignment,method-assign]

    async def die(self) -> None:
        self.slack.post = self._post  # type: ignore[method-assign]
        for task in asyncio.all_tasks():
            if task.get_name().startswith(("lane ", "later ")):
                task.cancel()
        await self.stop()

    async def ask(self, question: str) -> Clarification:
        asking = ask(
            producer=None,
            session_id=None,
            reply_token=None,
            event_id=None,
            agent_id="engineer",
            to="architect",
            topic="storage",
            question=question,
            expires_at=None,
            via="shell",
        )
        record = (await self.router.open(42, asking)).record
        self.delivery.record_changed(summarize(record))
        return record

    def cards(self) -> list[tuple[str, Draft]]:
        return [(ts, draft) for (channel, ts), draft in self.slack.there.items() if channel == THERE]


async def test_killed_at_any_step_shows_one_card_and_goes_on_in_its_thread(tmp_path: Path) -> None:
    for at in range(1, 100):
        bot, life = Bot(tmp_path / str(at)), Life(at)
        await bot.start()
        bot.threaten(life)
        record = await bot.ask("Which database?")
        died = await _died(bot, life)
        await bot.die()
        await bot.start()
        await bot.pass_by(7)  # so long it is looked for what may have arrived
        await _goes_on(bot, record)
        await bot.stop()
        if not died:
            assert at > 4, "there is less to survive than there was"
            return
    raise AssertionError("a card takes more than fifty writes")


async def _died(bot: Bot, life: Life) -> bool:
    """Whether it died; if not, it has done all that was to be done."""
    over = asyncio.create_task(life.over.wait())
    landed = asyncio.create_task(_landed(bot))
    await asyncio.wait({over, landed}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    over.cancel()
    landed.cancel()
    return life.over.is_set()


async def _landed(bot: Bot) -> None:
    while not await bot.messages.thread_of("", "CLR-42-001"):  # noqa: ASYNC110 - nobody tells of a row
        await asyncio.sleep(0.002)


async def _goes_on(bot: Bot, record: Clarification) -> None:
    ((ts, card),) = bot.cards()
    assert card.thread_ts is None
    thread = await bot.messages.thread_of("", record.id)
    assert thread is not None
    assert (thread.channel, thread.ts) == (THERE, ts)

    by = Decider("user:slack/T1/U1", "slack", "T1", "U1")
    answered = await bot.router.answer(record.id, lambda _: Answer("SQLite", "SQLite"), by, bot.clock.now())
    bot.delivery.record_changed(summarize(answered))
    await bot.pass_by(1)
    await bot.ask("Which version?")
    await bot.pass_by(1)
    (_, first), (_, second) = bot.cards()
    assert "SQLite" in first.text
    assert (second.thread_ts, second.broadcast) == (ts, True)
