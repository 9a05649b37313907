from __future__ import annotations

import json
from typing import Any

import pytest

from bot.oncall.pages import PagePlace
from bot.slack.payloads import MessageEvent
from bot.workspace.seed import ADE, AGENTS, BOT_USER, FOLAKE, GIO, TEAM
from bot.workspace.state import Message
from core.clarification import Clarification
from tests.unit.bot.judges import shown
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import Bot


class Paging:
    """Pages that went to `users`; they stand where `places` says."""

    def __init__(self, *users: str) -> None:
        self.users = frozenset(users)
        self.places: dict[str, tuple[str, ...]] = {}
        self.channel = ""

    def paged(self, clarification_id: str) -> frozenset[str]:
        return self.users

    async def clarifications_at(self, channel: str, ts: str) -> tuple[str, ...]:
        return self.places.get(ts, ())

    async def open_pages(self) -> list[PagePlace]:
        return [PagePlace(self.channel, ts, each) for ts, about in self.places.items() for each in about]


async def say(bot: Bot, user: str, channel: str, text: str, thread_ts: str | None = None) -> Message:
    """Say something; returns when the bot has handled it."""
    message = await bot.ws.post(user, channel, text, thread_ts=thread_ts)
    told = sum(len(each.messages) for each in bot.ws.state.channels.values() if BOT_USER in each.members)
    await bot.ws.wait_for(lambda: _heard(bot) >= told, 60)
    await bot.conversation.idle()
    return message


def _heard(bot: Bot) -> int:
    return sum(ack.payload_type == "message" and ack.ok for ack in bot.ws.acks)


async def dm(bot: Bot, user: str = ADE) -> str:
    """The channel of the direct messages with the bot, in which there is a message of its own."""
    return str((await bot.web.chat_postMessage(channel=user, text="You are paged."))["channel"])


def last(bot: Bot, user: str = ADE) -> str:
    message = bot.ws.direct(user)[-1]
    blocks: Any = message.blocks
    return f"{message.text}\n{shown(blocks)}" if blocks else message.text


async def escalated(bot: Bot, **more: Any) -> Clarification:
    record = await bot.open(**more)
    return await bot.router.escalate(record.id, "by hand", "Nobody knows.")


async def test_mention_in_a_channel_is_answered_there_to_its_author(bot: Bot) -> None:
    record, _ = await bot.asked()

    await say(bot, ADE, AGENTS, f"<@U0BOT> #{record.issue_number}")

    (told,) = bot.ws.ephemerals(ADE)
    assert told.channel == AGENTS
    assert record.id in told.text
    assert told.blocks


async def test_mention_is_heard_once_though_it_comes_twice(bot: Bot) -> None:
    await bot.ws.post(ADE, AGENTS, "<@U0BOT> help")

    await bot.ws.wait_for(lambda: {"message", "app_mention"} <= {ack.payload_type for ack in bot.ws.acks}, 60)
    await bot.conversation.idle()

    assert len(bot.ws.ephemerals(ADE)) == 1


async def test_mention_that_changes_something_does(bot: Bot) -> None:
    record, _ = await bot.asked()

    await say(bot, ADE, AGENTS, f"<@U0BOT>: answer {record.id} yes")

    assert (await bot.find(record)).asked.response is True
    assert "is answered: “Yes”" in bot.told(ADE)[-1]


async def test_mention_of_one_who_may_not_is_refused_aloud(bot: Bot) -> None:
    record, _ = await bot.asked()

    await say(bot, GIO, AGENTS, f"<@U0BOT> answer {record.id} yes")

    assert (await bot.find(record)).is_open
    assert "You cannot answer this" in bot.told(GIO)[-1]


@pytest.mark.parametrize(
    ("text", "hinted"),
    [("<@U0BOT> stail", True), ("thanks <@U0BOT> for that", False), ("<@U0FOLAKE> hello", False)],
)
async def test_only_who_speaks_to_the_bot_gets_a_hint(bot: Bot, text: str, hinted: bool) -> None:
    await say(bot, ADE, AGENTS, text)

    assert [("/clarify stale" in told) for told in bot.told(ADE)] == ([True] if hinted else [])


@pytest.mark.parametrize("text", ["hey <@U0BOT> #{n}", "Well, <@U0BOT>: #{n}", "hey\n<@U0BOT>, '#{n}'"])
async def test_mention_in_the_midst_is_read_from_there(bot: Bot, text: str) -> None:
    record, _ = await bot.asked()

    await say(bot, ADE, AGENTS, text.format(n=record.issue_number))

    (told,) = bot.ws.ephemerals(ADE)
    assert record.id in told.text


