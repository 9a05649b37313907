"""What a receipt says, which records get one, and every way to cheat with one."""

from __future__ import annotations

import base64
import json
import random
import struct
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import clarify
from bot.signing import KeyPlace, NotEd25519, Signing, jwk_of, read_key
from core.approvals import accepted
from core.clarification import Answer, Clarification, Confirmation, Direct, Requester, round_with
from core.matching import followed_up, reopened
from core.questions import KNOWN_PARTS
from core.receipts import INLINE, canonical, claims_of, digest, says_the_same
from core.records import Book, agrees, as_of, dump, packed, parse, unpacked, unsigned_rounds
from core.transitions import abandoned, amended, answered, opened
from tests.kit.builders import ADE, BEA, NOW, SLA, YES, ask, record

ACCEPT, REJECT = Answer("accept", "Accept"), Answer("reject", "Reject", "not on a Friday")
ARGUMENTS: dict[str, Any] = {"to": "ann", "amount": 100, "share": 1.0, "test": False}
LATER = NOW + timedelta(minutes=5)


def to_approve(
    arguments: dict[str, Any] = ARGUMENTS,
    needed: int | None = None,
    claimed_risk: str | None = None,
    **more: Any,
) -> Clarification:
    asked = ask(
        question="Send the newsletter",
        kinds=("confirmation",),
        wanted=Confirmation(
            action="Send the newsletter",
            risk_level="high",
            claimed_risk=claimed_risk,
            sent=arguments,
            editable=True,
        ),
        direct=Direct(kind="approval"),
        approvals_needed=needed,
        **more,
    )
    return opened(42, 1, asked, NOW, SLA)


def known(decider: Any) -> Any:
    return replace(decider, approvers={"U1": "other", "U2": "other"})


@pytest.fixture
def signing(tmp_path: Path) -> Signing:
    made = Signing(KeyPlace(tmp_path / "clarify-signing.pem"), "urn:clarify:here", NOW - timedelta(hours=1))
    assert made.load(create=True)
    return made


def receipt_of(signing: Signing, decided: Clarification) -> str:
    made = signing.made(decided)
    assert made is not None
    return made


# -- what it says ---------------------------------------------------------------------------------------------------


def test_receipt_of_an_approval_says_who_approved_which_arguments() -> None:
    first = accepted(to_approve(needed=2), ACCEPT, known(BEA), LATER)
    edited = Answer("accept", "Accept", changed={"amount": 90})
    second = accepted(first, edited, known(ADE), LATER + timedelta(minutes=1))
    assert second.is_open  # an edit starts anew
    done = accepted(second, ACCEPT, known(BEA), LATER + timedelta(minutes=2))
    claims = claims_of(done, "urn:clarify:here")
    after: Any = ARGUMENTS | {"amount": 90}
    sha256, before = (digest(rfc8785.dumps(each)) for each in (after, ARGUMENTS))
    assert claims == {
        "iss": "urn:clarify:here",
        "aud": "planner",
        "sub": "retirement-planner",
        "session": "sess_1",
        "jti": "CLR-42-001/1",
        "iat": int((LATER + timedelta(minutes=2)).timestamp()),
        "asked": {
            "kind": "approval",
            "action": "Send the newsletter",
            "arguments": ARGUMENTS,
            "approvals": 2,
            "risk": {"claimed": "high", "counted": "high"},
        },
        "outcome": "answered",
        "answer": {"decision": "accept", "arguments": after},
        "comment": None,
        "arguments_sha256": sha256,
        "edits": [{"by": ADE.decided_by, "at": "2026-05-24T14:28:00.000Z", "was_sha256": before}],
        "decided_by": BEA.decided_by,
        "deciders": [
            {"decision": "accept", "by": who.decided_by, "team": "T1", "user": who.user, "at": at}
            | {"surface": "slack", "arguments_sha256": sha256}
            for who, at in ((ADE, "2026-05-24T14:28:00.000Z"), (BEA, "2026-05-24T14:29:00.000Z"))
        ],
    }


