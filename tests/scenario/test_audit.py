"""What a security officer reads a month later: `clarify export`, of a decision with all that happened on the way."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clocks import LeapClock
from tests.kit.lives import beside
from tests.kit.world import World, scene
from tests.scenario.other_parties import another_writes, answers, record_held
from tests.scenario.test_approvals import MAIL, ask, asking, look, named, press, routed
from tests.scenario.test_four_eyes import eyed
from tests.scenario.typist import command, words
from workspace.seed import ADE, AGENTS, FOLAKE, ONCALL

Json = dict[str, Any]
CHANGE = {"Your decision": "Accept", "to": "me@example.com"}

pytestmark = pytest.mark.either_database


async def exported(stage: World, *words: str) -> list[Json]:
    done = await beside(stage, "export", *words)
    assert (done.code, done.err) == (0, ""), done
    return [json.loads(each) for each in done.out.splitlines()]


def of(kind: str, lines: list[Json]) -> list[Json]:
    return [each for each in lines if each["type"] == kind]


async def counted_in_digest(stage: World) -> None:
    digest = words(await command(stage, "digest 24h"))
    for line in (
        "*Approvals*: 1 approved, 1 edited",
        "*Time to decide*: high risk median 1 hour 31 minutes (1)",
        f"<@{ONCALL}>: 1 approved, 1 edited",
        f"<@{ADE}>: 1 answer, median 1 hour 31 minutes; 1 approved",
    ):
        assert line in digest, digest


@pytest.mark.needs("ledgerfiles")
async def test_export_of_an_approval_is_complete(tmp_path: Path) -> None:
    clock = LeapClock()
    async with (
        scene(tmp_path, clock=clock) as stage,
        asking(stage, routed(stage, 'risk_at_least = "high"')) as http,
    ):
        asked, card = await ask(stage, http, risk="low", editable=True, approvals=2, timeout=7200)
        await press(stage, FOLAKE, card, "Accept")
        await stage.now_says(card, "One more person must approve")
        clock.leap(timedelta(minutes=31))
        await stage.message("still waiting")
        clock.leap(timedelta(minutes=60))
        await stage.message("is waiting")
        await press(stage, ONCALL, card, "Answer…")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, CHANGE)).ok
        changed = await stage.now_says(card, f"Arguments edited by <@{ONCALL}>")
        await press(stage, ADE, changed, "Accept")
        state = await look(http, asked, wait=30)
        lines = await exported(stage)
        assert [each["timestamp"] for each in lines] == sorted(each["timestamp"] for each in lines)

        (question,) = of("question", lines)
        assert question["arguments"] == MAIL["arguments"]
        assert question["risk"] == {"claimed": "low", "counted": "high"}
        assert (question["action"], question["approvalsNeeded"]) == ("Send the newsletter", 2)

        lapsed, counted = of("approval", lines)
        (edit,) = of("edit", lines)
        assert (lapsed["by"], lapsed["lapsed"]) == (named(FOLAKE), edit["timestamp"])
        assert (counted["by"], counted["user"], counted["surface"]) == (named(ONCALL), ONCALL, "slack")
        assert "lapsed" not in counted
        assert (edit["by"], edit["user"], edit["surface"]) == (named(ONCALL), ONCALL, "slack")
        assert (edit["before"], edit["changed"]) == ({"to": "all@example.com"}, {"to": "me@example.com"})

        (answer,) = of("answer", lines)
        assert answer["arguments"] == state["answer"]["arguments"]
        assert answer["risk"] == question["risk"]
        assert answer["receipt"] == state["receipt"]
        assert answer["approvedBy"] == [named(ONCALL), named(ADE)]
        assert [(each["user"], each["surface"], each["at"]) for each in answer["deciders"]] == [
            (ONCALL, "slack", counted["timestamp"]),
            (ADE, "slack", answer["timestamp"]),
        ]
        (change,) = answer["edits"]
        assert (change["by"], change["at"]) == (named(ONCALL), edit["timestamp"])

        (reminder,) = of("reminder", lines)
        assert (reminder["number"], reminder["channel"], reminder["failed"]) == (1, AGENTS, None)
        pages = of("page", lines)
        sent = next(each for each in pages if each["event"] == "sent")
        assert (sent["policy"], sent["sendings"][0]["via"], sent["sendings"][0]["state"]) == (
            "platform",
            "slack",
            "sent",
        )
        assert pages[-1]["event"] == "closed"

        await counted_in_digest(stage)
        table = await beside(stage, "export", "--csv", "-o", str(tmp_path / "audit.csv"))
        assert (table.code, table.out, table.err) == (0, "", "")
        text = (tmp_path / "audit.csv").read_text()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [each["type"] for each in rows] == [each["type"] for each in lines]
        assert {
            (each["riskClaimed"], each["riskCounted"]) for each in rows if each["type"] == "question"
        } == {("low", "high")}
        assert json.loads(of("answer", rows)[0]["arguments"]) == state["answer"]["arguments"]


async def test_what_was_forgotten_is_not_exported(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http, editable=True, approvals=2)
        await press(stage, ONCALL, card, "Answer…")
        await stage.modal(ONCALL)
        assert (await stage.workspace.submit_view(ONCALL, CHANGE)).ok
        changed = await stage.now_says(card, f"Arguments edited by <@{ONCALL}>")
        await command(stage, f"escalate {asked['id']}")
        await stage.message("is waiting")
        await press(stage, ADE, changed, "Accept")
        await look(http, asked, wait=30)
        assert "example.com" in json.dumps(await exported(stage))
        assert (await beside(stage, "forget", asked["id"], "--yes", "--abandon")).code == 0
        lines = await exported(stage)
        text = json.dumps(lines)
        for gone in ("example.com", "newsletter", "me@", ADE, FOLAKE, ONCALL):
            assert gone not in text, gone
        assert {"question", "answer", "page"} <= {each["type"] for each in lines}


async def test_whoever_may_not_approve_is_on_record(stage: World) -> None:
    async with asking(stage, eyed(stage, answerers=(FOLAKE, ONCALL), requester=ONCALL)) as http:
        asked, card = await ask(stage, http)
        for _ in range(3):
            await press(stage, ADE, card, "Accept")
        await press(stage, ADE, card, "Reject")
        await stage.workspace.post(ADE, AGENTS, "accept", card.ts)
        assert "not an answerer" in (await command(stage, f"answer {asked['id']} accept", ADE)).text
        await press(stage, ONCALL, card, "Accept")
        await stage.whisper(ONCALL, "the agent works for you")
        done = await beside(stage, "answer", asked["id"], "accept", "--yes")
        assert done.code == 4
        assert (await beside(stage, "answer", asked["id"], "--as", "mallory", "accept", "--yes")).code == 4
        await stage.until(
            lambda: sum(each["times"] for each in stage.record()["aaep"].get("refusals", ())) == 9
        )
        await press(stage, FOLAKE, card, "Accept")
        state = await look(http, asked, wait=30)
    lines = await exported(stage)
    found = {
        (each["user"] or each["by"], each["response"], each["why"], each["times"])
        for each in of("refusal", lines)
    }
    shell = next(each["by"] for each in of("refusal", lines) if each["by"].startswith("user:os/"))
    assert found == {
        (ADE, "accept", "not listed", 5),
        (ADE, "reject", "not listed", 1),
        (ONCALL, "accept", "own request", 1),
        (shell, "accept", "not in Slack", 1),
        ("agent:mallory", "accept", "not in Slack", 1),
    }
    for each in of("refusal", lines):
        assert each["surface"] == ("slack" if each["user"] else "shell")
        assert (
            lines[0]["timestamp"] <= each["first"] <= each["timestamp"] <= of("answer", lines)[0]["timestamp"]
        )
    assert of("answer", lines)[0]["receipt"] == state["receipt"], "a refusal changes no receipt"
    assert (await beside(stage, "forget", asked["id"], "--yes")).code == 0
    lines = await exported(stage)
    assert of("refusal", lines) == []
    assert ADE not in json.dumps(lines)


async def test_refusal_waits_for_no_ledger_and_is_written_once_it_can(tmp_path: Path) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage:

        def is_noted() -> bool:
            """Whether one waits for the ledger, which was tried in vain."""
            return any(
                each._refused and not each._writing.locked() and not each._has_refused.is_set()
                for each in stage.routers
            )

        async with asking(stage, eyed(stage, answerers=(FOLAKE,))) as http:
            _, card = await ask(stage, http)
            async with record_held(stage, "CLR-100001-001"):
                await press(stage, ADE, card, "Accept")
                await stage.whisper(ADE, "not an answerer")
                await stage.until(is_noted)
                assert "refusals" not in stage.record()["aaep"]
            clock.leap(timedelta(seconds=6))
            await stage.until(lambda: "refusals" in stage.record()["aaep"])
            await stage.until(lambda: not any(each._writing.locked() for each in stage.routers))
            async with record_held(stage, "CLR-100001-001"):
                await press(stage, ADE, card, "Reject")
                await stage.until(is_noted)
        counted = stage.record()["aaep"]["refusals"]
        assert [(each["response"], each["times"]) for each in counted] == [("accept", 1), ("reject", 1)]


@pytest.mark.needs("ledgerfiles")
async def test_accept_that_another_program_wrote_is_no_approval(stage: World) -> None:
    async with asking(stage) as http:
        asked, card = await ask(stage, http)
        await another_writes(stage, answers("accept"))
        await stage.message("Not accepted")
        await press(stage, ADE, card, "Reject")
        await look(http, asked, wait=30)
        lines = await exported(stage)
        assert [(each["by"], each["response"]) for each in of("answer", lines)] == [(named(ADE), "reject")]
        (refusal,) = of("refusal", lines)
        assert (refusal["by"], refusal["surface"], refusal["response"], refusal["why"]) == (
            *("agent:architect", "ledger", "accept", "not in Slack"),
        )
