"""Seals of questions and decisions: what they cover, what others may change, and those of earlier releases."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.clarification import (
    Clarification,
    Decider,
    Direct,
    Holder,
    answered,
    reply_settled,
    resolved,
    taken,
)
from core.ledger import FileLedger
from core.matching import followed_up
from core.records import Book, Seals, _earlier_seal, _question_seal, dump, forgotten, parse
from core.router import Router
from tests.kit.builders import ADE, LATER, NOW, SLA, YES, ask, record
from tests.kit.clocks import ManualClock

KEY = b"k" * 32
SEALS = Seals(KEY)
Raw = dict[str, Any]
ARGUMENTS: Raw = {"to": "ann", "amount": 100, "note": None, "share": 1.0}


def decided(**more: Any) -> Clarification:
    """An approval that a person decided, sealed."""
    direct = Direct(kind="approval", key="k1", arguments=ARGUMENTS, editable=True)
    return SEALS.sealed(answered(record(direct=direct, **more), YES, ADE, LATER))


def changed(sealed: Clarification, change: Callable[[Raw], object]) -> Clarification:
    raw = json.loads(json.dumps(dump(sealed)))
    change(raw)
    found = parse(raw)
    assert found is not None
    return found


TAMPERING: dict[str, Callable[[Raw], object]] = {
    "arguments": lambda raw: raw["aaep"]["direct"]["arguments"].update(amount=1),
    "an argument that was null": lambda raw: raw["aaep"]["direct"]["arguments"].pop("note"),
    "edits": lambda raw: raw["aaep"].update(
        edits=[{"changed": {"amount": 1}, "decidedBy": "x", "at": "2026-05-24T14:22:00.000Z"}]
    ),
    "approvals": lambda raw: raw["aaep"].update(
        approvals=[{"decidedBy": "x", "at": "2026-05-24T14:22:00.000Z", "digest": ""}]
    ),
    "four eyes": lambda raw: raw["aaep"].update(fourEyes="claimed"),
    "whom the agent works for": lambda raw: raw["aaep"].update(requestedBy={"by": "U0BEN", "pinned": True}),
    "the reason that was wanted": lambda raw: raw["aaep"].update(reasonWanted=True),
    "approvals needed": lambda raw: raw["aaep"].update(approvalsNeeded=2),
    "the question": lambda raw: raw["thread"][0].update(body="Water the plants?"),
    "the answer's words": lambda raw: raw["thread"][1].update(body="No"),
    "who is in the thread": lambda raw: raw["thread"][1].update({"from": "user:x"}),
    "an entry less": lambda raw: raw["thread"].pop(0),
    "the response": lambda raw: raw["aaep"].update(response="no"),
    "the label": lambda raw: raw["aaep"].update(label="No"),
    "the reason": lambda raw: raw["aaep"].update(rationale="because"),
    "who decided": lambda raw: raw["aaep"].update(decidedBy="agent:architect"),
    "how": lambda raw: raw["aaep"].update(answeredBy={"surface": "shell"}),
    "when": lambda raw: raw["aaep"].update(answeredAt="2026-05-24T14:23:00.000Z"),
    "for whom": lambda raw: raw["aaep"].update(producer="mailer"),
    "its default": lambda raw: raw["aaep"]["direct"].update(default="accept"),
    "its token": lambda raw: raw["aaep"].update(replyToken="rpl_2"),
    "its number": lambda raw: raw.update(id="CLR-42-002"),
    "another answer after it": lambda raw: raw["thread"].append({**raw["thread"][1], "body": "No"}),
    "that it is open": lambda raw: raw.update(status="pending"),
    "that it was closed": lambda raw: raw.update(status="abandoned"),
    "its round": lambda raw: raw.update(round=2),
    "another round": lambda raw: (
        raw["thread"].append({**raw["thread"][0], "round": 2}),
        raw.update(round=2),
    ),
    "no seals": lambda raw: (raw["aaep"].pop("seal"), raw["aaep"].update(response="no")),
    "its seal": lambda raw: raw["aaep"].update(seal="2:1:2:" + "0" * 64),
    "fewer entries in its seal": lambda raw: raw["aaep"].update(
        seal=raw["aaep"]["seal"].replace("2:1:2:", "2:1:1:")
    ),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_decision_that_was_changed_is_tampered_with(kind: str) -> None:
    sealed = decided()
    assert (SEALS.verify_question(sealed), SEALS.verify_answer(sealed), SEALS.is_tampered(sealed)) == (
        True,
        True,
        False,
    )
    assert SEALS.is_tampered(changed(sealed, TAMPERING[kind]))


def delivered(raw: Raw) -> None:
    raw["aaep"] |= {"reply": "confirmed", "replyNote": "sent", "wentOnAt": "2026-05-24T15:00:00.000Z"}
    raw |= {"status": "resolved", "resolvedAt": "2026-05-24T15:00:00.000Z", "revision": 9}


def written_anew(raw: Raw) -> None:
    """As a program in JavaScript does, which has one kind of number."""
    raw["aaep"]["direct"]["arguments"]["share"] = 1
    raw["priority"], raw["aaep"]["theirs"], raw["thread"][1]["mood"] = 1, {"seen": True}, "glad"


def closed_by_its_requester(raw: Raw) -> None:
    entry = {"round": 1, "from": "engineer", "type": "resolution", "body": "Thanks."}
    raw["thread"].append(entry | {"timestamp": "2026-05-24T15:00:00.000Z"})
    raw["status"] = "resolved"


@pytest.mark.parametrize("change", [delivered, written_anew, closed_by_its_requester])
def test_what_may_follow_a_decision_does_not_touch_its_seal(change: Callable[[Raw], None]) -> None:
    after = changed(decided(), change)
    assert (SEALS.verify_question(after), SEALS.verify_answer(after), SEALS.is_tampered(after)) == (
        True,
        True,
        False,
    )


def earlier(sealed: Clarification) -> Clarification:
    """As the release before would have written it."""
    bare = sealed.model_copy(update={"aaep": sealed.asked.model_copy(update={"seal": None})})
    seals = {"seal": _earlier_seal(KEY, bare), "question_seal": _question_seal(KEY, bare)}
    return bare.model_copy(update={"aaep": bare.asked.model_copy(update=seals)})


def test_seals_of_an_earlier_release_are_good_for_what_they_cover() -> None:
    done = resolved(reply_settled(earlier(decided()), "confirmed", None), LATER)
    assert (SEALS.verify_question(done), SEALS.verify_answer(done), SEALS.is_tampered(done)) == (
        True,
        True,
        False,
    )
    assert SEALS.is_tampered(changed(done, TAMPERING["arguments"]))
    assert not SEALS.verify_answer(changed(done, TAMPERING["the response"]))
    old = resolved(reply_settled(answered(record(), YES, ADE, LATER), "confirmed", None), LATER)
    assert not SEALS.is_tampered(old), "the release before that sealed nothing"


@pytest.mark.parametrize("kind", ["arguments", "the response", "who decided"])
def test_decision_does_not_become_an_earlier_releases_by_losing_its_seal(kind: str) -> None:
    """Whoever lacks the key can neither write the earlier seals nor has them: a decision's takes their place."""

    def downgraded(raw: Raw) -> None:
        TAMPERING[kind](raw)
        raw["aaep"]["seal"] = raw["aaep"]["seal"].rsplit(":", 1)[1]

    sealed = decided()
    assert sealed.asked.question_seal is None
    after = changed(sealed, downgraded)
    assert SEALS.is_tampered(after)
    assert not SEALS.verify_question(after)


