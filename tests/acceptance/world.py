"""What surrounds the real process in an acceptance test: a workspace and producers that tell what reaches them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from aiohttp import web

import clarify
from core.ledgerfiles import as_item
from tests.acceptance.people import People
from tests.kit import world
from tests.kit.minimal import MinimalProducer
from tests.kit.served import reserved_port
from tests.kit.world import config, said
from workspace import Options, Workspace
from workspace.controls import ControlError
from workspace.demo.producer import DemoProducer
from workspace.interactions import Outcome
from workspace.seed import FALLBACK
from workspace.state import Message

ACCUSING = ("nother program", "does not count")  # what is said of those who changed a ledger file


class Keeping:
    """An agent that keeps each reply that reached it in `tries`, accepted or not."""

    replies: list[dict[str, Any]]

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.tries: list[dict[str, Any]] = []

    def keep(self, message: dict[str, Any]) -> None:
        if message.get("type") == "clarification.reply":
            self.tries.append(message)

    def honoured(self, token: str) -> dict[str, Any] | None:
        """The reply that the agent goes on with."""
        return next((reply for reply in self.replies if reply["reply_token"] == token), None)


class StandardAgent(Keeping, DemoProducer):
    dialect: Literal["standard"] = "standard"

    def __init__(self) -> None:
        super().__init__(agent_id="planner-agent", agent_name="Planner")

    async def _reply(self, request: web.Request) -> web.Response:
        self.keep(await request.json())
        return await super()._reply(request)


class MinimalAgent(Keeping, MinimalProducer):
    """Nothing is replayed."""

    dialect: Literal["minimal"] = "minimal"

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        self.keep(await request.json())
        return await super()._reply(request)


Agent = StandardAgent | MinimalAgent
AGENTS_BY_DIALECT: dict[str, type[Agent]] = {"standard": StandardAgent, "minimal": MinimalAgent}
LONG = 300.0  # people have patience while the process dies again and again
A_WHILE = 10.0


class Around(ABC):
    """What surrounds the bot's processes, and what they left: records, receipts, ledger files, messages."""

    folder: Path
    workspace: Workspace
    headers: Mapping[str, str] = MappingProxyType({})  # of requests to the bot
    ledgers = "ledgers"  # the folder of their files
    moment = 0.05  # seconds, for `People`

    def __init__(self, folder: Path, workspace: Workspace) -> None:
        self.folder = folder
        self.workspace = workspace
        self.seen: set[str] = set()  # the direct messages that the person on call has seen, by their `ts`

    @cached_property
    def people(self) -> People:
        return People(self.workspace, self.moment)

    @abstractmethod
    def agent_of(self, door: str) -> Agent: ...

    @abstractmethod
    def rows(self, sql: str) -> list[Any]:
        """What the storage holds, read beside the processes."""

    @property
    @abstractmethod
    def addresses(self) -> list[str]:
        """Where processes listen."""

    @abstractmethod
    def cards_of(self, token: str) -> list[Message]:
        """The cards of what was asked in words that end with this token."""

    def replies(self, token: str, door: str) -> list[dict[str, Any]]:
        """All that reached an agent, accepted or not; a direct asker gets none."""
        if door in {"http", "mcp"}:
            return []
        return [reply for reply in self.agent_of(door).tries if reply["reply_token"] == token]

    def records(self) -> list[dict[str, Any]]:
        """Every clarification, as it is kept."""
        rows = self.rows("select body from clarifications order by issue, number")
        return [as_item(json.loads(body)) for (body,) in rows]

    def in_files(self) -> list[dict[str, Any]]:
        """Every clarification as other implementations find it, archived or not."""
        found: list[dict[str, Any]] = []
        for path in self.folder.glob(f"{self.ledgers}/**/issue-*.json"):
            with suppress(FileNotFoundError):  # it was moved just now
                found += json.loads(path.read_text())["clarifications"]
        return sorted(found, key=lambda record: (record["issueNumber"], record["id"]))

    def record(self, token: str) -> dict[str, Any] | None:
        """What was asked with this reply token, or, asked directly, with this key, or in words that end with it."""
        found = [
            r
            for r in self.records()
            if token in {r["aaep"]["replyToken"], r["aaep"].get("direct", {}).get("key")}
            or r["thread"][0]["body"].endswith(f" with {token}?")
        ]
        assert len(found) < 2, f"{len(found)} records of one question"
        return found[0] if found else None

    def bot_messages(self) -> Iterator[Message]:
        for channel in list(self.workspace.state.channels.values()):
            yield from (m for m in list(channel.messages.values()) if m.bot_id)

    def wrong_receipts(self) -> Iterator[str]:
        """Each answer has one, which is valid, says the same, and is the log's."""
        keys = {"keys": [json.loads(jwk) for (jwk,) in self.rows("select jwk from signing_keys")]}
        logged = dict(self.rows("select jti, receipt from decisions where jti is not null"))
        for record in self.records():
            receipt = record["aaep"].get("receipt", "")
            found = clarify.verify(receipt, keys=keys)
            if found.problem or found.claims["decided_by"] != record["aaep"].get("decidedBy"):
                yield f"{record['id']}: its receipt is {found.problem or 'of somebody else'}"
            elif logged.get(found.claims["jti"], receipt) != receipt:
                yield f"{record['id']}: the log has another receipt"

    def accused(self) -> Iterator[str]:
        """Nobody is accused of anything."""
        for message in self.bot_messages():
            if any(words in said(message) for words in ACCUSING):
                yield f"somebody is accused: {message.text}"


