"""Many questions at once, and questions that are too large for one message (promise P8)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.kit.world import World, config, controls, question, said, url_of
from workspace.controls import controls as found_controls
from workspace.seed import ADE, AGENTS, FOLAKE, GIO
from workspace.state import Message, View

LIMIT = 20


def open_cards(stage: World) -> list[Message]:
    return [card for card in stage.cards() if not {*controls(card)} <= {"View full", "Verify"}]


def rollup(stage: World) -> Message | None:
    return next((m for m in stage.workspace.messages(AGENTS) if "Show all" in controls(m)), None)


async def flood(stage: World, count: int) -> None:
    for n in range(count):
        await stage.emit(
            f"rpl_{n}", session=f"sess_{n}", question=f"Question number {n:02d}?", timeout_seconds=5000 - n
        )
    await stage.until(lambda: len(open_cards(stage)) == LIMIT and rollup(stage))
    await stage.until(lambda: f"{count - LIMIT} open questions" in said(rollup(stage) or stage.cards()[0]))


async def test_p1_fifty_questions_are_twenty_cards_and_one_roll_up(stage: World) -> None:
    async with stage.bot():
        await flood(stage, 50)
        card = rollup(stage)
        assert card is not None
        assert "30 open questions" in card.text
        assert "<!date^" in said(card)
        assert controls(card).count("Answer…") == 5
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Show all")
        view = await stage.modal(FOLAKE)
        seen = listed(view)
        assert "50 open questions · page 1 of 3" in json.dumps(view.payload, ensure_ascii=False)
        for page in (2, 3):
            await stage.workspace.click_in_view(FOLAKE, label="Next")
            view = await stage.until(
                lambda page=page: next(  # type: ignore[misc]
                    (v for v in stage.workspace.views(FOLAKE) if f"page {page} of 3" in str(v.payload)), None
                )
            )
            seen += listed(view)
        assert sorted(seen) == [f"“Question number {n:02d}?”" for n in range(50)]
        # A guest who answers there is refused on top of it.
        await stage.workspace.click(GIO, AGENTS, card.ts, label="Show all")
        await stage.modal(GIO)
        await stage.workspace.click_in_view(GIO, label="Answer CLR-100050-001")
        refusal = await stage.until(lambda: stage.workspace.views(GIO)[1:])
        assert "guest" in str(refusal[0].payload["blocks"])


def listed(view: View) -> list[str]:
    texts = [str(block.get("text", {}).get("text", "")) for block in view.payload["blocks"]]
    return [text.split(": ", 1)[1] for text in texts if "Question number" in text]


async def test_many_clicks_at_once_are_acknowledged_before_anybody_else_is_told(
    stage: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.base._ACTS_AT_ONCE", 2)
    told_before = []

    async def press(card: Message) -> None:
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")).ok
        updates = [call for call in stage.workspace.calls if call.method == "chat.update"]
        told_before.append(len(stage.producer.replies) + len(updates))

    async with stage.bot():
        for n in range(LIMIT):
            await stage.emit(f"rpl_{n}", session=f"sess_{n}", question=f"Question number {n:02d}?")
        cards = await stage.until(lambda: len(open_cards(stage)) == LIMIT and open_cards(stage))
        await asyncio.gather(*(press(card) for card in cards))
        assert told_before[:-4] == [0] * (
            LIMIT - 4
        )  # the last are on their way to Slack with the first replies
        await stage.until(lambda: len(stage.producer.replies) == LIMIT)
        await stage.until(lambda: not open_cards(stage))


async def test_p1_question_in_the_roll_up_is_answered_from_it_and_its_place_is_filled(stage: World) -> None:
    async with stage.bot():
        await flood(stage, 23)
        card = rollup(stage)
        assert card is not None
        await answer_first_row(stage, card)
        shown = await stage.until(lambda: "2 open questions" in said(rollup(stage) or card) and rollup(stage))
        assert len(open_cards(stage)) == LIMIT
        first = open_cards(stage)[0]
        await stage.workspace.click(ADE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, f"<@{ADE}>")
        await stage.until(lambda: "1 open question" in said(stage.workspace.message(AGENTS, shown.ts)))
        await stage.until(lambda: len(open_cards(stage)) == LIMIT)


async def answer_first_row(stage: World, card: Message) -> None:
    button = next(c for c in found_controls(card.blocks) if c.element["text"]["text"] == "Answer…")
    await stage.workspace.click(FOLAKE, AGENTS, card.ts, button.action_id)
    await stage.modal(FOLAKE)
    assert (await stage.workspace.submit_view(FOLAKE, {"Yes or no": "Yes"})).ok
    await stage.until(lambda: len(stage.producer.replies) == 1)


@pytest.mark.either_database
async def test_reply_in_the_thread_of_a_roll_up_answers_what_it_holds(stage: World) -> None:
    async with stage.bot():
        await flood(stage, 22)
        card = rollup(stage)
        assert card is not None
        held = {f"rpl_{n}" for n in range(22)} - {token_of(stage, shown) for shown in open_cards(stage)}
        await stage.level()
        for bot in stage.bots:  # whichever of them a reply comes to
            questions = await bot.slack.app.backfill.threads.asked_in(AGENTS, card.ts)
            assert {each.asked.reply_token for each in questions} == held
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        asked = await stage.message("Which question is this an answer to?")
        assert asked.thread_ts == card.ts
        assert len(controls(asked)) == len(held) == 2
        await stage.workspace.click(ADE, AGENTS, asked.ts, label=controls(asked)[0])
        reply = await stage.until(lambda: next(iter(stage.producer.replies), None))
        assert reply["response"] is True
        assert reply["reply_token"] in held
        await stage.until(lambda: "1 open question" in said(stage.workspace.message(AGENTS, card.ts)))
        await stage.workspace.post(ADE, AGENTS, "hm", thread_ts=card.ts)
        await stage.whisper(ADE, "I couldn't read that as an answer")
        await stage.workspace.post(FOLAKE, AGENTS, "no", thread_ts=card.ts)
        await stage.until(lambda: len(stage.producer.replies) == 2)
        assert stage.producer.replies[-1]["reply_token"] in held
        await stage.until(lambda: "no open questions" in said(stage.workspace.message(AGENTS, card.ts)))
        await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
        await stage.whisper(ADE, "No question is open in this thread")
        assert len(stage.producer.replies) == 2


async def test_p10_reply_to_a_roll_up_written_while_the_bot_was_down_is_asked_about(stage: World) -> None:
    async with stage.bot():
        await flood(stage, 22)
        card = rollup(stage)
        assert card is not None
    await stage.workspace.post(ADE, AGENTS, "yes", thread_ts=card.ts)
    async with stage.bot():
        asked = await stage.message("Which question is this an answer to?")
        assert asked.thread_ts == card.ts
        assert len(controls(asked)) == 2


def token_of(stage: World, card: Message) -> str:
    """The reply token of the question that a card shows."""
    clarification = (card.metadata or {})["event_payload"]["clarification"]
    record = stage.record(int(clarification.split("-")[1]))
    return str(record["aaep"]["replyToken"])


async def test_p2_flood_survives_a_restart_without_another_card(stage: World) -> None:
    async with stage.bot():
        await flood(stage, 24)
    before = [message.ts for message in stage.workspace.messages(AGENTS)]
    async with stage.bot():
        assert [message.ts for message in stage.workspace.messages(AGENTS)] == before
        card = rollup(stage)
        assert card is not None
        assert "4 open questions" in said(card)
        for shown in open_cards(stage):
            await stage.workspace.click(FOLAKE, AGENTS, shown.ts, label="No")
        await stage.until(lambda: len(open_cards(stage)) == 4)
        await stage.until(lambda: "no open questions" in said(stage.workspace.message(AGENTS, card.ts)))
        for shown in open_cards(stage):
            await stage.workspace.click(FOLAKE, AGENTS, shown.ts, label="No")
        await stage.until(lambda: len(stage.producer.replies) == 24)


LONG = " ".join(f"word{n:05d}" for n in range(1638)) + " end!"  # 16384 characters
CHOICES = [{"value": f"value-{n}", "label": f"Choice {n} " + "of long words " * 9} for n in range(32)]


async def test_p8_largest_question_is_read_in_full_and_answered(stage: World) -> None:
    async with stage.bot():
        await stage.emit(
            "rpl_1", question=LONG, choices=CHOICES, accepted_response_kinds=["multiple_choice", "freetext"]
        )
        card = await stage.card("word00000")
        await stage.until(
            lambda: "end!" in told(stage, card) and CHOICES[-1]["label"].strip() in told(stage, card)
        )
        in_thread = told(stage, card)
        assert [word for word in LONG.split() if word not in in_thread] == []
        assert all(choice["label"].strip() in in_thread for choice in CHOICES)
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="View full")
        view = json.dumps((await stage.modal(FOLAKE)).payload)
        assert all(word in view for word in LONG.split())
        menu = next(c for c in found_controls(card.blocks) if c.kind == "static_select")
        option = menu.element["options"][31]["text"]["text"]
        await stage.workspace.select(FOLAKE, AGENTS, card.ts, "Choose an answer", option)
        assert (await stage.reply())["response"] == "value-31"
        assert "Choice 31" in said(await stage.now_says(card, f"<@{FOLAKE}>"))


def told(stage: World, card: Message) -> str:
    """All that a thread says as text."""
    return "".join(message.text for message in stage.workspace.thread(AGENTS, card.ts))


async def test_p8_text_of_an_agent_is_inert_everywhere(stage: World) -> None:
    live = "<!channel> <@U0ADE> <https://evil.example|click> *bold* `code` & @here #random"
    fields: dict[str, Any] = {
        "question": live,
        "context": live,
        "default_response": live,
        "choices": [{"value": "a", "label": live}, {"value": "b", "label": "Plain"}],
        "accepted_response_kinds": ["multiple_choice", "freetext"],
    }
    async with stage.bot():
        await stage.producer.emit(question("rpl_1", **fields))
        card = await stage.until(lambda: next(iter(stage.cards()), None))
        await stage.says("session.errored", urgency="critical", summary_normal=live, remediation_hint=live)
        await stage.message("stopped with an error")
        await stage.page("ended with an error")
        everything = [*stage.workspace.messages(AGENTS), *stage.workspace.direct("U0ONCALL")]
        for message in everything:
            assert "<!channel>" not in message.text
            assert "<https://evil" not in message.text
            assert not message.mrkdwn
            assert not list(live_parts(message.blocks))
        assert card


def live_parts(item: Any) -> list[str]:
    """Markup objects that hold what the agent said."""
    if isinstance(item, dict):
        own = [item["text"]] if item.get("type") == "mrkdwn" and "evil" in str(item.get("text")) else []
        return own + [found for value in item.values() for found in live_parts(value)]
    return [found for each in item for found in live_parts(each)] if isinstance(item, list) else []


FLOODS = """
[[producers]]
name = "flood"
token_env = "FLOOD_TOKEN"

