"""Entries of the log: how one follows from another, and what verifies a whole log. Pure.

Each entry is a JWT (`typ`: `clarify-log+jwt`) that holds the SHA-256 of the entry before it, so the signature of the last
entry vouches for all before it. Only against a checkpoint that someone else kept can one notice that the end was cut off,
or that the whole history was written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from json import JSONDecodeError
from typing import Any, Literal, NamedTuple

import jwt

import clarify
from bot.signing import jwk_of
from core.receipts import Claims, digest

TYP = "clarify-log+jwt"
Kind = Literal["decision", "executed", "forgotten", "key", "cut", "checkpoint"]
Line = dict[str, Any]
_TEXT, _NUMBER, _MAYBE_TEXT = (str,), (int,), (str, type(None))
# See `clarify.check_form`.
_LINE = {"seq": _NUMBER, "entry": _TEXT, "receipt": _MAYBE_TEXT, "claims": (dict, type(None))}
_EVERY = {"seq": _NUMBER, "prev": _MAYBE_TEXT, "kind": _TEXT, "iat": _NUMBER}
_FURTHER: Mapping[str, Mapping[str, Any]] = {
    "decision": {"jti": _TEXT, "sha256": _TEXT},
    "executed": {"jti": _TEXT, "result_sha256": _TEXT, "is_error": (bool,)},
    "forgotten": {"jtis": [_TEXT], "at": _NUMBER},
    "key": {"kid": _TEXT, "jwk": dict.fromkeys(("crv", "kty", "x", "kid", "alg", "use"), _TEXT)},
    "cut": {"upto": _NUMBER, "sha256": _TEXT},
    "checkpoint": {"head": _NUMBER, "sha256": _TEXT},
}


class Head(NamedTuple):
    """The last entry of a log: its number and its digest; of an empty log, 0 and None."""

    seq: int = 0
    sha256: str | None = None


def digest_of(token: str) -> str:
    """Returns the base64url SHA-256 of an entry or a receipt."""
    return digest(token.encode())


def following(head: Head, kind: Kind, at: datetime, claims: Mapping[str, object]) -> Claims:
    """Returns the claims of the entry that follows `head`."""
    return {"seq": head.seq + 1, "prev": head.sha256, "kind": kind, "iat": int(at.timestamp()), **claims}


def claims_in(token: str) -> Claims:
    """Returns the claims of an entry or a receipt without checking its signature.

    Raises:
        ValueError: it is not a JWT.
    """
    try:
        claims: Claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        raise ValueError("is not a JWT") from None
    return claims


def kid_of(token: str) -> str:
    """Returns the id of the key that an entry or a receipt says it is signed with; empty if it names none."""
    try:
        return str(jwt.get_unverified_header(token).get("kid") or "")
    except jwt.PyJWTError:
        return ""


class BrokenLog(ValueError):
    """A log is not genuine or not whole. The message says where."""


def opened(entry: str, keys: Mapping[str, Any]) -> tuple[Claims, str]:
    """Returns the claims of a genuine entry, and the id of its key.

    Raises:
        ValueError: its signature is not good, or it says something that is not known here.
    """
    claims, kid = clarify.opened(entry, TYP, keys)
    kind = claims.get("kind")
    if not isinstance(kind, str) or kind not in _FURTHER:
        raise ValueError(f"its kind is not known here: {kind!r}")
    clarify.check_form(claims, {**_EVERY, **_FURTHER[kind]}, "it")
    if kind == "key" and (
        claims["jwk"] != jwk_of(clarify.public_key(claims["jwk"])) or claims["kid"] != claims["jwk"]["kid"]
    ):
        raise ValueError("its `kid` and its `jwk` are not of one key")
    if kind == "checkpoint" and (claims["head"], claims["sha256"]) != (claims["seq"] - 1, claims["prev"]):
        raise ValueError("it is a checkpoint of another history")
    return claims, kid


@dataclass(slots=True)
class Verified:
    """What a good log holds. `kid`: the key of the last entry; `gone`: how many receipts were forgotten."""

    entries: int = 0
    first: int = 1
    head: Head = field(default_factory=Head)
    decisions: int = 0
    gone: int = 0
    kid: str = ""


def verify(
    lines: Iterable[bytes],
    keys: Mapping[str, Any],
    *,
    checkpoint: str | None = None,
    accepted: Collection[str] = (),
) -> Verified:
    """Verifies a whole log: every line, entry, receipt and link, and the keys.

    Args:
        lines: as `clarify log` prints them: `{"seq", "entry", "receipt", "claims"}`.
        keys: the public keys, as a JWK Set.
        checkpoint: an entry that someone kept, which the log must contain.
        accepted: ids of keys that may follow without being announced by the key before.

    Raises:
        BrokenLog: see its message.
    """
    reading = _LogPass(keys, frozenset(accepted), _checkpoint(checkpoint, keys))
    for number, line in enumerate(lines, 1):
        try:
            reading.check(_read(line, number), number)
        except RecursionError:
            raise BrokenLog(f"Line {number} is nested too deeply.") from None
    return reading.end()


def _checkpoint(token: str | None, keys: Mapping[str, Any]) -> Head | None:
    """Returns where a checkpoint that someone kept is in the log."""
    if token is None:
        return None
    try:
        claims, _ = opened(token.strip(), keys)
    except ValueError as error:
        raise BrokenLog(f"The checkpoint is not genuine: {error}.") from None
    if claims["kind"] != "checkpoint":
        raise BrokenLog("The checkpoint is another entry of the log, not a checkpoint.")
    return Head(claims["seq"], digest_of(token.strip()))


def _read(content: bytes, number: int) -> Line:
    try:
        line = clarify.strict_json(content)
    except (JSONDecodeError, UnicodeDecodeError):
        raise BrokenLog(f"Line {number} is not JSON.") from None
    except ValueError as error:
        raise BrokenLog(f"Line {number} is ambiguous: {error}.") from None
    try:
        clarify.check_form(line, _LINE, f"Line {number}")
    except ValueError as error:
        raise BrokenLog(f"{error}. Expected lines as `clarify log` prints them.") from None
    found: Line = line
    return found


@dataclass(slots=True)
class _LogPass:
    """One pass over a log."""

    keys: Mapping[str, Any]
    accepted: frozenset[str]
    checkpoint: Head | None
    found: Verified = field(default_factory=Verified)
    announced: set[str] = field(default_factory=set)
    decided: dict[str, int] = field(default_factory=dict)  # the entry of each round
    missing: dict[str, int] = field(
        default_factory=dict
    )  # decisions whose receipt is missing and was not forgotten
    forgotten: set[str] = field(default_factory=set)
    begins: str | None = None  # the digest of what was before the first entry
    cut: Head = field(default_factory=Head)  # the last entry that was cut off
    met: bool = False  # the checkpoint

    def check(self, line: Line, number: int) -> None:
        entry, found = line["entry"], self.found
        try:
            claims, kid = opened(entry, self.keys)
        except ValueError as error:
            raise BrokenLog(f"The entry of line {number} is not genuine: {error}.") from None
        seq = claims["seq"]
        if line["seq"] != seq:
            raise BrokenLog(f"Line {number}: its number differs from that of its entry, {seq}.")
        if found.entries:
            self._follow(claims, kid)
        else:
            self._begin(claims)
        found.entries += 1
        found.head, found.kid = Head(seq, digest_of(entry)), kid
        if self.checkpoint is not None and self.checkpoint.seq == seq:
            if self.checkpoint != found.head:
                raise BrokenLog(f"Entry {seq} differs from the checkpoint: the log was rewritten since.")
            self.met = True
        self._note(claims)
        said = self._said(claims, line["receipt"])
        if not clarify.is_same(line["claims"], said):
            raise BrokenLog(f"Entry {seq}: the claims beside it are not those in it or in its receipt.")

    def _begin(self, claims: Claims) -> None:
        seq, prev = claims["seq"], claims["prev"]
        if seq < 1 or (prev is None) != (seq == 1):
            raise BrokenLog(f"Entry {seq}: its `prev` does not fit its number.")
        self.found.first, self.begins = seq, prev

    def _follow(self, claims: Claims, kid: str) -> None:
        seq, head = claims["seq"], self.found.head
        if seq != head.seq + 1:
            raise BrokenLog(
                f"Entry {seq} comes after entry {head.seq}: entries are missing or in another order. A part of a log, such as"
                " `clarify log --agent` prints, cannot be verified: only its receipts, one by one."
            )
        if claims["prev"] != head.sha256:
            raise BrokenLog(f"Entry {seq} does not follow from entry {head.seq}: one of the two was changed.")
        if kid != self.found.kid and kid not in self.announced and kid not in self.accepted:
            raise BrokenLog(
                f"From entry {seq} on another key signs, {kid}, which the key before did not announce. If its owner says that"
                f" the old key was lost: --accept-key {kid}"
            )

    def _note(self, claims: Claims) -> None:
        seq = claims["seq"]
        match claims["kind"]:
            case "decision":
                jti = claims["jti"]
                if jti in self.decided or jti in self.forgotten:
                    raise BrokenLog(f"Entry {seq}: {jti} was decided before: an earlier entry names it.")
                self.decided[jti] = self.missing[jti] = seq
                self.found.decisions += 1
            case "forgotten":
                for jti in claims["jtis"]:
                    self._forget(seq, jti)
            case "key":
                self.announced.add(claims["kid"])
            case "cut":
                self._cut(seq, Head(claims["upto"], claims["sha256"]))

    def _forget(self, seq: int, jti: str) -> None:
        """Notes that a receipt is gone. Its entry may be among those that were cut off."""
        if jti in self.forgotten:
            raise BrokenLog(f"Entry {seq}: an entry before it says already that {jti} was forgotten.")
        if jti in self.decided and jti not in self.missing:
            raise BrokenLog(
                f"Entry {self.decided[jti]}: entry {seq} says that {jti} was forgotten, but its receipt is here."
            )
        if jti not in self.decided and self.found.first == 1:
            raise BrokenLog(f"Entry {seq} says that {jti} was forgotten, which was never decided.")
        self.forgotten.add(jti)
        self.found.gone += self.missing.pop(jti, 0) > 0

    def _cut(self, seq: int, cut: Head) -> None:
        if not self.cut.seq < cut.seq < self.found.first:
            raise BrokenLog(
                f"Entry {seq} says that the entries up to {cut.seq} were cut off: that does not fit a log that begins with"
                f" entry {self.found.first}."
            )
        self.cut = cut

    def _said(self, claims: Claims, receipt: str | None) -> Claims | None:
        """Returns what an entry says, or the receipt that it is about: what has to be beside them. None: it is gone."""
        if claims["kind"] != "decision":
            if receipt is not None:
                raise BrokenLog(f"Entry {claims['seq']} is about no receipt, but one is beside it.")
            return claims
        if receipt is None:
            return None
        seq, jti = claims["seq"], claims["jti"]
        if digest_of(receipt) != claims["sha256"]:
            raise BrokenLog(f"Entry {seq}: the receipt of {jti} was changed or swapped: its digest differs.")
        verified = clarify.verify(receipt, keys=self.keys)
        if verified.problem is not None:
            raise BrokenLog(f"Entry {seq}: the receipt of {jti} is not genuine: {verified.problem}.")
        if verified.claims["jti"] != jti:
            raise BrokenLog(f"Entry {seq}: the receipt is of {verified.claims['jti']}, not of {jti}.")
        del self.missing[jti]
        return dict(verified.claims)

    def end(self) -> Verified:
        found, checkpoint = self.found, self.checkpoint
        before = Head(found.first - 1, self.begins)
        if not found.entries:
            raise BrokenLog("The log is empty.")
        if self.cut != before:
            raise BrokenLog(
                f"The log begins with entry {found.first}, and none says that those before it were cut off."
            )
        if self.missing:
            jti, seq = next(iter(self.missing.items()))
            raise BrokenLog(
                f"Entry {seq}: the receipt of {jti} is missing, and no entry says that it was forgotten."
            )
        if checkpoint is not None and not self.met:
            if checkpoint.seq > found.head.seq:
                raise BrokenLog(
                    f"The log ends with entry {found.head.seq}; the checkpoint is entry {checkpoint.seq}: its end was cut off, or"
                    " it was printed before."
                )
            if checkpoint != before:
                raise BrokenLog(
                    f"The checkpoint is entry {checkpoint.seq}, before the first one that is kept, {found.first}: it says nothing"
                    " about this log. Take a later one."
                )
        return found
