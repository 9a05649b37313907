"""What producers send and do, and what people see of it: standard dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from bot.app import Bot
from bot.ask.receiver import SETTLED
from tests.kit.clocks import LeapClock
from tests.kit.minimal import MinimalProducer
from tests.kit.served import served
from tests.kit.until import until
from tests.kit.world import TOKEN, World, config, controls, question, said, scene
from workspace.seed import AGENTS, FOLAKE, ONCALL

LEFT = {"from_state": "awaiting_input", "to_state": "thinking"}


async def test_p2_duplicate_event_and_token_make_one_card(stage: World) -> None:
    async with stage.bot():
        event = await stage.emit("rpl_1")
        await stage.producer.emit(event)
        await stage.producer.emit({**event, "event_id": "evt_another"})
        stage.producer.drop_connections()
        await stage.ask("rpl_2", question="Something else?")
        assert len(stage.cards()) == 2
    assert len(stage.ledger(100001)["clarifications"]) == 2


async def test_p1_agent_that_counts_from_one_again_has_all_its_questions_shown(stage: World) -> None:
    """Killed, it numbers its events anew: what it asks then is another question under a known id."""
    first = {"event_id": "evt_1", "session_id": "sess_1"}
    later = {"event_id": "evt_1", "session_id": "sess_2", "question": "Shall I stop?"}
    failed = {"event_id": "evt_1", "error_category": "internal_error", "urgency": "critical"}
    async with stage.bot():
        await stage.ask(**first)
        await stage.ask(**later)
        for again in (first, later):
            await stage.producer.emit(question("rpl_1", accepted_response_kinds=["yes_no"]) | again)
        await stage.says("session.errored", session="sess_2", **failed)
        await stage.page("internal")
        assert len(stage.cards()) == 2


@pytest.mark.parametrize(
    ("broken", "shown"),
    [
        ({"reply_token": None, "question": "Who hears me?"}, "Who hears me?"),
        ({"type": "aaep:agent.volcano.erupted", "summary_normal": "Lava!"}, "Lava!"),
    ],
    ids=["no token", "unknown type"],
)
async def test_p1_critical_event_that_no_card_can_show_is_shown_generically(
    stage: World, broken: dict[str, Any], shown: str
) -> None:
    async with stage.bot():
        await stage.producer.emit(
            {key: value for key, value in (question("rpl_1") | broken).items() if value is not None}
        )
        notice = await stage.message(shown)
        assert not [
            label for label in controls(notice) if label in {"Yes", "No", "Accept", "Reject", "Answer…"}
        ]


@pytest.mark.parametrize(
    ("odd", "labels"),
    [
        ({"question": None, "summary_normal": "Shall I go on?"}, ["Answer…"]),
        ({"timeout_seconds": 600.5, "accepted_response_kinds": "yes_no"}, ["Yes", "No"]),
        ({"choices": [{"label": "A"}, {"value": 7}, {}, "C"]}, ["A", "7", "C"]),
        ({"event_id": None, "timestamp": "yesterday", "accepted_response_kinds": ["yes_no"]}, ["Yes", "No"]),
    ],
)
async def test_p1_question_that_breaks_its_schema_still_gets_its_card(
    stage: World, odd: dict[str, Any], labels: list[str]
) -> None:
    async with stage.bot():
        whole = question("rpl_1") | {
            "@context": "https://aaep-protocol.org/context/v1",
            "event_id": "evt_1",
            "producer": {"agent_id": "planner-agent"},
            "timestamp": stage.clock.now().isoformat(),
        }
        body = {key: value for key, value in (whole | odd).items() if value is not None}
        await stage.producer.emit_raw(json.dumps(body), event_id="evt_1")
        assert controls(await stage.card("Shall I go on?")) == [*labels, "Take"]


async def test_p1_garbage_and_oversize_page_somebody_and_stop_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(10)) as stage, stage.bot():
        huge = json.dumps(question("rpl_1", context="x" * (1 << 21)))
        await stage.producer.emit_raw(huge, event_id="evt_huge")
        await stage.producer.emit_raw('{"type": "aaep:agent.session.errored", oops', event_id="evt_torn")
        await stage.producer.emit_raw("[1, 2]", event_id="evt_list")
        await stage.producer.emit_raw("\x00\x01", event_id="evt_bytes")
        assert (await stage.workspace.click(FOLAKE, AGENTS, (await stage.ask("rpl_2")).ts, label="Yes")).ok
        await stage.reply("rpl_2")
        await stage.page("larger than 1 MiB")
        await stage.page("could not be read")


async def test_p4_answer_given_while_the_producer_is_down_is_delivered_when_it_is_back(
    tmp_path: Path,
) -> None:
    clock = LeapClock(40)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        card = await stage.ask(timeout_seconds=7200)  # a slow machine's seconds are many here
        await stage.producer.down()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sending to the agent")
        given = stage.record()["aaep"]["answeredAt"]
        await clock.pass_by(120)  # a producer that is away for minutes
        await stage.producer.up()
        reply = await stage.reply()
        assert reply["timestamp"] == given
        await stage.now_says(card, "Delivered")


@pytest.mark.parametrize("status", [401, 503])
async def test_p4_reply_is_tried_again_with_the_same_words(stage: World, status: int) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.producer.refuse_next(status, times=2)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        reply = await stage.reply()
        record = stage.record()["aaep"]
        assert reply["timestamp"] == record["answeredAt"]
        assert reply["decided_by"] == record["decidedBy"]
        await stage.now_says(card, "Delivered")


async def test_p4_refused_reply_is_shown_and_pages(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.producer.refuse_next(400)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        shown = await stage.now_says(card, "refused")
        assert f"<@{FOLAKE}>" in said(shown)
        assert "the answer was refused" in said(await stage.page("refused"))


async def test_p4_refusal_after_a_lost_response_is_no_refusal(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.producer.lose_next_response()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sent, but not confirmed")
        assert len(stage.producer.replies) == 1
        assert not stage.workspace.direct("U0ONCALL")
        await stage.says("state.changed", **LEFT)
        await stage.now_says(card, "the agent has resumed")
    assert stage.record()["status"] == "resolved"


async def test_session_that_leaves_awaiting_voids_its_only_open_question(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        await stage.says("state.changed", **LEFT)
        shown = await stage.now_says(card, "the agent moved on without an answer")
        assert not controls(shown)
        assert stage.record()["status"] == "abandoned"


async def test_session_that_leaves_awaiting_voids_none_of_several(stage: World) -> None:
    async with stage.bot():
        await stage.ask("rpl_1", question="First?")
        second = await stage.ask("rpl_2", question="Second?")
        await stage.says("state.changed", **LEFT)
        await stage.workspace.click(
            FOLAKE, AGENTS, second.ts, label="Yes"
        )  # maybe before that event is worked off
        await stage.reply("rpl_2")
        await stage.ask("rpl_3", question="Third?")
        assert stage.record()["status"] == "pending"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("session.cancelled", "Cancelled: the agent no longer needs an answer"),
        ("session.completed", "Closed: the agent's session ended"),
        ("session.errored", "Closed: the agent's session ended"),
    ],
)
async def test_end_of_a_session_voids_what_is_open(stage: World, kind: str, words: str) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1", question="First?")
        second = await stage.ask("rpl_2", question="Second?")
        other = await stage.ask("rpl_3", session="sess_two", question="Third?")
        await stage.says(kind, urgency="critical")
        for card in (first, second):
            assert not controls(await stage.now_says(card, words))
        assert controls(stage.workspace.message(AGENTS, other.ts)) == ["Yes", "No", "Take"]


CHOOSE: dict[str, Any] = {
    "accepted_response_kinds": ["multiple_choice"],
    "choices": [
        {"value": "change-01", "label": "Change 1: the header"},
        {"value": "change-02", "label": "Change 2"},
    ],
}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"default_response": "Wait till Monday"},
            "Expired. The agent used its default: “Wait till Monday”",
        ),
        (
            CHOOSE | {"default_response": "change-02, change-01", "multi_select": True},
            "Expired. The agent used its default: “Change 2, Change 1: the header”",
        ),
        ({}, "Expired. The agent had no default"),
    ],
)
async def test_expired_question_says_what_the_agent_assumes(
    tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    clock = LeapClock(60)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        card = await stage.ask(timeout_seconds=60, **fields)
        if "“" in words:
            told = f"If no one answers, the agent uses its default: {words[words.index('“') :]}"
            assert told in card.text
            assert told in json.dumps(card.blocks, ensure_ascii=False)
        shown = await stage.now_says(card, words)
        assert not controls(shown)
        assert stage.record()["status"] == "abandoned"
        assert stage.record()["aaep"]["closed"] == "expired"


async def test_p4_answer_that_reaches_the_producer_too_late_says_so(tmp_path: Path) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        card = await stage.ask(timeout_seconds=480)
        await stage.producer.down()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await clock.pass_by(480)
        shown = await stage.now_says(card, "Too late: the agent was no longer waiting")
        assert f"<@{FOLAKE}>" in said(shown)
        assert not stage.producer.replies


@pytest.mark.parametrize("skew", [timedelta(hours=-2), timedelta(minutes=7)], ids=["behind", "ahead"])
async def test_producer_with_a_wrong_clock_keeps_its_questions_open(tmp_path: Path, skew: timedelta) -> None:
    ours, wrong = LeapClock(), LeapClock()
    wrong.ahead = skew
    async with scene(tmp_path, clock=ours, producer_clock=wrong) as stage, stage.bot() as bot:
        await past_the_backlog(bot)
        await stage.says("session.started")
        await until(lambda: abs(bot.agents.producers.status()["planner"]["offset_seconds"]) > 60)
        card = await stage.ask(timeout_seconds=300)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await stage.now_says(card, "Delivered")


async def past_the_backlog(bot: Bot) -> None:
    """What comes in a connection's first second, by the event loop's time, may be a backlog: it says nothing of clocks."""
    await until(lambda: bot.agents.producers.status()["planner"]["connected"])
    await asyncio.sleep(SETTLED + 0.2)


async def answered_in_full_time(stage: World, clock: LeapClock, token: str) -> None:
    """Ask; the card is there with its controls and its whole ten minutes, and takes an answer."""
    words = f"Is this {token}?"
    card = await stage.ask(token, question=words)
    assert controls(card) == ["Yes", "No", "Take"], said(card)
    expires = datetime.fromisoformat(stage.record(number=-1)["aaep"]["expiresAt"])
    assert timedelta(seconds=570) < expires - clock.now() <= timedelta(seconds=600)
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
    await stage.reply(token)


@pytest.mark.parametrize("steps", [(-7200, 0, -7200), (0, -7200, 3600)], ids=["set right", "set wrong"])
async def test_step_of_our_clock_kills_no_new_question(tmp_path: Path, steps: tuple[int, ...]) -> None:
    clock, theirs = LeapClock(), LeapClock()
    clock.ahead = timedelta(seconds=steps[0])
    async with scene(tmp_path, producer_clock=theirs) as stage, stage.bot(clock=clock) as bot:
        await past_the_backlog(bot)
        for number, ahead in enumerate(steps):
            clock.ahead = timedelta(seconds=ahead)
            for token in (f"rpl_{number}_a", f"rpl_{number}_b"):
                await answered_in_full_time(stage, clock, token)


@pytest.mark.parametrize("steps", [(0, -7200, 0), (7200, -90, 5400)], ids=["set back", "back and forth"])
async def test_step_of_the_producers_clock_kills_no_new_question(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    ours, theirs = LeapClock(), LeapClock()
    async with scene(tmp_path, clock=ours, producer_clock=theirs) as stage, stage.bot() as bot:
        await past_the_backlog(bot)
        for number, ahead in enumerate(steps):
            theirs.ahead = timedelta(seconds=ahead)
            for token in (f"rpl_{number}_a", f"rpl_{number}_b"):
                await answered_in_full_time(stage, ours, token)


@asynccontextmanager
async def login_page(port: int) -> AsyncIterator[None]:
    """What some proxies put in a producer's place: a page, whatever is asked."""

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text="<!DOCTYPE html><title>Sign in</title>", content_type="text/html")

    async with served(page, port):
        yield


