"""One question from asking to its end, with people who try again as people do; and what must hold at that end."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

import clarify
from tests.acceptance.world import LONG, MinimalAgent, World, has_controls, question, went_on
from tests.kit.world import said
from workspace.controls import controls
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE, ONCALL, TEAM
from workspace.state import Message

PEOPLE = (FOLAKE, ADE, ONCALL)
ACCUSING = ("nother program", "does not count")  # what is said of those who changed a ledger file


@dataclass(frozen=True)
class Try:
    """Somebody's answer; `ok`: they saw no error."""

    user: str
    response: bool
    ok: bool


@dataclass
class Exchange:
    """`alone`: the only question of its session, so that a reply in its thread can be meant for it only."""

    world: World
    token: str
    session: str
    alone: bool = True
    tries: list[Try] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)  # that a direct asker was answered with
    receipts: set[str] = field(default_factory=set)  # that its record was seen with

    async def play(self, rng: random.Random) -> None:
        """Ask, and have people answer until one of them saw no error."""
        await self.ask()
        await self.answer(rng)

    async def ask(self) -> None:
        self.world.tap("asked")
        await self._tell(question(self.token, self.session), self._taken_in)

    async def answer(self, rng: random.Random) -> None:
        world = self.world
        while True:
            card = await world.until(self.card, LONG)
            if not has_controls(card):
                return
            await world.until(lambda: world.workspace.link.connections, LONG)
            user, yes = rng.choice(PEOPLE), rng.random() < 0.5
            if self.alone and rng.random() < 0.3:
                await world.workspace.post(user, AGENTS, "yes" if yes else "no", thread_ts=card.ts)
                self.tries.append(Try(user, yes, ok=True))
                world.tap("said")
                return
            outcome = await world.press(user, card, "Yes" if yes else "No")
            if outcome is not None:
                self.tries.append(Try(user, yes, ok=outcome.ok))
            if outcome is not None and outcome.ok:
                world.tap("acknowledged")
                return

    def card(self) -> Message | None:
        return self.world.card_saying(f"with {self.token}?")

    def _taken_in(self) -> bool:
        return bool(self.world.rows("select 1 from inbox where token = ?", self.token))

    async def confirm(self) -> None:
        """The agent has its answer and goes on; the card says so."""
        await self.world.until(lambda: self.world.agent.honoured(self.token))
        await self._tell(went_on(self.session), self._is_confirmed)
        await self.world.until(self._is_confirmed)

    async def end(self) -> None:
        """It is confirmed, and other implementations find in their file what became of it."""
        await self.confirm()
        await self.world.until(self._is_filed)

    def _is_filed(self) -> bool:
        return self.world.record(self.token) in self.world.in_files()

    async def _tell(self, event: dict[str, object], heard: Callable[[], bool]) -> None:
        """Where nothing is replayed, an agent that met a dying subscriber says it again."""
        agent = self.world.agent
        await agent.emit(event)
        while isinstance(agent, MinimalAgent) and not heard():
            connections = agent.connections
            await self.world.until(lambda n=connections: heard() or agent.connections > n, LONG)  # type: ignore[misc]
            if not heard():
                await agent.emit(event)

    def _is_confirmed(self) -> bool:
        card = self.card()
        return card is not None and "the agent has resumed" in said(card)

    def look_at_disk(self) -> None:
        """Whenever the process dies: an answer is signed, by the write that put it there, and files are whole."""
        assert all(each["thread"] for each in self.world.in_files())
        record = self.world.record(self.token)
        asked = record["aaep"] if record is not None else {}
        assert ("receipt" in asked) == ("response" in asked), f"{self.token} is answered, and not signed"
        self.receipts |= {asked["receipt"]} if "receipt" in asked else set()

    def check_receipt(self) -> None:
        """It has one receipt, which is valid, is the only one there ever was, and the one that every door gave."""
        self.look_at_disk()
        record = self.world.record(self.token)
        assert record is not None
        keys = {"keys": [json.loads(row[0]) for row in self.world.rows("select jwk from signing_keys")]}
        (receipt,) = self.receipts | {each["receipt"] for each in self.states}
        found = clarify.verify(receipt, keys=keys)
        assert (found.problem, found.claims["jti"]) == (None, f"{record['id']}/1")
        assert found.claims["decided_by"] == record["aaep"]["decidedBy"]
        logged = self.world.rows("select receipt from decisions where jti = ?", f"{record['id']}/1")
        assert [row[0] for row in logged] in ([receipt], []), "the log has another one"

    def check(self) -> None:
        """One question, one card, one answer, one and the same reply."""
        self.check_receipt()
        record, card = self.world.record(self.token), self.card()
        assert record is not None
        assert card is not None
        asked = record["aaep"]
        assert record["status"] == "resolved"
        assert asked["reply"] == "confirmed"
        assert [entry["type"] for entry in record["thread"]].count("answer") == 1
        self._check_winner(asked["answeredBy"]["user"], asked["response"])
        self._check_replies(asked)
        assert len(self.world.cards(record["id"])) == 1, f"{record['id']} has several cards"
        assert not has_controls(card)
        assert f"<@{asked['answeredBy']['user']}>" in said(card)

    def _check_winner(self, user: str, response: bool) -> None:
        """The one who saw no error, unless somebody's earlier try got through though they saw an error."""
        made = [(each.user, each.response) for each in self.tries]
        assert (user, response) in made, f"{user} {response} was never given; tries: {self.tries}"
        assert sum(each.ok for each in self.tries) <= 1
        if len(self.tries) == 1:
            assert made == [(user, response)]

    def _check_replies(self, asked: dict[str, object]) -> None:
        mine = [reply for reply in self.world.agent.tries if reply["reply_token"] == self.token]
        said_alike = {(r["response"], r["decided_by"], r["timestamp"]) for r in mine}
        by = asked["answeredBy"]
        assert isinstance(by, dict)
        assert len(said_alike) == 1, f"replies differ: {said_alike}"
        (response, decided_by, _), *_ = said_alike
        assert response == asked["response"]
        assert decided_by == f"user:slack/{TEAM}/{by['user']}"


