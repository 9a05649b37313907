from __future__ import annotations

from bot.workspace.seed import ADE, AGENTS, FOLAKE, TEAM
from tests.unit.bot.slack.kit import Bot


async def test_click_on_yes_is_in_the_ledger_when_acknowledged(bot: Bot) -> None:
    record, ts = await bot.asked()

    outcome = await bot.ws.click(ADE, AGENTS, ts, label="Yes")

    assert outcome.ok
    found = await bot.find(record)
    assert found.status == "answered"
    assert found.asked.response is True
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"
    assert found.asked.answered_by is not None
    assert (found.asked.answered_by.team, found.asked.answered_by.user) == (TEAM, ADE)


async def test_click_after_another_is_told_who_and_what(bot: Bot) -> None:
    record, ts = await bot.asked()
    await bot.ws.click(ADE, AGENTS, ts, label="No")

    outcome = await bot.ws.click(FOLAKE, AGENTS, ts, label="Yes")

    assert outcome.ok
    (told,) = await bot.ws.wait_for(lambda: bot.told(FOLAKE))
    assert f"<@{ADE}>" in told
    assert "No" in told
    assert (await bot.find(record)).asked.response is False