[[producers]]
name = "treasurer"
token_env = "TREASURER_TOKEN"
"""


async def test_what_is_asked_and_withdrawn_again_and_again_holds_nobody_up(stage: World) -> None:
    """Dead questions are not posted; a flood of live ones gives way to another producer's."""
    stage.environ |= {"FLOOD_TOKEN": "flood-token", "TREASURER_TOKEN": "treasurer-token"}
    async with (
        stage.bot(config(stage.producer.url, pace=2.0, more=FLOODS)) as bot,
        httpx.AsyncClient(
            base_url=url_of(bot), headers={"Authorization": "Bearer flood-token"}, timeout=60
        ) as flood,
        httpx.AsyncClient(
            base_url=url_of(bot), headers={"Authorization": "Bearer treasurer-token"}, timeout=60
        ) as other,
    ):
        dead = await asked_by(flood, "Dead", 40)
        for each in dead:
            assert (await flood.delete(f"/questions/{each}")).status_code == 200
        await asked_by(flood, "Live", 40)
        await stage.until(lambda: any("Live" in said(each) for each in stage.cards()))
        before = len(stage.cards())
        urgent = {"action": "Wire the money", "risk": "high", "timeout": 45}
        assert (await other.post("/questions", json=urgent)).status_code == 201
        await stage.card("Wire the money", timeout=20)
        assert len(stage.cards()) - before <= 3
        assert sum("Dead" in said(each) for each in stage.cards()) <= 5  # posted while they were withdrawn


async def asked_by(http: httpx.AsyncClient, words: str, count: int) -> list[str]:
    """So many questions, each of an agent of its own and to be answered soon; their ids."""
    asked = [
        {"question": f"{words} {number}?", "kind": "yes_no", "agent": f"agent-{number}", "timeout": 40}
        for number in range(count)
    ]
    answers = await asyncio.gather(*(http.post("/questions", json=each) for each in asked))
    return [answer.json()["id"] for answer in answers]
