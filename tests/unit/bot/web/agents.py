"""Agents that ask over HTTP, in one process: real routes, real ledgers, a real router."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import SecretStr

from bot.web.callers import Callers
from bot.web.clarifications import clarification_routes
from bot.web.server import build_app
from core.clarification import Clarification, Decider
from core.hub import Hub
from core.ledger import FileLedger
from core.router import Router
from core.workflow import Scopes, Speaker
from tests.clocks import ManualClock

TOKENS = {"planner": SecretStr("t-planner"), "other": SecretStr("t-other")}
ARCHITECT = Decider("agent:architect", "responder")
QUESTION: dict[str, Any] = {
    "from": "engineer",
    "to": "architect",
    "issue": 42,
    "topic": "storage",
    "question": "Which database?",
}
WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect"]
clarify_max_rounds = 2

[[steps]]
agent = "writer"
can_clarify = ["architect"]
clarify_blocking_allowed = false
"""


@dataclass
class Desk:
    app: FastAPI
    client: httpx.AsyncClient
    hub: Hub
    ledger: FileLedger
    router: Router
    clock: ManualClock

    async def ask(self, headers: dict[str, str] | None = None, **changes: object) -> httpx.Response:
        return await self.client.post("/clarifications", json=QUESTION | changes, headers=headers)

    async def answer(self, clarification: str, text: str = "PostgreSQL") -> Clarification:
        return await self.hub.answer(clarification, text, ARCHITECT)


@asynccontextmanager
async def desk(
    folder: Path, most_waiting: int = 1000, speakers: dict[str, Speaker] | None = None
) -> AsyncIterator[Desk]:
    for name in ("ledgers", "workflows"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "workflows" / "feature.toml").write_text(WORKFLOW)
    ledger, clock = FileLedger(folder / "ledgers"), ManualClock()
    router = Router(ledger, clock, timedelta(minutes=30), lambda _: None)
    hub = Hub(router=router, ledger=ledger, scopes=Scopes(folder / "workflows"), clock=clock, via="http")
    routes = clarification_routes(
        hub=hub, ledger=ledger, callers=Callers(TOKENS, speakers), most_waiting=most_waiting
    )
    app = build_app([routes], version="0")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://bot.test",
        headers={"Authorization": "Bearer t-planner"},
    ) as client:
        yield Desk(app, client, hub, ledger, router, clock)
    ledger.close()
