"""Hook events that coding agents really sent, and what the hook answers. See captured/README.md."""

from __future__ import annotations

import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.world import World, controls, said
from tests.scenario.test_hooks import Hooks, press
from workspace.seed import AGENTS, FOLAKE

FOLDER = Path(__file__).parent / "captured"
CAPTURED: dict[str, dict[str, Any]] = {
    str(file.relative_to(FOLDER).with_suffix("")): json.loads(file.read_text())
    for file in sorted(FOLDER.glob("*/*.json"))
}
ASKING = {name: each for name, each in CAPTURED.items() if each["card"]}


@pytest.fixture
async def hooks(stage: World) -> AsyncIterator[Hooks]:
    async with stage.bot() as bot:
        yield Hooks(bot)


async def printed(process: Process) -> Any:
    """What the hook printed; None: nothing."""
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return json.loads(out) if out else None


async def started(hooks: Hooks, name: str) -> Process:
    return await hooks.start(CAPTURED[name]["event"], agent=name.partition("/")[0])


@pytest.mark.parametrize("name", ASKING)
async def test_captured_event_is_accepted(stage: World, hooks: Hooks, name: str) -> None:
    first, *others = ASKING[name]["card"]
    process = await started(hooks, name)
    card = await stage.card(first)
    for words in others:
        assert words in said(card)
    await press(stage, card, ASKING[name].get("click", "Accept"))
    assert await printed(process) == ASKING[name]["accept"]


@pytest.mark.parametrize("name", [name for name, each in ASKING.items() if each["reject"]])
async def test_captured_event_is_rejected(stage: World, hooks: Hooks, name: str) -> None:
    process = await started(hooks, name)
    card = await stage.card(ASKING[name]["card"][0])
    await stage.workspace.post(FOLAKE, AGENTS, "reject: run the linter first", card.ts)
    assert await printed(process) == ASKING[name]["reject"]


@pytest.mark.parametrize("name", ASKING)
async def test_nobody_decides_a_captured_event(stage: World, hooks: Hooks, name: str) -> None:
    process = await started(hooks, name)
    card = await stage.card(ASKING[name]["card"][0])
    process.send_signal(signal.SIGTERM)
    assert await printed(process) == ASKING[name]["silence"]
    assert not controls(await stage.now_says(card, "Withdrawn: “decided at the terminal”"))


@pytest.mark.parametrize("name", sorted(CAPTURED.keys() - ASKING.keys()))
async def test_captured_event_asks_nobody(stage: World, hooks: Hooks, name: str) -> None:
    assert await printed(await started(hooks, name)) == CAPTURED[name]["accept"]
    assert not stage.issues()


async def test_equal_calls_of_copilot_are_a_card_each(stage: World, hooks: Hooks) -> None:
    """Its events name no call: one Accept may not run both."""
    both = [await started(hooks, "copilot/bash") for _ in range(2)]
    one, other = await stage.until(lambda: len(stage.cards()) == 2 and stage.cards())
    await press(stage, one, "Accept")
    await press(stage, other, "Reject")
    found = [(await printed(each))["behavior"] for each in both]
    assert sorted(found) == ["allow", "deny"]


@pytest.mark.parametrize(
    ("more", "expected"),
    [((), {"behavior": "deny"}), (("--on-silence", "pass"), None)],
)
async def test_silence_denies_in_copilot(more: tuple[str, ...], expected: dict[str, str] | None) -> None:
    """Its rules come after the hook, and could allow the call."""
    given = CAPTURED["copilot/bash"]["event"]
    found = await printed(await Hooks().start(given, *more, agent="copilot"))
    assert (found and {"behavior": found["behavior"]}) == expected
    for sent in (
        b"",
        b"[]",
        b'{"hookName": "permissionRequest"}',
        b'{"hookName": "permissionRequest", "cwd": ',
    ):
        process = await Hooks().start(sent, *more, agent="copilot")
        out, _ = await process.communicate()
        is_denied = process.returncode == 2 or (out and json.loads(out)["behavior"] == "deny")
        assert bool(is_denied) == (expected is not None)


async def test_end_of_a_session_of_copilot_takes_its_cards_away(stage: World, hooks: Hooks) -> None:
    process = await started(hooks, "copilot/bash")
    card = await stage.card("Run a shell command")
    await (await started(hooks, "copilot/session-end")).communicate()
    await stage.now_says(card, "Withdrawn: “the session ended”")
    assert await printed(process) == {"behavior": "deny", "message": "no decision: decided at the terminal"}
