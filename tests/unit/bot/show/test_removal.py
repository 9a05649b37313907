"""What Slack does late, after nobody waits for it any more: removed, or drawn over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.show.lanes import Done
from bot.show.messages import WATCHED, Fresh, Messages
from bot.show.removal import DuplicateCleanup
from bot.slackapi import Later, Never, Post, Unknown
from bot.storage.ledger import DatabaseLedger
from core.clarification import Answer
from tests.kit.builders import ADE, ask
from tests.kit.clocks import START
from tests.unit.bot.show.room import CHANNEL, Room

KEY = "card:CLR-42-001:1"
SOON = 10.0  # seconds until it was looked at least once
LATE = "9999999999.000001"
_CALLS = 12  # of the storage, that may follow from each other


@pytest.fixture
async def world(ledger: DatabaseLedger, tmp_path: Path) -> AsyncIterator[Room]:
    made = Room(ledger, tmp_path)
    await made.router.open(42, ask(kinds=("yes_no",), asked_at=START, expires_at=START + timedelta(hours=1)))
    await made.session()
    await made.card()
    yield made
    await made.close()


@asynccontextmanager
async def watching(world: Room, messages: Messages | None = None) -> AsyncIterator[DuplicateCleanup]:
    """The bot leads, until the end; with `messages` another one does."""
    gateway: object = world.slack
    duplicates = DuplicateCleanup(
        messages=messages or world.messages,
        gateway=gateway,  # type: ignore[arg-type]
        lanes=world.messenger.lanes,
        clock=world.clock,
    )
    running = asyncio.create_task(duplicates.run())
    await passes(world, 0)
    try:
        yield duplicates
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def passes(world: Room, seconds: float) -> None:
    """Time passes; whenever it stands still, all is done that can be."""
    step = max(1.0, seconds / 40)
    while True:
        for _ in range(_CALLS):
            await world.store.read("select 1 from late_calls")
            await world.store.write(lambda _: None)
        if seconds <= 0:
            return
        await world.clock.advance(min(step, seconds))
        seconds -= step


async def posted_again(world: Room) -> Post:
    """A killed leader's post was not found and is posted again; what the first one says."""
    at = world.clock.now().timestamp() - 10
    row = await world.row(KEY)
    assert await world.messages.intend(row, CHANNEL, None, at, opens_thread=True)
    assert await world.deliver(KEY) == Done(posted=True)
    (post,) = world.slack.there.values()
    return post


async def places(world: Room) -> list[str]:
    return [ts for _, ts in world.slack.there]


async def test_nothing_is_read_where_nothing_may_come_late_and_not_for_longer_than_a_minute(
    world: Room,
) -> None:
    async with watching(world):
        await world.deliver(KEY)
        await passes(world, 60)
        assert world.slack.calls == [f"post {CHANNEL}"]
        world.slack.there.clear()
        await world.messages.move(KEY, CHANNEL)
        await posted_again(world)
        await passes(world, 60)
        read = world.slack.calls.count(f"ours {CHANNEL}")
        assert 5 < read < 12
        await passes(world, 600)
        assert world.slack.calls.count(f"ours {CHANNEL}") == read


async def test_leader_that_stood_still_for_long_leaves_nothing_when_it_goes_on(world: Room) -> None:
    post = await posted_again(world)
    async with watching(world) as duplicates:
        await passes(world, 1200)
        world.slack.there[CHANNEL, LATE] = post
        await duplicates.watch_again()
        await passes(world, SOON)
        assert await places(world) == [(await world.row(KEY)).ts]


async def test_what_is_dropped_or_put_off_after_it_was_begun_does_not_stay_when_it_comes(world: Room) -> None:
    nudge = Fresh("page:1", "page", CHANNEL)
    await world.messages.want([nudge])
    for key in (KEY, nudge.key):
        row = await world.row(key)
        assert await world.messages.intend(row, CHANNEL, None, START.timestamp() - 10, opens_thread=False)
    async with watching(world):
        world.messenger.pause_posting(pages=True)
        await world.deliver(KEY)
        await world.messages.give_up(await world.row(nudge.key), "not needed any more", START.timestamp())
        late = Post("x", [], {"event_type": "clarify_page", "event_payload": {"key": nudge.key}})
        card = Post("x", [], {"event_type": "clarify_card", "event_payload": {"clarification": "CLR-42-001"}})
        world.slack.there[CHANNEL, LATE] = late
        world.slack.there[CHANNEL, f"{LATE}2"] = card
        await passes(world, SOON)
        assert await places(world) == [f"{LATE}2"], "it is the only one there is"
        await passes(world, 600)
        world.messenger.resume_posting()
        await world.until_done(KEY)
        await passes(world, SOON)
        assert await places(world) == [(await world.row(KEY)).ts]