class World(Around):
    """One workspace, one agent, one folder, in which processes live and die one after the other."""

    def __init__(self, folder: Path, workspace: Workspace, agent: Agent, port: int) -> None:
        """`port`: where each process listens."""
        super().__init__(folder, workspace)
        self.port = port
        self.agent = agent
        self.file = folder / "clarify.toml"
        listen = f'[http]\nlisten = "127.0.0.1:{port}"\n'
        self.file.write_text(config(agent.url, dialect=agent.dialect, more=listen))

    def agent_of(self, door: str) -> Agent:
        return self.agent

    @property
    def log(self) -> Path:
        return self.folder / "bot.log"

    def rows(self, sql: str, *parameters: object) -> list[Any]:
        """What the storage holds, read beside the process."""
        path = self.folder / "clarify.db"
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    async def asked(self, token: str, **fields: object) -> Message:
        """Have the agent ask, in a session of its own; the question's card, once it is there."""
        await self.agent.emit(question(token, f"sess_{token}", **fields))
        card: Message = await self.until(lambda: self.card_saying(f"with {token}?"))
        return card

    async def press(self, user: str, card: Message, label: str) -> Outcome | None:
        """As people do, who have seen an error: it returns once another try makes sense, or the card takes none, or a while
        later: who was not answered in time may be told nothing more.

        None: its controls went in this moment. Not ok, too, if this person was told something: mostly that nothing was recorded,
        as the process could not get at the ledger in time on a machine that stood still.
        """
        link = self.workspace.link
        await self.until(lambda: link.connections, LONG)
        present = {connection.id for connection in link.connections}
        thread = card.thread_ts or card.ts

        def said() -> int:
            return sum(each.thread_ts in {thread, None} for each in self.workspace.ephemerals(user))

        told = said()

        def was_told() -> bool:
            return said() > told

        def may_try_again() -> bool:
            there = {connection.id for connection in link.connections}
            shown = self.workspace.channel(card.channel).messages.get(card.ts)
            is_over = shown is None or not has_controls(shown)
            return bool(there - present) or is_over or was_told()

        try:
            outcome = await self.workspace.click(user, card.channel, card.ts, label=label)
        except ControlError:
            return None
        if not outcome.ok:
            with suppress(TimeoutError):
                await self.until(may_try_again, A_WHILE)
        return replace(outcome, ok=outcome.ok and not was_told())

    async def get_acquainted(self) -> None:
        """A first event is taken in: from now on what is missed is fetched by Last-Event-ID."""
        await self.agent.emit({"type": "aaep:agent.session.started", "session_id": "sess_0"})
        await self.until(lambda: self.rows("select 1 from inbox"))

    def logged(self) -> list[dict[str, Any]]:
        """The process's log; a line that a kill cut short is left out."""
        lines = (
            self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        )
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    @property
    def addresses(self) -> list[str]:
        """Where the last process listens, or listened."""
        return [f"http://127.0.0.1:{self.port}"]

    def cards(self, clarification: str | None = None) -> list[Message]:
        """The cards in all channels, of one clarification or of all."""
        return [
            m
            for m in self.bot_messages()
            if (m.metadata or {}).get("event_type") == "clarify_card"
            and clarification in {None, (m.metadata or {})["event_payload"]["clarification"]}
        ]

    def cards_of(self, token: str) -> list[Message]:
        return [m for m in self.cards() if f"with {token}?" in said(m)]

    def nothing_is_loud(self) -> None:
        """Nobody was alarmed, and the log says nothing that belongs to nobody else."""
        alarms = [m.text for m in self.workspace.messages(FALLBACK)]
        assert not alarms, alarms
        loud = [line for line in self.logged() if line["level"] not in {"info", "warning"}]
        assert not loud, loud
        log = self.log.read_text(encoding="utf-8", errors="replace")
        for word in ("Traceback", "Shall I go on", "xoxb-", "xapp-"):
            assert word not in log

    def card_saying(self, text: str) -> Message | None:
        return next((m for m in self.cards() if text in said(m)), None)

    async def until(self, predicate: Callable[[], Any], timeout: float = 60.0) -> Any:
        """The predicate's first truthy value, asked at each change of the workspace and a few times a second:
        what happens at the agent or in files does not tell the workspace."""
        async with asyncio.timeout(timeout):
            while not (value := predicate()):
                try:
                    value = await self.workspace.context.changes.wait(predicate, 0.05)
                except TimeoutError:
                    continue
                break
            return value


@asynccontextmanager
async def a_world(
    folder: Path, dialect: str = "standard", options: Options | None = None
) -> AsyncIterator[World]:
    """A workspace and an agent; the process is each test's to start."""
    with reserved_port() as port:
        async with Workspace(options=options) as workspace, AGENTS_BY_DIALECT[dialect]() as agent:
            yield World(folder, workspace, agent, port)


def has_controls(message: Message) -> bool:
    return any(block["type"] == "actions" for block in message.blocks)


def question(token: str, session: str, **fields: Any) -> dict[str, Any]:
    """One that can be told from others, and comes once."""
    own: dict[str, Any] = {"event_id": f"evt_{token}", "question": f"Shall I go on with {token}?"}
    return world.question(token, session=session, **({"accepted_response_kinds": ["yes_no"]} | own | fields))


def went_on(session: str) -> dict[str, Any]:
    """What an agent says that goes on with its answer."""
    return {
        "type": "aaep:agent.state.changed",
        "session_id": session,
        "from_state": "awaiting_input",
        "to_state": "thinking",
        "summary_normal": "Going on.",
    }