def test_forgotten_decision_is_not_tampered_with() -> None:
    gone = parse(forgotten(dump(decided())))
    assert gone is not None
    assert not SEALS.is_tampered(gone)


def test_nothing_is_tampered_with_where_the_key_cannot_be_had(tmp_path: Path) -> None:
    assert not Seals(tmp_path).is_tampered(changed(decided(), TAMPERING["arguments"]))


def again(sealed: Clarification) -> Clarification:
    """Asked further by its session."""
    return SEALS.sealed(followed_up(sealed, ask(reply_token="rpl_2", question="And then?"), LATER, SLA))


def test_round_before_stays_as_it_was_decided() -> None:
    first = SEALS.sealed(answered(record(), YES, ADE, LATER))
    second = again(resolved(first, LATER).model_copy(update={"status": "answered"}))
    assert SEALS.verify_question(second)
    for change in (
        lambda raw: raw["aaep"]["earlier"][0].update(response="no"),
        lambda raw: raw["thread"][1].update(body="No"),
        lambda raw: raw["thread"].append({**raw["thread"][1], "body": "No"}),
    ):
        assert SEALS.verify_question(changed(second, change)) is False
    done = SEALS.sealed(answered(second, YES, ADE, LATER))
    assert SEALS.verify_question(done)
    assert SEALS.is_tampered(changed(done, lambda raw: raw["aaep"]["earlier"][0].update(response="no")))


