"""One `clarify run` on SQLite, or several on PostgreSQL, each with its own way to it and its own clock; and what happens to them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.databases import Server, Wire
from tests.kit.lives import Life
from tests.kit.until import until
from workspace import Workspace

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
"""Sets a process's clock; where it is not installed (`apt-get install faketime`) all clocks are right."""
SKEWS = (0, 0, -150, 90, 240)  # seconds that a replica's clock is ahead, from start to start
_BEGINS_ANEW = "restarting; this replica lost its lease"
_LOOK = 0.03
_STOPPED = (12.0, 16.0)  # seconds: longer than the lease
_PAUSED = (0.5, 5.0)
_CUT_OFF = (1.0, 15.0)
_DOWN = (0.0, 3.0)


@dataclass
class Replica:
    """One of them: a folder with its clarify.toml and bot.log, and the process that lives there now."""

    number: int
    folder: Path
    workspace: Workspace
    wire: Wire | None  # None: SQLite
    environ: dict[str, str]
    life: Life | None = None
    skew: int = 0  # seconds that its clock is ahead
    busy: bool = False  # a fault is on it
    address: str | None = None  # None: it is still starting
    lives: int = 0
    _read: int = 0
    _rest: str = ""

    async def start(self, skew: int) -> None:
        env = self.environ | ({} if self.wire is None else {"CLARIFY_DATABASE_URL": self.wire.url})
        self.address, self.skew = None, skew
        if skew and FAKETIME is not None:
            env |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME": f"{skew:+d}",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with (self.folder / "bot.log").open("a") as log:
            log.write(json.dumps({"event": "a new life", "skew": skew}) + "\n")
        self.life = await Life.begin(self, env=env, fresh=True)
        self.lives += 1

    @property
    def pid(self) -> int:
        assert self.life is not None
        return self.life.process.pid

    @property
    def ended(self) -> bool:
        return self.life is None or self.life.ended

    async def kill(self) -> None:
        if self.life is not None and not self.life.ended:
            self.life.kill()
            await self.life.process.wait()

    def news(self) -> Iterator[dict[str, Any]]:
        """What it logged since."""
        log = self.folder / "bot.log"
        if not log.exists():
            return
        with log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data.decode(errors="replace")).split("\n")
        for line in lines:
            if line.startswith("{"):
                with suppress(ValueError):
                    yield json.loads(line)


@dataclass
class Takeover:
    """`since`: the last sign of life of the one that led before, if something happened to it; `how` it fell silent;
    `stopping`: for how long before that it had been asked to stop. Times in seconds since 1970, by one clock.
    """

    at: float
    replica: int
    since: float | None
    how: str | None
    stopping: float = 0.0

    @property
    def seconds(self) -> float | None:
        return None if self.since is None else max(self.at - self.since, 0.0)


