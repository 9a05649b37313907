"""Receipts of decisions, from the click to the doors of agents, and what verifies them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

import clarify
from bot.errors import ConfigurationError
from bot.signing import KEY_FILE
from tests.kit.lives import beside
from tests.kit.receivers import receiving
from tests.kit.until import until
from tests.kit.world import World, config, said, url_of
from tests.scenario.other_parties import change_row
from tests.scenario.test_approvals import MAIL, ask, asking, look, named, press
from tests.scenario.test_mcp import over
from workspace.seed import ADE, AGENTS, FALLBACK, FOLAKE

Json = dict[str, Any]
NAME = "CLR-100001-001"

pytestmark = pytest.mark.either_database


@pytest.fixture
async def http(stage: World) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(stage) as client:
        yield client


async def keys_of(http: httpx.AsyncClient) -> Json:
    found = await http.get("/.well-known/jwks.json")
    assert found.status_code == 200
    assert "max-age" in found.headers["cache-control"]
    keys: Json = found.json()
    return keys


async def approved(stage: World, http: httpx.AsyncClient, **fields: Any) -> Json:
    asked, card = await ask(stage, http, **fields)
    await press(stage, ADE, card, "Accept")
    return await look(http, asked, wait=30)


async def test_approval_is_verified_by_another_library_in_every_door(
    stage: World, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    asked, card = await ask(stage, http, approvals=2)
    assert asked["receipt"] is None
    assert (await http.get(f"/receipts/{NAME}")).json()["error"] == "NO_RECEIPT"
    await press(stage, FOLAKE, card, "Accept")
    await stage.now_says(card, "One more person must approve")
    await press(stage, ADE, card, "Accept")
    state = await look(http, asked, wait=30)
    receipt = state["receipt"]

    keys = await keys_of(http)
    (key,) = keys["keys"]
    assert (key["kty"], key["crv"], key["alg"], "d" in key) == ("OKP", "Ed25519", "EdDSA", False)
    header = jwt.get_unverified_header(receipt)
    assert header == {"typ": "clarify-decision+jwt", "alg": "EdDSA", "kid": key["kid"]}
    claims = jwt.decode(receipt, jwt.PyJWKSet.from_dict(keys)[key["kid"]], ["EdDSA"], audience="local")
    assert claims["jti"] == f"{NAME}/1"
    assert claims["iss"].startswith("urn:clarify:")
    assert claims["answer"] == {"decision": "accept", "arguments": MAIL["arguments"]}
    assert claims["decided_by"] == state["decided_by"]
    assert [(each["by"], each["decision"]) for each in claims["deciders"]] == [
        (named(FOLAKE), "accept"),
        (named(ADE), "accept"),
    ]
    assert clarify.verify(receipt, keys=keys, arguments=MAIL["arguments"], audience="local", max_age=300)
    assert clarify.Approval(state).receipt == receipt

    found = await http.get(f"/receipts/{NAME}")
    assert (found.text, found.headers["content-type"]) == (receipt, "application/jwt")
    assert (await http.get("/receipts/CLR-100009-001")).status_code == 404
    (listed,) = (await http.get("/questions")).json()["questions"]
    assert "receipt" not in listed
    for door in ("http", "stdio"):
        async with over(door, "2025-06-18", str(http.base_url).rstrip("/")) as client:
            result = await client.call_tool("wait_for_answer", {"id": NAME})
        assert (result.meta or {})["receipt"] == receipt
        assert (result.structured_content or {}).keys() & {"receipt", "asked"} == set()
    assert stage.record()["aaep"]["receipt"] == receipt
    shown = json.loads((await beside(stage, "show", NAME, "--json")).out)
    assert shown["receipt"] == receipt
    exported = [json.loads(each) for each in (await beside(stage, "export")).out.splitlines()]
    assert [each["receipt"] for each in exported if each["type"] == "answer"] == [receipt]

    # The shell, with the keys of the configuration and of a file.
    (tmp_path / "receipt").write_text(receipt)
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "arguments.json").write_text(json.dumps(MAIL["arguments"]))
    (tmp_path / "others.json").write_text(json.dumps(MAIL["arguments"] | {"count": 1205}))
    done = await beside(stage, "verify", receipt)
    assert (done.code, done.out.split(" · ")[0]) == (
        0,
        f"Verified: {NAME}/1 “Send the newsletter” approved by {named(FOLAKE)} and {named(ADE)}",
    )
    offline = ("verify", str(tmp_path / "receipt"), "--jwks", str(tmp_path / "keys.json"))
    right = ("--arguments", str(tmp_path / "arguments.json"), "--audience", "local", "--max-age", "15m")
    assert (await beside(stage, *offline, *right)).code == 0
    wrong = await beside(stage, *offline, "--arguments", str(tmp_path / "others.json"))
    assert (wrong.code, wrong.out) == (1, "")
    assert "other arguments were approved" in wrong.err
    listed_keys = json.loads((await beside(stage, "keys", "--json")).out)["keys"]
    assert [(each["kid"], each["where"]) for each in listed_keys] == [
        (key["kid"], str(stage.folder / KEY_FILE))
    ]


async def test_asked_stays_the_same_from_the_question_to_the_next_start_and_is_what_the_receipt_says(
    stage: World,
) -> None:
    schema = {"type": "object", "properties": {"n": {"title": "n", "type": "integer"}}}
    long = "Why, at length. " * 4000
    questions: list[tuple[Json, str]] = [
        ({"question": "Why hunter1?", "context": long}, "because"),
        ({"question": "Which?", "choices": [{"value": "a", "label": "A", "description": "first"}]}, "a"),
        ({"question": "Go?", "kind": "yes_no"}, "yes"),
        ({"question": "How many?", "kind": "number", "default": 3}, "7"),
        ({"question": "Plan?", "schema": schema}, "7"),
    ]
    more = '[[producers]]\nname = "bare"\nredact = ["hunter[0-9]"]\n'
    text = config(stage.producer.url, more=more)
    shown: dict[str, Json] = {}
    async with asking(stage, text) as http:
        for fields, reply in questions:
            made = (await http.post("/questions", json=fields)).json()
            shown[made["id"]] = made["asked"]
            card = await stage.card(fields["question"].replace("hunter1", "[redacted]"))
            await stage.workspace.post(FOLAKE, AGENTS, reply, card.ts)
            assert (await look(http, made, wait=30))["status"] == "answered"
        made, card = await ask(stage, http, editable=True, risk="medium")
        shown[made["id"]] = made["asked"]
        await press(stage, FOLAKE, card, "Answer…")
        await stage.modal(FOLAKE)
        assert (await stage.workspace.submit_view(FOLAKE, {"Your decision": "Accept", "count": "12"})).ok
        assert (await look(http, made, wait=30))["answer"]["arguments"]["count"] == 12
    assert [each["kind"] for each in shown.values()] == [
        "text",
        "choice",
        "yes_no",
        "number",
        "form",
        "approval",
    ]
    first, *_, approval = shown.values()
    assert (first["question"], first["context"]) == ("Why [redacted]?", long)
    assert approval["arguments"] == MAIL["arguments"]  # as asked; the answer has them as edited

    async with asking(stage, text) as http:
        listed = (await http.get("/questions", params={"status": "answered"})).json()["questions"]
        assert {each["id"]: each["asked"] for each in listed} == shown
        for name, asked in shown.items():
            state = await look(http, {"id": name})
            assert state["asked"] == asked
            claimed = jwt.decode(state["receipt"], options={"verify_signature": False})["asked"]
            assert claimed == _in_a_receipt(asked)
            async with over("http", "2025-06-18", str(http.base_url).rstrip("/")) as client:
                result = await client.call_tool("wait_for_answer", {"id": name})
            said = result.structured_content or {}
            assert (next(iter(said)), said.keys() & {"asked", "receipt"}) == ("say", set())


def _in_a_receipt(asked: Json) -> Json:
    """What was asked, as receipts have it: long texts by their digest."""
    found = dict(asked)
    if len(context := asked.get("context", "").encode()) > 2048:
        sha256 = base64.urlsafe_b64encode(hashlib.sha256(context).digest()).rstrip(b"=").decode()
        found["context"] = {"sha256": sha256, "bytes": len(context)}
    return found


async def test_every_end_of_a_round_has_a_receipt(stage: World, http: httpx.AsyncClient) -> None:
    keys = await keys_of(http)

    def claims_in(state: Json) -> Json:
        found = clarify.verify(state["receipt"], keys=keys)
        assert found.problem is None
        return dict(found.claims)

    rejected, card = await ask(stage, http, action="Drop the table")
    await press(stage, ADE, card, "Reject")
    claims = claims_in(await look(http, rejected, wait=30))
    assert (claims["outcome"], claims["answer"]["decision"]) == ("answered", "reject")
    asked = (await http.post("/questions", json={"question": "Still needed?"})).json()
    state = (await http.delete(f"/questions/{asked['id']}")).json()
    assert claims_in(state)["outcome"] == "withdrawn"
    asked = (await http.post("/questions", json={"question": "In time?", "timeout": 1})).json()
    state = await look(http, asked, wait=50)
    assert (state["status"], claims_in(state)["outcome"]) == ("expired", "expired")


async def test_answer_in_the_shell_is_signed_before_a_door_shows_it(
    stage: World, http: httpx.AsyncClient
) -> None:
    asked = (await http.post("/questions", json={"question": "Which one?"})).json()
    assert (await beside(stage, "answer", asked["id"], "the second")).code == 0
    state = await look(http, asked, wait=30)
    found = clarify.verify(state["receipt"], keys=await keys_of(http))
    assert (found.problem, found.claims["answer"]) == (None, "the second")
    assert (await look(http, asked))["receipt"] == state["receipt"]
    await stage.until(lambda: stage.record()["aaep"].get("receipt") == state["receipt"])


async def test_event_s_receipt_is_found_by_its_reply_token(stage: World) -> None:
    text = config(stage.producer.url, more='\n[[producers]]\nname = "other"\ntoken_env = "OTHER_TOKEN"\n')
    stage.configure(text.replace('name = "planner"', 'name = "planner"\ntoken_env = "PLANNER_TOKEN"'))
    stage.environ |= {"PLANNER_TOKEN": "secret-of-planner", "OTHER_TOKEN": "secret-of-other"}
    async with stage.bot() as bot, httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http:
        card = await stage.ask("rpl_1")
        await stage.workspace.click(ADE, AGENTS, card.ts, label="Yes")
        await stage.reply("rpl_1")
        theirs = {"Authorization": "Bearer secret-of-other"}
        assert (await http.get("/receipts/rpl_1", headers=theirs)).status_code == 404
        mine = {"Authorization": "Bearer secret-of-planner"}
        receipt = (await http.get("/receipts/rpl_1", headers=mine)).text
        claims = clarify.verify(receipt, keys=await keys_of(http)).claims
        assert (claims["aud"], claims["asked"]["question"], claims["answer"]) == (
            "planner",
            "Shall I go on?",
            True,
        )


async def test_receipt_that_was_put_in_its_place_is_handed_out_to_nobody(
    stage: World, http: httpx.AsyncClient
) -> None:
    asked, card = await ask(stage, http, action="Drop the table", key="k1")
    await press(stage, ADE, card, "Reject")
    state = await look(http, asked, wait=30)
    other = await approved(stage, http)

    def change(record: Json) -> None:
        record["aaep"]["receipt"] = other["receipt"]

    change_row(stage, change)
    assert state["receipt"] != other["receipt"]
    assert (await http.get(f"/questions/{asked['id']}")).status_code == 410
    assert (await http.get(f"/receipts/{asked['id']}")).json()["error"] == "TAMPERED"


async def test_receipt_stays_the_same_over_restarts_and_forgetting_removes_it(stage: World) -> None:
    async with asking(stage) as http:
        state = await approved(stage, http)
        keys = await keys_of(http)
    async with asking(stage) as http:
        assert (await look(http, state))["receipt"] == state["receipt"]
        assert await keys_of(http) == keys
    assert (await beside(stage, "forget", NAME, "--yes")).code == 0
    assert "receipt" not in stage.record()["aaep"]


async def test_unreadable_key_delays_receipts_and_nothing_else(stage: World) -> None:
    (stage.folder / KEY_FILE).write_text("scrambled")
    async with asking(stage) as http:
        state = await approved(stage, http)
        assert (state["answer"]["decision"], state["receipt"]) == ("accept", None)
        await stage.message("Receipts cannot be signed", FALLBACK)
        (stage.folder / KEY_FILE).unlink()
        (stage.folder / KEY_FILE).write_bytes(PEM)
        state = await look(http, state)
        assert clarify.verify(state["receipt"], keys=await keys_of(http), arguments=MAIL["arguments"])


@pytest.mark.needs("webhooks")
async def test_webhooks_get_the_receipt_of_the_decision(stage: World) -> None:
    """Once it is signed, if the key could not be read."""
    (stage.folder / KEY_FILE).write_text("scrambled")
    stage.environ |= {"HOOK_SECRET": "shared secret"}
    async with receiving() as hook:
        more = f'\n[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n'

        def sent(event: str) -> list[str | None]:
            found = [each.said["data"] for each in hook.got if each.said["type"] == f"clarification-{event}"]
            return [each.get("receipt") for each in found]

        async with asking(stage, config(stage.producer.url, more=more)) as http:
            state = await approved(stage, http)
            await until(lambda: sent("answered") and sent("resolved"))
            (stage.folder / KEY_FILE).write_bytes(PEM)
            state = await look(http, state)
            assert clarify.verify(state["receipt"], keys=await keys_of(http), arguments=MAIL["arguments"])
            await until(lambda: len(sent("resolved")) == 2)
            assert (sent("requested"), sent("answered"), sent("resolved")) == (
                [None],
                [None, state["receipt"]],
                [None, state["receipt"]],
            )
            asked = (await http.post("/questions", json={"question": "Which one?"})).json()
            assert (await beside(stage, "answer", asked["id"], "the second")).code == 0
            state = await look(http, asked, wait=30)
            await until(lambda: len(sent("resolved")) == 3)
            assert (sent("answered")[2:], sent("resolved")[2:]) == ([state["receipt"]], [state["receipt"]])
        async with asking(stage, config(stage.producer.url, more=more)):
            pass
        assert len(hook.got) == 3 + 2 + 3, "nothing is told twice"


@pytest.mark.needs("webhooks")
async def test_webhooks_hear_of_all_that_was_decided_while_no_bot_ran(stage: World) -> None:
    """The shell has no key: the bot signs before it tells."""
    stage.environ |= {"HOOK_SECRET": "shared secret"}
    async with receiving() as hook:
        more = f'\n[[webhooks]]\nurl = "{hook.url}"\nsecret_env = "HOOK_SECRET"\n'
        async with asking(stage, config(stage.producer.url, more=more)) as http:
            asked = (await http.post("/questions", json={"question": "Which one?"})).json()
            await until(lambda: hook.events == [f"requested {NAME}"])
        assert (await beside(stage, "answer", asked["id"], "the second")).code == 0
        async with asking(stage, config(stage.producer.url, more=more)) as http:
            state = await look(http, asked, wait=30)
            await until(lambda: len(hook.events) == 3)
        async with asking(stage, config(stage.producer.url, more=more)):
            pass
        assert hook.events == [f"{event} {NAME}" for event in ("requested", "answered", "resolved")]
        receipts = [each.said["data"].get("receipt") for each in hook.got]
        assert receipts == [None, state["receipt"], state["receipt"]]


async def test_key_of_another_kind_is_refused_at_the_start(stage: World) -> None:
    (stage.folder / KEY_FILE).write_bytes(P256)
    with pytest.raises(ConfigurationError, match="is not an Ed25519 key"):
        async with stage.bot():
            pass


async def test_key_and_issuer_of_the_configuration(stage: World) -> None:
    stage.environ |= {"CLARIFY_SIGNING_KEY": PEM.decode()}
    text = config(
        stage.producer.url,
        more='\n[trust]\nkey_env = "CLARIFY_SIGNING_KEY"\nissuer = "https://clarify.example.com"\n',
    )
    async with asking(stage, text) as http:
        state = await approved(stage, http)
        found = clarify.verify(
            state["receipt"], keys=await keys_of(http), issuer="https://clarify.example.com"
        )
        assert found
        assert found.kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert not (stage.folder / KEY_FILE).exists()


async def test_large_integer_is_shown_returned_and_verified_digit_by_digit(
    stage: World, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    digits = "1187654321098765433"
    arguments = {"message": int(digits), "like": digits, "nested": [10**30 + 1]}
    asked, card = await ask(stage, http, arguments=arguments)
    for words in (f"message: {digits}", f'like: "{digits}"', f"{10**30 + 1}"):
        assert words in said(card)
    await press(stage, ADE, card, "Accept")
    state = await look(http, asked, wait=30)
    assert state["answer"] == {"decision": "accept", "arguments": arguments}
    assert state["asked"]["arguments"] == arguments
    claims = jwt.decode(state["receipt"], options={"verify_signature": False})
    as_strings = {"message": digits, "like": digits, "nested": [str(10**30 + 1)]}
    assert claims["answer"]["arguments"] == claims["asked"]["arguments"] == as_strings
    keys = await keys_of(http)
    for given, is_same in ((arguments, True), (as_strings, False)):
        assert bool(clarify.verify(state["receipt"], keys=keys, arguments=given)) == is_same
        (tmp_path / "arguments.json").write_text(json.dumps(given))
        file = str(tmp_path / "arguments.json")
        assert (await beside(stage, "verify", state["receipt"], "--arguments", file)).code == (
            0 if is_same else 1
        )


async def test_arguments_that_readers_read_differently_are_refused(http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    for body, words in (
        ('{"action": "Pay", "arguments": {"amount": 1%s}}' % ("0" * 4300), "more than 4,300 digits"),
        ('{"action": "Pay", "arguments": {"a": 1, "b": {"to": "ann", "to": "eve"}}}', "same name twice"),
        ('{"action": "Pay", "action": "Pay more"}', "same name twice"),
    ):
        answer = await http.post("/questions", content=body, headers=headers)
        assert answer.status_code == 422
        assert words in answer.json()["message"]
        params = f'{{"name": "ask_approval", "arguments": {body}}}'
        call = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
        for padded in (call, call + " " * 40_000):  # a long one is read beside the event loop
            assert words in (await http.post("/mcp", content=padded, headers=headers)).text


# RFC 8037, appendix A.1, as PKCS#8; and a key of another kind.
PEM = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
"""
P256 = b"""-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg5i0HZxm6zJyTAsl9
wOZ01lbKLtobtiYw7hweJ+nGeVmhRANCAATTJMtGmOFZ4m3V5tWQ4L5jJVbJlTPP
7fQotKdbYzcbr/pIB74yPHFti4IRvyzI9Ty3D5ne/DF9Oklx6m6Q8RgL
-----END PRIVATE KEY-----
"""
