"""What agents ask each other, in Slack: cards for the people of a role, in threads of their own, whoever wrote them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

import clarify
from bot.routing import Audiences
from bot.show.messages import owe_card
from bot.signing import KEY_FILE, KeyPlace
from bot.storage.ledger import DatabaseLedger
from bot.storage.opening import open_storage
from core.clarification import Answer, Clarification, Decider
from core.clock import SystemClock, iso
from core.ledger import Ledger
from core.router import Router
from tests.kit.builders import asking, foreign
from tests.kit.world import World, config, controls, said
from tests.scenario.other_parties import another_writes
from workspace.seed import ADE, AGENTS, BOT_USER, FALLBACK, FOLAKE, GIO, USE_AS_ANSWER
from workspace.state import Channel, Message

ARCHITECTS = "C0ARCHITECTS"
ROLES = f"""
[responders.architect]
people = ["{ARCHITECTS}", "{ADE}"]

[responders.security]
command = ["false"]
"""
SHELL = Decider("user:os/root@build-7", "shell")


class Elsewhere:
    """Another process: its own locks, the same ledgers."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.router = Router(self.ledger, SystemClock(), timedelta(minutes=30), lambda _: None)

    async def asks(
        self, question: str = "Which database?", to: str = "architect", **more: Any
    ) -> Clarification:
        fields: dict[str, Any] = {"topic": "storage", "blocking": True, "via": "shell"}
        wanted = asking(
            agent_id="engineer",
            question=question,
            to=to,
            received_at=datetime.now(UTC),
            **(fields | more),
        )
        return (await self.router.open(42, wanted)).record

    async def answers(self, asked: Clarification, text: str = "SQLite", by: Decider = SHELL) -> Clarification:
        return await self.router.answer(asked.id, lambda _: Answer(text, text), by, datetime.now(UTC))


@asynccontextmanager
async def elsewhere(stage: World, *, is_configured: bool = True) -> AsyncIterator[Elsewhere]:
    store = await open_storage(stage.rows, beside=True)
    try:
        ledger = DatabaseLedger(store)
        if is_configured:
            ledger.owes = partial(owe_card, Audiences(stage._settings(configured(stage))))
        yield Elsewhere(ledger)
    finally:
        await store.close()


@pytest.fixture
def stage(stage: World) -> World:
    members = [FOLAKE, ADE, GIO, BOT_USER]
    stage.workspace.add_channel(Channel(ARCHITECTS, "architects", members, created=1))
    return stage


def configured(stage: World, more: str = ROLES) -> str:
    return config(stage.producer.url, more=more)


