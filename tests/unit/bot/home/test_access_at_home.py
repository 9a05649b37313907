from __future__ import annotations

import asyncio
from collections import Counter
from fnmatch import fnmatchcase

import pytest

from bot.audience import Audience
from bot.errors import SlackUnreachableError
from bot.home.access import KeptAccess
from bot.home.facts import Admitted
from bot.people import Person, Refusal
from bot.settings.model import RouteSettings

PLANNERS = RouteSettings(agent="plan-*", channel="C1", answerers=("U0ADE",))
OTHERS = RouteSettings(channel="C2", answerers=("members",))
ADE = Person("T1", "U0ADE")


class Gate:
    """Ade may answer in C1; `away`: Slack does not tell."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.away = False

    async def refusal(self, person: Person, channel: str, audience: Audience) -> Refusal | None:
        self.asked[channel] += 1
        if self.away:
            raise SlackUnreachableError("timeout")
        return None if channel == "C1" else Refusal("you are not in the channel", ())


class Party:
    def __init__(self) -> None:
        self.now = 0.0
        self.gate = Gate()
        self.access = KeptAccess(
            lambda each: PLANNERS if fnmatchcase(each.agent, "plan-*") else OTHERS, lambda: self.now
        )
        self.access.use(self.gate)

    async def admitted(self) -> Admitted:
        return await self.access.admitted(ADE, [Audience("plan-a"), Audience("plan-b"), Audience("ops")])


@pytest.fixture
async def party() -> Party:
    return Party()


MAY = Admitted(frozenset({Audience("plan-a"), Audience("plan-b")}))


async def test_access_is_asked_once_for_each_route_and_kept(party: Party) -> None:
    for _ in range(100):
        assert await party.admitted() == MAY

    assert party.gate.asked == {"C1": 1, "C2": 1}


async def test_access_is_asked_again_after_minutes(party: Party) -> None:
    await party.admitted()
    party.now = 121.0
    await party.admitted()

    assert party.gate.asked == {"C1": 2, "C2": 2}


async def test_access_holds_what_is_known_while_slack_is_away_and_asks_seldom(party: Party) -> None:
    await party.admitted()
    party.now, party.gate.away = 121.0, True
    for _ in range(10):
        assert await party.admitted() == MAY

    assert party.gate.asked == {"C1": 2, "C2": 2}


async def test_access_that_is_not_known_is_not_given_and_said(party: Party) -> None:
    party.gate.away = True
    assert await party.admitted() == Admitted(frozenset(), unsure=True)
    party.gate.away = False
    assert await party.admitted() == Admitted(frozenset(), unsure=True)
    party.now = 16.0

    assert await party.admitted() == MAY


async def test_access_waits_until_there_is_a_gate() -> None:
    access = KeptAccess(lambda _: PLANNERS, lambda: 0.0)
    asking = asyncio.create_task(access.admitted(ADE, [Audience("plan-a")]))
    await asyncio.sleep(0)
    assert not asking.done()
    access.use(Gate())

    assert await asking == Admitted(frozenset({Audience("plan-a")}))
