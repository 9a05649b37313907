"""Receipts of decisions: what each one says, and which records are owed one. Pure.

A receipt is a JWT that the bot signs when a question's round ends, in the write that ends it; the record carries it. It
says what people were shown, what came of it, who decided and when, so that anyone with the bot's public key can check it
offline. It is made once for each round and never changed.

Texts and values over 2 KB are replaced by their digest, so a receipt stays small. Integers beyond ±(2^53−1), which many
readers of JSON round, are strings in it. Digests of arguments are over their canonical form, which has the integers
themselves: the string "123" and the integer 123 have different digests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import rfc8785

from core.clarification import US, Clarification, Round
from core.clock import iso
from core.questions import answer_in, asked_in, outcome_of, status_of
from core.records import as_of

TYP = "clarify-decision+jwt"
INLINE = 2048  # bytes of a text or value that is not replaced by its digest
_SAFE = 2**53 - 1  # as far as all readers of JSON count
Claims = dict[str, Any]
# What is wrong with a receipt: there is none; it has no good signature; we do not know its key; it is of another question or
# round; the record says something else; the log has another one; the log has one, the record has none; its entry in the log
# is not genuine.
Problem = Literal["missing", "signature", "key", "another", "record", "log", "removed", "entry"]


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking the receipt of a round.

    `problem`: None if the signature is valid and the record matches. `claims`: the signed claims, or for `log` and `removed` those in
    the log; empty unless the signature is valid.
    """

    problem: Problem | None
    kid: str = ""
    claims: Claims = field(default_factory=dict)


def is_decided(record: Clarification) -> bool:
    """Whether the round has ended so that it gets a receipt: not if the record was forgotten."""
    if record.is_open or record.current.forgotten:
        return False
    return record.given.response is not None or record.current.closed is not None


def decided_at(record: Clarification) -> datetime:
    """Returns when the round ended."""
    at = record.given.answered_at if status_of(record) == "answered" else record.resolved_at
    return at or record.last_change


def number_of(record: Clarification) -> int:
    """Returns the number of the current round. A follow-up after the last round, which keeps its number in the record,
    has the next one.
    """
    asked = sum(
        each.type == "question" and each.round == record.round and each.from_ != US for each in record.thread
    )
    return record.round + max(0, asked - 1)


def jti_of(record: Clarification) -> str:
    """Returns the id of the current round's receipt, such as `CLR-42-001/1`."""
    return f"{record.id}/{number_of(record)}"


def at_round(record: Clarification, number: int) -> Clarification | None:
    """Returns a record as of the end of a round; None: it is not known any more."""
    if number_of(record) == number:
        return record
    rounds = (as_of(record, place) for place in range(len(record.earlier)))
    return next((each for each in rounds if number_of(each) == number), None)


def claims_of(record: Clarification, issuer: str) -> Claims:
    """Returns what the receipt of a decided record says."""
    asked, outcome = record.asked, outcome_of(record)
    is_answered, closing = outcome.status == "answered", outcome.closing
    digest = arguments_digest(record.current.arguments) if asked.is_confirmation else None
    claims: Claims = {
        "iss": issuer,
        "aud": asked.producer,
        "sub": record.agent,
        "session": asked.session_id,
        "jti": jti_of(record),
        "iat": int(decided_at(record).timestamp()),
        "asked": {name: _short(each) for name, each in asked_in(record).items()},
    }
    claims = {name: each for name, each in claims.items() if each is not None}
    claims |= {
        "outcome": outcome.status,
        "answer": _answer(record.current) if is_answered else None,
        "comment": _short(outcome.comment),
    }
    if is_answered and (other := answer_in(record.current)[1]) is not None:
        claims["other"] = _short(other)
    if record.current.is_consent and is_answered and digest is not None:
        claims["arguments_sha256"] = digest
    if asked.requested_by is not None:
        claims["requested_by"] = {"by": asked.requested_by.by, "pinned": asked.requested_by.pinned}
    if record.consent.edits:
        claims["edits"] = _edits(record.current)
    claims |= {
        "decided_by": outcome.by,
        "deciders": deciders_of(record.current, digest, _short) if is_answered else [],
    }
    if closing is not None and closing.from_.startswith("user:"):
        claims["deciders"] = [{"decision": "close", "by": closing.from_, "at": iso(closing.timestamp)}]
    return claims


