"""Who is on call is kept in a calendar, or in PagerDuty: the right person is paged, and never nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from bot.app import Bot
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import said
from tests.scenario.pagers import FIRST, SECOND, Night, asked_and_paged, night, pager, step
from workspace.seed import ADE, AGENTS, EVA, FALLBACK, FOLAKE, GIO, ONCALL, PLATFORM

pytestmark = pytest.mark.needs("ical", "pagerduty", "apprise")


SECRET = "secret-part-of-the-address"


class Calendar:
    """A calendar's feed on loopback: `body` is what it says, `status` what it answers with."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.asked = 0
        self.url = ""

    def shifts(self, *shifts: tuple[str, datetime, float], odd: str = "") -> None:
        """It names these people by e-mail address from then on, for so many hours; the first of them with an odd line."""
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Test//EN"]
        for number, (email, begins, hours) in enumerate(shifts):
            ends = begins + timedelta(hours=hours)
            lines += [
                "BEGIN:VEVENT",
                f"UID:{number}@example.com",
                f"DTSTART:{begins:%Y%m%dT%H%M%SZ}",
                f"DTEND:{ends:%Y%m%dT%H%M%SZ}",
                "SUMMARY:On call",
                f"ATTENDEE;CUTYPE=INDIVIDUAL:mailto:{email}",
                *([odd] if odd and number == 0 else []),
                "END:VEVENT",
            ]
        self.body = "\r\n".join([*lines, "END:VCALENDAR", ""]).encode()

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        tag = f'"{hash(self.body)}"'
        if self.status == 200 and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        body = self.body if self.status == 200 else b""
        return web.Response(status=self.status, body=body, headers={"ETag": tag})


@asynccontextmanager
async def calendar() -> AsyncIterator[Calendar]:
    made = Calendar()
    async with served(made.answer) as address:
        made.url = f"{address}/{SECRET}/basic.ics"
        yield made


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


@pytest.fixture
async def feed(stage: Night) -> AsyncIterator[Calendar]:
    """Noor has the next hour, Ade the one after."""
    async with calendar() as made:
        stage.environ["PLATFORM_ICAL"] = made.url
        now = stage.clock.now()
        made.shifts((mail(stage, ONCALL), now - HOUR, 2), (mail(stage, ADE), now + HOUR, 2))
        yield made


HOUR = timedelta(hours=1)
FEED = 'ical_env = "PLATFORM_ICAL"\ntimezone = "Europe/Berlin"\n'
STANDS_IN = FEED + f'users = ["{FOLAKE}"]\n'
BROKEN = "The calendar for platform"


def mail(stage: Night, user: str) -> str:
    return stage.workspace.context.state.users[user].email


async def read(bot: Bot, clause: str = "read_at > 0") -> None:
    """Returns once the bot has kept what the feed says."""
    async with asyncio.timeout(60):
        while not await bot.base.store.read(f"select 1 from feeds where {clause}"):  # noqa: ASYNC110, S608
            await asyncio.sleep(0.003)


async def asked_again(stage: Night, bot: Bot, feed: Calendar, times: int = 1) -> None:
    """Minutes pass, until the bot has asked so many times more."""
    wanted = feed.asked + times
    async with asyncio.timeout(60):
        while feed.asked < wanted:
            await stage.later(bot, minutes=1)
            with suppress(TimeoutError):  # a request takes longer than a minute takes here
                await until(lambda before=feed.asked: feed.asked > before, 0.3)  # type: ignore[misc]


def told(stage: Night) -> list[str]:
    """What the fallback channel hears of the feed."""
    return [said(each) for each in stage.workspace.messages(FALLBACK) if BROKEN in said(each)]


@pytest.mark.either_database
async def test_person_whom_the_calendar_names_is_paged_and_after_the_handover_the_next(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, ONCALL)
        assert "backup" not in said(page)
        await stage.later(bot, minutes=61)
        await stage.live("Shall I go on?", ADE)
        assert not stage.pages(FOLAKE)


