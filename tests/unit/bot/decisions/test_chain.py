"""What `chain.verify` says of logs: good ones, and each way to cheat."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from bot.cli.app import app
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


def receipt_claims(number: int) -> Line:
    return {
        "iss": "urn:clarify:here",
        "aud": "planner",
        "sub": "retirement-planner",
        "jti": f"CLR-7-{number:03}/1",
        "iat": int(NOW.timestamp()),
        "asked": {
            "kind": "approval",
            "action": "Send the newsletter",
            "arguments": {"count": 1, "share": 0.5},
        },
        "outcome": "answered",
        "answer": {"decision": "accept", "arguments": {"count": 1, "share": 0.5}},
        "comment": None,
        "decided_by": "user:ann",
        "deciders": [{"decision": "accept", "by": "user:ann"}],
    }


class Log:
    """A log as `clarify log` prints it."""

    def __init__(self, key: Key = KEY) -> None:
        self.key = key
        self.lines: list[Line] = []

    def put(self, kind: Kind, receipt: str | None = None, claims: Any = None, **more: Any) -> str:
        head = Head(len(self.lines), digest_of(self.lines[-1]["entry"]) if self.lines else None)
        entry = self.key.signed(following(head, kind, NOW, more), chain.TYP)
        beside = chain.claims_in(entry) if kind != "decision" else claims
        self.lines.append({"seq": head.seq + 1, "entry": entry, "receipt": receipt, "claims": beside})
        return entry

    def decide(self, number: int, **more: Any) -> None:
        claims = receipt_claims(number) | more
        receipt = self.key.signed(claims, TYP)
        self.put("decision", receipt, claims, jti=claims["jti"], sha256=digest_of(receipt))

    def forget(self, number: int) -> None:
        self.put("forgotten", jtis=[f"CLR-7-{number:03}/1"], at=int(NOW.timestamp()))
        self.lines[number - 1] |= {"receipt": None, "claims": None}

    def checkpoint(self) -> str:
        return self.put("checkpoint", head=len(self.lines), sha256=digest_of(self.lines[-1]["entry"]))


def log_of(count: int, key: Key = KEY) -> Log:
    log = Log(key)
    for number in range(1, count + 1):
        log.decide(number)
    return log


def verify(lines: list[Line], keys: Line, **more: Any) -> chain.Verified:
    return chain.verify([json.dumps(line).encode() for line in lines], keys, **more)


def good() -> Log:
    """A log with entries of every kind but `cut`."""
    log = log_of(3)
    log.forget(1)
    log.put("key", kid=OTHER.kid, jwk=OTHER.jwk)
    log.key = OTHER
    log.decide(4)
    log.checkpoint()
    log.decide(5)
    return log


def said_of(folder: Path, text: str | bytes, *options: str, keys: Line = KEYS) -> str | None:
    """What `clarify verify --log` says is wrong with a file; None: nothing."""
    file, jwks = folder / "log.jsonl", folder / "jwks.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    jwks.write_text(json.dumps(keys))
    done = CliRunner().invoke(app, ["verify", "--log", str(file), "--jwks", str(jwks), *options])
    assert done.exit_code in {0, 1}, done.output
    assert ("Verified: " in done.stdout) is (done.exit_code == 0)
    return done.stderr if done.exit_code else None


def text_of(lines: list[Line]) -> str:
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def test_log_with_entries_of_every_kind_is_verified(tmp_path: Path) -> None:
    log = good()
    assert said_of(tmp_path, text_of(log.lines)) is None
    log.put("cut", upto=2, sha256=digest_of(log.lines[1]["entry"]))
    del log.lines[:2]
    assert said_of(tmp_path, text_of(log.lines)) is None


# -- whoever has no key: what stands in the lines, and where

FORGED = receipt_claims(9) | {"decided_by": "user:mallory"}


def beside(number: int, **fields: Any) -> Callable[[list[Line]], None]:
    def cheat(lines: list[Line]) -> None:
        lines[number - 1] |= fields

    return cheat


def claim(seq: int, **fields: Any) -> Callable[[list[Line]], None]:
    """Changes the claims beside an entry, not those that are signed."""

    def cheat(lines: list[Line]) -> None:
        lines[seq - 1]["claims"] = {**lines[seq - 1]["claims"], **fields}

    return cheat


def receipt_beside(seq: int, of: int) -> Callable[[list[Line]], None]:
    """Puts the genuine receipt and claims of another decision beside an entry."""

    def cheat(lines: list[Line]) -> None:
        lines[seq - 1] |= {name: lines[of - 1][name] for name in ("receipt", "claims")}

    return cheat


def without(seq: int, *names: str) -> Callable[[list[Line]], None]:
    def cheat(lines: list[Line]) -> None:
        for name in names:
            del lines[seq - 1][name]

    return cheat


def entry(seq: int, change: Callable[[str], str]) -> Callable[[list[Line]], None]:
    def cheat(lines: list[Line]) -> None:
        lines[seq - 1]["entry"] = change(lines[seq - 1]["entry"])

    return cheat


def with_header(**fields: Any) -> Callable[[str], str]:
    """Changes the header of a JWT, and leaves the rest."""

    def change(token: str) -> str:
        header, rest = token.split(".", 1)
        found = json.loads(base64.urlsafe_b64decode(header + "==")) | fields
        return f"{part(json.dumps(found))}.{rest}"

    return change


def with_body(change: Callable[[bytes], bytes]) -> Callable[[str], str]:
    def changed(token: str) -> str:
        header, body, signature = token.split(".")
        return f"{header}.{part(change(base64.urlsafe_b64decode(body + '==')))}.{signature}"

    return changed


def part(content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def original(seq: int) -> Callable[[list[Line]], None]:
    """Puts a receipt back that was forgotten."""

    def cheat(lines: list[Line]) -> None:
        lines[seq - 1] = log_of(seq).lines[seq - 1]

    return cheat


def swapped(one: int, other: int) -> Callable[[list[Line]], None]:
    def cheat(lines: list[Line]) -> None:
        lines[one - 1], lines[other - 1] = lines[other - 1], lines[one - 1]

    return cheat


def gone(first: int, last: int) -> Callable[[list[Line]], None]:
    def cheat(lines: list[Line]) -> None:
        del lines[first - 1 : last]

    return cheat


BESIDE = "the claims beside it are not those in it or in its receipt"
LINES: dict[str, tuple[Callable[[list[Line]], None], str]] = {
    "claims beside a decision": (claim(2, decided_by="user:mallory"), f"Entry 2: {BESIDE}"),
    "claims left out beside a decision": (beside(2, claims=None), f"Entry 2: {BESIDE}"),
    "1.0 for 1": (claim(2, answer={"decision": "accept", "arguments": {"count": 1.0, "share": 0.5}}), BESIDE),
    "claims beside a forgotten decision": (beside(1, claims=FORGED), f"Entry 1: {BESIDE}"),
    "claims beside forgotten": (claim(4, jtis=["CLR-7-002/1"]), f"Entry 4: {BESIDE}"),
    "claims beside a checkpoint": (claim(7, head=5), f"Entry 7: {BESIDE}"),
    "no claims beside a checkpoint": (beside(7, claims=None), f"Entry 7: {BESIDE}"),
    "a receipt beside forgotten": (receipt_beside(4, 2), "Entry 4 is about no receipt, but one is beside it"),
    "another receipt beside a forgotten decision": (
        receipt_beside(1, 2),
        "Entry 1: the receipt of CLR-7-001/1 was changed or swapped",
    ),
    "a forgotten receipt put back": (
        original(1),
        "Entry 1: entry 4 says that CLR-7-001/1 was forgotten, but its receipt is here",
    ),
    "one receipt beside two decisions": (
        receipt_beside(3, 2),
        "Entry 3: the receipt of CLR-7-003/1 was changed or swapped: its digest differs",
    ),
    "a receipt left out": (
        beside(2, receipt=None, claims=None),
        "Entry 2: the receipt of CLR-7-002/1 is missing, and no entry says that it was forgotten",
    ),
    "an entry that is a number": (beside(2, entry=7), "Line 2.entry is a value of another kind"),
    "an unknown name": (beside(2, note="x"), "Line 2 has fields that are not known here: 'note'"),
    "no receipt": (without(7, "receipt"), "Line 7 lacks 'receipt'"),
    "another number": (beside(2, seq=7), "Line 2: its number differs from that of its entry, 2"),
    "lines in another order": (
        swapped(2, 3),
        "Entry 3 comes after entry 1: entries are missing or in another order",
    ),
    "a line twice": (lambda lines: lines.insert(1, lines[1]), "Entry 2 comes after entry 2"),
    "a line dropped": (gone(2, 2), "Entry 3 comes after entry 1: entries are missing or in another order"),
    "the beginning dropped": (
        gone(1, 2),
        "The log begins with entry 3, and none says that those before it were cut",
    ),
    "nothing left": (gone(1, 99), "The log is empty"),
    "the entry's type": (entry(2, with_header(typ=TYP)), f"its type is '{TYP}', not '{chain.TYP}'"),
    "the entry's time": (
        entry(2, with_body(lambda body: body.replace(b'"iat":1', b'"iat":2'))),
        "line 2 is not genuine: the signature does not match",
    ),
    "a receipt in place of an entry": (
        lambda lines: lines[1].__setitem__("entry", lines[1]["receipt"]),
        f"its type is '{TYP}', not '{chain.TYP}'",
    ),
}


@pytest.mark.parametrize("cheat", LINES)
def test_forged_line_is_found_and_said(cheat: str, tmp_path: Path) -> None:
    log, (forge, said) = good(), LINES[cheat]
    forge(log.lines)
    assert said in (said_of(tmp_path, text_of(log.lines)) or "")


def twice(name: str, value: str) -> Callable[[str], str]:
    """Puts a name into the second line a second time; the right value is the last one."""

    def cheat(text: str) -> str:
        first, second, rest = text.split("\n", 2)
        return f"{first}\n{{{json.dumps(name)}: {value}, {second[1:]}\n{rest}"

    return cheat


def replaced(one: str, other: str) -> Callable[[str], str]:
    def cheat(text: str) -> str:
        assert one in text
        return text.replace(one, other, 1)

    return cheat


TEXTS: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "a receipt twice": (
        twice("receipt", '"e30.e30.e30"'),
        "Line 2 is ambiguous: an object has the same name twice",
    ),
    "more digits": (
        replaced('"share": 0.5', '"share": 0.50000000000000000001'),
        "Line 2 is ambiguous: programs read the number",
    ),
    "a huge number": (replaced('"seq": 2', f'"seq": {"9" * 5000}'), "Line 2 is"),
    "more behind the line": (lambda text: text.replace("}\n", '} {"seq": 1}\n', 1), "Line 1 is not JSON"),
    "a list in place of a line": (lambda _: "[]\n", "Line 1 is a value of another kind"),
    "an empty line": (lambda text: text.replace("\n", "\n\n", 1), "Line 2 is not JSON"),
    "bytes that are no text": (
        lambda text: text.encode().replace(b"Send", b"Se\xff\xfe", 1),
        "Line 2 is not JSON",
    ),
    "nested without end": (
        lambda text: re.sub('"claims": null', f'"claims": {"[" * 100_000}', text, count=1),
        "Line 1 is nested too deeply",
    ),
    "an empty file": (lambda _: "", "The log is empty"),
}


@pytest.mark.parametrize("cheat", TEXTS)
def test_line_that_programs_read_differently_is_refused(cheat: str, tmp_path: Path) -> None:
    forge, said = TEXTS[cheat]
    assert said in (said_of(tmp_path, forge(text_of(good().lines))) or "")


# -- what a bot would sign that is not ours, or of a later release: what is not known is refused


def following_(log: Log, kind: str, **more: Any) -> Line:
    head = Head(len(log.lines), digest_of(log.lines[-1]["entry"]) if log.lines else None)
    return {**following(head, "decision", NOW, {}), "kind": kind, **more}


SHA = digest_of("x")
ENTRIES: dict[str, tuple[str, Line, str]] = {
    "a kind of a later release": ("amended", {}, "its kind is not known here: 'amended'"),
    "a claim more in a decision": (
        "decision",
        {"jti": "CLR-7-009/1", "sha256": SHA, "void": True},
        "it has fields that are not known here: 'void'",
    ),
    "a decision without its digest": ("decision", {"jti": "CLR-7-009/1"}, "it lacks 'sha256'"),
    "a decision for the second time": (
        "decision",
        {"jti": "CLR-7-002/1", "sha256": SHA},
        "CLR-7-002/1 was decided before",
    ),
    "forgotten, but of numbers": (
        "forgotten",
        {"jtis": [1], "at": 1},
        "it.jtis[0] is a value of another kind",
    ),
    "forgotten, but never decided": (
        "forgotten",
        {"jtis": ["CLR-9-009/1"], "at": 1},
        "Entry 4 says that CLR-9-009/1 was forgotten, which was never decided",
    ),
    "forgotten, with its receipt": (
        "forgotten",
        {"jtis": ["CLR-7-002/1"], "at": 1},
        "Entry 2: entry 4 says that CLR-7-002/1 was forgotten, but its receipt is here",
    ),
    "a key under another name": (
        "key",
        {"kid": KEY.kid, "jwk": OTHER.jwk},
        "its `kid` and its `jwk` are not of one key",
    ),
    "a key that is not its thumbprint": (
        "key",
        {"kid": "mine", "jwk": OTHER.jwk | {"kid": "mine"}},
        "the key given as 'mine' is another one: its thumbprint is",
    ),
    "a key with more": (
        "key",
        {"kid": OTHER.kid, "jwk": OTHER.jwk | {"d": "x"}},
        "it.jwk has fields that are not known",
    ),
    "a checkpoint ahead of the head": (
        "checkpoint",
        {"head": 9, "sha256": SHA},
        "it is a checkpoint of another history",
    ),
    "a cut of what is there": (
        "cut",
        {"upto": 2, "sha256": SHA},
        "Entry 4 says that the entries up to 2 were cut off: that does not fit a log that begins with entry 1",
    ),
    "another history": (
        "forgotten",
        {"prev": SHA, "jtis": [], "at": 1},
        "Entry 4 does not follow from entry 3",
    ),
}


@pytest.mark.parametrize("cheat", ENTRIES)
def test_signed_entry_that_is_not_known_or_does_not_fit_is_refused(cheat: str, tmp_path: Path) -> None:
    log, (kind, more, said) = log_of(3), ENTRIES[cheat]
    claims = following_(log, kind, **more)
    token = KEY.signed(claims, chain.TYP)
    shown = None if kind == "decision" else claims
    log.lines.append({"seq": len(log.lines) + 1, "entry": token, "receipt": None, "claims": shown})
    assert said in (said_of(tmp_path, text_of(log.lines)) or "")
    log.decide(9)  # the last one is not the only one that counts
    assert said in (said_of(tmp_path, text_of(log.lines)) or "")


RECEIPTS: dict[str, tuple[Line, str]] = {
    "of another round": (
        {"jti": "CLR-7-009/2"},
        "Entry 4: the receipt is of CLR-7-009/2, not of CLR-7-009/1",
    ),
    "with a claim of a later release": ({"void": True}, "it has fields that are not known here: 'void'"),
}


@pytest.mark.parametrize("cheat", RECEIPTS)
def test_signed_receipt_that_is_not_known_or_is_another_is_refused(cheat: str, tmp_path: Path) -> None:
    log, (fields, said) = log_of(3), RECEIPTS[cheat]
    claims = receipt_claims(9) | fields
    receipt = KEY.signed(claims, TYP)
    log.put("decision", receipt, claims, jti="CLR-7-009/1", sha256=digest_of(receipt))
    assert said in (said_of(tmp_path, text_of(log.lines)) or "")


def test_part_of_a_log_never_passes_as_a_whole_one(tmp_path: Path) -> None:
    """What `clarify log --agent` prints: gaps are refused, and a beginning is not said to be all."""
    lines = log_of(5).lines
    for some in (lines[1:], lines[::2], lines[:2] + lines[3:]):
        assert said_of(tmp_path, text_of(some)) is not None
    assert "A part of a log, such as `clarify log --agent` prints" in (
        said_of(tmp_path, text_of(lines[::2])) or ""
    )
    file, jwks = tmp_path / "log.jsonl", tmp_path / "jwks.json"
    file.write_text(text_of(lines[:2]))
    done = CliRunner().invoke(app, ["verify", "--log", str(file), "--jwks", str(jwks)])
    assert done.exit_code == 0
    assert "nothing shows whether entries after 2 were left out" in done.stderr
    done = CliRunner().invoke(app, ["verify", "--log", str(file), "--jwks", str(jwks), "--json"])
    assert json.loads(done.stdout)["checkpoint"] is False


def test_log_of_another_installation_is_refused() -> None:
    with pytest.raises(BrokenLog, match="is not among the keys given: another bot signed it"):
        verify(log_of(2, OTHER).lines, {"keys": [KEY.jwk]})


def test_checkpoint_shows_a_cut_end_and_another_history() -> None:
    log = log_of(2)
    noted = log.checkpoint()
    log.decide(3)
    assert verify(log.lines, KEYS, checkpoint=noted).head.seq == 4
    with pytest.raises(BrokenLog, match=r"ends with entry 1; the checkpoint is entry 3: its end was cut off"):
        verify(log.lines[:1], KEYS, checkpoint=noted)
    with pytest.raises(BrokenLog, match=r"ends with entry 2; the checkpoint is entry 3: its end was cut off"):
        verify(log.lines[:2], KEYS, checkpoint=noted)
    rewritten = Log()
    rewritten.decide(1)
    rewritten.decide(2, decided_by="user:mallory")
    rewritten.checkpoint()
    verify(rewritten.lines, KEYS)  # nothing else shows it
    with pytest.raises(BrokenLog, match="Entry 3 differs from the checkpoint: the log was rewritten since"):
        verify(rewritten.lines, KEYS, checkpoint=noted)
    with pytest.raises(BrokenLog, match="The checkpoint is another entry of the log"):
        verify(log.lines, KEYS, checkpoint=log.lines[0]["entry"])
    with pytest.raises(BrokenLog, match="The checkpoint is not genuine"):
        verify(log.lines, KEYS, checkpoint="nothing")
    with pytest.raises(BrokenLog, match="The checkpoint is not genuine: the signature does not match"):
        verify(log.lines, KEYS, checkpoint=f"{noted[:-10]}AAAAAAAAAA")


def test_next_key_is_announced_by_the_one_before_or_accepted_by_name() -> None:
    log = log_of(2)
    log.put("key", kid=OTHER.kid, jwk=OTHER.jwk)
    log.key = OTHER
    log.decide(3)
    assert verify(log.lines, KEYS).kid == OTHER.kid

    lost = log_of(2)
    lost.key = OTHER
    lost.decide(3)
    with pytest.raises(BrokenLog, match=f"--accept-key {OTHER.kid}"):
        verify(lost.lines, KEYS)
    assert verify(lost.lines, KEYS, accepted=[OTHER.kid]).decisions == 3


def test_announcement_of_a_key_needs_the_signature_of_the_key_before() -> None:
    log = log_of(2)
    log.put("key", kid=OTHER.kid, jwk=OTHER.jwk)
    log.lines[-1]["entry"] = (
        f"{log.lines[-1]['entry'].rpartition('.')[0]}.{log.lines[0]['entry'].rpartition('.')[2]}"
    )
    log.key = OTHER
    log.decide(3)
    with pytest.raises(BrokenLog, match="The entry of line 3 is not genuine: the signature does not match"):
        verify(log.lines, KEYS)


def test_what_was_forgotten_or_cut_off_is_said_by_an_entry() -> None:
    log = log_of(3)
    log.put("forgotten", jtis=["CLR-7-001/1"], at=int(NOW.timestamp()))
    log.lines[0] |= {"receipt": None, "claims": None}
    found = verify(log.lines, KEYS)
    assert (found.decisions, found.gone) == (3, 1)

    noted = log.lines[1]["entry"]
    log.put("cut", upto=2, sha256=digest_of(noted))
    later = log.checkpoint()
    del log.lines[:2]
    found = verify(log.lines, KEYS, checkpoint=later)
    assert (found.first, found.head.seq, found.decisions) == (3, 6, 1)
    log.lines.pop(2)
    with pytest.raises(BrokenLog):
        verify(log.lines, KEYS)
