"""What surrounds the real process in an acceptance test: a workspace and producers that tell what reaches them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from core.ledgerfiles import as_item
from tests.kit import world
from tests.kit.minimal import MinimalProducer
from tests.kit.served import reserved_port
from tests.kit.world import config, said
from workspace import Options, Workspace
from workspace.controls import ControlError
from workspace.demo.producer import DemoProducer
from workspace.faults import Fault, Faults
from workspace.interactions import Outcome
from workspace.state import Message


class Tap:
    """Told by name whenever something reaches an outside party; tests lay fuses to it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._fuses: dict[str, Callable[[], None]] = {}

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if (fuse := self._fuses.pop(name, None)) is not None:
            fuse()

    def lay(self, name: str, fuse: Callable[[], None]) -> None:
        """Have `fuse` called the next time that `name` happens."""
        self._fuses = {name: fuse}


class TappedFaults(Faults):
    """Every Web API call asks for its fault first: that is when it has reached the workspace."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def take(self, method: str, channel: str | None = None) -> Fault | None:
        self._tap(method)
        return super().take(method, channel)


class Tapped:
    """An agent that tells when a reply reached it and when it was taken; `tries` are all, accepted or not.

    `before`, `after`: seconds that the next reply waits before and after it is taken.
    """

    replies: list[dict[str, Any]]

    def __init__(self, tap: Tap, **how: Any) -> None:
        super().__init__(**how)
        self.tries: list[dict[str, Any]] = []
        self.before = self.after = 0.0
        self._tap = tap

    @asynccontextmanager
    async def taking(self, message: dict[str, Any]) -> AsyncIterator[None]:
        if message.get("type") != "clarification.reply":
            yield
            return
        before, after, self.before, self.after = self.before, self.after, 0.0, 0.0
        self.tries.append(message)
        self._tap("reply")
        await asyncio.sleep(before)
        yield
        self._tap("replied")
        await asyncio.sleep(after)

    def honoured(self, token: str) -> dict[str, Any] | None:
        """The reply that the agent goes on with."""
        return next((reply for reply in self.replies if reply["reply_token"] == token), None)


class StandardAgent(Tapped, DemoProducer):
    dialect = "standard"

    def __init__(self, tap: Tap) -> None:
        super().__init__(tap, agent_id="planner-agent", agent_name="Planner")

    async def _reply(self, request: web.Request) -> web.Response:
        async with self.taking(await request.json()):
            response = await super()._reply(request)
        return response  # noqa: RET504 - taken only now


class MinimalAgent(Tapped, MinimalProducer):
    """Nothing is replayed."""

    dialect = "minimal"

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        async with self.taking(await request.json()):
            response = await super()._reply(request)
        return response  # noqa: RET504 - taken only now


Agent = StandardAgent | MinimalAgent
AGENTS_BY_DIALECT: dict[str, type[Agent]] = {"standard": StandardAgent, "minimal": MinimalAgent}
LONG = 300.0  # people have patience while the process dies again and again
A_WHILE = 10.0


class World:
    """One workspace, one agent, one folder, in which processes live and die one after the other."""

    def __init__(self, folder: Path, workspace: Workspace, agent: Agent, tap: Tap, port: int) -> None:
        """`port`: where each process listens."""
        self.folder = folder
        self.seen: set[str] = set()  # the direct messages that the person on call has seen, by their `ts`
        self.port = port
        self.workspace = workspace
        self.agent = agent
        self.tap = tap
        workspace.context.faults = TappedFaults(tap)
        self.file = folder / "clarify.toml"
        listen = f'[http]\nlisten = "127.0.0.1:{port}"\n'
        self.file.write_text(config(agent.url, dialect=agent.dialect, more=listen))

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

        self.tap("clicked")
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
        """Where the processes listened, one after the other."""
        return [line["url"] for line in self.logged() if line.get("event") == "listening"]

    def records(self) -> list[dict[str, Any]]:
        """Every clarification, as it is kept."""
        rows = self.rows("select body from clarifications order by issue, number")
        return [as_item(json.loads(body)) for (body,) in rows]

    def in_files(self) -> list[dict[str, Any]]:
        """Every clarification as other implementations find it, archived or not."""
        found: list[dict[str, Any]] = []
        for path in self.folder.glob("ledgers/**/issue-*.json"):
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
            yield from (m for m in channel.messages.values() if m.bot_id)

    def cards(self, clarification: str | None = None) -> list[Message]:
        """The cards in all channels, of one clarification or of all."""
        return [
            m
            for m in self.bot_messages()
            if (m.metadata or {}).get("event_type") == "clarify_card"
            and clarification in {None, (m.metadata or {})["event_payload"]["clarification"]}
        ]

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
    tap = Tap()
    with reserved_port() as port:
        async with Workspace(options=options) as workspace, AGENTS_BY_DIALECT[dialect](tap) as agent:
            yield World(folder, workspace, agent, tap, port)


def has_controls(message: Message) -> bool:
    return any(block["type"] == "actions" for block in message.blocks)


def question(token: str, session: str, **fields: Any) -> dict[str, Any]:
    """One that can be told from others, and comes once."""
    own = {"event_id": f"evt_{token}", "question": f"Shall I go on with {token}?"}
    return world.question(token, session=session, accepted_response_kinds=["yes_no"], **(own | fields))


def went_on(session: str) -> dict[str, Any]:
    """What an agent says that goes on with its answer."""
    return {
        "type": "aaep:agent.state.changed",
        "session_id": session,
        "from_state": "awaiting_input",
        "to_state": "thinking",
        "summary_normal": "Going on.",
    }
