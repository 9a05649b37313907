"""Replies in threads, mentions, direct messages, and “Use as answer”."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.oncall.pages import PagePlace
from bot.people.access import Person
from bot.slack.payloads import Invocation, MessageEvent, moment
from bot.slackapi import Place
from bot.views.phrases import BUSY
from core.answers import from_text, is_talk
from core.clarification import Clarification, Decider
from tests.unit.bot.judges import shown
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import Bot, ask, locked
from workspace.seed import ADE, AGENTS, BOT_USER, FOLAKE, TEAM
from workspace.state import Message


async def reply(bot: Bot, user: str, ts: str, text: str, **more: Any) -> str:
    """Say something in a thread; returns when the bot has handled it."""
    heard = messages_heard(bot)
    message = await bot.ws.post(user, AGENTS, text, thread_ts=ts, **more)
    await bot.ws.wait_for(lambda: messages_heard(bot) > heard)
    await bot.conversation.idle()
    return message.ts


def messages_heard(bot: Bot) -> int:
    return sum(ack.payload_type in {"message", "message.thread_broadcast"} and ack.ok for ack in bot.ws.acks)


@pytest.mark.parametrize(
    ("text", "talks"),
    [
        ("note: yes", True),
        (" NOTE : no", True),
        ("(yes)", True),
        (" (hm (no)) ", True),
        ("  //no idea", True),
        ("(a) or (b)", False),
        ("blue (the light one)", False),
        ("(", False),
    ],
)
def test_talk_is_told_from_what_only_looks_like_it(text: str, talks: bool) -> None:
    assert is_talk(text) is talks


async def test_reply_counts_from_when_it_was_sent(bot: Bot) -> None:
    record, ts = await bot.asked()

    sent = await reply(bot, ADE, ts, "yes")

    at = (await bot.find(record)).given.answered_at
    assert at is not None
    assert abs(at.timestamp() - float(sent)) < 0.01


async def test_reply_after_the_answer_is_told_who_once(bot: Bot) -> None:
    _, ts = await bot.asked()
    await reply(bot, ADE, ts, "yes")

    await reply(bot, FOLAKE, ts, "no")
    await reply(bot, FOLAKE, ts, "no")
    await reply(bot, FOLAKE, ts, "ah, thanks for that")

    (told,) = bot.told(FOLAKE)
    assert f"<@{ADE}>" in told
    assert not bot.told(ADE)


async def goes_on(bot: Bot, record: Clarification) -> None:
    """Somebody else answers, and the agent asks again."""
    by = Decider("user:folake", "slack", TEAM, FOLAKE)
    await bot.router.answer(record.id, lambda seen: from_text(seen.asked, "no"), by, bot.clock.now())
    await bot.router.settle_reply(record.id, record.asked.reply_token or "", "delivered")
    await bot.router.open(record.issue_number, ask(topic="Rollout", question="Really?"))


@pytest.mark.parametrize("surface", ["reply", "shortcut", "answer", "resolve"])
async def test_words_for_one_round_do_not_answer_the_next(
    bot: Bot, monkeypatch: pytest.MonkeyPatch, surface: str
) -> None:
    """While Slack is asked who the author is, somebody else answers, and the agent asks again."""
    record, ts = await bot.asked(topic="Rollout")
    asks: Any = (
        bot.interactions.commands.changes.access if surface in {"answer", "resolve"} else bot.answering.access
    )
    refusal = asks.refusal

    async def refusal_late(person: Person, *more: Any) -> Any:
        found = await refusal(person, *more)
        await goes_on(bot, record)
        return found

    monkeypatch.setattr(asks, "refusal", refusal_late)
    if surface == "reply":
        await reply(bot, ADE, ts, "yes")
        (told,) = bot.ws.ephemerals(ADE)
        text = told.text
    elif surface == "shortcut":
        place = Place(AGENTS, ts)
        typed = Invocation(text="yes", person=Person(TEAM, ADE), place=place, response_url="", ts=ts)
        text = (await bot.conversation.typed.take_as_answer(typed)).text
    else:
        told_back = await bot.interactions.commands.run(
            f"{surface} {record.id} yes", Person(TEAM, ADE), Place(AGENTS)
        )
        text = told_back.text

    assert "the question has been asked again" in text
    after = await bot.find(record)
    assert (after.round, after.is_open) == (2, True)


async def test_message_that_is_done_while_the_stored_ones_are_read_is_not_handled_again(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()
    take, pending = bot.conversation.typed.take, bot.memory.pending_slack_events

    async def take_slowly(message: MessageEvent) -> Any:
        handled.append(message.ts)
        begun.set()
        await go_on.wait()
        return await take(message)

    async def pending_then_done() -> Any:
        found = await pending()
        go_on.set()
        await bot.conversation.idle()
        return found

    monkeypatch.setattr(bot.conversation.typed, "take", take_slowly)
    monkeypatch.setattr(bot.memory, "pending_slack_events", pending_then_done)
    _, ts = await bot.asked()
    message = await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    await begun.wait()
    await bot.conversation.resume()
    await bot.conversation.idle()

    assert handled == [message.ts]


async def test_deletion_of_an_answer_changes_nothing_and_says_so(bot: Bot) -> None:
    record, ts = await bot.asked()
    answer = await reply(bot, ADE, ts, "yes")

    await bot.ws.delete_message(ADE, AGENTS, answer)

    await bot.ws.wait_for(lambda: any("does not change" in each.text for each in bot.ws.thread(AGENTS, ts)))
    assert (await bot.find(record)).given.response is True


async def test_edit_of_talk_is_not_mentioned(bot: Bot) -> None:
    _, ts = await bot.asked()
    talk = await reply(bot, ADE, ts, "note: hm")
    before = len(bot.ws.thread(AGENTS, ts))

    await bot.ws.edit(ADE, AGENTS, talk, "note: hmm")
    await bot.ws.wait_for(lambda: bot.ws.acks[-1].payload_type == "message.message_changed")
    await bot.conversation.idle()

    assert len(bot.ws.thread(AGENTS, ts)) == before


async def test_reply_in_a_thread_that_is_not_ours_is_nothing_to_us(bot: Bot) -> None:
    await bot.asked()
    root = await bot.ws.post(FOLAKE, AGENTS, "lunch?")

    ts = await reply(bot, ADE, root.ts, "yes")

    # What was heard before may be what was acknowledged just now: it is this very reply that has to be done with.
    done = "select 1 from slack_events where event_id = :id and state = 'done'"
    async with asyncio.timeout(60):
        while not await bot.memory.store.read_one(done, id=f"{AGENTS}:{ts}"):  # noqa: ASYNC110 - the storage tells nobody
            await asyncio.sleep(0.01)
    assert not bot.told(ADE)
    assert not await bot.memory.pending_slack_events()


async def test_replies_of_a_thread_are_taken_in_order(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))

    for n in range(10):
        await bot.ws.post((ADE, FOLAKE)[n % 2], AGENTS, f"answer {n}", thread_ts=ts)
    found = await bot.until_answered(record)
    await bot.conversation.idle()

    assert found.given.response == "answer 0"


async def test_reply_kept_but_not_handled_is_handled_at_the_next_start(built: Start) -> None:
    bot = await built()
    record, ts = await bot.asked()
    message = await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    body = {"kind": "said", "channel": AGENTS, "thread_ts": ts, "ts": message.ts, "user": ADE, "team": TEAM}
    await bot.memory.take_slack_event(f"{AGENTS}:{message.ts}", {**body, "text": "yes", "missed": False})

    await bot.conversation.resume()
    await bot.conversation.idle()

    assert (await bot.find(record)).given.response is True
    assert not await bot.memory.pending_slack_events()


async def test_reply_answered_but_not_noted_is_no_second_answer(built: Start) -> None:
    """Killed between the answer in the ledger and the note that the reply is done."""
    bot = await built()
    record, ts = await bot.asked()
    message = await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    body = {"kind": "said", "channel": AGENTS, "thread_ts": ts, "ts": message.ts, "user": ADE, "team": TEAM}
    for _ in range(2):
        await bot.memory.take_slack_event(f"{AGENTS}:{message.ts}", {**body, "text": "yes", "missed": False})
        await bot.store.run(
            "update slack_events set state = 'new', body = :body", body=json.dumps(body | {"text": "yes"})
        )
        await bot.conversation.resume()
        await bot.conversation.idle()

    assert (await bot.find(record)).given.response is True
    assert not bot.told(ADE)


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1795300394.867926", datetime(2026, 11, 21, 22, 33, 14, 867926, tzinfo=UTC)),
        ("1795300394.0000019", datetime(2026, 11, 21, 22, 33, 14, 1, tzinfo=UTC)),
    ],
)
def test_moment_of_a_ts(ts: str, expected: datetime) -> None:
    assert moment(ts) == expected


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

    async def paged_before(self, user: str, ts: str, *, in_doubt: bool) -> set[str]:
        return {each for page, about in self.places.items() for each in about if float(page) < float(ts)}


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


async def test_mention_is_heard_once_though_it_comes_twice(bot: Bot) -> None:
    await bot.ws.post(ADE, AGENTS, "<@U0BOT> help")

    await bot.ws.wait_for(lambda: {"message", "app_mention"} <= {ack.payload_type for ack in bot.ws.acks}, 60)
    await bot.conversation.idle()

    assert len(bot.ws.ephemerals(ADE)) == 1


@pytest.mark.parametrize(
    ("text", "hinted"),
    [
        ("<@U0BOT> stail", True),
        ("thanks <@U0BOT> for that", False),
    ],
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


@pytest.mark.parametrize("text", ["thanks <@U0BOT>", "ask <@U0BOT> help yourself"])
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
    assert (await bot.find(record)).given.response is True


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

    assert (await bot.until_answered(record)).given.response is True
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
    await bot.ws.wait_for(lambda: "A file alone is not an answer" in last(bot))
    assert (await bot.find(record)).is_open


async def test_reply_to_a_page_that_was_written_before_the_next_round_does_not_answer_it(
    start: Start,
) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await bot.open(topic="Rollout")
    channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)
    await goes_on(bot, record)
    bot.ws.emit(
        {
            "type": "message",
            "channel": channel,
            "channel_type": "im",
            "user": ADE,
            "text": "yes",
            "ts": f"{float(page) + 0.000001:.6f}",
            "thread_ts": page,
            "team": TEAM,
        }
    )

    await bot.ws.wait_for(lambda: "was written before" in last(bot))
    after = await bot.find(record)
    assert (after.round, after.is_open) == (2, True)


async def test_direct_message_kept_before_a_kill_does_not_turn_to_another_question(start: Start) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    first = await escalated(bot, kinds=("freetext",))
    paging.channel = channel = await dm(bot)
    paging.places[bot.ws.direct(ADE)[-1].ts] = (first.id,)
    message = await say(bot, ADE, channel, "use port 8080")
    assert not (await bot.find(first)).is_open
    second = await escalated(bot, session_id="other", question="What now?", kinds=("freetext",))
    paging.places["1.000000"] = (second.id,)  # so that its place alone would not keep the message from it
    told = len(bot.ws.direct(ADE))

    await bot.store.run(  # as it is when the process ends before that was noted
        "update slack_events set state = 'new', body = :body",
        body=json.dumps(MessageEvent("dm", channel, "", message.ts, ADE, TEAM, "use port 8080").body()),
    )
    await bot.conversation.resume()
    await bot.conversation.idle()

    assert (await bot.find(second)).is_open
    assert len(bot.ws.direct(ADE)) == told  # what it was told stands there already
    assert "is answered: “use port 8080”" in last(bot)


@pytest.mark.parametrize(
    "text",
    [
        "CLR-99-001 yes",
        "#43 yes",
        "/clarify stael",
    ],
)
async def test_what_is_meant_as_a_command_is_no_answer_to_a_page(start: Start, text: str) -> None:
    paging = Paging(ADE)
    bot = await start(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record = await escalated(bot, kinds=("freetext",))
    channel = await dm(bot)

    await say(bot, ADE, channel, text)

    assert (await bot.find(record)).is_open
    assert "/clarify" in last(bot)


CALLBACK = "clarify.use_as_answer"


async def talk(bot: Bot, text: str, ts: str, user: str = FOLAKE) -> str:
    """Talk in a thread, which the bot leaves alone."""
    return (await bot.ws.post(user, AGENTS, text, thread_ts=ts)).ts


@pytest.mark.parametrize("reached", [True, False])
async def test_busy_ledger_is_told_before_the_acknowledgement_or_there_is_none(
    bot: Bot, reached: bool
) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    message = await talk(bot, "note: blue", ts)
    if not reached:
        bot.ws.context.options = replace(bot.ws.context.options, response_uses=0, ack_timeout=1.0)
        bot.ws.faults.add("chat.postEphemeral", "refuse:channel_not_found")

    with locked(bot):
        assert (await bot.ws.shortcut(ADE, CALLBACK, message, AGENTS)).ok is reached

    assert [BUSY in each for each in bot.told(ADE)] == [True] * reached
    assert (await bot.find(record)).is_open