@dataclass
class DirectExchange(Exchange):
    """A question over HTTP, by an asker who tries again with the same key."""

    async def ask(self) -> None:
        self.world.tap("asked")
        words = question(self.token, self.session)["question"]
        body = {"question": words, "kind": "yes_no", "session": self.session, "key": self.token}
        await self._call("POST", "/questions", body)

    async def confirm(self) -> None:
        """The asker has the answer; the card says so, once a process lived long enough to write that down."""
        record = self.world.record(self.token)
        assert record is not None
        while not self._is_confirmed():
            state = await self._look(record["id"])
            if state["status"] == "answered":
                self.states.append(state)
                await self._settled()

    async def _look(self, clarification: str) -> dict[str, Any]:
        return await self._call("GET", f"/questions/{clarification}?wait=1")

    async def _settled(self) -> None:
        """It is confirmed, or another process has to be told that it is."""
        began = len(self.world.addresses)
        await self.world.until(lambda: self._is_confirmed() or len(self.world.addresses) > began, LONG)

    async def _another_life(self, before: int) -> None:
        await self.world.until(lambda: len(self.world.addresses) > before, LONG)

    async def _call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Until a process answers it."""
        while True:
            lives = self.world.addresses
            try:
                async with httpx.AsyncClient(base_url=lives[-1], timeout=60) as http:
                    answer = await http.request(method, path, json=body, headers=headers)
            except httpx.TransportError:
                await self._another_life(len(lives))
                continue
            if answer.status_code != 503:
                assert answer.status_code in {200, 201}, answer.text
                state: dict[str, Any] = answer.json()
                return state

    def _check_replies(self, asked: dict[str, object]) -> None:
        said_alike = {(s["answer"], s["decided_by"], s["decided_at"]) for s in self.states}
        assert said_alike == {(asked["response"], asked["decidedBy"], asked["answeredAt"])}


@dataclass
class McpExchange(DirectExchange):
    """A question over MCP, by a client that makes a call that breaks off again, and has no keys."""

    async def ask(self) -> None:
        self.world.tap("asked")
        words = question(self.token, self.session)["question"]
        await self._tool("ask_human", question=words, kind="yes_no", session=self.session, wait=0)

    async def _look(self, clarification: str) -> dict[str, Any]:
        return await self._tool("wait_for_answer", id=clarification, wait=1)

    async def _tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        version = "2026-07-28"
        about = "io.modelcontextprotocol"
        meta = {f"{about}/protocolVersion": version, f"{about}/clientCapabilities": {}}
        params = {"name": name, "arguments": arguments, "_meta": meta}
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": version,
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        result = (await self._call("POST", "/mcp", call, headers))["result"]
        assert not result.get("isError"), result
        state: dict[str, Any] = result["structuredContent"]
        return state | {"receipt": (result.get("_meta") or {}).get("receipt")}


@dataclass
class FiledExchange(Exchange):
    """A question that is answered once its file is there, which goes to the archive at the end."""

    async def answer(self, rng: random.Random) -> None:
        await self.world.until(self._is_filed, LONG)
        await super().answer(rng)

    async def end(self) -> None:
        await super().end()
        await self.world.until(lambda: not any(self.world.folder.glob("ledgers/issue-*.json")))


@dataclass
class PagedExchange(Exchange):
    """A question that somebody escalates, and that is answered on its card or on its page."""

    async def answer(self, rng: random.Random) -> None:
        card = await self.world.until(self.card, LONG)
        await self._escalate()
        await self.world.until(lambda: any(map(can_press, self.pages())), LONG)
        if rng.random() < 0.7:
            await super().answer(rng)
            return
        while has_controls(card):
            page = next(filter(can_press, reversed(self.pages())), None)
            outcome = await self.world.press(ONCALL, page, "Yes") if page is not None else None
            if page is not None:  # whoever clicks in their direct messages has seen all that stands there
                self.world.seen |= {each.ts for each in self.world.workspace.direct(ONCALL)}
            if outcome is None:  # it lists several, or is closed: there is still the card
                await super().answer(rng)
                return
            self.tries.append(Try(ONCALL, response=True, ok=outcome.ok))
            if outcome.ok:
                self.world.tap("acknowledged")
                return

    async def _escalate(self) -> None:
        workspace = self.world.workspace
        while not self._is_escalated():
            await self.world.until(lambda: workspace.link.connections, LONG)
            record = self.world.record(self.token)
            assert record is not None
            await workspace.command(FOLAKE, AGENTS, "/clarify", f"escalate {record['id']} it is urgent")

    def _is_escalated(self) -> bool:
        record = self.world.record(self.token)
        return record is not None and record["status"] not in {"pending", "answered"}

    def pages(self) -> list[Message]:
        """Those that stand in the direct messages of whoever is on call."""
        return [each for each in self.world.workspace.direct(ONCALL) if f"with {self.token}?" in said(each)]

    async def confirm(self) -> None:
        await super().confirm()
        await self.world.until(self._is_quiet)

    def _is_quiet(self) -> bool:
        """What is over is gone, or says so where the person has seen it."""
        return not any(can_press(each) or each.ts not in self.world.seen for each in self.pages())

    def check(self) -> None:
        super().check()
        assert len(self.pages()) <= 1, [each.text for each in self.pages()]
        assert self._is_quiet()


def can_press(page: Message) -> bool:
    """Whether its rows of controls have more than links."""
    rows = [block for block in page.blocks if block["type"] == "actions"]
    return any("url" not in control.element for control in controls(rows))


def check_all(world: World, exchanges: list[Exchange]) -> None:
    """Nothing lost, nothing twice, nobody alarmed, nothing said that belongs to nobody else."""
    for exchange in exchanges:
        exchange.check()
    records = world.records()
    asked = [(each["id"], each["aaep"]["replyToken"], each["status"]) for each in records]
    assert len(records) == len(exchanges), f"{len(exchanges)} questions, recorded: {asked}"
    assert world.in_files() == records
    assert len(world.cards()) == len(exchanges)
    accused = [m.text for m in world.bot_messages() if any(words in said(m) for words in ACCUSING)]
    assert not accused, accused
    paged = {m.ts for exchange in exchanges if isinstance(exchange, PagedExchange) for m in exchange.pages()}
    unasked = [m.text for m in world.workspace.direct(ONCALL) if m.ts not in paged]
    assert not unasked, unasked
    alarms = [m.text for m in world.workspace.messages(FALLBACK)]
    assert not alarms, alarms
    loud = [line for line in world.logged() if line["level"] not in {"info", "warning"}]
    assert not loud, loud
    log = world.log.read_text(encoding="utf-8", errors="replace")
    for word in ("Traceback", "Shall I go on", "xoxb-", "xapp-"):
        assert word not in log
