"""Clicks on cards, in modals and on pages, and modals that were submitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.people.access import Person, lookup_deadline
from bot.slack.listeners import USE_AS_ANSWER
from bot.slack.payloads import ControlOrigin, Submission
from bot.slackapi import Place
from bot.views.classic import _CLASSIC
from bot.views.codec import Press
from bot.views.lists import rollup
from bot.views.reaction import FieldErrors, OpenModal, Reaction, Unrecorded
from core.clarification import Clarification
from core.errors import RecordUnreadable, TooLong
from core.summary import Seen
from tests.unit.bot.slack.conftest import Start
from tests.unit.bot.slack.kit import ISSUE, Bot, ask, locked
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, TEAM


async def open_answer(bot: Bot, user: str, ts: str) -> None:
    await bot.ws.click(user, AGENTS, ts, label="Answer…")
    await bot.ws.wait_for(lambda: bot.ws.views(user))


async def test_modal_while_the_ledger_is_locked_keeps_what_was_typed(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    await open_answer(bot, ADE, ts)
    with locked(bot):
        outcome = await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})

    assert "try again" in outcome.errors["answer.freetext"]
    assert (await bot.find(record)).is_open
    assert (await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})).ok
    assert (await bot.find(record)).given.response == "blue"


async def test_p10_answers_elsewhere_than_on_the_card_wait_for_replies_that_are_unread(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of a card became known, and its thread is yet to be read."""
    record, ts = await bot.asked(kinds=("freetext",))
    note = await bot.ws.post(ADE, AGENTS, "note: blue", thread_ts=ts)
    await open_answer(bot, ADE, ts)
    bot.unread.doubt({"card:1": frozenset({record.id})})
    monkeypatch.setattr("bot.people.access.LOOK_UPS", 0.05)

    outcome = await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})
    assert "still checking" in outcome.errors["answer.freetext"]
    assert (await bot.ws.shortcut(ADE, USE_AS_ANSWER, note.ts, AGENTS)).ok
    await bot.ws.wait_for(lambda: [words for words in bot.told(ADE) if "still checking" in words])
    which = Press("which", record.id, record.round, "kept")
    reaction = await bot.answering.press(which, Person(TEAM, ADE, lookup_deadline()), Place(AGENTS, ts))
    assert isinstance(reaction, Unrecorded)
    assert "still checking" in reaction.text

    assert (await bot.find(record)).is_open
    bot.unread.read(["card:1"])
    assert (await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})).ok
    assert (await bot.find(record)).given.response == "blue"


@pytest.mark.parametrize("has_all", [True, False])
async def test_modal_of_a_round_that_is_over_is_told(
    bot: Bot, monkeypatch: pytest.MonkeyPatch, *, has_all: bool
) -> None:
    """Also where the workspace lacks newer blocks: what comes with an acknowledgement cannot be sent again."""
    if not has_all:
        stand_in = {"type": "context", "elements": [{"type": "plain_text", "text": "out of date"}]}
        monkeypatch.setitem(_CLASSIC, "section", lambda _: [stand_in])
    record, ts = await bot.asked(kinds=("freetext",))
    await open_answer(bot, ADE, ts)
    await open_answer(bot, FOLAKE, ts)
    await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})
    await bot.router.settle_reply(record.id, (await bot.find(record)).asked.reply_token or "", "delivered")
    again = await bot.router.open(ISSUE, ask(kinds=("freetext",)))
    assert again.how == "follow_up"
    if not has_all:
        bot.ws.context.options = replace(bot.ws.context.options, without_blocks=frozenset({"section"}))

    await bot.ws.submit_view(FOLAKE, {"answer.freetext": "red"})

    (view,) = bot.ws.views(FOLAKE)
    assert "out of date" in str(view.payload["blocks"])
    assert (await bot.find(record)).is_open


async def test_modal_is_refused_if_the_person_may_no_longer_answer(bot: Bot) -> None:
    record, ts = await bot.asked(kinds=("freetext",))
    await open_answer(bot, ADE, ts)
    bot.ws.leave(ADE, AGENTS)
    await bot.ws.wait_for(lambda: any(ack.payload_type == "member_left_channel" for ack in bot.ws.acks))

    await bot.ws.submit_view(ADE, {"answer.freetext": "blue"})

    (view,) = bot.ws.views(ADE)
    assert "not in the channel" in str(view.payload["blocks"])
    assert (await bot.find(record)).is_open


async def test_refusal_in_a_modal_is_shown_on_top_of_it(bot: Bot) -> None:
    records = [await bot.open(question=f"Question {n}?", kinds=("freetext",)) for n in range(3)]
    card = bot.renderer.message(rollup(records, len(records), None, "planner"))
    await bot.ws.click(GIO, AGENTS, await bot.rollup(card), label="Show all")
    await bot.ws.wait_for(lambda: bot.ws.views(GIO))

    await bot.ws.click_in_view(GIO, label=f"Answer {records[1].id}")

    await bot.ws.wait_for(lambda: len(bot.ws.views(GIO)) == 2)
    assert "guest" in str(bot.ws.views(GIO)[1].payload["blocks"])


async def test_modal_of_open_questions_leaves_out_what_cannot_be_read(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [await bot.open(question=f"Question {n}?", kinds=("freetext",)) for n in range(3)]
    card = bot.renderer.message(rollup(records, len(records), None, "planner"))
    whole = bot.ledger.whole

    async def broken(seen: Seen) -> Clarification:
        if seen.id == records[1].id:
            raise RecordUnreadable(seen.id, ISSUE)
        return await whole(seen)

    monkeypatch.setattr(bot.ledger, "whole", broken)
    await bot.ws.click(GIO, AGENTS, await bot.rollup(card), label="Show all")
    await bot.ws.wait_for(lambda: bot.ws.views(GIO))
    (view,) = bot.ws.views(GIO)
    assert [f"Question {n}?" in str(view.payload["blocks"]) for n in range(3)] == [True, False, True]


@pytest.mark.parametrize("values", [{"freetext": {"value": "x" * 2001}}, {}])
async def test_words_that_are_too_long_are_told_beside_the_field_or_in_place_of_the_modal(
    built: Start, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    """The modal takes no more than the router, but an older one may still be open."""
    answering = (await built()).answering

    async def answer(*_: object, **__: object) -> Reaction:
        raise TooLong("answer", 2001, 2000)

    monkeypatch.setattr(answering, "answer", answer)
    sent = Submission(
        value="",
        person=Person("T1", "U1"),
        place=Place("C1"),
        control=ControlOrigin(""),
        values=values,
        opened_by="U1",
    )
    reaction = await answering.submit(Press("answer", "CLR-42-001", 1), sent)
    words = "The answer has 2001 characters; at most 2000 are allowed."
    if values:
        assert reaction == FieldErrors({"freetext": words})
    else:
        assert isinstance(reaction, OpenModal)
        assert words in str(reaction.view)
