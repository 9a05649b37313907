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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

import clarify
from core.ledgerfiles import as_item
from tests.acceptance.exchanges import ACCUSING
from tests.acceptance.world import StandardAgent, Tap, has_controls
from tests.kit.databases import Server
from tests.kit.world import said
from tests.soak.figures import Sample, table
from tests.soak.figures import lines as flatness
from tests.soak.fleet import FAKETIME, Fleet
from tests.unit.bot.ask.parties import Agent
from workspace import Options, Workspace
from workspace.context import Ack
from workspace.controls import ControlError
from workspace.interactions import Outcome
from workspace.seed import AGENTS, ONCALL, TEAM
from workspace.state import Message, ResponseUrl, User

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
AGENTS_OF_EACH = 9  # so that no agent has more open than it gets cards for
ALL = (
    *("killed", "killed", "stopped", "stopped", "paused", "cut", "cut off", "cut at commit", "cut at commit"),
    *("database restarted", "stopped in order", "socket cut", "post late", "Slack", "Slack"),
)
ALONE = ("killed", "killed", "socket cut", "agent away", "Slack", "Slack")
LIVES_ON = ("socket cut", "agent away", "Slack", "Slack")
SETTLED = 60.0  # seconds after a takeover, when no question has two cards with controls any more
PATIENCE = 300.0
NOT_TAKEN = ("try again", "nothing was", "was not taken", "could not be saved, so it does not")
_ACK, _RETRIES = 3.0, (0.0, 5.0, 30.0)
_READ = sum(_RETRIES) + _ACK * (len(_RETRIES) + 1) + 3.0  # until Slack's last try with an event is over
_NAMED = re.compile(r" with (rpl-\d+)\?")
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


async def sees(predicate: Callable[[], Any], timeout: float) -> Any:
    """As `until`, but of many who look all the time."""
    async with asyncio.timeout(timeout):
        while not (value := predicate()):  # noqa: ASYNC110 - as there
            await asyncio.sleep(0.04)
        return value


@dataclass
class Act:
    """Somebody's answer. `ok`: they saw no error; `shown`: what came with the acknowledgement; `told`: what only they were
    told after it: by the act's own `response_url`, or in its thread until they did the next thing.
    `twin`: the question had another card with controls.
    """

    people: People = field(repr=False)
    user: str
    thread: str
    way: str
    response: object
    began: float
    ended: float = 0.0
    ok: bool = False
    twin: bool = False
    message: str = ""  # the ts of a reply in the thread
    shown: list[str] = field(default_factory=list)
    over: float = math.inf  # when they did the next thing

    @property
    def told(self) -> list[str]:
        return self.shown + [
            each.text
            for each in self.people.workspace.ephemerals(self.user)
            if (by := self.people.answered.get(each.ts)) is self
            or (
                by is None
                and each.thread_ts in {None, self.thread}
                and self.began <= float(each.ts) < self.over
            )
        ]

    @property
    def was_refused(self) -> bool:
        """They were told that nothing was stored: it must never count."""
        return any(words in each.lower() for each in self.told for words in NOT_TAKEN)


class People:
    """Who answers; each does one thing at a time."""

    def __init__(self, workspace: Workspace, count: int = 12) -> None:
        self.workspace = workspace
        self.turns: dict[str, asyncio.Lock] = {}
        self.last: dict[str, Act] = {}
        self.answered: dict[
            str, Act
        ] = {}  # what was said by a response_url: its ts → the act that it answers
        self._urls: dict[int, Act] = {}
        interactions, responses = workspace.interactions, workspace.state.responses
        make, apply = interactions._response_url, interactions._apply

        def made(user: str, channel: Any, shown: Any) -> str:
            url = make(user, channel, shown)
            if user in self.last:
                self._urls[id(responses[url.rpartition("/")[2]])] = self.last[user]
            return url

        def applied(url: ResponseUrl, body: Any) -> None:
            before = len(workspace.state.ephemerals)
            apply(url, body)
            for whisper in workspace.state.ephemerals[before:]:
                if (act := self._urls.get(id(url))) is not None:
                    self.answered[whisper.ts] = act

        interactions._response_url, interactions._apply = made, applied  # type: ignore[method-assign]
        for number in range(count):
            name = f"U1P{number:02d}"
            workspace.add_user(User(name, f"p{number}", f"Person {number}", TEAM, f"p{number}@local.example"))
            workspace.join(name, AGENTS)
            self.turns[name] = asyncio.Lock()