async def test_mention_in_the_midst_changes_nothing_and_says_how(bot: Bot) -> None:
    record, _ = await bot.asked()

    await say(bot, ADE, AGENTS, f"never <@U0BOT> answer {record.id} yes")

    assert (await bot.find(record)).is_open
    assert bot.told(ADE)[-1].startswith("Nothing was changed")
    assert f"“/clarify answer {record.id} yes”" in bot.told(ADE)[-1]


@pytest.mark.parametrize("text", ["thanks <@U0BOT>", "is <@U0BOT> up?", "ask <@U0BOT> help yourself"])
async def test_mention_in_talk_is_left_alone(bot: Bot, text: str) -> None:
    await say(bot, ADE, AGENTS, text)

    assert bot.told(ADE) == []


async def test_mention_in_a_sessions_thread_is_a_command_or_the_answer(bot: Bot) -> None:
    record, ts = await bot.asked()

    await say(bot, ADE, AGENTS, "<@U0BOT> stale", ts)
    assert (await bot.find(record)).is_open
    (told,) = bot.ws.ephemerals(ADE)
    assert told.thread_ts == ts

    await say(bot, ADE, AGENTS, "<@U0BOT> yes", ts)
    assert (await bot.find(record)).asked.response is True


async def test_mention_in_another_thread_gets_a_hint(bot: Bot) -> None:
    root = await bot.ws.post(FOLAKE, AGENTS, "Lunch?")

    await say(bot, ADE, AGENTS, "<@U0BOT> yes", root.ts)

    assert "“yes” is not understood" in bot.told(ADE)[-1]


async def test_mention_naming_somebody_is_a_command_all_the_same(bot: Bot) -> None:
    await say(bot, ADE, AGENTS, "<@U0BOT> oncall hand <@U0FOLAKE> 2h")

    assert "No on-call policy" in bot.told(ADE)[-1]


@pytest.mark.parametrize(("text", "words"), [("stale", "Nothing is stale"), ("hlep", "“/clarify help”")])
async def test_direct_message_is_answered_there(bot: Bot, text: str, words: str) -> None:
    channel = await dm(bot)

    await say(bot, ADE, channel, text)

    assert words in last(bot)
    assert not bot.ws.ephemerals(ADE)


async def test_pages_of_a_list_in_direct_messages_are_turned_in_place(bot: Bot) -> None:
    channel = await dm(bot)
    for n in range(10):
        await bot.open(session_id=f"s{n}", question=f"Question {n}?")
    await say(bot, ADE, channel, "mine")
    listed = bot.ws.direct(ADE)[-1]

    assert (await bot.ws.click(ADE, channel, listed.ts, label="Next")).ok

    await bot.ws.wait_for(lambda: "Page 2 of 2" in last(bot))
    assert bot.ws.direct(ADE)[-1].ts == listed.ts


async def test_reply_to_a_page_is_the_answer(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot, kinds=("freetext",))
    channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)

    for talk in ("note: let me see", "(let me see)", "<@U0FOLAKE> do you know?"):
        await say(bot, ADE, channel, talk, page)
    assert (await bot.find(record)).is_open
    await say(bot, ADE, channel, "stale", page)

    found = await bot.find(record)
    assert found.asked.response == "stale"
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"
    assert bot.ws.direct(ADE)[-1].thread_ts == page
    assert "is answered: “stale”" in last(bot)


async def test_direct_message_answers_the_only_page(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot)
    channel = await dm(bot)

    await say(bot, ADE, channel, "perhaps")
    assert "Reply with yes or no" in last(bot)
    await say(bot, ADE, channel, "yes")

    assert (await bot.find(record)).asked.response is True


async def test_reply_in_a_thread_that_is_no_page_answers_the_only_page(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot)
    channel = await dm(bot)
    await say(bot, ADE, channel, "yes", bot.ws.direct(ADE)[-1].ts)
    assert (await bot.find(record)).asked.response is True


@pytest.mark.parametrize("in_thread", [True, False])
async def test_edit_that_makes_a_direct_message_readable_answers_the_page(
    start: Start, in_thread: bool
) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot)
    channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)
    paging.channel = channel
    mine = await bot.ws.post(ADE, channel, "yse", thread_ts=page if in_thread else None)
    await bot.ws.wait_for(lambda: "yes or no" in last(bot))

    await bot.ws.edit(ADE, channel, mine.ts, "yes")

    assert (await bot.until_answered(record)).asked.response is True
    await bot.ws.wait_for(lambda: "is answered" in last(bot))


async def test_edit_of_a_direct_message_gives_no_command(start: Start) -> None:
    bot = await start()
    record, _ = await bot.asked()
    channel = await dm(bot)
    mine = await bot.ws.post(ADE, channel, "hello there")
    await bot.ws.wait_for(lambda: len(bot.ws.direct(ADE)) > 2)
    before = len(bot.ws.direct(ADE))

    await bot.ws.edit(ADE, channel, mine.ts, f"answer {record.id} yes")
    await say(bot, ADE, channel, "help")

    assert (await bot.find(record)).is_open
    assert len(bot.ws.direct(ADE)) == before + 2


