"""Producers that push, on a real storage; the inbox keeps what came and what is known of its questions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from bot.ask.client import Reply
from bot.ask.inbox import Arrived, Inbox, Incoming
from bot.ask.producers import Producers
from bot.ask.push import Push
from bot.ask.receiver import StreamTrouble
from bot.errors import StorageUnavailable
from bot.settings.model import ProducerSettings
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.telemetry import Telemetry
from core.clarification import Response
from tests.kit.clocks import ManualClock
from tests.unit.bot.ask.parties import seeded

TOKEN = "rpl_0123456789abcdef"


class KeptInbox(Inbox):
    """`refuses`: the disk is full."""

    refuses = False

    async def put(self, *incoming: Incoming) -> list[Arrived]:
        if self.refuses:
            raise StorageUnavailable("The disk is full.")
        return await super().put(*incoming)


class Life:
    """One life of the bot's producers on a storage."""

    def __init__(self, store: Store, clock: ManualClock, names: Sequence[str], seed: int) -> None:
        self.store = store
        self.clock = clock
        self.inbox = KeptInbox(store)
        self.troubles: list[StreamTrouble] = []
        self.pages = True  # False: they cannot be stored either
        self.producers = Producers(
            [ProducerSettings(name=name) for name in names],
            token_of=lambda _: None,
            inbox=self.inbox,
            store=store,
            clock=clock,
            rng=seeded(seed),
            report_trouble=self.tell,
            telemetry=Telemetry(clock),
        )

    def push(self, name: str = "planner") -> Push:
        push = self.producers.pushing(name)
        assert push is not None
        return push

    def status(self, name: str = "planner") -> dict[str, Any]:
        return self.producers.status()[name]

    async def tell(self, trouble: StreamTrouble) -> None:
        if not self.pages:
            raise StorageUnavailable("The disk is full.")
        self.troubles.append(trouble)

    async def post(self, message: object, name: str = "planner") -> Any:
        return await self.push(name).receive(json.dumps(message).encode())

    async def ids(self) -> list[str]:
        """The events that are in the inbox."""
        return [row["event_id"] for row in await self.store.read("select event_id from inbox order by id")]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()


@asynccontextmanager
async def life(
    folder: Path, clock: ManualClock, names: Sequence[str] = ("planner", "builder"), seed: int = 7
) -> AsyncIterator[Life]:
    async with Life(await open_storage(folder / "clarify.db"), clock, names, seed) as found:
        yield found


def asked(clock: ManualClock, token: str = TOKEN, n: int = 1, **fields: Any) -> dict[str, Any]:
    """A question of now."""
    return {
        "@context": "https://aaep-protocol.org/context/v1",
        "type": "aaep:agent.awaiting.clarification",
        "event_id": f"evt_{n:016x}",
        "session_id": "sess_1",
        "timestamp": clock.now().isoformat(),
        "producer": {"agent_id": "retirement-planner"},
        "urgency": "critical",
        "question": "Deploy?",
        "reply_token": token,
        "timeout_seconds": 600,
        "accepted_response_kinds": ["yes_no"],
    } | fields


def state(clock: ManualClock, n: int = 100, **fields: Any) -> dict[str, Any]:
    """Something that a session does now, beside asking."""
    event = asked(clock, n=n, type="aaep:agent.state.changed", urgency="normal", to_state="working")
    for name in ("question", "reply_token", "timeout_seconds", "accepted_response_kinds"):
        del event[name]
    return event | fields


def answer(clock: ManualClock, token: str = TOKEN, response: Response = True) -> Reply:
    return Reply(token, response, clock.now(), "user:slack/T1/U1", None)


def frames(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    """Each frame's id and message."""
    found = []
    for part in data.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields["id"], json.loads(fields["data"])))
    return found
