"""Who may do what with a page, and what they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.errors import SlackUnreachableError
from bot.people.access import Person
from bot.views.codec import HAND_BLOCK, PagePress, PageVerb
from bot.views.reaction import FieldErrors, OpenModal, Tell, Unrecorded
from core.clarification import Clarification, Holder
from tests.unit.bot.judges import shown
from tests.unit.bot.oncall.stage import ADE, ANSWERER, DM_SECOND, GUEST, SECOND, STRANGE, STRANGER, World

TAKE = PagePress("take", 1)


async def told(world: World, press: PagePress, person: Person) -> str:
    """What the person is told who clicked."""
    reaction = await world.actions.press(press, person)
    assert isinstance(reaction, Tell)
    return reaction.text


async def opened(world: World, press: PagePress, person: Person) -> dict[str, Any]:
    """The modal that a click opens."""
    reaction = await world.actions.press(press, person)
    assert isinstance(reaction, OpenModal)
    return reaction.view


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = await World(tmp_path).start()
    yield made
    await made.stop()


@pytest.mark.parametrize(
    ("user", "may"),
    [("U0ONCALL", True), (ANSWERER, True), ("U0TURN", True), (STRANGER, False), (GUEST, False)],
)
async def test_who_may_take(world: World, user: str, may: bool) -> None:
    await world.raised()
    await world.paged(1)
    await world.roster.hand("platform", "U0TURN", world.clock.now() + timedelta(hours=1), "U0TURN")
    text = await told(world, TAKE, Person("T1", user))
    assert ("You claimed" in text) is may
    assert ("You cannot" in text) is not may
    assert (await world.log())[-1] == ("closed" if may else "sent")


async def test_what_somebody_took_is_not_put_to_sleep_by_others(world: World) -> None:
    await world.escalated()
    await world.paged(1)
    await world.actions.press(TAKE, ADE)
    text = await told(world, PagePress("snooze", 1), Person("T1", ANSWERER))
    assert "claimed this" in text
    await world.pass_by(14 * 60)
    await world.paged(1)


async def test_page_without_its_question_can_be_let_go(world: World) -> None:
    """Its record is gone: there is nothing to take, and the pages have to end all the same."""
    await world.escalated()
    await world.paged(1)
    await world.store.run("delete from clarifications where issue = 42")
    await world.actions.press(TAKE, ADE)
    await world.pass_by(3600)
    await world.paged(1)
    assert (await world.log())[-2:] == ["taken", "closed"]


async def test_handed_over_once_though_the_ledger_told_it_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await world.escalated()
    await world.paged(1)
    hand = world.router.hand

    async def slowly(clarification: str, holder: Holder) -> Clarification:
        done = await hand(clarification, holder)
        await world.paged(1, DM_SECOND)
        return done

    monkeypatch.setattr(world.router, "hand", slowly)
    await world.actions.submit_hand(PagePress("hand", 1), SECOND, ADE)
    await world.paged(1, DM_SECOND)
    assert (await world.log()).count("handed") == 1
    assert record.id == "CLR-42-001"


async def test_nothing_is_taken_while_slack_does_not_say_who_it_is(world: World) -> None:
    await world.raised()
    await world.paged(1)
    world.gate.error = SlackUnreachableError()
    assert isinstance(await world.actions.press(TAKE, STRANGE), Unrecorded)
    assert (await world.log())[-1] == "sent"


@pytest.mark.parametrize(("user", "why"), [("", "Choose a person"), (GUEST, "full member"), (SECOND, None)])
async def test_hand_takes_full_members_only(world: World, user: str, why: str | None) -> None:
    await world.raised()
    await world.paged(1)
    reaction = await world.actions.submit_hand(PagePress("hand", 1), user, ADE)
    if why is None:
        assert isinstance(reaction, Tell)
        assert f"<@{SECOND}> is being paged" in reaction.text
    else:
        assert isinstance(reaction, FieldErrors)
        assert why in reaction.errors[HAND_BLOCK]
        assert (await world.log())[-1] == "sent"


async def test_show_opens_what_it_takes_to_answer(world: World) -> None:
    await world.escalated()
    await world.paged(1)
    view = await opened(world, PagePress("show", 1, 1), STRANGE)
    assert "Deploy to production?" in shown(view)
    await world.raised()
    await world.pass_by(6)
    view = await opened(world, PagePress("show", 2, 2), STRANGE)
    assert "planner stopped 1" in shown(view)


@pytest.mark.parametrize("verb", ["show", "take"])
async def test_unknown_page_is_told_to_be_closed(world: World, verb: PageVerb) -> None:
    text = await told(world, PagePress(verb, 99, 7 if verb == "show" else 0), ADE)
    assert "closed" in text


async def test_answered_meanwhile_says_by_whom(world: World) -> None:
    from core.clarification import Answer
    from tests.kit.builders import ADE as DECIDER

    record = await world.escalated()
    await world.paged(1)
    world.deaf = True
    await world.router.answer(
        record.id, lambda _: Answer(response=True, label="Yes"), DECIDER, world.clock.now()
    )
    text = await told(world, TAKE, ADE)
    assert "already answered" in text


@pytest.mark.parametrize(("count", "named", "counted"), [(3, 2, False), (4, 3, True)])
async def test_many_are_named_or_counted(world: World, count: int, named: int, counted: bool) -> None:
    for _ in range(count):
        await world.raised()
    await world.paged(1)
    await world.pass_by(6)
    view = await opened(world, PagePress("hand", 2), ADE)
    assert ("4 items" in shown(view)) is counted
    assert shown(view).count("planner stopped") == named


async def test_snooze_never_goes_beyond_half_of_the_time_left(world: World) -> None:
    await world.escalated(expires_at=world.clock.now() + timedelta(minutes=4))
    await world.paged(1)
    await world.actions.press(PagePress("snooze", 1), ADE)
    await world.pass_by(119)
    await world.paged(1)
    await world.pass_by(2)
    await world.paged(2)
