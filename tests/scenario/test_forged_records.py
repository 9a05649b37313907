"""Closed records that are rewritten by somebody who can read the ledgers' folder, with the key of the seals, but has no
signing key: the receipt, or what the storage knows of it, tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.signing import jwk_of
from bot.storage import beside as storage
from bot.storage.connection import connect
from bot.workspace.seed import FALLBACK
from core.receipts import TYP, claims_of
from core.records import Seals, parse
from tests.kit.databases import row_of_key
from tests.kit.lives import beside
from tests.kit.world import World, config
from tests.scenario.other_parties import another_writes
from tests.scenario.prompts import Project
from tests.scenario.test_tampering import NAME, argument, caller, decide, is_refused, told

Json = dict[str, Any]
Change = Callable[[Json], None]

pytestmark = pytest.mark.either_database


def seals_of(stage: World) -> Seals:
    """What whoever has copied the folder, or can read the database, makes seals with."""
    return Seals(stage.folder / "ledgers/.clarify" if stage.rows is None else row_of_key(stage.rows))


def resealed(stage: World, change: Change) -> Change:
    seals = seals_of(stage)

    def changed(raw: Json) -> None:
        change(raw)
        for name in ("seal", "questionSeal"):
            raw["aaep"].pop(name, None)
        record = parse(raw)
        assert record is not None
        asked = seals.sealed(record).asked
        raw["aaep"] |= {"seal": asked.seal} if asked.seal else {"questionSeal": asked.question_seal}

    return changed


async def logged(stage: World) -> None:
    """The log has the decision."""

    def has_it() -> bool:
        query = f"select 1 from decisions where jti = '{NAME}/1'"  # noqa: S608 - ours
        if stage.database is not None:
            with closing(connect(stage.database)) as db:
                return db.execute(query).fetchone() is not None
        with storage.read_only(stage.folder / "clarify.db") as tx:
            return tx.one(query) is not None

    await stage.until(has_it)


def accepted(raw: Json) -> None:
    raw["aaep"].update(response="accept", label="Accept")
    raw["thread"][1]["body"] = "Accept"


def without_receipt(raw: Json) -> None:
    accepted(raw)
    del raw["aaep"]["receipt"]


def with_another_key(raw: Json) -> None:
    accepted(raw)
    issuer = jwt.decode(raw["aaep"]["receipt"], options={"verify_signature": False})["iss"]
    record = parse(raw)
    assert record is not None
    key = Ed25519PrivateKey.generate()
    headers = {"typ": TYP, "kid": jwk_of(key.public_key())["kid"]}
    raw["aaep"]["receipt"] = jwt.encode(claims_of(record, issuer), key, "EdDSA", headers=headers)


CHANGES: dict[str, Change] = {
    "an argument": argument,
    "the decision": accepted,
    "its receipt": without_receipt,
    "its receipt, by another key": with_another_key,
}


async def rejected(stage: World, http: Any) -> None:
    await decide(stage, http, "Reject")
    assert (await http.get(f"/questions/{NAME}")).json()["receipt"]
    await stage.until(lambda: stage.record()["status"] == "resolved")
    await logged(stage)


@pytest.mark.parametrize("kind", CHANGES)
async def test_p11_record_rewritten_with_its_seal_is_found_out(stage: World, kind: str) -> None:
    shell = Project.beside(stage, config(stage.producer.url))
    async with caller(stage) as http:
        await rejected(stage, http)
        await another_writes(stage, resealed(stage, CHANGES[kind]))
        await stage.message(NAME, FALLBACK)
        await is_refused(http)
        assert (await http.get(f"/receipts/{NAME}")).status_code == 410
    forged = stage.record()
    assert json.loads((await shell.run("show", NAME, "--json")).out)["tampered"] is True
    assert "tampered" in (await shell.run("list", "--all")).out
    exported = [json.loads(line) for line in (await shell.run("export")).out.splitlines()]
    assert [each.get("tampered") for each in exported] == [True, True]
    if stage.rows is None:
        assert (
            f"{NAME} was changed by another program after it was decided"
            in (await beside(stage, "check")).out
        )
    async with caller(stage) as http:
        await is_refused(http)
    assert (stage.record(), told(stage)) == (forged, 1)


@pytest.mark.parametrize("kind", CHANGES)
async def test_p11_nor_is_it_missed_when_no_bot_ran(stage: World, kind: str) -> None:
    async with caller(stage) as http:
        await rejected(stage, http)
    await another_writes(stage, resealed(stage, CHANGES[kind]))
    for _ in range(2):
        async with caller(stage) as http:
            await stage.message(NAME, FALLBACK)
            await is_refused(http)
    assert told(stage) == 1