async def test_question_to_a_role_of_people_is_a_card_in_their_channel_for_them_alone(stage: World) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        asked = await other.asks()
        card = await stage.card("Which database?", ARCHITECTS)
        assert said(card).count("engineer asks architect") == 2  # also where only the text is read
        assert controls(card) == ["Answer…", "Take"]

        await stage.workspace.post(FOLAKE, ARCHITECTS, "PostgreSQL", thread_ts=card.ts)
        assert f"<@{ADE}>" in (await stage.whisper(FOLAKE, "cannot answer")).text
        await stage.workspace.click(FOLAKE, ARCHITECTS, card.ts, label="Answer…")
        await stage.until(lambda: len(stage.workspace.ephemerals(FOLAKE)) == 2)
        assert stage.record(42)["status"] == "pending"

        await stage.workspace.click(ADE, ARCHITECTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        assert (await stage.workspace.submit_view(ADE, {"Your answer": "SQLite"})).ok
        settled = await stage.now_says(card, f"by <@{ADE}>")
        assert controls(settled) == ["View full", "Verify"]
        assert (await other.ledger.find(asked.id)).given.label == "SQLite"
    assert not stage.cards(AGENTS)


async def test_p1_question_has_its_card_though_whoever_asked_knew_of_no_people(stage: World) -> None:
    """Such as the shell in a folder without clarify.toml, or a bot whose file named others."""
    async with stage.bot(configured(stage)), elsewhere(stage, is_configured=False) as other:
        await other.asks()
        await stage.card("Which database?", ARCHITECTS)
    async with elsewhere(stage, is_configured=False) as other:
        await other.asks("Who may read it?", to="security")
    async with stage.bot(
        configured(stage, ROLES.replace('command = ["false"]', f'people = ["{ARCHITECTS}"]'))
    ):
        await stage.card("Who may read it?", ARCHITECTS)


async def test_follow_up_is_a_card_in_the_same_thread_and_a_reply_there_answers_it(stage: World) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        asked = await other.asks()
        first = await stage.card("Which database?", ARCHITECTS)
        await stage.workspace.post(ADE, ARCHITECTS, "SQLite", thread_ts=first.ts)
        await stage.now_says(first, "Answered: “SQLite”")
        again = await other.asks("Which version of it?")
        assert (again.id, again.round) == (asked.id, 2)
        second = await stage.card("Which version of it?", ARCHITECTS)
        assert (second.thread_ts, second.broadcast) == (first.ts, True)

        message = await stage.workspace.post(ADE, ARCHITECTS, "Three", thread_ts=first.ts)
        await stage.now_says(second, "Answered: “Three”")
        assert message is not None
        await other.asks("Really?")
        await stage.card("Really?", ARCHITECTS)
        outcome = await stage.workspace.shortcut(ADE, USE_AS_ANSWER, message.ts, ARCHITECTS)
        assert outcome.ok
        await stage.until(lambda: stage.record(42)["status"] == "answered")
    assert len(stage.cards(ARCHITECTS)) == 3


async def test_round_that_ended_while_the_key_was_unreadable_has_its_receipt_though_the_next_one_began(
    stage: World,
) -> None:
    (stage.folder / KEY_FILE).write_text("scrambled")
    async with stage.bot(configured(stage)) as bot, elsewhere(stage) as other:
        await other.asks()
        card = await stage.card("Which database?", ARCHITECTS)
        await stage.workspace.post(ADE, ARCHITECTS, "SQLite", thread_ts=card.ts)
        await stage.until(lambda: stage.record(42)["status"] == "answered")
        await other.asks("Which version of it?")
        await stage.card("Which version of it?", ARCHITECTS)
        (stage.folder / KEY_FILE).unlink()
        KeyPlace(stage.folder / KEY_FILE).read(create=True)
        await stage.until(lambda: "receipt" in stage.record(42)["aaep"]["earlier"][0])
        await stage.workspace.post(ADE, ARCHITECTS, "Three", thread_ts=card.ts)
        await stage.until(lambda: "receipt" in stage.record(42)["aaep"])
        assert bot.signing is not None
        asked = stage.record(42)["aaep"]
        found = [
            clarify.verify(each["receipt"], keys=bot.signing.jwks) for each in (asked["earlier"][0], asked)
        ]
        assert [(each.claims["jti"], each.claims["answer"]) for each in found] == [
            ("CLR-42-001/1", "SQLite"),
            ("CLR-42-001/2", "Three"),
        ]
        assert not await bot.ledger.is_tampered(await bot.ledger.find("CLR-42-001"))


async def test_restart_shows_no_card_twice_and_takes_what_was_replied_meanwhile(stage: World) -> None:
    async with elsewhere(stage) as other:
        async with stage.bot(configured(stage)):
            await other.asks()
            card = await stage.card("Which database?", ARCHITECTS)
            unasked = await other.asks("And the cache?", topic="cache")
            cache = await stage.card("And the cache?", ARCHITECTS)
        await stage.workspace.post(ADE, ARCHITECTS, "SQLite", thread_ts=card.ts)
        await other.answers(unasked, "none")
        await other.asks("While nobody looked?", topic="other")
        async with stage.bot(configured(stage)):
            await stage.now_says(card, "Answered: “SQLite”")
            await stage.now_says(cache, "Answered: “none”")
            await stage.card("While nobody looked?", ARCHITECTS)
        async with stage.bot(configured(stage)):
            pass
    assert len(stage.cards(ARCHITECTS)) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("answer", ("by user:os/root@build-7", "Answered: “SQLite”")),
        ("agent", ("by agent:architect", "Answered: “SQLite”")),
        ("abandon", ("Closed without an answer", "By user:os/root@build-7")),
        ("escalate", ("Escalated. AGENT_ERROR: architect did not answer within 2 s.",)),
    ],
)
async def test_what_another_process_did_is_shown_on_the_card(
    stage: World, change: str, words: tuple[str, ...]
) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        asked = await other.asks()
        card = await stage.card("Which database?", ARCHITECTS)
        reason = "AGENT_ERROR: architect did not answer within 2 s."
        do: dict[str, Callable[[], Awaitable[Clarification]]] = {
            "answer": lambda: other.answers(asked),
            "agent": lambda: other.answers(asked, by=Decider("agent:architect", "responder")),
            "abandon": lambda: other.router.abandon(asked.id, SHELL),
            "escalate": lambda: other.router.escalate(asked.id, "agent failed", f"{reason}\nTopic: storage"),
        }
        await do[change]()
        shown = await stage.now_says(card, words[0])
        for word in words:
            assert word in shown.text or word in said(shown)
        assert ("Answer…" in controls(shown)) is (change == "escalate")


