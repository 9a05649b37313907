"""One Slack message brought in line: real ledger, storage and templates, and a Slack that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.errors import StorageUnavailable
from bot.show.lanes import Again, Done, NotYet
from bot.show.steps import LANDING
from bot.slackapi import Never, Outcome, Post
from bot.storage.ledger import DatabaseLedger
from tests.kit.builders import ask
from tests.kit.clocks import START
from tests.unit.bot.show.room import CHANNEL, Room

KEY, OTHER = "card:CLR-42-001:1", "card:CLR-42-002:1"


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[Room]:
    made = Room(ledger, tmp_path)
    yield made
    await made.close()


async def opened(world: Room) -> None:
    """A question whose card is wanted."""
    await world.router.open(42, ask(kinds=("yes_no",), asked_at=START, expires_at=START + timedelta(hours=1)))
    await world.session()
    await world.card()


async def asked_again(world: Room) -> None:
    """Another question of the same session."""
    await world.router.open(42, ask(reply_token="rpl_2", question="Other?", kinds=("yes_no",)))
    await world.card(2)


async def begun(world: Room, at: float) -> None:
    """A post of the card was begun, and nobody knows how it ended."""
    assert await world.messages.intend(await world.row(KEY), CHANNEL, None, at, opens_thread=True)


async def test_fault_of_ours_with_one_message_is_paged(world: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened(world)

    async def fault(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(world.desired, "of", fault)
    assert await world.deliver(KEY) == Done()
    assert (await world.row(KEY)).failed == "could not be built"
    assert [incident.key for incident in world.raised] == [f"unplaceable:{KEY}:{CHANNEL}:could_not_be_built"]


async def test_two_at_work_on_one_message_make_one_post_and_know_where_it_is(
    world: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane posts and updates side by side: a refused update is posted anew while a post of the same message runs."""
    await opened(world)
    await world.deliver(KEY)
    await asked_again(world)
    gone = Never("thread_not_found", "message")
    world.slack.script = [(gone, False), (gone, False)]
    post = world.slack.post

    async def slow(channel: str, draft: Post) -> Outcome:
        outcome = await post(channel, draft)
        for _ in range(100 * len(world.slack.calls)):  # the later one hears later
            await asyncio.sleep(0)
        return outcome

    monkeypatch.setattr(world.slack, "post", slow)
    await asyncio.gather(*(world.until_done(OTHER) for _ in range(2)))
    there = [place for place, post in world.slack.there.items() if "Other?" in post.text]
    row = await world.row(OTHER)
    assert there == [(row.channel, row.ts)]


async def test_storage_that_cannot_be_read_has_to_wait(world: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    await opened(world)

    async def fail(*_: object, **__: object) -> None:
        raise StorageUnavailable

    monkeypatch.setattr(world.store, "find", fail)
    assert isinstance(await world.deliver(KEY), Again)


async def test_what_is_held_is_looked_up_if_it_was_begun_and_posted_when_it_may_be(world: Room) -> None:
    await opened(world)
    world.messenger.pause_posting(pages=True)
    assert await world.deliver(KEY) == NotYet()
    await begun(world, START.timestamp())
    await world.clock.advance(LANDING)
    assert await world.deliver(KEY) == NotYet()
    assert world.slack.calls == [f"find {CHANNEL}"]
    assert not world.messages.in_flight.any_in(CHANNEL)
    world.messenger.resume_posting()
    await world.until_done(KEY)
    assert world.slack.calls == [f"find {CHANNEL}", f"post {CHANNEL}"]