@dataclass
class Exchange:
    """One question, from asking to its end."""

    storm: Storm
    token: str
    door: str  # standard, minimal, http or mcp
    kind: str  # yes_no or freetext
    rng: random.Random
    acts: list[Act] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    asked_at: float = 0.0
    shown_at: float = 0.0
    clarification: str = ""

    async def play(self) -> None:
        self.asked_at = time.time()
        await self._ask()
        card = await self.storm.until(lambda: self.storm.card(self.token), f"no card for {self.token}")
        self.shown_at = time.time()
        self.clarification = card.metadata["event_payload"]["clarification"]
        if self.rng.random() < 0.12:
            await self._escalate()
        users = self.rng.sample(sorted(self.storm.people.turns), self.rng.choice((1, 1, 1, 2, 2)))
        if self.rng.random() < 0.1:
            users *= 2
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(self._answer(user))
        if self.door in {"http", "mcp"}:
            await self._fetch()
        else:
            await self.storm.until(lambda: self.storm.replies(self), f"no reply to {self.token}")
        await self.storm.until(self._is_over, f"{self.token} has controls still")

    # Asking

    def _event(self) -> dict[str, Any]:
        agent = f"{self.door}-{int(self.token.partition('-')[2]) % AGENTS_OF_EACH}"
        return {
            "@context": "https://aaep-protocol.org/context/v1",
            "aaep_version": "1.0.0",
            "type": "aaep:agent.awaiting.clarification",
            "event_id": f"evt_{self.token}",
            "timestamp": self.storm.now(),
            "session_id": f"sess_{self.token}",
            "producer": {"agent_id": agent, "agent_name": agent},
            "urgency": "critical",
            "question": self._words(),
            "accepted_response_kinds": [self.kind],
            "reply_token": self.token,
            "timeout_seconds": 7200,
        }

    def _words(self) -> str:
        return f"Shall I go on with {self.token}?"

    async def _ask(self) -> None:
        if self.door == "standard":
            await self.storm.standard.emit(self._event())
        elif self.door == "minimal":
            event = self._event()
            async with httpx.AsyncClient() as http:
                # Nothing is replayed there: what nobody took is said again.
                for _ in range(100):
                    with suppress(httpx.TransportError):
                        await http.post(f"{self.storm.minimal.url}/emit", json=event, timeout=30)
                    try:
                        await sees(lambda: self.storm.card(self.token), 10)
                    except TimeoutError:
                        continue
                    return
        else:
            kind = "text" if self.kind == "freetext" else self.kind
            question = {"question": self._words(), "kind": kind, "session": self.token, "key": self.token}
            if self.door == "http":
                state = await self._call("POST", "/questions", question)
            else:
                state = await self._tool("ask_human", question | {"wait": 0})
            self.clarification = state["id"]

    async def _call(self, method: str, path: str, body: object = None, /, **more: str) -> dict[str, Any]:
        """Until a replica answers it, any of them."""
        headers = {"Authorization": f"Bearer {DESK_TOKEN}"} | more
        last: object = None
        async with asyncio.timeout(PATIENCE):
            while True:
                for address in self.rng.sample(addresses := self.storm.fleet.addresses, len(addresses)):
                    try:
                        async with httpx.AsyncClient(base_url=address, timeout=10, headers=headers) as http:
                            answer = await http.request(method, path, json=body)
                        if answer.status_code in {200, 201}:
                            return _read(answer)
                    except (httpx.TransportError, _BusyError) as error:
                        last = error
                        continue
                    last = answer.text
                    assert answer.status_code in {503, 429}, f"{method} {path}: {answer.status_code} {last}"
                await asyncio.sleep(0.3)

    async def _tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        call["params"] = {"name": name, "arguments": arguments}
        return await self._call("POST", "/mcp", call, **_MCP)

    async def _fetch(self) -> None:
        while True:
            if self.door == "http":
                state = await self._call("GET", f"/questions/{self.clarification}?wait=2")
            else:
                state = await self._tool("wait_for_answer", {"id": self.clarification, "wait": 2})
            if state["status"] == "answered":
                self.states.append(state)
                if len(self.states) == 2:
                    return

    # Answering

    async def _escalate(self) -> None:
        for _ in range(50):
            outcome = await self.storm.workspace.command(
                ONCALL, AGENTS, "/clarify", f"escalate {self.clarification} nobody here knows"
            )
            if outcome.ok:
                return
            await asyncio.sleep(1)

    async def _answer(self, user: str) -> None:
        """As people do: again where they see an error, or are told so, or where nothing happens for long."""
        number = 0
        async with asyncio.timeout(PATIENCE):
            while not self._is_over():
                await asyncio.sleep(self.rng.uniform(0.0, 0.3))
                async with self.storm.people.turns[user]:
                    cards = [each for each in self.storm.cards(self.token) if has_controls(each)]
                    if not cards:
                        continue
                    act = await self._act(user, self.rng.choice(cards), number)
                    if act is not None:
                        act.twin = len(cards) > 1
                number += 1
                if act is None:
                    await asyncio.sleep(0.2)
                    continue
                if act.ok and not act.was_refused:
                    try:
                        await sees(lambda act=act: self._is_over() or act.was_refused, _READ + 10)  # type: ignore[misc]
                    except TimeoutError:
                        continue
                else:
                    await asyncio.sleep(self.rng.uniform(0.3, 1.0))

    async def _act(self, user: str, card: Message, number: int) -> Act | None:
        workspace, people = self.storm.workspace, self.storm.people
        ways = (
            ["click", "click", "thread", "command"]
            if self.kind == "yes_no"
            else ["modal", "thread", "command"]
        )
        way = self.rng.choice(ways)
        yes = self.rng.random() < 0.5
        response: object = yes if self.kind == "yes_no" else f"{self.token} {user} {number}"
        text = ("yes" if yes else "no") if self.kind == "yes_no" else str(response)
        act = Act(people, user, card.thread_ts or card.ts, way, response, time.time())
        self.acts.append(act)
        if (last := people.last.get(user)) is not None:
            last.over = act.began
        people.last[user] = act
        outcome = Outcome(ok=True)
        try:
            if way == "click":
                outcome = await workspace.click(user, AGENTS, card.ts, label="Yes" if yes else "No")
            elif way == "thread":
                reply = await workspace.post(user, AGENTS, text, thread_ts=card.thread_ts or card.ts)
                act.message = reply.ts
            elif way == "command":
                outcome = await workspace.command(
                    user, AGENTS, "/clarify", f"answer {self.clarification} {text}"
                )
            else:
                outcome = await self._by_modal(user, card, text)
        except ControlError:
            self.acts.remove(act)
            return None
        act.ok, act.ended = outcome.ok, time.time()
        act.shown += outcome.errors.values()
        if not outcome.ok:
            act.shown.append(outcome.error)
        # What follows an acknowledgement comes within a moment, where it comes.
        await asyncio.sleep(0.4)
        act.shown += [json.dumps(view.payload["blocks"]) for view in workspace.views(user)]
        if workspace.views(user):
            await workspace.close_view(user, everything=True)
        return act

    async def _by_modal(self, user: str, card: Message, text: str) -> Outcome:
        workspace = self.storm.workspace
        opened = await workspace.click(user, AGENTS, card.ts, label="Answer…")
        if not opened.ok:
            raise ControlError(opened.error)
        try:
            await sees(lambda: workspace.views(user), 5)
        except TimeoutError:
            raise ControlError("no modal came") from None
        return await workspace.submit_view(user, {"Your answer": text})

    def _is_over(self) -> bool:
        cards = self.storm.cards(self.token)
        return bool(cards) and not any(has_controls(each) for each in cards)

    # The oracle

    def check(self, record: dict[str, Any], replies: list[dict[str, Any]]) -> Iterator[str]:
        """What is wrong."""
        asked = record["aaep"]
        if record["status"] not in {"answered", "resolved"}:
            yield f"status {record['status']}"
        if [entry["type"] for entry in record["thread"]].count("answer") != 1:
            yield f"thread {[entry['type'] for entry in record['thread']]}"
        by = (asked.get("answeredBy") or {}).get("user")
        mine = [act for act in self.acts if (act.user, act.response) == (by, asked.get("response"))]
        if not mine:
            yield f"{by} {asked.get('response')} was never given: {self.acts}"
        else:
            at = datetime.fromisoformat(asked["answeredAt"]).timestamp() + 1
            if all(act.was_refused or act.began > at for act in mine):
                yield f"{by} was told to try again, and it was applied at {asked['answeredAt']}: {mine}"
        for act in self.acts:
            ended = act.ended
            if act.way == "thread":  # read by whoever leads, where the one that acknowledged it ended
                ended = self.storm.acknowledged.get(act.message, math.inf) + _READ
            if act.ok and not act.told and act not in mine and all(ended < won.began for won in mine):
                yield f"{act} was acknowledged, and {mine} counts"
        yield from self._check_told(asked, by, replies)

    def _check_told(
        self, asked: dict[str, Any], by: str | None, replies: list[dict[str, Any]]
    ) -> Iterator[str]:
        """What is wrong with what the agent got."""
        if asked.get("response") is None:
            if replies or self.states:
                yield f"told {replies or self.states}, and nothing is recorded"
            return
        if self.door in {"http", "mcp"}:
            told = {json.dumps([s["answer"], s["decided_by"], s["decided_at"]]) for s in self.states}
            if told != {json.dumps([asked["response"], asked["decidedBy"], asked["answeredAt"]])}:
                yield f"the asker was told {told}"
            return
        told = {json.dumps([r["response"], r.get("decided_by"), r.get("timestamp")]) for r in replies}
        if len(told) != 1:
            yield f"replies differ: {told}"
        for reply in replies[:1]:
            if reply["response"] != asked["response"]:
                yield f"replied {reply}, recorded {asked}"
            if self.door == "standard" and reply["decided_by"] != f"user:slack/{TEAM}/{by}":
                yield f"decided by {reply['decided_by']}, not {by}"