def test_rejection_names_its_reason_and_approves_no_arguments() -> None:
    claims = claims_of(answered(to_approve(), REJECT, ADE, LATER), "i")
    assert claims["answer"]["decision"] == "reject"
    assert (claims["comment"], claims["decided_by"]) == ("not on a Friday", ADE.decided_by)
    assert "arguments_sha256" not in claims
    assert [each["decision"] for each in claims["deciders"]] == ["reject"]


def test_person_whom_the_agent_works_for_is_named() -> None:
    done = answered(to_approve(requested_by=Requester(by="U0ANN", pinned=True)), REJECT, ADE, LATER)
    assert claims_of(done, "i")["requested_by"] == {"by": "U0ANN", "pinned": True}


@pytest.mark.parametrize("reason", ["expired", "withdrawn", "by hand", "session ended"])
def test_end_without_an_answer_has_a_receipt_without_deciders(reason: Any) -> None:
    claims = claims_of(abandoned(record(), reason, LATER), "i")
    outcome = reason if reason in {"expired", "withdrawn"} else "closed"
    assert (claims["outcome"], claims["answer"], claims["deciders"]) == (outcome, None, [])
    assert claims["iat"] == int(LATER.timestamp())


def test_person_who_closed_it_is_its_decider() -> None:
    claims = claims_of(abandoned(record(), "by hand", LATER, by=ADE.decided_by, words="Ask me later"), "i")
    assert (claims["comment"], claims["decided_by"]) == ("Ask me later", ADE.decided_by)
    assert claims["deciders"] == [
        {"decision": "close", "by": ADE.decided_by, "at": "2026-05-24T14:27:00.000Z"}
    ]


def test_large_values_stand_as_their_digests(signing: Signing) -> None:
    text, arguments = "é" * INLINE, {"body": "x" * 200_000}
    done = accepted(to_approve(arguments), replace(ACCEPT, rationale=text), known(ADE), LATER)
    claims = claims_of(done, "i")
    content = rfc8785.dumps(arguments)
    assert claims["asked"]["arguments"] == {"sha256": digest(content), "bytes": len(content)}
    assert claims["answer"] == {"decision": "accept", "arguments": claims["asked"]["arguments"]}
    assert claims["comment"] == {"sha256": digest(text.encode()), "bytes": 2 * INLINE}
    receipt = receipt_of(signing, done)
    assert len(receipt) < 2500
    assert clarify.verify(receipt, keys=signing.jwks, arguments=arguments)


# -- which records get one, and when -----------------------------------------------------------------------------------


def book_with(signer: Signing | None, *written: Any) -> Book:
    """`written`: records as their rows have them."""
    return Book(filter(None, map(parse, written)), issue=42, signer=signer)


def rows(book: Book) -> list[Any]:
    """What a book put, as the next one reads it."""
    return [unpacked(packed(dump(each))) for each in book.written]


def owed(signing: Signing, record: Clarification) -> bool:
    return any(map(signing.owes, [record, *(then for _, then in unsigned_rounds(record))]))


def test_write_that_ends_a_round_has_its_receipt_and_later_ones_keep_it(signing: Signing) -> None:
    book = book_with(signing)
    book.put(record())
    assert "receipt" not in rows(book)[0]["rounds"][0]
    done = book.put(answered(book.records[0], YES, ADE, LATER))
    receipt = rows(book)[0]["rounds"][0]["receipt"]
    assert receipt == done.current.receipt is not None
    again = book.put(done.model_copy(update={"revision": done.revision + 1}))
    assert again.current.receipt == receipt
    assert agrees(again, None), "it is known to, without looking at the signature"
    assert signing.agrees(again)


def test_process_without_a_key_leaves_it_to_the_bot(signing: Signing) -> None:
    book = book_with(None)
    done = book.put(answered(book.put(record()), YES, ADE, LATER))
    assert done.current.receipt is None
    elsewhere = book_with(signing, *rows(book))
    (taken_up,) = elsewhere.records
    assert owed(signing, taken_up)
    assert signing.agrees(elsewhere.put(taken_up, owed=True))
    assert not owed(signing, elsewhere.records[0])


