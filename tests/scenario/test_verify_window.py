"""Verify on a decided card: the window says whether the decision is genuine, to anyone who sees the card."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.signing import KEY_FILE, jwk_of, read_key
from core.ledgerfiles import read_item
from core.receipts import claims_of
from tests.kit.clocks import LeapClock
from tests.kit.lives import beside
from tests.kit.world import World, controls, scene
from tests.scenario.other_parties import change_row
from tests.scenario.test_approvals import MAIL, ask, asking, look, press
from tests.scenario.test_receipts import keys_of
from tests.unit.bot.judges import labels, shown
from workspace.rules import check_view
from workspace.seed import ADE, AGENTS, FOLAKE, GIO, ONCALL
from workspace.state import Message

Json = dict[str, Any]
NAME = "CLR-100001-001"
COMMAND = f"clarify log --jwt {NAME} | clarify verify -"


@pytest.fixture
async def http(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(stage) as client:
        yield client


async def window(stage: World, card: Message, user: str = ADE, label: str = "Verify") -> str:
    """What the window behind a button of a card says."""
    await press(stage, user, card, label)
    view = (await stage.modal(user)).payload
    assert check_view(view) == []
    return shown(view["blocks"])


async def in_the_log(stage: World, card: Message) -> str:
    """The same once the decision is in the log, which the bot appends after the fact."""
    while "Not in the log yet" in (said := await window(stage, card, ONCALL)):
        await stage.workspace.close_view(ONCALL)
    await stage.workspace.close_view(ONCALL)
    return said


async def decided(stage: World, http: httpx.AsyncClient, label: str = "Accept") -> tuple[Json, Message]:
    asked, card = await ask(stage, http)
    await press(stage, FOLAKE, card, label)
    state = await look(http, asked, wait=30)
    return state, await stage.now_says(card, "ed by")


@pytest.mark.either_database
async def test_window_says_who_decided_which_arguments_when_and_by_which_key(
    stage: World, http: httpx.AsyncClient
) -> None:
    asked, card = await ask(stage, http, approvals=2)
    assert "Verify" not in controls(card)
    await press(stage, FOLAKE, card, "Accept")
    await stage.now_says(card, "One more person must approve")
    await press(stage, ADE, card, "Accept")
    state = await look(http, asked, wait=30)
    after = await stage.now_says(card, f"Approved by <@{FOLAKE}> and <@{ADE}>")
    assert controls(after) == ["View full", "Verify"]
    (key,) = (await keys_of(http))["keys"]
    claims = jwt.decode(state["receipt"], options={"verify_signature": False})
    for user in (ADE, GIO):  # anyone who sees the card, guests too
        said = await window(stage, after, user)
        assert said.startswith("*Verified.* The signature is good")
        for part in (
            f"Approved by <@{FOLAKE}> and <@{ADE}>, <!date^{claims['iat']}^",
            f"`{NAME}/1`",
            f"`{claims['arguments_sha256']}`",
            f"`{key['kid']}`",
            "*Place in the log*",
            COMMAND,
        ):
            assert part in said
    assert "*Place in the log*\nEntry 1 of 1" in await in_the_log(stage, after)
    printed = await beside(stage, *COMMAND.split(" | ", maxsplit=1)[0].split()[1:])
    assert printed.out.strip() == state["receipt"]
    assert (await beside(stage, "verify", printed.out.strip())).code == 0
    assert f"To verify its last decision: {COMMAND}" in (await beside(stage, "verify", NAME)).err
    # Behind View full, for messages that are one line.
    await press(stage, FOLAKE, after, "View full")
    assert labels((await stage.modal(FOLAKE)).payload)[-1] == "Verify"
    assert (await stage.workspace.click_in_view(FOLAKE, label="Verify")).ok
    view = await stage.until(
        lambda: next((each for each in stage.workspace.views(FOLAKE)[1:]), None)  # on top of it
    )
    assert "*Verified.*" in shown(view.payload)


async def test_window_of_a_rejection_and_of_an_answer(stage: World, http: httpx.AsyncClient) -> None:
    _, card = await decided(stage, http, "Reject")
    said = await window(stage, card)
    assert "*Verified.*" in said
    assert f"Rejected by <@{FOLAKE}>" in said
    await http.post("/questions", json={"question": "Which release?", "choices": ["4.1", "4.2"]})
    card = await stage.card("Which release?")
    await press(stage, ADE, card, "4.2")
    answered = await stage.now_says(card, "Answered: “4.2”")
    said = await window(stage, answered, FOLAKE)
    assert f"Answered: “4.2” by <@{ADE}>" in said
    assert "SHA-256" not in said


def another_key(record: Json) -> None:
    receipt, key = record["aaep"]["receipt"], Ed25519PrivateKey.generate()
    claims = jwt.decode(receipt, options={"verify_signature": False})
    header = {"typ": "clarify-decision+jwt", "kid": jwk_of(key.public_key())["kid"]}
    record["aaep"]["receipt"] = jwt.encode(claims, key, "EdDSA", headers=header)


def forged(record: Json) -> None:
    """Other claims, under the key's own name."""
    header, body, signature = record["aaep"]["receipt"].split(".")
    claims = jwt.decode(record["aaep"]["receipt"], options={"verify_signature": False})
    claims["answer"]["decision"] = "accept"
    body = jwt.utils.base64url_encode(json.dumps(claims).encode()).decode()
    record["aaep"]["receipt"] = f"{header}.{body}.{signature}"


