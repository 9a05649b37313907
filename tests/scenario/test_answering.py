"""Journeys 1 and 2: a question becomes a card, a person answers by any surface, the agent gets one reply."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.kit.world import World, controls, question, said
from tests.scenario.other_parties import record_held
from tests.scenario.typist import FREE
from tests.unit.bot.judges import shown
from workspace.seed import ADE, AGENTS, FOLAKE
from workspace.state import Message

REGIONS = [{"value": "eu-1", "label": "Europe"}, {"value": "us-1", "label": "America"}]
MANY = [{"value": f"v{n}", "label": f"Region number {n} with a long name that clips"} for n in range(1, 8)]


@pytest.mark.either_database(always=True)
async def test_click_answers_and_reply_reaches_the_producer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        outcome = await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert outcome.ok, outcome
        reply = await stage.reply()
        assert reply["response"] is True
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{FOLAKE}"
        shown = await stage.now_says(card, f"<@{FOLAKE}>")
        assert "Yes" in said(shown)
        assert controls(shown) == ["Verify"]
    record = stage.record()
    assert record["status"] == "resolved"
    assert record["aaep"]["answeredBy"] == {"surface": "slack", "team": "T0LOCAL", "user": FOLAKE}


async def test_choice_buttons_send_the_value_and_show_the_label(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["multiple_choice"], choices=REGIONS)
        assert controls(card) == ["Europe", "America", "Take"]
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="America")
        assert (await stage.reply())["response"] == "us-1"
        assert "Answered: “America”" in said(await stage.now_says(card, "Answered:"))


async def test_select_answers_where_choices_are_many(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["multiple_choice"], choices=MANY)
        assert all(choice["label"] in said(card) for choice in MANY)
        await stage.workspace.select(FOLAKE, AGENTS, card.ts, "Choose an answer", f"3. {MANY[2]['label']}")
        assert (await stage.reply())["response"] == "v3"


async def test_choices_that_look_like_another_or_a_button_are_told_apart(stage: World) -> None:
    labels = {"a": "Take", "b": "T\u0430ke", "c": "Go", "d": "Go"}
    choices = [{"value": value, "label": label} for value, label in labels.items()]
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["multiple_choice"], choices=choices)
        assert controls(card) == ["Choose an answer", "Take"]
        assert all(each in said(card) for each in ("1. “Take” (a)", "2. “T<U+0430>ke” (b)", "3. “Go” (c)"))
        await stage.workspace.select(FOLAKE, AGENTS, card.ts, "Choose an answer", "4. “Go” (d)")
        assert (await stage.reply())["response"] == "d"
        assert "Answered: “Go (d)”" in said(await stage.now_says(card, "Answered:"))


@pytest.mark.parametrize(
    ("fields", "values", "response"),
    [
        ({"accepted_response_kinds": ["numeric"]}, {"Number": "12.5"}, 12.5),
        (
            {"accepted_response_kinds": ["freetext"]},
            {"Your answer": "Wait <a day> & see"},
            "Wait <a day> & see",
        ),
        (
            {"accepted_response_kinds": ["multiple_choice", "freetext"], "choices": REGIONS},
            {"Your choice": "Europe"},
            "eu-1",
        ),
        (
            {
                "accepted_response_kinds": None,
                "options": ["Staging", "Production", "Lab"],
                "multi_select": True,
            },
            {"Your choices": ["Staging", "Lab"]},
            "Staging, Lab",
        ),
        (
            {"accepted_response_kinds": None, "options": ["Staging"], "free_form_allowed": True},
            {"Your answer": "Neither"},
            "Neither",
        ),
    ],
    ids=["numeric", "freetext", "choice or words", "several choices", "free form"],
)
async def test_modal_answers(
    stage: World, fields: dict[str, Any], values: dict[str, Any], response: object
) -> None:
    async with stage.bot():
        await stage.producer.emit(
            {key: value for key, value in (question("rpl_1") | fields).items() if value is not None}
        )
        card = await stage.card("Shall I go on?")
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")).ok
        await stage.modal(ADE)
        outcome = await stage.workspace.submit_view(ADE, values)
        assert outcome.ok, outcome
        assert not stage.workspace.views(ADE)
        assert (await stage.reply())["response"] == response
        await stage.now_says(card, f"<@{ADE}>")


async def test_modal_says_beside_the_field_what_to_mend_and_keeps_what_was_typed(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["yes_no", "freetext"])
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        outcome = await stage.workspace.submit_view(ADE, {"Your answer": "Later", "Yes or no": "Yes"})
        assert not outcome.ok
        assert set(outcome.errors.values()) == {"Fill in only one of these, and clear the others."}
        assert stage.record()["status"] == "pending"
        outcome = await stage.workspace.submit_view(
            ADE, {"Your answer": "Later", "Yes or no": "None of these"}
        )
        assert outcome.ok
        assert (await stage.reply())["response"] == "Later"


async def test_modal_of_a_question_answered_meanwhile_says_who_was_first(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["yes_no", "freetext"])
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        await stage.workspace.submit_view(ADE, {"Your answer": "Later"})
        told = await stage.modal(ADE)
        assert "already answered" in str(told.payload["blocks"])
        assert "“No”" in str(told.payload["blocks"])
        assert (await stage.reply())["response"] is False
    assert len(stage.producer.replies) == 1


async def opened(stage: World, card: Message, *users: str) -> None:
    """They open the modal behind Answer…"""
    for user in users:
        await stage.workspace.click(user, AGENTS, card.ts, label="Answer…")
        await stage.modal(user)


async def test_p4_modal_while_the_record_is_busy_keeps_what_was_typed(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        await opened(stage, card, ADE)
        async with record_held(stage, "CLR-100001-001"):
            outcome = await stage.workspace.submit_view(ADE, {"Your answer": "blue"})
        assert "try again" in next(iter(outcome.errors.values()))
        assert stage.record()["status"] == "pending"
        assert (await stage.workspace.submit_view(ADE, {"Your answer": "blue"})).ok
        assert (await stage.reply())["response"] == "blue"


async def test_modal_of_a_round_that_is_over_says_so(stage: World) -> None:
    asked = {"extensions": {"agentx": {"topic": "Rollout"}}} | FREE
    async with stage.bot():
        card = await stage.ask("rpl_1", **asked)
        await opened(stage, card, ADE, FOLAKE)
        stage.producer.lose_next_response()
        await stage.workspace.submit_view(ADE, {"Your answer": "blue"})
        await stage.now_says(card, "Sent, but not confirmed")
        await stage.emit("rpl_2", question="Really?", **asked)
        await stage.card("Really?")
        await stage.workspace.submit_view(FOLAKE, {"Your answer": "red"})
        assert "out of date" in str((await stage.modal(FOLAKE)).payload["blocks"])
        record = stage.record()
        assert (record["round"], record["status"]) == (2, "pending")


async def test_p6_modal_of_someone_who_left_the_channel_meanwhile_is_refused(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(**FREE)
        await opened(stage, card, ADE)
        stage.workspace.leave(ADE, AGENTS)
        await stage.heard("member_left_channel")
        await stage.workspace.submit_view(ADE, {"Your answer": "blue"})
        assert "not in the channel" in str((await stage.modal(ADE)).payload["blocks"])
        assert stage.record()["status"] == "pending"


@pytest.mark.parametrize(
    ("fields", "text", "response"),
    [
        ({"accepted_response_kinds": ["yes_no"]}, "Yep!", True),
        ({"accepted_response_kinds": ["numeric"]}, "1,200.50", 1200.5),
        ({"accepted_response_kinds": ["multiple_choice"], "choices": REGIONS}, "america", "us-1"),
        ({"accepted_response_kinds": ["freetext"]}, "a < b & c, see https://example.org/x", None),
    ],
)
async def test_thread_reply_answers(
    stage: World, fields: dict[str, Any], text: str, response: object
) -> None:
    async with stage.bot():
        card = await stage.ask(**fields)
        await stage.workspace.post(ADE, AGENTS, text, thread_ts=card.ts)
        reply = await stage.reply()
        assert reply["response"] == (text if response is None else response)
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{ADE}"
        await stage.now_says(card, f"<@{ADE}>")


async def test_second_session_question_goes_into_the_thread_and_to_the_channel(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1")
        second = await stage.ask("rpl_2", question="And then?", accepted_response_kinds=["freetext"])
        assert second.thread_ts == first.ts
        assert second.subtype == "thread_broadcast"
        other = await stage.ask("rpl_3", session="sess_two", question="Something else?")
        assert other.thread_ts is None


async def test_p3_second_answerer_is_told_who_what_and_when(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        folake, ade = await both_click(stage, card.ts)
        assert folake.ok
        assert ade.ok
        reply = await stage.reply()
        first, second, label = (FOLAKE, ADE, "Yes") if FOLAKE in reply["decided_by"] else (ADE, FOLAKE, "No")
        told = await stage.whisper(second, "already answered")
        assert f"<@{first}>" in told.text
        assert f"“{label}”" in told.text
        assert "<!date^" in told.text
        assert len(stage.producer.replies) == 1
    assert [entry["type"] for entry in stage.record()["thread"]] == ["question", "answer"]


async def both_click(stage: World, ts: str) -> tuple[Any, Any]:
    """Two people answer at the same moment."""
    yes, no = await asyncio.gather(
        stage.workspace.click(FOLAKE, AGENTS, ts, label="Yes"),
        stage.workspace.click(ADE, AGENTS, ts, label="No"),
    )
    return yes, no


async def test_click_on_a_stale_card_of_an_answered_question_gets_a_clear_word(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        blocks = list(card.blocks)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        shown = await stage.now_says(card, "Answered: ")
        fresh, shown.blocks = shown.blocks, blocks  # somebody whose screen is behind
        outcome = await stage.workspace.click(ADE, AGENTS, card.ts, label="No")
        shown.blocks = fresh
        assert outcome.ok
        assert f"<@{FOLAKE}>" in (await stage.whisper(ADE, "already answered")).text
        assert (await stage.reply())["response"] is True
    assert len(stage.producer.replies) == 1


async def test_channel_with_a_new_id_keeps_its_threads(stage: World) -> None:
    """slack.md: ids change (channel_id_changed); a reply in the thread is still an answer."""
    async with stage.bot() as bot:
        await stage.emit("rpl_1")
        card = await stage.card("Shall I go on?")
        await bot.board.messages.in_flight.settled()
        stage.workspace.emit(
            {"type": "channel_id_changed", "old_channel_id": AGENTS, "new_channel_id": "C0NEW"}
        )
        await stage.until(
            lambda: any(ack.payload_type == "channel_id_changed" for ack in stage.workspace.acks)
        )
        assert (await bot.base.store.read("select channel, thread_ts from sessions"))[0]["channel"] == "C0NEW"
        assert (await bot.base.store.read("select channel, ts from messages"))[0]["ts"] == card.ts


def hosts(count: int, more: int = 0) -> list[dict[str, str]]:
    """Choices, `more` characters longer than their names."""
    return [{"value": f"host-{n}", "label": f"Host {n}{' x' * (more // 2)}"} for n in range(1, count + 1)]


def shows_another(stage: World, user: str, before: dict[str, Any]) -> bool:
    return bool(stage.workspace.view(user).payload != before)


async def every_page(stage: World, user: str) -> str:
    """All that the modal behind View full says, page by page, on one line."""
    pages = [(await stage.modal(user)).payload]
    while "Next" in controls(stage.workspace.view(user)):
        turned = partial(shows_another, stage, user, pages[-1])
        assert (await stage.workspace.click_in_view(user, label="Next")).ok
        await stage.until(turned)
        pages.append(stage.workspace.view(user).payload)
    await stage.workspace.close_view(user)
    return " ".join(" ".join(shown(page["blocks"]) for page in pages).split())


@pytest.mark.parametrize(
    ("choices", "several"), [(hosts(101), True), (hosts(150, 1800), False), (hosts(100, 2000), False)]
)
async def test_question_with_more_choices_than_fit_is_shown_and_can_be_read_whole(
    stage: World, choices: list[dict[str, str]], several: bool
) -> None:
    async with stage.bot():
        card = await stage.ask(
            accepted_response_kinds=["multiple_choice"],
            choices=choices,
            multi_select=several,
            timeout_seconds=3600,
        )
        assert "CLR-100001-001" in said(card)
        menu = len(choices) <= 100 and not several
        assert controls(card) == [*(["Choose an answer"] if menu else ["Answer…"]), "View full", "Take"]
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="View full")).ok
        whole = await every_page(stage, ADE)
        for n, choice in enumerate(choices, 1):
            assert f"{n}. {choice['label']}" in whole, n
        await stage.workspace.post(ADE, AGENTS, str(len(choices)), thread_ts=card.ts)
        last = choices[-1]
        assert (await stage.reply())["response"] == (last["label"] if several else last["value"])
        await stage.now_says(card, f"<@{ADE}>")
    assert not stage.workspace.direct("U0ONCALL")


@pytest.mark.parametrize(
    ("typed", "kinds"),
    [("137", ["multiple_choice"]), ("Host 137", ["multiple_choice", "numeric", "freetext"])],
)
async def test_choice_beyond_a_menu_is_typed_into_the_modal(
    stage: World, typed: str, kinds: list[str]
) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=kinds, choices=hosts(500))
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")).ok
        await stage.modal(ADE)
        outcome = await stage.workspace.submit_view(ADE, {"Your choice": "Host 501"})
        assert not outcome.ok
        assert "number of a choice" in next(iter(outcome.errors.values()))
        outcome = await stage.workspace.submit_view(ADE, {"Your choice": typed})
        assert outcome.ok, outcome
        assert (await stage.reply())["response"] == "host-137"
        assert "Answered: “Host 137”" in said(await stage.now_says(card, f"<@{ADE}>"))


async def test_several_choices_beyond_a_menu_are_typed_into_the_modal(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(
            accepted_response_kinds=["multiple_choice"], choices=hosts(101), multi_select=True
        )
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        assert (await stage.workspace.submit_view(ADE, {"Your choices": "101, host-7"})).ok
        assert (await stage.reply())["response"] == "Host 7, Host 101"
