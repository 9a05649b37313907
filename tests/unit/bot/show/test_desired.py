"""Floods: at most twenty cards of an agent, the others in one roll-up, promoted as places get free."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bot.routing import Audiences, Group
from bot.settings.model import ResponderSettings
from bot.show.desired import Rollups
from core.clarification import Clarification
from core.index import Index
from tests.kit.builders import NOW, record
from tests.unit.bot.audiences import audiences

AGENT = Group("retirement-planner", "C0GOOD")


class World:
    def __init__(self, put_to: Audiences | None = None) -> None:
        self.index = Index()
        self.rollups = Rollups(self.index, put_to or audiences())

    def ask(self, seq: int, agent: str = AGENT.agent, **more: Any) -> Clarification:
        made = record(seq=seq, agent_id=agent, **more).model_copy(
            update={"created": NOW + timedelta(seconds=seq)}
        )
        return self.take(made)

    def take(self, summary: Clarification) -> Clarification:
        self.index.put(summary)
        self.rollups.update(summary)
        return summary

    def carded(self, last: int) -> list[int]:
        return [n for n in range(1, last + 1) if self.rollups.claim_card(f"CLR-42-{n:03d}")]


@pytest.fixture
def world() -> World:
    return World()


def test_agents_do_not_take_each_others_places(world: World) -> None:
    for seq in range(1, 21):
        world.ask(seq)
    world.carded(20)
    world.ask(21, agent="other")
    assert world.rollups.claim_card("CLR-42-021")
    assert world.rollups.held(Group("other", "C0GOOD")) == []


def test_what_is_put_to_people_elsewhere_has_the_room_there() -> None:
    world = World(audiences(people={"architect": ("C0THERE",)}))
    for seq in range(1, 21):
        world.ask(seq)
    world.carded(20)
    world.ask(21, to="architect")
    assert world.rollups.claim_card("CLR-42-021")
    world.ask(22, to="reviewer")  # nobody answers for that role: it is shown with the agent's own
    assert [each.id for each in world.rollups.held(AGENT)] == ["CLR-42-022"]


def test_next_round_that_is_put_to_others_gives_its_place_back() -> None:
    world = World(audiences(people={"architect": ("C0THERE",)}))
    for seq in range(1, 22):
        world.ask(seq)
    world.carded(21)
    world.ask(1, to="architect")
    assert [each.id for each in world.rollups.next_cards(AGENT)] == ["CLR-42-021"]
    assert world.rollups.claim_card("CLR-42-001")
    assert world.rollups.has_place("CLR-42-001")
    assert not world.rollups.has_place("CLR-42-021")


def test_what_is_not_shown_takes_no_place() -> None:
    world = World(audiences(responders={"security": ResponderSettings(command=("true",))}))
    own: dict[str, Any] = {"producer": None, "session_id": None, "reply_token": None, "via": "shell"}
    for seq in range(1, 41):
        world.ask(seq, to="security", **own)
    assert (world.rollups.held(AGENT), world.rollups.next_cards(AGENT)) == ([], [])
    assert not world.rollups.has_place("CLR-42-001")


def test_after_a_restart_those_with_cards_keep_their_places(world: World) -> None:
    """Cards 4 to 23 are posted, as 1 to 3 were answered long ago; the index comes in any order."""
    summaries = [world.ask(seq) for seq in range(30, 3, -1)]
    for summary in summaries:
        if int(summary.id[-3:]) <= 23:
            world.rollups.note_card(summary)
    assert world.carded(30) == [1, 2, 3, *range(4, 24)]  # 1 to 3 are not open
    assert [held.id[-3:] for held in world.rollups.held(AGENT)] == [f"{n:03d}" for n in range(24, 31)]
