"""Entries of the log: how one follows from another, and what verifies a whole log. Pure.

Each entry is a JWT (`typ`: `clarify-log+jwt`) that holds the SHA-256 of the entry before it, so the signature of the last
entry vouches for all before it. Only against a checkpoint that someone else kept can one notice that the end was cut off,
or that the whole history was written anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import jwt

import clarify
from core.receipts import Claims, digest

TYP = "clarify-log+jwt"
ALGORITHM = "EdDSA"
_SIGNATURE_ONLY: Any = {"verify_aud": False, "verify_iat": False, "verify_exp": False, "verify_nbf": False}
Kind = Literal["decision", "forgotten", "key", "cut", "checkpoint"]


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
    lines: Iterable[Mapping[str, Any]],
    keys: Mapping[str, Any],
    *,
    checkpoint: str | None = None,
    accepted: Collection[str] = (),
) -> Verified:
    """Verifies a whole log: every receipt, every link, and the keys.

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
        reading.take(line, number)
    return reading.end()


def _checkpoint(token: str | None, keys: Mapping[str, Any]) -> Head | None:
    if token is None:
        return None
    claims = _signed(token.strip(), keys, "The checkpoint")
    if claims.get("kind") != "checkpoint":
        raise BrokenLog("The checkpoint is another entry of the log, not a checkpoint.")
    return Head(claims["head"], claims["sha256"])


def _signed(entry: str, keys: Mapping[str, Any], name: str) -> Claims:
    """Returns the claims of an entry with a good signature. `name`: what to call it in errors.

    Raises:
        BrokenLog: it is not genuine.
    """
    try:
        header = jwt.get_unverified_header(entry)
        if header.get("typ") != TYP:
            raise BrokenLog(
                f"{name} is not an entry of a log: its type is {header.get('typ')!r}, not {TYP!r}."
            )
        key = next((each for each in keys["keys"] if each.get("kid") == header.get("kid")), None)
        if key is None:
            raise BrokenLog(
                f"{name} is signed with {header.get('kid')!r}, which is not among the keys given: another bot signed it."
            )
        claims: Claims = jwt.decode(entry, jwt.PyJWK(key, ALGORITHM), [ALGORITHM], options=_SIGNATURE_ONLY)
    except jwt.InvalidSignatureError:
        raise BrokenLog(
            f"{name} was changed, or another key signed it: the signature does not match."
        ) from None
    except jwt.PyJWTError as error:
        raise BrokenLog(f"{name} is not genuine: {error}.") from None
    return claims


