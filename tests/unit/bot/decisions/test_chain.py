"""What `chain.verify` says of logs: good ones, and each way to cheat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.decisions import chain
from bot.decisions.chain import BrokenLog, Head, Kind, digest_of, following
from bot.signing import jwk_of
from core.receipts import TYP

Line = dict[str, Any]
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Key:
    def __init__(self) -> None:
        self.private = Ed25519PrivateKey.generate()
        self.jwk = jwk_of(self.private.public_key())
        self.kid = self.jwk["kid"]

    def signed(self, claims: Line, typ: str) -> str:
        return jwt.encode(claims, self.private, "EdDSA", headers={"typ": typ, "kid": self.kid})


KEY, OTHER = Key(), Key()
KEYS = {"keys": [KEY.jwk, OTHER.jwk]}


class Log:
    """A log as `clarify log` prints it."""

    def __init__(self, key: Key = KEY) -> None:
        self.key = key
        self.lines: list[Line] = []

    def put(self, kind: Kind, receipt: str | None = None, claims: Any = None, **more: Any) -> str:
        head = Head(len(self.lines), digest_of(self.lines[-1]["entry"]) if self.lines else None)
        entry = self.key.signed(following(head, kind, NOW, more), chain.TYP)
        self.lines.append({"seq": head.seq + 1, "entry": entry, "receipt": receipt, "claims": claims})
        return entry

    def decide(self, number: int, **more: Any) -> None:
        claims = {"jti": f"CLR-7-{number:03}/1", "outcome": "answered", "decided_by": "user:ann", **more}
        receipt = self.key.signed(claims, TYP)
        self.put("decision", receipt, claims, jti=claims["jti"], sha256=digest_of(receipt))

    def checkpoint(self) -> str:
        return self.put("checkpoint", head=len(self.lines), sha256=digest_of(self.lines[-1]["entry"]))


def log_of(count: int, key: Key = KEY) -> Log:
    log = Log(key)
    for number in range(1, count + 1):
        log.decide(number)
    return log


def test_whole_log_is_verified() -> None:
    log = log_of(3)
    found = chain.verify(log.lines, KEYS)
    assert (found.first, found.head.seq, found.decisions, found.gone, found.kid) == (1, 3, 3, 0, KEY.kid)


def swap(lines: list[Line]) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def drop(lines: list[Line]) -> None:
    del lines[1]


def change_entry(lines: list[Line]) -> None:
    head, _, signature = lines[1]["entry"].rsplit(".", 2)
    body = jwt.utils.base64url_encode(
        jwt.utils.base64url_decode(lines[1]["entry"].split(".")[1]).replace(b'"iat":1', b'"iat":2')
    )
    lines[1]["entry"] = f"{head}.{body.decode()}.{signature}"


def swap_receipts(lines: list[Line]) -> None:
    for field in ("receipt", "claims"):
        lines[0][field], lines[1][field] = lines[1][field], lines[0][field]


def swap_approver(lines: list[Line]) -> None:
    claims = {**lines[1]["claims"], "decided_by": "user:mallory"}
    lines[1] |= {"claims": claims, "receipt": KEY.signed(claims, TYP)}


def write_other_claims_beside(lines: list[Line]) -> None:
    lines[1]["claims"] = {**lines[1]["claims"], "decided_by": "user:mallory"}


def hide_receipt(lines: list[Line]) -> None:
    lines[1]["receipt"] = None


def go_on_with_another_key(lines: list[Line]) -> None:
    log = Log(OTHER)
    log.lines = lines
    log.decide(9)


def sign_with_none(lines: list[Line]) -> None:
    claims = chain.claims_in(lines[-1]["entry"])
    lines[-1]["entry"] = jwt.encode(claims, None, "none", headers={"typ": chain.TYP, "kid": KEY.kid})  # type: ignore[arg-type]


def sign_with_the_public_key(lines: list[Line]) -> None:
    claims = chain.claims_in(lines[-1]["entry"])
    lines[-1]["entry"] = jwt.encode(claims, KEY.jwk["x"], "HS256", headers={"typ": chain.TYP, "kid": KEY.kid})


def put_a_receipt_in_place_of_an_entry(lines: list[Line]) -> None:
    lines[-1]["entry"] = KEY.signed(chain.claims_in(lines[-1]["entry"]), TYP)


def begin_later(lines: list[Line]) -> None:
    del lines[0]


def renumber(lines: list[Line]) -> None:
    lines[1]["seq"] = 7


def empty(lines: list[Line]) -> None:
    lines.clear()


@pytest.mark.parametrize(
    ("cheat", "said"),
    [
        (swap, "Entry 3 comes after entry 1: entries are missing or in another order"),
        (drop, "Entry 3 comes after entry 1: entries are missing or in another order"),
        (change_entry, "Entry 3 does not follow from entry 2: one of the two was changed"),
        (swap_receipts, "Entry 1: the receipt of CLR-7-001/1 was changed or swapped"),
        (swap_approver, "Entry 2: the receipt of CLR-7-002/1 was changed or swapped"),
        (
            write_other_claims_beside,
            "Entry 2: the claims beside the receipt of CLR-7-002/1 are not those in it",
        ),
        (
            hide_receipt,
            "Entry 2: the receipt of CLR-7-002/1 is missing, and no entry says that it was forgotten",
        ),
        (go_on_with_another_key, "which the key before did not announce"),
        (sign_with_none, "Entry 3 is not genuine"),
        (sign_with_the_public_key, "Entry 3 is not genuine"),
        (put_a_receipt_in_place_of_an_entry, "Entry 3 is not an entry of a log"),
        (begin_later, "The log begins with entry 2, and none says that those before it were cut off"),
        (renumber, "its number differs from that of its entry"),
        (empty, "The log is empty"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_cheat_is_found_and_said(cheat: Callable[[list[Line]], None], said: str) -> None:
    log = log_of(3)
    cheat(log.lines)
    with pytest.raises(BrokenLog, match=said):
        chain.verify(log.lines, KEYS)


def test_log_of_another_installation_is_refused() -> None:
    with pytest.raises(BrokenLog, match="is not among the keys given: another bot signed it"):
        chain.verify(log_of(2, OTHER).lines, {"keys": [KEY.jwk]})


def test_checkpoint_shows_a_cut_end_and_another_history() -> None:
    log = log_of(2)
    noted = log.checkpoint()
    log.decide(3)
    assert chain.verify(log.lines, KEYS, checkpoint=noted).head.seq == 4
    with pytest.raises(
        BrokenLog, match=r"ends with entry 1; the checkpoint is of entry 2: its end was cut off"
    ):
        chain.verify(log.lines[:1], KEYS, checkpoint=noted)
    rewritten = Log()
    rewritten.decide(1)
    rewritten.decide(2, decided_by="user:mallory")
    chain.verify(rewritten.lines, KEYS)  # nothing else shows it
    with pytest.raises(BrokenLog, match="Entry 2 differs from the checkpoint: the log was rewritten since"):
        chain.verify(rewritten.lines, KEYS, checkpoint=noted)
    with pytest.raises(BrokenLog, match="The checkpoint is another entry of the log"):
        chain.verify(log.lines, KEYS, checkpoint=log.lines[0]["entry"])
    with pytest.raises(BrokenLog, match="The checkpoint is not genuine"):
        chain.verify(log.lines, KEYS, checkpoint="nothing")
    with pytest.raises(BrokenLog, match="The checkpoint was changed, or another key signed it"):
        chain.verify(log.lines, KEYS, checkpoint=f"{noted[:-10]}AAAAAAAAAA")


def test_next_key_is_announced_by_the_one_before_or_accepted_by_name() -> None:
    log = log_of(2)
    log.put("key", kid=OTHER.kid, jwk=OTHER.jwk)
    log.key = OTHER
    log.decide(3)
    assert chain.verify(log.lines, KEYS).kid == OTHER.kid

    lost = log_of(2)
    lost.key = OTHER
    lost.decide(3)
    with pytest.raises(BrokenLog, match=f"--accept-key {OTHER.kid}"):
        chain.verify(lost.lines, KEYS)
    assert chain.verify(lost.lines, KEYS, accepted=[OTHER.kid]).decisions == 3


def test_announcement_of_a_key_needs_the_signature_of_the_key_before() -> None:
    log = log_of(2)
    log.put("key", kid=OTHER.kid, jwk=OTHER.jwk)
    log.lines[-1]["entry"] = (
        f"{log.lines[-1]['entry'].rpartition('.')[0]}.{log.lines[0]['entry'].rpartition('.')[2]}"
    )
    log.key = OTHER
    log.decide(3)
    with pytest.raises(BrokenLog, match="Entry 3 was changed, or another key signed it"):
        chain.verify(log.lines, KEYS)


def test_what_was_forgotten_or_cut_off_is_said_by_an_entry() -> None:
    log = log_of(3)
    log.put("forgotten", jtis=["CLR-7-001/1"], at=int(NOW.timestamp()))
    log.lines[0] |= {"receipt": None, "claims": None}
    found = chain.verify(log.lines, KEYS)
    assert (found.decisions, found.gone) == (3, 1)

    noted = log.lines[1]["entry"]
    log.put("cut", upto=2, sha256=digest_of(noted))
    later = log.checkpoint()
    del log.lines[:2]
    found = chain.verify(log.lines, KEYS, checkpoint=later)
    assert (found.first, found.head.seq, found.decisions) == (3, 6, 1)
    log.lines.pop(2)
    with pytest.raises(BrokenLog):
        chain.verify(log.lines, KEYS)