async def test_file_alone_is_no_answer_to_a_page(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot)
    channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)
    bot.ws.emit(
        {
            "type": "message",
            "subtype": "file_share",
            "channel": channel,
            "channel_type": "im",
            "user": ADE,
            "text": "",
            "files": [{"id": "F1"}],
            "ts": f"{float(page) + 1:.6f}",
            "thread_ts": page,
        }
    )
    await bot.ws.wait_for(lambda: "A file alone is no answer" in last(bot))
    assert (await bot.find(record)).is_open


async def test_direct_message_with_several_pages_is_asked_back(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    records = [await escalated(bot, session_id=f"s{n}", question=f"Question {n}?") for n in range(2)]
    channel = await dm(bot)

    await say(bot, ADE, channel, "yes")
    asked = bot.ws.direct(ADE)[-1]
    assert "Which question" in asked.text
    assert (await bot.ws.click(ADE, channel, asked.ts, label="2. Question 1?")).ok

    assert [(await bot.find(record)).asked.response for record in records] == [None, True]


async def test_direct_message_without_a_page_gets_a_hint(bot: Bot) -> None:
    record, _ = await bot.asked()
    channel = await dm(bot)

    await say(bot, ADE, channel, "yes")

    assert "“yes” is not understood" in last(bot)
    assert (await bot.find(record)).is_open


async def test_mention_kept_before_a_kill_is_answered_after_it(built: Start, start: Start) -> None:
    first = await built()
    record, _ = await first.asked()
    heard = MessageEvent(
        "aside", AGENTS, "", "1750000000.000100", ADE, TEAM, f"<@U0BOT> answer {record.id} yes"
    )
    assert await first.memory.take_slack_event(heard.key, heard.body())

    await first.conversation.resume()
    await first.conversation.idle()

    assert (await first.find(record)).asked.response is True
    assert await first.memory.pending_slack_events() == []


async def test_direct_message_kept_before_a_kill_does_not_turn_to_another_question(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    first = await escalated(bot, kinds=("freetext",))
    channel = await dm(bot)
    message = await say(bot, ADE, channel, "use port 8080")
    assert not (await bot.find(first)).is_open
    second = await escalated(bot, session_id="other", question="What now?", kinds=("freetext",))
    told = len(bot.ws.direct(ADE))

    await bot.store.execute(  # as it is when the process ends before that was noted
        "update slack_events set state = 'new', body = ?",
        json.dumps(MessageEvent("dm", channel, "", message.ts, ADE, TEAM, "use port 8080").body()),
    )
    await bot.conversation.resume()
    await bot.conversation.idle()

    assert (await bot.find(second)).is_open
    assert len(bot.ws.direct(ADE)) == told  # what it was told stands there already
    assert "is answered: “use port 8080”" in last(bot)


@pytest.mark.parametrize(
    "text",
    ["CLR-99-001 yes", "answer CLR-99 yes", "#43 yes", "escalate", "/clarify stael", "answer 99-1 yes"],
)
async def test_what_is_meant_as_a_command_is_no_answer_to_a_page(start: Start, text: str) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot, kinds=("freetext",))
    channel = await dm(bot)

    await say(bot, ADE, channel, text)

    assert (await bot.find(record)).is_open
    assert "/clarify" in last(bot)


async def test_reply_to_a_page_that_is_closed_hears_who_answered(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(pages=paging)
    record, ts = await bot.asked()
    await say(bot, FOLAKE, AGENTS, "yes", ts)
    channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)

    await say(bot, ADE, channel, "no", page)

    assert f"already answered by <@{FOLAKE}>" in last(bot)


async def test_reply_in_the_thread_of_a_page_in_a_channel_is_the_answer(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot)
    page = str((await bot.web.chat_postMessage(channel=AGENTS, text="You are paged."))["ts"])
    paging.places[page] = (record.id,)

    await say(bot, GIO, AGENTS, "yes", page)
    assert "You cannot answer this" in bot.told(GIO)[-1]
    await say(bot, ADE, AGENTS, f"<@{FOLAKE}> yes?", page)
    await say(bot, ADE, AGENTS, "perhaps", page)
    assert "Reply with yes or no" in bot.told(ADE)[-1]
    assert (await bot.find(record)).is_open
    await say(bot, ADE, AGENTS, "<@U0BOT> yes", page)

    assert (await bot.find(record)).asked.decided_by == f"user:slack/{TEAM}/{ADE}"
