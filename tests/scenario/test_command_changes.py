"""`/clarify` where it changes something: durable before it is acknowledged, or not done at all; and what it leads to."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.errors import StorageUnavailable
from bot.people.access import Person
from bot.slack.payloads import Click, ControlOrigin
from bot.slackapi import Place
from bot.views.codec import ListPress
from bot.views.phrases import BUSY
from tests.kit.clocks import LeapClock
from tests.kit.world import World, config, controls, said, scene
from tests.scenario.other_parties import record_held
from tests.scenario.typist import (
    FREE,
    LIN,
    YES_NO,
    ask_many,
    becomes,
    buttons,
    command,
    direct,
    early,
    ids,
    of_issue,
    outsider,
    words,
)
from workspace.seed import ADE, AGENTS, BOT_USER, EVA, FOLAKE, GIO, GONE, ONCALL, PLATFORM, RANDOM, TEAM
from workspace.state import User

MAX = "U0MAX"


async def ask(stage: World, count: int = 1, **fields: Any) -> None:
    """Have as many questions of issue 42 open, each in a session of its own."""
    for n in range(1, count + 1):
        await stage.ask(f"rpl_{n}", session=f"sess_{n}", question=f"Question {n}?", **fields, **of_issue(42))


def status(stage: World, number: int = 1) -> str:
    return str(stage.record(42, number - 1)["status"])


async def test_p4_every_change_is_in_the_ledger_before_it_is_acknowledged(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.bot():
        await ask(stage, 4)
        for text in (
            "answer CLR-42-001 yes",
            "resolve CLR-42-002 no",
            "escalate CLR-42-003 nobody here knows",
            "abandon CLR-42-004",
        ):
            typed = stage.workspace.command(ADE, AGENTS, "/clarify", text)
            assert not await early(typed, stage, monkeypatch), text
        assert status(stage, 1) in {"answered", "resolved"}
        assert status(stage, 2) in {"answered", "resolved"}
        assert status(stage, 3) == "escalated"
        assert "nobody here knows" in stage.record(42, 2)["thread"][-1]["body"]
        assert status(stage, 4) == "abandoned"
        row = await command(stage, "CLR-42-003")
        pressed = stage.workspace.press_ephemeral(ADE, row, "Take")
        assert not await early(pressed, stage, monkeypatch)
        assert stage.record(42, 2)["aaep"]["takenBy"]["user"] == ADE


@pytest.mark.parametrize(
    ("where", "text", "fields", "response"),
    [
        ("direct messages", "answer CLR-42-001 yes", YES_NO, True),
        (AGENTS, "ANSWER clr-42-1 “No”", YES_NO, False),
        (AGENTS, "answer #42 yes", YES_NO, True),
        ("direct messages", 'answer CLR-42-001 it\'s "fine" by <@U0FOLAKE|folake> & me', FREE, None),
        (AGENTS, "resolve CLR-42-001 'done by hand'", FREE, "done by hand"),
    ],
)
async def test_answer_reaches_the_agent_under_the_name_of_who_typed_it(
    stage: World, where: str, text: str, fields: dict[str, Any], response: Any
) -> None:
    async with stage.bot():
        await ask(stage, **fields)
        card = await stage.card("Question 1?")
        channel = AGENTS if where == AGENTS else direct(stage, ADE)
        assert "CLR-42-001 is answered" in words(await command(stage, text, ADE, channel))
        reply = await stage.reply()
        expected = 'it\'s "fine" by @folake & me' if response is None else response
        assert reply["response"] == expected
        assert reply["decided_by"] == f"user:slack/T0LOCAL/{ADE}"
        assert controls(await stage.now_says(card, f"<@{ADE}>"))[-1] == "Verify"
        await stage.until(lambda: status(stage) == "resolved")
    assert len(stage.producer.replies) == 1


async def test_p3_later_changes_of_an_answered_one_are_told_who_was_first(stage: World) -> None:
    async with stage.bot():
        await ask(stage)
        await command(stage, "answer CLR-42-001 yes", FOLAKE)
        for text in ("answer CLR-42-001 no", "abandon CLR-42-001", "escalate CLR-42-001"):
            told = words(await command(stage, text))
            assert "already answered" in told, text
            assert f"<@{FOLAKE}>" in told
        assert (await stage.reply())["response"] is True
    assert len(stage.producer.replies) == 1


async def test_abandoned_by_hand_is_closed_for_everybody_with_its_name(stage: World) -> None:
    async with stage.bot():
        await ask(stage)
        card = await stage.card("Question 1?")
        assert "closed without an answer" in words(await command(stage, "abandon CLR-42-001"))
        assert not controls(await stage.now_says(card, f"<@{ADE}>"))
        told = words(await command(stage, "answer CLR-42-001 yes", FOLAKE))
        assert "no longer takes answers" in told
        assert f"<@{ADE}>" in told
    assert not stage.producer.replies


async def test_expired_one_takes_no_change_and_says_what_the_agent_assumes(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        await ask(stage, default_response="go on carefully")
        clock.ahead += timedelta(days=1)
        told = words(await command(stage, "answer CLR-42-001 yes"))
        assert "it expired" in told
        assert "go on carefully" in told
        assert "no longer takes answers" in words(await command(stage, "resolve CLR-42-001 yes"))
        assert status(stage) == "abandoned"
        assert "1 clarifications, 0 open" in words(await command(stage, "#42"))
    assert not stage.producer.replies


async def test_escalation_pages_the_one_on_call_with_the_reason(stage: World) -> None:
    async with stage.bot():
        await ask(stage)
        told = await command(stage, "escalate CLR-42-001 “the *whole* <!channel> is asleep”")
        assert "On-call is being paged" in words(told)
        page = await stage.page("Question 1?")
        assert "is asleep" in said(page)
        assert "<!channel>" not in page.text
        assert "was already escalated" in words(await command(stage, "escalate CLR-42-001"))
        assert "Overdue questions: 1" in words(await command(stage, "stale", FOLAKE))


async def test_p4_busy_ledger_changes_nothing_now_or_later(stage: World) -> None:
    doing = {ADE: "answer CLR-42-001 yes", ONCALL: "escalate CLR-42-002", MAX: "abandon CLR-42-003"}
    stage.workspace.add_user(User(MAX, "max", "Max", TEAM))
    stage.workspace.channel(AGENTS).members.append(MAX)
    async with stage.bot():
        await ask(stage, 4)
        await command(stage, "escalate CLR-42-004")
        row = await command(stage, "CLR-42-004", FOLAKE)
        async with record_held(stage, *(f"CLR-42-00{n}" for n in range(1, 5))):
            before = stage.ledger(42)
            pressing = asyncio.create_task(stage.workspace.press_ephemeral(FOLAKE, row, "Take"))
            told = await asyncio.gather(*(command(stage, text, user) for user, text in doing.items()))
            assert [words(each) for each in told] == [BUSY] * 3
            assert (await pressing).ok
            await stage.whisper(FOLAKE, BUSY)
            assert stage.ledger(42) == before
        # Whatever still waited for the lock would have it before this does.
        await command(stage, "answer CLR-42-004 yes")
        await stage.reply("rpl_4")
        assert [status(stage, number) for number in range(1, 4)] == ["pending"] * 3
        assert stage.record(42, 3)["aaep"].get("takenBy") is None
    assert [reply["reply_token"] for reply in stage.producer.replies] == ["rpl_4"]


async def test_p4_slow_look_ups_take_nothing_and_say_so_in_slacks_three_seconds(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.access.LOOK_UPS", 0.8)
    async with stage.bot(config(stage.producer.url, answerers=(PLATFORM, FOLAKE))):
        await ask(stage)
        await command(stage, "mine", ONCALL)
        stage.workspace.change_group(PLATFORM, [ONCALL, ADE])  # so that it has to be asked for again
        stage.workspace.change_user(ONCALL, tz="Europe/Berlin")
        await stage.heard("subteam_members_changed")
        await stage.heard("user_change")
        methods = ("usergroups.users.list", "users.info")
        known = {method: stage.calls(method) for method in methods}
        for method in methods:
            stage.workspace.faults.add(method, "delay:3.5", 20)
        told, handed, listed = await asyncio.gather(
            command(stage, "answer CLR-42-001 yes"),
            command(stage, f"oncall hand <@{ONCALL}> 2h", FOLAKE),
            command(stage, "stale", ONCALL),
        )
        assert "did not say who you are" in words(told)
        assert "did not say who you are" in words(handed)
        assert "No overdue questions" in words(listed)  # acknowledged in time, answered when Slack had told
        await stage.until(lambda: all(stage.calls(method) > known[method] for method in methods))
        stage.workspace.faults.clear()
        # Had it been applied when the look-up came at last, this would be too late.
        assert "is answered" in words(await command(stage, "answer CLR-42-001 no", FOLAKE))
        assert (await stage.reply())["response"] is False
        assert f"<@{ONCALL}> (" in words(await command(stage, "oncall"))
    assert len(stage.producer.replies) == 1


async def test_oncall_take_sends_the_next_pages_to_whoever_took_it(stage: World) -> None:
    async with stage.bot():
        await ask(stage)
        assert "You are on call for platform until" in words(await command(stage, "oncall take 2h"))
        assert f"platform: <@{ADE}>" in words(await command(stage, "oncall", FOLAKE))
        await command(stage, "escalate CLR-42-001", FOLAKE)
        await stage.page("Question 1?", ADE)
        assert not stage.workspace.direct(ONCALL)


async def test_oncall_hand_tells_the_other_and_outlives_a_restart(stage: World) -> None:
    async with stage.bot():
        told = await command(stage, "oncall hand <@U0FOLAKE|folake> 2h Platform", ADE, direct(stage, ADE))
        assert f"<@{FOLAKE}> is on call for platform until" in words(told)
        handed = await stage.page("handed you on-call", FOLAKE)
        assert f"<@{ADE}>" in handed.text
    async with stage.bot():
        assert f"platform: <@{FOLAKE}>" in words(await command(stage, "oncall who"))


async def test_oncall_is_changed_only_by_and_for_those_who_may(stage: World) -> None:
    async with stage.bot():
        outsider(stage)
        for user, text, why in (
            (GIO, "oncall take 2h", "a guest"),
            (EVA, "oncall take 2h", "not a member of this workspace"),
            (LIN, "oncall hand <@U0ADE> 2h", "not in the channel"),
            (ADE, f"oncall hand <@{GIO}> 2h", "cannot be on call"),
            (ADE, f"oncall hand <@{GONE}> 2h", "cannot be on call"),
            (ADE, f"oncall hand <@{BOT_USER}> 2h", "cannot be on call"),
        ):
            assert why in words(await command(stage, text, user, RANDOM)), text
        assert f"platform: <@{ONCALL}>" in words(await command(stage, "oncall"))


@pytest.mark.parametrize("where", [AGENTS, "direct messages"])
async def test_row_is_viewed_taken_and_answered_where_it_is_listed(stage: World, where: str) -> None:
    async with stage.bot():
        await ask(stage, **FREE)
        card = await stage.card("Question 1?")
        await command(stage, "escalate CLR-42-001", FOLAKE)
        listed = await command(stage, "stale", ADE, AGENTS if where == AGENTS else direct(stage, ADE))
        assert buttons(listed) == ["Answer…", "View full", "Take"]

        assert (await stage.workspace.press_ephemeral(ADE, listed, "View full")).ok
        assert "Question 1?" in words(await stage.modal(ADE))
        await stage.workspace.close_view(ADE)

        assert (await stage.workspace.press_ephemeral(ADE, listed, "Take")).ok
        assert stage.record(42)["aaep"]["takenBy"]["user"] == ADE
        await stage.whisper(ADE, "You claimed CLR-42-001")
        await stage.now_says(card, f"Claimed by <@{ADE}>")

        assert (await stage.workspace.press_ephemeral(ADE, listed, "Answer…")).ok
        await stage.modal(ADE)
        assert (await stage.workspace.submit_view(ADE, {"Your answer": "8080"})).ok
        reply = await stage.reply()
        assert (reply["response"], reply["decided_by"]) == ("8080", f"user:slack/T0LOCAL/{ADE}")
        assert controls(await stage.now_says(card, "8080")) == ["View full", "Verify"]


async def test_row_of_an_old_list_says_who_answered_meanwhile(stage: World) -> None:
    async with stage.bot():
        await ask(stage)
        listed = await command(stage, "")
        await command(stage, "answer CLR-42-001 yes", FOLAKE)
        assert (await stage.workspace.press_ephemeral(ADE, listed, "Answer…")).ok
        assert f"<@{FOLAKE}>" in (await stage.whisper(ADE, "already answered")).text
        assert not stage.workspace.views(ADE)


async def test_forty_five_are_paged_through_in_one_message_by_time_left(stage: World) -> None:
    async with stage.bot() as bot:
        expected = await ask_many(stage, bot.base.index, 45)
        listed = await command(stage, "")
        assert "Open questions: 45" in words(listed)
        before = stage.calls("response_url")  # a slow list comes that way itself
        seen = ids(listed)
        for page in range(2, 7):
            assert (await stage.workspace.press_ephemeral(ADE, listed, "Next")).ok
            await becomes(stage, listed, f"Page {page} of 6")
            seen += ids(listed)
        assert seen == expected
        assert "Next" not in buttons(listed)
        assert (await stage.workspace.press_ephemeral(ADE, listed, "Previous")).ok
        await becomes(stage, listed, "Page 5 of 6")
        assert ids(listed) == expected[32:40]
        assert len(stage.workspace.ephemerals(ADE)) == 1
        assert stage.calls("response_url") == before + 6


async def test_list_that_got_shorter_turns_to_its_last_page(stage: World) -> None:
    async with stage.bot() as bot:
        expected = await ask_many(stage, bot.base.index, 9)
        listed = await command(stage, "#42", ADE, direct(stage, ADE))
        await command(stage, f"answer {expected[0]} yes", FOLAKE)
        other = await command(stage, "mine", FOLAKE)
        assert ids(other) == expected[1:]
        assert (await stage.workspace.press_ephemeral(ADE, listed, "Next")).ok
        await becomes(stage, listed, "Page 2 of 2")
        assert ids(listed) == expected[:1]  # the answered one comes last


async def test_p6_who_is_on_call_may_change_what_others_answer(stage: World) -> None:
    async with stage.bot(config(stage.producer.url, answerers=(FOLAKE,))):
        await ask(stage)
        assert "You cannot answer" in words(await command(stage, "answer CLR-42-001 yes", ADE))
        assert "is answered" in words(await command(stage, "answer CLR-42-001 yes", ONCALL))


async def test_who_is_handed_on_call_is_so_although_nobody_could_tell_them(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise StorageUnavailable

    async with stage.bot() as bot:
        monkeypatch.setattr(bot.show.delivery, "say", fails)
        told = words(await command(stage, f"oncall hand <@{FOLAKE}> 2h"))
        assert f"<@{FOLAKE}> is on call for platform" in told
        assert "could not be notified" in told
        assert f"platform: <@{FOLAKE}>" in words(await command(stage, "oncall"))


async def test_p5_turning_a_page_runs_no_command_that_changes_something(stage: World) -> None:
    async with stage.bot() as bot:
        await ask(stage)
        origin = ControlOrigin(bot.base.store.installation)
        click = Click(value="", person=Person(TEAM, ADE), place=Place(AGENTS), control=origin)
        interactions = bot.slack.app.handlers.interactions
        await interactions.press_list(ListPress("page", "answer CLR-42-001 yes", 2), click)
        await interactions.later.drain()
        assert stage.record(42)["status"] == "pending"


async def test_list_begins_with_what_one_claimed_and_counts_what_cannot_be_read(stage: World) -> None:
    async with stage.bot():
        cards = [
            await stage.ask(
                f"rpl_{n}", session=f"s{n}", question=f"Question {n}?", timeout_seconds=left, **of_issue(42)
            )
            for n, left in enumerate((86_400, 18_000, 3600), start=1)
        ]
        by_time_left = ["CLR-42-003", "CLR-42-002", "CLR-42-001"]
        assert ids(await command(stage, "mine")) == by_time_left
        await stage.workspace.click(ADE, AGENTS, cards[1].ts, label="Take")
        await stage.until(lambda: len(stage.workspace.ephemerals(ADE)) == 2)
        assert ids(await command(stage, "mine")) == ["CLR-42-002", "CLR-42-003", "CLR-42-001"]
        assert ids(await command(stage, "")) == by_time_left
        assert stage.changed("update clarifications set body = '{' where number = 1") == 1
        assert "1 more cannot be read" in words(await command(stage, "#42"))
