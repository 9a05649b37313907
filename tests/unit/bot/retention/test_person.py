"""`clarify forget --person`: what goes from each table, and what stays since it is signed, open, or still applies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.home import forget_viewer
from bot.retention.forget import Remains, Removed, forget_person
from bot.storage.ledger import fill
from bot.storage.sqlite import InSqlite
from bot.storage.store import Store
from core.clarification import Clarification, Refusal
from core.receipts import claims_of
from core.records import dump, parse, without_person
from core.transitions import escalated
from tests.kit.builders import NOW, changed, closed, record
from tests.kit.databases import open_store
from tests.unit.bot.retention.rows import all_of, put

USER, OTHER = "U0ANN", "U0ANNA"
ALIAS = "user:ann"
REFUSAL = Refusal(user=USER, by=f"user:slack/T1/{USER}", surface="slack", why="guest", first=NOW, last=NOW)


def touched(found: Clarification, user: str) -> Clarification:
    """A record that a person claimed, handed over, and tried to decide."""
    refusals = (REFUSAL.copied(user=user, by=f"user:slack/T1/{user}"),)
    return changed(found, taken_by=user, taken_from=user, handed_to=user, refusals=refusals)


def by_hand(found: Clarification, name: str) -> Clarification:
    thread = escalated(record(), "by hand", "Please look", NOW, name).thread[-1:]
    return found.copied(thread=(*found.thread, *thread))


@pytest.mark.parametrize("name", [ALIAS, f"user:slack/T1/{USER}"])
def test_names_go_that_no_receipt_holds(name: str) -> None:
    before = by_hand(touched(closed(), USER), name)
    after = parse(without_person(dump(before), USER, {ALIAS}))
    assert after is not None
    assert not any(each in json.dumps(dump(after)) for each in (USER, ALIAS))
    assert claims_of(after, "i") == claims_of(before, "i")
    assert after.thread[-1].body == "Please look"


@pytest.mark.parametrize(
    "found",
    [
        touched(record(), USER),
        touched(closed(), OTHER),
        by_hand(closed(), f"user:slack/T1/{OTHER}"),
        closed(),
    ],
    ids=["open", "another person", "another's escalation", "nothing of anyone"],
)
def test_other_records_stay_as_they_are(found: Clarification) -> None:
    assert without_person(dump(found), USER, {ALIAS}) == dump(found)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "clarify.db")
    yield opened
    await opened.close()


async def test_each_table_keeps_only_what_is_signed_open_or_still_applies(
    store: Store, tmp_path: Path
) -> None:
    decided = closed(3, reply_token="rpl_3")
    mine = decided.given.copied(decided_by=ALIAS, answered_by=decided.given.answered_by.copied(user=USER))  # type: ignore[union-attr]
    records = [
        touched(closed(1, reply_token="rpl_1"), USER),
        touched(record(seq=2, reply_token="rpl_2"), USER),
        decided.copied(rounds=(decided.current.copied(given=mine),)),
        by_hand(closed(4, reply_token="rpl_4"), ALIAS),
        touched(closed(5, reply_token="rpl_5"), OTHER),
    ]
    await store.write(lambda tx: fill(tx, records, {42: 5}))
    for user in (USER, OTHER):
        await put(store, "homes", user_id=user, team="T1", channel="D1", opened_at=1.0, pages="{}")
        other = OTHER if user == USER else USER  # whom a text names, it is not theirs
        text = {"user": user, "text": f"Ship it, <@{other}>"}
        await put(store, "texts", id=f"t-{user}", body=json.dumps(text))
        await put(store, "texts", id=f"hint:C1:1.0:{user}", body="2026")
        await put(store, "onces", key=f"late:CLR-42-001:1:{user}")
        entries = [{"entry": json.dumps({"what": "taken", "user": user, "page": None})}]
        for number, is_closed in ((1, True), (2, False)):
            incident = {"id": number + 2 * (user == OTHER), "closed_at": 2.0 if is_closed else None}
            words = dict.fromkeys(("title", "reason", "body"), "x")
            key = f"errored:{user}:{number}"
            await put(store, "incidents", key=key, kind="errored", began_at=1.0, **words, **incident)
            await put(store, "incident_log", *entries, incident=incident["id"])
        for hours in (-1, 1):
            until = (NOW + timedelta(hours=hours)).timestamp()
            await put(store, "overrides", policy="p", since=1.0, until=until, user_id=user, made_by=user)

    removed, remains = forget_person(
        InSqlite(tmp_path / "clarify.db"), USER, (), now=NOW, forget_viewer=forget_viewer
    )

    assert removed == Removed(home=1, texts=3, overrides=1, pages=1, questions=2)
    assert remains == Remains(decided=("CLR-42-003",), unsettled=("CLR-42-002",), overrides=1)
    for sql, left in {
        "select user_id from homes": [OTHER],
        "select id from texts order by id": [f"hint:C1:1.0:{OTHER}", f"t-{OTHER}"],
        "select key from onces": [f"late:CLR-42-001:1:{OTHER}"],
        "select incident from incident_log where entry like '%\"U0ANN\"%'": [2],
        "select id from clarifications where body like '%user:ann%' order by id": ["CLR-42-003"],
        "select id from clarifications where body like '%U0ANNA%'": ["CLR-42-005"],
    }.items():
        assert await all_of(store, sql) == left, sql
