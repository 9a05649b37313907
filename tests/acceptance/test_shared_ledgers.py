"""The folder of ledger files while the bot, another process of ours and another implementation write at once.

Ours write into the database, and the bot's bridge the files; the other implementation writes the files alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.dying import NEVER, Doomed, Plan, install
from tests.acceptance.world import ACCUSING, question
from tests.acceptance.world import World as Outside
from tests.kit.until import until
from tests.kit.world import World, said
from tests.scenario.typist import of_issue
from workspace.seed import AGENTS, FOLAKE
from workspace.state import Message

ROOT = Path(__file__).parents[2]
FOREIGN = Path(__file__).with_name("foreign.py")
ISSUE = 7
HELD = 2.2  # seconds that a live holder keeps the lock
WAITS = 60.0  # how long a process may take on a machine that does much else
Json = dict[str, Any]

pytestmark = [
    pytest.mark.needs("ledgerfiles"),
    pytest.mark.files("ledger files are shared with other implementations"),
]


class Party:
    """A process that writes the ledger."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def held(self) -> None:
        """Returns when it has the lock."""
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"held\n"

    async def did(self) -> Json:
        """What it did, at its end."""
        out, _ = await asyncio.wait_for(self.process.communicate(), WAITS)
        assert self.process.returncode == 0
        did: Json = json.loads(out)
        return did

    async def killed(self) -> None:
        self.process.kill()
        await self.process.communicate()


class Shared:
    """One folder of ledgers and those who write there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "ledgers"
        self.folder.mkdir(exist_ok=True)
        self.path = self.folder / f"issue-{ISSUE}.json"
        self.marker = self.folder / f"issue-{ISSUE}.json.lock"
        self._parties: list[Party] = []

    async def shell(self, file: Path, count: int) -> Party:
        """Another process of ours; see `shell_beside`."""
        return await self._start("-m", "tests.acceptance.shell_beside", str(file), str(ISSUE), str(count))

    async def foreign(self, command: str, name: str, *more: str) -> Party:
        return await self._start("-I", str(FOREIGN), command, str(self.folder), str(ISSUE), name, *more)

    async def _start(self, *words: str) -> Party:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=PIPE, stdout=PIPE, cwd=ROOT
        )
        self._parties.append(party := Party(process))
        return party

    def read(self) -> Json:
        ledger: Json = json.loads(self.path.read_text())
        return ledger

    def bytes(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None

    def age(self) -> None:
        """The marker is older than any that counts."""
        then = time.time() - 31
        os.utime(self.marker, (then, then))

    async def end(self) -> None:
        for party in self._parties:
            if party.process.returncode is None:
                await party.killed()


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    made = Shared(tmp_path)
    yield made
    await made.end()


async def ask(stage: World, number: int) -> Message:
    """The bot's agent asks in the issue that is shared."""
    words = {"question": f"Ours asks {number}", "accepted_response_kinds": ["freetext"]}
    return await stage.ask(f"rpl_{number}", session=f"s_{number}", **words, **of_issue(ISSUE))


async def holds_all(stage: World, shared: Shared, asked: list[str], *told: Json) -> dict[str, list[str]]:
    """Everything that anybody was told is done is there, once, and nothing else; the file has it, too, and nobody is accused.
    Returns the answers to each question.
    """
    wanted = Counter([*asked, *(topic for did in told for topic in did["records"].values())])
    await until(lambda: Counter(each["topic"] for each in records(stage)) == wanted, WAITS)
    given = {body for did in told for body in did["answers"].values()}
    await until(lambda: given <= {body for bodies in answers(stage).values() for body in bodies}, WAITS)
    await stage.in_step(ISSUE)
    assert len({each["id"] for each in records(stage)}) == len(records(stage)), "an id was given twice"
    assert all(len(bodies) < 2 for bodies in answers(stage).values())
    keeps_unknown_fields(stage, shared, told)
    assert accused(stage) == []
    return answers(stage)


def records(stage: World) -> list[Json]:
    found: list[Json] = stage.ledger(ISSUE)["clarifications"] if ISSUE in stage.issues() else []
    return found


def answers(stage: World) -> dict[str, list[str]]:
    return {
        each["topic"]: [entry["body"] for entry in each["thread"] if entry["type"] == "answer"]
        for each in records(stage)
    }


def keeps_unknown_fields(stage: World, shared: Shared, told: tuple[Json, ...]) -> None:
    for record in records(stage):
        if record["to"] == "engineer":  # a foreigner asked
            assert record["labels"] == [record["from"], None, 2.5]
            assert record["thread"][0]["mood"] == {"of": record["from"]}
    counts = {next(iter(did["records"].values())).split()[0]: len(did["records"]) for did in told}
    assert shared.read().get("toldBy", {}) == counts


def accused(stage: World) -> list[str]:
    messages = [
        each for channel in stage.workspace.state.channels.values() for each in channel.messages.values()
    ]
    return [said(each) for each in messages if each.bot_id and any(words in said(each) for words in ACCUSING)]