@dataclass
class Fleet:
    """`replicas`, with `happened` counting what was done to them, and `takeovers` in their order."""

    folder: Path
    workspace: Workspace
    server: Server | None
    text: str
    rng: random.Random
    environ: dict[str, str]
    url: str = ""
    replicas: list[Replica] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    takeovers: list[Takeover] = field(default_factory=list)
    leader: Replica | None = None
    troubles: list[str] = field(default_factory=list)
    _silent: tuple[float, str] | None = None
    _asked_at: float | None = None  # when the one that leads was asked to stop
    also: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)  # what else may happen
    _healing: set[asyncio.Task[None]] = field(default_factory=set)

    def note(self, what: str, replica: Replica | None = None) -> None:
        """Into faults.log, by the time of this machine."""
        now = time.time()
        time_of_day = time.strftime("%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}"
        whose = "" if replica is None else f" replica {replica.number} (clock {replica.skew:+d} s)"
        with (self.folder / "faults.log").open("a") as log:
            log.write(
                f"{time_of_day} {what}{whose}{', leads' if replica is self.leader and replica else ''}\n"
            )

    async def start(self, count: int) -> None:
        assert self.server is not None or count == 1
        self.url = "" if self.server is None else self.server.new()
        for number in range(count):
            folder = self.folder / f"replica{number}"
            folder.mkdir()
            (folder / "clarify.toml").write_text(self.text)
            wire = None if self.server is None else Wire(self.server, self.url)
            self.replicas.append(Replica(number, folder, self.workspace, wire, self.environ))
        first, *others = self.replicas
        await first.start(self._skew())
        if self.server is None:
            self.leader = first
        await self.until(lambda: self.leader is not None and self.workspace.link.connections)
        for each in others:
            await each.start(self._skew())
        await self.until(lambda: len(self.workspace.link.connections) == count)

    async def until(self, predicate: Callable[[], Any], timeout: float = 90.0) -> Any:
        """As `until`, reading the logs meanwhile."""

        def look() -> Any:
            self.look()
            return predicate()

        return await until(look, timeout)

    async def end(self) -> None:
        for task in self._healing:
            task.cancel()
        for each in self.replicas:
            with suppress(ProcessLookupError):
                if not each.ended:
                    os.kill(each.pid, signal.SIGCONT)
            await each.kill()
            if each.wire is not None:
                each.wire.close()

    def _skew(self) -> int:
        return self.rng.choice(SKEWS)

    @property
    def addresses(self) -> list[str]:
        """Where those listen that live."""
        return [each.address for each in self.replicas if each.address is not None and not each.ended]

    # What they say

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK)

    def look(self) -> None:
        """Read what they logged, and note who leads."""
        for each in self.replicas:
            for line in each.news():
                self._read(each, line)
            if each.ended and not each.busy and each.life is not None:
                each.busy = True
                self.note("ended by itself", each)
                self.troubles.append(f"replica {each.number} ended by itself: {each.life.words()[-1000:]}")
                self._later(self._starts(each))

    def _read(self, replica: Replica, line: dict[str, Any]) -> None:
        event = line.get("event")
        if event == "listening":
            replica.address = line["url"]
        elif event == _BEGINS_ANEW:
            replica.address = None
            self.note("begins anew", replica)
        elif event == "stopped" and replica is self.leader and self._asked_at is not None:
            self._silent = time.time(), "stopped in order"
        elif event == "leading":
            since, how = self._silent or (None, None)
            now, asked = time.time(), self._asked_at
            if asked is not None and how is None:
                since, how = now, "stopped in order"  # its last words are read after this
            if replica is not self.leader or how is not None:
                stopping = 0.0 if asked is None or since is None else since - asked
                self.takeovers.append(Takeover(now, replica.number, since, how, stopping))
            self.leader, self._silent, self._asked_at = replica, None, None
            self.note("leads", replica)
        elif line.get("level") == "critical" or "exception" in line:
            self.troubles.append(f"replica {replica.number}: {json.dumps(line)[:3000]}")

    def _silence(self, replica: Replica, how: str) -> None:
        self.note(how, replica)
        if replica is self.leader and self._silent is None:
            self._silent = time.time(), how

    def _well(self, replica: Replica) -> None:
        """It goes on; if it leads still, it never fell silent."""
        self.note("goes on", replica)
        replica.busy = False
        if replica is self.leader:
            self._silent = None

    # What happens to them

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        return {
            "killed": self.kill,
            "stopped": self.stop,
            "paused": self.pause,
            "cut": self.cut,
            "cut off": self.cut_off,
            "cut at commit": self.cut_at_commit,
            "database restarted": self.restart_database,
            "stopped in order": self.stop_in_order,
            "socket cut": self.cut_socket,
            "post late": self.late_post,
            "Slack": self.spoil_slack,
        } | self.also

    async def fault(self, kinds: tuple[str, ...]) -> None:
        """One of `kinds`."""
        kind = self.rng.choice(kinds)
        await self.kinds[kind]()
        self.happened[kind] += 1

    async def victim(self) -> Replica:
        """The one that leads, more often than not; of several one stays as it is."""
        stay = len(self.replicas) > 1
        await self.until(lambda: sum(not each.busy for each in self.replicas) > stay, 240)
        well = [each for each in self.replicas if not each.busy]
        if self.leader in well and self.rng.random() < 0.6:
            assert self.leader is not None
            return self.leader
        return self.rng.choice(well)

    async def kill(self) -> None:
        victim = await self.victim()
        victim.busy = True
        self._silence(victim, "killed")
        await victim.kill()
        self._later(self._starts(victim))

    async def stop(self) -> None:
        await self._stand_still("stopped", *_STOPPED)

    async def pause(self) -> None:
        await self._stand_still("paused", *_PAUSED)

    async def _stand_still(self, how: str, *seconds: float) -> None:
        victim = await self.victim()
        victim.busy = True
        self._silence(victim, how)
        os.kill(victim.pid, signal.SIGSTOP)
        self._later(self._goes_on(victim, self.rng.uniform(*seconds)))

    async def cut(self) -> None:
        victim, wire = await self._on_a_wire()
        self.note("cut", victim)
        wire.cut()

    async def cut_off(self) -> None:
        victim, wire = await self._on_a_wire()
        victim.busy = True
        self._silence(victim, "cut off")
        wire.blocked = True
        wire.cut()
        self._later(self._connects(victim, wire, self.rng.uniform(*_CUT_OFF)))

    async def cut_at_commit(self) -> None:
        victim, wire = await self._on_a_wire()
        wire.passes = self.rng.random() < 0.6
        self.note(f"is cut at its next commit, which {'passes' if wire.passes else 'is lost'}", victim)
        wire.cut_at = b"commit"

    async def _on_a_wire(self) -> tuple[Replica, Wire]:
        victim = await self.victim()
        assert victim.wire is not None
        return victim, victim.wire

    async def restart_database(self) -> None:
        assert self.server is not None
        self.note("database restarts")
        await asyncio.to_thread(self.server.restart, self.rng.choice(["fast", "immediate"]))
        self.note("database is back")

    async def stop_in_order(self) -> None:
        victim = await self.victim()
        assert victim.life is not None
        victim.busy = True
        if victim is self.leader and self._silent is None:
            self._asked_at = time.time()
        self.note("is asked to stop", victim)
        is_starting = victim.address is None  # a program that has not begun to listen to signals ends at once
        victim.life.process.send_signal(signal.SIGTERM)
        self._later(self._ends(victim, {0, -signal.SIGTERM} if is_starting else {0}))

    async def cut_socket(self) -> None:
        self.note("sockets cut")
        self.workspace.link.cut()

    async def late_post(self) -> None:
        """What the one that leads sends arrives only after it was killed and another one leads, as of a process that stood
        still just before sending.
        """
        victim = self.leader
        if victim is None or victim.busy:
            return
        await self.until(lambda: sum(not each.busy for each in self.replicas) > 1, 240)
        self.workspace.faults.add("chat.postMessage", f"delay:{self.rng.uniform(11, 25):.1f}")
        with suppress(TimeoutError):
            await self.until(lambda: not self.workspace.faults.pending(), 10)
        if victim is self.leader and not victim.busy:
            victim.busy = True
            self._silence(victim, "killed")
            await victim.kill()
            self._later(self._starts(victim))

    async def spoil_slack(self) -> None:
        method = self.rng.choice(["chat.postMessage", "chat.update", "conversations.history"])
        kinds = (
            "accept_then_drop",
            "drop",
            "429:1",
            "5xx:503",
            "delay:0.5",
            "accept_then_error:internal_error",
        )
        kind = self.rng.choice(kinds)
        self.note(f"Slack: {method} {kind}")
        self.workspace.faults.add(method, kind)

    # What comes after it

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._healing.add(task)
        task.add_done_callback(self._healed)

    def _healed(self, task: asyncio.Task[None]) -> None:
        self._healing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.troubles.append(repr(error))

    async def healed(self) -> None:
        """Nothing is broken any more, and all are connected."""
        async with asyncio.timeout(300):
            while self._healing:
                await asyncio.wait(self._healing)
        for wire in filter(None, (each.wire for each in self.replicas)):
            wire.cut_at = None
        try:
            await self.until(lambda: len(self.workspace.link.connections) == len(self.replicas), 120)
        except TimeoutError:
            there = len(self.workspace.link.connections)
            self.troubles.append(f"at the end {there} replicas were connected with Slack")

    async def _starts(self, replica: Replica) -> None:
        """As whatever starts such a program anew does it: again, where there was no database."""
        await asyncio.sleep(self.rng.uniform(*_DOWN))
        connected = len(self.workspace.link.connections)
        while True:
            await replica.start(self._skew())
            self.note("starts", replica)
            with suppress(TimeoutError):
                await self.until(lambda: replica.address or replica.ended, 60)
            if not replica.ended:
                break
            assert replica.life is not None
            words = replica.life.words().splitlines()[-1]
            self.note(f"could not start: {words}", replica)
            if "atabase" not in words and "stored" not in words and "storage" not in words:
                self.troubles.append(f"replica {replica.number} could not start: {words}")
            await asyncio.sleep(1)
        with suppress(TimeoutError):
            await self.until(lambda: len(self.workspace.link.connections) > connected, 60)
        replica.busy = False

    async def _goes_on(self, replica: Replica, seconds: float) -> None:
        await asyncio.sleep(seconds)
        os.kill(replica.pid, signal.SIGCONT)
        await asyncio.sleep(3)  # where it was deposed it begins anew
        self._well(replica)

    async def _connects(self, replica: Replica, wire: Wire, seconds: float) -> None:
        await asyncio.sleep(seconds)
        wire.blocked = False
        await asyncio.sleep(3)
        self._well(replica)

    async def _ends(self, replica: Replica, codes: set[int]) -> None:
        assert replica.life is not None
        async with asyncio.timeout(60):
            code = await replica.life.process.wait()
        if code not in codes:
            self.troubles.append(f"replica {replica.number} ended with {code} when it was asked to stop")
        await self._starts(replica)
