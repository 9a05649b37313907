"""Several `clarify run` on one PostgreSQL: one leads, and what happens to it is made good by another."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from bot.workspace import Workspace
from bot.workspace.seed import ADE, AGENTS
from bot.workspace.state import Message
from tests.kit import world as worlds
from tests.kit.databases import Server, Wire
from tests.kit.lives import Life
from tests.kit.processes import Said, command
from tests.kit.until import until
from tests.kit.world import World, controls, environment, said, scene

TAKEOVER = 10.0  # seconds after the leader's last sign of life


@pytest.fixture
async def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> AsyncIterator[World]:
    monkeypatch.setattr(worlds, "new_database", postgres_server.new)
    async with scene(tmp_path) as made:
        yield made


@dataclass
class Machine:
    """Where one replica runs, with a configuration like all others."""

    folder: Path
    workspace: Workspace


class Replicas:
    """The replicas of one bot; at the end all are killed."""

    def __init__(self, stage: World) -> None:
        self._stage = stage
        self._lives: list[Life] = []

    async def add(self, *, fresh: bool = False) -> Life:
        machine = Machine(self._stage.folder / f"replica{len(self._lives)}", self._stage.workspace)
        machine.folder.mkdir()
        shutil.copy(self._stage.file, machine.folder)
        life = await Life.begin(machine, env=self._stage.environ, fresh=fresh)
        self._lives.append(life)
        return life

    async def end(self) -> None:
        for life in self._lives:
            life.kill()
        for life in self._lives:
            await life.end()


@pytest.fixture
async def replicas(stage: World) -> AsyncIterator[Replicas]:
    made = Replicas(stage)
    yield made
    await made.end()


async def takes_clicks(life: Life, times: int = 1, within: float = 60.0) -> None:
    await until(lambda: life.words().count("ready for clicks") == times or life.ended, within)
    assert not life.ended, life.last_words()


async def waits(life: Life, times: int = 1) -> None:
    await until(lambda: life.words().count("another bot leads; this one waits") == times or life.ended)
    assert not life.ended, life.last_words()


async def test_another_takes_over_and_nothing_is_asked_or_answered_twice(
    stage: World, replicas: Replicas
) -> None:
    first = await replicas.add()
    await takes_clicks(first)
    second = await replicas.add()
    await waits(second)
    card = await stage.ask()
    first.kill()
    await takes_clicks(second, within=TAKEOVER + 60)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
    assert (await stage.reply())["response"] is True
    shown = await stage.now_says(card, f"<@{ADE}>")
    assert not controls(shown)
    assert len(stage.cards()) == 1
    assert [reply["reply_token"] for reply in stage.producer.replies] == ["rpl_1"]


async def test_orderly_stop_hands_over(replicas: Replicas) -> None:
    first = await replicas.add()
    await takes_clicks(first)
    second = await replicas.add()
    await waits(second)
    assert await first.stop() == 0
    await takes_clicks(second)
    (stopped,), (leads,) = when(first, "stopped"), when(second, "leads")
    assert leads - stopped < timedelta(seconds=TAKEOVER / 2), "it did not wait for the lease to end"


def when(life: Life, event: str) -> list[datetime]:
    """The times at which a process logged that."""
    lines = [json.loads(line) for line in life.words().splitlines() if line.startswith("{")]
    return [datetime.fromisoformat(line["timestamp"]) for line in lines if line["event"] == event]


async def test_leader_that_stood_still_begins_anew_behind_the_other(stage: World, replicas: Replicas) -> None:
    first = await replicas.add(fresh=True)
    await takes_clicks(first)
    card = await stage.ask()
    first.process.send_signal(signal.SIGSTOP)
    second = await replicas.add()
    await takes_clicks(second, within=TAKEOVER + 60)
    first.process.send_signal(signal.SIGCONT)
    await until(lambda: "starting again, to wait for its lease to end" in first.words())
    await waits(first)
    assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="No")).ok
    assert (await stage.reply())["response"] is False
    await stage.now_says(card, f"<@{ADE}>")
    assert len(stage.cards()) == 1
    assert await second.stop() == 0
    await takes_clicks(first, times=2)


async def test_shell_works_on_the_same_database(stage: World, replicas: Replicas) -> None:
    env = dict(os.environ) | environment(stage.workspace) | stage.environ

    async def shell(*words: str) -> Said:
        return await command(stage.file, *words, env=env)

    assert "its tables will be made, or brought up to date" in (await shell("check")).out
    bot = await replicas.add()
    await takes_clicks(bot)
    await stage.ask("rpl_1", question="Which port?", accepted_response_kinds=["freetext"])
    await stage.ask("rpl_2", question="Shall I go on?", session="sess_two")
    listed = json.loads((await shell("list", "--json")).out)
    assert [each["id"] for each in listed] == ["CLR-100001-001", "CLR-100002-001"]
    assert "Which port?" in (await shell("show", "CLR-100001-001")).out
    assert (await shell("answer", "CLR-100001-001", "8080")).code == 0
    assert (await stage.reply("rpl_1"))["response"] == "8080"
    await stage.until(lambda: any("8080" in said(card) for card in stage.cards()))
    assert (await shell("answer", "CLR-100001-001", "9090")).code == 5
    exported = [json.loads(line) for line in (await shell("export")).out.splitlines()]
    assert {line["clarification"] for line in exported} == {"CLR-100001-001", "CLR-100002-001"}
    assert "planner" in (await shell("agents")).out.lower()
    checked = (await shell("check")).out
    assert "a bot leads now" in checked
    assert "its notices get through" in checked


async def test_while_the_database_is_away_nothing_is_acknowledged_and_all_goes_on_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_server: Server
) -> None:
    wire = Wire(postgres_server, postgres_server.new())
    monkeypatch.setattr(worlds, "new_database", lambda: wire.url)
    try:
        async with scene(tmp_path) as stage, stage.bot():
            stage.slack_waits(3.0)
            card = await stage.ask()
            wire.blocked = True
            wire.cut()
            outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
            assert outcome.error == "timeout", "Slack shows that it was not taken"
            wire.blocked = False
            await until_taken(stage, card)
            assert (await stage.reply())["response"] is True
            await stage.now_says(card, f"<@{ADE}>")
            await stage.ask("rpl_2", question="And now?")
    finally:
        wire.close()


async def until_taken(stage: World, card: Message) -> None:
    """Press until it is acknowledged."""
    while not (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok:
        assert not stage.producer.replies