TAMPERED: dict[str, tuple[Callable[[Json], None], str, bool]] = {
    "an argument": (
        lambda record: record["aaep"]["arguments"].update(count=99_999),
        "The signature is good, but the question's record says something else",
        True,
    ),
    "the decision": (
        lambda record: record["aaep"].update(response="accept", label="Accept"),
        "The signature is good, but the question's record says something else",
        True,
    ),
    "opened again": (
        lambda record: record.update(status="pending"),
        "The signature is good, but the question's record says something else",
        True,
    ),
    "the receipt": (forged, "The signature is bad", False),
    "another key": (another_key, "a key that this bot doesn't know", False),
}


@pytest.mark.parametrize("kind", TAMPERED)
async def test_window_has_no_tick_for_what_was_changed(
    stage: World, http: httpx.AsyncClient, kind: str
) -> None:
    _, card = await decided(stage, http, "Reject")
    change, why, says_what_was_signed = TAMPERED[kind]
    change_row(stage, change)
    assert (await stage.workspace.click_as_seen(ADE, card, "Verify")).ok
    said = shown((await stage.modal(ADE)).payload["blocks"])
    assert said.startswith("*Not verified.*")
    assert why in said
    assert "Verified" not in said
    assert "*Verified" not in said
    assert "Don't rely on what the card says" in said
    assert (f"Rejected by <@{FOLAKE}>" in said) is says_what_was_signed


async def test_receipt_of_another_question_is_none_of_this_one(stage: World, http: httpx.AsyncClient) -> None:
    state, _ = await decided(stage, http)
    await http.post("/questions", json=MAIL | {"action": "Delete the list"})
    card = await stage.card("Delete the list")
    await press(stage, FOLAKE, card, "Reject")
    rejected = await stage.now_says(card, "Rejected by")
    change_row(stage, lambda record: record["aaep"].update(receipt=state["receipt"]), 100002)
    assert (await stage.workspace.click_as_seen(ADE, rejected, "Verify")).ok
    said = shown((await stage.modal(ADE)).payload["blocks"])
    assert said.startswith("*Not verified.*")
    assert f"belongs to another question or round: `{NAME}/1`" in said


async def test_entry_that_something_else_wrote_is_no_place_in_the_log(
    stage: World, http: httpx.AsyncClient
) -> None:
    """Whoever can write the database can write what they want into the log, but not sign it."""
    _, card = await decided(stage, http)
    assert "*Verified.*" in await in_the_log(stage, card)
    (line,) = [json.loads(each) for each in (await beside(stage, "log")).out.splitlines()]
    claims, header = (
        jwt.decode(line["entry"], options={"verify_signature": False}),
        jwt.get_unverified_header(line["entry"]),
    )
    entry = jwt.encode(claims, Ed25519PrivateKey.generate(), "EdDSA", headers=header)
    assert stage.changed(f"update decisions set entry = '{entry}'") == 1  # noqa: S608 - ours
    said = await window(stage, card, ONCALL)
    assert said.startswith("*Not verified.*")
    assert "The log's entry for this decision isn't genuine" in said
    assert stage.changed("update decisions set entry = 'x', receipt = 'x'") == 1
    printed = await beside(stage, "log")
    assert (printed.code, json.loads(printed.out)["claims"]) == (0, None)
    assert (await beside(stage, "log", "--since", "1h")).out == ""


async def test_decision_that_was_signed_again_is_not_the_one_in_the_log(
    stage: World, http: httpx.AsyncClient
) -> None:
    """Whoever has the key can sign another receipt, and change the record to say the same."""
    _, card = await decided(stage, http, "Reject")
    await in_the_log(stage, card)
    key = read_key((stage.folder / KEY_FILE).read_bytes())

    def approved(record: Json) -> None:
        asked = record["aaep"]
        header = jwt.get_unverified_header(asked["receipt"])
        asked |= {"response": "accept", "label": "Accept"}
        changed = read_item(record)
        assert changed is not None
        claims = claims_of(changed, "urn:clarify:x")
        asked["receipt"] = jwt.encode(claims, key, "EdDSA", headers=header)

    change_row(stage, approved)
    assert (await stage.workspace.click_as_seen(ADE, card, "Verify")).ok
    said = shown((await stage.modal(ADE)).payload["blocks"])
    assert said.startswith("*Not verified.*\nThe receipt in the record isn't the one in the log")
    assert "Verified" not in said
    assert f"Below is what the log has.\n*Decision*\nRejected by <@{FOLAKE}>" in said
    assert "Entry 1 of 1" in said


