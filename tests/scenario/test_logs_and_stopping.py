"""Promise P9, and the order of stopping, with the real process."""

from __future__ import annotations

import asyncio

from tests.kit.lives import Life
from tests.kit.world import World, config
from workspace.seed import ADE, AGENTS, APP_TOKEN, BOT_TOKEN, FOLAKE, GIO

SECRETS = (
    "Zanzibar",
    "quetzal",
    "rpl_hidden",
    "marzipan",
    "kumquat",
    BOT_TOKEN,
    APP_TOKEN,
    "bearer-of-planner",
)


async def test_p9_neither_questions_nor_answers_nor_tokens_are_in_logs_or_metadata(stage: World) -> None:
    text = config(stage.producer.url).replace(
        'dialect = "auto"', 'dialect = "auto"\ntoken_env = "PLANNER_TOKEN"'
    )
    stage.configure(text)
    async with Life.of(stage, env={"PLANNER_TOKEN": "bearer-of-planner"}) as life:
        kinds = ["yes_no", "freetext"]
        await stage.emit(
            "rpl_hidden_1", question="Zanzibar?", context="quetzal", accepted_response_kinds=kinds
        )
        card = await stage.card("Zanzibar?")
        await stage.workspace.post(GIO, AGENTS, "marzipan from a guest", thread_ts=card.ts)
        await stage.whisper(GIO, "cannot answer")
        stage.producer.refuse_next(500)
        stage.producer.lose_next_response()
        await stage.workspace.post(ADE, AGENTS, "marzipan, please", thread_ts=card.ts)
        await stage.reply("rpl_hidden_1")
        await stage.now_says(card, "Sent, but not confirmed")
        await stage.producer.emit_raw(
            '{"type": "aaep:agent.session.errored", "x": "kumquat', event_id="evt_bad"
        )
        await stage.page("could not be read")
        await stage.emit(
            "rpl_hidden_2",
            question="Zanzibar again?",
            session="sess_two",
            accepted_response_kinds=["kumquat"],
        )
        second = await stage.card("Zanzibar again?")
        stage.producer.refuse_next(400)
        await stage.workspace.click(FOLAKE, AGENTS, second.ts, label="Answer…")
        await stage.modal(FOLAKE)
        await stage.workspace.submit_view(FOLAKE, {"Your answer": "marzipan"})
        await stage.now_says(second, "refused")
        assert await life.stop() == 0
    log = life.words()
    assert "clarification" in log
    assert [secret for secret in SECRETS if secret in log] == []
    metadata = [str(message.metadata) for message in stage.workspace.messages(AGENTS)]
    assert [secret for secret in SECRETS for each in metadata if secret in each] == []
    kept = str([stage.ledger(issue) for issue in stage.issues()])
    assert [token for token in (BOT_TOKEN, APP_TOKEN, "bearer-of-planner") if token in kept] == []


async def test_p4_click_in_flight_at_sigterm_is_finished_and_acknowledged(stage: World) -> None:
    async with Life.of(stage) as life:
        card = await stage.ask()
        stage.workspace.change_user(FOLAKE, real_name="Folake A.")
        await stage.heard("user_change")
        stage.workspace.faults.add("users.info", "delay:0.5")
        click = asyncio.create_task(stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes"))
        await stage.until(lambda: not stage.workspace.faults.pending())
        life.process.terminate()
        assert (await click).ok
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, f"<@{FOLAKE}>")
        assert await life.process.wait() == 0


async def test_stopped_bot_leaves_its_subscription_open_while_a_question_waits(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        assert len(stage.producer.subscriptions) == 1
    assert len(stage.producer.subscriptions) == 1
    async with stage.bot():
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await stage.now_says(card, "Delivered")


async def test_p4_reply_that_is_still_owed_at_the_stop_is_taken_after_it(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask()
        stage.producer.refuse_next(503, headers={"Retry-After": "3600"})
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.now_says(card, "Sending to the agent")
    assert not stage.producer.replies
    assert stage.producer.subscriptions  # a closed one would be a timeout to the producer
    async with stage.bot():
        assert (await stage.reply())["response"] is True
        await stage.now_says(card, "Delivered")
