"""What does not fit into a message: it follows in its thread, inert, whole, and once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.oncall.pages import Destination
from bot.slackapi import Place, Post
from bot.views import inert
from tests.kit.until import until
from tests.unit.bot.judges import shown
from tests.unit.bot.oncall.stage import AGENTS, DM, ONCALL, World

EVIL = "Use <!channel> *bold* `code` & a < b, or <https://x|y>? "
LONG = EVIL * 150


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


def overflow(world: World, place: str) -> list[Post]:
    """The messages in a place that hold the rest of another."""
    return [
        post
        for (where, _), post in world.slack.there.items()
        if where == place and str(post.metadata["event_payload"].get("key", "")).startswith("more:")
    ]


def squeezed(text: str) -> str:
    return "".join(text.split())


async def carded(world: World, question: str) -> None:
    """A question with its card in its session's thread, escalated after that."""
    await world.store.run(
        "insert into sessions (producer, session_id, agent_id, issue) values ('planner', 'sess_1', 'a', 42)"
    )
    record = await world.asked(question=question)
    world.delivery.record_changed(next(iter(world.index)))
    await until(lambda: any(place == AGENTS for place, _ in world.slack.there))
    await world.router.escalate(record.id, "by hand")
    await world.quiet()


async def test_the_rest_of_a_question_reads_as_it_was_written(world: World) -> None:
    await carded(world, LONG)
    rest = overflow(world, AGENTS)
    blocks = [block for post in rest for block in post.blocks]
    assert {block["text"]["type"] for block in blocks} == {"plain_text"}
    assert squeezed(LONG) in squeezed(shown(blocks)).replace("│", "")
    assert all(line.startswith("│ ") for line in shown(blocks).split("\n")[1:-2])
    assert all(len(block["text"]["text"]) <= 3000 for block in blocks)
    assert "<" not in "".join(post.text for post in rest)
    assert squeezed(inert.fallback(LONG, 10**9)) in squeezed("".join(post.text for post in rest)).replace(
        "│", ""
    )


async def test_the_rest_is_deleted_with_its_page_and_posted_with_the_next(world: World) -> None:
    await world.escalated(question=LONG)
    await world.paged(1)
    once = len(overflow(world, DM))
    assert once > 1
    for count in (2, 3):
        await world.pass_by(301)
        await world.paged(count)
        assert len(overflow(world, DM)) == count * once
        gone = (count - 1) * (once + 1)
        await until(lambda: len(world.slack.deleted) == gone)  # noqa: B023 - awaited here
    (page,) = world.slack.standing(DM)
    assert "The full text is in this thread." in page.text


async def test_the_rest_is_not_said_again_in_the_thread_of_the_card(world: World) -> None:
    world.to["dm"] = (
        Destination("slack", AGENTS, ("planner", "sess_1")),
        Destination("slack", ONCALL),
    )
    await carded(world, LONG)
    await world.pass_by(301)
    in_thread, alone = overflow(world, AGENTS), overflow(world, DM)
    assert len(world.slack.pages(AGENTS)) == 2
    assert len(in_thread) > 1
    assert len(alone) > 1
    keys = [post.metadata["event_payload"]["key"] for post in in_thread]
    assert keys == [f"more:card:CLR-42-001:1:{n}" for n in range(len(keys))], "the card's own"


async def test_the_rest_follows_a_page_in_the_channel_where_there_is_no_thread(world: World) -> None:
    world.to["dm"] = (Destination("slack", AGENTS, ("planner", "sess_1")),)
    await world.escalated(question=LONG)
    await world.pass_by(1)
    await until(lambda: len(overflow(world, AGENTS)) > 1)
    await world.quiet()
    (at,) = [ts for (place, ts), post in world.slack.there.items() if post in world.slack.pages(AGENTS)]
    rest = overflow(world, AGENTS)
    assert {post.thread_ts for post in rest} == {at}


async def test_words_of_ours_stay_live(world: World) -> None:
    await world.delivery.say(Place(AGENTS, "1.1"), "k", f"<@{ONCALL}> took CLR-42-001 &amp; more.")
    await world.quiet()
    (post,) = world.slack.there.values()
    assert shown(post.blocks) == f"<@{ONCALL}> took CLR-42-001 &amp; more."
