"""One question from asking to its end, with people who try again as people do; and what must hold at that end."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import httpx

from tests.acceptance.people import Act
from tests.acceptance.world import Around, MinimalAgent, World, has_controls, question, went_on
from tests.kit.until import until
from tests.kit.world import said
from workspace.controls import controls
from workspace.seed import AGENTS, ONCALL, TEAM
from workspace.state import Message

PATIENCE = 300.0  # seconds; people have it while the process dies again and again
AGENTS_OF_EACH = 9  # so that no agent has more open than it gets cards for
ACK, RETRIES = 3.0, (0.0, 5.0, 30.0)  # how long Slack waits, and when it tries again
# Until Slack's last try with an event is over.
READ = sum(RETRIES) + ACK * (len(RETRIES) + 1) + 3.0
_MCP = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}

Door = Literal["standard", "minimal", "http", "mcp"]
DOORS: tuple[Door, ...] = ("standard", "minimal", "http", "mcp")


@dataclass
class Exchange:
    """`door`: how the agent asks. `kind`: yes_no or freetext. `ways`: how people answer; any that there are, unless said."""

    around: Around
    token: str
    door: Door
    rng: random.Random
    kind: str = "yes_no"
    ways: tuple[str, ...] = ()
    acts: list[Act] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)  # that a direct asker was answered with
    receipts: set[str] = field(default_factory=set)  # that its record was seen with
    asked_at: float = 0.0
    shown_at: float = 0.0
    confirmed: bool = False

    @property
    def clarification(self) -> str:
        """What its card is of."""
        card = self.card()
        return card.metadata["event_payload"]["clarification"] if card is not None and card.metadata else ""

    async def play(self) -> None:
        """Ask, and have people answer until it is over, and the agent knows."""
        self.asked_at = time.time()
        await self.ask()
        await self.sees(self.card, f"no card for {self.token}")
        self.shown_at = time.time()
        await self.answer()
        if self.door in {"http", "mcp"}:
            await self._fetch(2)
        else:
            await self.sees(lambda: self.around.replies(self.token, self.door), f"no reply to {self.token}")
        await self.sees(self.is_over, f"{self.token} has controls still")

    async def sees(self, predicate: Callable[[], Any], otherwise: str) -> Any:
        try:
            return await until(predicate, PATIENCE)
        except TimeoutError:
            raise AssertionError(otherwise) from None

    def cards(self) -> list[Message]:
        return self.around.cards_of(self.token)

    def card(self) -> Message | None:
        return next(iter(self.cards()), None)

    def is_over(self) -> bool:
        cards = self.cards()
        return bool(cards) and not any(has_controls(each) for each in cards)

    # Asking

    @property
    def session(self) -> str:
        return f"sess_{self.token}"

    async def ask(self) -> None:
        number = int(self.token.partition("-")[2]) % AGENTS_OF_EACH
        agent = f"{self.door}-{number}"
        asked = question(self.token, self.session, accepted_response_kinds=[self.kind], timeout_seconds=7200)
        if self.door in {"standard", "minimal"}:
            asked["producer"] = {"agent_id": agent, "agent_name": agent}
            return await self._tell(asked, self.card)
        kind = "text" if self.kind == "freetext" else self.kind
        body = {"question": asked["question"], "kind": kind, "session": self.session}
        if self.door == "http":
            await self._call("POST", "/questions", body | {"key": self.token})
        else:  # which has no keys
            await self._tool("ask_human", body | {"wait": 0})
        return None

    async def _tell(self, event: dict[str, Any], heard: Callable[[], Any]) -> None:
        """Where nothing is replayed, an agent that met a dying subscriber says it again."""
        agent = self.around.agent_of(self.door)
        await agent.emit(event)
        while isinstance(agent, MinimalAgent) and not heard():
            connections = agent.connections
            await until(lambda n=connections: heard() or agent.connections > n, PATIENCE)  # type: ignore[misc]
            if not heard():
                await agent.emit(event)

    async def _call(self, method: str, path: str, body: object = None, /, **more: str) -> dict[str, Any]:
        """Until a process answers it, any of those that listen."""
        last: object = None
        async with asyncio.timeout(PATIENCE):
            while True:
                for address in self.rng.sample(addresses := self.around.addresses, len(addresses)):
                    headers = {**self.around.headers, **more}
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
        params = {"name": name, "arguments": arguments}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await self._call("POST", "/mcp", call, **_MCP)

    async def _fetch(self, times: int) -> None:
        """A direct asker looks until it has seen the answer so often."""
        while len(self.states) < times:
            if self.door == "http":
                state = await self._call("GET", f"/questions/{self.clarification}?wait=2")
            else:
                state = await self._tool("wait_for_answer", {"id": self.clarification, "wait": 2})
            if state["status"] == "answered":
                self.states.append(state)
                self.receipts |= {state["receipt"]} if state.get("receipt") else set()

    # Answering

    async def answer(self) -> None:
        """One person, or two at once; some do everything twice."""
        users = self.rng.sample(sorted(self.around.people.turns), self.rng.choice((1, 1, 1, 2, 2)))
        if self.rng.random() < 0.1:
            users *= 2
        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(self._answers(user))

    async def _answers(self, user: str) -> None:
        """As people do: again where they see an error, or are told so, or where nothing happens for long."""
        number = 0
        async with asyncio.timeout(PATIENCE):
            while not self.is_over():
                await asyncio.sleep(self.rng.random() * self.around.people.moment)
                async with self.around.people.turns[user]:
                    cards = [each for each in self.cards() if has_controls(each)]
                    if not cards:
                        continue
                    act = await self._act(user, self.rng.choice(cards), number)
                number += 1
                if act is None:
                    await asyncio.sleep(0.2)
                    continue
                act.twin = len(cards) > 1
                if act.ok and not act.was_refused:
                    with suppress(TimeoutError):
                        await until(lambda act=act: self.is_over() or act.was_refused, READ + 10)  # type: ignore[misc]
                else:
                    await asyncio.sleep(self.rng.uniform(0.3, 1.0))

    async def _act(self, user: str, card: Message, number: int) -> Act | None:
        usual = ("click", "click") if self.kind == "yes_no" else ("modal",)
        way = self.rng.choice(self.ways or (*usual, "thread", "command"))
        yes = self.rng.random() < 0.5
        typed = ("yes" if yes else "no") if self.kind == "yes_no" else f"{self.token} {user} {number}"
        response: object = yes if self.kind == "yes_no" else typed
        act = await self.around.people.answer(user, way, card, response, typed)
        if act is not None:
            self.acts.append(act)
        return act

    # Its end

    async def end(self) -> None:
        """The agent goes on, and the card says so."""
        if self.door in {"standard", "minimal"}:
            await self._tell(went_on(self.session), self._is_confirmed)
        while not self._is_confirmed():
            if self.door in {"http", "mcp"}:
                await self._fetch(len(self.states) + 1)
            with suppress(TimeoutError):
                await until(self._is_confirmed, 5)  # where a process ended meanwhile another has to be told
        self.confirmed = True

    def _is_confirmed(self) -> bool:
        card = self.card()
        return card is not None and "the agent has resumed" in said(card)

    def look_at_disk(self) -> None:
        """Whenever the process dies: an answer is signed, by the write that put it there."""
        record = self.around.record(self.token)
        asked = record["aaep"] if record is not None else {}
        assert ("receipt" in asked) == ("response" in asked), f"{self.token} is answered, and not signed"
        self.receipts |= {asked["receipt"]} if "receipt" in asked else set()

    # The judge

    def check(self, record: dict[str, Any]) -> Iterator[str]:
        """What is wrong with it at its end: one card, one answer, which somebody gave, and one and the same reply."""
        asked = record["aaep"]
        if self.confirmed:
            if (record["status"], asked["reply"]) != ("resolved", "confirmed"):
                yield f"status {record['status']}, reply {asked['reply']}"
        elif record["status"] not in {"answered", "resolved"}:
            yield f"status {record['status']}"
        if [entry["type"] for entry in record["thread"]].count("answer") != 1:
            yield f"thread {[entry['type'] for entry in record['thread']]}"
        by = (asked.get("answeredBy") or {}).get("user")
        cards = self.cards()
        if len(cards) != 1 or has_controls(cards[0]) or f"<@{by}>" not in said(cards[0]):
            yield f"its cards {[(has_controls(each), said(each)[:80]) for each in cards]}"
        if others := self.receipts - {asked.get("receipt")}:
            yield f"it had other receipts: {others}"
        yield from self._check_winner(asked, by)
        yield from self._check_told(asked, by)

    def _check_winner(self, asked: dict[str, Any], by: str | None) -> Iterator[str]:
        """What is wrong with who was first, by what people did and saw."""
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
                ended = self.around.people.acknowledged.get(act.message, math.inf) + READ
            if act.ok and not act.told and act not in mine and all(ended < won.began for won in mine):
                yield f"{act} was acknowledged, and {mine} counts"

    def _check_told(self, asked: dict[str, Any], by: str | None) -> Iterator[str]:
        """What is wrong with what the agent got."""
        replies = self.around.replies(self.token, self.door)
        if asked.get("response") is None:
            if replies or self.states:
                yield f"told {replies or self.states}, and nothing is recorded"
            return
        recorded = [asked["response"], asked["decidedBy"], asked["answeredAt"]]
        if self.door in {"http", "mcp"}:
            told = {json.dumps([s["answer"], s["decided_by"], s["decided_at"]]) for s in self.states}
            if told != {json.dumps(recorded)}:
                yield f"the asker was told {told}"
            return
        said_alike = {json.dumps([r["response"], r["decided_by"], r["timestamp"]]) for r in replies}
        if len(said_alike) != 1:
            yield f"replies differ: {said_alike}"
        for reply in replies[:1]:
            if [reply["response"], reply["decided_by"]] != [asked["response"], f"user:slack/{TEAM}/{by}"]:
                yield f"replied {reply}, recorded {asked}"


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


class _BusyError(Exception):
    """A tool said that it cannot be done now."""


@dataclass
class FiledExchange(Exchange):
    """A question that is answered once its file is there, which goes to the archive at the end."""

    async def answer(self) -> None:
        await until(self._is_filed, PATIENCE)
        await super().answer()

    async def end(self) -> None:
        await super().end()
        await until(self._is_filed, PATIENCE)
        await until(lambda: not any(self.around.folder.glob("ledgers/issue-*.json")), PATIENCE)

    def _is_filed(self) -> bool:
        return self.around.record(self.token) in self.around.in_files()


@dataclass
class PagedExchange(Exchange):
    """A question that somebody escalates, and that is answered on its card or on its page."""

    async def answer(self) -> None:
        await self.escalate()
        await until(lambda: any(map(can_press, self.pages())), PATIENCE)
        if self.rng.random() < 0.3:
            await self._answer_on_page()
        if not self.is_over():
            await super().answer()

    async def _answer_on_page(self) -> None:
        """Until it took one answer, or lists several, or is closed: there is still the card."""
        people = self.around.people
        while (page := next(filter(can_press, reversed(self.pages())), None)) is not None:
            act = await people.answer(ONCALL, "click", page, response=True, typed="yes")
            # Whoever clicks in their direct messages has seen all that stands there.
            self.around.seen |= {each.ts for each in self.around.workspace.direct(ONCALL)}
            if act is None:
                return
            self.acts.append(act)
            if act.ok and not act.was_refused:
                return

    async def escalate(self) -> None:
        workspace = self.around.workspace
        while not self._is_escalated():
            await until(lambda: workspace.link.connections, PATIENCE)
            await workspace.command(
                ONCALL, AGENTS, "/clarify", f"escalate {self.clarification} nobody here knows"
            )

    def _is_escalated(self) -> bool:
        record = self.around.record(self.token)
        return record is not None and record["status"] not in {"pending", "answered"}

    def pages(self) -> list[Message]:
        """Those that stand in the direct messages of whoever is on call."""
        return [each for each in self.around.workspace.direct(ONCALL) if f"with {self.token}?" in said(each)]

    async def end(self) -> None:
        await super().end()
        await until(self._is_quiet, PATIENCE)

    def _is_quiet(self) -> bool:
        """What is over is gone, or says so where the person has seen it."""
        return not any(can_press(each) or each.ts not in self.around.seen for each in self.pages())

    def check(self, record: dict[str, Any]) -> Iterator[str]:
        yield from super().check(record)
        if len(self.pages()) > 1 or not self._is_quiet():
            yield f"its pages {[each.text for each in self.pages()]}"


def can_press(page: Message) -> bool:
    """Whether its rows of controls have more than links."""
    rows = [block for block in page.blocks if block["type"] == "actions"]
    return any("url" not in control.element for control in controls(rows))


def wrong_with(around: Around, exchanges: list[Exchange]) -> Iterator[str]:
    """What was lost or happened twice, receipts that prove nothing, and what nobody should have been told."""
    records: dict[str, list[dict[str, Any]]] = {}
    for record in around.records():
        words = record["thread"][0]["body"]
        records.setdefault(words.rpartition(" with ")[2].rstrip("?"), []).append(record)
    for exchange in exchanges:
        found = records.pop(exchange.token, [])
        name = f"{exchange.token} ({exchange.door})"
        if len(found) == 1:
            yield from (f"{name}: {each}" for each in exchange.check(found[0]))
        else:
            yield f"{name} has {len(found)} records"
    yield from (f"a record that nobody asked for: {each}" for each in records)
    if (files := around.in_files()) and files != around.records():
        yield "the ledger files differ from the records"
    yield from around.wrong_receipts()
    yield from around.accused()


def check_all(world: World, exchanges: list[Exchange]) -> None:
    """Nothing lost, nothing twice, nobody alarmed, nothing said that belongs to nobody else."""
    assert [*wrong_with(world, exchanges)] == []
    assert world.in_files() == world.records()
    assert len(world.cards()) == len(exchanges)
    paged = {m.ts for exchange in exchanges if isinstance(exchange, PagedExchange) for m in exchange.pages()}
    unasked = [m.text for m in world.workspace.direct(ONCALL) if m.ts not in paged]
    assert not unasked, unasked
    world.nothing_is_loud()
