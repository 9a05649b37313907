"""The push dialect on a real socket, with a real storage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from pydantic import SecretStr

from bot.ask.client import TryAgain
from bot.web.guard import Callers
from bot.web.push import HEARTBEAT, push_routes
from bot.web.server import HttpServer, build_app
from tests.kit.clocks import ManualClock
from tests.kit.until import until
from tests.unit.bot.ask.push_kit import TOKEN, Life, answer, asked, life, state
from tests.unit.bot.web.serving import PATIENCE, serving

PLANNER = {"Authorization": "Bearer planner-token"}
MESSAGES, EVENTS = "/aaep/v1/messages", "/aaep/v1/events"


@dataclass(frozen=True)
class Door:
    bot: Life
    server: HttpServer
    client: httpx.AsyncClient

    async def post(self, message: object, headers: dict[str, str] | None = None) -> httpx.Response:
        return await self.client.post(MESSAGES, json=message, headers=headers or PLANNER)

    @asynccontextmanager
    async def reading(
        self, last: str | None = None, path: str = EVENTS, headers: dict[str, str] | None = None
    ) -> AsyncIterator[Replies]:
        """A reader of the replies, once it is connected."""
        resume = {"Last-Event-ID": last} if last else {}
        async with self.client.stream("GET", path, headers=(headers or PLANNER) | resume) as response:
            assert response.status_code == 200
            yield Replies(response)


class Replies:
    """The replies as an agent reads them; `comments` so far."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self.comments: list[str] = []
        self._frames = self._read(response)

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next frame's id and message."""
        async with asyncio.timeout(PATIENCE):
            return await anext(self._frames)

    async def token(self) -> str:
        """Whose reply comes next."""
        return str((await self.next())[1]["reply_token"])

    async def end(self) -> None:
        """Returns when the server ended the stream."""
        async with asyncio.timeout(PATIENCE):
            async for frame in self._frames:
                raise AssertionError(frame)

    async def _read(self, response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        fields: dict[str, str] = {}
        async for line in response.aiter_lines():
            if line.startswith(":"):
                self.comments.append(line)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield fields["id"], json.loads(fields["data"])
                fields = {}


@asynccontextmanager
async def open_door(
    folder: Path, clock: ManualClock, tokens: dict[str, SecretStr | None] | None = None, seed: int = 7
) -> AsyncIterator[Door]:
    known = tokens or {"planner": SecretStr("planner-token"), "builder": SecretStr("builder-token")}
    async with life(folder, clock, list(known), seed) as bot:
        callers = Callers(known)
        routes = push_routes(callers=callers, producers=bot.producers, clock=clock)
        async with (
            serving(build_app([routes], callers)) as server,
            httpx.AsyncClient(base_url=server.url, timeout=PATIENCE, trust_env=False) as client,
        ):
            yield Door(bot, server, client)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def door(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Door]:
    async with open_door(tmp_path, clock) as found:
        yield found


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"reply_token": None}, "reply_token", "reply_token missing"),
        ({"event_id": ""}, "event_id", "event_id missing"),
        ({"producer": {}}, "producer.agent_id", "producer.agent_id missing"),
        ({"timeout_seconds": "soon"}, "timeout_seconds", "timeout_seconds missing"),
        ({"accepted_response_kinds": ["multiple_choice"]}, "choices", "without choices"),
        ({"type": "aaep:agent.awaiting.confirmation"}, "action", "action missing"),
        ({"type": "aaep:agent.awaiting.clarifcation"}, "type", "Did you mean agent.awaiting.clarification"),
        ({"type": "aaep:agent.awating.confirmation", "urgency": "normal"}, "type", "awaiting.confirmation"),
        ({"type": "awaiting.clarification"}, "type", "Did you mean agent.awaiting.clarification"),
        ({"type": "aaep:agent.asking"}, "type", "Did you mean agent.awaiting.clarification"),
        ({"type": "aaep:agent.session.erorred", "reply_token": None}, "type", "agent.session.errored"),
    ],
)
async def test_event_to_mend_is_refused_with_field_and_reason(
    door: Door, clock: ManualClock, changes: dict[str, Any], field: str, words: str
) -> None:
    fields = {key: value for key, value in (asked(clock) | changes).items() if value is not None}
    response = await door.post(fields)
    told = response.json()
    assert (response.status_code, told["error"], told["field"]) == (422, "BAD_INPUT", field)
    assert words in told["message"]
    assert "Deploy" not in response.text
    assert (await door.bot.ids(), door.bot.troubles) == ([], [])
    assert door.bot.status()["refused"] == 1
    assert (await door.post(asked(clock))).status_code == 202  # mended, under the same id


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "acme:deploy.awaiting_slot"},
        {"type": "aaep:agent.memory.updated"},
        {"type": "aaep:agent.tool.completed", "timestamp": "yesterday"},
    ],
)
async def test_event_that_asks_nothing_may_be_unknown_or_broken(
    door: Door, clock: ManualClock, changes: dict[str, Any]
) -> None:
    assert (await door.post(state(clock) | changes)).status_code == 202