async def test_command_and_home_tab_say_that_it_is_by_the_calendar_and_until_when(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await stage.workspace.command(FOLAKE, AGENTS, "/clarify", "oncall")
        reply = await stage.whisper(FOLAKE, "platform")
        ends = stage.clock.now() + HOUR
        assert f"<@{ONCALL}> (calendar), until {ends:%-d %B %Y}" in reply.text
        await stage.workspace.open_home(ADE)
        await stage.until(lambda: "calendar" in str(stage.workspace.home(ADE)))


async def test_changed_calendar_counts_from_the_next_look(stage: Night, feed: Calendar) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        feed.shifts((mail(stage, ADE), stage.clock.now() - HOUR, 5))
        await asked_again(stage, bot, feed)
        await read(bot, f"shifts not like '%{ONCALL}%'")
        await asked_and_paged(stage, ADE)
        assert not stage.pages(ONCALL)


@pytest.mark.either_database
async def test_copy_serves_for_a_day_while_the_calendar_is_away_and_the_fallback_channel_hears_once(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts((mail(stage, ONCALL), stage.clock.now() - HOUR, 100))
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
    feed.status = 503
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await until(lambda: feed.asked >= 2)
        await asked_and_paged(stage, ONCALL)
        await asked_again(stage, bot, feed, 3)
        await until(lambda: told(stage))
        await asked_again(stage, bot, feed, 3)
        assert "HTTP 503" in told(stage)[0]
        assert f"After that, <@{FOLAKE}>" in told(stage)[0]
        assert SECRET not in told(stage)[0]
        await stage.later(bot, hours=25)
        await stage.ask("rpl_2", session="sess_two", question="And now?", timeout_seconds=36_000)
        await stage.escalate(SECOND)
        page = await stage.live("And now?", FOLAKE)
        assert "The calendar has not been readable for 1 day" in said(page)
        assert len(told(stage)) == 1


async def test_calendar_that_is_back_counts_again(stage: Night, feed: Calendar) -> None:
    feed.status = 404
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await until(lambda: feed.asked)
        await asked_again(stage, bot, feed, 3)
        await until(lambda: told(stage))
        assert "HTTP 404: the address may be out of date" in told(stage)[0]
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "The calendar cannot be read, so the backup is paged" in said(page)
        feed.status = 200
        feed.shifts((mail(stage, ADE), stage.clock.now() - HOUR, 100))
        await asked_again(stage, bot, feed)
        await read(bot)
        await stage.later(bot, minutes=5)
        await stage.live("Shall I go on?", ADE)
        await until(lambda: len(told(stage)) == 2)
        assert f"{BROKEN} works again: <@{ADE}> is on call now." in told(stage)[1]
        await asked_again(stage, bot, feed, 3)
        assert len(told(stage)) == 2


async def test_without_anybody_to_stand_in_the_next_step_goes_at_once_and_says_why(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts()
    steps = (step("0s", "thread", "dm"), step("30m", f"group:{PLATFORM}"))
    async with stage.bot(stage.config(*steps, people=FEED)) as bot:
        await read(bot)
        await asked_and_paged(stage, AGENTS)
        page = await stage.live("Shall I go on?", ADE)
        assert "No one is on call: the calendar lists no one right now" in said(page)
        await until(lambda: told(stage))
        assert "lists no one for the next month" in told(stage)[0]


async def test_somebody_whom_slack_does_not_know_is_replaced_and_the_fallback_channel_hears_whom(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts(("zoe@example.com", stage.clock.now() - HOUR, 9))
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "zoe@example.com, but no full member in Slack matches, so the backup is paged" in page.text
        await until(lambda: told(stage))
        assert "zoe@example.com: no one in Slack has that email address or name" in told(stage)[0]
    known = f'people = {{"zoe@example.com" = "{ADE}"}}\n'
    async with stage.bot(stage.config(people=STANDS_IN + known)) as bot:
        await read(bot, f"shifts like '%{ADE}%'")
        await stage.later(bot, minutes=5)
        await stage.live("Shall I go on?", ADE)
        await until(lambda: len(told(stage)) == 2)
        assert f"{BROKEN} works again: <@{ADE}> is on call now." in told(stage)[1]


ODD = "RECURRENCE-ID:TBD"


async def test_event_that_cannot_be_read_costs_nobody_elses_turn_and_the_fallback_channel_hears_once(
    stage: Night, feed: Calendar
) -> None:
    now = stage.clock.now()
    feed.shifts((mail(stage, FOLAKE), now + 20 * HOUR, 9), (mail(stage, ONCALL), now - HOUR, 30), odd=ODD)
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await asked_and_paged(stage, ONCALL)
        await until(lambda: told(stage))
        assert "has 1 event that can't be read in full: “On call” of" in told(stage)[0]
        assert "its RECURRENCE-ID “TBD” cannot be read" in told(stage)[0]
        await asked_again(stage, bot, feed, 3)
    async with stage.bot(stage.config(people=FEED)) as bot:
        await asked_again(stage, bot, feed, 2)
        assert len(told(stage)) == 1


async def test_person_whom_the_calendar_named_stays_on_call_while_their_event_cannot_be_read(
    stage: Night, feed: Calendar
) -> None:
    now = stage.clock.now()
    feed.shifts((mail(stage, ONCALL), now - HOUR, 100))
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
        feed.shifts((mail(stage, ONCALL), now - HOUR, 100), odd=ODD)
        await asked_again(stage, bot, feed, 4)
        await asked_and_paged(stage, ONCALL)
        await until(lambda: told(stage))
        assert "cannot be read: it does not say who is on call now (“On call” of" in told(stage)[0]
        assert not stage.pages(FOLAKE)


async def test_event_of_now_that_was_never_read_leaves_the_page_to_the_backup_and_says_why(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts((mail(stage, ONCALL), stage.clock.now() - HOUR, 100), odd=ODD)
    async with stage.bot(stage.config(people=STANDS_IN)):
        await until(lambda: told(stage))
        assert "cannot be read: it does not say who is on call now (“On call” of" in told(stage)[0]
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "The calendar cannot be read, so the backup is paged" in said(page)


async def test_person_who_left_is_not_waited_for(stage: Night, feed: Calendar) -> None:
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
        stage.workspace.change_user(ONCALL, deleted=True)
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "The person the calendar lists has left" in said(page)


@pytest.mark.parametrize("user", [GIO, EVA])
async def test_p6_guest_or_outsider_whom_the_calendar_names_is_not_paged_and_somebody_else_is(
    stage: Night, feed: Calendar, user: str
) -> None:
    feed.shifts((mail(stage, user), stage.clock.now() - HOUR, 9))
    async with stage.bot(stage.config(people=STANDS_IN)) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, FOLAKE)
        assert "but no full member in Slack matches, so the backup is paged" in said(page)
        await until(lambda: told(stage))
        assert f"cannot be paged ({mail(stage, user)}: " in told(stage)[0]
        assert not stage.pages(user)


async def test_p6_guest_whom_the_file_lists_is_paged_by_the_calendar_and_answers(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts((mail(stage, GIO), stage.clock.now() - HOUR, 9))
    listed = f'people = {{"Gio" = "{GIO}"}}\n'
    async with stage.bot(stage.config(people=STANDS_IN + listed, answerers=(FOLAKE,))) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, GIO)
        await stage.press(page, "Yes", GIO)
        assert (await stage.reply("rpl_1"))["response"] is True


async def test_p6_person_who_was_paged_by_the_calendar_and_made_a_guest_since_does_not_answer(
    stage: Night, feed: Calendar
) -> None:
    feed.shifts((mail(stage, ADE), stage.clock.now() - HOUR, 9))
    async with stage.bot(stage.config(people=STANDS_IN, answerers=(FOLAKE,))) as bot:
        await read(bot)
        _, page = await asked_and_paged(stage, ADE)
        stage.workspace.change_user(ADE, is_restricted=True)
        await stage.heard("user_change")
        await stage.press(page, "Yes", ADE)
        await stage.whisper(ADE, "you are a guest")
        await stage.workspace.command(ADE, AGENTS, "/clarify", f"answer {FIRST} yes")
        assert stage.record()["status"] == "escalated"


@pytest.mark.parametrize("group", ["policy", "step"])
async def test_p6_guest_in_a_user_group_is_not_paged_and_somebody_else_is(stage: Night, group: str) -> None:
    stage.workspace.change_group(PLATFORM, [GIO, ADE])
    people = f'group = "{PLATFORM}"\n' if group == "policy" else f'users = ["{FOLAKE}"]\n'
    steps = (step("0s", "dm" if group == "policy" else f"group:{PLATFORM}"),)
    async with stage.bot(stage.config(*steps, people=people)):
        await asked_and_paged(stage, ADE)
        assert not stage.pages(GIO)


async def test_p6_group_of_guests_leaves_the_page_to_the_next_step(stage: Night) -> None:
    stage.workspace.change_group(PLATFORM, [GIO])
    steps = (step("0s", f"group:{PLATFORM}"), step("30m", "dm"))
    async with stage.bot(stage.config(*steps)):
        await asked_and_paged(stage)  # at once
        assert not stage.pages(GIO)


async def test_p6_person_who_was_handed_the_turn_and_made_a_guest_since_is_passed_over(stage: Night) -> None:
    async with stage.bot(stage.config()) as bot:
        await bot.board.roster.hand("platform", ADE, stage.clock.now() + 9 * HOUR, by=ONCALL)
        stage.workspace.change_user(ADE, is_restricted=True)
        await stage.heard("user_change")
        await asked_and_paged(stage)
        assert not stage.pages(ADE)


async def test_person_whom_pagerduty_names_is_paged(stage: Night) -> None:
    now = stage.clock.now()

    async def oncalls(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Token token=pd-token"
        user = {"name": "Noor", "email": mail(stage, ONCALL)}
        oncall = {"user": user, "start": (now - HOUR).isoformat(), "end": (now + HOUR).isoformat()}
        return web.json_response({"oncalls": [oncall], "more": False})

    async with served(oncalls) as url:
        stage.environ["PAGERDUTY_TOKEN"] = "pd-token"
        plan = f'pagerduty = {{schedule = "PABC123", token_env = "PAGERDUTY_TOKEN", api_url = "{url}"}}\n'
        async with stage.bot(stage.config(people=plan + f'users = ["{FOLAKE}"]\n')) as bot:
            await read(bot)
            await asked_and_paged(stage, ONCALL)
            await stage.later(bot, minutes=61)
            page = await stage.live("Shall I go on?", FOLAKE)
            assert "PagerDuty lists no one right now, so the backup is paged" in said(page)


async def test_pager_outside_is_told_why_it_is_not_who_is_on_call(stage: Night, feed: Calendar) -> None:
    feed.shifts()
    async with pager() as outside:
        stage.environ["PAGER_URL"] = outside.url
        text = stage.config(step("0s", "apprise:PAGER_URL", "dm"), step("30m", "thread"), people=FEED)
        async with stage.bot(text) as bot:
            await read(bot)
            await stage.ask(timeout_seconds=36_000)
            await stage.escalate()
            told_outside = await outside.says("No one is on call: the calendar lists no one right now")
            assert FIRST in told_outside["title"]
            assert not [each for each in stage.workspace.messages(AGENTS) if "is waiting" in said(each)], (
                "the pager was told: the next step waits"
            )
