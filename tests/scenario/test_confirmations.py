"""A consent that an agent waits for: shown with its stakes, given or refused by every surface, replied to once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.kit.world import TOKEN, World, config, controls, said
from tests.scenario.other_parties import another_writes, answers
from tests.scenario.prompts import Project
from tests.scenario.typist import command
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL, PLATFORM, USE_AS_ANSWER
from workspace.state import Message

SCHEMAS = Path(__file__).parents[1] / "unit" / "core" / "schemas"
VALID = jsonschema.Draft202012Validator(
    json.loads((SCHEMAS / "confirmation.reply.schema.json").read_text()),
    format_checker=jsonschema.FormatChecker(),
)
ACTION = "Drop the table “orders” of production."
AGAIN = {"clarify.accept"}


async def confirm(stage: World, token: str = TOKEN, *, session: str = "sess_one", **fields: Any) -> Message:
    """Have the producer ask for a consent; its card, once it is there. High risk and irreversible unless said."""
    event: dict[str, Any] = {
        "type": "aaep:agent.awaiting.confirmation",
        "session_id": session,
        "urgency": "critical",
        "action": ACTION,
        "consequence": "All 40,000 orders are gone.",
        "reply_token": token,
        "timeout_seconds": 600,
        "default_decision": "reject",
        "risk_level": "high",
        "irreversible": True,
    } | fields
    await stage.producer.emit({key: value for key, value in event.items() if value is not None})
    return await stage.card(event["action"])


def asks_again(message: Message) -> set[str]:
    """The action_ids of the buttons that Slack asks about once more."""
    elements = [each for block in message.blocks for each in block.get("elements", ()) if "confirm" in each]
    return {each["action_id"] for each in elements}


async def decided(stage: World) -> dict[str, Any]:
    """The reply as the producer took it, once; valid by its schema."""
    reply = await stage.reply()
    VALID.validate(reply)
    assert len(stage.producer.replies) == 1
    assert stage.producer.refusals == []
    return reply


@pytest.mark.parametrize(("label", "decision"), [("Accept", "accept"), ("Reject", "reject")])
async def test_click_decides_and_the_reply_reaches_the_producer(
    stage: World, label: str, decision: str
) -> None:
    async with stage.bot():
        card = await confirm(stage, correlation_id="corr_1")
        assert controls(card) == ["Accept", "Reject", "Answer…", "Take"]
        assert asks_again(card) == AGAIN
        assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok
        reply = await decided(stage)
        assert (reply["decision"], reply["decided_by"]) == (decision, f"user:slack/T0LOCAL/{FOLAKE}")
        assert (reply["correlation_id"], "decision_rationale" in reply) == ("corr_1", False)
        after = await stage.now_says(card, f"<@{FOLAKE}>")
        assert f"{'Approved' if label == 'Accept' else 'Rejected'} by <@{FOLAKE}>" in said(after)
        assert controls(after) == ["Verify"]
    record = stage.record()
    assert (record["status"], record["aaep"]["response"]) == ("resolved", decision)
    assert (record["aaep"]["action"], record["aaep"]["riskLevel"]) == (ACTION, "high")


@pytest.mark.parametrize("reason", [None, "Not before <Monday>, & ask *Ade*."])
async def test_modal_takes_a_decision_and_a_reason(stage: World, reason: str | None) -> None:
    async with stage.bot():
        card = await confirm(stage)
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Answer…")).ok
        modal = await stage.modal(ADE)
        assert all(
            words in json.dumps(modal.payload) for words in ("Drop the table", "40,000", "Risk: high.")
        )
        missing = await stage.workspace.submit_view(ADE, {"Reason": "Because."})
        assert not missing.ok
        entered = {"Your decision": "Reject"} | ({"Reason": reason} if reason else {"Reason": ""})
        assert (await stage.workspace.submit_view(ADE, entered)).ok
        reply = await decided(stage)
        assert (reply["decision"], reply.get("decision_rationale")) == ("reject", reason)
        after = await stage.now_says(card, f"<@{ADE}>")
        if reason:
            assert "Reason: Not before &lt;Monday&gt;, &amp; ask *Ade*." in after.text
            assert f"Reason: {reason}" in json.dumps(after.blocks, ensure_ascii=False)


@pytest.mark.parametrize("has_alerts", [True, False])
async def test_window_shows_the_stakes_as_an_alert_or_in_classic_blocks(
    stage: World, *, has_alerts: bool
) -> None:
    if not has_alerts:
        context = stage.workspace.context
        context.options = replace(context.options, without_blocks=frozenset({"alert"}))
    async with stage.bot():
        card = await confirm(stage, consequence="x" * 16_000)
        for number in range(2):
            assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="View full")).ok
            modal = await stage.modal(ADE)
            first = modal.payload["blocks"][0]
            assert first["type"] == ("alert" if has_alerts else "rich_text")
            assert "Risk: high. Irreversible: it cannot be undone." in json.dumps(first)
            stage.workspace.board.close_views(ADE)
            tries = [call.outcome for call in stage.workspace.calls if call.method == "views.open"]
            assert (
                tries == ["ok"] * (number + 1)
                if has_alerts
                else ["invalid_arguments", *["ok"] * (number + 1)]
            )


async def test_thread_takes_its_own_words_and_asks_the_others_back(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        await stage.workspace.post(FOLAKE, AGENTS, "yes", thread_ts=card.ts)
        hint = await stage.whisper(FOLAKE, "I couldn't read that as an answer")
        assert "accept or reject" in hint.text
        assert stage.producer.replies == []
        await stage.workspace.post(FOLAKE, AGENTS, "reject: too late in the day", thread_ts=card.ts)
        reply = await decided(stage)
        assert (reply["decision"], reply["decision_rationale"]) == ("reject", "too late in the day")
    entry = stage.record()["thread"][1]
    assert (entry["type"], entry["body"]) == ("answer", "Reject: too late in the day")


async def test_typed_accept_in_any_other_form_gets_a_hint_each_time(stage: World) -> None:
    """Its author believes to have decided, even within a minute after another hint."""
    async with stage.bot():
        card, told = await confirm(stage), dict[str, bool]()
        for text in ("accept :x:", "accept :question:", "accept :thinking_face:", "accept :white_check_mark:",
                     "accept: :x:", "*accept*", "&gt; accept", "accept: &lt;@U0ADE&gt;", "Approve", "rejected"):  # fmt: skip
            stage.workspace.state.ephemerals.clear()
            await stage.workspace.post(FOLAKE, AGENTS, text, thread_ts=card.ts)
            hint = await stage.whisper(FOLAKE, "I couldn't read that as an answer")
            assert "Reply with accept or reject" in hint.text, text
            told[text] = "reply with just" in hint.text
        # One does not begin like a decision, the other may be meant for somebody else.
        assert [text for text, says in told.items() if not says] == ["&gt; accept", "accept: &lt;@U0ADE&gt;"]
        assert stage.record()["status"] == "pending"
        await stage.workspace.post(FOLAKE, AGENTS, "accept.", thread_ts=card.ts)
        assert (await decided(stage))["decision"] == "accept"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"reject: <@{ADE}> please fix first", "please fix first"),
        (f"Reject, because <!subteam^{PLATFORM}|@platform> is away", "because @platform is away"),
        (f"*REJECT* - <@{ADE}> has to fix it", "has to fix it"),
        ("reject please fix first", "please fix first"),
    ],
)
async def test_rejection_needs_no_form_and_may_mention_someone(stage: World, text: str, reason: str) -> None:
    async with stage.bot():
        card = await confirm(stage)
        await stage.workspace.post(FOLAKE, AGENTS, text, thread_ts=card.ts)
        reply = await decided(stage)
        assert reply["decision"] == "reject"
        assert reply["decision_rationale"].endswith(reason)
        await stage.now_says(card, f"Rejected by <@{FOLAKE}>")


async def test_accept_that_mentions_someone_gets_a_hint_and_other_mentions_are_talk(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        for talk in (f"<@{ADE}> accept?", f"should I accept this, <@{ADE}>?", f"note: accept, <@{ADE}>"):
            await stage.workspace.post(FOLAKE, AGENTS, talk, thread_ts=card.ts)
        for text in (
            f"accept: <@{ADE}> said ok",
            f"accept <@{ADE}>",
            f"accept: <!subteam^{PLATFORM}> said ok",
        ):
            await stage.workspace.post(FOLAKE, AGENTS, text, thread_ts=card.ts)
        await stage.until(lambda: len(stage.workspace.ephemerals(FOLAKE)) == 3)
        assert all(
            "mentions someone doesn't count" in each.text for each in stage.workspace.ephemerals(FOLAKE)
        )
        assert stage.record()["status"] == "pending"
        mine = await stage.workspace.post(FOLAKE, AGENTS, f"<@{ADE}> hm", thread_ts=card.ts)
        await stage.workspace.edit(FOLAKE, AGENTS, mine.ts, f"reject, as <@{ADE}> says")
        assert (await decided(stage))["decision"] == "reject"


async def test_mention_decides_nothing_but_the_approval_of_a_thread(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask("rpl_0", question="What next?", accepted_response_kinds=["freetext"])
        await stage.workspace.post(ADE, AGENTS, f"reject: <@{FOLAKE}> please fix first", thread_ts=card.ts)
        await confirm(stage)
        await stage.workspace.post(ADE, AGENTS, f"reject: <@{FOLAKE}> is away", thread_ts=card.ts)
        assert (await stage.reply())["decision"] == "reject"
        assert stage.record()["status"] == "pending"
        assert len(stage.producer.replies) == 1


async def test_mention_in_an_accept_counts_nowhere(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        words = f"accept: <@{FOLAKE}> said ok"
        for verb in ("answer", "resolve"):
            told = await command(stage, f"{verb} CLR-100001-001 {words}")
            assert "Not answered. An accept that mentions someone doesn't count" in told.text
        message = await stage.workspace.post(FOLAKE, AGENTS, f"note: {words}", thread_ts=card.ts)
        assert (await stage.workspace.shortcut(ADE, USE_AS_ANSWER, message.ts, AGENTS)).ok
        await stage.until(lambda: len(stage.workspace.ephemerals(ADE)) == 3)
        assert "mentions someone" in stage.workspace.ephemerals(ADE)[-1].text
        await command(stage, "escalate CLR-100001-001")
        page = await stage.page(ACTION)
        for thread in (page.ts, None):
            before = len(stage.workspace.direct(ONCALL))
            await stage.workspace.post(ONCALL, page.channel, words, thread_ts=thread)
            await stage.until(lambda: len(stage.workspace.direct(ONCALL)) == before + 2)  # noqa: B023 - awaited here
            assert "mentions someone" in stage.workspace.direct(ONCALL)[-1].text
        assert stage.producer.replies == []
        await stage.workspace.post(ONCALL, page.channel, f"reject: <@{FOLAKE}>, fix it", thread_ts=page.ts)
        reply = await decided(stage)
        assert (reply["decision"], "fix it" in reply["decision_rationale"]) == ("reject", True)


async def test_command_and_shell_decide(stage: World) -> None:
    async with stage.bot():
        await confirm(stage)
        listed = await command(stage, "")
        assert "Drop the table" in listed.text
        hint = await command(stage, "answer CLR-100001-001 yes")
        assert "accept or reject" in hint.text
        told = await command(stage, "answer CLR-100001-001 accept")
        assert f"is approved by <@{ADE}>" in told.text
        assert (await decided(stage))["decision"] == "accept"
        again = await confirm(stage, "rpl_2", action="Now the table “items”.")
        shell = Project.beside(stage, config(stage.producer.url))
        shown = await shell.fine("show", "CLR-100001-002")
        assert all(words in shown for words in ("Now the table", "Risk: high.", "accept"))
        await shell.fine("answer", "CLR-100001-002", "reject: never")
        reply = await stage.reply("rpl_2")
        assert (reply["decision"], reply["decision_rationale"]) == ("reject", "never")
        await stage.now_says(again, "Rejected by")


def resolves(body: str) -> Any:
    """The change of an implementation that closes what nobody answered."""

    def change(record: dict[str, Any]) -> None:
        record["status"] = "resolved"
        entry = {"round": record["round"], "from": "architect", "type": "resolution", "body": body}
        record["thread"].append(entry | {"timestamp": "2026-11-21T10:00:00.000Z"})

    return change


FORGERIES = {
    "an agent": (answers("accept"), "agent:architect"),
    "a person": (answers("accept: go", role=f"user:slack/T0LOCAL/{ADE}"), f"ledger:user:slack/T0LOCAL/{ADE}"),
    "somebody human": (answers("Accept.", role="human"), "ledger:human"),
    "a resolution": (resolves("accept"), "agent:architect"),
}


async def consent_is_refused(stage: World, first: Message, named: str) -> None:
    """It is told in the thread, once, and a person decides."""
    told = await stage.message("Not accepted")
    assert told.thread_ts == first.ts
    assert named in told.text
    assert stage.producer.replies == []
    assert (await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Accept")).ok
    reply = await decided(stage)
    assert (reply["decision"], reply["decided_by"]) == ("accept", f"user:slack/T0LOCAL/{FOLAKE}")
    assert sum("Not accepted" in each.text for each in stage.workspace.messages(AGENTS)) == 1


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize("kind", FORGERIES)
async def test_p5_program_that_writes_the_ledger_cannot_consent_for_a_person(stage: World, kind: str) -> None:
    change, named = FORGERIES[kind]
    async with stage.bot():
        first = await confirm(stage)
        await another_writes(stage, change)
        await consent_is_refused(stage, first, named)


@pytest.mark.needs("ledgerfiles")
async def test_p5_nor_while_the_bot_is_down(stage: World) -> None:
    change, named = FORGERIES["a person"]
    async with stage.bot():
        first = await confirm(stage)
        await stage.in_step()
    await another_writes(stage, change)
    async with stage.bot():
        await consent_is_refused(stage, first, named)


@pytest.mark.needs("ledgerfiles")
async def test_p5_nor_reject(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage)
        await another_writes(stage, answers("reject: never"))
        assert "agent:architect" in (await stage.message("Not accepted")).text
        assert stage.producer.replies == []
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        assert (await decided(stage))["decision"] == "accept"


async def test_shell_accepts_only_where_it_is_configured_and_asks_back(stage: World) -> None:
    text = config(stage.producer.url)
    async with stage.bot(text):
        await confirm(stage)
        shell, name = Project.beside(stage, text), "CLR-100001-001"
        for command_line in (("answer", name, "accept"), ("answer", name, "accept", "--yes"),
                             ("answer", name, "accept", "--as", "architect", "--yes"), ("resolve", name, "accept")):  # fmt: skip
            refused = await shell.run(*command_line)
            assert (refused.code, "needs approval" in refused.err) == (4, True), command_line
        # Whoever runs a command can point it to a configuration of their own.
        open_shell = Project.beside(stage, text + "[shell]\nconsent = true\n")
        refused = await open_shell.run("answer", name, "accept", "--yes")
        assert (refused.code, "needs approval" in refused.err) == (4, True)
        assert stage.record()["status"] == "pending"
    async with stage.bot(text + "[shell]\nconsent = true\n"):
        asked_back = await open_shell.run("answer", name, "accept")
        assert (asked_back.code, "Add --yes to confirm" in asked_back.err) == (2, True)
        assert (await open_shell.run("answer", name, "accept", "--as", "architect", "--yes")).code == 4
        assert (await open_shell.run("resolve", name, "accept")).code == 4
        await open_shell.fine("answer", name, "accept", "--yes")
        reply = await decided(stage)
        assert (reply["decision"], reply["decided_by"][:8]) == ("accept", "user:os/")


async def test_only_what_the_agent_takes_is_offered(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage, allowed_replies=["reject", "postpone"])
        assert controls(card) == ["Reject", "Answer…", "Take"]
        await stage.workspace.post(ADE, AGENTS, "accept", thread_ts=card.ts)
        assert "Reply with reject" in (await stage.whisper(ADE, "I couldn't read that")).text
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Reject")
        assert (await decided(stage))["decision"] == "reject"


@pytest.mark.parametrize(
    "broken",
    [{"action": None, "summary_normal": ACTION}, {"reply_token": None}, {"allowed_replies": ["approve"]}],
    ids=["no action", "no token", "no decision"],
)
async def test_broken_confirmation_is_shown_and_paged_but_never_decided(
    stage: World, broken: dict[str, Any]
) -> None:
    async with stage.bot():
        event = {
            "type": "aaep:agent.awaiting.confirmation", "session_id": "sess_one", "urgency": "critical",
            "action": ACTION, "reply_token": TOKEN, "timeout_seconds": 600, "default_decision": "reject",
        }  # fmt: skip
        await stage.producer.emit({k: v for k, v in (event | broken).items() if v is not None})
        notice = await stage.message("Drop the table")
        assert not {"Accept", "Reject"} & set(controls(notice))
        await stage.page("Drop the table")
    assert not stage.issues()


async def test_same_confirmation_again_is_a_new_one_and_a_replay_is_none(stage: World) -> None:
    async with stage.bot() as bot:
        card = await confirm(stage)
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Accept")
        await decided(stage)
        await stage.now_says(card, "Approved by")
        await confirm(stage, event_id="evt_again")
        await confirm(stage, "rpl_2")
        await stage.until(lambda: len(stage.cards()) == 2)
        await bot.agents.intake.drained()
    records = stage.ledger(100001)["clarifications"]
    assert [(each["round"], each["aaep"]["replyToken"]) for each in records] == [(1, TOKEN), (1, "rpl_2")]
    assert len(stage.cards()) == 2


async def test_consent_is_asked_of_people_whatever_role_the_event_names(stage: World) -> None:
    async with stage.bot():
        card = await confirm(stage, extensions={"agentx": {"issue": 7, "to": "architect"}})
        assert "architect" not in said(card)
        assert (await stage.workspace.click(ADE, AGENTS, card.ts, label="Reject")).ok
        assert (await decided(stage))["decision"] == "reject"
    record = stage.record(7)
    assert (record["to"], record["aaep"].get("heldBack")) == ("human", None)


async def test_escalated_confirmation_is_decided_on_the_page(stage: World) -> None:
    async with stage.bot():
        await confirm(stage)
        await command(stage, "escalate CLR-100001-001")
        page = await stage.page(ACTION)
        assert "Risk: high. Irreversible: it cannot be undone." in page.text
        assert {"Accept", "Reject"} <= set(controls(page))
        assert asks_again(page) == AGAIN
        assert (await stage.workspace.click(ONCALL, page.channel, page.ts, label="Accept")).ok
        assert (await decided(stage))["decided_by"].endswith(ONCALL)
    assert stage.record()["status"] == "resolved"