def test_decisions_from_before_get_none(signing: Signing) -> None:
    old = answered(record(), YES, ADE, LATER)
    assert signing.owes(old)
    signing.since = LATER + timedelta(seconds=1)
    assert not signing.owes(old)


def test_unreadable_key_refuses_no_decision_and_the_receipt_follows(tmp_path: Path) -> None:
    file = tmp_path / "clarify-signing.pem"
    file.write_text("scrambled")
    signing = Signing(KeyPlace(file), "i", NOW)
    assert not signing.load(create=True)
    assert signing.trouble is not None
    book = book_with(signing)
    done = book.put(answered(book.put(record()), YES, ADE, LATER))
    assert (done.status, done.current.receipt, owed(signing, done)) == ("answered", None, False)
    file.unlink()
    assert signing.load(create=True)
    assert signing.trouble is None
    assert owed(signing, done)
    assert book.put(done, owed=True).current.receipt is not None


def test_earlier_round_gets_the_receipt_that_it_is_owed(signing: Signing) -> None:
    book = book_with(None)
    done = book.put(answered(book.put(record(max_rounds=2)), YES, ADE, LATER))
    after = LATER + timedelta(minutes=1)
    again = book.put(followed_up(done, ask(question="Surely?"), after, SLA))
    for _ in range(2):  # while it is open, and once it is decided, too
        elsewhere = book_with(signing, *rows(book))
        (taken_up,) = elsewhere.records
        assert owed(signing, taken_up)
        elsewhere.put(taken_up, owed=True)
        (signed,) = book_with(None, *rows(elsewhere)).records
        first = signed.earlier[0].receipt or ""
        assert clarify.verify(first, keys=signing.jwks).claims["jti"] == "CLR-42-001/1"
        assert agrees(signed, signing)
        assert not owed(signing, signed)
        for cheat in ({"response": "no"}, {"receipt": "x"}, {"receipt": signed.current.receipt or "y"}):
            rounds = (round_with(signed.earlier[0], **cheat), signed.current)
            assert not agrees(signed.model_copy(update={"rounds": rounds}), signing)
        if again.is_open:
            again = book.put(answered(again, YES, ADE, after + timedelta(minutes=1)))


def test_follow_up_after_the_last_round_has_a_receipt_of_its_own(signing: Signing) -> None:
    book = book_with(signing)
    done, at = book.put(answered(book.put(record(max_rounds=1)), YES, ADE, LATER)), LATER
    again = book.put(followed_up(done, ask(question="Surely?"), at + timedelta(minutes=1), SLA))
    assert (again.round, again.status) == (1, "escalated")
    over = book.put(answered(again, YES, ADE, at + timedelta(minutes=2)))
    (read,) = book_with(None, *rows(book)).records
    names = [
        clarify.verify(each, keys=signing.jwks).claims["jti"]
        for each in (over.earlier[0].receipt or "", over.current.receipt or "")
    ]
    assert (names, agrees(read, signing)) == (["CLR-42-001/1", "CLR-42-001/2"], True)


def test_round_that_was_asked_again_keeps_its_receipt_when_the_next_one_begins(signing: Signing) -> None:
    book, later = book_with(signing), LATER + timedelta(minutes=1)
    done = answered(record(), YES, ADE, LATER)
    done = book.put(answered(book.put(reopened(done, LATER, SLA)), YES, BEA, later))
    book.put(followed_up(done, ask(question="Surely?"), later, SLA))
    (read,) = book_with(None, *rows(book)).records
    assert (read.round, as_of(read, 0).round, agrees(read, signing)) == (3, 2, True)