async def test_what_is_being_posted_just_now_is_not_taken_for_a_twin(world: Room) -> None:
    post = await posted_again(world)
    other = Fresh("card:CLR-42-001:2", "card", CHANNEL, "CLR-42-001", 2, "planner", "sess_1")
    await world.messages.want([other])
    row = await world.row(other.key)
    assert await world.messages.intend(row, CHANNEL, None, START.timestamp(), opens_thread=False)
    world.slack.there[CHANNEL, LATE] = post
    async with watching(world):
        await passes(world, WATCHED + SOON)
        assert LATE in await places(world)
        await world.messages.landed(row, CHANNEL, LATE, "round 2", final=False, opens_thread=False)
        await passes(world, SOON)
        assert LATE in await places(world), "it is the second round's"


async def test_other_messages_stay(world: Room) -> None:
    await posted_again(world)
    metadata: list[dict[str, Any]] = [
        {"event_type": "clarify_card", "event_payload": {"clarification": "CLR-42-002"}},
        {"event_type": "clarify_card", "event_payload": {"clarification": 7}},
        {"event_type": "clarify_notice", "event_payload": {"key": "word:1"}},
        {"event_type": "clarify_notice", "event_payload": {}},
        {"event_payload": {"clarification": "CLR-42-001"}},
    ]
    for number, each in enumerate(metadata):
        world.slack.there[CHANNEL, f"{LATE}{number}"] = Post("x", [], each)
    async with watching(world):
        await passes(world, 60)
        assert len(await places(world)) == 1 + len(metadata)
        assert not any(call.startswith("remove") for call in world.slack.calls)


async def test_reading_that_fails_is_repeated_when_slack_says(world: Room) -> None:
    post = await posted_again(world)
    world.slack.there[CHANNEL, LATE] = post
    async with watching(world):
        for outcome in (Later("ratelimited", 90.0), Unknown("timeout")):
            world.slack.lookup = outcome
            await passes(world, 60)
        world.slack.lookup = None
        await passes(world, 50)
        assert await places(world) == [(await world.row(KEY)).ts]
        assert world.slack.calls.count(f"ours {CHANNEL}") < 12


async def test_place_that_is_gone_is_given_up(world: Room) -> None:
    await posted_again(world)
    world.slack.lookup = Never("channel_not_found", "place")
    async with watching(world):
        await passes(world, 60)
        world.slack.calls.clear()
        await passes(world, 60)
        assert not world.slack.calls


async def test_removal_that_is_refused_is_not_repeated_and_one_that_fails_is(world: Room) -> None:
    post = await posted_again(world)
    world.slack.there[CHANNEL, LATE] = post
    world.slack.script = [(Unknown("timeout"), False), (Never("cant_delete_message", "content"), False)]
    async with watching(world):
        await passes(world, 60)
        assert world.slack.calls.count(f"remove {CHANNEL}") == 2


async def answered(world: Room) -> None:
    await world.router.answer("CLR-42-001", lambda _: Answer(response=True, label="Yes"), ADE, START)


async def controls_come_back(world: Room, live: Post) -> None:
    """A change that was begun before it was answered takes effect; it does not stay."""
    (place,) = world.slack.there
    assert not world.slack.live()
    world.slack.there[place] = live
    await passes(world, WATCHED + SOON)
    assert not world.slack.live()


async def test_change_that_timed_out_puts_no_controls_back_for_good(world: Room) -> None:
    await world.deliver(KEY)
    (live,) = world.slack.live()
    await world.messages.forget_shown("CLR-42-001")
    world.slack.script = [(Unknown("timeout"), False)]
    async with watching(world):
        await world.deliver(KEY)
        await answered(world)
        await world.deliver(KEY)
        await controls_come_back(world, live)


async def test_what_was_shown_when_another_took_over_is_not_drawn_twice(world: Room) -> None:
    await world.deliver(KEY)
    await world.delivery.load()
    world.messages.inherited.add(KEY)  # as of what has no record to compare with
    await world.deliver(KEY)
    await answered(world)
    async with watching(world):
        await world.deliver(KEY)
        await passes(world, 120)
        assert world.slack.calls.count(f"update {CHANNEL}") == 1
