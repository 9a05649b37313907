"""Who is on call is kept in a calendar, or in PagerDuty: the right person is paged, and never nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from bot.app import Bot
from bot.workspace.seed import ADE, FOLAKE, ONCALL
from tests.kit.served import served
from tests.scenario.pagers import Night, asked_and_paged, night

SECRET = "secret-part-of-the-address"


class Calendar:
    """A calendar's feed on loopback: `body` is what it says, `status` what it answers with."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.asked = 0
        self.url = ""

    def shifts(self, *shifts: tuple[str, datetime, float]) -> None:
        """It names these people by e-mail address from then on, for so many hours."""
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


def mail(stage: Night, user: str) -> str:
    return stage.workspace.context.state.users[user].email


async def read(bot: Bot) -> None:
    """Returns once the bot has kept what the feed says."""

    async with asyncio.timeout(60):
        while not await bot.store.read("select 1 from feeds where digest <> ''"):  # noqa: ASYNC110
            await asyncio.sleep(0.003)


@pytest.mark.either_database
async def test_person_whom_the_calendar_names_is_paged_and_after_the_handover_the_next(
    stage: Night, feed: Calendar
) -> None:
    async with stage.bot(stage.config(people=FEED)) as bot:
        await read(bot)
        await asked_and_paged(stage, ONCALL)
        await stage.later(bot, minutes=61)
        await stage.live("Shall I go on?", ADE)
        assert not stage.pages(FOLAKE)