class Storm:
    """One course: everything in it, and what was found."""

    def __init__(
        self, fleet: Fleet, standard: StandardAgent, minimal: Agent, workspace: Workspace, rng: random.Random
    ) -> None:
        self.fleet = fleet
        self.standard = standard
        self.minimal = minimal
        self.workspace = workspace
        self.people = People(workspace)
        self.rng = rng
        self.exchanges: list[Exchange] = []
        self.wrong: list[str] = []
        self.taken: list[dict[str, Any]] = []
        self.duplicates: dict[str, tuple[float, float]] = {}
        self.seconds, self.ends = 0.0, math.inf
        self.acknowledged: dict[str, float] = {}  # the ts of people's messages → when
        self._record, workspace.context.record_ack = workspace.context.record_ack, self._note_ack  # type: ignore[method-assign]
        self.samples: list[Sample] = []
        fleet.also["agent away"] = self._agent_away
        self._cards: dict[str, list[Message]] = {}  # clarification → all that were posted
        self._of: dict[str, str] = {}  # token → clarification
        self._looked: dict[str, str] = {}  # channel → its newest message

    def _note_ack(self, ack: Ack, payload: dict[str, Any]) -> None:
        if ack.failure is None and (ts := payload.get("event", {}).get("ts")) is not None:
            self.acknowledged.setdefault(ts, time.time())
        self._record(ack, payload)

    def now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    async def until(self, predicate: Any, otherwise: str, timeout: float = PATIENCE) -> Any:
        try:
            return await sees(predicate, timeout)
        except TimeoutError:
            raise AssertionError(otherwise) from None

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

    def cards(self, token: str) -> list[Message]:
        """A question's cards that stand."""
        if token not in self._of:
            self.look()
        cards = self._cards.get(self._of.get(token, ""), ())
        return [each for each in cards if _stands(self.workspace, each)]

    def card(self, token: str) -> Message | None:
        """The first of them."""
        return next(iter(self.cards(token)), None)

    def replies(self, exchange: Exchange) -> list[dict[str, Any]]:
        """That an agent took, or was sent."""
        sent = self.standard.tries if exchange.door == "standard" else self.taken
        return [reply for reply in sent if reply.get("reply_token") == exchange.token]

    # The course

    async def run(
        self, questions: int, faults: int, kinds: tuple[str, ...], rate: float, calm: float, *, minutes: float
    ) -> None:
        """No question is asked and nothing goes wrong any more after so many `minutes`."""
        began = time.monotonic()
        self.ends = began + minutes * 60
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(each) for each in (self.fleet.watch(), self._watch(), self._fetch())]
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
            door, kind = (
                rng.choice(("standard", "minimal", "http", "mcp")),
                rng.choice(("yes_no", "yes_no", "freetext")),
            )
            exchange = Exchange(self, f"rpl-{number}", door, kind, rng)
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

    async def _fetch(self) -> None:
        """What the minimal agent was told."""
        async with httpx.AsyncClient() as http:
            while True:
                self.taken = (await http.get(f"{self.minimal.url}/taken", timeout=60)).json()
                await asyncio.sleep(0.3)

    # The oracle

    async def settle(self) -> None:
        """Everything is answered: wait until all that has to come after it has come."""
        try:
            await sees(lambda: not list(self._doubles()), SETTLED + 20)
        except TimeoutError:
            self.wrong += self._doubles()
        with suppress(TimeoutError):
            await sees(lambda: self._in_files() in (self.records(), []), 30)
        self.look()

    def records(self) -> list[dict[str, Any]]:
        """Every clarification, as a ledger file has it."""
        return [
            as_item(json.loads(body)) for (body,) in self._rows("select body from clarifications order by id")
        ]

    def _in_files(self) -> list[dict[str, Any]]:
        files = self.fleet.replicas[0].folder.glob(".agentx/**/issue-*.json")
        found = [each for file in files for each in json.loads(file.read_text())["clarifications"]]
        return sorted(found, key=lambda each: str(each["id"]))

    def _rows(self, statement: str, *given: object) -> list[Any]:
        if self.fleet.url:
            with closing(psycopg.connect(self.fleet.url)) as db:
                return db.execute(statement.encode(), given).fetchall()
        file = self.fleet.replicas[0].folder / "clarify.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as lite:
            return lite.execute(statement).fetchall()

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
        # Nobody does anything in these direct messages.
        yield from (f"a page stands: {each.text[:200]}" for each in self.workspace.direct(ONCALL))

    def check(self) -> list[str]:
        """What is wrong."""
        wrong = [*self.wrong, *self.fleet.troubles, *self._paged_twice(), *self._receipts()]
        if (files := self._in_files()) and files != self.records():
            wrong.append("the ledger files differ from the records")
        records: dict[str, list[dict[str, Any]]] = {}
        for record in self.records():
            words = record["thread"][0]["body"]
            records.setdefault(words.rpartition(" with ")[2].rstrip("?"), []).append(record)
        for exchange in self.exchanges:
            found = records.pop(exchange.token, [])
            if len(found) != 1:
                wrong.append(f"{exchange.token} ({exchange.door}) has {len(found)} records")
                continue
            wrong += [
                f"{exchange.token} ({exchange.door}, {found[0]['id']}): {each}"
                for each in exchange.check(found[0], self.replies(exchange))
            ]
            cards = [c for c in self._cards.get(found[0]["id"], []) if _stands(self.workspace, c)]
            by = (found[0]["aaep"].get("answeredBy") or {}).get("user")
            if len(cards) != 1 or has_controls(cards[0]) or f"<@{by}>" not in said(cards[0]):
                wrong.append(
                    f"{exchange.token}: its cards {[(has_controls(c), said(c)[:80]) for c in cards]}"
                )
        wrong += [f"a record that nobody asked for: {each}" for each in records]
        last = [0.0, *(each.at for each in self.fleet.takeovers)]
        for name, (first, until_) in self.duplicates.items():
            began = max([each for each in last if each < until_])
            if until_ - max(first, began) > SETTLED:
                wrong.append(f"{name} had two cards with controls for {until_ - first:.0f} s")
        return wrong

    def _paged_twice(self) -> Iterator[str]:
        rows = self._rows("select distinct page, body from messages where page is not null")
        pages = [(page, json.loads(body)["page"]) for page, body in rows]
        self.pages = len({page for page, _ in pages})
        # A list may repeat what is in it early.
        alone = [(page, each["items"][0], each["at"]) for page, each in pages if len(each["items"]) == 1]
        for (page, item, at), (other, same, later) in combinations(alone, 2):
            if page != other and item == same and abs(later - at) < EVERY / 2:
                yield f"paged twice in a moment: {item}, {page} and {other}"

    def _receipts(self) -> Iterator[str]:
        """Each answer has one, which is valid, and is the log's; and nobody is accused of anything."""
        keys = {"keys": [json.loads(jwk) for (jwk,) in self._rows("select jwk from signing_keys")]}
        logged = dict(self._rows("select jti, receipt from decisions where jti is not null"))
        for record in self.records():
            receipt = record["aaep"].get("receipt", "")
            found = clarify.verify(receipt, keys=keys)
            if found.problem or found.claims["decided_by"] != record["aaep"].get("decidedBy"):
                yield f"{record['id']}: its receipt is {found.problem or 'of somebody else'}"
            elif logged.get(found.claims["jti"], receipt) != receipt:
                yield f"{record['id']}: the log has another receipt"
        for channel in self.workspace.state.channels.values():
            for each in channel.messages.values():
                if each.bot_id and any(words in said(each) for words in ACCUSING):
                    yield f"somebody is accused: {each.text}"

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