@pytest.mark.needs("ledgerfiles")
async def test_resolved_by_another_implementation_says_who(stage: World) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        await other.asks()
        card = await stage.card("Which database?", ARCHITECTS)

        def resolve(record: dict[str, Any]) -> None:
            entry = {"round": 1, "from": "lead", "type": "resolution", "body": "No database."}
            record.update(status="resolved", resolvedAt="2026-11-21T10:00:00.000Z")
            record["thread"].append(entry | {"timestamp": record["resolvedAt"]})

        await another_writes(stage, resolve, 42)
        shown = await stage.now_says(card, "No database.")
        assert "by agent:lead" in said(shown)
        assert controls(shown) == ["View full", "Verify"]


def written(stage: World, **more: Any) -> None:
    """A ledger as another implementation begins it."""
    at = iso(datetime.now(UTC))
    record = foreign(43, question="Tabs or spaces?", to="reviewer", created=at)
    stage.write_ledger(43, {"issueNumber": 43, "clarifications": [record | more]})


@pytest.mark.needs("ledgerfiles")
async def test_foreign_records_that_no_storage_can_hold_do_not_end_the_bot(stage: World) -> None:
    half = {"from": "engineer \ud83d", "topic": "\ud83d", "status": "escalated"}
    async with stage.bot(configured(stage)):
        written(stage, round=10**20, status="escalated")
        await stage.until(
            lambda: any("Fields: round" in each.text for each in stage.workspace.messages(AGENTS))
        )
        written(stage, **half)
        assert "“engineer \ufffd” asks reviewer" in (await stage.card("Tabs or spaces?")).text


@pytest.mark.needs("ledgerfiles")
async def test_foreign_question_is_left_alone_until_it_is_escalated_then_card_and_page_share_a_thread(
    stage: World,
) -> None:
    more = (
        ROLES
        + '\n[[on_call]]\nname = "night"\nusers = ["U0ONCALL"]\nsteps = [{after = "0s", notify = ["thread"]}]\n'
    )
    text = configured(stage, more).replace('on_call = "platform"', 'on_call = "night"')
    written(stage)
    async with stage.bot(text):
        async with elsewhere(stage) as other:
            await other.asks("Shown already?", to="human")
            await stage.card("Shown already?")
        assert len(stage.cards()) == 1
        await another_writes(stage, lambda record: record.update(status="escalated"), 43)
        card = await stage.card("Tabs or spaces?")
        assert "engineer asks reviewer" in card.text
        page = await stage.until(lambda: next(iter(pages(stage)), None))
        assert page.thread_ts == card.ts
        await stage.workspace.post(FOLAKE, AGENTS, "Spaces", thread_ts=card.ts)
        await stage.now_says(card, "Answered: “Spaces”")
        assert stage.record(43)["status"] == "resolved"
    assert len(stage.cards()) == 2


@pytest.mark.needs("ledgerfiles")
async def test_foreign_question_that_nobody_answers_in_time_has_a_card_and_its_reminder(stage: World) -> None:
    written(stage, staleAfter="2026-01-05T09:00:00.000Z")
    async with stage.bot(configured(stage)):
        card = await stage.card("Tabs or spaces?")
        await stage.until(lambda: [each for each in said_in(stage, card) if "still waiting" in each.text])


def said_in(stage: World, card: Message) -> list[Message]:
    return [each for each in stage.workspace.messages(card.channel) if each.thread_ts == card.ts]


def pages(stage: World) -> list[Message]:
    found = stage.workspace.messages(AGENTS)
    return [each for each in found if (each.metadata or {}).get("event_type") == "clarify_page"]


async def test_event_that_no_workflow_allows_is_shown_to_the_agents_own_people_with_the_reason(
    stage: World,
) -> None:
    async with stage.bot(configured(stage)):
        card = await stage.ask(question="May I?", extensions={"agentx": {"to": "architect", "issue": 42}})
        for shown in (card.text, json.dumps(card.blocks, ensure_ascii=False)):
            assert "Planner asks architect" in shown
            assert "Shown to people because: planner-agent may not ask architect" in shown
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["response"] is True
    assert not stage.cards(ARCHITECTS)