def says_the_same(claims: Claims, record: Clarification) -> bool:
    """Whether a receipt's claims are those of the record, whoever issued it."""
    said = claims_of(record, claims.get("iss", ""))
    if claims != said:
        return False
    # To Python, true is 1, too. Most are written alike, which is faster to see.
    return json.dumps(claims) == json.dumps(said) or _canonical(claims) == _canonical(said)


def arguments_digest(arguments: Any) -> str | None:
    """Returns the base64url SHA-256 of arguments in canonical form, or None if they have none: half of a character, which
    only another program writes.
    """
    try:
        return digest(canonical(arguments))
    except rfc8785.CanonicalizationError:
        return None


def canonical(value: Any) -> bytes:
    """Returns a JSON value in the form of RFC 8785. An integer beyond ±(2^53−1), for which that has none, is written with
    all its digits.

    Raises:
        CanonicalizationError: it is no JSON value.
    """
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return _with_all_digits(value)


def _with_all_digits(value: Any) -> bytes:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        pairs = (rfc8785.dumps(name) + b":" + _with_all_digits(value[name]) for name in names)
        return b"{%b}" % b",".join(pairs)
    if isinstance(value, (list, tuple)):
        return b"[%b]" % b",".join(map(_with_all_digits, value))
    return str(value).encode() if _is_rounded(value) else rfc8785.dumps(value)


def _is_rounded(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _SAFE


def digest(content: bytes) -> str:
    """Returns the SHA-256 of bytes as base64url without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _short(value: Any) -> Any:
    """Returns a value as a receipt says it, or its digest if it is over `INLINE`: of a text's UTF-8, else of the canonical
    form.
    """
    if isinstance(value, str):
        content = value.encode(errors="surrogatepass")
    elif isinstance(value, (dict, list)):
        content = _canonical(value)
    else:
        return _unrounded(value)
    return {"sha256": digest(content), "bytes": len(content)} if len(content) > INLINE else _unrounded(value)


def _unrounded(value: Any) -> Any:
    """Returns a JSON value with strings for the integers that many readers of JSON round."""
    if isinstance(value, dict):
        return {name: _unrounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unrounded(each) for each in value]
    return str(value) if _is_rounded(value) else value


def _canonical(value: Any) -> bytes:
    try:
        return canonical(value)
    except rfc8785.CanonicalizationError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _answer(current: Round) -> Any:
    if current.question.is_confirmation:
        return {"decision": current.given.response, "arguments": _short(current.arguments)}
    if current.question.direct is None:
        return _short(current.given.response)
    return _short(answer_in(current)[0])


def _edits(current: Round) -> list[dict[str, Any]]:
    """Returns who changed the arguments when, and the digest of what they were before."""
    found, arguments = [], current.question.sent_arguments
    for edit in current.consent.edits or ():
        found.append({"by": edit.decided_by, "at": iso(edit.at), "was_sha256": arguments_digest(arguments)})
        arguments |= edit.changed
    return found


def deciders_of(
    current: Round, sha256: str | None, text: Callable[[str | None], Any] = lambda text: text
) -> list[dict[str, Any]]:
    """Returns everyone whose decision counts, in order. `sha256`: of the arguments; `text`: shortens reasons."""
    found: list[dict[str, Any]] = [
        {
            "decision": "accept",
            "by": each.decided_by,
            "team": each.team,
            "user": each.user,
            "at": iso(each.at),
            "surface": "slack",  # only there can several people accept
            "arguments_sha256": sha256,
            "reason": text(each.rationale),
        }
        for each in current.consent.approvals or ()
    ]
    by = current.given.answered_by
    found.append(
        {
            "decision": current.given.response if current.question.is_confirmation else "answer",
            "by": current.given.decided_by,
            "team": by.team if by else None,
            "user": by.user if by else None,
            "at": iso(current.given.answered_at) if current.given.answered_at else None,
            "surface": by.surface if by else None,
            "arguments_sha256": sha256,
            "reason": text(current.given.rationale),
        }
    )
    return [{name: each for name, each in one.items() if each is not None} for one in found]