class _BusyError(Exception):
    """A tool said that it cannot be done now."""


def _read(answer: httpx.Response) -> dict[str, Any]:
    """What the bot says of a question, also over MCP."""
    words = answer.text
    if answer.headers["content-type"].startswith("text/event-stream"):
        words = [line for line in words.splitlines() if line.startswith("data:")][-1].removeprefix("data:")
    state: dict[str, Any] = json.loads(words)
    if "jsonrpc" not in state:
        return state
    assert "result" in state, state
    if state["result"].get("isError"):
        raise _BusyError(words)
    found: dict[str, Any] = state["result"]["structuredContent"]
    return found


def _stands(workspace: Workspace, message: Message) -> bool:
    return (
        message.subtype != "tombstone"
        and workspace.state.channels[message.channel].messages.get(message.ts) is message
    )


@asynccontextmanager
async def scene(folder: Path, server: Server | None, seed: int, replicas: int) -> AsyncIterator[Storm]:
    """The replicas run, with all around them."""
    rng = random.Random(seed)  # noqa: S311
    options = Options(ack_timeout=_ACK, retry_delays=_RETRIES)
    minimal = await Agent.start()
    try:
        async with Workspace(options=options) as workspace, StandardAgent(Tap()) as standard:
            storage = 'path = "clarify.db"' if server is None else 'url_env = "CLARIFY_DATABASE_URL"'
            text = CONFIG.format(standard=standard.url, minimal=minimal.url, every=EVERY, storage=storage)
            fleet = Fleet(folder, workspace, server, text, rng, environ={"DESK_TOKEN": DESK_TOKEN})
            try:
                storm = Storm(fleet, standard, minimal, workspace, rng)
                await fleet.start(replicas)
                yield storm
            finally:
                await fleet.end()
    finally:
        await minimal.kill()


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
