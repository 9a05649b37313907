"""One `clarify run` on SQLite, or several on one PostgreSQL, while all that can go wrong does.

Producers of both dialects and askers over HTTP ask; people answer as people do, sometimes two at once, and again where
they see an error. Meanwhile replicas are killed, stand still, lose their database. At the end everything is compared:
what agents were told, what stands in Slack, what records, ledger files and receipts say; and whether memory, file handles and
threads of a process that lived all the time stayed as they were. Which faults come, and who answers what, is up to a
seed; how they meet is up to the machine.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import psycopg

from tests.acceptance.exchanges import ACK, DOORS, RETRIES, Exchange, PagedExchange, wrong_with
from tests.acceptance.world import Around, MinimalAgent, StandardAgent, has_controls
from tests.kit.databases import Server
from tests.kit.until import until
from tests.kit.world import said
from tests.soak.figures import Sample, table
from tests.soak.figures import lines as flatness
from tests.soak.fleet import FAKETIME, Fleet
from workspace import Options, Workspace
from workspace.seed import ONCALL
from workspace.state import Message

CONFIG = """
[http]
listen = "127.0.0.1:0"

[slack]
mode = "socket"
fallback_channel = "C0FALLBACK"

[[producers]]
name = "planner"
url = "{standard}"
dialect = "standard"

[[producers]]
name = "builder"
url = "{minimal}"
dialect = "minimal"

[[producers]]
name = "desk"
dialect = "push"
token_env = "DESK_TOKEN"

[[routes]]
channel = "C0AGENTS"
answerers = ["members"]
on_call = "platform"

[storage]
{storage}

[pacing]
posts_per_second = 1000.0

