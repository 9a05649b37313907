"""What a page's message should be now, from the log and the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.delivery.messages import Fresh
from bot.oncall import pageview
from bot.oncall.pages import Destination, sending_of
from bot.views.blockkit import Draft
from bot.views.codec import PagePress
from bot.views.notices import Handoff
from bot.views.page import PageContent, page_card
from tests.kit.until import until
from tests.unit.bot.judges import labels
from tests.unit.bot.oncall.stage import ADE, AGENTS, DM, ONCALL, World, said


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


@pytest.mark.parametrize(
    ("verb", "needed", "final"),
    [("", True, False), ("take", False, True), ("snooze", False, False), ("notmine", True, False)],
)
async def test_needed_and_final_table(world: World, verb: str, needed: bool, final: bool) -> None:
    await world.raised()
    await world.paged(1)
    if verb:
        await world.actions.press(PagePress(verb, 1), ADE)  # type: ignore[arg-type]
    row = await world.messages.get(f"page:1:{ONCALL}")
    assert row is not None
    drawn = await world.view.draw(row)
    assert drawn is not None
    assert (drawn.needed, drawn.final) == (needed, final)
    if needed or final:
        return
    sending = sending_of(row)
    assert sending is not None
    assert await world.view.words(sending.page) is None, "a pager outside would wake somebody all the same"


async def test_page_that_was_clicked_while_it_was_drawn_stays(world: World) -> None:
    """Its message was read before the click, and what it is about after it."""
    await world.raised()
    await world.paged(1)
    row = await world.messages.get(f"page:1:{ONCALL}")
    assert row is not None
    assert row.channel is not None
    world.messages.seen(row.channel)
    await world.actions.press(PagePress("take", 1), ADE)
    drawn = await world.view.draw(row)
    assert drawn is not None
    assert (drawn.final, drawn.gone) == (True, False)


async def test_card_of_a_handoff_that_was_read_before_it_was_paged_mentions_who_is_on_call(
    world: World,
) -> None:
    """An edit would notify no one."""
    world.places.to["dm"] = (Destination("slack", AGENTS, None, (ONCALL,)),)
    handoff = Handoff("planner", "s1", "r", "human")
    body = {"handoff": handoff.as_json(), "opens_thread": True, "broadcast": True, "needed": True}
    card = Fresh("notice:planner:h1", "handoff", AGENTS, producer="planner", session_id="s1", body=body)
    await world.messages.want([card])
    before = await world.messages.get(card.key)
    await world.raised(key="handoff:planner:h1")
    await world.quiet()
    assert before is not None
    drawn = await world.view.draw(before)
    assert drawn is not None
    assert f"<@{ONCALL}>" in repr(drawn.message)


async def test_page_links_to_the_card_once_it_is_posted(world: World) -> None:
    record = await world.escalated()
    await world.paged(1)
    world.delivery.record_changed(next(iter(world.index)))
    await world.quiet()
    world.escalations.record_changed(next(iter(world.index)))
    await until(lambda: any("Go to the question" in labels(page.blocks) for page in world.slack.pages(DM)))
    (page,) = await world.paged(1)
    assert "https://x.slack.com/archives/C0AGENTS/p" in said(page)
    assert world.slack.asked == 1, "an address is asked for once"
    assert record.id in page.text


async def test_page_that_cannot_be_laid_out_says_that_there_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(content: PageContent) -> Draft:
        if "planner stopped" in repr(content):
            raise KeyError("a fault of ours")
        return page_card(content)

    monkeypatch.setattr(pageview, "page_card", broken)
    await world.raised()
    (page,) = await world.paged(1)
    assert "An agent needs attention" in page.text
    assert "Take" in labels(page.blocks)
