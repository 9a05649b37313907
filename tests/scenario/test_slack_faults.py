"""Promises P1, P2, P4 and P10 while Slack misbehaves: lost responses, refusals, limits, dead places."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.errors import StorageUnavailable
from bot.slack.socket import Envelope, Unacknowledged
from tests.kit.clocks import LeapClock
from tests.kit.until import until
from tests.kit.world import World, controls, said, scene, url_of
from workspace.seed import ADE, AGENTS, BOT_USER, FALLBACK, FOLAKE, ONCALL, TEAM

YES_NO: dict[str, Any] = {"accepted_response_kinds": ["yes_no"]}


@pytest.mark.parametrize(
    "fault", ["accept_then_drop", "accept_then_error:internal_error", "accept_then_error:fatal_error"]
)
async def test_p2_post_that_was_accepted_with_its_response_lost_is_one_card(stage: World, fault: str) -> None:
    async with stage.bot() as bot:
        stage.workspace.faults.add("chat.postMessage", fault)
        card = await stage.ask()
        await bot.board.messages.in_flight.settled()
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await stage.now_says(card, f"<@{FOLAKE}>")
        assert len(stage.cards()) == 1
        assert stage.calls("chat.postMessage", ok=False) == 1


@pytest.mark.parametrize("fault", ["drop", "5xx:503"])
async def test_p1_post_that_never_arrived_is_posted_once_after_the_landing_margin(
    tmp_path: Path, fault: str
) -> None:
    clock = LeapClock(3)  # a third of a second may pass until the first call
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        stage.workspace.faults.add("chat.postMessage", fault)
        await stage.ask()
        first, second = (call for call in stage.workspace.calls if call.method == "chat.postMessage")
        assert second.time - first.time >= 4  # of five, which count from before the first call
        assert len(stage.cards()) == 1
        assert stage.calls("conversations.history") >= 1


@pytest.mark.parametrize(("fault", "cards"), [("accept_then_drop", 1), ("drop", 0)])
async def test_p2_post_of_unknown_outcome_is_looked_up_though_its_question_was_withdrawn(
    tmp_path: Path, fault: str, cards: int
) -> None:
    clock = LeapClock(3)
    async with (
        scene(tmp_path, clock=clock) as stage,
        stage.bot() as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        stage.workspace.faults.add("chat.postMessage", fault)
        stage.workspace.faults.add("conversations.history", "5xx:503")  # not found at the first look
        asked = (await http.post("/questions", json={"question": "Still needed?", "kind": "yes_no"})).json()
        await stage.until(lambda: stage.calls("chat.postMessage", ok=False))
        assert (await http.delete(f"/questions/{asked['id']}")).status_code == 200
        await bot.board.messages.in_flight.settled()
        await stage.until(lambda: not any(map(controls, stage.cards())))
        await http.post("/questions", json={"question": "And this?"})
        await stage.card("And this?")
        assert len([each for each in stage.cards() if "Still needed?" in said(each)]) == cards
        assert stage.calls("conversations.history") >= 1


@pytest.mark.parametrize(("fault", "wait"), [("429:1.5", 1.5), ("429", 0.0)])
async def test_p1_rate_limited_post_waits_as_told_and_is_made_once(
    tmp_path: Path, fault: str, wait: float
) -> None:
    clock = LeapClock(5)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        stage.workspace.faults.add("chat.postMessage", fault)
        await stage.ask()
        first, second = (call for call in stage.workspace.calls if call.method == "chat.postMessage")
        assert second.time - first.time >= wait
        assert len(stage.cards()) == 1


async def test_p1_question_of_an_archived_channel_goes_to_the_fallback_and_pages(stage: World) -> None:
    stage.workspace.archive(AGENTS)
    async with stage.bot():
        await stage.emit("rpl_1")
        card = await stage.card("Shall I go on?", FALLBACK)
        assert f"<#{AGENTS}>" in said(card)
        assert "is_archived" in said(await stage.page("could not be posted"))
        await stage.workspace.click(ONCALL, FALLBACK, card.ts, label="Yes")
        await stage.reply()
        await stage.now_says(card, f"<@{ONCALL}>")


async def test_p1_question_of_a_channel_that_the_bot_was_removed_from_moves_on(stage: World) -> None:
    async with stage.bot():
        first = await stage.ask("rpl_1")
        stage.workspace.leave(BOT_USER, AGENTS)
        await stage.emit("rpl_2", question="And now?")
        await stage.card("And now?", FALLBACK)
        # One page for each card, or one for both, whichever comes first.
        words = ("could not be posted", "Escalated: 2 waiting")
        await stage.until(
            lambda: any(each in said(m) for each in words for m in stage.workspace.direct(ONCALL))
        )
        assert first.ts in {card.ts for card in stage.cards()}


async def test_p3_updates_do_not_overtake_each_other(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.faults.add("chat.update", "delay:0.3", times=1)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await stage.says("state.changed", from_state="awaiting_input", to_state="thinking")
        shown = await stage.now_says(card, "the agent has resumed")
        assert f"<@{FOLAKE}>" in said(shown)
        assert controls(shown) == ["Verify"]


@pytest.mark.parametrize("fault", ["accept_then_drop", "5xx:500", "429:0.1"])
async def test_p3_update_that_fails_is_made_again(tmp_path: Path, fault: str) -> None:
    async with scene(tmp_path, clock=LeapClock(10)) as stage, stage.bot():
        card = await stage.ask()
        stage.workspace.faults.add("chat.update", fault, times=2)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        shown = await stage.now_says(card, "Delivered")
        assert f"<@{FOLAKE}>" in said(shown)
        assert controls(shown) == ["Verify"]
        assert len(stage.cards()) == 1


async def test_p1_card_after_its_threads_first_message_was_deleted_opens_the_thread_anew(
    stage: World,
) -> None:
    """Slack posts it into the channel, and says so only by leaving out its `thread_ts`."""
    async with stage.bot():
        first = await stage.ask("rpl_1", **YES_NO)
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.reply("rpl_1")
        stage.workspace.board.delete(stage.workspace.message(AGENTS, first.ts))
        second = await stage.ask("rpl_2", question="Which region?", accepted_response_kinds=["freetext"])
        assert second.thread_ts is None
        await stage.workspace.post(FOLAKE, AGENTS, "eu-west", thread_ts=second.ts)
        assert (await stage.reply("rpl_2"))["response"] == "eu-west"
        third = await stage.ask("rpl_3", question="And then?", **YES_NO)
        assert third.thread_ts == second.ts


@pytest.mark.parametrize(
    "code", ["external_channel_migrating", "ekm_access_denied", "update_failed", "a_code_of_2027"]
)
@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_p1_what_slack_refuses_for_a_while_is_shown_once_it_takes_it(
    tmp_path: Path, code: str, method: str
) -> None:
    async with scene(tmp_path, clock=LeapClock(60)) as stage, stage.bot():
        if method == "chat.postMessage":
            stage.workspace.faults.add(method, f"refuse:{code}", times=3)
        card = await stage.ask(**YES_NO)
        if method == "chat.update":
            stage.workspace.faults.add(method, f"refuse:{code}", times=3)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        shown = await stage.now_says(card, "Delivered")
        assert controls(shown) == ["Verify"]
        assert (len(stage.cards()), stage.workspace.faults.pending()) == (1, False)


async def test_p1_message_that_slack_fails_on_again_and_again_is_sent_more_plainly(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(60)) as stage, stage.bot():
        stage.workspace.faults.add("chat.postMessage", "refuse:internal_error", times=3)
        card = await stage.ask(context="line\n" * 60, **YES_NO)
        posts = [call for call in stage.workspace.calls if call.method == "chat.postMessage"]
        kinds = [{block["type"] for block in call.args["blocks"]} for call in posts]
        assert ["container" in each for each in kinds] == [True, True, True, False]
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False


async def test_p3_card_that_slack_no_longer_lets_us_change_is_decided_in_its_thread(tmp_path: Path) -> None:
    async with scene(tmp_path, clock=LeapClock(10)) as stage, stage.bot():
        card = await stage.ask(**YES_NO)
        stage.workspace.faults.add("chat.update", "refuse:edit_window_closed", times=3)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        below = await stage.until(
            lambda: next(
                (each for each in stage.workspace.thread(AGENTS, card.ts)[1:] if "Answered" in each.text),
                None,
            )
        )
        assert f"Answered: “Yes” by <@{FOLAKE}>" in said(below)


async def test_p4_click_in_flight_when_the_socket_is_cut_counts_once(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.change_user(FOLAKE, real_name="Folake A.")
        await stage.heard("user_change")
        stage.workspace.faults.add("users.info", "delay:0.3")
        click = asyncio.create_task(stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes"))
        await stage.until(lambda: not stage.workspace.faults.pending())  # the bot is asking who it is
        stage.workspace.link.cut()
        assert (await click).ok  # acknowledged over the next connection
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{FOLAKE}>")
    assert len(stage.producer.replies) == 1


async def test_p4_click_that_the_cut_swallowed_is_an_error_to_the_person_and_no_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.workspace.link.reject()
        stage.workspace.link.cut()
        await stage.until(lambda: not stage.workspace.link.connections)
        assert not (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")).ok
        await stage.connected()
        assert stage.record()["status"] == "pending"
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="No")
        assert (await stage.reply())["response"] is False


async def test_p10_replies_made_while_the_socket_was_down_are_answers_when_it_is_back(stage: World) -> None:
    async with stage.bot() as bot:
        card = await stage.ask()
        stage.workspace.link.reject(2)
        stage.workspace.link.cut()
        await stage.until(lambda: not stage.workspace.link.connections)
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        assert (await stage.reply())["response"] is True
        assert stage.workspace.link.refused_upgrades == 2
        assert bot.slack.app.connected


async def test_p10_reply_given_in_time_before_an_outage_wins_over_the_timer(tmp_path: Path) -> None:
    clock = LeapClock(60)
    async with scene(tmp_path, clock=clock) as stage:
        async with stage.bot():
            card = await stage.ask(timeout_seconds=240)
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        clock.leap(timedelta(seconds=240))
        async with stage.bot():
            await stage.now_says(card, f"<@{ADE}>")
        assert stage.record()["aaep"]["response"] is True


async def test_p2_event_that_slack_delivers_again_after_a_restart_changes_nothing(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        mine = await stage.workspace.post(ADE, AGENTS, "go", thread_ts=card.ts)
        await stage.reply()
    async with stage.bot():
        second = await stage.ask("rpl_2", question="And then?", accepted_response_kinds=["freetext"])
        stage.workspace.emit(
            {
                "type": "message",
                "channel": AGENTS,
                "user": ADE,
                "text": "go",
                "ts": mine.ts,
                "thread_ts": card.ts,
                "team": "T0LOCAL",
                "event_ts": mine.ts,
                "channel_type": "channel",
            }
        )
        await stage.workspace.post(FOLAKE, AGENTS, "stop", thread_ts=card.ts)
        assert (await stage.reply("rpl_2"))["response"] == "stop"
        await stage.now_says(second, f"<@{FOLAKE}>")


async def test_p10_card_comes_after_the_connection_when_slack_was_away_at_the_start(tmp_path: Path) -> None:
    """A button that nobody hears looks like one that works."""
    clock = LeapClock(10)
    async with scene(tmp_path, clock=clock) as stage:
        await stage.workspace.refuse_connections()
        starting = asyncio.create_task(start_and_answer(stage))
        await stage.producer.wait_for_subscriber(10)
        await stage.emit("rpl_1")
        await clock.pass_by(40)
        back = clock.seconds()
        await stage.workspace.accept_connections()
        link = stage.workspace.link
        await stage.until(lambda: stage.cards() or link.connections)
        assert link.connections
        assert not stage.cards()
        await starting
        posted = next(
            c.time for c in stage.workspace.calls if c.method == "chat.postMessage" and c.status == 200
        )
        assert posted - back < 15  # some of which a busy machine takes
        assert len(stage.cards()) == 1


async def test_posts_do_not_wait_for_a_connection_that_cannot_be_had(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage:
        stage.workspace.link.reject(1000)
        began = clock.seconds()
        starting = asyncio.create_task(start_and_answer(stage))
        await stage.producer.wait_for_subscriber(10)
        await stage.emit("rpl_1")
        await stage.card("Shall I go on?")
        assert 55 < clock.seconds() - began < 90
        stage.workspace.link.reject(0)
        await starting


async def start_and_answer(stage: World) -> None:
    async with stage.bot():
        card = await stage.card("Shall I go on?")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()


async def test_p10_slack_that_goes_away_is_caught_up_with(tmp_path: Path) -> None:
    clock = LeapClock(20)
    async with scene(tmp_path, clock=clock) as stage, stage.bot():
        stage.slack_waits()  # what nobody acknowledges is sent again after that
        first = await stage.ask("rpl_1", question="First?")
        await stage.workspace.refuse_connections()
        await stage.emit("rpl_2", session="sess_two", question="Second?")
        await until(lambda: 100002 in stage.issues())
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=first.ts)
        await clock.pass_by(50)  # nearly a minute without Slack
        await stage.workspace.accept_connections()
        second = await stage.card("Second?")
        assert (await stage.reply("rpl_1"))["response"] is True
        await stage.connected()
        await stage.workspace.click(FOLAKE, AGENTS, second.ts, label="Yes")
        await stage.reply("rpl_2")
        assert len(stage.cards()) == 2


def event(kind: str, **more: Any) -> dict[str, Any]:
    inner = {"type": kind, "user": ADE, **more}
    return {"type": "event_callback", "team_id": TEAM, "event_id": f"Ev{kind}", "event": inner}


def interaction(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "team": {"id": TEAM}, "user": {"id": ADE, "team_id": TEAM}, **more}


VIEW = {"id": "V1", "type": "modal", "private_metadata": "", "state": {"values": {}}}
BUTTON = {"type": "button", "block_id": "b"}


async def test_every_envelope_is_acknowledged(stage: World) -> None:
    said = {"channel": AGENTS, "ts": "1.0"}
    async with stage.bot() as bot:
        for payload in (
            event("message", **said, text="hello"),
            event("message", **said, subtype="message_changed", message={}),
            event("message", **said, bot_id="B1", subtype="bot_message"),
            event("app_mention", **said),
            event("member_joined_channel", channel=AGENTS),
            event("subteam_updated", subteam={"id": "S1"}),
            event("tokens_revoked"),
            event("something_new"),
            event("function_executed", function={"callback_id": "f"}),
            interaction("block_actions", actions=[BUTTON | {"action_id": "x"}]),
            interaction("block_actions", actions=[BUTTON | {"action_id": "clarify.yes", "value": "9|?"}]),
            interaction("view_submission", view=VIEW | {"callback_id": "other"}),
            interaction("view_submission", view=VIEW | {"callback_id": "clarify.answer"}),
            interaction("shortcut", callback_id="s"),
            interaction("message_action", callback_id="s"),
            interaction("block_suggestion", action_id="x", block_id="b", value=""),
            {"command": "/other", "team_id": TEAM, "user_id": ADE, "text": ""},
        ):
            await bot.slack.app.dispatch(Envelope(payload))


async def test_p4_reply_is_kept_before_it_is_acknowledged_and_counts_once(
    stage: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept, free = asyncio.Event(), asyncio.Event()
    async with stage.bot() as bot:
        card = await stage.ask(accepted_response_kinds=["freetext"])
        memory: Any = bot.slack.app.handlers.conversation.memory
        keep = memory.take_slack_event

        async def full(*_: object) -> bool:
            raise StorageUnavailable("the disk is full")

        async def slowly(*message: Any) -> Any:
            kept.set()
            await free.wait()
            return await keep(*message)

        reply = event(
            "message", channel=AGENTS, ts="1900000000.000100", thread_ts=card.ts, text="a secret plan"
        )
        with monkeypatch.context() as patch, caplog.at_level("DEBUG"):
            patch.setattr(memory, "take_slack_event", full)
            with pytest.raises(Unacknowledged):
                await bot.slack.app.dispatch(Envelope(reply))
            assert "secret plan" not in caplog.text
            patch.setattr(memory, "take_slack_event", slowly)
            again = asyncio.create_task(bot.slack.app.dispatch(Envelope(reply, 1, "timeout")))
            await kept.wait()
            done, _ = await asyncio.wait({again}, timeout=0.05)
            assert not done
            free.set()
            await again
        await bot.slack.app.dispatch(Envelope(reply, 2, "timeout"))
        assert (await stage.reply())["response"] == "a secret plan"
    assert [each["type"] for each in stage.record()["thread"]] == ["question", "answer"]