[[on_call]]
name = "platform"
users = ["U0ONCALL"]
steps = [{{after = "0s", notify = ["thread", "dm"], every = "{every:g}s"}}]
"""
EVERY = 6.0  # seconds after which a page is repeated
DESK_TOKEN = "desk-secret"
ALL = (
    *("killed", "killed", "stopped", "stopped", "paused", "cut", "cut off", "cut at commit", "cut at commit"),
    *("database restarted", "stopped in order", "socket cut", "post late", "Slack", "Slack"),
)
ALONE = ("killed", "killed", "socket cut", "agent away", "Slack", "Slack")
LIVES_ON = ("socket cut", "agent away", "Slack", "Slack")
SETTLED = 60.0  # seconds after a takeover, when no question has two cards with controls any more
PAGED = 0.12  # of the questions: somebody escalates them
_NAMED = re.compile(r" with (rpl-\d+)\?")


class Storm(Around):
    """One course: everything in it, and what was found."""

    headers: Mapping[str, str] = MappingProxyType({"Authorization": f"Bearer {DESK_TOKEN}"})
    ledgers = ".agentx"
    moment = 0.4

    def __init__(
        self,
        fleet: Fleet,
        standard: StandardAgent,
        minimal: MinimalAgent,
        workspace: Workspace,
        rng: random.Random,
    ) -> None:
        super().__init__(fleet.folder / "replica0", workspace)
        self.fleet = fleet
        self.standard = standard
        self.minimal = minimal
        self.rng = rng
        self.exchanges: list[Exchange] = []
        self.wrong: list[str] = []
        self.duplicates: dict[str, tuple[float, float]] = {}
        self.seconds, self.ends = 0.0, math.inf
        self.samples: list[Sample] = []
        fleet.also["agent away"] = self._agent_away
        self._cards: dict[str, list[Message]] = {}  # clarification → all that were posted
        self._of: dict[str, str] = {}  # token → clarification
        self._looked: dict[str, str] = {}  # channel → its newest message

    def agent_of(self, door: str) -> StandardAgent | MinimalAgent:
        return self.standard if door == "standard" else self.minimal

    @property
    def addresses(self) -> list[str]:
        return self.fleet.addresses

    # What stands in Slack

    def look(self) -> None:
        """Take in new cards; note where a question has two with controls."""
        for channel in self.workspace.state.channels.values():
            last, fresh = self._looked.get(channel.id, ""), []
            for message in reversed(channel.messages.values()):
                if message.ts <= last:
                    break
                fresh.append(message)
            for message in reversed(fresh):
                metadata = message.metadata or {}
                if message.bot_id and metadata.get("event_type") == "clarify_card":
                    name = metadata["event_payload"]["clarification"]
                    self._cards.setdefault(name, []).append(message)
                    if (named := _NAMED.search(said(message))) is not None:
                        self._of[named[1]] = name
                self._looked[channel.id] = message.ts
        now = time.time()
        for name, cards in self._cards.items():
            if (
                len(cards) > 1
                and sum(_stands(self.workspace, each) and has_controls(each) for each in cards) > 1
            ):
                first, _ = self.duplicates.get(name, (now, now))
                self.duplicates[name] = first, now

    def cards_of(self, token: str) -> list[Message]:
        """Those that stand."""
        if token not in self._of:
            self.look()
        cards = self._cards.get(self._of.get(token, ""), ())
        return [each for each in cards if _stands(self.workspace, each)]

    # The course

    async def run(
        self, questions: int, faults: int, kinds: tuple[str, ...], rate: float, calm: float, *, minutes: float
    ) -> None:
        """No question is asked and nothing goes wrong any more after so many `minutes`."""
        began = time.monotonic()
        self.ends = began + minutes * 60
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(each) for each in (self.fleet.watch(), self._watch())]
            storm = group.create_task(self._blow(faults, kinds, calm))
            playing = [group.create_task(each) async for each in self._ask(questions, rate)]
            await asyncio.wait([storm, *playing])
            await self.fleet.healed()
            for task in watches:
                task.cancel()
        self.seconds = time.monotonic() - began

    async def _ask(self, questions: int, rate: float) -> AsyncIterator[Any]:
        open_ones = asyncio.Semaphore(40)
        for number in range(questions):
            if time.monotonic() > self.ends:
                break
            rng = random.Random(f"{self.rng.random()}")  # noqa: S311
            kind = PagedExchange if rng.random() < PAGED else Exchange
            asked = rng.choice(("yes_no", "yes_no", "freetext"))
            exchange = kind(self, f"rpl-{number}", rng.choice(DOORS), rng, asked)
            self.exchanges.append(exchange)
            await open_ones.acquire()
            yield self._one(exchange, open_ones)
            await asyncio.sleep(rng.expovariate(rate))

    async def _one(self, exchange: Exchange, open_ones: asyncio.Semaphore) -> None:
        try:
            await exchange.play()
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - one of many
            self.wrong.append(
                f"{exchange.token} ({exchange.door}, {exchange.clarification}): {error!r} {exchange.acts}"
            )
        finally:
            open_ones.release()

    async def _blow(self, faults: int, kinds: tuple[str, ...], calm: float) -> None:
        for _ in range(faults):
            await asyncio.sleep(self.rng.uniform(0.3, 1.7) * calm)
            if time.monotonic() > self.ends:
                break
            await self.fleet.fault(kinds)

    async def _agent_away(self) -> None:
        await self.standard.down()
        try:
            await asyncio.sleep(0.5)
        finally:  # also where the load ends just now: the last answers have to get there
            await self.standard.start()

    async def _watch(self) -> None:
        began = time.monotonic()
        while True:
            self.look()
            first = self.fleet.replicas[0]
            if (
                first.lives == 1
                and not first.busy
                and not first.ended
                and time.monotonic() - began > len(self.samples)
            ):
                process = psutil.Process(first.pid)
                with process.oneshot():
                    memory, handles = process.memory_info().rss, process.num_fds()
                    self.samples.append(
                        Sample(time.monotonic() - began, memory, handles, process.num_threads())
                    )
            await asyncio.sleep(0.2)

    # The oracle

    async def settle(self) -> None:
        """Everything is answered: wait until all that has to come after it has come."""
        try:
            await until(lambda: not list(self._doubles()), SETTLED + 20)
        except TimeoutError:
            self.wrong += self._doubles()
        with suppress(TimeoutError):
            await until(lambda: self.in_files() in (self.records(), []), 30)
        self.look()

    def rows(self, sql: str) -> list[Any]:
        if self.fleet.url:
            with closing(psycopg.connect(self.fleet.url)) as db:
                return db.execute(sql.encode()).fetchall()
        file = self.fleet.replicas[0].folder / "clarify.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as lite:
            return lite.execute(sql).fetchall()

    def _doubles(self) -> Iterator[str]:
        self.look()
        for name, cards in self._cards.items():
            standing = [each for each in cards if _stands(self.workspace, each)]
            if len(standing) > 1:
                yield f"{name} has {len(standing)} cards"
        keys = Counter(
            str((message.metadata or {})["event_payload"]["key"])
            for channel in list(self.workspace.state.channels.values())
            for message in list(channel.messages.values())
            if message.bot_id and "key" in (message.metadata or {}).get("event_payload", {})
        )
        yield from (f"{key} stands there {count} times" for key, count in keys.items() if count > 1)
        unread = (each for each in self.workspace.direct(ONCALL) if each.ts not in self.seen)
        yield from (f"a page stands: {each.text[:200]}" for each in unread)

    def check(self) -> list[str]:
        """What is wrong."""
        wrong = [*self.wrong, *self.fleet.troubles, *wrong_with(self, self.exchanges), *self._paged_twice()]
        last = [0.0, *(each.at for each in self.fleet.takeovers)]
        for name, (first, until_) in self.duplicates.items():
            began = max([each for each in last if each < until_])
            if until_ - max(first, began) > SETTLED:
                wrong.append(f"{name} had two cards with controls for {until_ - first:.0f} s")
        return wrong

    def _paged_twice(self) -> Iterator[str]:
        rows = self.rows("select distinct page, body from messages where page is not null")
        pages = [(page, json.loads(body)["page"]) for page, body in rows]
        self.pages = len({page for page, _ in pages})
        # A list may repeat what is in it early.
        alone = [(page, each["items"][0], each["at"]) for page, each in pages if len(each["items"]) == 1]
        for (page, item, at), (other, same, later) in combinations(alone, 2):
            if page != other and item == same and abs(later - at) < EVERY / 2:
                yield f"paged twice in a moment: {item}, {page} and {other}"

    def keep(self, folder: Path) -> None:
        """For whoever looks for the cause of something."""
        with (folder / "envelopes.log").open("w") as log:
            for ack in self.workspace.acks:
                fared = ack.failure or f"{ack.seconds:.3f} s"
                log.write(f"{_time(ack.time)} {ack.envelope_id} {ack.payload_type} {ack.attempt} {fared}\n")
        with (folder / "calls.log").open("w") as log:
            for call in self.workspace.calls:
                log.write(f"{_time(call.time)} {json.dumps(asdict(call), default=str)[:1500]}\n")
        with (folder / "acts.log").open("w") as log:
            for each in self.exchanges:
                for act in each.acts:
                    log.write(f"{each.token} {each.clarification} {_time(act.began)} {act} {act.told}\n")

    def report(self) -> str:
        """What was seen."""
        takeovers = [each for each in self.fleet.takeovers if each.seconds is not None]
        acts = [act for each in self.exchanges for act in each.acts]
        sent = {"chat.postMessage", "chat.update"}
        posts = [call.time for call in self.workspace.calls if call.method in sent]
        lines = [
            f"{len(self.exchanges)} questions, {self.fleet.happened.total()} faults, {self.seconds:.0f} s",
            f"faults: {dict(self.fleet.happened)}",
            (
                f"asked by {dict(Counter(each.door for each in self.exchanges))}; acts: {dict(Counter(a.way for a in acts))},"
                f" not acknowledged {sum(not a.ok for a in acts)},"
                f" told to try again {sum(a.was_refused for a in acts)},"
                f" two at once {sum(len({a.user for a in e.acts}) > 1 for e in self.exchanges)},"
                f" on one of two cards {sum(a.twin for a in acts)}"
            ),
            f"pages {self.pages}, questions that had two cards for a while: {len(self.duplicates)}",
            f"clocks: {'differ' if FAKETIME else 'are all right, as libfaketime is not installed'}",
        ]
        waits = sorted(e.shown_at - e.asked_at for e in self.exchanges if e.shown_at)
        if waits:
            lines.append(
                f"card after asking: median {statistics.median(waits):.2f} s, longest {waits[-1]:.1f} s"
            )
        for how in sorted({each.how or "" for each in takeovers}):
            mine = [each for each in takeovers if each.how == how]
            seconds = sorted(each.seconds or 0.0 for each in mine)
            post = sorted(
                max(min((at for at in posts if at >= each.at), default=each.at) - (each.since or 0), 0.0)
                for each in mine
            )
            stops = sorted(each.stopping for each in mine)
            lines.append(
                f"takeover, {how}: {len(mine)} times, leads after {seconds[0]:.1f} / {statistics.median(seconds):.1f} /"
                f" {seconds[-1]:.1f} s, first post after {post[0]:.1f} / {statistics.median(post):.1f} / {post[-1]:.1f} s"
                + (
                    f", stopped within {stops[0]:.1f} / {statistics.median(stops):.1f} / {stops[-1]:.1f} s"
                    if stops[-1]
                    else ""
                )
            )
        if len(self.samples) >= 3:
            lines += ["", table(flatness(self.samples))]
        return "\n".join(lines)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]


def _stands(workspace: Workspace, message: Message) -> bool:
    return (
        message.subtype != "tombstone"
        and workspace.state.channels[message.channel].messages.get(message.ts) is message
    )


@asynccontextmanager
async def scene(folder: Path, server: Server | None, seed: int, replicas: int) -> AsyncIterator[Storm]:
    """The replicas run, with all around them."""
    rng = random.Random(seed)  # noqa: S311
    options = Options(ack_timeout=ACK, retry_delays=RETRIES)
    async with (
        Workspace(options=options) as workspace,
        StandardAgent() as standard,
        MinimalAgent() as minimal,
    ):
        storage = 'path = "clarify.db"' if server is None else 'url_env = "CLARIFY_DATABASE_URL"'
        text = CONFIG.format(standard=standard.url, minimal=minimal.url, every=EVERY, storage=storage)
        fleet = Fleet(folder, workspace, server, text, rng, environ={"DESK_TOKEN": DESK_TOKEN})
        try:
            storm = Storm(fleet, standard, minimal, workspace, rng)
            await fleet.start(replicas)
            yield storm
        finally:
            await fleet.end()


async def stormed(
    folder: Path,
    seed: int,
    *,
    replicas: int = 3,
    questions: int = 1000,
    faults: int = 200,
    kinds: tuple[str, ...] = ALL,
    rate: float = 1.5,
    calm: float = 3.0,
    minutes: float = math.inf,
) -> tuple[list[str], str]:
    """What is wrong after it, and what was seen. One replica keeps all in SQLite; where nothing ended it, it may not have grown."""
    server = None
    if replicas > 1:
        (folder / "pg").mkdir()
        server = Server(folder / "pg")
    try:
        async with scene(folder, server, seed, replicas) as storm:
            await storm.run(questions, faults, kinds, rate, calm, minutes=minutes)
            await storm.settle()
            storm.keep(folder)
            wrong, samples = storm.check(), storm.samples
            if minutes < math.inf and set(kinds) <= {*LIVES_ON}:
                wrong += [f"{each.what} grew" for each in flatness(samples) if not each.is_flat]
            return wrong, storm.report()
    finally:
        if server is not None:
            server.stop()
