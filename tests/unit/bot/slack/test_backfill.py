from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from bot.delivery.messages import Fresh
from bot.slack import backfill
from bot.workspace.seed import ADE, AGENTS, FOLAKE, GIO
from core.clarification import Clarification, Decider
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import AGENT, SESSION, Bot
from tests.unit.bot.slack.test_typed import Paging, dm, escalated


def asked_for(bot: Bot, method: str) -> int:
    return sum(call.method == method for call in bot.ws.calls)


async def test_first_of_several_missed_replies_wins(built: Start) -> None:
    bot = await built()
    record, ts = await bot.asked()
    for user, text in ((GIO, "yes"), (ADE, "note: hm"), (FOLAKE, "no"), (ADE, "yes")):
        await bot.ws.post(user, AGENTS, text, thread_ts=ts)

    assert await bot.look_back() == 4

    found = await bot.find(record)
    assert found.given.response is False
    assert found.given.answered_by is not None
    assert found.given.answered_by.user == FOLAKE
    assert "guest" in bot.told(GIO)[0]
    assert f"<@{FOLAKE}>" in bot.told(ADE)[0]


async def test_reply_that_was_heard_is_not_taken_again(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("numeric",))
    await bot.ws.post(ADE, AGENTS, "unreadable", thread_ts=ts)
    await bot.ws.wait_for(lambda: bot.told(ADE))

    assert await bot.look_back() == 0
    assert await bot.look_back() == 0

    assert len(bot.told(ADE)) == 1
    assert (await bot.find(record)).is_open


async def test_reply_older_than_the_question_is_no_answer(built: Start) -> None:
    """Talk of before the question, found only after it was asked."""
    bot = await built()
    first, ts = await bot.asked(question="First?")
    await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    await bot.look_back()
    await bot.ws.post(FOLAKE, AGENTS, "no", thread_ts=ts)
    second = await bot.open(question="Second?")
    await bot.card(second, thread_ts=ts)

    assert await bot.look_back() == 1

    assert not (await bot.find(first)).is_open
    assert (await bot.find(second)).is_open


async def test_many_threads_are_asked_for_only_where_something_moved(
    built: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = await built()
    monkeypatch.setattr(backfill, "FEW", 3)
    cards = [await bot.asked(session_id=f"sess_{n}", question=f"Q{n}?") for n in range(6)]
    await bot.look_back()
    bot.ws.calls.clear()
    record, ts = cards[2]
    await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)

    assert await bot.look_back() == 1

    assert (await bot.find(record)).given.response is True
    assert asked_for(bot, "conversations.history") == 1
    assert asked_for(bot, "conversations.replies") == 1


