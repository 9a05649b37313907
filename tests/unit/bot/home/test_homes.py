from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.audience import Audience
from bot.delivery.homes import HomeGateway, Homes
from bot.delivery.store import Store
from bot.home.facts import Admitted, Viewer
from bot.home.layout import home
from bot.home.model import Snapshot, chosen
from bot.render import Renderer
from bot.slackapi import Later, Never, Sent, Unknown
from bot.workspace import Options, Workspace
from bot.workspace.seed import ADE, BOT_TOKEN, GONE
from tests.unit.bot.home.parties import World, summary

VIEWER = Viewer("U0ADE", "T1", "D0ADE", 100.5, {"inbox": 2}, "abc")


@pytest.fixture
async def homes(tmp_path: Path) -> AsyncIterator[Homes]:
    store = await Store.open(tmp_path / "clarify.db")
    yield Homes(store)
    await store.close()


async def test_homes_remember_who_looked_when_at_what(homes: Homes) -> None:
    other = Viewer("U0BEA", "", "", 7.0)
    await homes.seen(VIEWER)
    await homes.seen(other)
    assert await homes.all() == [VIEWER, other]

    later = Viewer("U0ADE", "T2", "D1", 200.0, {}, None)
    await homes.seen(later)
    await homes.shows("U0BEA", "def")
    await homes.turned("U0BEA", {"agents": 3})
    assert await homes.all() == [later, Viewer("U0BEA", "", "", 7.0, {"agents": 3}, "def")]

    await homes.shows("U0BEA", None)
    await homes.forget(["U0ADE", "U0NOBODY"])
    assert await homes.all() == [Viewer("U0BEA", "", "", 7.0, {"agents": 3}, None)]


async def test_publisher_finds_its_viewers_again_after_a_restart(homes: Homes) -> None:
    world = World(homes)
    world.open.append(summary())
    first = asyncio.create_task(world.home.run())
    await world.home.opened("U0ADE", "T1", "D1")
    async with asyncio.timeout(60):
        while not any(viewer.digest for viewer in await homes.all()):
            await world.clock.advance(0.1)
    first.cancel()
    again = world.publisher()
    await again.restore()
    second = asyncio.create_task(again.run())
    await world.clock.advance(5)
    assert len(world.slack.published) == 1
    world.open.append(summary(2))
    again.touch()
    async with asyncio.timeout(60):
        while len(world.slack.published) < 2:
            await world.clock.advance(0.1)
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)

    assert "My inbox (2)" in world.slack.last("U0ADE")
    assert again.place_of("U0ADE").channel == "D1"


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    async with Workspace(options=Options()) as workspace:
        yield workspace


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (None, Sent(ADE, "")),
        ("429:7", Later("ratelimited", 7.0)),
        ("429", Later("ratelimited", None)),
        ("refuse:user_not_found", Never("user_not_found", "place")),
        ("refuse:invalid_auth", Never("invalid_auth", "app")),
        ("accept_then_drop", Unknown("ServerDisconnectedError")),
        ("5xx:503", Unknown("HTTP 503")),
    ],
)
async def test_publish_is_called_once_and_its_outcome_told(
    ws: Workspace, fault: str | None, expected: object
) -> None:
    if fault:
        ws.faults.add("views.publish", fault)
    gateway = HomeGateway(AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[]))
    shown = chosen(Snapshot(1, [summary()]), ADE, Admitted(frozenset({Audience("planner")})), {})
    view = Renderer().home(home(shown, {}))

    outcome = await gateway.publish(ADE, view)

    if isinstance(expected, Later | Unknown):
        assert type(outcome) is type(expected)
        assert getattr(outcome, "after", None) == getattr(expected, "after", None)
    else:
        assert outcome == expected
    assert len([call for call in ws.calls if call.method == "views.publish"]) == 1


async def test_publish_for_somebody_deactivated_is_refused(ws: Workspace) -> None:
    gateway = HomeGateway(AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[]))
    view = {"type": "home", "blocks": [{"type": "divider"}]}

    assert isinstance(await gateway.publish(GONE, view), Never)