async def test_page_in_the_producers_place_does_not_count_as_delivered(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(60)) as stage, stage.bot():
        card = await stage.ask(timeout_seconds=7200)
        await stage.producer.down()
        async with login_page(httpx.URL(stage.producer.url).port or 80):
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            shown = await stage.now_says(card, "Sent, but not confirmed: the agent answers with text/html")
            assert "Delivered" not in said(shown)
            assert stage.record()["status"] == "answered"
            page = await stage.page("the answer has not reached the agent")
            for words in ("CLR-100001-001", "Shall I go on?", "text/html"):
                assert words in said(page), words
        await stage.producer.up()
        assert (await stage.reply())["response"] is True
        assert "Sent, but not confirmed" not in said(await stage.now_says(card, "Delivered"))
        await stage.until(lambda: page.ts not in {each.ts for each in stage.workspace.direct(ONCALL)})
    assert stage.record()["status"] == "resolved"


@pytest.mark.parametrize("dialect", ["standard", "minimal"])
async def test_producer_that_refuses_our_token_after_an_answer_is_told_on_card_and_page(
    tmp_path: Path, dialect: str
) -> None:
    async with scene(tmp_path, clock=LeapClock(60)) as stage, MinimalProducer(replays=True) as minimal:
        producer = stage.producer if dialect == "standard" else minimal
        async with stage.bot(config(producer.url, dialect=dialect)):
            if dialect == "standard":
                card = await stage.ask(timeout_seconds=7200)
            else:
                event = question(TOKEN, accepted_response_kinds=["yes_no"], timeout_seconds=7200)
                await minimal.emit(event, stage.clock.now().isoformat())
                card = await stage.card("Shall I go on?")
            producer.token = "another"
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.now_says(card, "Sending to the agent")
            await stage.now_says(card, "Not delivered: the agent refuses our token (HTTP 401)")
            page = await stage.page("the answer has not reached the agent")
            for words in ("CLR-100001-001", "Shall I go on?", "refuses our token"):
                assert words in said(page), words
            producer.token = None
            assert (await producer_reply(stage, minimal, dialect))["response"] is True
            await stage.now_says(card, "Delivered")


async def producer_reply(stage: World, minimal: MinimalProducer, dialect: str) -> dict[str, Any]:
    return await (stage.reply() if dialect == "standard" else minimal.reply(TOKEN))