async def test_processes_of_both_kinds_lose_nothing(stage: World, shared: Shared) -> None:
    async with stage.bot():
        shell = await shared.shell(stage.folder / "clarify.db", 12)
        parties = [await shared.foreign("write", f"foreign-{n}", "12", "0.05") for n in range(3)]
        for number in range(12):
            await ask(stage, number)
        told = [await party.did() for party in parties]
        ours = await shell.did()
        asked = [f"Shell asks {n}" for n in range(13)] + [f"Ours asks {n}" for n in range(12)]
        found = await holds_all(stage, shared, asked, *told)
        by_id = {each["id"]: each["topic"] for each in records(stage)}
        assert all(found[by_id[name]] == [body] for name, body in ours["did"].items())
        for number in range(12):
            if bodies := found[f"Ours asks {number}"]:
                assert [(await stage.reply(f"rpl_{number}"))["response"]] == bodies


async def test_foreign_holder_for_seconds_is_never_robbed_and_nobody_waits_for_it(
    stage: World, shared: Shared
) -> None:
    async with stage.bot():
        holder = await shared.foreign("hold", "holder", str(HELD))
        await holder.held()
        card = await ask(stage, 0)
        await stage.workspace.post(FOLAKE, AGENTS, "so", thread_ts=card.ts)
        assert (await stage.reply("rpl_0"))["response"] == "so"
        told = await holder.did()
        found = await holds_all(stage, shared, ["Ours asks 0"], told)
        assert found == {"Ours asks 0": ["so"], "holder asks 0": []}


async def stays(shared: Shared) -> None:
    """Fails if the file is changed, or made, for longer than the bot tries for a lock at once."""
    before, end = shared.bytes(), time.monotonic() + HELD
    while time.monotonic() < end:
        assert shared.bytes() == before, "somebody wrote while it was held"
        await asyncio.sleep(0.05)


async def test_killed_foreign_holder_is_recovered_when_its_marker_is_old(
    stage: World, shared: Shared
) -> None:
    first = await (await shared.foreign("write", "first", "1")).did()
    holder = await shared.foreign("die", "holder", "1.0")
    await holder.held()
    await holder.killed()
    async with stage.bot():
        await ask(stage, 0)
        await stays(shared)
        shared.age()
        await until(lambda: len(records(stage)) == 2, WAITS)
        told = await (await shared.foreign("write", "foreign", "2")).did()
        await holds_all(stage, shared, ["Ours asks 0"], first, told)
    assert not list(shared.folder.glob(".*orphan*"))


@pytest.mark.parametrize("content", [b"", b'{"agent": "somebody"}\xff'])
async def test_marker_of_any_content_is_honoured_until_it_is_old(
    stage: World, shared: Shared, content: bytes
) -> None:
    shared.marker.write_bytes(content)
    async with stage.bot():
        await ask(stage, 0)
        await stays(shared)
        assert shared.marker.read_bytes() == content
        shared.age()
        await holds_all(stage, shared, ["Ours asks 0"])


async def test_bot_that_slept_for_too_long_does_not_write_over_its_robber(world: Outside) -> None:
    """A closed laptop: its marker grew old, another took the lock by the rules."""
    shared = Shared(world.folder)
    path = ("after link marker", r"after commit .*\+ledgerfiles.*")
    sleeps = Plan(NEVER, world.folder / "epitaph.txt", path=path, signal=signal.SIGSTOP)
    async with Doomed.of(world, first=partial(install, sleeps)) as life:
        life.arm()
        await world.agent.emit(question("rpl-1", "sess_1", **of_issue(ISSUE)))
        await until(sleeps.epitaph.exists, WAITS)
        shared.age()
        told = await (await shared.foreign("write", "robber", "1")).did()
        life.process.send_signal(signal.SIGCONT)
        wanted = {"Shall I go on with rpl-1?", *told["records"].values()}
        await world.until(lambda: {each["thread"][0]["body"] for each in world.records()} == wanted)
        await world.until(lambda: world.in_files() == world.records())
    assert not shared.marker.exists()


async def test_half_a_ledger_of_a_killed_foreigner_is_set_aside_and_nothing_is_lost(
    stage: World, shared: Shared
) -> None:
    async with stage.bot():
        await ask(stage, 0)
        told = await (await shared.foreign("write", "first", "2")).did()
        await holds_all(stage, shared, ["Ours asks 0"], told)
        holder = await shared.foreign("die", "holder", "0.5")
        await holder.held()
        await holder.killed()
        torn = shared.path.read_bytes()
        shared.age()
        (aside,) = await until(lambda: list(shared.folder.glob("*.unreadable-*")), WAITS)
        await stage.in_step(ISSUE)
        assert aside.read_bytes() == torn
        assert {each["topic"] for each in records(stage)} == {"Ours asks 0", *told["records"].values()}
