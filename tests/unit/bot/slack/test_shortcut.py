from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.phrases import BUSY
from bot.workspace.seed import ADE, AGENTS, FOLAKE, GIO, TEAM
from tests.unit.bot.slack.kit import Bot, choices
from tests.unit.bot.slack.test_commands import locked

CALLBACK = "clarify.use_as_answer"


async def use(bot: Bot, ts: str, user: str = ADE) -> str:
    """Choose the shortcut on a message; what the person is told."""
    before = len(bot.ws.ephemerals(user))
    assert (await bot.ws.shortcut(user, CALLBACK, ts, AGENTS)).ok
    await bot.ws.wait_for(lambda: len(bot.ws.ephemerals(user)) > before, 60)
    return bot.ws.ephemerals(user)[-1].text


async def talk(bot: Bot, text: str, ts: str, user: str = FOLAKE) -> str:
    """Talk in a thread, which the bot leaves alone."""
    return (await bot.ws.post(user, AGENTS, text, thread_ts=ts)).ts


async def test_message_becomes_the_answer_of_whoever_chose_it(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    message = await talk(bot, "note: use the *blue* one & ask <@U0ADE>", ts)

    told = await use(bot, message)

    found = await bot.find(record)
    assert str(found.asked.response).startswith("note: use the *blue* one & ask @")
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"
    assert "is answered" in told


async def test_answer_is_in_the_ledger_when_acknowledged(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    message = await talk(bot, "note: blue", ts)

    assert (await bot.ws.shortcut(ADE, CALLBACK, message, AGENTS)).ok

    assert (await bot.find(record)).asked.response == "note: blue"


async def test_several_open_questions_are_asked_about(bot: Bot) -> None:
    first, ts = await bot.asked(question="First?", kinds=("freetext",))
    second = await bot.open(question="Second?", kinds=("freetext",))
    message = await talk(bot, "note: blue", ts)

    assert "Which question" in await use(bot, message)
    shown = bot.ws.ephemerals(ADE)[-1]
    assert (await bot.ws.press_ephemeral(ADE, shown, "2. Second?")).ok

    assert (await bot.find(second)).asked.response == "note: blue"
    assert (await bot.find(first)).is_open
    await bot.ws.wait_for(lambda: "is answered" in bot.ws.ephemerals(ADE)[-1].text)
    assert not bot.ws.ephemerals(ADE)[-1].blocks  # the question which one is gone


async def test_nothing_open_is_said(bot: Bot) -> None:
    record, ts = await bot.asked()
    message = await talk(bot, "note: yes", ts)
    await bot.ws.click(FOLAKE, AGENTS, ts, label="No")

    assert "No question is open in this thread" in await use(bot, message)
    assert (await bot.find(record)).asked.response is False


async def test_message_outside_of_a_sessions_thread_is_no_answer(bot: Bot) -> None:
    await bot.asked()
    message = await bot.ws.post(FOLAKE, AGENTS, "yes")

    assert "not in the thread of an agent's session" in await use(bot, message.ts)


async def test_card_is_no_answer(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))

    assert "not a person's" in await use(bot, ts)
    assert (await bot.find(record)).is_open


async def test_who_may_not_is_told_so(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    message = await talk(bot, "note: yes", ts)

    assert "You cannot answer this" in await use(bot, message, GIO)
    assert (await bot.find(record)).is_open


async def test_message_that_does_not_fit_gets_a_hint(bot: Bot) -> None:
    question: dict[str, Any] = choices("Staging", "Production")
    record, ts = await bot.asked(**question)
    message = await talk(bot, "note: the moon", ts)

    assert "number of a choice" in await use(bot, message)
    assert (await bot.find(record)).is_open


@pytest.mark.parametrize("reached", [True, False])
async def test_busy_ledger_is_told_before_the_acknowledgement_or_there_is_none(
    bot: Bot, reached: bool
) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    message = await talk(bot, "note: blue", ts)
    if not reached:
        bot.ws.context.options = replace(bot.ws.context.options, response_uses=0, ack_timeout=4.0)

    async with locked(bot):
        assert (await bot.ws.shortcut(ADE, CALLBACK, message, AGENTS)).ok is reached

    assert [BUSY in each for each in bot.told(ADE)] == [True] * reached
    assert (await bot.find(record)).is_open
