"""The message shortcut “Use as answer”: a message in a session's thread is the answer of whoever chooses that."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bot.views.phrases import BUSY
from tests.kit.until import until
from tests.kit.world import World, controls
from tests.scenario.other_parties import record_held
from tests.scenario.typist import FREE, YES_NO, buttons, early, of_issue, words
from workspace.seed import ADE, AGENTS, EVA, FOLAKE, GIO, RANDOM, USE_AS_ANSWER
from workspace.state import Ephemeral, Message


async def use(stage: World, message: Message, user: str = ADE) -> Ephemeral:
    """Choose the shortcut on a message; what the person is told."""
    before = len(stage.workspace.ephemerals(user))
    outcome = await stage.workspace.shortcut(user, USE_AS_ANSWER, message.ts, message.channel)
    assert outcome.ok, outcome
    told: Ephemeral = await stage.until(
        lambda: next(iter(stage.workspace.ephemerals(user)[before:]), None), 20
    )
    return told


async def talk(stage: World, text: str, card: Message, user: str = FOLAKE) -> Message:
    """Say something in a session's thread that is no answer by itself."""
    return await stage.workspace.post(user, AGENTS, f"note: {text}", thread_ts=card.thread_ts or card.ts)


async def test_p4_message_is_the_answer_of_whoever_chose_it_not_of_its_author(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE, **of_issue(42))
        message = await talk(stage, "use the *blue* one & tell @ade", card)
        chosen = stage.workspace.shortcut(ADE, USE_AS_ANSWER, message.ts, AGENTS)
        assert not await early(chosen, stage, monkeypatch)
        assert stage.record(42)["status"] in {"answered", "resolved"}
        await stage.whisper(ADE, "CLR-42-001 is answered")
        reply = await stage.reply()
        assert reply["response"] == "use the *blue* one & tell @ade"
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{ADE}"
        assert controls(await stage.now_says(card, f"<@{ADE}>")) == ["View full", "Verify"]
    assert len(stage.producer.replies) == 1


@pytest.mark.parametrize("said", ["(yes)", "note: yes", "( Yes. )", "// yes"])
async def test_comment_is_used_without_what_marks_it_as_one(stage: World, said: str) -> None:
    async with stage.bot():
        card = await stage.ask(**YES_NO)
        message = await stage.workspace.post(FOLAKE, AGENTS, said, thread_ts=card.ts)
        assert "is answered: “Yes”" in words(await use(stage, message))
        assert (await stage.reply())["response"] is True


async def test_several_open_questions_are_asked_about_and_answered_by_button(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", question="Deploy now?", **FREE)
        await stage.ask("rpl_2", question="Which region?", **FREE)
        asked = await use(stage, await talk(stage, "after lunch", card))
        assert "Which question is this an answer to?" in words(asked)
        label = next(each for each in buttons(asked) if "Which region?" in each)
        assert (await stage.workspace.press_ephemeral(ADE, asked, label)).ok
        reply = await stage.reply("rpl_2")
        assert (reply["response"], reply["decided_by"]) == ("after lunch", f"user:slack/T0LOCAL/{ADE}")
        assert stage.record(number=0)["status"] == "pending"
        await stage.until(lambda: not buttons(asked))  # in its place it says what became of it
        assert "is answered" in words(asked)
    assert len(stage.producer.replies) == 1


async def test_nothing_open_is_said(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        message = await talk(stage, "yes", card)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert "No question is open in this thread" in words(await use(stage, message))
        assert (await stage.reply())["response"] is False


async def test_message_that_is_no_answer_here_is_said_why(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**YES_NO)
        elsewhere = await stage.workspace.post(FOLAKE, AGENTS, "yes")
        assert "not in the thread of an agent's session" in words(await use(stage, elsewhere))
        random = await stage.workspace.post(FOLAKE, RANDOM, "yes")  # the bot is not even there
        assert "not in the thread of an agent's session" in words(await use(stage, random))
        assert "A person did not write this" in words(await use(stage, card))
        assert "yes or no" in words(await use(stage, await talk(stage, "the moon", card)))
        assert stage.record()["status"] == "pending"


async def test_p6_who_may_not_answer_is_told_why(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        message = await talk(stage, "yes", card)
        assert "a guest" in words(await use(stage, message, GIO))
        assert "not a member of this workspace" in words(await use(stage, message, EVA))
        assert stage.record()["status"] == "pending"


async def test_p4_busy_ledger_changes_nothing_now_or_later(
    stage: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", **FREE)
        message = await talk(stage, "yes", card)
        async with record_held(stage, "CLR-100001-001"):
            before = stage.ledger(100001)
            assert words(await use(stage, message)) == BUSY
            assert stage.ledger(100001) == before
            # Who cannot be told so sees an error of Slack's.
            context = stage.workspace.context
            context.options = replace(context.options, response_uses=0, ack_timeout=2.0)
            stage.workspace.faults.add("chat.postEphemeral", "refuse:channel_not_found", times=1)
            trying = asyncio.create_task(stage.workspace.shortcut(ADE, USE_AS_ANSWER, message.ts, AGENTS))
            await stage.until(lambda: not stage.workspace.faults.pending())  # the bot has given up
            assert not (await trying).ok
            await until(lambda: "listener gave up: nobody could be told" in caplog.text)
            assert stage.ledger(100001) == before
        assert "is answered" in words(await use(stage, await talk(stage, "no", card), FOLAKE))
        assert (await stage.reply())["response"] == "no"
    assert len(stage.producer.replies) == 1