def between_agents(**more: Any) -> Clarification:
    nobodys: tuple[str, ...] = ("producer", "session_id", "reply_token", "event_id", "asked_at", "expires_at")
    fields: Raw = dict.fromkeys(nobodys)
    return record(**fields, to="architect", via="http", **more)


def test_other_implementations_ask_their_agents_further() -> None:
    """They leave our fields as they are, in a record that no reply is owed for."""

    def asked_further(raw: Raw) -> None:
        raw |= {"status": "pending", "round": 2}
        raw["thread"].append({**raw["thread"][0], "round": 2, "body": "And then?"})

    sealed = SEALS.sealed(answered(between_agents(), YES, ADE, LATER))
    after = changed(sealed, asked_further)
    assert (SEALS.verify_question(after), SEALS.is_tampered(after)) == (True, False)
    assert SEALS.verify_question(changed(after, lambda raw: raw["thread"][1].update(body="No"))) is False
    theirs = changed(between_agents(), closed_by_its_requester)
    assert (SEALS.verify_question(theirs), SEALS.is_tampered(theirs)) == (True, False)


def book(before: Clarification) -> Book:
    return Book(42, {"issueNumber": 42, "clarifications": [dump(before)]}, lambda: 1, SEALS)


def test_what_another_program_changed_is_not_sealed_by_our_next_write() -> None:
    forged = changed(decided(), TAMPERING["arguments"])
    after = book(forged).put(reply_settled(forged, "confirmed", None))
    assert SEALS.is_tampered(after)
    named = answered(SEALS.sealed(record()), YES, ADE, LATER)  # by another program, in a person's name
    after = book(named).put(reply_settled(named, "confirmed", None))
    assert not SEALS.verify_answer(after)


def test_decision_of_an_earlier_release_is_sealed_whole_by_our_next_write() -> None:
    before = earlier(decided())
    after = book(before).put(reply_settled(before, "confirmed", None))
    assert (after.asked.seal or "").startswith("2:1:2:")
    assert after.asked.question_seal is None
    assert not SEALS.is_tampered(after)


async def test_decision_is_sealed_in_the_write_that_makes_it(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path)
    writes: list[Clarification] = []
    router = Router(ledger, ManualClock(), SLA, writes.append)
    opened = (await router.open(42, replace(ask(), expires_at=None))).record
    await router.answer(opened.id, lambda _: YES, Decider("agent:architect", "responder"), NOW)
    assert len(writes) == 2
    found = await ledger.find(opened.id, 42)
    assert (found.asked.seal or "").startswith("2:1:2:")
    assert not await ledger.is_tampered(found)
    assert await ledger.is_tampered(changed(found, TAMPERING["the response"]))
    ledger.close()


def test_claim_is_ours_only_with_our_seal_on_that_person() -> None:
    asked = SEALS.sealed(record())
    claimed = SEALS.holder_sealed(taken(asked, Holder(user="U1", team="T1", at=LATER)), asked)
    assert SEALS.verify_holder(claimed)
    assert SEALS.verify_holder(SEALS.holder_sealed(claimed, claimed)), "kept by the next write"
    for change in (
        lambda raw: raw["aaep"]["takenBy"].update(user="U2"),
        lambda raw: raw["aaep"]["takenBy"].pop("seal"),
        lambda raw: raw["aaep"].update(handedTo=raw["aaep"].pop("takenBy")),
        lambda raw: raw.update(id="CLR-42-002"),
    ):
        theirs = changed(claimed, change)
        assert not SEALS.verify_holder(theirs)
        assert not SEALS.verify_holder(SEALS.holder_sealed(theirs, theirs)), (
            "our next write does not make it ours"
        )
    assert not SEALS.verify_holder(asked)


async def test_own_writes_are_known_by_what_stands_in_the_file(tmp_path: Path) -> None:
    """While a ledger holds what we wrote, its record is the one that we wrote; what others change is read and checked."""
    ledger = FileLedger(tmp_path)
    router = Router(ledger, ManualClock(), SLA, lambda _: None)
    ours = (await router.open(42, ask())).record
    assert await ledger.find(ours.id, 42) is ours
    assert not await ledger.is_tampered(ours)
    path = ledger.files.path(42)
    path.write_text(path.read_text().replace('"topic":', '"topic": "theirs", "was":'))
    theirs = await ledger.find(ours.id, 42)
    assert (theirs is ours, theirs.topic, await ledger.verify_question(theirs)) == (False, "theirs", False)
    ledger.close()
