"""SIGKILL at each step of "handed over, page, card, Take, acknowledgement, card updated, page deleted" (P1, P2, P4, P12)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.acceptance.dying import NEVER, Doomed, killed_at_steps
from tests.acceptance.test_kills_at_every_step import IMPATIENT
from tests.acceptance.world import LONG, World, a_world, has_controls
from tests.kit.world import said
from workspace.seed import AGENTS, FOLAKE, ONCALL
from workspace.state import Message


class Handover:
    """What one agent hands over, until somebody has it and saw no error."""

    def __init__(self, world: World, at: int) -> None:
        self._world = world
        self._name = f"reason-{at}-ends"
        self._session = f"sess_{at}"

    async def play(self) -> None:
        event = {
            "type": "aaep:agent.handoff.requested",
            "event_id": f"evt_{self._name}",
            "session_id": self._session,
            "urgency": "critical",
            "reason": self._name,
            "target_kind": "human",
            "packaged_context": {"open": "everything"},
        }
        await self._world.agent.emit(event)
        await self._world.until(self._is_offered, LONG)
        (card,) = self.cards()
        while has_controls(card):
            outcome = await self._world.press(FOLAKE, card, "Take")
            if outcome is not None and outcome.ok:
                break
        await self._world.until(self._is_over, LONG)

    def cards(self) -> list[Message]:
        return [each for each in self._world.workspace.messages(AGENTS) if self._name in each.text]

    def pages(self) -> list[Message]:
        there = self._world.workspace.direct(ONCALL)
        return [each for each in there if self._name in said(each)]

    def _is_offered(self) -> bool:
        return any(map(has_controls, self.cards())) and any(map(has_controls, self.pages()))

    def _is_over(self) -> bool:
        claimed = [f"Claimed by <@{FOLAKE}>" in said(each) for each in self.cards()]
        return all(claimed) and not self.pages()

    def check(self) -> None:
        """One card, which says who has it and has no controls; the page that was not read is gone."""
        (card,) = self.cards()
        assert self._is_over()
        assert not has_controls(card)
        incidents = self._world.rows("select closed_at from incidents where key like ?", f"%{self._name}%")
        assert [row[0] is not None for row in incidents] == [True], "a second page would follow"
        sql = "select entry from incident_log join incidents on id = incident where key like ?"
        log = [json.loads(entry) for (entry,) in self._world.rows(sql, f"%{self._name}%")]
        assert [each["user"] for each in log if each["what"] == "taken"] == [FOLAKE]


async def killed(folder: Path, at: int) -> bool:
    """One handoff whose process dies at step `at`, and another process that goes on; False: it was over before."""
    async with a_world(folder, options=IMPATIENT) as world:
        handed = Handover(world, at)
        async with Doomed.at(world, at) as life:
            await world.get_acquainted()
            life.arm()
            work = asyncio.create_task(handed.play())
            died = await life.died_before(work)
        if died:
            async with Doomed.at(world, NEVER) as next_life:
                assert not await next_life.died_before(work)
        handed.check()
        return died


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.long)])
async def test_kill_at_every_step_of_a_handoff_that_is_taken(tmp_path: Path, every: int) -> None:
    """Each in a world of its own: pages of one policy that follow each other closely wait to become one."""
    assert await killed_at_steps(tmp_path, every, killed) * every >= 48
