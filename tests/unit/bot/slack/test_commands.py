from __future__ import annotations

from typing import Any

from bot.workspace.seed import ADE, AGENTS, FOLAKE, TEAM
from tests.unit.bot.judges import shown
from tests.unit.bot.slack.kit import Bot


async def command(bot: Bot, text: str, user: str = ADE, channel: str = AGENTS) -> str:
    """Type a command; what the person is told, blocks and all."""
    before = len(bot.ws.ephemerals(user))
    outcome = await bot.ws.command(user, channel, "/clarify", text)
    assert outcome.ok, outcome
    await bot.ws.wait_for(lambda: len(bot.ws.ephemerals(user)) > before)
    return said(bot, user)


def said(bot: Bot, user: str = ADE) -> str:
    last = bot.ws.ephemerals(user)[-1]
    blocks: Any = last.blocks
    return f"{last.text}\n{shown(blocks)}" if blocks else last.text


async def test_clarify_lists_what_waits(bot: Bot) -> None:
    record, _ = await bot.asked()

    told = await command(bot, "")

    assert record.id in told
    assert "Deploy to production?" in told


async def test_help_shows_the_grammar(bot: Bot) -> None:
    told = await command(bot, "help")

    for form in ("/clarify", "#42", "CLR-42-001", "stale", "answer ID text", "resolve ID text",
                 "escalate ID [reason]", "oncall", "help"):  # fmt: skip
        assert form in told


async def test_answer_is_in_the_ledger_when_acknowledged(bot: Bot) -> None:
    record, _ = await bot.asked()

    outcome = await bot.ws.command(ADE, AGENTS, "/clarify", f"answer {record.id} yes")

    assert outcome.ok
    found = await bot.find(record)
    assert found.asked.response is True
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"
    assert "is answered: “Yes”" in said(bot)


async def test_second_answer_is_told_who_was_first(bot: Bot) -> None:
    record, _ = await bot.asked()
    await command(bot, f"answer {record.id} no")

    told = await command(bot, f"answer {record.id} yes", FOLAKE)

    assert f"<@{ADE}>" in told
    assert (await bot.find(record)).asked.response is False