@pytest.mark.parametrize("cheat", ["answer", "receipt of another", "signature", "no receipt at all"])
def test_record_that_does_not_agree_with_its_receipt(signing: Signing, cheat: str) -> None:
    book = book_with(signing)
    done = book.put(answered(book.put(record()), YES, ADE, LATER))
    receipt = done.current.receipt or ""
    other = receipt_of(signing, answered(record(seq=2), YES, ADE, LATER))
    update = {
        "answer": {"response": "no"},
        "receipt of another": {"receipt": other},
        "signature": {"receipt": receipt[:-8] + "AAAAAAAA"},
        "no receipt at all": {"receipt": "x"},
    }[cheat]
    changed = amended(done, **update)
    assert (signing.agrees(done), signing.agrees(changed)) == (True, False)


# -- keys --------------------------------------------------------------------------------------------------------------


def pem_of(key: Any) -> bytes:
    content: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return content


def test_key_is_made_once_and_for_our_eyes_only(tmp_path: Path) -> None:
    place = KeyPlace(tmp_path / "clarify-signing.pem")
    kid = jwk_of(place.read(create=True).public_key())["kid"]
    assert place.file.stat().st_mode & 0o777 == 0o600
    assert jwk_of(place.read(create=True).public_key())["kid"] == kid
    assert [each.name for each in tmp_path.iterdir()] == ["clarify-signing.pem"]


def test_key_id_is_the_thumbprint_of_rfc_8037() -> None:
    """Appendix A.3 of RFC 8037."""
    secret = base64.urlsafe_b64decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=")
    jwk = jwk_of(Ed25519PrivateKey.from_private_bytes(secret).public_key())
    assert (jwk["x"], jwk["kid"]) == (
        "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    )


def test_key_comes_as_pem_or_as_its_base64_and_must_be_ed25519() -> None:
    key = Ed25519PrivateKey.generate()
    for given in (pem_of(key), base64.b64encode(pem_of(key))):
        assert jwk_of(read_key(given).public_key()) == jwk_of(key.public_key())
    with pytest.raises(NotEd25519):
        read_key(pem_of(generate_private_key(65537, 2048)))
    with pytest.raises(ValueError, match="neither a PEM nor base64"):
        read_key("not a key!")


# -- verifying: cheats are in tests/docs/test_verifying.py -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        (ARGUMENTS, True),
        (ARGUMENTS | {"amount": 100.0, "share": 1}, True),
        (dict(reversed(ARGUMENTS.items())), True),
        (ARGUMENTS | {"amount": 101}, False),
        (ARGUMENTS | {"test": 0}, False),
        (ARGUMENTS | {"share": True}, False),
        (ARGUMENTS | {"amount": "100"}, False),
        (ARGUMENTS | {"more": None}, False),
        (ARGUMENTS | {"amount": 2**60}, False),
        ({}, False),
    ],
)
def test_arguments_are_compared_by_value(signing: Signing, arguments: Any, fits: bool) -> None:
    receipt = receipt_of(signing, accepted(to_approve(), ACCEPT, known(ADE), LATER))
    found = clarify.verify(receipt, keys=signing.jwks, arguments=arguments)
    assert (bool(found), found.problem) == (fits, None)


def test_only_an_approval_approves(signing: Signing) -> None:
    for decided, said in (
        (answered(to_approve(), REJECT, ADE, LATER), "rejected by user:slack/T1/U1"),
        (abandoned(to_approve(), "expired", LATER), "'expired'"),
        (answered(record(), YES, ADE, LATER), "not about an approval"),
        (answered(record(), Answer("accept", "accept"), ADE, LATER), "not about an approval"),
    ):
        found = clarify.verify(receipt_of(signing, decided), keys=signing.jwks)
        assert (bool(found), found.problem) == (False, None)
        assert said in str(found.not_approved)


