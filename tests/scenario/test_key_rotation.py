"""`clarify keys rotate`, and keys that another one follows unannounced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import clarify
from bot.decisions.chain import claims_in
from bot.signing import KEY_FILE, jwk_of
from tests.kit.lives import beside
from tests.kit.world import World, config
from tests.scenario.test_approvals import asking
from tests.scenario.test_decision_log import lines_of, logged, verified
from tests.scenario.test_receipts import PEM, approved, keys_of
from workspace.seed import FALLBACK

Json = dict[str, Any]

pytestmark = pytest.mark.either_database


def kid_of(state: Json) -> str:
    found: str = jwt.get_unverified_header(state["receipt"])["kid"]
    return found


async def all_good(stage: World, http: httpx.AsyncClient, count: int, folder: Path) -> list[Json]:
    """The log, of `count` entries: it is verified as a whole, and each receipt by the keys at the well-known address."""
    lines = await logged(stage, count)
    said = await verified(stage, lines, folder)
    assert said.code == 0, said
    keys = await keys_of(http)
    for line in lines:
        assert line["receipt"] is None or clarify.verify(line["receipt"], keys=keys).problem is None
    return lines


async def test_next_key_is_announced_by_the_old_one_and_used_after_a_restart(
    stage: World, tmp_path: Path
) -> None:
    file = stage.folder / KEY_FILE
    async with asking(stage) as http:
        first = await approved(stage, http, action="Send the newsletter")
        await logged(stage, 1)
        before = file.read_bytes()
        done = await beside(stage, "keys", "rotate", "--json")
        rotated = json.loads(done.out)
        assert (rotated["was"], rotated["where"]) == (kid_of(first), str(file))
        assert "Restart the bot" in done.err
        assert file.read_bytes() != before
        assert (file.stat().st_mode & 0o777, len([*stage.folder.glob(f"{KEY_FILE}*")])) == (0o600, 1)
        second = await approved(stage, http, action="Send the invoice")
        assert kid_of(second) == kid_of(first), "the bot goes on with the old key until it is restarted"
        lines = await all_good(stage, http, 3, tmp_path)
        entry = claims_in(lines[1]["entry"])
        assert (entry["kind"], entry["kid"], entry["jwk"]["kid"]) == ("key", rotated["kid"], entry["kid"])
        assert jwt.get_unverified_header(lines[1]["entry"])["kid"] == kid_of(first)
        again = await beside(stage, "keys", "rotate")
        assert (again.code, "Restart it first" in again.err) == (2, True), again
    async with asking(stage) as http:
        third = await approved(stage, http, action="Send the reminder")
        assert kid_of(third) == rotated["kid"]
        await all_good(stage, http, 4, tmp_path)
        assert "Another key" not in "".join(each.text for each in stage.workspace.messages(FALLBACK))
        listed = json.loads((await beside(stage, "keys", "--json")).out)["keys"]
        assert [(each["kid"], each["where"]) for each in listed] == [
            (kid_of(first), None),
            (kid_of(third), str(file)),
        ]
        assert (await beside(stage, "keys", "rotate")).code == 0


async def test_key_of_a_variable_is_printed(stage: World, tmp_path: Path) -> None:
    stage.environ |= {"CLARIFY_SIGNING_KEY": PEM.decode()}
    stage.configure(config(stage.producer.url, more='\n[trust]\nkey_env = "CLARIFY_SIGNING_KEY"\n'))
    async with asking(stage) as http:
        await approved(stage, http, action="Send the newsletter")
        await logged(stage, 1)
        done = await beside(stage, "keys", "rotate")
        assert done.code == 0, done
        assert done.out.startswith("-----BEGIN PRIVATE KEY-----")
        assert "$CLARIFY_SIGNING_KEY" in done.err
    stage.environ |= {"CLARIFY_SIGNING_KEY": done.out}
    async with asking(stage) as http:
        state = await approved(stage, http, action="Send the invoice")
        assert kid_of(state) in done.err
        await all_good(stage, http, 3, tmp_path)
        assert "Another key" not in "".join(each.text for each in stage.workspace.messages(FALLBACK))
    assert not (stage.folder / KEY_FILE).exists()


async def test_keys_of_other_replicas_are_published(stage: World) -> None:
    async with asking(stage) as http:
        (own,) = (await keys_of(http))["keys"]
        other = jwk_of(Ed25519PrivateKey.generate().public_key())
        row = f"'{other['kid']}', '{json.dumps(other)}', 4102444800"
        added = stage.changed(f"insert into signing_keys (kid, jwk, since) values ({row})")  # noqa: S608 - ours
        assert added == 1
        assert (await keys_of(http))["keys"] == [own, other]


async def test_lost_key_is_followed_by_another_and_told(stage: World, tmp_path: Path) -> None:
    file = stage.folder / KEY_FILE
    async with asking(stage) as http:
        first = await approved(stage, http, action="Send the newsletter")
        await logged(stage, 1)
    file.unlink()
    lost = await beside(stage, "keys", "rotate")
    assert (lost.code, "the next start makes a new one" in lost.err) == (2, True), lost
    async with asking(stage) as http:
        told = await stage.message("Another key signs decisions now", FALLBACK)
        second = await approved(stage, http, action="Send the invoice")
        assert kid_of(second) != kid_of(first)
        assert kid_of(second) in json.dumps(told.blocks)
        lines = await logged(stage, 2)
        keys = await keys_of(http)
        assert all(clarify.verify(each["receipt"], keys=keys) for each in (first, second))
    said = await verified(stage, lines, tmp_path)
    assert (said.code, f"--accept-key {kid_of(second)}" in said.err) == (1, True), said
    assert (await verified(stage, lines, tmp_path, "--accept-key", kid_of(second))).code == 0
    async with asking(stage) as http:
        await approved(stage, http, action="Send the reminder")
        assert len(await lines_of(stage)) >= 2
    notices = [each for each in stage.workspace.messages(FALLBACK) if "Another key" in each.text]
    assert len(notices) == 1


async def test_failure_leaves_the_old_key(stage: World) -> None:
    file = stage.folder / KEY_FILE
    assert (await beside(stage, "keys", "rotate")).code == 2  # there is none yet
    async with asking(stage) as http:
        await approved(stage, http, action="Send the newsletter")
        await logged(stage, 1)
        before = file.read_bytes()
        assert stage.changed("delete from signing_keys") == 1
        assert (await beside(stage, "keys", "rotate")).code == 2
        assert file.read_bytes() == before
        assert len([*stage.folder.glob(f"{KEY_FILE}*")]) == 1
        assert len(await lines_of(stage)) == 1


async def test_key_that_was_announced_and_never_written_does_no_harm(stage: World, tmp_path: Path) -> None:
    """As after a kill in between."""
    file = stage.folder / KEY_FILE
    async with asking(stage) as http:
        await approved(stage, http, action="Send the newsletter")
        await logged(stage, 1)
        before = file.read_bytes()
        assert (await beside(stage, "keys", "rotate")).code == 0
        file.write_bytes(before)
    async with asking(stage) as http:
        await approved(stage, http, action="Send the invoice")
        await all_good(stage, http, 3, tmp_path)
        assert (await beside(stage, "keys", "rotate")).code == 0
    async with asking(stage) as http:
        await approved(stage, http, action="Send the reminder")
        await all_good(stage, http, 5, tmp_path)
