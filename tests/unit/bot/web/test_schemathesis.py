"""schemathesis tries the server against its own OpenAPI document: every operation, on a real socket, without state.

Answers have to be as documented, what the document forbids has to be refused, what it allows taken; nothing may end in
a 500, and nothing is done without a token.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation

from bot.app import Bot
from bot.settings.load import parse_settings, prepare_folders
from bot.web.server import HttpServer
from core.clarification import Ask, Decider, Question
from core.clock import SystemClock
from core.hub import Hub
from workspace import Workspace
from workspace.seed import BOT_TOKEN, FALLBACK, FOLAKE, SIGNING_SECRET

EXAMPLES = 5  # of each operation, and of each kind of data
LONG = 60.0
Operation = APIOperation[Any, Any, Any, Any]
AUTHORIZED = {"Authorization": "Bearer t-planner"}
CONFIGURATION = f"""
[slack]
mode = "http"
fallback_channel = "{FALLBACK}"
[http]
listen = "127.0.0.1:0"
[[producers]]
name = "planner"
token_env = "PLANNER_TOKEN"
"""
WORKFLOW = """
[[steps]]
agent = "engineer"
can_clarify = ["architect"]
clarify_max_rounds = 5
"""
CONNECTIONS = 512
Building = Callable[[Path], AbstractAsyncContextManager[FastAPI]]


@asynccontextmanager
async def all_routes(folder: Path) -> AsyncIterator[FastAPI]:
    """The app that is tried: of a whole bot that an agent pushes to. Built in the event loop that serves it."""
    async with Workspace() as workspace:
        environ = {
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_SIGNING_SECRET": SIGNING_SECRET,
            "SLACK_API_URL": workspace.api_url,
            "PLANNER_TOKEN": "t-planner",
        }
        configured = parse_settings(CONFIGURATION, file=folder / "clarify.toml", environ=environ)
        prepare_folders(configured)
        (configured.ledger.workflows / "feature.toml").write_text(WORKFLOW)
        bot = await Bot.build(configured, SystemClock(), Random(7))  # noqa: S311 - jitter
        try:
            await bot.start()
            await asyncio.wait_for(bot.slack.app.ready.wait(), LONG)
            base = bot.base
            hub = Hub(router=base.router, ledger=base.ledger, scopes=base.scopes, clock=base.clock)
            for issue in (42, 43):
                await hub.request(
                    issue, Ask("engineer", "Which?", "architect", "db", blocking=True, asked=Question())
                )
            await hub.answer("CLR-43-001", "PostgreSQL", Decider("agent:architect", "shell"))
            yield bot.http_app(CONNECTIONS)
        finally:
            await bot.stop()


@contextmanager
def serving(building: Building, folder: Path) -> Iterator[tuple[FastAPI, str]]:
    """An app and its address: it runs in a thread, for schemathesis blocks."""
    started, found = threading.Event(), list[tuple[FastAPI, HttpServer, asyncio.AbstractEventLoop]]()

    async def serve() -> None:
        async with building(folder) as app:
            server = HttpServer(app, "127.0.0.1", 0, CONNECTIONS)
            found.append((app, server, asyncio.get_running_loop()))
            started.set()
            await server.run()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(LONG)
    ((app, server, loop),) = found
    try:
        yield app, server.url
    finally:
        loop.call_soon_threadsafe(server.begin_stop)
        thread.join(LONG)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FastAPI, str]]:
    with serving(all_routes, tmp_path_factory.mktemp("server")) as running:
        yield running


POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


@pytest.mark.parametrize(
    ("mode", "known"),
    [(POSITIVE, False), (POSITIVE, True), (NEGATIVE, False)],
    ids=["right", "known", "wrong"],
)
def test_server_does_as_its_document_says(
    server: tuple[FastAPI, str], mode: GenerationMode, known: bool
) -> None:
    app, url = server
    schema = schemathesis.openapi.from_dict(app.openapi())
    schema.config.update(base_url=url)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == sum(len(methods) for methods in app.openapi()["paths"].values())
    for operation in operations:
        if is_endless(operation):
            continue
        if mode is POSITIVE or can_be_wrong(operation):
            check(operation, mode, known=known)


def is_endless(operation: Operation) -> bool:
    """A stream of events: who reads it reads for ever."""
    return "text/event-stream" in str(operation.definition.raw["responses"].get("200"))


def can_be_wrong(operation: Operation) -> bool:
    """Whether it takes anything that could be."""
    return bool(operation.body) or any(True for _ in operation.iter_parameters())


def check(operation: Operation, mode: GenerationMode, *, known: bool) -> None:
    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def one(case: Case[Any]) -> None:
        if known:
            of_this_world(case)
        if mode is POSITIVE and "wait" in case.query:
            case.query["wait"] = min(case.query["wait"], 1)  # nobody answers
        if mode is POSITIVE and isinstance(case.body, dict) and case.path == "/questions":
            make_sense(case.body)
            if case.headers is not None:
                case.headers.pop("Idempotency-Key", None)  # may differ from the key in the body
        case.call_and_validate(headers=AUTHORIZED, timeout=LONG)

    one()


def make_sense(question: dict[str, Any]) -> None:
    """What JSON Schema cannot say: each choice is there once, the default is one of them, some risk has no low; what the
    fields of a form are; who is in the workspace.
    """
    if question.get("to"):
        question["to"] = FOLAKE
    if question.get("choices"):
        question["choices"] = [f"{n}" for n, _ in enumerate(question["choices"])]
        question.pop("default", None)
    if isinstance(form := question.get("schema"), dict):
        names = [name for name in form["properties"] if name.strip()] or ["a"]
        question["schema"] = {"properties": {name[:200]: {"type": "string"} for name in names}}
        question.pop("default", None)
    if question.get("irreversible"):
        question["risk"] = "high"


def of_this_world(case: Case[Any]) -> None:
    """Names what there is, so that it is done, not only looked for."""
    if "clarification_id" in (case.path_parameters or {}):
        case.path_parameters["clarification_id"] = "CLR-43-001"
    if isinstance(case.body, dict) and "from" in case.body:
        case.body |= {"from": "engineer", "to": "architect"}