async def test_event_to_a_role_of_people_has_a_thread_of_its_own_in_their_channel(stage: World) -> None:
    allowed(stage)
    async with stage.bot(configured(stage)):
        to = {"agentx": {"to": "architect", "issue": 42}}
        here = await stage.ask("rpl_1", question="In general?", extensions={"agentx": {"issue": 42}})
        await stage.producer.emit(
            {
                "type": "aaep:agent.awaiting.clarification",
                "session_id": "sess_one",
                "urgency": "critical",
                "question": "In particular?",
                "reply_token": "rpl_2",
                "accepted_response_kinds": ["yes_no"],
                "extensions": to,
            }
        )
        there = await stage.card("In particular?", ARCHITECTS)
        assert (here.thread_ts, there.thread_ts) == (None, None)

        await stage.workspace.click(FOLAKE, ARCHITECTS, there.ts, label="Yes")
        await stage.whisper(FOLAKE, "cannot answer")
        await stage.workspace.post(ADE, ARCHITECTS, "yes", thread_ts=there.ts)
        assert (await stage.reply("rpl_2"))["response"] is True
        await stage.workspace.post(FOLAKE, AGENTS, "no", thread_ts=here.ts)  # the only one asked there
        assert (await stage.reply("rpl_1"))["response"] is False


async def test_event_to_an_agent_is_a_card_too_and_the_first_answer_counts(stage: World) -> None:
    allowed(stage)
    to = {"agentx": {"to": "security", "issue": 42}}
    async with stage.bot(configured(stage, ROLES.replace('["false"]', '["sleep", "600"]'))):
        card = await stage.ask(question="Is it safe?", extensions=to)
        assert "security (an agent) was asked too; the first answer counts." in card.text
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Yes")
        assert (await stage.reply())["decided_by"].endswith(FOLAKE)
        assert "was asked too" not in said(await stage.now_says(card, "Answered: “Yes”"))


async def test_answer_of_an_agent_is_on_the_card_and_its_question_to_another_agent_is_on_none(
    stage: World,
) -> None:
    allowed(stage)
    to = {"agentx": {"to": "security", "issue": 42}}
    text = configured(stage, ROLES.replace('["false"]', '["echo", "yes"]'))
    async with stage.bot(text), elsewhere(stage) as other:
        asked = await other.asks("Between us?", to="security")
        card = await stage.ask(question="Is it safe?", extensions=to)
        await stage.now_says(card, "agent:security")
        assert (await stage.reply())["decided_by"] == "agent:security"
        await stage.until(lambda: stage.record(42)["status"] == "answered")
        assert (await other.ledger.find(asked.id)).given.decided_by == "agent:security"
    assert len(stage.cards()) == 1


def allowed(stage: World) -> None:
    """A workflow that lets the producer's agent ask."""
    folder = stage.folder / ".agentx" / "workflows"
    folder.mkdir(parents=True)
    steps = '[[steps]]\nagent = "planner-agent"\ncan_clarify = ["architect", "security"]\n'
    (folder / "feature.toml").write_text(steps)


async def test_answer_that_is_too_long_is_said_in_words(stage: World) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        await other.asks()
        card = await stage.card("Which database?", ARCHITECTS)
        await stage.workspace.post(ADE, ARCHITECTS, "x" * 2001, thread_ts=card.ts)
        assert "2000" in (await stage.whisper(ADE, "2001")).text
        await stage.workspace.click(ADE, ARCHITECTS, card.ts, label="Answer…")
        await stage.modal(ADE)
        outcome = await stage.workspace.submit_view(ADE, {"Your answer": "x" * 2001})
        assert "2000" in " ".join(outcome.errors.values())
        assert stage.record(42)["status"] == "pending"


async def test_list_names_it_to_its_own_people_only(stage: World) -> None:
    async with stage.bot(configured(stage)), elsewhere(stage) as other:
        asked = await other.asks()
        await stage.card("Which database?", ARCHITECTS)
        await stage.workspace.command(ADE, FALLBACK, "/clarify", "mine")
        await stage.whisper(ADE, asked.id)
        await stage.workspace.command(FOLAKE, FALLBACK, "/clarify", "mine")
        await stage.whisper(FOLAKE, "No questions are waiting for you")
