"""`/clarify digest` and the weekly one: their tables, and the same figures in text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from bot.commands import grammar
from bot.integrated import commands_of
from bot.views.lists import said
from tests.integrations.digest.test_weekly import asks
from tests.kit.world import World, config
from tests.scenario.typist import command, ids, words
from tests.unit.bot.judges import RENDERER, judge_message
from workspace.seed import ADE, AGENTS, FOLAKE
from workspace.state import Ephemeral, Message

ADDED = commands_of(())
TITLES = ["Questions a day by outcome", "Median time to answer by route"]
ROUTE = f'[[routes]]\nagent = "mailer-*"\nchannel = "{AGENTS}"\n\n'


def titles(shown: Message | Ephemeral) -> list[str]:
    return [title for title in TITLES if f"*{title}*" in words(shown)]


def tables(shown: Message | Ephemeral) -> list[list[list[str]]]:
    """The rows of each table in text, without its head."""
    texts = [
        block["elements"][0]["elements"][0]["text"] for block in shown.blocks if block["type"] == "rich_text"
    ]
    return [[re.split(r" {2,}", line.strip()) for line in text.splitlines()[1:]] for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("digest", timedelta(days=7)),
        ("digest 30d", timedelta(days=30)),
        ("digest “2 weeks”.", timedelta(days=14)),
        ("digest soon", "“soon” is not a time span of up to a year. For example: “/clarify digest 7d”."),
        ("digest 7d pgn", "“7d pgn” is not a time span"),
        ("digest 367d", "“367d” is not a time span"),
        ("digest " + "999999w" * 150, "is not a time span"),
        ("digets 30d", "Did you mean “/clarify digest 30d”?"),
        ("help diges", "Did you mean “/clarify help digest”?"),
    ],
)
def test_command_takes_a_span(text: str, expected: timedelta | str) -> None:
    found = grammar.parse(text, ADDED)
    if isinstance(expected, str):
        assert isinstance(found, grammar.Hint)
        assert expected in found.text
    else:
        assert isinstance(found, grammar.Other)
        assert (found.command.word, found.wanted) == ("digest", expected)


def test_help_lists_and_explains_it() -> None:
    for topic, expected in (
        (None, "digest [7d] – statistics for the last days\nsearch"),
        ("digest", "“/clarify digest 30d”"),
    ):
        message = RENDERER.message(said(grammar.help_text(topic, ADDED), heading="Help", live=False))
        judge_message(message)
        assert expected in message.text


async def test_tables_have_the_figures_of_the_text(stage: World) -> None:
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
    assert titles(told) == TITLES
    days, routes = tables(told)
    assert [[int(cell) for cell in row[1:]] for row in days] == [[0, 0, 0]] * 7 + [[2, 0, 1]]
    assert f"\n{days[-1][0]}: 2 answered, 1 closed without an answer\n" in told.text
    assert f"\n{days[0][0]}: none\n" in told.text
    assert [row[-1] for row in routes] == ["all others", "mailer-*"]
    for row in routes:
        assert re.search(rf"{re.escape(row[-1])}: {row[0]} \w+, {row[2]} asked, {row[1]} answer", told.text)


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
