from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from bot.slack.replies import moment
from bot.workspace.seed import ADE, AGENTS, EVA, FOLAKE, GIO, TEAM
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import Bot, choices


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
    ("question", "text", "response"),
    [
        ({}, "yes", True),
        ({}, "Nope.", False),
        (choices("Staging", "Production"), "2", "v1"),
        (choices("Staging", "Production"), "staging", "v0"),
        (choices("R&D <lab>", "Other"), "R&D <lab>", "v0"),
        ({"kinds": ("numeric",)}, "1,200.50", 1200.5),
        ({"kinds": ("freetext",)}, "use *bold* & `a < b`", "use *bold* & `a < b`"),
        ({"kinds": ("freetext",)}, "see https://example.com/a?b=1&c=2", "see https://example.com/a?b=1&c=2"),
        ({"kinds": ("freetext",)}, "line one\nline two", "line one\nline two"),
    ],
)
async def test_reply_is_the_answer(bot: Bot, question: dict[str, Any], text: str, response: object) -> None:
    record, ts = await bot.asked(**question)

    await reply(bot, ADE, ts, text)

    found = await bot.find(record)
    assert found.asked.response == response
    assert found.asked.decided_by == f"user:slack/{TEAM}/{ADE}"


async def test_reply_counts_from_when_it_was_sent(bot: Bot) -> None:
    record, ts = await bot.asked()

    sent = await reply(bot, ADE, ts, "yes")

    at = (await bot.find(record)).asked.answered_at
    assert at is not None
    assert abs(at.timestamp() - float(sent)) < 0.01


async def test_reply_also_sent_to_the_channel_counts(bot: Bot) -> None:
    record, ts = await bot.asked()

    await reply(bot, ADE, ts, "yes", broadcast=True)

    assert (await bot.find(record)).asked.response is True


@pytest.mark.parametrize(
    "text",
    ["note: yes", " NOTE : no", "Note:yes", "(yes)", " (hm (no)) ", "// yes", "  //no idea", "@folake yes?"],
)
async def test_talk_is_not_an_answer(bot: Bot, text: str) -> None:
    record, ts = await bot.asked()

    await reply(bot, ADE, ts, text)

    assert (await bot.find(record)).is_open
    assert not bot.told(ADE)


@pytest.mark.parametrize("text", ["notes: blue", "(a) or (b)", "blue (the light one)", "(", "not: e"])
async def test_what_only_looks_like_talk_is_an_answer(bot: Bot, text: str) -> None:
    record, ts = await bot.asked(kinds=("freetext",))

    await reply(bot, ADE, ts, text)

    assert (await bot.find(record)).asked.response == text


async def test_mention_of_the_bot_is_left_out(bot: Bot) -> None:
    record, ts = await bot.asked()

    await reply(bot, ADE, ts, "@clarify yes")

    assert (await bot.find(record)).asked.response is True


async def test_unreadable_reply_gets_a_hint_once_per_person(bot: Bot) -> None:
    record, ts = await bot.asked()

    await reply(bot, ADE, ts, "hmm, let me think")
    await reply(bot, ADE, ts, "still thinking")
    await reply(bot, FOLAKE, ts, "what is this about")

    assert [len(bot.told(user)) for user in (ADE, FOLAKE)] == [1, 1]
    assert "yes or no" in bot.told(ADE)[0]
    assert (await bot.find(record)).is_open


async def test_ambiguous_number_is_asked_back(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("numeric",))

    await reply(bot, ADE, ts, "1,200")

    assert "two ways" in bot.told(ADE)[0]
    assert (await bot.find(record)).is_open


@pytest.mark.parametrize(("user", "why"), [(GIO, "guest"), (EVA, "not a member of this workspace")])
async def test_reply_of_somebody_who_may_not_answer_is_refused(bot: Bot, user: str, why: str) -> None:
    record, ts = await bot.asked()

    await reply(bot, user, ts, "yes")

    (told,) = bot.told(user)
    assert why in told
    assert (await bot.find(record)).is_open


async def test_several_open_questions_are_asked_about_and_the_author_decides(bot: Bot) -> None:
    first, ts = await bot.asked(question="Deploy?")
    second = await bot.open(question="Roll back?")
    await bot.card(second, thread_ts=ts)

    await reply(bot, ADE, ts, "yes")
    which = bot.ws.thread(AGENTS, ts)[-1]
    assert (await bot.find(first)).is_open
    await bot.ws.click(FOLAKE, AGENTS, which.ts, label="2. Roll back?")
    (told,) = await bot.ws.wait_for(lambda: bot.told(FOLAKE))
    assert "wrote the reply" in told
    assert (await bot.find(second)).is_open

    await bot.ws.click(ADE, AGENTS, which.ts, label="2. Roll back?")

    assert (await bot.find(second)).asked.response is True
    assert (await bot.find(first)).is_open


