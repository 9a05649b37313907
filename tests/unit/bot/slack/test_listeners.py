"""`/clarify` with its lists, and Home tabs, through the listeners."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bot.errors import StorageUnavailable
from bot.oncall.roster import OnDuty
from bot.people.access import Person
from bot.slack.payloads import Click, ControlOrigin
from bot.slackapi import Place
from bot.views import phrases
from bot.views.codec import ListPress
from bot.views.reaction import Tell
from tests.unit.bot.judges import shown
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import AGENT, Bot
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL, TEAM

ON_CALL = f"""
[[on_call]]
name = "platform"
users = ["{ONCALL}"]
[[routes]]
agent = "{AGENT}"
channel = "{AGENTS}"
answerers = ["{FOLAKE}"]
on_call = "platform"
"""


class Crew:
    """A roster and what was handed over."""

    def __init__(self, *users: str) -> None:
        self.users = users
        self.until: datetime | None = None
        self.handed: list[tuple[str, str, datetime, str]] = []

    async def on_call(self, policy_name: str) -> tuple[str, ...]:
        return (await self.who(policy_name)).users

    async def who(self, policy_name: str) -> OnDuty:
        return OnDuty(self.users, "fixed list", self.until)

    async def crew(self, policy: str) -> frozenset[str]:
        return frozenset()

    async def hand(
        self, policy: str, user: str, until: datetime, by: str, *, since: datetime | None = None
    ) -> None:
        self.handed.append((policy, user, until, by))


async def command(bot: Bot, text: str, user: str = ADE, channel: str = AGENTS) -> str:
    """Type a command; what the person is told, blocks and all."""
    before = len(bot.ws.ephemerals(user))
    outcome = await bot.ws.command(user, channel, "/clarify", text)
    assert outcome.ok, outcome
    await bot.ws.wait_for(lambda: len(bot.ws.ephemerals(user)) > before, 60)
    return said(bot, user)


def said(bot: Bot, user: str = ADE) -> str:
    last = bot.ws.ephemerals(user)[-1]
    blocks: Any = last.blocks
    return f"{last.text}\n{shown(blocks)}" if blocks else last.text


async def test_reading_that_takes_long_is_acknowledged_at_once(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, _ = await bot.asked()
    members, slack_tells = bot.people.members, asyncio.Event()

    async def slow(channel: str, **more: Any) -> Any:
        await slack_tells.wait()
        return await members(channel, **more)

    monkeypatch.setattr(bot.people, "members", slow)
    assert (await bot.ws.command(ADE, AGENTS, "/clarify", "")).ok  # acknowledged
    assert not bot.ws.ephemerals(ADE)

    slack_tells.set()
    await bot.ws.wait_for(lambda: bot.ws.ephemerals(ADE), 60)
    assert record.id in said(bot)


async def test_who_is_on_call_may_change_what_others_answer(start: Start) -> None:
    bot = await start(more=ON_CALL, roster=Crew(ONCALL))
    record, _ = await bot.asked()

    assert "You cannot answer" in await command(bot, f"answer {record.id} yes", ADE)
    assert "is answered" in await command(bot, f"answer {record.id} yes", ONCALL)


async def test_oncall_take_does_not_wait_for_long_to_know_whose_turn_it_is(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.access.LOOK_UPS", 0.2)

    class Slow(Crew):
        async def who(self, policy_name: str) -> OnDuty:
            await asyncio.sleep(30)
            return await super().who(policy_name)

    slow = Slow()
    bot = await start(more=ON_CALL, roster=slow)

    assert phrases.PEOPLE_UNKNOWN in await command(bot, "oncall take 2h", ADE)
    assert not slow.handed


async def test_oncall_take_lasts_as_said(start: Start) -> None:
    crew = Crew(ONCALL)
    bot = await start(more=ON_CALL, roster=crew)

    told = await command(bot, "oncall take 2h", FOLAKE)

    ((policy, user, until, by),) = crew.handed
    assert (policy, user, by) == ("platform", FOLAKE, FOLAKE)
    assert abs(until - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)
    assert "You are on call for platform until" in told


async def test_who_is_handed_on_call_is_so_although_nobody_could_tell_them(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = Crew(ONCALL)
    bot = await start(more=ON_CALL, roster=crew)

    async def fails(*_: object) -> None:
        raise StorageUnavailable

    monkeypatch.setattr(bot.delivery, "say", fails)
    told = await command(bot, f"oncall hand <@{ADE}|ade> 2h", ONCALL)

    assert len(crew.handed) == 1
    assert f"<@{ADE}> is on call for platform" in told
    assert "could not be notified" in told


async def test_turning_a_page_changes_nothing(bot: Bot) -> None:
    record, _ = await bot.asked()
    person, place = Person(TEAM, ADE), Place(AGENTS)

    click = Click(value="", person=person, place=place, control=ControlOrigin(bot.store.installation))
    await bot.interactions.press_list(ListPress("page", f"answer {record.id} yes", 2), click)
    await bot.later.drain()

    assert (await bot.find(record)).is_open


async def test_page_that_follows_the_acknowledgement_has_no_deadline(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float | None] = []

    async def run(text: str, person: Person, place: Place, page: int) -> Tell:
        deadlines.append(person.deadline)
        return Tell()

    monkeypatch.setattr(bot.interactions.commands, "run", run)
    person, origin = Person(TEAM, ADE, deadline=0.0), ControlOrigin(bot.store.installation)
    click = Click(value="", person=person, place=Place(AGENTS), control=origin)
    await bot.interactions.press_list(ListPress("page", "stale", 2), click)
    await bot.later.drain()
    assert deadlines == [None]