async def test_receipt_that_was_removed_from_the_record_is_shown_from_the_log(
    stage: World, http: httpx.AsyncClient
) -> None:
    _, card = await decided(stage, http, "Reject")
    await in_the_log(stage, card)
    change_row(stage, lambda record: record["aaep"].pop("receipt"))
    assert (await stage.workspace.click_as_seen(ADE, card, "Verify")).ok
    said = shown((await stage.modal(ADE)).payload["blocks"])
    assert said.startswith(
        "*Not verified.*\nThe log has a receipt for this decision, but the record has none"
    )
    assert f"Below is what the log has.\n*Decision*\nRejected by <@{FOLAKE}>" in said


async def test_forgotten_decision_is_not_called_tampered_with(stage: World, http: httpx.AsyncClient) -> None:
    _, card = await decided(stage, http, "Reject")
    await in_the_log(stage, card)
    assert (await beside(stage, "forget", NAME, "--yes")).code == 0
    assert (await stage.workspace.click_as_seen(ADE, card, "Verify")).ok
    said = shown((await stage.modal(ADE)).payload["blocks"])
    assert "it was forgotten" in said
    assert "removed" not in said


async def test_card_that_the_bot_forgot_about_can_still_be_verified(
    stage: World, http: httpx.AsyncClient
) -> None:
    _, card = await decided(stage, http)
    await stage.now_says(card, "the agent has resumed")
    assert stage.changed("delete from messages") > 0
    assert "*Verified.*" in await window(stage, card)


ROLLOUT = {"agentx": {"topic": "Rollout"}}


async def answered_unconfirmed(stage: World) -> Message:
    """The card of a question that Folake answered, and whose follow-up is its next round."""
    first = await stage.ask("rpl_1", extensions=ROLLOUT)
    stage.producer.lose_next_response()
    await stage.workspace.click(FOLAKE, AGENTS, first.ts, label="Yes")
    await stage.now_says(first, "Sent, but not confirmed")
    return first


async def test_card_of_an_earlier_round_verifies_its_own_receipt(stage: World) -> None:
    async with stage.bot():
        first = await answered_unconfirmed(stage)
        await stage.emit("rpl_2", question="Really?", extensions=ROLLOUT)
        again = await stage.card("Really?")
        await stage.workspace.click(ADE, AGENTS, again.ts, label="No")
        over = await stage.now_says(again, f"<@{ADE}>")
        old = await stage.now_says(first, f"<@{FOLAKE}>")
        assert controls(old) == ["View full", "Verify"]
        said = await window(stage, old)
        assert said.startswith("*Verified.*")
        assert f"clarify log --jwt {NAME}/1 | clarify verify -" in said
        assert f"`{NAME}/1`" in said
        assert f"by <@{FOLAKE}>" in said
        await stage.workspace.close_view(ADE)
        assert controls(over) == ["View full", "Verify"]
        change_row(stage, lambda record: record["aaep"]["earlier"][0].update(response=False))
        assert (await stage.workspace.click_as_seen(ADE, old, "Verify")).ok
        said = shown((await stage.modal(ADE)).payload["blocks"])
        assert said.startswith("*Not verified.*\nThe signature is good, but")


async def test_card_of_a_follow_up_after_the_last_round_verifies_its_own_receipt(stage: World) -> None:
    """Both rounds have the same number in the record; only their receipts differ."""
    async with stage.bot():
        await answered_unconfirmed(stage)
        change_row(stage, lambda record: record.update(maxRounds=1))
        await stage.emit("rpl_2", question="Really?", extensions=ROLLOUT)
        again = await stage.card("Really?")
        await stage.workspace.click(ADE, AGENTS, again.ts, label="No")
        over = await stage.now_says(again, f"<@{ADE}>")
        said = await window(stage, over)
        assert said.startswith("*Verified.*")
        assert f"`{NAME}/2`" in said
        assert f"<@{FOLAKE}>" not in said


async def test_expired_card_has_verify_only_beside_view_full(tmp_path: Path) -> None:
    clock = LeapClock()
    async with scene(tmp_path, clock=clock) as stage, asking(stage) as http:
        for question in ("Short?", "word " * 1200):
            await http.post("/questions", json={"question": question, "timeout": 60})
        short, long = await stage.card("Short?"), await stage.card("word word")
        clock.leap(timedelta(minutes=10))
        assert controls(await stage.now_says(short, "Expired")) == []
        over = await stage.now_says(long, "Expired")
        assert controls(over) == ["View full", "Verify"]
        said = await window(stage, over)
        assert said.startswith("*Verified.*")
        assert "*Decision*\nExpired, <!date^" in said
