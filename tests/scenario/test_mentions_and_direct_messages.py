"""The words of `/clarify` after a mention and in direct messages; and answers to pages given there."""

from __future__ import annotations

from tests.kit.world import World, config, said
from tests.scenario.typist import (
    FREE,
    HOSTILE,
    YES_NO,
    arrives_late,
    assert_inert,
    buttons,
    command,
    direct,
    of_issue,
    words,
)
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL
from workspace.state import Ephemeral, Message

ME = "<@U0BOT>"
MENTIONS = [
    (f"{ME} stale", "No overdue questions"),
    (f"{ME}: #42", "Issue 42: 1 clarifications"),
    (f"{ME} CLR-42-001", "Question 1?"),
    (f"{ME} help digest", "“digest 7d”"),
    (f"{ME} stael", "Did you mean “/clarify stale”?"),
    (f"{ME} answer CLR-42-001 yes", "CLR-42-001 is answered: “Yes”"),
]


async def say(stage: World, user: str, text: str, thread_ts: str | None = None) -> Message:
    """Say something in the direct messages; the bot's answer there."""
    channel = direct(stage, user)
    before = {message.ts for message in stage.workspace.messages(channel)}
    mine = await stage.workspace.post(user, channel, text, thread_ts=thread_ts)
    told: Message = await stage.until(
        lambda: next(
            (m for m in stage.workspace.messages(channel) if m.ts not in before | {mine.ts} and m.bot_id),
            None,
        )
    )
    return told


async def paged(stage: World, number: int = 1, **fields: object) -> Message:
    """A question of issue 42 that was escalated; its page in the direct messages of the one on call."""
    text = f"Question {number}?"
    await stage.ask(f"rpl_{number}", session=f"sess_{number}", question=text, **of_issue(42), **fields)
    await command(stage, f"escalate CLR-42-00{number}")
    return await stage.page(text)


async def test_mention_in_a_channel_is_answered_to_its_author_alone(stage: World) -> None:
    async with stage.bot():
        await stage.ask(session="sess_1", question="Question 1?", **of_issue(42))
        for n, (text, told) in enumerate(MENTIONS, start=1):
            await stage.workspace.post(ADE, AGENTS, text)
            whisper = await told_next(stage, n)
            assert told in words(whisper), text
            assert whisper.channel == AGENTS
            assert whisper.text not in [message.text for message in stage.workspace.messages(AGENTS)]
        assert (await stage.reply())["response"] is True
        assert len(stage.workspace.ephemerals(ADE)) == len(MENTIONS)


async def told_next(stage: World, count: int) -> Ephemeral:
    """The last of `count` messages that only Ade sees, once there are so many."""
    await stage.until(lambda: len(stage.workspace.ephemerals(ADE)) >= count)
    return stage.workspace.ephemerals(ADE)[count - 1]


async def test_words_in_direct_messages_are_answered_there(stage: World) -> None:
    async with stage.bot():
        await stage.emit(session=HOSTILE, question=HOSTILE, **YES_NO, **of_issue(42))
        await stage.card("CLR-42-001")
        for text, told in (
            ("“#42”", "Issue 42: 1 clarifications, 1 open"),
            ("MINE", "Waiting for you: 1"),
            ("clr-42-1", "CLR-42-001"),
            ("oncall", f"platform: <@{ONCALL}>"),
            ("ready", "blocked by CLR-42-001"),
            ("digest", "*Asked*: 1"),
            ("help", "answer ID text"),
            ("yes please", "Unknown command"),
        ):
            message = await say(stage, ADE, text)
            assert told in words(message), text
            assert_inert(message)
        assert "is answered: “No”" in words(await say(stage, ADE, "answer #42 no"))
        assert (await stage.reply())["response"] is False
        assert not stage.workspace.ephemerals(ADE)


async def test_direct_message_answers_the_only_open_page_of_whom_it_went_to(stage: World) -> None:
    """The person on call is no answerer of the route, and may answer since they were paged."""
    async with stage.bot(config(stage.producer.url, answerers=(ADE,))):
        await paged(stage)
        assert "yes or no" in words(await say(stage, ONCALL, "hm, perhaps"))
        assert "Overdue questions: 1" in words(await say(stage, ONCALL, "stale"))
        assert "CLR-42-001 is answered: “Yes”" in words(await say(stage, ONCALL, "yes"))
        reply = await stage.reply("rpl_1")
        assert (reply["response"], reply["decided_by"]) == (True, f"user:slack/T0LOCAL/{ONCALL}")
        assert "Unknown command" in words(await say(stage, ONCALL, "yes"))
    assert len(stage.producer.replies) == 1


async def test_reply_in_the_thread_of_a_page_answers_its_question(stage: World) -> None:
    async with stage.bot():
        first = await paged(stage, 1, **FREE)
        await paged(stage, 2, **FREE)
        told = await say(stage, ONCALL, "mine", first.ts)  # an answer: it is said in the page's thread
        assert told.thread_ts == first.ts
        assert "CLR-42-001 is answered: “mine”" in words(told)
        assert (await stage.reply("rpl_1"))["response"] == "mine"
        assert stage.record(42, 1)["status"] == "escalated"
        assert "already answered" in words(await say(stage, ONCALL, "again", first.ts))


async def test_direct_message_with_several_open_pages_is_asked_back(stage: World) -> None:
    async with stage.bot():
        await paged(stage, 1, **FREE)
        await paged(stage, 2, **FREE)
        asked = await say(stage, ONCALL, "restart it")
        assert "Which question" in asked.text
        label = next(each for each in buttons(asked) if "Question 2?" in each)
        assert (await stage.workspace.click(ONCALL, asked.channel, asked.ts, label=label)).ok
        assert (await stage.reply("rpl_2"))["response"] == "restart it"
        assert stage.record(42, 0)["status"] == "escalated"
    assert len(stage.producer.replies) == 1


async def test_direct_message_that_arrives_after_the_next_page_does_not_answer_it(stage: World) -> None:
    """Its author had not seen that page."""
    async with stage.bot():
        page = await paged(stage, 1)
        await stage.workspace.click(FOLAKE, AGENTS, stage.cards()[0].ts, label="Yes")
        await stage.reply("rpl_1")
        await paged(stage, 2)
        arrives_late(stage, page.channel, "yes", after=page, user=ONCALL)
        await stage.until(lambda: any("Unknown command" in words(m) for m in stage.workspace.direct(ONCALL)))
        assert "CLR-42-002 is answered: “No”" in words(await say(stage, ONCALL, "no"))
    assert stage.record(42, 1)["aaep"]["response"] is False


async def test_direct_message_of_somebody_else_answers_no_page(stage: World) -> None:
    async with stage.bot():
        await paged(stage)
        assert "Unknown command" in words(await say(stage, FOLAKE, "yes"))
        assert stage.record(42)["status"] == "escalated"
        await stage.workspace.post(ONCALL, direct(stage, ONCALL), "note: yes, I see it")
        assert "CLR-42-001" in said(await say(stage, ONCALL, "stale"))
        assert stage.record(42)["status"] == "escalated"
