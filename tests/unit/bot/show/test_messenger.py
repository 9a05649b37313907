"""One Slack message brought in line: real ledger, storage and templates, and a Slack that follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bot.errors import StorageUnavailable
from bot.show.desired import Desired
from bot.show.lanes import Again, Done, NotYet
from bot.show.messages import MessageRow
from bot.show.messenger import LANDING, NO_TROUBLE, NOT_NEEDED, PostTrouble, Step, Tried, next_step
from bot.slackapi import Later, Never, Outcome, Post, Sent, Unknown
from bot.storage.ledger import DatabaseLedger
from bot.views.render import RenderedMessage
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


NEW = MessageRow("card:CLR-1-001:1", "card", "C1", "CLR-1-001", 1, "planner", "ses")
BEGUN = replace(NEW, channel="C1", intent_at=100.0)
THERE = replace(NEW, channel="C1", ts="1.1", shown="old")
OPEN = Desired(
    RenderedMessage("Deploy?", []), "new", final=False, channel="C1", metadata={}, matches={}, needed=True
)
OVER = replace(OPEN, needed=False, final=True)
UNWANTED = replace(OPEN, unwanted=True)
GONE = replace(OVER, gone=True, unwanted=True)
IN_THREAD = replace(OPEN, thread_ts="1.0")
SENT = Sent("C1", "1.1")
BUSY, SILENT = Later("ratelimited", 7.0), Unknown("timeout")
NO_PLACE, NO_SCOPE = Never("is_archived", "place"), Never("missing_scope", "app")
NO_DELETE = Never("cant_delete_message", "content")
NO_BLOCKS, NO_MESSAGE = Never("invalid_blocks", "content"), Never("message_not_found", "message")


@pytest.mark.parametrize(
    ("row", "desired", "tried", "step"),
    [
        (NEW, OPEN, None, Step("post")),
        (NEW, replace(OPEN, waits=True), None, Step(None, Again(1.0))),
        (NEW, UNWANTED, None, Step("set aside")),
        (replace(NEW, kind="page"), UNWANTED, None, Step("give up", reason=NOT_NEEDED)),
        (NEW, OPEN, Tried("open", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (NEW, OPEN, Tried("open", BUSY), Step(None, Again(7.0, pause=True))),
        (NEW, OPEN, Tried("open", SILENT), Step(None, Again(None, pause=True))),
        (NEW, OPEN, Tried("post", SENT), Step("landed", Done(posted=True))),
        (NEW, OPEN, Tried("post", None), Step(None, Again(1.0))),
        (NEW, OPEN, Tried("post", BUSY), Step(None, Again(7.0, pause=True, posted=True))),
        (NEW, OPEN, Tried("post", Later("down")), Step(None, Again(None, pause=True, posted=True))),
        (NEW, OPEN, Tried("post", SILENT), Step(None, Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", NO_SCOPE), Step(None, Again(30.0))),
        (NEW, OPEN, Tried("post", NO_BLOCKS), Step("plain", Again(0.0))),
        (NEW, OPEN, Tried("post", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (NEW, OPEN, Tried("post", NO_MESSAGE), Step("unplaceable", reason="message_not_found")),
        (NEW, IN_THREAD, Tried("post", NO_MESSAGE), Step("move", Again(0.0))),
        (BEGUN, OPEN, None, Step("look up")),
        (BEGUN, UNWANTED, None, Step("look up")),
        (BEGUN, OPEN, Tried("look up", SENT, 100.5), Step("found")),
        (BEGUN, OPEN, Tried("look up", None, 100.0), Step(None, Again(0.5))),
        (BEGUN, OPEN, Tried("look up", None, 100.5), Step(None, Again(0.5))),
        (BEGUN, OPEN, Tried("look up", None, 101.0), Step(None, Again(1.0))),
        (BEGUN, OPEN, Tried("look up", None, 102.0), Step(None, Again(3.0))),
        (BEGUN, OPEN, Tried("look up", None, 105.0), Step("post")),
        (BEGUN, OPEN, Tried("look up", None, 99.0), Step("post")),  # the clock went back
        (BEGUN, UNWANTED, Tried("look up", None, 105.0), Step("give up", reason=NOT_NEEDED)),
        (BEGUN, OPEN, Tried("look up", BUSY, 105.0), Step(None, Again(7.0, pause=True))),
        (BEGUN, OPEN, Tried("look up", SILENT, 105.0), Step(None, Again(1.0))),
        (BEGUN, OPEN, Tried("look up", NO_SCOPE, 105.0), Step(None, Again(30.0))),
        (BEGUN, OPEN, Tried("look up", NO_PLACE, 105.0), Step("post")),
        (THERE, OPEN, None, Step("update")),
        (replace(THERE, shown="new"), OPEN, None, Step()),
        (replace(THERE, shown="new"), OVER, None, Step("shown")),
        (replace(THERE, shown="new", final=True), OVER, None, Step()),
        (THERE, OPEN, Tried("update", SENT), Step("shown")),
        (THERE, OPEN, Tried("update", BUSY), Step(None, Again(7.0, pause=True))),
        (THERE, OPEN, Tried("update", SILENT), Step("may change", Again(None, pause=True))),
        (THERE, OPEN, Tried("update", NO_SCOPE), Step(None, Again(30.0))),
        (THERE, OPEN, Tried("update", NO_MESSAGE), Step("move", Again(0.0))),
        (THERE, OPEN, Tried("update", NO_PLACE), Step("unplaceable", reason="is_archived")),
        (THERE, OVER, Tried("update", NO_MESSAGE), Step("give up", reason="message_not_found")),
        (THERE, OVER, Tried("update", NO_PLACE), Step("give up", reason="is_archived")),
        (THERE, GONE, None, Step("delete")),
        (NEW, GONE, None, Step("set aside")),
        (replace(THERE, shown="new"), GONE, None, Step("shown")),  # people replied: it was updated
        (THERE, GONE, Tried("delete", SENT), Step("deleted")),
        (THERE, GONE, Tried("delete", None), Step("update")),
        (THERE, GONE, Tried("delete", NO_DELETE), Step("update")),
        (THERE, GONE, Tried("delete", BUSY), Step(None, Again(7.0, pause=True))),
        (THERE, GONE, Tried("delete", SILENT), Step(None, Again(None, pause=True))),
    ],
)
def test_next_step(row: MessageRow, desired: Desired, tried: Tried | None, step: Step) -> None:
    assert next_step(row, desired, tried, paused=False) == step


@pytest.mark.parametrize(
    ("row", "desired", "tried", "step"),
    [
        (NEW, OPEN, None, Step("postpone", NotYet())),
        (BEGUN, OPEN, None, Step("look up")),
        (BEGUN, OPEN, Tried("look up", None, 105.0), Step("postpone", NotYet())),
        (THERE, OPEN, None, Step("update")),
    ],
)
def test_next_step_while_posting_is_paused(
    row: MessageRow, desired: Desired, tried: Tried | None, step: Step
) -> None:
    assert next_step(row, desired, tried, paused=True) == step


@pytest.mark.parametrize("row", [NEW, THERE])
def test_what_is_refused_also_as_plain_text_cannot_be_placed(row: MessageRow) -> None:
    tried = Tried("update" if row.ts else "post", NO_BLOCKS)
    step = next_step(row, OPEN, tried, paused=False, trouble=PostTrouble("plain", "invalid_blocks", 1))
    assert step == Step("unplaceable", reason="invalid_blocks")


NEW_CODE = Never("brand_new_code", "unknown")
FAILS = Unknown("internal_error")


@pytest.mark.parametrize(
    ("row", "desired", "tried", "trouble", "step"),
    [
        (NEW, OPEN, Tried("post", NEW_CODE, 100.0), PostTrouble("full", "", 1, 100.0), Step(None, Again(15.0, posted=True))),
        (THERE, OVER, Tried("update", NEW_CODE, 399.0), PostTrouble("full", "", 9, 100.0), Step(None, Again(15.0))),
        (THERE, OVER, Tried("update", NEW_CODE, 400.0), PostTrouble("full", "", 9, 100.0), Step("plain", Again(0.0))),
        (NEW, OPEN, Tried("post", NEW_CODE, 400.0), PostTrouble("plain", "", 1, 100.0), Step("unplaceable", reason="brand_new_code")),
        (NEW, OPEN, Tried("post", Later("update_failed", alone=True)), PostTrouble(), Step(None, Again(15.0, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("full", "internal_error", 2), Step(None, Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("full", "internal_error", 3), Step("classic", Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("classic", "internal_error", 3), Step("plain", Again(0.5, posted=True))),
        (NEW, OPEN, Tried("post", FAILS), PostTrouble("plain", "internal_error", 3), Step("unplaceable", Again(30.0, posted=True), "internal_error")),
        (NEW, OPEN, Tried("post", SILENT), PostTrouble("full", "timeout", 9), Step(None, Again(0.5, posted=True))),
        (THERE, OVER, Tried("update", FAILS), PostTrouble("full", "internal_error", 3), Step("classic", Again(0.5))),
        (THERE, OVER, Tried("update", FAILS), PostTrouble("plain", "internal_error", 3), Step("may change", Again(30.0), "internal_error")),
        (THERE, OVER, Tried("update", Never("edit_window_closed", "message")), PostTrouble(), Step("say below", reason="edit_window_closed")),
        (THERE, OPEN, Tried("update", Never("edit_window_closed", "message")), PostTrouble(), Step("move", Again(0.0))),
    ],
)  # fmt: skip
def test_step_after_several_refusals(
    row: MessageRow, desired: Desired, tried: Tried, trouble: PostTrouble, step: Step
) -> None:
    assert next_step(row, desired, tried, paused=False, trouble=trouble) == step


def test_trouble_counts_the_same_refusal_of_the_same_layout() -> None:
    once = NO_TROUBLE.after("internal_error", 10.0)
    twice = once.after("internal_error", 20.0)
    assert (twice.count, twice.since) == (2, 10.0)
    assert twice.after("other", 30.0) == PostTrouble("full", "other", 1, 30.0)
    assert twice.plainer("classic").after("internal_error", 40.0) == PostTrouble(
        "classic", "internal_error", 1, 10.0
    )
