"""The digest that a channel gets once a week: what is in it, and that it comes once, whatever happens to the bot."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.app import Bot
from bot.integrations.digest.settings import DigestSettings
from tests.kit.world import World, config, said, url_of
from tests.scenario.pagers import Night, night
from tests.unit.bot.settings.parsing import problems
from workspace.seed import ADE, BOT_USER, EVA, FALLBACK, FOLAKE, GIO
from workspace.state import Channel, Message

OPEN, HUSH = "C0OPEN", "C0HUSH"
ROUTES = f"""
[[routes]]
agent = "open-*"
channel = "{OPEN}"

[[routes]]
agent = "hush-*"
channel = "{HUSH}"
"""
DIGEST = f"""
[digest]
channel = "{FALLBACK}"
every = "Mon 09:00"
timezone = "Europe/Berlin"
"""
MONDAY = datetime(2026, 11, 23, 8, tzinfo=UTC)  # nine o'clock in Berlin


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        for channel, is_private in ((OPEN, False), (HUSH, True)):
            made.workspace.state.channels[channel] = Channel(
                channel, channel.lower(), [FOLAKE, ADE, BOT_USER], is_private=is_private
            )
        at(made, MONDAY - timedelta(minutes=30))
        yield made


def at(stage: Night, moment: datetime) -> None:
    """Set the clock of everybody, while no bot runs."""
    stage.clock.ahead += moment - stage.clock.now()


def text(stage: World) -> str:
    made = config(stage.producer.url, channel=FALLBACK, more=DIGEST)
    return made.replace("[[routes]]", f"{ROUTES}\n[[routes]]", 1)


def digests(stage: World, channel: str = FALLBACK) -> list[Message]:
    found = [m for m in stage.workspace.messages(channel) if "The week to" in said(m)]
    return sorted(found, key=lambda message: message.ts)


async def posted(stage: World, count: int) -> Message:
    await stage.until(lambda: len(digests(stage)) >= count)
    assert len(digests(stage)) == count
    return digests(stage)[-1]


async def asks(bot: Bot, agent: str, question: str) -> None:
    asked: dict[str, Any] = {"agent": agent, "question": question, "kind": "yes_no", "timeout": 600_000}
    async with httpx.AsyncClient(base_url=url_of(bot), trust_env=False) as http:
        answer = await http.post("/questions", json=asked)
    assert answer.status_code == 201, answer.text


@pytest.mark.either_database
async def test_channel_gets_what_all_in_it_may_see_once_a_week(stage: Night) -> None:
    async with stage.bot(text(stage)) as bot:
        for agent, channel in (("open-1", OPEN), ("hush-1", HUSH), ("planner", FALLBACK)):
            await asks(bot, agent, f"{agent} asks?")
            card = await stage.card(f"{agent} asks?", channel)
            assert (await stage.workspace.click(ADE, channel, card.ts, label="Yes")).ok
        assert digests(stage) == []
        await stage.later(bot, minutes=31)
        told = said(await posted(stage, 1))
        assert await bot.messages.get("digest:2026-W48") is not None, "the next release knows it by this key"
        assert "The week to Monday, 23 November 2026" in told
        assert "*Asked*: 2 (" in told
        assert re.search(r"open-\*: [\d.]+ seconds, 1 asked, 1 answer\n", told)
        assert re.search(r"all others: [\d.]+ seconds, 1 asked, 1 answer\n", told)
        assert "Days in the time zone Europe/Berlin." in told
        assert "ade: 2 answers, median " in told
        assert "in this channel and in public ones" in told
        for secret in (
            "hush",
            "asks?",
            ADE,
        ):  # of another channel; an agent's words; a mention, which would call
            assert secret not in told
    async with stage.bot(text(stage)) as bot:
        stage.workspace.channel(FALLBACK).members.append(GIO)
        await stage.emit(timeout_seconds=600_000)
        await stage.card("Shall I go on?", FALLBACK)
        assert len(digests(stage)) == 1
        await stage.later(bot, days=7)
        told = said(await posted(stage, 2))
        assert "The week to Monday, 30 November 2026" in told
        assert "*Asked*: 1 (" in told


@pytest.mark.parametrize("other", [GIO, EVA])
async def test_channel_with_somebody_from_outside_gets_its_own_alone(stage: Night, other: str) -> None:
    stage.workspace.channel(FALLBACK).members.append(other)
    async with stage.bot(text(stage)) as bot:
        await asks(bot, "open-1", "Elsewhere?")
        await asks(bot, "planner", "Here?")
        await stage.card("Here?", FALLBACK)
        await stage.card("Elsewhere?", OPEN)
        await stage.later(bot, minutes=31)
        told = said(await posted(stage, 1))
    assert "*Asked*: 1 (" in told
    assert "Questions asked in this channel. " in told
    assert "open-" not in told


@pytest.mark.parametrize(
    ("hours", "weeks", "count"), [(23.9, 0, 1), (24.1, 0, 0), (2, 4, 1), (30, 4, 0)], ids=str
)
async def test_one_that_was_due_while_no_bot_ran_is_a_day_late_at_most(
    stage: Night, hours: float, weeks: int, count: int
) -> None:
    async with stage.bot(text(stage)):
        await stage.emit(timeout_seconds=600_000)
        await stage.card("Shall I go on?", FALLBACK)
    assert digests(stage) == []
    at(stage, MONDAY + timedelta(weeks=weeks, hours=hours))
    async with stage.bot(text(stage)) as bot:
        if count:
            told = said(await posted(stage, 1))
            assert f"*Asked*: {int(weeks == 0)} (" in told, "of the week that it is about"
        await bot.board.messages.in_flight.settled()
        await stage.later(bot, minutes=30)
    async with stage.bot(text(stage)) as bot:
        await stage.later(bot, hours=1)
        await bot.board.messages.in_flight.settled()
    assert len(digests(stage)) == count


async def test_what_its_channel_may_see_goes_nowhere_else(stage: Night) -> None:
    changed = text(stage).replace(f'[digest]\nchannel = "{FALLBACK}"', f'[digest]\nchannel = "{HUSH}"')
    async with stage.bot(changed) as bot:
        stage.workspace.channel(HUSH).is_archived = True
        await stage.later(bot, minutes=31)
        tried = lambda: any(call.outcome == "is_archived" for call in stage.workspace.calls)  # noqa: E731
        await stage.until(tried)
        await stage.until(lambda: bot.show.lanes.length == 0)
        await bot.board.messages.in_flight.settled()
    assert [channel for channel in stage.workspace.state.channels if digests(stage, channel)] == []


@pytest.mark.parametrize(
    ("every", "zone", "now", "due"),
    [
        ("Mon 09:00", "UTC", "2026-11-23T09:00+00:00", "2026-11-23T09:00+00:00"),
        ("Mon 09:00", "UTC", "2026-11-23T08:59+00:00", "2026-11-16T09:00+00:00"),
        ("mon 09:00", "UTC", "2026-11-23T08:59+00:00", "2026-11-16T09:00+00:00"),
        ("Mon 09:00", "UTC", "2026-11-29T23:59+00:00", "2026-11-23T09:00+00:00"),
        ("Sun 23:59", "UTC", "2026-11-23T00:00+00:00", "2026-11-22T23:59+00:00"),
        ("Mon 09:00", "Europe/Berlin", "2026-11-23T08:00+00:00", "2026-11-23T08:00+00:00"),
        ("Mon 00:30", "Pacific/Auckland", "2026-11-22T11:30+00:00", "2026-11-22T11:30+00:00"),
        (
            "Sun 02:30",
            "Europe/Berlin",
            "2026-03-29T01:30+00:00",
            "2026-03-29T01:30+00:00",
        ),  # there is no 02:30
        ("Sun 02:30", "Europe/Berlin", "2026-03-29T01:29+00:00", "2026-03-22T01:30+00:00"),
        ("Sun 02:30", "Europe/Berlin", "2026-10-25T00:30+00:00", "2026-10-25T00:30+00:00"),  # there are two
        ("Sun 02:30", "Europe/Berlin", "2026-10-25T01:45+00:00", "2026-10-25T00:30+00:00"),
        ("Mon 09:00", "Europe/Berlin", "2026-03-30T06:59+00:00", "2026-03-23T08:00+00:00"),
    ],
)
def test_digest_is_due_by_the_wall_clock(every: str, zone: str, now: str, due: str) -> None:
    settings = DigestSettings(channel="C1", every=every, timezone=zone)
    found = settings.last_due(datetime.fromisoformat(now))
    assert found.astimezone(UTC) == datetime.fromisoformat(due)
    assert settings.last_due(found.astimezone(UTC)) == found, "its week stays the same"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('[digest]\nevery = "Mon 09:00"', "clarify.toml:1: digest.channel: required"),
        ('[digest]\nchannel = "general"', 'clarify.toml:2: digest.channel: "general" is not a channel ID'),
        ('[digest]\nchannel = "C1"\nevery = "Monday 9:00"', 'clarify.toml:3: digest.every: expected a day and a time, such as "Mon 09:00"'),
        ('[digest]\nchannel = "C1"\nevery = "Mon 24:00"', "digest.every: expected a day and a time"),
        ('[digest]\nchannel = "C1"\ntimezone = "Mars/Base"', 'clarify.toml:3: digest.timezone: unknown time zone "Mars/Base"'),
    ],
)  # fmt: skip
def test_table_that_is_wrong_is_refused(source: str, expected: str) -> None:
    assert [line for line in problems(source) if expected in line], problems(source)
