"""At a change of shift, who comes on call and who leaves hear of it once, in one message each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from bot.app import Bot
from tests.kit.databases import Server
from tests.kit.lives import beside
from tests.kit.world import said
from tests.scenario.pagers import FIRST, Night, asked_and_paged, night, step
from tests.scenario.test_feeds import HOUR, Calendar, asked_again, calendar, mail, read
from workspace.seed import ADE, AGENTS, EVA, FOLAKE, ONCALL
from workspace.state import Message

pytestmark = pytest.mark.needs("ical")


FIXED = f'users = ["{ONCALL}"]\nannounce = true\n'
FEED = f'ical_env = "PLATFORM_ICAL"\nusers = ["{EVA}"]\nannounce = true\n'
BEGINS, ENDS = "You are on call for", "You are no longer on call for"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


@pytest.fixture
async def feed(stage: Night) -> AsyncIterator[Calendar]:
    """Noor has the next hour, Ade the four after."""
    async with calendar() as made:
        stage.environ["PLATFORM_ICAL"] = made.url
        now = stage.clock.now()
        made.shifts((mail(stage, ONCALL), now - HOUR, 2), (mail(stage, ADE), now + HOUR, 4))
        yield made


def told(stage: Night, user: str) -> list[str]:
    """What a person heard of shifts, oldest first."""
    return [text for each in stage.pages(user) if "on call" in (text := each.text) or "on-call shift" in text]


async def hears(stage: Night, user: str, text: str, count: int = 1) -> Message:
    """Returns the last of the `count` messages to a person that say `text`."""
    await stage.until(lambda: sum(text in each for each in told(stage, user)) == count, 20)
    return [each for each in stage.pages(user) if text in each.text][-1]


async def looked(bot: Bot, user: str, policy: str = "platform") -> None:
    """Returns once the bot has stored that `user` is on call and knows it, or was."""
    sql = "select 1 from turns where policy = :policy and users = :users"
    async with asyncio.timeout(20):
        while not await bot.base.store.read(sql, policy=policy, users=f'["{user}"]'):  # noqa: ASYNC110
            await asyncio.sleep(0.003)


async def command(stage: Night, text: str, user: str = FOLAKE) -> None:
    assert (await stage.workspace.command(user, AGENTS, "/clarify", text)).ok


@pytest.mark.either_database(always=True)
async def test_change_of_shift_is_told_once_to_who_comes_and_who_leaves(stage: Night, feed: Calendar) -> None:
    text = stage.config(step("0s", "dm"), people=FEED, take_timeout="3h")
    async with stage.bot(text) as bot:
        await read(bot)
        await looked(bot, ONCALL)
        assert not told(stage, ONCALL)
        card, page = await asked_and_paged(stage, ONCALL)
        await stage.press(page, "Take", ONCALL)
        await stage.message(f"<@{ONCALL}> claimed {FIRST}.")
        await stage.workspace.post(ONCALL, AGENTS, "note: the logs say <nothing> & more", thread_ts=card.ts)
        await stage.workspace.post(EVA, AGENTS, "note: not from who leaves", thread_ts=card.ts)
        await stage.later(bot, minutes=61)
        begins = await hears(stage, ADE, BEGINS)
        ends = await hears(stage, ONCALL, ENDS)
        assert f"{BEGINS} platform until " in begins.text
        assert f", after <@{ONCALL}>. Open now: 1." in begins.text
        assert f"{FIRST} · Planner" in begins.text
        assert f"Claimed by <@{ONCALL}>" in begins.text
        link = stage.workspace.permalink(AGENTS, card.ts)
        assert link in str(begins.blocks)
        assert f"Note by <@{ONCALL}> on {FIRST}: the logs say &lt;nothing&gt; &amp; more" in begins.text
        assert "not from who leaves" not in begins.text
        assert f"{ENDS} platform: <@{ADE}> took over. You still hold {FIRST}." in ends.text
    async with stage.bot(text) as bot:
        await looked(bot, ADE)
        await stage.later(bot, minutes=30)
        await asked_again(stage, bot, feed)
    assert (len(told(stage, ADE)), len(told(stage, ONCALL))) == (1, 1)


async def test_change_while_the_bot_was_down_is_told_when_it_is_back(stage: Night, feed: Calendar) -> None:
    text = stage.config(people=FEED)
    async with stage.bot(text) as bot:
        await read(bot)
        await looked(bot, ONCALL)
    stage.clock.leap(timedelta(minutes=90))
    async with stage.bot(text) as bot:
        await read(bot)
        await asked_again(stage, bot, feed, 2)
        await stage.later(bot, minutes=6)
        await hears(stage, ADE, BEGINS)
        await hears(stage, ONCALL, ENDS)


async def test_without_announce_nobody_is_told(stage: Night, feed: Calendar) -> None:
    async with stage.bot(stage.config(people=FEED.replace("announce = true", ""))) as bot:
        await read(bot)
        await stage.later(bot, minutes=61)
        await asked_and_paged(stage, ADE)
        assert not told(stage, ADE)
        assert not told(stage, ONCALL)


@pytest.mark.either_database
async def test_override_that_begins_and_ends_is_told_by_one_message_each(stage: Night) -> None:
    async with stage.bot(stage.config(people=FIXED, answerers=(FOLAKE,))) as bot:
        await looked(bot, ONCALL)
        await command(stage, f"oncall hand <@{ADE}> 2h")
        begins = await hears(stage, ADE, BEGINS)
        assert f"<@{FOLAKE}> handed it over." in begins.text
        assert "Nothing is open." in begins.text
        await hears(stage, ONCALL, ENDS)
        await stage.later(bot, minutes=121)
        await hears(stage, ONCALL, BEGINS)
        await hears(stage, ADE, ENDS)
        assert (len(told(stage, ADE)), len(told(stage, ONCALL))) == (2, 2)


async def test_change_that_is_found_several_times_at_once_is_told_once(stage: Night) -> None:
    async with stage.bot(stage.config(people=FIXED)) as bot:
        await looked(bot, ONCALL)
        await bot.board.roster.hand("platform", ADE, stage.clock.now() + HOUR, ONCALL)
        await asyncio.gather(*(bot.oncall.turns.look() for _ in range(3)))
        await hears(stage, ADE, BEGINS)
        await hears(stage, ONCALL, ENDS)
        await bot.board.messages.in_flight.settled()
        assert (len(told(stage, ADE)), len(told(stage, ONCALL))) == (1, 1)
        rows = await bot.base.store.read("select key from messages where key like 'word:oncall:shift:%'")
        assert len(rows) == 2


async def test_override_that_is_cancelled_is_told_by_one_message_each(stage: Night) -> None:
    async with stage.bot(stage.config(people=FIXED, answerers=(FOLAKE,))) as bot:
        await looked(bot, ONCALL)
        await command(stage, f"oncall hand <@{ADE}> 2h")
        await hears(stage, ADE, BEGINS)
        await command(stage, "oncall cancel 1")
        await hears(stage, ADE, ENDS)
        await hears(stage, ONCALL, BEGINS)
        assert (len(told(stage, ADE)), len(told(stage, ONCALL))) == (2, 2)


async def test_several_policies_that_change_at_once_are_one_message(stage: Night) -> None:
    start = (stage.clock.now() + timedelta(minutes=30)).replace(tzinfo=None, microsecond=0)
    shifts = f'{{start = {start.isoformat()}, shift = "1h", users = ["{ONCALL}", "{ADE}"], timezone = "UTC"}}'
    more = f'[[on_call]]\nname = "data"\nrotation = {shifts}\nannounce = true\n'
    text = stage.config(people=f"rotation = {shifts}\nannounce = true\n") + more
    async with stage.bot(text) as bot:
        await looked(bot, ONCALL)
        await looked(bot, ONCALL, "data")
        await stage.later(bot, minutes=91)
        begins, ends = await hears(stage, ADE, BEGINS), await hears(stage, ONCALL, ENDS)
        for policy in ("platform", "data"):
            assert f"{BEGINS} {policy} until" in said(begins)
            assert f"{ENDS} {policy}: <@{ADE}> took over." in said(ends)
        assert (len(told(stage, ADE)), len(told(stage, ONCALL))) == (1, 1)


async def test_shift_that_moves_by_minutes_after_it_was_told_is_not_told_again(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await looked(bot, ONCALL)
        await stage.later(bot, minutes=61)
        await hears(stage, ADE, BEGINS)
        later = stage.clock.now() + timedelta(minutes=9)
        feed.shifts((mail(stage, ONCALL), later - 3 * HOUR, 3), (mail(stage, ADE), later, 4))
        await asked_again(stage, bot, feed)
        await read(bot, f"shifts like '%{later.replace(microsecond=0).timestamp()}%'")
        for _ in range(5):
            await stage.later(bot, minutes=4)
        await asked_again(stage, bot, feed)
        assert [each for each in told(stage, ADE) if BEGINS in each or ENDS in each] == told(stage, ADE)[:1]
        assert sum(BEGINS in each or ENDS in each for each in told(stage, ONCALL)) == 1


async def test_feed_that_names_nobody_for_a_moment_is_not_told(stage: Night, feed: Calendar) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await looked(bot, ONCALL)
        before = feed.body
        feed.shifts()
        await asked_again(stage, bot, feed)
        await read(bot, "shifts = '[]'")
        feed.body = before
        await asked_again(stage, bot, feed)
        await read(bot, f"shifts like '%{ADE}%'")
        await stage.later(bot, minutes=10)
        await asked_again(stage, bot, feed)
        assert not told(stage, EVA)
        assert not told(stage, ONCALL)


async def test_calendar_that_puts_another_person_on_call_is_told_once_it_lasts(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await looked(bot, ONCALL)
        feed.shifts((mail(stage, ADE), stage.clock.now() - HOUR, 9))
        await asked_again(stage, bot, feed)
        await read(bot, f"shifts not like '%{ONCALL}%'")
        assert await bot.oncall.turns.look() > 0  # has seen it; five minutes from now it has lasted
        assert not any(BEGINS in text for text in told(stage, ADE))
        await stage.later(bot, minutes=6)
        await hears(stage, ADE, BEGINS)
        await hears(stage, ONCALL, ENDS)


@pytest.mark.either_database
async def test_shift_of_ones_own_that_moves_in_the_feed_is_told_to_that_person_alone(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        now = stage.clock.now()
        feed.shifts((mail(stage, ONCALL), now - HOUR, 2), (mail(stage, ADE), now + 3 * HOUR, 4))
        await asked_again(stage, bot, feed, 3)
        moved = await hears(stage, ADE, "Your on-call shift for platform moved in the calendar")
        assert "It was from" in moved.text
        assert len(told(stage, ADE)) == 1
        assert not told(stage, ONCALL)


async def test_what_is_forgotten_is_erased_from_the_announcement(stage: Night) -> None:
    stage.configure(stage.config(people=FIXED, answerers=(FOLAKE,)))
    async with stage.bot() as bot:
        await looked(bot, ONCALL)
        card, _ = await asked_and_paged(stage, ONCALL)
        await command(stage, f"oncall hand <@{ADE}> 2h")
        begins = await hears(stage, ADE, BEGINS)
        assert FIRST in begins.text
        await stage.press(card, "Yes", FOLAKE)
        await stage.until(lambda: stage.producer.replies)
        await bot.board.messages.in_flight.settled()
        outcome = await beside(stage, "forget", FIRST, "--yes", "--abandon")
        assert outcome.code == 0, outcome
        await stage.gone(begins)


async def test_change_is_told_once_by_the_replica_that_takes_over(
    stage: Night, feed: Calendar, postgres_server: Server
) -> None:
    stage.keep_in(postgres_server.new())
    stage.environ["PLATFORM_ICAL"] = feed.url
    text = stage.config(people=FEED)
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        leader = await first.enter_async_context(stage.bot(text))
        await read(leader)
        await looked(leader, ONCALL)
        other = await second.enter_async_context(stage.bot(text))
        assert (leader.store.leads, other.store.leads) == (True, False)
        await stage.later(leader, minutes=61)
        await looked(leader, ADE)
        await first.aclose()
        await stage.until(lambda: other.store.leads)
        await hears(stage, ADE, BEGINS)
        await hears(stage, ONCALL, ENDS)
        later = stage.clock.now() + 4 * HOUR
        feed.shifts((mail(stage, ADE), later - 5 * HOUR, 5), (mail(stage, FOLAKE), later, 9))
        await asked_again(stage, other, feed, 2)
        await stage.later(other, hours=4)
        await hears(stage, FOLAKE, BEGINS)
        await hears(stage, ADE, ENDS)
        assert sum(BEGINS in each for each in told(stage, ADE)) == 1
        assert len(told(stage, ONCALL)) == 1


async def test_override_that_is_handed_to_who_is_on_call_already_is_told_by_the_command(stage: Night) -> None:
    async with stage.bot(stage.config(people=FIXED, answerers=(FOLAKE,))) as bot:
        await looked(bot, ONCALL)
        await command(stage, f"oncall hand <@{ONCALL}> 2h")
        await hears(stage, ONCALL, f"<@{FOLAKE}> handed you on-call")
        await command(stage, "oncall cancel 1")
        await hears(stage, ONCALL, f"<@{FOLAKE}> cancelled your override")


async def test_person_who_leaves_and_comes_again_at_once_hears_nothing(stage: Night, feed: Calendar) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await looked(bot, ONCALL)
        now = stage.clock.now()
        feed.shifts(
            (mail(stage, ONCALL), now - HOUR, 2),
            (mail(stage, ONCALL), now + HOUR + timedelta(minutes=6), 2),
            (mail(stage, ADE), now + 3.1 * HOUR, 4),
        )
        await asked_again(stage, bot, feed)
        await read(bot, f"shifts like '%{(now + 3.1 * HOUR).replace(microsecond=0).timestamp()}%'")
        for minutes in (61, 3, 8, 60):
            await stage.later(bot, minutes=minutes)
            await asked_again(stage, bot, feed)
        assert not told(stage, EVA)
        assert not told(stage, ONCALL)
        await stage.later(bot, minutes=61)
        await hears(stage, ADE, BEGINS)
        await hears(stage, ONCALL, ENDS)
        assert len(told(stage, ONCALL)) == 1


async def test_backup_that_takes_over_from_a_calendar_that_is_away_reads_why(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        feed.shifts((mail(stage, ONCALL), stage.clock.now() - HOUR, 99))
        await asked_again(stage, bot, feed)
        await looked(bot, ONCALL)
        feed.status = 500
        await asked_again(stage, bot, feed)
        await stage.later(bot, hours=25)
        await asked_again(stage, bot, feed)
        assert await bot.oncall.turns.look() > 0  # has seen it
        await stage.later(bot, minutes=6)
        begins = await hears(stage, EVA, BEGINS)
        assert "The calendar has not been readable for 1 day" in begins.text
        ends = await hears(stage, ONCALL, ENDS)
        assert f"<@{EVA}> took over" in ends.text
