"""`/clarify digest`: its charts, the same figures in text, and what a workspace without charts gets."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.workspace.seed import ADE, AGENTS, BOT_USER, FALLBACK, FOLAKE
from bot.workspace.state import Ephemeral, Message
from tests.kit.world import World, config
from tests.scenario.pagers import night
from tests.scenario.test_weekly_digest import asks
from tests.scenario.typist import command, ids, words

CHART = "data_visualization"
TITLES = ["Questions a day by outcome", "Median time to answer by route"]
ROUTE = f'[[routes]]\nagent = "mailer-*"\nchannel = "{AGENTS}"\n\n'


def charts(shown: Message | Ephemeral) -> list[dict[str, Any]]:
    return [block for block in shown.blocks if block["type"] == CHART]


def tables(shown: Message | Ephemeral) -> list[list[list[str]]]:
    """The rows of each table in text, without its head."""
    texts = [
        block["elements"][0]["elements"][0]["text"] for block in shown.blocks if block["type"] == "rich_text"
    ]
    return [[re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]] for text in texts]


def series(chart: dict[str, Any]) -> dict[str, list[float]]:
    return {each["name"]: [point["value"] for point in each["data"]] for each in chart["chart"]["series"]}


def without_charts(stage: World) -> None:
    context = stage.workspace.context
    context.options = replace(context.options, without_blocks=frozenset({CHART}))


def outcomes(stage: World, method: str) -> list[str]:
    """What became of each digest that was sent this way."""
    return [
        call.outcome
        for call in stage.workspace.calls
        if call.method == method and str(call.args["text"]).startswith(("Last ", "The week to "))
    ]


async def test_charts_have_the_figures_of_the_tables_and_of_the_text(stage: World) -> None:
    text = config(stage.producer.url).replace("[[routes]]", f"{ROUTE}[[routes]]", 1)
    async with stage.bot(text) as bot:
        for agent, question in (("planner", "Go on?"), ("planner", "And now?"), ("mailer-1", "Mail it?")):
            await asks(bot, agent, question)
        for asked in ("Go on?", "Mail it?"):
            card = await stage.card(asked)
            assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        (closed,) = ids(await stage.card("And now?"))
        await command(stage, f"abandon {closed}")
        told = await command(stage, "digest 7d")
    by_day, by_route = charts(told)
    days, routes = tables(told)
    assert [by_day["title"], by_route["title"]] == TITLES
    counts = series(by_day)
    assert {name: sum(values) for name, values in counts.items()} == {
        "Answered": 2,
        "Open": 0,
        "Closed, no answer": 1,
    }
    assert [row[0] for row in days] == by_day["chart"]["axis_config"]["categories"]
    assert len(days) == 8, "the seventh day ago is counted from this time of day on"
    assert [[int(cell) for cell in row[1:]] for row in days] == [
        list(each) for each in zip(*counts.values(), strict=True)
    ]
    assert f"\n{days[-1][0]}: 2 answered, 1 closed without an answer\n" in told.text
    assert f"\n{days[0][0]}: none\n" in told.text
    assert (
        by_route["chart"]["axis_config"]["categories"]
        == [row[-1] for row in routes]
        == ["all others", "mailer-*"]
    )
    assert series(by_route) == {"Median": [float(row[0]) for row in routes]}
    unit = by_route["chart"]["axis_config"]["y_label"].lower()
    assert [
        f"{row[-1]}: {row[0]} {unit}, {row[2]} asked, {row[1]} answer" in told.text for row in routes
    ] == [True, True]


@pytest.mark.parametrize("asked", [0, 1])
async def test_chart_that_would_say_nothing_is_left_out(stage: World, asked: int) -> None:
    """Without questions there is none, with one route none by route."""
    async with stage.bot():
        for _ in range(asked):
            await stage.ask()
        told = await command(stage, "digest")
    assert [each["title"] for each in charts(told)] == TITLES[:asked]
    assert len(tables(told)) == asked
    assert f"Asked: {asked} (" in told.text


async def test_days_are_those_of_the_reader(stage: World) -> None:
    """These two zones never have the same date."""
    zones = {ADE: "Pacific/Kiritimati", FOLAKE: "Pacific/Pago_Pago"}
    for user, zone in zones.items():
        stage.workspace.state.users[user].tz = zone
    async with stage.bot():
        await stage.ask()
        for user, zone in zones.items():
            told = await command(stage, "digest 2h", user)
            asked = [row[0] for row in tables(told)[0] if row[2] == "1"]
            here = datetime.now(ZoneInfo(zone))
            assert asked == [f"{here:%a} {here.day} {here:%b}"]
            assert f"Days in the time zone {zone}." in words(told)


async def test_numbers_are_written_as_each_reader_is_used_to(stage: World) -> None:
    for user, locale in ((ADE, "de-DE"), (FOLAKE, "en-GB")):
        stage.workspace.change_user(user, locale=locale)
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        for user, average, limit in ((ADE, "1,0 on", "3.000"), (FOLAKE, "1.0 on", "3,000")):
            assert f"*Rounds*: {average} average" in words(await command(stage, "digest", user))
            assert (await stage.workspace.click(user, AGENTS, card.ts, label="Answer…")).ok
            assert f"Up to {limit} characters" in str((await stage.modal(user)).payload)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus_Mons", "../etc/passwd"])
async def test_days_are_utc_where_slack_names_no_known_zone(stage: World, zone: str) -> None:
    stage.workspace.state.users[ADE].tz = zone
    async with stage.bot():
        await stage.ask()
        assert "Days in the time zone UTC." in words(await command(stage, "digest"))


async def test_refused_charts_come_once_more_in_classic_blocks_and_this_is_remembered_for_a_day(
    tmp_path: Path,
) -> None:
    async with night(tmp_path) as stage:
        without_charts(stage)
        async with stage.bot() as bot:
            await stage.ask()
            told = await command(stage, "digest")
            assert charts(told) == []
            assert TITLES[0] in words(told)
            assert tables(told)[0][-1][1:] == ["0", "1", "0"]
            await command(stage, "digest")
            assert outcomes(stage, "response_url") == ["invalid_blocks", "ok", "ok"]
            await stage.workspace.post(ADE, AGENTS, f"<@{BOT_USER}> digest")
            await stage.until(lambda: outcomes(stage, "chat.postEphemeral") == ["ok"])
            context = stage.workspace.context
            context.options = replace(context.options, without_blocks=frozenset())
            assert charts(await command(stage, "digest")) == []
            await stage.later(bot, days=1)
            told = await command(stage, "digest")
            assert [each["title"] for each in charts(told)] == TITLES[:1]
    assert outcomes(stage, "response_url") == ["invalid_blocks", *["ok"] * 4]


async def test_mention_gets_charts_and_where_they_are_refused_the_rest(stage: World) -> None:
    async with stage.bot():
        await stage.ask()
        await stage.workspace.post(ADE, AGENTS, f"<@{BOT_USER}> digest")
        assert len(charts(await stage.whisper(ADE, "Last 7 days"))) == 1
        without_charts(stage)
        await stage.workspace.post(FOLAKE, AGENTS, f"<@{BOT_USER}> digest")
        told = await stage.whisper(FOLAKE, "Last 7 days")
        assert (charts(told), len(tables(told))) == ([], 1)
    assert outcomes(stage, "chat.postEphemeral") == ["ok", "invalid_blocks", "ok"]


@pytest.mark.parametrize("refuses", [False, True])
async def test_weekly_digest_is_one_message_with_charts_or_in_classic_blocks(
    tmp_path: Path, refuses: bool
) -> None:
    weekly = f'\n[digest]\nchannel = "{FALLBACK}"\nevery = "Mon 09:00"\n'
    async with night(tmp_path) as stage:
        monday = datetime(2026, 11, 23, 9, tzinfo=ZoneInfo("UTC"))
        stage.clock.ahead += monday - timedelta(minutes=30) - stage.clock.now()
        if refuses:
            without_charts(stage)
        async with stage.bot(config(stage.producer.url, channel=FALLBACK, more=weekly)) as bot:
            await stage.emit(timeout_seconds=600_000)
            await stage.card("Shall I go on?", FALLBACK)
            await stage.later(bot, minutes=31)
            posted = await stage.message("The week to", FALLBACK)
            await bot.board.messages.in_flight.settled()
            assert [each["title"] for each in charts(posted)] == ([] if refuses else TITLES[:1])
            assert tables(posted)[0][-1] == ["Mon 23 Nov", "0", "1", "0"]
            assert "Mon 23 Nov: 1 open\n" in posted.text
    assert outcomes(stage, "chat.postMessage") == (["invalid_blocks", "ok"] if refuses else ["ok"])
