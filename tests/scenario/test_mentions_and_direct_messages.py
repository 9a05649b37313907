"""The words of `/clarify` after a mention and in direct messages; and answers to pages given there."""

from __future__ import annotations

import json

import pytest

from bot.slack.payloads import MessageEvent
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
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL, TEAM
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


@pytest.mark.needs("digest")
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


@pytest.mark.needs("digest")
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


async def test_mention_within_a_message_is_read_from_there_and_changes_nothing(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_1", question="Question 1?", **YES_NO, **of_issue(42))
        for n, (text, told) in enumerate(
            (
                (f"hey {ME} #42", "CLR-42-001"),
                (f"hey\n{ME}, '#42'", "CLR-42-001"),
                (f"never {ME} answer CLR-42-001 yes", "“/clarify answer CLR-42-001 yes”"),
            ),
            start=1,
        ):
            for talk in (f"thanks {ME} for that", f"ask {ME} help yourself"):
                await stage.workspace.post(ADE, AGENTS, talk)
            await stage.workspace.post(ADE, AGENTS, text)
            assert told in words(await told_next(stage, n)), text
        assert stage.record(42)["status"] == "pending"
        assert len(stage.workspace.ephemerals(ADE)) == 3

        # In a session's thread it is a command or the answer.
        await stage.workspace.post(ADE, AGENTS, f"{ME} stale", thread_ts=card.ts)
        assert (await told_next(stage, 4)).thread_ts == card.ts
        assert stage.record(42)["status"] == "pending"
        await stage.workspace.post(ADE, AGENTS, f"{ME} yes", thread_ts=card.ts)
        assert (await stage.reply("rpl_1"))["response"] is True


@pytest.mark.parametrize("in_thread", [True, False])
async def test_edit_of_a_direct_message_answers_the_page_and_gives_no_command(
    stage: World, in_thread: bool
) -> None:
    async with stage.bot():
        page = await paged(stage, **YES_NO)
        mine = await stage.workspace.post(
            ONCALL, page.channel, "yse", thread_ts=page.ts if in_thread else None
        )
        await stage.page("yes or no")
        await stage.workspace.edit(ONCALL, page.channel, mine.ts, "escalate CLR-42-001 now")
        await stage.workspace.edit(ONCALL, page.channel, mine.ts, "yes")
        assert (await stage.reply("rpl_1"))["response"] is True
        await stage.page("is answered")
        assert not [m for m in stage.workspace.direct(ONCALL) if "already escalated" in words(m)]


async def test_words_that_are_meant_as_a_command_and_a_file_alone_answer_no_page(stage: World) -> None:
    async with stage.bot():
        page = await paged(stage, **FREE)
        for text in ("CLR-99-001 yes", "#43 yes", "/clarify stael"):
            assert "/clarify" in words(await say(stage, ONCALL, text))
        message = {"type": "message", "subtype": "file_share", "channel": page.channel, "channel_type": "im"}
        ts = f"{float(page.ts) + 0.000001:.6f}"
        stage.workspace.emit(
            message | {"user": ONCALL, "text": "", "files": [{"id": "F1"}], "ts": ts, "thread_ts": page.ts}
        )
        await stage.page("A file alone is not an answer")
        assert stage.record(42)["status"] == "escalated"


async def test_reply_to_a_page_of_before_the_next_round_does_not_answer_it(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an approval that did not count was asked for again."""
    topic = of_issue(42, topic="Rollout")
    async with stage.bot() as bot:
        card = await stage.ask("rpl_1", question="Question 1?", extensions=topic["extensions"])
        page = await say(stage, ONCALL, "help")  # in its place

        async def clarifications_at(_channel: str, ts: str) -> tuple[str, ...]:
            return ("CLR-42-001",) if ts == page.ts else ()

        monkeypatch.setattr(bot.board.pages, "clarifications_at", clarifications_at)
        stage.producer.lose_next_response()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sent, but not confirmed")
        await stage.emit("rpl_2", question="Really?", extensions=topic["extensions"])
        await stage.card("Really?")
        message = {"type": "message", "channel": page.channel, "channel_type": "im", "user": ONCALL}
        ts = f"{float(page.ts) + 0.000001:.6f}"
        stage.workspace.emit(message | {"text": "yes", "ts": ts, "thread_ts": page.ts, "team": TEAM})
        await stage.page("was written before")
        assert (stage.record(42)["round"], stage.record(42)["status"]) == (2, "pending")


async def test_direct_message_that_is_handled_again_after_a_kill_does_not_turn_to_the_question_that_is_left(
    stage: World,
) -> None:
    async with stage.bot():
        page = await paged(stage, 1, **FREE)
        await paged(stage, 2, **FREE)
        assert "Which question" in (await say(stage, ONCALL, "restart it")).text
        await command(stage, "answer CLR-42-001 done")
        await stage.reply("rpl_1")
    written = next(each for each in stage.workspace.messages(page.channel) if each.text == "restart it")
    body = MessageEvent("dm", page.channel, "", written.ts, ONCALL, TEAM, "restart it").body()
    assert stage.changed(  # as it is when the process ends before it was noted as done
        f"update slack_events set state = 'new', body = '{json.dumps(body)}'"  # noqa: S608 - a test's own words
        f" where event_id = '{page.channel}:{written.ts}'"
    )
    async with stage.bot() as bot:
        await bot.catch_up.done.wait()
        assert stage.record(42, 1)["status"] == "escalated"
    assert len(stage.producer.replies) == 1