async def test_long_thread_is_read_on_where_slack_says_to_wait(
    built: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot = await built()
    monkeypatch.setattr(backfill, "_PAGE", 2)
    record, ts = await bot.asked()
    for text in ("note: a", "note: b", "note: c", "yes"):
        await bot.ws.post(ADE, AGENTS, text, thread_ts=ts)
    bot.ws.faults.add(
        "conversations.replies", "429:0.01", times=9
    )  # more refusals than a call is repeated elsewhere
    assert await bot.look_back() == 4
    assert (await bot.find(record)).given.response is True
    read = [c.args.get("cursor") for c in bot.ws.calls if c.method == "conversations.replies" and not c.fault]
    assert len(read) == len(set(read))  # no page twice


async def test_p10_mark_does_not_pass_what_was_read_first(built: Start) -> None:
    """Between the first thread of a channel and the last can lie minutes, in which nobody listened to the first."""
    bot = await built()
    _, first = await bot.asked(session_id="sess_1", expires_at=datetime.now(UTC) + timedelta(minutes=1))
    _, second = await bot.asked(session_id="sess_2")
    begun = datetime.now(UTC).timestamp()
    bot.ws.faults.add("conversations.replies", "429:0.5", times=1)
    reading = asyncio.create_task(bot.look_back())
    await bot.ws.wait_for(lambda: not bot.ws.faults.pending())
    await bot.ws.post(ADE, AGENTS, "note: later", thread_ts=second)
    await reading
    mark = await bot.memory.watermark(AGENTS)
    assert mark is not None
    assert float(mark) <= begun + 0.4
    assert first < second


async def test_p10_questions_wait_until_their_thread_was_read(built: Start) -> None:
    bot = await built()
    record, ts = await bot.asked()
    other, _ = await bot.asked(session_id="sess_2", question="Other?")
    await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    bot.ws.faults.add("conversations.replies", "429:0.3", times=1)
    reading = asyncio.create_task(bot.look_back())
    await bot.ws.wait_for(lambda: not bot.ws.faults.pending())
    assert bot.unread.until(record.id) is not None
    assert bot.unread.until(other.id) is not None
    await reading
    assert bot.unread.until(record.id) is None
    assert bot.unread.until(other.id) is None
    assert bot.released == 2


async def test_channel_that_cannot_be_read_is_left_for_the_next_time(built: Start) -> None:
    bot = await built()
    record, ts = await bot.asked()
    await bot.ws.post(ADE, AGENTS, "yes", thread_ts=ts)
    bot.ws.faults.add("conversations.replies", "refuse:not_in_channel", times=1)

    assert await bot.look_back() == 0
    assert await bot.memory.watermark(AGENTS) is None
    assert await bot.look_back() == 1

    assert (await bot.find(record)).given.response is True
    assert await bot.memory.watermark(AGENTS) is not None


async def paged(bot: Bot, paging: Paging, **more: object) -> tuple[Clarification, str]:
    """An escalated question, and its page in Ade's direct messages."""
    record = await escalated(bot, **more)
    paging.channel = await dm(bot)
    page = bot.ws.direct(ADE)[-1].ts
    paging.places[page] = (record.id,)
    return record, page


@pytest.mark.parametrize("in_thread", [True, False])
async def test_answer_to_a_page_written_while_down_counts(built: Start, in_thread: bool) -> None:
    paging = Paging(ADE)
    bot = await built(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    record, page = await paged(bot, paging)
    await bot.ws.post(ADE, paging.channel, "yes", thread_ts=page if in_thread else None)

    assert await bot.look_back() == 1
    assert await bot.look_back() == 0

    assert (await bot.find(record)).given.response is True
    assert "is answered" in bot.ws.direct(ADE)[-1].text


async def test_direct_message_of_before_the_page_is_no_answer(built: Start) -> None:
    paging = Paging(ADE)
    bot = await built(f'["{FOLAKE}"]', paged=paging.paged, pages=paging)
    first, _ = await paged(bot, paging, question="First?")
    await bot.ws.post(ADE, paging.channel, "yes")
    await bot.router.abandon(first.id, Decider("user:os/ade@home", "shell"))
    second, _ = await paged(bot, paging, question="Second?", session_id="other")

    await bot.look_back()

    assert (await bot.find(second)).is_open


@pytest.mark.parametrize("ahead", [2 * backfill.MARGIN, -60.0])
async def test_p10_thread_of_a_post_in_doubt_is_read_whole_and_leaves_the_mark(
    built: Start, ahead: float
) -> None:
    """Also where its channel's other threads were read up to a mark that is newer than the reply to this post."""
    bot = await built()
    record = await bot.open()
    about = (record.id, record.round, record.asked.producer, SESSION)
    card = Fresh("card:1", "card", AGENTS, *about, asker=AGENT)
    await bot.messages.want([card])
    row = await bot.messages.get("card:1")
    assert row is not None
    await bot.messages.intend(row, AGENTS, None, bot.clock.now().timestamp(), opens_thread=True)
    message = bot.renderer.card(record)
    posted = await bot.web.chat_postMessage(channel=AGENTS, text=message.text, blocks=message.blocks)
    await bot.ws.post(ADE, AGENTS, "yes", thread_ts=str(posted["ts"]))
    mark = f"{bot.clock.now().timestamp() + ahead:.6f}"
    await bot.memory.set_watermark(AGENTS, mark)
    await bot.backfill.expect()
    assert bot.unread.until(record.id) is not None
    begun = await bot.messages.get(row.key)
    assert begun is not None

    await bot.messages.adopt(begun, str(posted["ts"]), "adopted")
    await bot.backfill.run_located()
    assert bot.unread.until(record.id) is not None
    assert await bot.backfill.look() == 1

    assert bot.unread.until(record.id) is None
    assert not bot.unread.is_in_doubt
    assert (await bot.find(record)).given.response is True
    assert await bot.memory.watermark(AGENTS) == mark