def test_audience_issuer_and_age_are_checked(signing: Signing) -> None:
    now = NOW + (time.time() - NOW.timestamp()) * timedelta(seconds=1)
    receipt = receipt_of(signing, accepted(to_approve(), ACCEPT, known(ADE), now))
    keys = signing.jwks
    assert clarify.verify(receipt, keys=keys, audience="planner", issuer="urn:clarify:here", max_age=60)
    assert "for 'planner'" in str(clarify.verify(receipt, keys=keys, audience="other").problem)
    assert "issued by" in str(clarify.verify(receipt, keys=keys, issuer="urn:clarify:there").problem)
    old = receipt_of(signing, accepted(to_approve(), ACCEPT, known(ADE), now - timedelta(minutes=20)))
    assert clarify.verify(old, keys=keys, max_age=1800)
    assert "at most 900 s" in str(clarify.verify(old, keys=keys, max_age=900).problem)


def signed(signing: Signing, claims: bytes, **header: Any) -> str:
    """Returns whatever it is, with a good signature."""
    fields = {"alg": "EdDSA", "kid": signing.kid, "typ": "clarify-decision+jwt"} | header
    content = ".".join(
        base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (json.dumps(fields).encode(), claims)
    )
    signature = signing.place.read().sign(content.encode())
    return f"{content}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def last_letter(receipt: str) -> str:
    """The same signature in other letters: base64 leaves bits of its last one open."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return receipt[:-1] + letters[letters.index(receipt[-1]) ^ 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (last_letter, "it is not a JWT"),
        (lambda receipt: f"{receipt}==", "it is not a JWT"),
        (lambda receipt: f"{receipt}.e30", "it is not a JWT"),
        (lambda receipt: f"{receipt}\n{receipt}", "it is not a JWT"),
        ({"header": {"jku": "https://x"}}, "its header has fields that are not known here: 'jku'"),
        ({"header": {"alg": "Ed25519"}}, "it is signed with 'Ed25519'"),
        ({"claims": {"only_if": "Tuesday"}}, "it has fields that are not known here: 'only_if'"),
        (
            {"claims": {"asked": {"kind": "approval", "only_if": {"at": 1}}}},
            "it.asked has fields that are not known here",
        ),
        ({"claims": {"outcome": "revoked"}}, "its outcome is not known here: 'revoked'"),
        (
            {"claims": {"answer": {"decision": "defer", "arguments": {}}}},
            "its decision is not known here: 'defer'",
        ),
        ({"claims": {"answer": "accept"}}, "its `answer` is a value of another kind"),
        ({"claims": {"deciders": [{"decision": "accept", "for": "x"}]}}, "not known here: 'for'"),
        ({"claims": {"iat": True}}, "it.iat is a value of another kind"),
        ({"claims": {"iat": 1e9}}, "it.iat is a value of another kind"),
        ({"claims": {"iat": 10**400}}, "it does not say when"),
        ({"lacks": "iat"}, "it lacks 'iat'"),
        ({"lacks": "jti"}, "it lacks 'jti'"),
        (
            {"text": ('"outcome"', '"outcome": "expired", "outcome"')},
            "it is ambiguous: an object has the same name",
        ),
        ({"text": ('"share": 1.0', '"share": 1e999')}, "it is not a JWT"),
        ({"text": ('"share": 1.0', '"share": Infinity')}, "it is not a JWT"),
        ({"coding": "utf-16"}, "it is not a JWT"),
    ],
)
def test_receipt_that_is_not_as_the_bot_makes_them_is_refused(
    signing: Signing, change: Any, said: str
) -> None:
    done = accepted(to_approve(), ACCEPT, known(ADE), LATER)
    claims = claims_of(done, "urn:clarify:here")
    if callable(change):
        receipt = change(receipt_of(signing, done))
    else:
        claims |= change.get("claims", {})
        claims.pop(change.get("lacks"), None)
        right, wrong = change.get("text", ("", ""))
        text = json.dumps(claims).replace(right, wrong, 1)
        receipt = signed(signing, text.encode(change.get("coding", "utf-8")), **change.get("header", {}))
    found = clarify.verify(receipt, keys=signing.jwks, arguments=ARGUMENTS)
    assert not found
    assert said in str(found.problem)
    assert found.claims == {}
    assert not signing.agrees(amended(done, receipt=receipt))


def test_key_under_the_name_of_another_is_refused(signing: Signing) -> None:
    """People compare the name that is printed."""
    mine = jwk_of(Ed25519PrivateKey.generate().public_key())
    receipt = receipt_of(signing, accepted(to_approve(), ACCEPT, known(ADE), LATER))
    for key in ({**mine, "kid": signing.kid}, {**signing.jwks["keys"][0], "x": mine["x"]}):
        assert "is another one: its thumbprint is" in str(
            clarify.verify(receipt, keys={"keys": [key]}).problem
        )
    assert "is not an Ed25519 key" in str(
        clarify.verify(receipt, keys={"keys": [signing.jwks["keys"][0] | {"x": 7}]}).problem
    )


def test_record_with_1_for_true_does_not_agree_with_its_receipt(signing: Signing) -> None:
    done = answered(to_approve(requested_by=Requester(by="U0ANN", pinned=True)), REJECT, ADE, LATER)
    claims = claims_of(done, "i")
    assert says_the_same(claims, done)
    assert not says_the_same(claims | {"requested_by": {"by": "U0ANN", "pinned": 1}}, done)


# -- RFC 8785 ----------------------------------------------------------------------------------------------------------


def test_canonical_form_is_that_of_rfc8785() -> None:
    rng = random.Random(1)  # noqa: S311 - a test's
    numbers = [struct.unpack("d", rng.randbytes(8))[0] for _ in range(3000)]
    numbers = [each for each in numbers if abs(each) < float("inf")]
    numbers += [10.0**n for n in range(-30, 31)] + [0.0, -0.0, 5e-324, 1e21, 123456789012345680000.0]
    texts = {"\ue000": 1, "\U0001f600": 2, 'a\x7f\u2028\x01"\\/': [True, None, 1.5, "é"]}
    for value in (*numbers, texts, [], {}, "", 2**53 - 1):
        assert clarify.canonical(value) == rfc8785.dumps(value).decode()
    for value in (float("nan"), {1: 2}, {3}):
        with pytest.raises(ValueError, match=r"finite|name|JSON"):
            clarify.canonical(value)


LARGE: dict[str, Any] = {"id": 1187654321098765433, "a": [-(2**53), {"b": 10**400}], "n": 2**53 - 1}


def test_integer_beyond_rfc8785_has_all_its_digits_in_the_canonical_form() -> None:
    written = (
        f'{{"a":[-9007199254740992,{{"b":1{"0" * 400}}}],"id":1187654321098765433,"n":9007199254740991}}'
    )
    assert canonical(LARGE) == clarify.canonical(LARGE).encode() == written.encode()


def test_receipt_has_the_integers_that_readers_round_as_strings(signing: Signing) -> None:
    done = accepted(to_approve(LARGE), ACCEPT, known(ADE), LATER)
    claims = claims_of(done, "i")
    as_strings = {"id": "1187654321098765433", "a": [str(-(2**53)), {"b": str(10**400)}], "n": 2**53 - 1}
    assert claims["asked"]["arguments"] == claims["answer"]["arguments"] == as_strings
    receipt = receipt_of(signing, done)
    assert clarify.verify(receipt, keys=signing.jwks, arguments=LARGE)
    assert signing.agrees(amended(done, receipt=receipt))
    for other in ({"id": "1187654321098765433"}, {"id": 1187654321098765434}, {"id": 1187654321098765433.0}):
        assert not clarify.verify(receipt, keys=signing.jwks, arguments=LARGE | other)


def test_edit_of_a_large_integer_names_what_it_was() -> None:
    edited = Answer("accept", "Accept", changed={"id": 2**64})
    claims = claims_of(accepted(to_approve(LARGE), edited, known(ADE), LATER), "i")
    assert claims["answer"]["arguments"]["id"] == str(2**64)
    (edit,) = claims["edits"]
    assert edit["was_sha256"] == digest(canonical(LARGE))


def test_verifiers_know_the_parts_that_stand_by_themselves() -> None:
    assert clarify.PARTS.keys() == KNOWN_PARTS
