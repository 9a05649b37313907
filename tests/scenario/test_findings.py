"""What pages besides silence: circles, deadlocks, errors, refusals, and the bot's own trouble."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.oncall.outside import SlackOutageAlert
from core.clock import iso
from tests.kit.builders import foreign
from tests.kit.until import until
from tests.kit.world import controls, question, said
from tests.scenario.other_parties import change_row
from tests.scenario.pagers import WORDS, Json, Night, night, pager, step
from workspace.seed import AGENTS, ARCHIVED, FALLBACK, FOLAKE, ONCALL
from workspace.state import Message

ORDER = '\n[monitor]\ndeadlock_order = ["architect", "engineer", "reviewer"]\n'


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Night]:
    async with night(tmp_path) as made:
        yield made


async def waits(stage: Night, who: str, for_whom: str, text: str, **agentx: Any) -> None:
    """An agent, in a session of its own, asks another one and waits for the answer."""
    extension = {"issue": 42, "to": for_whom, "topic": text, "blocking": True} | agentx
    event = question(
        f"rpl_{who}",
        session=f"sess_{who}",
        question=text,
        timeout_seconds=36_000,
        producer={"agent_id": who, "agent_name": who.title()},
        extensions={"agentx": extension},
        **WORDS,
    )
    await stage.producer.emit(event)
    await stage.card(text)


def buttons_about(page: Message, clarification: str) -> list[str]:
    """What opens a question on a page: Answer… where it is about that alone, Show among others.

    Pages name other questions, too: each side of a deadlock the other.
    """
    mine = {f"Show {clarification}", *(["Answer…"] if f"waiting · {clarification}." in page.text else [])}
    return [label for label in controls(page) if label in mine]


async def page_about(stage: Night, clarification: str, *texts: str) -> Message:
    """The newest page to the one on call from which a question can be answered; how alike ones are grouped is
    nobody's business.
    """

    def find() -> Message | None:
        return next(
            (
                page
                for page in reversed(stage.pages())
                if buttons_about(page, clarification) and all(text in said(page) for text in texts)
            ),
            None,
        )

    found: Message = await stage.until(find)
    return found


async def answered_from_a_page(stage: Night, clarification: str, answer: str) -> None:
    """Answer in words on whichever page is about it."""
    page = await page_about(stage, clarification)
    await stage.press(page, buttons_about(page, clarification)[0])
    await stage.modal(ONCALL)
    outcome = await stage.workspace.submit_view(ONCALL, {"Your answer": answer})
    assert outcome.ok, outcome


def statuses(stage: Night, issue: int) -> list[str]:
    return [record["status"] for record in stage.ledger(issue)["clarifications"]]


async def test_p7_deadlock_of_two_agents_is_escalated_downstream_and_answered_from_the_page(
    stage: Night,
) -> None:
    async with stage.bot(stage.config(more=ORDER)):
        await waits(stage, "architect", "engineer", "How much memory does a node have?")
        await waits(stage, "engineer", "architect", "Which database shall we take?")
        page = await page_about(
            stage, "CLR-42-002", "Which database shall we take?", "waiting for each other"
        )
        assert "How much memory does a node have?" in page.text  # the other one's position
        assert statuses(stage, 42) == ["pending", "escalated"]  # the most upstream goes on waiting
        await answered_from_a_page(stage, "CLR-42-002", "The small one")
        assert (await stage.reply("rpl_engineer"))["response"] == "The small one"
    assert statuses(stage, 42) == ["pending", "resolved"]


async def test_p7_agents_that_ask_each_other_the_same_reach_a_human_with_both_questions(stage: Night) -> None:
    async with stage.bot(stage.config(more=ORDER)):
        same = {"topic": "Which database holds the audit log", "blocking": False}
        await waits(stage, "architect", "engineer", "Where do you want to put the audit log?", **same)
        await waits(stage, "engineer", "architect", "Where does the audit log go?", **same)
        await page_about(stage, "CLR-42-001", "Where do you want to put the audit log?")
        await page_about(stage, "CLR-42-002", "Where does the audit log go?")
        assert statuses(stage, 42) == ["escalated", "escalated"]
        words = [record["thread"][-1]["body"] for record in stage.ledger(42)["clarifications"]]
        assert all("keep asking each other the same question" in each for each in words)
        await answered_from_a_page(stage, "CLR-42-001", "Postgres")
        await answered_from_a_page(stage, "CLR-42-002", "Postgres, too")
        assert (await stage.reply("rpl_architect"))["response"] == "Postgres"
        assert (await stage.reply("rpl_engineer"))["response"] == "Postgres, too"


def circle(stage: Night, agents: Sequence[str], issue: int) -> Json:
    """A ledger as another implementation writes it: each agent waits for the next, the last for the first."""
    now = stage.clock.now()
    times = {"created": iso(now), "staleAfter": iso(now + timedelta(hours=8)), "blocking": True}
    pairs = zip(agents, [*agents[1:], agents[0]], strict=True)
    records = [
        foreign(issue, number, f"What does {whom} say?", **(times | {"from": who, "to": whom, "topic": who}))
        for number, (who, whom) in enumerate(pairs, start=1)
    ]
    return {"issueNumber": issue, "clarifications": records}


@pytest.mark.needs("ledgerfiles")
async def test_p7_circle_of_three_in_the_ledger_of_another_implementation_is_answered_from_the_page(
    stage: Night,
) -> None:
    async with stage.bot(stage.config(more=ORDER)):
        ledger = circle(stage, ("architect", "engineer", "reviewer"), 77)
        stage.write_ledger(77, ledger)
        await page_about(stage, "CLR-77-002", "What does reviewer say?")
        await page_about(stage, "CLR-77-003", "What does architect say?")
        assert statuses(stage, 77) == ["pending", "escalated", "escalated"]
        await answered_from_a_page(stage, "CLR-77-003", "Go ahead without it")
        await answered_from_a_page(stage, "CLR-77-002", "You, too")
        await until(lambda: statuses(stage, 77) == ["pending", "resolved", "resolved"])
    entry = next(e for e in stage.record(77, 2)["thread"] if e["type"] == "answer")
    assert (entry["body"], ONCALL in entry["from"]) == ("Go ahead without it", True)


async def test_p7_question_that_was_answered_and_comes_again_is_stuck(stage: Night) -> None:
    async with stage.bot(stage.config()):
        asked = "Which region shall the backup of the customers' data go to?"
        first = await stage.ask("rpl_1", question=asked, **WORDS)
        await stage.workspace.post(FOLAKE, AGENTS, "To Frankfurt", thread_ts=first.ts)
        await stage.now_says(first, "Delivered")
        await stage.emit("rpl_2", question=asked, **WORDS)
        page = await stage.live("This question was already answered in this session (CLR-100001-001)")
        assert asked in page.text
        await answered_from_a_page(stage, "CLR-100001-002", "Frankfurt, as said")
        assert (await stage.reply("rpl_2"))["response"] == "Frankfurt, as said"


async def test_p7_question_out_of_rounds_reaches_a_human_with_both_positions(stage: Night) -> None:
    topic = {"agentx": {"topic": "Rollout"}}

    async with stage.bot(stage.config()):
        first = await stage.ask("rpl_1", question="May I roll out?", extensions=topic)
        change_row(stage, lambda record: record.update(maxRounds=1))
        stage.producer.lose_next_response()
        await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
        await stage.now_says(first, "Sent, but not confirmed")
        await stage.emit("rpl_2", question="To every customer at once?", extensions=topic, **WORDS)
        page = await stage.live("To every customer at once?")
        for words in ("Rounds exhausted", "Topic: “Rollout”", "answered: “Yes”"):
            assert words in page.text, words
        await answered_from_a_page(stage, "CLR-100001-001", "One by one")
        assert (await stage.reply("rpl_2"))["response"] == "One by one"


@pytest.mark.parametrize(("category", "paged"), [("network", True), ("quota", False)])
async def test_errors_page_by_the_categories_that_are_configured(
    stage: Night, category: str, paged: bool
) -> None:
    async with stage.bot(stage.config(more='\n[monitor]\npage_errors = ["network"]\n')):
        await stage.says(
            "session.errored", urgency="critical", summary_normal="Boom", error_category=category
        )
        await stage.message("Boom")
        if not paged:
            await stage.ask(session="sess_two", timeout_seconds=36_000)
            await stage.escalate()
            await stage.live("Shall I go on?")  # what would have been paged is there before this page
            assert not [page for page in stage.pages() if "Boom" in said(page)]
            return
        page = await stage.live("Planner: session ended with an error")
        assert (f"Error category {category}" in page.text, "Boom" in page.text) == (True, True)
        await stage.press(page, "Take")
        await stage.becomes(page, f"Seen by <@{ONCALL}>", "closed", without=["Take"])


async def test_p1_card_that_moved_to_the_fallback_channel_is_paged_and_answered_from_the_page(
    stage: Night,
) -> None:
    stage.workspace.archive(AGENTS)
    async with stage.bot(stage.config()):
        await stage.emit("rpl_1")
        card = await stage.card("Shall I go on?", FALLBACK)
        page = await stage.live("could not be posted")
        assert ("is_archived" in page.text, "Shall I go on?" in page.text) == (True, True)
        await stage.press(page, "Yes")
        assert (await stage.reply())["response"] is True
        await stage.becomes(card, f"<@{ONCALL}>", without=["Yes"])


async def test_p1_question_that_can_be_shown_nowhere_is_answered_from_the_page_that_holds_it(
    stage: Night,
) -> None:
    stage.workspace.archive(AGENTS)
    async with stage.bot(stage.config(fallback=ARCHIVED)) as bot:
        await stage.emit("rpl_1", question="Does anybody hear me?", context="It is dark", **WORDS)
        await stage.live("Does anybody hear me?", wants=())
        await stage.later(bot, seconds=6)  # alike pages are held back for five
        page = await stage.live("could not be shown anywhere", wants=["Answer…", "Take"])
        for words in ("Does anybody hear me?", "It is dark", "is_archived"):
            assert words in page.text, words
        await stage.press(page, "Answer…")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, {"Your answer": "I do"})).ok
        assert (await stage.reply())["response"] == "I do"
    assert not stage.cards()


def pages(stage: Night) -> list[Message]:
    """The direct messages to who is on call, without those about the channels themselves."""
    return [each for each in stage.pages() if "clarify.toml" not in said(each)]


async def test_p12_question_that_can_be_shown_nowhere_and_is_escalated_has_one_page(stage: Night) -> None:
    stage.workspace.archive(AGENTS)
    async with stage.bot(stage.config(step("0s", "dm", every="5m"), fallback=ARCHIVED)) as bot:
        await stage.emit("rpl_1", timeout_seconds=36_000)
        await stage.live("could not be", wants=())
        await stage.later(bot, seconds=6)  # alike pages are held back for five
        await stage.live("could not be shown anywhere")
        await stage.escalate()
        await stage.live("is waiting", wants=["Yes", "Take"])
        await stage.until(lambda: len(pages(stage)) == 1)
        (page,) = pages(stage)
        await stage.later(bot, minutes=6)  # what could not be shown is due again, and so is the question
        again = await stage.live("is waiting", but=[page.ts])
        await stage.until(lambda: pages(stage) == [again])
        await stage.press(again, "Yes")
        assert (await stage.reply())["response"] is True


@pytest.mark.needs("ledgerfiles")
@pytest.mark.files("what cannot be read is set aside under another name")
async def test_ledger_that_cannot_be_read_is_paged_with_its_name(stage: Night) -> None:
    async with stage.bot(stage.config()):
        (stage.folder / "ledgers" / "issue-7.json").write_text('{"issueNumber": 7, "clarif')
        page = await stage.live("The ledger of issue 7 cannot be read")
        assert "issue-7.json.unreadable" in page.text
        card = await stage.ask()  # the others go on
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        await stage.reply()
        await stage.press(page, "Take")
        await stage.becomes(page, f"Seen by <@{ONCALL}>", without=["Take"])


async def test_record_that_cannot_be_read_is_paged_once_and_the_others_go_on(stage: Night) -> None:
    async with stage.bot(stage.config()):
        await stage.ask()
    assert stage.changed("update clarifications set body = '{'") == 1
    for token in ("rpl_2", "rpl_3"):
        async with stage.bot():
            page = await stage.live("CLR-100001-001 cannot be read")
            card = await stage.ask(token, session=token, question=f"Shall {token} go on?")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
            await stage.reply(token)
    assert [each for each in pages(stage) if "cannot be read" in said(each)] == [page]


@pytest.mark.needs("apprise")
async def test_slack_out_of_reach_is_told_outside_once_and_its_return_too(
    stage: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.app.SlackOutageAlert", partial(SlackOutageAlert, patience=0.0, every=1.0))
    async with pager() as outside:
        stage.environ["PAGER_URL"] = outside.url
        async with stage.bot(stage.config(step("0s", "dm"), step("15m", "apprise:PAGER_URL"))) as bot:
            stage.workspace.faults.add("*", "5xx:503", times=100_000)
            stage.clock.leap(timedelta(seconds=2))
            told = await outside.says("cannot reach Slack")
            assert "Nothing is lost" in told["message"]
            stage.clock.leap(timedelta(seconds=2))
            stage.workspace.faults.clear()
            stage.clock.leap(timedelta(seconds=2))
            await outside.says("reaches Slack again")
            assert not bot.slack_outage.is_raised
    assert len(outside.told) == 2
    assert outside.url.rpartition("/")[2] not in outside.words()