@dataclass(slots=True)
class _LogPass:
    """One pass over a log."""

    keys: Mapping[str, Any]
    accepted: frozenset[str]
    checkpoint: Head | None
    found: Verified = field(default_factory=Verified)
    last: str | None = None  # the entry before
    announced: set[str] = field(default_factory=set)
    missing: dict[str, int] = field(default_factory=dict)  # decisions without their receipt: jti and number
    begins: str | None = None  # the digest of what was before the first entry
    cuts: dict[int, str] = field(default_factory=dict)
    met: bool = False  # the checkpoint

    def take(self, line: Mapping[str, Any], number: int) -> None:
        entry, receipt = line.get("entry"), line.get("receipt")
        if not isinstance(entry, str):
            raise BrokenLog(
                f'Line {number} is not an entry of a log: expected {{"seq", "entry", "receipt", "claims"}}.'
            )
        try:
            claims = claims_in(entry)
        except ValueError as error:
            raise BrokenLog(f"The entry of line {number} {error}.") from None
        seq = claims.get("seq")
        name = f"Entry {seq}"
        if type(seq) is not int or seq < 1 or line.get("seq", seq) != seq:
            raise BrokenLog(f"Line {number}: its number differs from that of its entry, {seq!r}.")
        if self.last is None:
            self.found.first, self.begins = seq, claims.get("prev")
            _signed(entry, self.keys, name)
        else:
            self._follow(name, seq, claims, entry)
        if seq == 1 and claims.get("prev") is not None:
            raise BrokenLog("Entry 1 says that there was an entry before it.")
        self.last = entry
        self.found.entries += 1
        self.found.head = Head(seq, digest_of(entry))
        self.found.kid = kid_of(entry)
        if self.checkpoint is not None and self.checkpoint.seq == seq:
            self._meet()
        self._note(name, seq, claims, receipt, line.get("claims", ...))

    def _follow(self, name: str, seq: int, claims: Claims, entry: str) -> None:
        head = self.found.head
        if seq != head.seq + 1:
            raise BrokenLog(f"{name} comes after entry {head.seq}: entries are missing or in another order.")
        if claims.get("prev") != head.sha256:
            raise BrokenLog(f"{name} does not follow from entry {head.seq}: one of the two was changed.")
        kid = kid_of(entry)
        if kid == self.found.kid:
            return  # the last entry of this key vouches for it
        self._vouch()
        if kid not in self.announced and kid not in self.accepted:
            raise BrokenLog(
                f"From entry {seq} on another key signs, {kid}, which the key before did not announce. If its owner says that"
                f" the old key was lost: --accept-key {kid}"
            )
        _signed(entry, self.keys, name)

    def _vouch(self) -> None:
        """Checks the signature of the entry before, which vouches for all before it."""
        if self.last is not None:
            _signed(self.last, self.keys, f"Entry {self.found.head.seq}")

    def _meet(self) -> None:
        if self.checkpoint != self.found.head:
            raise BrokenLog(
                f"Entry {self.found.head.seq} differs from the checkpoint: the log was rewritten since."
            )
        self.met = True

    def _note(self, name: str, seq: int, claims: Claims, receipt: Any, shown: Any) -> None:
        match claims.get("kind"):
            case "decision":
                self.found.decisions += 1
                self._decision(name, seq, claims, receipt, shown)
            case "forgotten":
                for jti in claims.get("jtis") or ():
                    if self.missing.pop(jti, None) is not None:
                        self.found.gone += 1
            case "key":
                self.announced.add(str(claims.get("kid")))
            case "cut":
                self.cuts[int(claims["upto"])] = str(claims.get("sha256"))
            case "checkpoint" if seq != 1 and (claims.get("head"), claims.get("sha256")) != (
                seq - 1,
                claims.get("prev"),
            ):
                raise BrokenLog(f"{name} is a checkpoint of another history.")

    def _decision(self, name: str, seq: int, claims: Claims, receipt: Any, shown: Any) -> None:
        jti = str(claims.get("jti"))
        if receipt is None:
            self.missing[jti] = seq
            return
        if not isinstance(receipt, str) or digest_of(receipt) != claims.get("sha256"):
            raise BrokenLog(f"{name}: the receipt of {jti} was changed or swapped: its digest differs.")
        verified = clarify.verify(receipt, keys=self.keys)
        if verified.problem is not None:
            raise BrokenLog(f"{name}: the receipt of {jti} is not genuine: {verified.problem}.")
        if verified.claims.get("jti") != jti:
            raise BrokenLog(f"{name}: the receipt is of {verified.claims.get('jti')}, not of {jti}.")
        if shown not in (..., None) and shown != verified.claims:
            raise BrokenLog(f"{name}: the claims beside the receipt of {jti} are not those in it.")

    def end(self) -> Verified:
        found = self.found
        if self.last is None:
            raise BrokenLog("The log is empty.")
        self._vouch()
        if found.first != 1 and self.cuts.get(found.first - 1) != self.begins:
            raise BrokenLog(
                f"The log begins with entry {found.first}, and none says that those before it were cut off."
            )
        if self.missing:
            jti, seq = next(iter(self.missing.items()))
            raise BrokenLog(
                f"Entry {seq}: the receipt of {jti} is missing, and no entry says that it was forgotten."
            )
        if self.checkpoint is not None and not self.met:
            if self.checkpoint.seq > found.head.seq:
                raise BrokenLog(
                    f"The log ends with entry {found.head.seq}; the checkpoint is of entry {self.checkpoint.seq}: its end was cut"
                    " off."
                )
            if self.cuts.get(found.first - 1) is None or self.checkpoint != Head(
                found.first - 1, self.begins
            ):
                raise BrokenLog(
                    f"The checkpoint is of entry {self.checkpoint.seq}, before the first one that is kept, {found.first}: it says"
                    " nothing about this log. Take a later one."
                )
        return found
