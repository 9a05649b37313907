"""What is said in a session's thread without being an answer, and what people are told about it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.show.memory import SlackMemory
from core.answers import from_text
from core.clarification import Decider
from tests.kit.clocks import LeapClock
from tests.kit.world import World, controls, said, scene
from tests.scenario.typist import FREE, arrives_late, words
from workspace.seed import ADE, AGENTS, FOLAKE, TEAM, USE_AS_ANSWER


@pytest.mark.either_database
async def test_unreadable_reply_gets_a_hint_again_after_a_minute(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        card = await stage.ask(timeout_seconds=86400)
        for text in ("hm", "let me think", "hm again"):
            await stage.workspace.post(ADE, AGENTS, text, thread_ts=card.ts)
        await stage.workspace.post(FOLAKE, AGENTS, "who knows", thread_ts=card.ts)
        await stage.whisper(FOLAKE, "I couldn't read that")
        assert len(stage.workspace.ephemerals(ADE)) == 1
        clock.ahead += timedelta(seconds=61)
        await stage.workspace.post(ADE, AGENTS, "well", thread_ts=card.ts)
        await stage.until(lambda: len(stage.workspace.ephemerals(ADE)) == 2)
        assert "yes or no" in stage.workspace.ephemerals(ADE)[1].text


@pytest.mark.either_database
async def test_hint_that_a_replica_with_a_later_clock_gave_is_not_given_again(stage: World) -> None:
    async with stage.bot() as bot:
        memory = SlackMemory(bot.base.store)
        now = stage.clock.now()
        minute = timedelta(minutes=1)
        assert await memory.is_due("hint:x", now, minute)
        assert not await memory.is_due("hint:x", now - timedelta(milliseconds=5), minute)
        assert not await memory.is_due("hint:x", now + timedelta(seconds=59), minute)
        assert await memory.is_due("hint:x", now + timedelta(seconds=61), minute)
        assert await memory.is_due("hint:x", now - timedelta(hours=1), minute)  # the clock was wrong


async def test_reply_that_is_nearly_an_answer_is_never_ignored_in_silence(stage: World) -> None:
    """Also within the minute after another hint, to whoever: its author believes to have answered."""
    async with stage.bot():
        card = await stage.ask(timeout_seconds=86400)
        for text in ("hm", "hm again", "yes please!", "yes, please do"):
            await stage.workspace.post(ADE, AGENTS, text, thread_ts=card.ts)
        await stage.whisper(ADE, "If you mean yes, reply with just yes")
        await stage.workspace.post(FOLAKE, AGENTS, "no idea", thread_ts=card.ts)
        await stage.whisper(FOLAKE, "If you mean no, reply with just no")
        assert len(stage.workspace.ephemerals(ADE)) == 2
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        assert (await stage.reply())["response"] is True


async def test_edit_that_makes_a_reply_readable_answers(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        mine = await stage.workspace.post(ADE, AGENTS, "yse", thread_ts=card.ts)
        await stage.whisper(ADE, "I couldn't read that")
        await stage.workspace.edit(ADE, AGENTS, mine.ts, "yes")
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{ADE}>")
        await stage.workspace.edit(ADE, AGENTS, mine.ts, "no")
        await stage.message("Editing or deleting a reply does not change the answer")
    assert len(stage.producer.replies) == 1


async def test_edit_of_what_was_said_before_the_question_is_no_answer(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        comment = await stage.workspace.post(ADE, AGENTS, "note: I think so", thread_ts=first.ts)
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.ask("rpl_2", question="Second?")
        await stage.workspace.edit(ADE, AGENTS, comment.ts, "yes")
        await stage.workspace.post(FOLAKE, AGENTS, "no", thread_ts=first.ts)
        assert (await stage.reply("rpl_2"))["response"] is False


@pytest.mark.either_database
async def test_reply_that_arrives_after_the_next_question_does_not_answer_it(stage: World) -> None:
    """Its author had not seen that question; they hear that another answer came first."""
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Answered")
        second = await stage.ask("rpl_2", question="Second?")
        arrives_late(stage, AGENTS, "yes", after=first)
        await stage.whisper(ADE, "was already answered")
        assert controls(second)
        await stage.workspace.post(ADE, AGENTS, "no", thread_ts=first.ts)
        assert (await stage.reply("rpl_2"))["response"] is False


async def test_reply_that_arrives_after_the_next_question_answers_the_one_before(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        await stage.ask("rpl_2", question="Second?")
        arrives_late(stage, AGENTS, "yes", after=first)
        assert (await stage.reply("rpl_1"))["response"] is True
    assert len(stage.producer.replies) == 1


async def test_edit_made_while_the_bot_was_down_counts(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        mine = await stage.workspace.post(ADE, AGENTS, "yse", thread_ts=card.ts)
        await stage.whisper(ADE, "I couldn't read that")
    await stage.workspace.edit(ADE, AGENTS, mine.ts, "yes")
    async with stage.bot():
        assert (await stage.reply())["response"] is True


async def test_reply_with_only_a_file_gets_a_hint(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.emit(
            {
                "type": "message",
                "subtype": "file_share",
                "channel": AGENTS,
                "channel_type": "channel",
                "user": ADE,
                "text": "",
                "files": [{"id": "F1", "name": "plan.pdf"}],
                "ts": f"{float(card.ts) + 1:.6f}",
                "thread_ts": card.ts,
                "team": "T0LOCAL",
            }
        )
        hint = await stage.whisper(ADE, "A file alone is not an answer")
        assert "yes or no" in hint.text
        assert hint.thread_ts == card.ts
    assert stage.record()["status"] == "pending"


async def test_talk_is_no_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["yes_no", "freetext"])
        lunch = await stage.workspace.post(FOLAKE, AGENTS, "lunch?")
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=lunch.ts)
        comment = await stage.workspace.post(ADE, AGENTS, "note: hm", thread_ts=card.ts)
        await stage.workspace.edit(ADE, AGENTS, comment.ts, "note: hmm")
        for talk in ("note: yes, I think so", "@folake yes?", "(no)", "yes, says <@U0FOLAKE>"):
            await stage.workspace.post(ADE, AGENTS, talk, thread_ts=card.ts)
        await stage.workspace.post(FOLAKE, AGENTS, "no", thread_ts=card.ts)
        assert (await stage.reply())["response"] is False
        assert not stage.workspace.ephemerals(ADE)
        assert "Editing" not in str([said(each) for each in stage.workspace.thread(AGENTS, card.ts)])


async def test_reply_with_several_open_questions_is_asked_back_and_answers_by_button(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="Deploy now?", accepted_response_kinds=["freetext"])
        await stage.ask("rpl_2", question="Which region?", accepted_response_kinds=["freetext"])
        await stage.workspace.post(ADE, AGENTS, "after lunch", thread_ts=first.ts)
        asked = await stage.message("Which question is this an answer to?")
        assert asked.thread_ts == first.ts
        label = next(label for label in controls(asked) if "Deploy" in label)
        await stage.workspace.click(FOLAKE, AGENTS, asked.ts, label=label)
        told = await stage.whisper(FOLAKE, "Only the person who wrote the reply")
        assert (told.channel, told.thread_ts) == (AGENTS, first.ts)  # where the press was
        assert stage.calls("response_url") == 1
        await stage.workspace.click(ADE, AGENTS, asked.ts, label=label)
        reply = await stage.reply("rpl_1")
        assert reply["response"] == "after lunch"
        assert reply["decided_by"].endswith(ADE)
        assert stage.record(number=1)["status"] == "pending"


async def test_p3_replies_after_the_answer_are_told_who_gave_it_once_and_deleting_it_changes_nothing(
    stage: World,
) -> None:
    async with stage.bot():
        card = await stage.ask()
        answer = await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        await stage.reply()
        for words in ("no", "no", "ah, thanks for that"):
            await stage.workspace.post(FOLAKE, AGENTS, words, thread_ts=card.ts)
        await stage.workspace.delete_message(ADE, AGENTS, answer.ts)
        await stage.message("Editing or deleting a reply does not change the answer")
        (told,) = stage.workspace.ephemerals(FOLAKE)
        assert f"<@{ADE}>" in told.text
        assert not stage.workspace.ephemerals(ADE)


async def test_p3_first_of_many_replies_at_once_is_the_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        for number in range(10):
            await stage.workspace.post((ADE, FOLAKE)[number % 2], AGENTS, f"{number}", thread_ts=card.ts)
        assert (await stage.reply())["response"] == "0"


@pytest.mark.parametrize("surface", ["reply", "shortcut", "answer", "resolve"])
async def test_words_for_one_round_do_not_answer_the_next(
    stage: World, monkeypatch: pytest.MonkeyPatch, surface: str
) -> None:
    """While Slack is asked who the author is, somebody else answers, and the agent asks again."""
    topic: dict[str, Any] = {"extensions": {"agentx": {"topic": "Rollout"}}}
    async with stage.bot() as bot:
        card = await stage.ask(**topic)
        handlers, router = bot.slack.app.handlers, bot.base.router
        by_command = surface in {"answer", "resolve"}
        access: Any = (handlers.interactions.commands.changes if by_command else handlers.answering).access
        refusal, name = access.refusal, stage.record()["id"]

        async def refusal_late(*asked: Any) -> Any:
            found = await refusal(*asked)
            monkeypatch.undo()
            stage.producer.lose_next_response()
            by = Decider("user:folake", "slack", TEAM, FOLAKE)
            await router.answer(name, lambda seen: from_text(seen.asked, "no"), by, stage.clock.now())
            await stage.now_says(card, "Sent, but not confirmed")
            await stage.emit("rpl_2", question="Really?", **topic)
            await stage.card("Really?")
            return found

        monkeypatch.setattr(access, "refusal", refusal_late)
        if surface == "reply":
            await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        elif surface == "shortcut":
            comment = await stage.workspace.post(ADE, AGENTS, "note: yes", thread_ts=card.ts)
            await stage.workspace.shortcut(ADE, USE_AS_ANSWER, comment.ts, AGENTS)
        else:
            await stage.workspace.command(ADE, AGENTS, "/clarify", f"{surface} {name} yes")
        told = await stage.until(lambda: stage.workspace.ephemerals(ADE))
        assert "the question has been asked again" in words(told[-1])
        assert (stage.record()["round"], stage.record()["status"]) == (2, "pending")
