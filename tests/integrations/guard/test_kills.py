"""`clarify.py guard` is killed at every step of a held call: the call is made at most once, and never without an Accept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from tests.integrations.guard.kit import Guarded, call
from tests.kit.stdio import Stdio
from tests.kit.world import World, controls, said
from workspace.seed import FOLAKE
from workspace.state import Message

KILLED_AT = """
import itertools, os, signal

steps = itertools.count()

def step():
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(function):
    def run(*given, **more):
        step()
        found = function(*given, **more)
        step()
        return found
    return run

for kind, name in ((clarify.Client, "call"), (clarify._Relay, "to_server"), (clarify._Relay, "write")):
    setattr(kind, name, counted(getattr(kind, name)))
"""
STEPS = 18  # list the tools, judge, hold, look, send, forward, answer, done: each before and after; what is beyond kills nothing


@pytest.fixture
async def guarded(stage: World) -> AsyncIterator[Guarded]:
    async with Guarded.running(stage) as made:
        yield made


async def lived(guarded: Guarded, name: str, step: int) -> bool:
    """Has a guard that is killed at a step make a call, and a person accept it if asked. Returns whether one did."""

    async def accepted(wire: Stdio) -> bool:
        wire.send(call(7, "delete_user", name=name))
        card = asyncio.ensure_future(shown(guarded, name))
        ended = asyncio.ensure_future(wire.process.wait())
        await asyncio.wait({card, ended}, return_when=asyncio.FIRST_COMPLETED)
        with suppress(TimeoutError):  # it was asked before the kill, or not
            card = asyncio.ensure_future(asyncio.wait_for(card, 0.5 if ended.done() else 60))
            await guarded.press(FOLAKE, await card, "Accept")
            return True
        return False

    async with guarded.wire(guarded.changed(KILLED_AT.format(step=step))) as wire:
        did = await accepted(wire)
        answered = asyncio.ensure_future(wire.said(7))
        ended = asyncio.ensure_future(wire.process.wait())
        await asyncio.wait({answered, ended}, return_when=asyncio.FIRST_COMPLETED)
        answered.cancel()
    return did


async def shown(guarded: Guarded, name: str) -> Message:
    found: Message = await guarded.stage.until(
        lambda: next(
            (
                each
                for each in guarded.stage.cards()
                if f"name: {name}" in said(each) and "Accept" in controls(each)
            ),
            None,
        )
    )
    return found


async def killed(guarded: Guarded, name: str, step: int) -> str | None:
    """Returns the state of a call whose guard was killed at a step; None: no one was asked."""
    before = len(guarded.states())
    did_accept = await lived(guarded, name, step)
    await guarded.a_minute_passes()
    guarded.stage.changed("update guard_calls set told = 'a later call'")  # as if the agent had called again
    made = [arguments for _, arguments in guarded.made() if arguments["name"] == name]
    assert len(made) <= did_accept
    states = guarded.states()[before:]
    state = states[0] if states else None
    if made:
        assert state in {"doubt", "done"}
    else:
        assert state in {None, "ended", "doubt"}
    return state


async def test_call_is_made_at_most_once_wherever_its_guard_is_killed(guarded: Guarded) -> None:
    found = [await killed(guarded, f"n{step}-", step) for step in range(STEPS + 1)]
    assert found[0] is None
    assert found[-1] == "done"
    assert {"ended", "doubt"} <= {*found}


@pytest.mark.long
async def test_call_is_made_at_most_once_in_hundreds_of_kills(guarded: Guarded) -> None:
    rng = random.Random(7)  # noqa: S311 - no secret
    for number in range(220):
        await killed(guarded, f"n{number}-", rng.randrange(STEPS))