async def test_reply_after_the_answer_is_told_who_once(bot: Bot) -> None:
    _, ts = await bot.asked()
    await reply(bot, ADE, ts, "yes")

    await reply(bot, FOLAKE, ts, "no")
    await reply(bot, FOLAKE, ts, "no")
    await reply(bot, FOLAKE, ts, "ah, thanks for that")

    (told,) = bot.told(FOLAKE)
    assert f"<@{ADE}>" in told
    assert not bot.told(ADE)


async def test_edit_of_an_answer_changes_nothing_and_says_so_once(bot: Bot) -> None:
    record, ts = await bot.asked()
    answer = await reply(bot, ADE, ts, "yes")

    await bot.ws.edit(ADE, AGENTS, answer, "no")
    await bot.ws.wait_for(lambda: any("changes nothing" in each.text for each in bot.ws.thread(AGENTS, ts)))
    await bot.ws.edit(ADE, AGENTS, answer, "no!")
    await bot.ws.wait_for(
        lambda: [ack.payload_type for ack in bot.ws.acks].count("message.message_changed") >= 2
    )
    await bot.conversation.idle()

    assert (await bot.find(record)).asked.response is True
    assert sum("changes nothing" in each.text for each in bot.ws.thread(AGENTS, ts)) == 1


async def test_deletion_of_an_answer_changes_nothing_and_says_so(bot: Bot) -> None:
    record, ts = await bot.asked()
    answer = await reply(bot, ADE, ts, "yes")

    await bot.ws.delete_message(ADE, AGENTS, answer)

    await bot.ws.wait_for(lambda: any("changes nothing" in each.text for each in bot.ws.thread(AGENTS, ts)))
    assert (await bot.find(record)).asked.response is True


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
    done = "select 1 from slack_events where event_id = ? and state = 'done'"
    async with asyncio.timeout(60):
        while not await bot.memory._store.read_one(done, f"{AGENTS}:{ts}"):  # noqa: ASYNC110 - the storage tells nobody
            await asyncio.sleep(0.01)
    assert not bot.told(ADE)
    assert not await bot.memory.pending_slack_events()


async def test_replies_of_a_thread_are_taken_in_order(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))

    for n in range(10):
        await bot.ws.post((ADE, FOLAKE)[n % 2], AGENTS, f"answer {n}", thread_ts=ts)
    found = await bot.until_answered(record)
    await bot.conversation.idle()

    assert found.asked.response == "answer 0"


async def test_reply_kept_but_not_handled_is_handled_at_the_next_start(built: Start) -> None:
    bot = await built()
    record, ts = await bot.asked()
    message = await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    body = {"kind": "said", "channel": AGENTS, "thread_ts": ts, "ts": message.ts, "user": ADE, "team": TEAM}
    await bot.memory.take_slack_event(f"{AGENTS}:{message.ts}", {**body, "text": "yes", "missed": False})

    await bot.conversation.resume()
    await bot.conversation.idle()

    assert (await bot.find(record)).asked.response is True
    assert not await bot.memory.pending_slack_events()


async def test_reply_answered_but_not_noted_is_no_second_answer(built: Start) -> None:
    """Killed between the answer in the ledger and the note that the reply is done."""
    bot = await built()
    record, ts = await bot.asked()
    message = await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    body = {"kind": "said", "channel": AGENTS, "thread_ts": ts, "ts": message.ts, "user": ADE, "team": TEAM}
    for _ in range(2):
        await bot.memory.take_slack_event(f"{AGENTS}:{message.ts}", {**body, "text": "yes", "missed": False})
        await bot.store.execute(
            "update slack_events set state = 'new', body = ? ", _json(body | {"text": "yes"})
        )
        await bot.conversation.resume()
        await bot.conversation.idle()

    assert (await bot.find(record)).asked.response is True
    assert not bot.told(ADE)


def _json(body: dict[str, Any]) -> str:
    return json.dumps(body)


async def test_event_that_comes_again_is_handled_once(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("numeric",))
    sent = await reply(bot, ADE, ts, "unreadable")
    message = bot.ws.message(AGENTS, sent)

    heard = messages_heard(bot)
    bot.ws.board._events.posted(message)
    await bot.ws.wait_for(lambda: messages_heard(bot) > heard)
    await bot.conversation.idle()

    assert len(bot.told(ADE)) == 1
    assert (await bot.find(record)).is_open


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1795300394.867926", datetime(2026, 11, 21, 22, 33, 14, 867926, tzinfo=UTC)),
        ("1795300394", datetime(2026, 11, 21, 22, 33, 14, tzinfo=UTC)),
        ("1795300394.5", datetime(2026, 11, 21, 22, 33, 14, 500000, tzinfo=UTC)),
        ("1795300394.0000019", datetime(2026, 11, 21, 22, 33, 14, 1, tzinfo=UTC)),
    ],
)
def test_moment_of_a_ts(ts: str, expected: datetime) -> None:
    assert moment(ts) == expected


@pytest.mark.parametrize("ts", ["", "soon", "1.2.x"])
def test_moment_of_something_else(ts: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        moment(ts)