async def test_event_that_cannot_be_stored_is_to_be_sent_again(door: Door, clock: ManualClock) -> None:
    door.bot.inbox.refuses = True
    response = await door.post(asked(clock))
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["error"] == "STORAGE_UNAVAILABLE"
    door.bot.inbox.refuses = False
    assert (await door.post(asked(clock))).status_code == 202


@pytest.mark.parametrize("declared", [True, False])
async def test_event_over_the_limit_is_refused_and_told(
    door: Door, clock: ManualClock, declared: bool
) -> None:
    big = json.dumps(asked(clock, context="x" * (1 << 20))).encode()

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 65536):
            yield big[start : start + 65536]

    headers = PLANNER | {"Content-Type": "application/json"}
    try:
        response = await door.client.post(MESSAGES, content=big if declared else parts(), headers=headers)
    except httpx.NetworkError:  # it is refused while it is still being sent
        pass
    else:
        assert response.status_code == 413
    await until(lambda: door.bot.troubles)
    assert door.bot.troubles[0].key.startswith("oversize:")
    assert await door.bot.ids() == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", MESSAGES), ("GET", EVENTS), ("POST", "/messages"), ("GET", "/events")]
)
async def test_routes_need_the_token(door: Door, method: str, path: str) -> None:
    headers = {"Authorization": "Bearer planner-tokem", "Content-Type": "application/json"}
    response = await door.client.request(method, path, headers=headers, content=b"{}")
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert "planner-tokem" not in response.text


async def test_stream_has_heartbeats_while_nothing_happens(door: Door, clock: ManualClock) -> None:
    async with door.reading() as replies:
        reading = asyncio.ensure_future(replies.token())
        await until(lambda: clock.sleeping)
        assert ": heartbeat" not in replies.comments
        await clock.advance(HEARTBEAT)
        await until(lambda: ": heartbeat" in replies.comments)
        await door.bot.producers.send("planner", answer(clock))
        assert await reading == TOKEN


async def test_stream_ends_when_the_server_stops(door: Door) -> None:
    async with door.reading() as replies:
        reading = asyncio.ensure_future(replies.end())
        await until(lambda: door.bot.push().since)
        door.server.begin_stop()
        await reading
    await until(lambda: not door.bot.push().since)


async def test_stream_that_its_reader_left_is_no_reader(door: Door, clock: ManualClock) -> None:
    async with door.reading():
        await until(lambda: door.bot.push().since)
    await until(lambda: not door.bot.push().since)
    assert isinstance(await door.bot.producers.send("planner", answer(clock)), TryAgain)


async def test_stream_ends_when_the_storage_fails_and_is_found_again(door: Door, clock: ManualClock) -> None:
    async with door.reading() as replies:
        reading = asyncio.ensure_future(replies.end())
        await until(lambda: clock.sleeping)
        await door.bot.store.run("alter table pushed_replies rename to away")
        for reader in list(door.bot.push()._readers):
            reader.more.set()
        await reading
    response = await door.client.get(EVENTS, headers=PLANNER | {"Last-Event-ID": "x"})
    await door.bot.store.run("alter table away rename to pushed_replies")
    assert response.status_code in {200, 503}
    async with door.reading() as replies:
        await door.bot.producers.send("planner", answer(clock))
        assert await replies.token() == TOKEN


async def test_handshake_has_its_own_answers(door: Door, clock: ManualClock) -> None:
    able: dict[str, Any] = {
        "supports_clarification_reply": True,
        "supports_confirmation_reply": False,
        "supported_conformance_levels": [1, 2],
    }
    request: dict[str, Any] = {"type": "subscription.request", "subscriber_id": "planner"}
    request |= {"capabilities": able | {"pace_wpm": 180}}
    old = await door.post(request | {"aaep_version": "0.9.0"})
    assert (old.status_code, old.json()["type"]) == (400, "subscription.rejected")
    told = await door.post(request | {"aaep_version": "1.0.0"})
    subscription = told.json()["subscription_id"]
    assert (told.status_code, told.json()["type"]) == (201, "subscription.accepted")
    assert told.json()["honored_capabilities"] == able
    assert told.headers["location"] == f"/aaep/v1/events?subscription_id={subscription}"
    await door.bot.producers.send("planner", answer(clock))
    async with door.reading(path=told.headers["location"]) as replies:
        assert (await replies.next())[1]["subscription_id"] == subscription
    close = {"type": "subscription.close", "subscription_id": subscription}
    closed = await door.post(close)
    assert (closed.status_code, closed.content) == (204, b"")
    again = await door.post(close)
    assert (again.status_code, again.json()["field"]) == (404, "subscription_id")


async def test_log_holds_neither_tokens_nor_contents(door: Door, clock: ManualClock, log: list[Any]) -> None:
    await door.post(asked(clock, question="Shall we buy Acme?"))
    await door.post({"question": "Shall we buy Acme?"})
    async with door.reading() as replies:
        await door.bot.producers.send("planner", answer(clock, response="Yes, at 12 dollars"))
        await replies.next()
    await until(lambda: not door.bot.push().since)
    told = repr(log)
    for secret in ("Acme", "dollars", "planner-token", TOKEN):
        assert secret not in told
    assert "connected to its replies" in told
