"""Decided questions that another program changes or deletes in the ledger: noticed, told once, and handed out to nobody."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from bot.workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE
from core.records import Seals, _earlier_seal, _question_seal, parse
from tests.kit.clocks import LeapClock
from tests.kit.databases import change_ledger_row
from tests.kit.lives import beside
from tests.kit.world import World, config, said, scene, url_of
from tests.scenario.other_parties import another_writes, answers, in_a_persons_name
from tests.scenario.prompts import Project
from tests.scenario.test_confirmations import resolves
from tests.scenario.test_decision_log import logged
from tests.scenario.test_mcp import called
from tests.scenario.typist import command, words
from tests.unit.bot.fake_github import PREFIX, TOKEN, serving
from tests.unit.bot.test_webhooks import receiving

Json = dict[str, Any]
PAYMENT: Json = {
    "action": "Send the payment",
    "arguments": {"to": "ann", "amount": 100},
    "editable": True,
    "key": "payment-1",
    "risk": "high",
}
NAME = "CLR-100001-001"


@asynccontextmanager
async def caller(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        yield http


async def decide(stage: World, http: httpx.AsyncClient, label: str = "Accept") -> None:
    answer = await http.post("/questions", json=PAYMENT)
    assert answer.status_code == 201, answer.text
    card = await stage.card("Send the payment")
    assert (await stage.workspace.click(FOLAKE, AGENTS, card.ts, label=label)).ok


async def is_refused(http: httpx.AsyncClient) -> None:
    """No way to the answer leads there."""
    for answer in (
        await http.get(f"/questions/{NAME}"),
        await http.get(f"/questions/{NAME}", params={"wait": 5}),
        await http.post("/questions", json=PAYMENT),
        await http.delete(f"/questions/{NAME}"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (410, "TAMPERED"), answer.text
        assert NAME in answer.json()["message"]
    listed = (await http.get("/questions")).json()["questions"]
    assert not any(each["answer"] for each in listed)
    assert (await http.get(f"/clarifications/{NAME}")).status_code in {404, 410}
    mirrored = (await http.get("/clarifications", params={"issue": 100001})).json()
    assert mirrored["clarifications"] == []


def told(stage: World, text: str = NAME) -> int:
    return sum(text in said(each) for each in stage.workspace.messages(FALLBACK))


def argument(record: Json) -> None:
    record["aaep"]["direct"]["arguments"]["amount"] = 100_000


def reopened(record: Json) -> None:
    record["status"] = "pending"


def without_seals(record: Json) -> None:
    argument(record)
    for name in ("seal", "questionSeal"):
        record["aaep"].pop(name, None)


CHANGES: dict[str, Callable[[Json], None]] = {
    "an argument": argument,
    "the decision": lambda record: record["aaep"].update(response="accept", label="Accept"),
    "an edit": lambda record: record["aaep"].update(
        edits=[
            {"changed": {"amount": 1}, "user": ADE, "decidedBy": "user:x", "at": "2026-11-21T10:00:00.000Z"}
        ]
    ),
    "an approval": lambda record: record["aaep"].update(
        approvals=[{"user": ADE, "decidedBy": "user:x", "at": "2026-11-21T10:00:00.000Z", "digest": "0"}]
    ),
    "the words": lambda record: record["thread"][0].update(body="Water the plants"),
    "a word of the answer": lambda record: record["thread"][1].update(body="Accept: gladly"),
    "who decided": lambda record: record["aaep"].update(decidedBy="agent:architect"),
    "another answer": answers("accept"),
    "its end": reopened,
    "its seals": without_seals,
}


@pytest.mark.parametrize("kind", CHANGES)
async def test_p5_decision_that_another_program_changed_is_handed_out_to_nobody(
    stage: World, kind: str
) -> None:
    async with caller(stage) as http:
        await decide(stage, http, "Reject")
        state = (await http.get(f"/questions/{NAME}")).json()
        assert state["answer"] == {"decision": "reject", "arguments": PAYMENT["arguments"]}
        await stage.until(lambda: stage.record()["status"] == "resolved")
        await stage.now_says(await stage.card("Send the payment"), "the agent has resumed")
        if kind == "its end":
            await logged(stage, 1)  # from then on, the bot closes what was reopened
        shown = [said(each) for each in stage.cards()]
        await another_writes(stage, CHANGES[kind])
        await stage.message(NAME, FALLBACK)
        await is_refused(http)
        if kind == "its end":
            await stage.until(lambda: stage.record()["status"] == "abandoned")
    kept = stage.record()
    async with caller(stage) as http:
        await is_refused(http)
        await another_writes(stage, lambda record: record.update(note="looked at"))
        await is_refused(http)
    assert {**stage.record(), "note": None} == {**kept, "note": None}
    assert [said(each) for each in stage.cards()] == shown
    assert told(stage) == 1


async def test_p5_nor_an_accepted_one_before_it_was_fetched(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        card = await stage.card("Send the payment")
        await stage.now_says(card, "Not picked up by the agent yet")
        shown = [said(each) for each in stage.cards()]
        await another_writes(stage, lambda record: record["aaep"].update(response="reject", label="Reject"))
        await is_refused(http)
        await stage.message(NAME, FALLBACK)
    assert stage.record()["status"] == "answered"
    async with stage.bot() as bot:
        bot.shown.delivery.refresh(NAME)
        await stage.ask(question="And now?")  # after the cards of before
    assert [said(each) for each in stage.cards()][:1] == shown


async def test_p5_nor_one_that_was_changed_while_no_bot_ran(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await stage.until(lambda: stage.record()["status"] == "resolved")
    await another_writes(stage, argument)
    for _ in range(2):
        async with caller(stage) as http:
            await stage.message(NAME, FALLBACK)
            await is_refused(http)
    assert told(stage) == 1


def rewrite(stage: World, change: Callable[[list[Json]], None]) -> None:
    """Change the records of the ledger as whoever may write there can."""

    def changed(ledger: Json) -> Json:
        change(ledger["clarifications"])
        return ledger

    if stage.rows is not None:
        change_ledger_row(stage.rows, 100001, changed)
        return
    path = stage.folder / "ledgers/issue-100001.json"
    path.write_text(json.dumps(changed(json.loads(path.read_text()))))


async def is_gone(http: httpx.AsyncClient) -> None:
    for answer in (await http.get(f"/questions/{NAME}"), await http.post("/questions", json=PAYMENT)):
        assert (answer.status_code, answer.json()["error"]) == (410, "TAMPERED"), answer.text


async def test_p5_decision_that_another_program_deleted_is_told_and_gone(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        other = await http.post("/questions", json={"question": "And now?", "issue": 7})
        assert other.status_code == 201
        await stage.until(lambda: stage.record()["status"] == "resolved")
        rewrite(stage, lambda records: records.clear())
        await stage.message(NAME, FALLBACK)
        await is_gone(http)
        assert (await http.get("/questions/CLR-7-001")).status_code == 200
    async with caller(stage) as http:
        await is_gone(http)
    assert told(stage) == 1


def without_all_of_ours(record: Json) -> None:
    del record["aaep"]


def without_what_was_asked(record: Json) -> None:
    for name in ("direct", "seal", "questionSeal"):
        record["aaep"].pop(name, None)


@pytest.mark.parametrize("change", [without_all_of_ours, without_what_was_asked])
async def test_p5_decision_without_any_seal_left_is_told_and_gone(
    stage: World, change: Callable[[Json], None]
) -> None:
    """It looks as if another program had asked and answered."""
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await stage.until(lambda: stage.record()["status"] == "resolved")
        await another_writes(stage, change)
        await stage.message(NAME, FALLBACK)
        await is_gone(http)
    async with caller(stage) as http:
        await is_gone(http)
    assert told(stage) == 1


async def test_p5_nor_is_it_missed_when_no_bot_ran(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await stage.until(lambda: stage.record()["status"] == "resolved")
    rewrite(stage, lambda records: records.clear())
    for _ in range(2):
        async with caller(stage) as http:
            await stage.message(NAME, FALLBACK)
            await is_gone(http)
    assert told(stage) == 1


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_p5_tools_tell_of_a_changed_decision_as_an_error(stage: World, door: str) -> None:
    async with stage.bot() as bot, called(door, "2025-06-18", url_of(bot)) as tools:
        await tools.call("ask_approval", action="Send the payment", arguments={"amount": 100}, wait=0)
        card = await stage.card("Send the payment")
        await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Accept")
        await stage.until(lambda: stage.record()["status"] == "answered")
        await another_writes(stage, argument)
        answer = await tools.call("wait_for_answer", id=NAME, is_error=True)
        assert "another program" in answer["said"]


async def test_p5_what_others_may_change_after_a_decision_changes_nothing(stage: World) -> None:
    """The requester closes it, somebody adds a field, the file is written anew: it is handed out as it was decided."""

    def closed(record: Json) -> None:
        resolves("done")(record)
        record["priority"], record["aaep"]["theirs"] = 1, {"seen": True}

    async with caller(stage) as http:
        await decide(stage, http)
        await stage.until(lambda: stage.record()["status"] == "answered")
        await another_writes(stage, closed)
        await stage.until(lambda: stage.record()["priority"] == 1)
        state = (await http.get(f"/questions/{NAME}")).json()
        assert (state["status"], state["answer"]["arguments"]) == ("answered", PAYMENT["arguments"])
    async with caller(stage) as http:
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
    assert (stage.record()["priority"], told(stage)) == (1, 0)


@pytest.mark.files("the key of the seals is beside the ledgers")
async def test_decision_of_an_earlier_release_is_handed_out_until_somebody_changes_it(stage: World) -> None:
    async with caller(stage) as http:
        await decide(stage, http)
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await stage.until(lambda: stage.record()["status"] == "resolved")
    key = Seals(stage.folder / "ledgers/.clarify")._read()
    record = parse(stage.record())
    assert record is not None
    assert key is not None

    def as_before(raw: Json) -> None:
        raw["aaep"] |= {"seal": _earlier_seal(key, record), "questionSeal": _question_seal(key, record)}

    await another_writes(stage, as_before)
    async with caller(stage) as http:
        assert (await http.get(f"/questions/{NAME}")).json()["answer"]["decision"] == "accept"
        await another_writes(stage, argument)
        await stage.message(NAME, FALLBACK)
        await is_refused(http)


async def test_shell_shows_what_was_changed_and_hands_it_out_to_nobody(stage: World) -> None:
    shell = Project.beside(stage, config(stage.producer.url))
    async with caller(stage) as http:
        await decide(stage, http)
        await stage.until(lambda: stage.record()["status"] == "answered")
        assert "tampered" not in await shell.fine("list", "--all")
        await another_writes(stage, argument)
        await stage.message(NAME, FALLBACK)
        shown = await shell.run("show", NAME)
        assert "tampered" in shown.out.lower()
        assert json.loads((await shell.run("show", NAME, "--json")).out)["tampered"] is True
        assert "tampered" in (await shell.run("list", "--all")).out
        exported = (await shell.run("export")).out.splitlines()
        assert exported
        assert all(json.loads(line)["tampered"] is True for line in exported)
        waited = await shell.run("show", NAME, "--wait")
        assert (waited.code, "another program" in waited.err.lower()) == (5, True), waited
        if stage.rows is None:
            found = (await beside(stage, "check")).out
            assert f"{NAME} was changed by another program" in found
        assert "tampered" in words(await command(stage, f"show {NAME}")).lower()


async def test_p5_reply_that_another_program_changed_on_its_way_is_not_sent(stage: World) -> None:
    async with stage.bot():
        card = await stage.ask(accepted_response_kinds=["freetext"])
        await stage.producer.down()
        await stage.workspace.post(FOLAKE, AGENTS, "as planned", thread_ts=card.ts)
        await stage.until(lambda: stage.record()["aaep"].get("response") == "as planned")
    await another_writes(stage, in_a_persons_name("now", FOLAKE))
    await stage.producer.up()
    async with stage.bot():
        await stage.message(NAME, FALLBACK)
    assert stage.producer.replies == []


async def test_nobody_outside_hears_of_what_another_program_wrote(tmp_path: Path) -> None:
    clock = LeapClock(1)
    async with serving(clock.seconds) as github, receiving() as hook, scene(tmp_path, clock=clock) as stage:
        stage.environ |= {"GITHUB_TOKEN": TOKEN, "HOOK_SECRET": "s3cret-of-the-hook"}
        outside = (
            f'[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n[github]\nrepo = "acme/app"\n'
            f'token_env = "GITHUB_TOKEN"\napi_url = "{github.address}{PREFIX}"\n'
        )
        text = config(stage.producer.url) + outside
        async with stage.bot(text) as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
            assert (await http.post("/questions", json=PAYMENT | {"issue": 42})).status_code == 201
            card = await stage.card("Send the payment")
            await stage.workspace.click(FOLAKE, AGENTS, card.ts, label="Reject")
            await stage.until(lambda: "answered CLR-42-001" in hook.events)
            await stage.until(lambda: "Reject" in "".join(github.bodies(42)))
            heard, mirrored = [*hook.events], github.bodies(42)

            def changed(record: Json) -> None:
                record["status"] = "resolved"
                record["thread"][1]["body"] = "Accept: gladly"

            await another_writes(stage, changed, 42)
            await stage.message("CLR-42-001", FALLBACK)
            assert (await http.post("/questions", json={"question": "And?", "issue": 42})).status_code == 201
            await stage.until(lambda: any("And?" in each for each in github.bodies(42)))
        async with stage.bot(text) as bot:
            hooks = bot.webhooks
            assert hooks is not None
            await stage.until(lambda: hooks.idle)
        assert not any("gladly" in each for each in github.bodies(42))
        assert [each for each in github.bodies(42) if each in mirrored] == mirrored
        assert [each for each in hook.events if each.endswith("CLR-42-001")] == heard
