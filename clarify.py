# ruff: noqa: PLC0415, T201 - imports only what is needed, since hooks start often; prints as a program
"""Asks people in Slack through clarify-bot and waits for their answers.

    import clarify

    answer = clarify.ask("Which retirement age should I plan for?", choices=["65", "67"], timeout=300)
    print(answer.value, answer.decided_by)
    if clarify.approve("Send the newsletter to 1,204 customers", risk="high", irreversible=True):
        ...
    answer = await clarify.aio.ask("Which one?")  # the same, for asyncio

One file, standard library only (Python 3.11 or newer): copy it into any project. Only `clarify.verify` needs a package:
cryptography.

Set `CLARIFY_URL` to the bot's address (default: http://127.0.0.1:8787) and `CLARIFY_TOKEN` to the token of your
`[[producers]]` table. If several producers have no token, set `CLARIFY_PRODUCER` to the name of yours. Questions survive
restarts of the bot. Ctrl-C, or cancelling the task, withdraws the question.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache

if sys.version_info < (3, 11):  # noqa: UP036 - the file is copied to machines with any Python
    _OLD = f"clarify needs Python 3.11 or newer; this is Python {sys.version.split()[0]}."
    raise SystemExit(_OLD) if __name__ == "__main__" else ImportError(_OLD)

from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

if TYPE_CHECKING:
    import argparse
    import queue
    import socket
    import sqlite3
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "Answer",
    "Approval",
    "BadQuestion",
    "ClarifyError",
    "Client",
    "Closed",
    "Expired",
    "NotAnswered",
    "Refused",
    "Reply",
    "Unreachable",
    "Verified",
    "Withdrawn",
    "aio",
    "approve",
    "ask",
    "verify",
]

Risk = Literal["low", "medium", "high"]
Status = Literal["waiting", "answered", "expired", "withdrawn", "closed"]
DEFAULT_URL = "http://127.0.0.1:8787"
LONGEST_WAIT = 55  # seconds that one request may wait for an answer
_TIMEOUT = 3600.0  # the bot's own, where none is given
PATIENCE = 15.0  # seconds for a response of the bot, beyond what it was told to wait
_CONNECTING = 10.0
_PAUSES = (0.2, 3.0)  # seconds until the first try again, and at most between two
_LATE = 330.0  # no question expires before its thread was read, which may take the bot 5 minutes
_TICK = 0.2  # seconds between two looks whether to go on: not every system lets a signal break a wait off
_FAREWELL = 4.0  # seconds to withdraw a question at Ctrl-C
_MOST = 16 * 1024 * 1024  # bytes of one response
_LARGEST = 1024 * 1024  # bytes of one request: the bot hangs up at more, which looks as if it were away
_BAD_QUESTION = frozenset({400, 413, 422})  # the statuses of responses that the question is to blame for
_REDACTED = "[redacted]"  # what the bot shows in place of what its `redact` hides
_ONCE: dict[str, object] = {"once": "true"}  # in a query: hand out no answer that was handed out before


class ClarifyError(Exception):
    """Base class of this module's exceptions."""


class Refused(ClarifyError):
    """The bot rejected the question, or its response is about another question or other arguments.

    `code`: stable, for programs; `field`: the field that is wrong, if it is one field.
    """

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field


class BadQuestion(Refused, ValueError):
    """The question, not the setup, is wrong: a field, its size, or a value that cannot be shown. Tell the agent that wrote
    it, and let the others go on.
    """

    def __init__(
        self, message: str, field: str | None = None, *, status: int = 422, code: str = "BAD_INPUT"
    ) -> None:
        super().__init__(status, code, message, field)


def _of_state(name: str, about: str) -> Any:
    return property(lambda self: self.state.get(name), doc=about)


class _Decision:
    """A question's outcome. `state`: everything the bot returned about it."""

    state: Mapping[str, Any]
    status: Status = _of_state("status", "How the question stands.")
    id: str | None = _of_state("id", "Such as CLR-100001-001; None if the bot was never reached.")
    label: str | None = _of_state("label", "The answer as people read it.")
    other: str | None = _of_state("other", "What the person wrote instead of, or besides, a choice.")
    comment: str | None = _of_state("comment", "Why the question was rejected or closed.")
    decided_by: str | None = _of_state("decided_by", "An id such as user:slack/T1/U1, not a display name.")
    decided_at: str | None = _of_state("decided_at", "When the person decided, as RFC 3339.")
    receipt: str | None = _of_state("receipt", "The signed receipt, for `clarify.verify`, if there is one.")
    link: str | None = _of_state("link", "The link to the question's card in Slack.")


class NotAnswered(ClarifyError, _Decision):
    """The question ended without an answer."""

    def __init__(self, message: str, state: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.state = state


class Expired(NotAnswered):
    """No one answered in time."""


class Unreachable(Expired):
    """The question's time ran out while the bot could not be reached."""


class Closed(NotAnswered):
    """A person closed the question without an answer; see `comment` and `decided_by`."""


class Withdrawn(NotAnswered):
    """The question was withdrawn."""


T = TypeVar("T")
M_co = TypeVar("M_co", covariant=True)


class Answer(_Decision, Generic[T]):
    """A person's answer; if the status is `expired`, your `default`.

    `value` is a bool for yes_no, a number, a string, a choice's value (a list with `multiple`; None if the person wrote
    only `other`), or the form's content. Only a No is falsy.
    """

    def __init__(self, value: T, state: Mapping[str, Any]) -> None:
        self.value = value
        self.state = state

    def __bool__(self) -> bool:
        return self.value is not False

    @property
    def in_full(self) -> T | str:
        """The whole answer, to hand on to an agent: `value`; if the person wrote `other`, the choices and their own words in
        one text.
        """
        if self.other is None:
            return self.value
        chosen = self.value if isinstance(self.value, list) else [self.value]
        return ", ".join(str(each) for each in (*chosen, self.other) if each is not None)

    def __repr__(self) -> str:
        return f"Answer({self.value!r}, status={self.status!r}, decided_by={self.decided_by!r})"


class Approval(_Decision):
    """The decision on an action. Truthy if it was approved; otherwise see `status`, `decision` and `comment`."""

    def __init__(self, state: Mapping[str, Any], sent: Mapping[str, Any] | None = None) -> None:
        """`sent`: the arguments as you sent them, which no one changes any more."""
        self.state = state
        self._sent = sent or {}

    def __bool__(self) -> bool:
        return self.decision == "accept"

    def __repr__(self) -> str:
        return f"Approval({self.decision}, status={self.status!r}, decided_by={self.decided_by!r})"

    @property
    def decision(self) -> Literal["accept", "reject"] | None:
        """The decision; None if no one decided."""
        found: Literal["accept", "reject"] | None = self._given.get("decision")
        return found

    @property
    def arguments(self) -> dict[str, Any]:
        """The approved arguments, with the approver's edits; empty if no one decided. Parts that the bot's `redact` hid
        are as you sent them.
        """
        asked, found = self.state.get("asked"), self._given.get("arguments")
        shown = asked.get("arguments") if isinstance(asked, dict) else None
        return dict(unredacted(found, shown, self._sent)) if isinstance(found, dict) else {}

    @property
    def why_not(self) -> str | None:
        """Why the action was not approved, to hand on to an agent: the person's reason, or who rejected it, or how the
        question ended. None if it was approved.
        """
        if self:
            return None
        rejected = f"Rejected by {self.decided_by}." if self.decision == "reject" else None
        return self.comment or rejected or str(_unanswered(self.state))

    @property
    def _given(self) -> Mapping[str, Any]:
        given = self.state.get("answer") if self.status == "answered" else None
        return given if isinstance(given, dict) else {}

    @property
    def approved_by(self) -> list[str]:
        found: list[str] = self.state.get("approved_by") or []
        return found


_TYP = "clarify-decision+jwt"
_PART = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_CLOCKS = 60.0  # seconds that the bot's clock may be ahead of ours
_LAST = 253_402_300_799  # seconds: the end of the year 9999
_OUTCOMES = frozenset({"answered", "expired", "withdrawn", "closed"})
_TEXT = (str,)
_MAYBE_TEXT = (str, dict, type(None))  # an object: the digest of a long one
PARTS: dict[str, Any] = {"guard": {"server": _TEXT, "tool": _TEXT, "schema_sha256": _TEXT}}
"""What integrations add to what was `asked`, each under its name; those of others stand in `about`."""
# What a receipt says, see `check_form`. Of `asked`, what there was.
_RECEIPT = {
    "iss": _TEXT,
    "aud?": _TEXT,
    "sub?": _TEXT,
    "session?": _TEXT,
    "jti": _TEXT,
    "iat": (int,),
    "asked": {
        "kind": _TEXT,
        **dict.fromkeys(
            ("question?", "action?", "context?", "choices?", "multiple?", "schema?", "consequence?")
        ),
        **dict.fromkeys(("risk?", "irreversible?", "arguments?", "approvals?", "default?")),
        **{f"{name}?": form for name, form in PARTS.items()},
        "about?": {"*?": (dict,)},
    },
    "outcome": _TEXT,
    "answer": None,
    "comment": _MAYBE_TEXT,
    "other?": _MAYBE_TEXT,
    "arguments_sha256?": _TEXT,
    "edits?": [{"by": _TEXT, "at": _TEXT, "was_sha256": (str, type(None))}],
    "requested_by?": {"by": _TEXT, "pinned": (bool,)},
    "decided_by": (str, type(None)),
    "deciders": [
        {
            "decision": _TEXT,
            **dict.fromkeys(("by?", "team?", "user?", "at?", "surface?", "arguments_sha256?"), _TEXT),
            "reason?": _MAYBE_TEXT,
        }
    ],
}


class Verified(NamedTuple):
    """What `verify` found out about a receipt. Truthy only if it is genuine and approves an action."""

    problem: str | None  # what is wrong with it; None if it is genuine
    claims: Mapping[str, Any]  # what it says; empty unless it is genuine
    kid: str  # the key that signed it
    not_approved: str | None = None  # why it approves nothing

    def __bool__(self) -> bool:
        return self.problem is None and self.not_approved is None

    def __repr__(self) -> str:
        return f"Verified({self.problem or self.not_approved or 'approved'!r})"


def verify(
    receipt: str,
    *,
    keys: Mapping[str, Any],
    arguments: Any = ...,
    audience: str | None = None,
    issuer: str | None = None,
    max_age: float | None = None,
) -> Verified:
    """Checks a receipt offline. The result is falsy unless it is genuine and approves an action.

    Args:
        receipt: the receipt, a JWT.
        keys: the bot's public keys: the JSON of its `/.well-known/jwks.json`.
        arguments: the arguments that the action is about to run with: they must be the approved ones.
        audience: the name of your producer, which the receipt must be for.
        issuer: who must have signed it.
        max_age: at most this many seconds since the decision.

    Raises:
        ClarifyError: the package cryptography is not installed.
    """
    try:
        claims, kid = opened(receipt.strip(), _TYP, keys)
        check_form(claims, _RECEIPT, "it")
        _check_claims(claims, audience, issuer, max_age)
    except ValueError as error:
        return Verified(str(error), {}, "")
    return Verified(None, claims, kid, _not_approved(claims, arguments))


def opened(token: str, typ: str, keys: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the claims of a JWT of this type with a good signature, and the id of its key. It must be as the bot makes them:
    what is not known here may change what it means.

    Raises:
        ValueError: it is not genuine. ClarifyError: the package cryptography is not installed.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("it is not a JWT")
    header = _json_in(parts[0])
    if header.get("typ") != typ:
        raise ValueError(f"its type is {header.get('typ')!r}, not {typ!r}")
    if header.get("alg") != "EdDSA":
        raise ValueError(f"it is signed with {header.get('alg')!r}, not 'EdDSA'")
    if "crit" in header:
        raise ValueError("it has critical header fields that are not known here")
    kid = header.get("kid")
    key = next((each for each in keys.get("keys") or () if each.get("kid") == kid), None)
    if not isinstance(kid, str) or key is None:
        raise ValueError(f"the key {kid!r} is not among the keys given: another bot signed it")
    check_form(header, {"typ": _TEXT, "alg": _TEXT, "kid": _TEXT}, "its header")
    signer, signature = public_key(key), _bytes_in(parts[2])
    from cryptography.exceptions import InvalidSignature  # `public_key` says so if the package is missing

    try:
        signer.verify(signature, f"{parts[0]}.{parts[1]}".encode())
    except InvalidSignature:
        raise ValueError("the signature does not match: it was changed, or another key signed it") from None
    return _json_in(parts[1]), kid


def public_key(key: Mapping[str, Any]) -> Ed25519PublicKey:
    """Returns the Ed25519 key in a JWK.

    Raises:
        ValueError: it is another kind of key, or `kid`, by which people tell keys apart, is another one's. ClarifyError: the
            package cryptography is not installed.
    """
    kid, x = key.get("kid"), key.get("x")
    if (key.get("kty"), key.get("crv")) != ("OKP", "Ed25519") or not isinstance(x, str):
        raise ValueError(f"the key {kid!r} is not an Ed25519 key")
    thumbprint, found = _key_in(x)
    if kid != thumbprint:
        raise ValueError(f"the key given as {kid!r} is another one: its thumbprint is {thumbprint!r}")
    return found


@lru_cache(maxsize=64)
def _key_in(x: str) -> tuple[str, Ed25519PublicKey]:
    """Returns a key's thumbprint (RFC 7638), and the key."""
    import hashlib

    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # only here
    except ImportError:
        raise ClarifyError(
            "clarify.verify needs the package cryptography: pip install cryptography"
        ) from None
    found = Ed25519PublicKey.from_public_bytes(_bytes_in(x))
    digest = hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest()
    return _in_base64url(digest), found


def _check_claims(
    claims: Mapping[str, Any], audience: str | None, issuer: str | None, max_age: float | None
) -> None:
    if claims["outcome"] not in _OUTCOMES:
        raise ValueError(f"its outcome is not known here: {claims['outcome']!r}")
    if not 0 <= claims["iat"] <= _LAST:
        raise ValueError("it does not say when the decision was made")
    if claims["outcome"] == "answered" and claims["asked"].get("kind") == "approval":
        check_form(claims["answer"], {"decision": _TEXT, "arguments": None}, "its `answer`")
        if claims["answer"]["decision"] not in {"accept", "reject"}:
            raise ValueError(f"its decision is not known here: {claims['answer']['decision']!r}")
    if audience is not None and claims.get("aud") != audience:
        raise ValueError(f"it is for {claims.get('aud')!r}, not {audience!r}")
    if issuer is not None and claims["iss"] != issuer:
        raise ValueError(f"it was issued by {claims['iss']!r}, not {issuer!r}")
    if max_age is not None:
        age = time.time() - claims["iat"]
        if not age <= max_age:
            raise ValueError(f"the decision was made {age:.0f} s ago; at most {max_age:g} s are allowed")
        if age < -_CLOCKS:
            raise ValueError(f"the decision was made {-age:.0f} s in the future: check the clocks")


def _not_approved(claims: Mapping[str, Any], arguments: Any) -> str | None:
    """Returns why a genuine receipt approves nothing, or not these arguments; None: it does."""
    if claims["outcome"] != "answered":
        return f"no one approved: the outcome is {claims['outcome']!r}"
    if claims["asked"].get("kind") != "approval":
        return "it is not about an approval"
    if claims["answer"]["decision"] != "accept":
        return f"it was rejected by {claims['decided_by']}"
    if arguments is ...:
        return None
    import hashlib

    try:
        digest = hashlib.sha256(canonical(arguments).encode()).digest()
    except (ValueError, RecursionError) as error:
        return f"the arguments cannot be compared: {error}"
    is_same_digest = claims.get("arguments_sha256") == _in_base64url(digest)
    return None if is_same_digest else "other arguments were approved"


def check_form(value: Any, form: Any, name: str) -> None:
    """Raises ValueError, which begins with `name`, unless a JSON value has this form: one of some types; an object with
    exactly these names (with a `?`, it may be missing; `*?`: all others), each with its form; or a list of one form. None: any
    value.
    """
    if form is None or (type(form) is tuple and type(value) in form):
        return
    if type(form) is tuple or type(value) is not type(form):  # True is no number
        raise ValueError(f"{name} is a value of another kind than it must be")
    if isinstance(form, list):
        for place, each in enumerate(value):
            check_form(each, form[0], f"{name}[{place}]")
        return
    inner = {each.removesuffix("?"): form[each] for each in form}
    if lacking := [each for each in form if each == each.removesuffix("?") and each not in value]:
        raise ValueError(f"{name} lacks {lacking[0]!r}")
    unknown = [] if "*" in inner else sorted(value.keys() - inner.keys())
    if unknown:
        raise ValueError(f"{name} has fields that are not known here: {', '.join(map(repr, unknown))}")
    for field, each in value.items():
        check_form(each, inner.get(field, inner.get("*")), f"{name}.{field}")


def _bytes_in(part: str) -> bytes:
    """Decodes base64url without padding, in the one form that bytes have. Raises ValueError."""
    import base64

    if not _PART.issuperset(part) or len(part) % 4 == 1:
        raise ValueError("it is not a JWT")
    found = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    if _in_base64url(found) != part:
        raise ValueError("it is not a JWT")
    return found


def _in_base64url(data: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _json_in(part: str) -> dict[str, Any]:
    try:
        found = strict_json(_bytes_in(part))
    except RepeatedName as error:
        raise ValueError(f"it is ambiguous: {error}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("it is not a JWT")  # noqa: TRY004 - one error for what is not a receipt
    return found


def canonical(value: Any) -> str:
    """Returns a JSON value in the form of RFC 8785. An integer beyond ±(2^53−1), for which that has none, is written with
    all its digits, as in the digests of receipts.

    Raises:
        ValueError: it is not JSON.
    """
    if value is None or isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("a property's name is not text")
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    raise ValueError(f"{type(value).__name__} is not JSON")


def _number(value: float) -> str:
    """Writes a number as JavaScript does: Python has the same shortest digits, in other places."""
    if not abs(value) < float("inf"):  # NaN is not, either
        raise ValueError("a number is not finite")
    if value == 0:
        return "0"
    from decimal import Decimal

    negative, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    sign, digits = "-" * negative, "".join(map(str, figures))
    point = len(digits) + int(exponent)
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    rest = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def unredacted(answered: Any, asked: Any, sent: Any) -> Any:
    """Returns `answered` with every unchanged part restored from `sent`, because the bot's `redact` may have hidden it in
    `asked`. Parts that people changed stay as they are, even if they contain `[redacted]`.
    """
    if isinstance(answered, Mapping) and isinstance(asked, Mapping) and isinstance(sent, Mapping):
        names = _own_names(asked, sent)
        return {
            names.get(name, name): unredacted(value, asked[name], sent[names[name]])
            if name in names
            else value
            for name, value in answered.items()
        }
    if isinstance(answered, list) and isinstance(asked, list) and isinstance(sent, list):
        known = min(len(asked), len(sent))
        return [
            unredacted(value, asked[place], sent[place]) if place < known else value
            for place, value in enumerate(answered)
        ]
    is_shown = not isinstance(asked, (Mapping, list)) and is_same(answered, asked)
    return sent if is_shown else answered


class RepeatedName(ValueError):
    """An object in JSON has the same name twice. Readers differ in which one counts."""


def named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object in JSON, given its names and values. Raises RepeatedName."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedName("an object has the same name twice")
    return found


def _ambiguous(text: str) -> float:
    raise ValueError(f"programs read the number {text[:40]} differently")


def _exact(text: str) -> float:
    from decimal import Decimal

    found = float(text)
    try:
        is_exact = math.isfinite(found) and Decimal(text) == Decimal(repr(found))
    except ArithmeticError:
        is_exact = False
    return found if is_exact else _ambiguous(text)


_STRICT = json.JSONDecoder(object_pairs_hook=named_once, parse_constant=_ambiguous, parse_float=_exact)


def strict_json(content: bytes) -> Any:
    """Reads UTF-8 JSON that every program reads alike. Raises ValueError (RepeatedName of a name that is there twice) or
    RecursionError.
    """
    return _STRICT.decode(content.decode())


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two values are the same JSON: 1, 1.0 and true all differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def check_state(state: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Checks that a state is of the question with these fields, and that what was approved was shown and is what was sent.

    Raises:
        Refused: it is of another question, or other arguments were approved; unless people edited the ones sent.
    """
    if state.get("kind", kind := _kind(fields)) != kind:
        raise Refused(200, "OTHER_QUESTION", "The bot's response is about another question than this one.")
    answer, asked, sent = state.get("answer"), state.get("asked"), fields.get("arguments") or {}
    if not Approval(state) or not isinstance(answer, dict):
        return
    shown = (asked.get("arguments") or {}) if isinstance(asked, dict) else {}
    is_as_shown = fields.get("editable") or _matches(answer.get("arguments") or {}, shown, _is_equal)
    if not is_as_shown or not _matches(shown, sent, _may_be):
        raise Refused(200, "OTHER_ARGUMENTS", "Other arguments were approved than these.", "arguments")


def _matches(shown: Any, sent: Any, same: Callable[[Any, Any], bool]) -> bool:
    """Returns whether two values of JSON are the same. `same`: compares names, and values that hold no others."""
    if isinstance(shown, Mapping) and isinstance(sent, Mapping):
        names = _own_names(shown, sent)
        return len(names) == len(shown) == len(sent) and all(
            same(name, own) and _matches(shown[name], sent[own], same) for name, own in names.items()
        )
    if isinstance(shown, list) and isinstance(sent, list):
        return len(shown) == len(sent) and all(
            _matches(*each, same) for each in zip(shown, sent, strict=True)
        )
    return (
        not isinstance(shown, (Mapping, list)) and not isinstance(sent, (Mapping, list)) and same(shown, sent)
    )


def _is_equal(one: Any, other: Any) -> bool:
    """Returns whether two values are equal: 1 and 1.0 are, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _may_be(shown: Any, sent: Any) -> bool:
    """Returns whether `shown` is `sent`, in which the bot's `redact` may have hidden parts."""
    if not isinstance(shown, str) or _REDACTED not in shown or isinstance(sent, bool) or sent is None:
        return _is_equal(shown, sent)
    text = sent if isinstance(sent, str) else json.dumps(sent)
    first, *middle, last = shown.split(_REDACTED)
    end = len(first)
    for part in middle:
        if (at := text.find(part, end)) < 0:
            return False
        end = at + len(part)
    return text.startswith(first) and text.endswith(last) and end + len(last) <= len(text)


def _own_names(asked: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, str]:
    """Returns the name in `sent` of each one in `asked`. Redacted names are in their order; the others are as they were."""
    names = {name: name for name in asked if name in sent}
    hidden = ([each for each in asked if each not in sent], [each for each in sent if each not in asked])
    return names | dict(zip(*hidden, strict=False))


def _kind(fields: Mapping[str, Any]) -> str:
    """Returns a question's kind, as the bot derives it."""
    derived = {"choices": "choice", "schema": "form", "action": "approval"}
    found = (kind for name, kind in derived.items() if fields.get(name) is not None)
    return fields.get("kind") or next(found, "text")


def exact(value: Any, path: str) -> Any:
    """Returns a copy of a JSON value.

    Raises:
        BadQuestion: JSON would change it, so that people would approve something else.
    """
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, (list, tuple)):
        return [exact(each, f"{path}[{place}]") for place, each in enumerate(value)]
    what = str(value) if isinstance(value, float) else type(value).__name__
    if isinstance(value, Mapping):
        odd = [type(name).__name__ for name in value if not isinstance(name, str)]
        if not odd:
            return {name: exact(each, f"{path}.{name}") for name, each in value.items()}
        what = f"{odd[0]} as a name"
    raise BadQuestion(f"`{path}` is no JSON value ({what}). Convert it first.", path)


def arguments_in(text: str | None) -> dict[str, Any]:
    """Returns the arguments of a model's tool call, from their JSON; none, if it is empty.

    Raises:
        BadQuestion: they cannot be read, or programs would read them differently.
    """
    try:
        found = strict_json((text or "{}").encode())
    except (ValueError, RecursionError) as error:
        raise BadQuestion(f"The arguments cannot be read as JSON: {error}.", "arguments") from None
    if not isinstance(found, dict):
        raise BadQuestion("The arguments must be a JSON object.", "arguments")
    return found


class Model(Protocol[M_co]):
    """A pydantic model."""

    def model_json_schema(self) -> dict[str, Any]: ...
    def model_validate_json(self, json_data: str) -> M_co: ...


class _More(TypedDict, total=False):
    """Options of every question."""

    agent: str | None  # your name (default: the producer's name)
    session: str | None  # questions with the same session share a Slack thread
    context: str | None  # background the person needs
    to: str | None  # the only person who may answer, by email address or Slack ID
    requested_by: str | None  # the person you work for, likewise; someone else may have to approve
    timeout: float | None  # seconds (default: 3600)
    escalate: bool  # page the person on call if no one answers (default: true)
    key: str | None  # with the same key it is the same question, even from another process
    callback_url: str | None  # where the bot posts the outcome, too
    issue: int | None  # that it belongs to; likewise `topic`
    topic: str | None
    url: str | None  # used instead of the environment variables; likewise `token` and `producer`
    token: str | None
    producer: str | None


class _Ask(_More, total=False):
    """Options of `ask`."""

    choices: Sequence[str | Mapping[str, str]] | None  # or objects with `value`, `label` and `description`
    multiple: bool  # people can pick several choices
    other: bool  # people can also write their own answer
    # By default: choice with choices, form with a schema, otherwise text.
    kind: Literal["yes_no", "choice", "number", "text", "form"] | None
    # A form: a flat JSON Schema object, the schema of a single value, or a pydantic model class.
    schema: dict[str, Any] | None
    default: Any  # the answer to assume if no one answers; without it, `Expired` is raised


class _Approve(_More, total=False):
    """Options of `approve`."""

    consequence: str | None  # what happens as a result
    risk: Risk | None  # default: medium
    irreversible: bool  # the action cannot be undone
    arguments: Mapping[str, Any] | None  # the exact arguments of the action: JSON values
    # Their JSON Schema, or a pydantic model class: people get menus, and what they edit must fit it.
    arguments_schema: dict[str, Any] | type[Model[Any]] | None
    editable: bool  # people can edit them before they approve; use the approval's `arguments`
    approvals: int | None  # how many different people must approve (1 to 5)
    question: str | None  # anything else the approver should know


@overload
def ask(question: str, *, schema: Model[T], default: T | None = None, **more: Unpack[_More]) -> Answer[T]: ...
@overload
def ask(question: str, **options: Unpack[_Ask]) -> Answer[Any]: ...
def ask(question: str, **options: Any) -> Answer[Any]:
    """Asks a person and waits for the answer. `options`: see `_Ask` and `_More`.

    Raises:
        Expired, Closed, Withdrawn: the question ended without an answer.
        Refused: the bot rejected the question: a field or the token is wrong.
    """
    return _answer(_talk(_question(question, options)), options)


def approve(action: str, **options: Unpack[_Approve]) -> Approval:
    """Asks for approval of an action and waits for the decision. `options`: see `_Approve` and `_More`.

    Returns:
        Truthy if it was approved; falsy if it was rejected, or if no one decided.

    Raises:
        Refused: the bot rejected the question: a field or the token is wrong.
    """
    asking = _action(action, options)
    return Approval(_talk(asking), asking.fields.get("arguments"))


class aio:  # noqa: N801 - reads like a module
    """`ask` and `approve` for asyncio. Cancelling the task withdraws the question."""

    @overload
    @staticmethod
    async def ask(
        question: str, *, schema: Model[T], default: T | None = None, **more: Unpack[_More]
    ) -> Answer[T]: ...
    @overload
    @staticmethod
    async def ask(question: str, **options: Unpack[_Ask]) -> Answer[Any]: ...
    @staticmethod
    async def ask(question: str, **options: Any) -> Answer[Any]:
        """Asks a person and waits for the answer: see `clarify.ask`."""
        return _answer(await _atalk(_question(question, options)), options)

    @staticmethod
    async def approve(action: str, **options: Unpack[_Approve]) -> Approval:
        """Asks for approval of an action and waits for the decision: see `clarify.approve`."""
        asking = _action(action, options)
        return Approval(await _atalk(asking), asking.fields.get("arguments"))


def _question(question: str, options: Mapping[str, Any]) -> Asking:
    fields = {"question": question, **_with_json_schema("schema", options)}
    if hasattr(fields.get("default"), "model_dump"):
        fields["default"] = fields["default"].model_dump(mode="json")
    return Asking(fields)


def _action(action: str, options: Mapping[str, Any]) -> Asking:
    return Asking({"kind": "approval", "action": action, **_with_json_schema("arguments_schema", options)})


def _with_json_schema(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns options with the JSON Schema in place of a pydantic model class."""
    given: Any = options.get(name)
    return {**options, name: given.model_json_schema()} if hasattr(given, "model_json_schema") else options


def _answer(state: Mapping[str, Any], options: Mapping[str, Any]) -> Answer[Any]:
    """Returns the answer in a state.

    Raises:
        Expired, Closed, Withdrawn: there is no answer.
    """
    default = options.get("default")
    schema: Any = options.get("schema")
    match state["status"]:
        case "answered":
            value = state["answer"]
            if hasattr(schema, "model_validate_json"):
                value = schema.model_validate_json(json.dumps(value))
            return Answer(value, state)
        case "expired" if default is not None:
            return Answer(default, state)
    raise _unanswered(state)


def _unanswered(state: Mapping[str, Any]) -> NotAnswered:
    words = state.get("comment")
    match state["status"]:
        case "expired" if state.get("id") is None:
            return Unreachable(words or "The bot could not be reached, so no one was asked.", state)
        case "expired":
            return Expired(words or "No one answered in time.", state)
        case "withdrawn":
            return Withdrawn(words or "The question was withdrawn.", state)
    return Closed(words or "The question was closed without an answer.", state)


# --- The conversation with the bot: what to say next, whatever carries it.


class Call(NamedTuple):
    """A request. `patience`: seconds to wait for the response."""

    method: str
    path: str
    body: object = None
    query: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}
    patience: float = PATIENCE


class Reply(NamedTuple):
    """The bot's response: an HTTP status, header fields in lower case, a body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def is_passing(self) -> bool:
        """Returns whether a retry may succeed."""
        return self.status in {408, 425, 429} or self.status >= 500

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait before a retry, if the response says so."""
        given = self.headers.get("retry-after", "")
        return float(given) if given.isdecimal() else None

    def refusal(self) -> Refused:
        """Returns the error of a response with a status of 400 or above."""
        said = self.json
        if not isinstance(said, dict) or not isinstance(said.get("message"), str):
            return Refused(
                self.status, f"HTTP_{self.status}", f"The server answered with HTTP {self.status}."
            )
        code, words, field = str(said.get("error")), said["message"], said.get("field")
        if self.status in _BAD_QUESTION:
            return BadQuestion(words, field, status=self.status, code=code)
        return Refused(self.status, code, words, field)


class NotSent(ConnectionError):
    """The connection failed before any part of the request was sent."""


class Asking:
    """One question, from asking to its outcome. Its methods block."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        *,
        known: str | None = None,
        told: Callable[[dict[str, Any]], object] = lambda _: None,
        once: bool = False,
    ) -> None:
        """`fields`: of the question and of its connection. `known`: its id if it was already asked. `told`: called with each
        state that the bot returns. `once`: an answer that was handed out before, here or elsewhere, is Refused.

        Raises:
            ValueError: a field, or the timeout, is no JSON value.
        """
        said = dict(fields)
        self.client = Client(said.pop("url", None), said.pop("token", None), said.pop("producer", None))
        self._timeout = said.pop("timeout", None)
        if self._timeout is not None and not (
            isinstance(self._timeout, (int, float)) and math.isfinite(self._timeout)
        ):
            raise BadQuestion("`timeout` must be a number of seconds.", "timeout")
        # A copy: the caller may change the values while people decide.
        self.fields = {name: exact(value, name) for name, value in said.items() if value is not None}
        self.fields.setdefault("key", f"py-{os.urandom(12).hex()}")
        self._ends = time.monotonic() + (_TIMEOUT if self._timeout is None else self._timeout)
        self.id = known
        self._may_be_asked = known is not None
        self._on_told = told
        self._once = _ONCE if once else {}
        self.longest_wait = LONGEST_WAIT

    def ended(self) -> dict[str, Any]:
        """Asks and returns the question's last state.

        Raises:
            Refused: the bot rejected the question.
        """
        pause, state, said = _PAUSES[0], {}, False
        while True:
            began = time.monotonic()
            known = self._may_be_asked
            self._may_be_asked = True
            reply = self._reply(self._look() if self.id else self._ask())
            if isinstance(reply, NotSent):
                self._may_be_asked = known
            if isinstance(reply, Reply) and not reply.is_passing:
                state = self._told(reply)
                if state["status"] != "waiting":
                    return state
                if self._left < -_LATE:
                    return {**state, "status": "expired"}
                if time.monotonic() - began > 1 or reply.status == 201:
                    pause = _PAUSES[0]
                    continue  # it waited as it should
            elif self._left <= 0:
                return {**state, "status": "expired", "comment": _why(reply, self.client)}
            elif not said and not isinstance(reply, Reply):
                said = True
                _warn(f"{_why(reply, self.client)} Retrying until the question expires.")
            asked = reply.retry_after if isinstance(reply, Reply) else None
            self.client.pause(max(0.05, min(asked or pause, self._left)))
            pause = min(pause * 2, _PAUSES[1])

    def withdrawn(self, comment: str | None = None, patience: float = _FAREWELL) -> dict[str, Any]:
        """Withdraws the question, if it may have been asked, within `patience` seconds, and returns its state; if an answer came
        first, the answered state. `comment`: why.
        """
        ends = time.monotonic() + patience
        while self._may_be_asked and (left := ends - time.monotonic()) > 0:
            # Asked again it is the same question, so that its id is known, whatever became of the first time.
            query = self._once | ({"comment": comment} if comment else {})
            call = Call("DELETE", f"/questions/{self.id}", query=query) if self.id else self._ask()
            reply = self._reply(call._replace(patience=left))
            if not isinstance(reply, Reply) or reply.is_passing:
                self.client.pause(_PAUSES[0])
            elif self.id or not (named := (reply.json or {}).get("id")):
                with suppress(Refused):  # there is no state, or it is of another question: no one decided
                    return self._state_in(reply)
                return {}
            else:
                self.id = named
        return {}

    def _reply(self, call: Call) -> Reply | OSError:
        try:
            return self.client.call(call)
        except OSError as error:
            return error

    @property
    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _ask(self) -> Call:
        left = {} if self._timeout is None else {"timeout": min(self._timeout, max(1, math.ceil(self._left)))}
        return Call("POST", "/questions", self.fields | left, self._once)

    def _look(self) -> Call:
        wait = min(self.longest_wait, max(1, int(self._left) + 2))
        query = self._once | {"wait": wait}
        return Call("GET", f"/questions/{self.id}", query=query, patience=wait + PATIENCE)

    def _told(self, reply: Reply) -> dict[str, Any]:
        if reply.status >= 400:
            raise reply.refusal()
        state = self._state_in(reply)
        self.id = state["id"]
        self._on_told(state)
        return state

    def _state_in(self, reply: Reply) -> dict[str, Any]:
        """Returns the question's state in a response.

        Raises:
            Refused: it is none, or one of another question.
        """
        state = reply.json
        named = state.get("id") if isinstance(state, dict) else None
        if not isinstance(named, str) or named != (self.id or named) or "status" not in state:
            raise _no_bot(reply, self.client)
        check_state(state, self.fields)
        return dict(state)


def _why(reply: Reply | OSError, client: Client) -> str:
    why = str(reply.refusal()) if isinstance(reply, Reply) else f"{str(reply) or type(reply).__name__}."
    return f"clarify-bot at {client.url} cannot be reached: {why}"


def _no_bot(reply: Reply, client: Client) -> Refused:
    return Refused(
        reply.status, "NO_BOT", f"The server at {client.url} is not clarify-bot. Check CLARIFY_URL."
    )


def _warn(words: str) -> None:
    import logging  # only where there is something to say

    logging.getLogger("clarify").warning(words)


class _Interrupted(BaseException):
    """The task that waits was cancelled; of a hook, `--timeout` is over, or the agent that waits for the decision has ended."""


def _talk(asking: Asking) -> dict[str, Any]:
    """Asks; withdraws the question when interrupted."""
    try:
        return asking.ended()
    except Exception:
        raise
    except BaseException:
        asking.withdrawn()
        raise


async def _atalk(asking: Asking) -> dict[str, Any]:
    """Asks in a thread of its own; withdraws the question when cancelled."""
    import asyncio  # a third of a hook's time to start
    import threading
    from concurrent.futures import Future

    ended, cancelled = Future[dict[str, Any]](), threading.Event()

    def check() -> None:
        if cancelled.is_set():
            cancelled.clear()  # the withdrawal is not interrupted
            raise _Interrupted

    def talk() -> None:
        try:
            ended.set_result(_talk(asking))
        except BaseException as error:  # noqa: BLE001 - the task raises it
            ended.set_exception(error)

    asking.client.tick = check
    threading.Thread(target=talk, daemon=True).start()
    waiting = asyncio.wrap_future(ended)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        cancelled.set()
        waiting.add_done_callback(asyncio.Future.exception)  # no one else looks at it
        await asyncio.wait([waiting], timeout=_FAREWELL + 1)
        raise


# --- HTTP: one request, one response, one connection.


class Client:
    """A connection to the bot.

    Proxies are as in the environment, but for this machine. `tick` is called several times a second while `call` waits; it
    may raise to break the wait off.
    """

    def __init__(self, url: str | None = None, token: str | None = None, producer: str | None = None) -> None:
        """Arguments that are None are read from the environment: CLARIFY_URL, CLARIFY_TOKEN, CLARIFY_PRODUCER; in the Claude
        Code plugin, else from its options.

        Raises:
            ValueError: the URL is not an HTTP address, or the token is malformed.
        """
        from urllib.parse import urlsplit  # not where only the types are needed

        given = url or _setting("URL") or DEFAULT_URL
        self._token = _setting("TOKEN") if token is None else token
        self._producer = os.environ.get("CLARIFY_PRODUCER") if producer is None else producer
        try:
            parts = urlsplit(given)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            shown = given.rpartition("@")[2]  # no password
            raise ValueError(f"CLARIFY_URL: {shown!r} is not an HTTP address. Use one such as {DEFAULT_URL}.")
        if self._token and not (self._token.isascii() and self._token.isprintable()):
            raise ValueError("CLARIFY_TOKEN: the token must contain only printable ASCII characters.")
        self.tick: Callable[[], object] = lambda: None
        self._tls = parts.scheme == "https"
        self._host = parts.hostname
        self._port = port or (443 if self._tls else 80)
        self._authority = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{self._authority}{self._path}"

    def call(self, call: Call) -> Reply:
        """Sends a request and returns the response.

        Raises:
            BadQuestion: the request is too large. NotSent: there is no connection. OSError: it broke, or the time was over.
        """
        deadline = time.monotonic() + call.patience
        with self._connected(min(call.patience, _CONNECTING)) as connection:
            reader = _Reader()
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            connection.sendall(self._request(call))
            while not reader.is_complete:
                self.tick()
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError(f"no response within {call.patience:.0f} s")
                connection.settimeout(min(left, _TICK))
                with suppress(TimeoutError):
                    reader.feed(connection.recv(65_536))
        return reader.reply

    def pause(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, _TICK))
            self.tick()

    def events(self, call: Call, opened: Callable[[socket.socket], object]) -> Iterator[Reply]:
        """Sends a request and yields each event of the response as it comes, or the response, if it has no events.

        `opened`: takes the connection, which another thread may shut down. `call.patience`: seconds until the response
        begins, and between two pieces of it. Raises what `call` does.
        """
        reader, rest, data = _Reader(), b"", list[bytes]()
        with self._connected(_CONNECTING) as connection:
            opened(connection)
            connection.settimeout(call.patience)
            connection.sendall(self._request(call))
            while not reader.is_complete:
                reader.feed(connection.recv(65_536))
                if "text/event-stream" not in reader.headers.get("content-type", ""):
                    continue
                *lines, rest = (rest + reader.body).split(b"\n")
                reader.body.clear()
                for line in lines:
                    name, _, value = line.strip().partition(b":")
                    if name == b"data":
                        data.append(value)
                    elif not name and data:
                        yield Reply(reader.status, {}, b"\n".join(data))
                        data.clear()
        if "text/event-stream" not in reader.headers.get("content-type", ""):
            yield reader.reply

    def _request(self, call: Call) -> bytes:
        from urllib.parse import urlencode

        query = dict(call.query)
        if self._producer:
            query.setdefault("producer", self._producer)
        target = f"{self._path}{call.path}" + (f"?{urlencode(query)}" if query else "")
        if self._proxy is not None and not self._tls:
            target = f"http://{self._authority}{target}"
        headers = {
            "Host": self._authority,
            "Accept": "application/json",
            "User-Agent": "clarify.py",
            "Connection": "close",
        }
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        body = b""
        if call.body is not None:
            body = json.dumps(call.body).encode()
            if len(body) > _LARGEST:
                words = f"The question has {len(body)} bytes of JSON; at most {_LARGEST} are allowed."
                raise BadQuestion(words, status=413, code="TOO_LARGE")
            headers["Content-Type"] = "application/json"
        if call.method in {"POST", "PUT"}:
            headers["Content-Length"] = str(len(body))
        lines = [f"{call.method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (headers | dict(call.headers)).items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    @property
    def _proxy(self) -> tuple[str, int] | None:
        """The proxy's address; None on this machine, or where the environment names none."""
        if _is_loopback(self._host) or not any(name.lower().endswith("_proxy") for name in os.environ):
            return None
        from urllib.parse import urlsplit
        from urllib.request import getproxies, proxy_bypass

        named = getproxies()
        given = named.get("https" if self._tls else "http") or named.get("all")
        if not given or proxy_bypass(self._host):
            return None
        parts = urlsplit(given if "://" in given else f"http://{given}")
        return (parts.hostname, parts.port or 80) if parts.hostname else None

    @contextmanager
    def _connected(self, patience: float) -> Iterator[socket.socket]:
        """Yields a connection to the bot. Raises NotSent."""
        import socket  # not where only the types are needed

        proxy, connection = self._proxy, None
        try:
            connection = socket.create_connection(proxy or (self._host, self._port), timeout=patience)
            if self._tls:
                import ssl  # not on this machine

                if proxy is not None:
                    self._tunnel(connection)
                connection = ssl.create_default_context().wrap_socket(connection, server_hostname=self._host)
        except OSError as error:
            if connection is not None:
                connection.close()
            raise NotSent(error.strerror or str(error) or type(error).__name__) from error
        with connection:
            yield connection

    def _tunnel(self, connection: socket.socket) -> None:
        """Has a proxy connect us to the bot. Raises OSError."""
        where, head = f"{self._host}:{self._port}", b""
        connection.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        while not head.endswith(b"\r\n\r\n"):  # and nothing of what comes after it
            if not (byte := connection.recv(1)) or len(head) > 65_536:
                raise ConnectionError("the proxy does not speak HTTP")
            head += byte
        status = head.split(b" ", 2)[1:2]
        if status != [b"200"]:
            raise ConnectionError(f"the proxy answered with HTTP {b''.join(status).decode('latin-1')}")


class _Reader:
    """Reads one HTTP/1.1 response from the pieces in which it comes (RFC 9112). `body`: what came of it so far."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_complete = False
        self._data = bytearray()  # not read yet
        self._ended = False
        self._reading = self._read()
        next(self._reading)

    @property
    def reply(self) -> Reply:
        return Reply(self.status, self.headers, bytes(self.body))

    def feed(self, data: bytes) -> None:
        """Takes what was received; nothing is the end of the connection.

        Raises:
            ConnectionError: it ended too early, or this is no HTTP.
        """
        self._data += data
        self._ended = not data
        if len(self._data) + len(self.body) > _MOST:
            raise ConnectionError("the response is too large")
        try:
            next(self._reading)
        except StopIteration:
            self.is_complete = True
        except (ValueError, IndexError):
            raise ConnectionError("the server does not speak HTTP") from None

    def _read(self) -> Iterator[None]:
        while self.status < 200:  # more is to come
            first, *lines = (yield from self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, status = first.split(" ", 2)[:2]
            if not version.startswith("HTTP/1.") or not status.isdigit():
                raise ValueError(first)
            self.status = int(status)
            parts = [line.partition(":") for line in lines]
            self.headers = {name.strip().lower(): value.strip() for name, _, value in parts}
        if self.status in {204, 304}:
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while size := int((yield from self._until(b"\r\n")).partition(b";")[0], 16):
                self.body += (yield from self._take(size + 2))[:-2]
        elif "content-length" in self.headers:
            self.body += yield from self._take(int(self.headers["content-length"]))
        else:
            while not self._ended:
                self.body += self._data
                self._data.clear()
                yield

    def _until(self, mark: bytes) -> Generator[None, None, bytes]:
        while (end := self._data.find(mark)) < 0:
            yield from self._more()
        return (yield from self._take(end + len(mark)))[:end]

    def _take(self, size: int) -> Generator[None, None, bytes]:
        if size < 0:
            raise ValueError(size)
        while len(self._data) < size:
            yield from self._more()
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    def _more(self) -> Iterator[None]:
        if self._ended:
            raise ConnectionError("the connection ended before the response was complete")
        yield


def _setting(name: str) -> str | None:
    return os.environ.get(f"CLARIFY_{name}") or os.environ.get(f"CLAUDE_PLUGIN_OPTION_{name}")


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or (host.startswith("127.") and host.replace(".", "").isdigit())


# --- The command line: python3 clarify.py COMMAND …

COMMANDS = {
    "ask": "Ask a person in Slack and print the answer.",
    "approve": "Ask people in Slack to approve an action. Exits with 0 only if they do.",
    "hook": "Let people in Slack answer the permission requests of Claude Code, Codex or GitHub Copilot CLI.",
    "mcp": "Serve MCP tools to ask people in Slack, on standard input and output.",
    "guard": "Run an MCP server whose calls wait for people in Slack where the bot's [[guard]] rules say so.",
}
_USAGE = "usage: clarify.py ask|approve|hook|mcp|guard …  (each has --help)"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command of this file. Returns the exit code. `argv`: the command and its arguments."""
    command, *words = (sys.argv[1:] if argv is None else argv) or [""]
    if command in {"-h", "--help"}:
        about = [f"  {name:9}{about}" for name, about in COMMANDS.items()]
        print("\n".join([_USAGE, "", "Lets AI agents, scripts and CI ask people in Slack.", "", *about]))
        print(
            "\nSet CLARIFY_URL to the bot's address, and CLARIFY_TOKEN to the token of your [[producers]] table."
        )
        return 0
    if command in {"hook", "mcp"} and "--install" in words:
        print("clarify: --install works only where clarify-bot is installed.", file=sys.stderr)
        return 2
    match command:
        case "ask" | "approve":
            code = _shell(command, words)
        case "hook":
            code = _hook(words)
        case "mcp":
            code = _mcp(words)
        case "guard":
            code = _guard(words)
        case _:
            print(_USAGE, file=sys.stderr)
            code = 2
    return code


_Json = dict[str, Any]


def _on_signals(handler: Any) -> None:
    """Sets what happens at a signal that ends the process."""
    import signal

    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):  # not every system has all of them
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), handler)


# --- clarify.py ask, approve: for shell scripts and CI

_SPINNER = "|/-\\"


def shell_parser(command: str) -> argparse.ArgumentParser:
    """Returns the parser of `clarify ask` or `clarify approve`."""
    import argparse

    parser = argparse.ArgumentParser(prog=f"clarify {command}", allow_abbrev=False)
    add = parser.add_argument
    if command == "ask":
        parser.description = "Asks a person in Slack and prints the answer."
        codes = "0 answered, 1 unreachable or refused, 2 usage, 3 expired, 4 withdrawn or closed"
        add("question", help="the question")
        choice = "a possible answer; repeat it for each"
        add("--choice", action="append", dest="choices", metavar="VALUE", help=choice)
        add("--multiple", action="store_true", help="people can pick several choices, printed one a line")
        add("--other", action="store_true", help="people can also write their own answer")
        kinds = "the kind of answer (default: choice with --choice, otherwise text)"
        add("--kind", choices=["yes_no", "choice", "number", "text"], help=kinds)
        add("--default", metavar="VALUE", help="the answer to print if no one answers; the exit code is 3")
    else:
        parser.description = "Asks people in Slack to approve an action: exits with 0 only if they do."
        codes = "0 approved, 1 rejected, 2 usage or --help, 3 expired, 4 withdrawn or closed, 5 unreachable or refused"
        add("action", help="what you are about to do; put -- before one that may begin with -")
        given = "an argument of the action, as text; NAME:=JSON for JSON; repeat it for each"
        add("--argument", action="append", metavar="NAME=VALUE", type=_argument, dest="arguments", help=given)
        add("--consequence", metavar="TEXT", help="what happens as a result")
        damage = "how much damage a mistake would do (default: medium)"
        add("--risk", choices=["low", "medium", "high"], help=damage)
        add("--irreversible", action="store_true", help="the action cannot be undone")
        add("--approvals", type=int, metavar="N", help="how many different people must approve (1 to 5)")
        add("--reason", action="store_true", help="print the reason of an approval, too, if there is one")
    parser.epilog = f"Exit codes: {codes}."
    add("--context", metavar="TEXT", help="background that the person needs")
    add("--to", metavar="PERSON", help="the only person who may answer: an email address or a Slack ID")
    times = "how long people have to answer: 90s, 10m, 1h30m (default: 1h)"
    add("--timeout", type=_duration, metavar="DURATION", help=times)
    add("--agent", metavar="NAME", help="who asks (default: the name of your [[producers]] table)")
    thread = "questions of one session share a Slack thread (default: GITHUB_RUN_ID, where it is set)"
    add("--session", default=os.environ.get("GITHUB_RUN_ID") or None, metavar="ID", help=thread)
    key = "an idempotency key: the same key gets the same answer, so never use one for two actions"
    add("--key", help=key)
    add("--url", help=f"the bot's address (default: CLARIFY_URL, or {DEFAULT_URL})")
    add("--json", action="store_true", help="print the question's final state as JSON instead")
    return parser


def _duration(text: str) -> float:
    """Returns the seconds in `90s`, `10m`, `1h30m` or `2d`; a number alone is seconds."""
    import argparse
    import re

    found = re.fullmatch(r"(?:([\d.]+)d)?(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?", text)
    with suppress(ValueError):
        if re.fullmatch(r"[\d.]+", text):
            return float(text)
        if found and any(found.groups()):
            units = (86_400, 3600, 60, 1)
            return sum(float(each or 0) * unit for each, unit in zip(found.groups(), units, strict=True))
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m or 1h30m")


def _argument(text: str) -> tuple[str, Any]:
    import argparse

    name, given, value = text.partition("=")
    with suppress(ValueError, RecursionError):
        if given and name not in {"", ":"}:
            return (name[:-1], json.loads(value)) if name.endswith(":") else (name, value)
    raise argparse.ArgumentTypeError(f"{text!r} is not NAME=TEXT or NAME:=JSON")


def _shell(command: str, words: Sequence[str]) -> int:
    """Runs `clarify ask` or `clarify approve`. Returns the exit code: 0 for nothing but an answer, or an approval."""
    _on_signals(_stop)
    parser, failed = shell_parser(command), 1 if command == "ask" else 5
    try:
        options = parser.parse_args(words)
        given = vars(options).get("arguments")
        if given and len(dict(given)) < len(given):
            parser.error("argument --argument: a name is given twice")
    except SystemExit as end:
        return 2 if end.code or command == "approve" else 0  # an action may come from others, and be --help
    progress = _Progress()
    try:
        state = _asked(_shell_fields(command, options), progress)
        code, text, about = _outcome(command, state, options)
        if options.json:
            text = json.dumps(state, ensure_ascii=False)
        if text:
            _write(text + "\n", sys.stdout)
        if about:
            progress.say(about)
    except Exception as error:  # noqa: BLE001 - any failure means that no one approved
        progress.say(f"clarify {command}: {str(error) or type(error).__name__}")
        return failed
    return code


def _shell_fields(command: str, options: Any) -> _Json:
    """Returns the question's fields."""
    given = {name: each for name, each in vars(options).items() if name not in {"json", "reason"}}
    fields = {name: each for name, each in given.items() if each is not None and each is not False}
    if command == "approve":
        return {**fields, "kind": "approval", "arguments": dict(options.arguments or ()) or None}
    if options.default is not None and options.kind == "yes_no":
        fields["default"] = {"yes": True, "no": False}.get(options.default, options.default)
    elif options.default is not None and options.kind == "number":
        fields["default"] = float(options.default)
    elif options.default is not None and options.multiple:
        fields["default"] = [options.default]
    return fields


def _stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _asked(fields: _Json, progress: _Progress) -> _Json:
    """Asks and returns the question's final state. A signal that ends the process withdraws the question."""

    def told(state: _Json) -> None:
        progress.show(state)
        asking.longest_wait = 5 if state.get("link") else 1  # what changes meanwhile is shown, too

    asking = Asking(fields, told=told)
    asking.client.tick = progress.draw
    try:
        return asking.ended()
    except SystemExit:
        if asking.withdrawn().get("status") == "withdrawn":
            progress.say("The question was withdrawn.")
        raise
    finally:
        progress.clear()


def _outcome(command: str, state: _Json, options: Any) -> tuple[int, str, str]:
    """Returns the exit code, what to print, and what to say beside it."""
    comment = state.get("comment") or ""
    match state["status"]:
        case "answered" if command == "ask":
            return 0, _in_words(state), ""
        case "answered":
            approval = Approval(state)
            by = " and ".join(approval.approved_by or [str(state["decided_by"])])
            if approval.decision == "accept":
                return 0, comment if options.reason else "", f"Approved by {by}."
            if approval.decision != "reject":
                raise ValueError("The answer is neither accept nor reject.")
            return 1, comment, f"Rejected by {state['decided_by']}."
        case "expired" if state.get("id") is None:
            raise Unreachable(comment, state)
        case "expired":
            return 3, vars(options).get("default") or "", comment or "No one answered in time."
    return 4, "", comment or f"The question was {state['status']}."


def _in_words(state: _Json) -> str:
    """Returns an answer as the shell reads it, several of them one a line."""
    answer = state["answer"]
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    parts = [*(answer if isinstance(answer, list) else [answer]), state.get("other")]
    return "\n".join(
        each if isinstance(each, str) else json.dumps(each) for each in parts if each is not None
    )


def _write(text: str, stream: Any) -> None:
    """Writes text, without the control characters in it if it is for a terminal. Raises OSError."""
    if stream is None:
        raise OSError("it is closed")
    if stream.isatty():
        text = "".join(each if each.isprintable() or each == "\n" else "�" for each in text)
    stream.reconfigure(errors="backslashreplace", newline="\n")  # as shells read it, also on Windows
    stream.write(text)
    stream.flush()


class _Progress:
    """Says on standard error how a question stands: a line for each change; on a terminal also the time left."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_live = self._stream is not None and self._stream.isatty()
        self._shown: dict[str, object] = {}
        self._ends = time.time()
        self._drawn = 0

    def show(self, state: _Json) -> None:
        """Says what is new in the state of a question that waits."""
        from datetime import datetime

        if state["status"] != "waiting":
            return
        approved = state.get("approved_by") or []
        lines = {
            "id": f"Asked in Slack: {state['id']}",
            "link": state.get("link"),
            "claimed_by": f"Claimed by {state['claimed_by']}" if state.get("claimed_by") else None,
            "escalated": "Escalated: the person on call was paged." if state.get("escalated") else None,
            "approved": f"Approved by {' and '.join(approved)} ({len(approved)} of {state['approvals_needed']})"
            if approved
            else None,
        }
        for name, line in lines.items():
            if line and self._shown.get(name) != line:
                self.say(str(line))
        self._shown = lines
        if state.get("expires_at"):
            self._ends = datetime.fromisoformat(state["expires_at"]).timestamp()

    def draw(self) -> None:
        """Draws the line with the time left. Called several times a second."""
        if self._is_live and self._shown:
            minutes, seconds = divmod(max(0, int(self._ends - time.time())), 60)
            left = f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
            self._drawn += 1
            self._put(f"\r{_SPINNER[self._drawn % 4]} Waiting for an answer, {left} left ")

    def clear(self) -> None:
        if self._drawn:
            self._put(f"\r{'':40}\r")
            self._drawn = 0

    def say(self, line: str) -> None:
        self.clear()
        with suppress(OSError):  # it is only about the question
            _write(line + "\n", self._stream)

    def _put(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


# --- clarify.py hook: a coding agent's permission requests, decided by people in Slack
#
# Reads one hook event from standard input, asks, and prints the decision as the agent expects it. Only a person's Accept
# allows anything: without a decision, whatever the reason, `PermissionRequest` prints nothing, so that the agent asks in
# its own way, and `PreToolUse` denies, since silence there would run the tool. So does Copilot CLI's hook, which comes
# before its rules.
#
# Sources: "Hooks reference" (code.claude.com/docs/en/hooks), "Hooks" (developers.openai.com/codex/hooks), "GitHub Copilot
# hooks reference" (docs.github.com/en/copilot/reference/hooks-reference).

# Allow or deny, why, and the tool's new input if it was changed.
_Verdict = tuple[Literal["allow", "deny"], str | None, _Json | None]
# Seconds; Codex asks at its terminal only afterwards.
HOOK_TIMEOUTS = {"claude-code": 540, "codex": 60, "copilot": 540}
_AT_THE_TERMINAL = "decided at the terminal"
_ELICITATION = "Elicitation"  # an MCP server asks the user for something
_ELICITED = "ElicitationResult"
_AFTERWARDS = {"PostToolUse", "PostToolUseFailure", _ELICITED}
_SESSION_ENDS = {"SessionEnd", "Stop"}
_OWN_TOOLS = {"ask_human", "ask_approval", "wait_for_answer", "withdraw_question"}
_AWAY = 5.0  # seconds to wait for a bot that is away, before giving up
_MARGIN = 30  # seconds that the question outlives its hook, which withdraws it; so does the agent's patience
_PARTING = 20.0  # seconds to withdraw it: a busy bot answers late, and nobody would do so later
_DEFERRED = 7 * 86_400  # seconds that the question of a deferred call stays open
_POLL = 0.01  # seconds between two tries to get a lock
_STALE = 2 * 86_400  # seconds; no question of a hook waits so long
_PLAN = "ExitPlanMode"
_ACTIONS = {  # by tool: what it does, and the field that names its object
    "Bash": ("Run a shell command", None),
    "shell": ("Run a shell command", None),
    "apply_patch": ("Apply a patch", None),
    "Write": ("Write", "file_path"),
    "Edit": ("Edit", "file_path"),
    "MultiEdit": ("Edit", "file_path"),
    "NotebookEdit": ("Edit", "notebook_path"),
    "Read": ("Read", "file_path"),
    "WebFetch": ("Fetch", "url"),
    "WebSearch": ("Search the web for", "query"),
    "bash": ("Run a shell command", None),  # Copilot CLI's names
    "powershell": ("Run a shell command", None),
    "edit": ("Edit", "file_path"),
    "web_fetch": ("Fetch", "url"),
    _PLAN: ("Carry out this plan", None),
}
_UNNAMED = "any"  # in place of a `tool_use_id`
_FOR = ", for "  # between a subagent's name and its agent's, as the bot's routes read it
_NOT_ANSWERED = "(The person did not answer this question.)"


class _NoDecision(Exception):
    """No one decided; the message says why."""


class _NotYet(_NoDecision):
    """No one decided yet, but someone may do so later."""


def _hook(argv: Sequence[str]) -> int:
    """Decides on the event from standard input. Returns the exit code."""
    options = hook_parser().parse_args(argv)
    options.agent_ended = _end_of_parent()  # before the event, after which the agent may end at any time
    options.timeout = options.timeout or HOOK_TIMEOUTS[options.agent]
    if options.agent == "copilot":
        options.on_silence = options.on_silence or "deny"
    return _decide(sys.stdin.buffer.read(), options)


def hook_parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="clarify hook",
        description="Lets people in Slack answer a coding agent's permission requests.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=100),  # finding it out takes time
    )
    add = parser.add_argument
    add("agent", choices=sorted(HOOK_TIMEOUTS))
    times = "how long people have to decide: 90s, 10m (default: 9m; Codex: 1m)"
    add("--timeout", type=_hook_seconds, metavar="DURATION", help=times)
    add("--on-silence", choices=["deny", "pass"], help="without a decision: deny, or let the agent decide")
    add("--escalate", action="store_true", help="page the person on call if no one answers")
    later = "PreToolUse, without a decision: let Claude Code stop there, and resume the session later"
    add("--defer", action="store_true", help=later)
    own = "the agent's name for clarify's MCP server, whose tools need no permission (default: clarify)"
    add("--server-name", default="clarify", metavar="NAME", help=own)
    add("--url", help=f"the bot's address (default: CLARIFY_URL, or {DEFAULT_URL})")
    return parser


def _hook_seconds(text: str) -> float:
    import argparse

    if 1 <= (seconds := _duration(text)) <= 86_400:
        return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a duration from 1s to 24h")


def _decide(data: bytes, options: Any) -> int:
    import re

    if (event := _event_in(data, options.agent)) is None:
        _explain("cannot read the event on standard input: it must be a JSON object with hook_event_name")
        # Broken JSON may still say which event it is.
        named = re.search(rb'"hook_event_name"\s*:\s*"(PermissionRequest|PreToolUse|Elicitation)"', data)
        if named is not None:
            _silence(named[1].decode(), "No decision: clarify hook cannot read the event.", options)
        # 0 leaves the decision to the agent, which asks in its own way; 2 blocks the tool.
        return 2 if named is None and options.on_silence == "deny" else 0
    name = event["hook_event_name"]
    try:
        client = Client(options.url)
        if name in _AFTERWARDS | _SESSION_ENDS:
            _withdraw_waiting(client, event, options)
        elif name == _ELICITATION:
            print(json.dumps(_elicitation(*_elicited(client, event, options))))
        elif name in {"PermissionRequest", "PreToolUse"}:
            print(json.dumps(_output(options.agent, name, *_verdict(client, event, options))))
    except _NoDecision as error:
        _explain(str(error))
        if options.defer and isinstance(error, _NotYet) and _is_deferred(event):
            print(json.dumps(_output(options.agent, name, "defer", str(error), None)))
        else:
            _silence(name, str(error), options)
    except Exception as error:  # noqa: BLE001 - if the hook failed, the tool would run
        why = str(error) or type(error).__name__
        _explain(f"no decision: {why}")
        _silence(name, f"No decision from Slack: {why}", options)
    return 0


def _event_in(data: bytes, agent: str) -> _Json | None:
    """Returns an event, which names a tool call whatever it is about; None: it cannot be read."""
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    if agent == "copilot" and "hookName" in event:
        names = {"session_id": "sessionId", "tool_name": "toolName", "tool_input": "toolInput"}
        event |= {name: event.get(theirs) for name, theirs in names.items()}
        # It names no call, so that each is one of its own.
        event |= {"hook_event_name": "PermissionRequest", "tool_use_id": _letters(os.urandom(12))}
    name = event.get("hook_event_name")
    if name in (_ELICITATION, _ELICITED):
        # Of what was asked, the result names the server, and the id if there was one.
        event |= {"tool_name": _ELICITATION, "tool_input": {"server": event.get("mcp_server_name")}}
        event["tool_use_id"] = event.get("elicitation_id")
    return event if isinstance(name, str) else None


def _explain(words: str) -> None:
    print(f"clarify hook: {words}", file=sys.stderr)


def _silence(name: str, why: str, options: Any) -> None:
    """Denies, or prints nothing, since there is no decision."""
    default = "deny" if name == "PreToolUse" else "pass"
    if (options.on_silence or default) == "deny":
        if name in {"PermissionRequest", "PreToolUse"}:
            print(json.dumps(_output(options.agent, name, "deny", why, None)))
        elif name == _ELICITATION:
            print(json.dumps(_elicitation("cancel")))  # "decline" would say that a person did


def _output(
    agent: str, name: str, behavior: Literal["allow", "deny", "defer"], why: str | None, updated: _Json | None
) -> _Json:
    """Returns a decision in the format that the agent expects for the event."""
    changed = {} if updated is None else {"updatedInput": updated}
    if name == "PreToolUse":
        reason = {"permissionDecisionReason": why or "Approved in Slack."}
        return {
            "hookSpecificOutput": {"hookEventName": name, "permissionDecision": behavior} | reason | changed
        }
    message = {"message": why or "Rejected in Slack."} if behavior == "deny" else {}
    decision = {"behavior": behavior} | message | changed
    if agent == "copilot":
        return decision
    return {"hookSpecificOutput": {"hookEventName": name, "decision": decision}}


def _verdict(client: Client, event: _Json, options: Any) -> _Verdict:
    """Returns a person's decision.

    Raises:
        _NoDecision: no one decided.
    """
    tool, given, session = (event.get(name) for name in ("tool_name", "tool_input", "session_id"))
    if not isinstance(tool, str) or not isinstance(given, dict) or not isinstance(session, str):
        raise _NoDecision("cannot read the event: it must have tool_name, tool_input and session_id")
    named = "{}/{}" if options.agent == "copilot" else "mcp__{}__{}"
    if tool in {named.format(options.server_name, each) for each in _OWN_TOOLS}:
        return "allow", "clarify's own tools need no permission.", None
    said = _hook_question(tool, given, event, options.agent)
    state = _decided(client, event, said, options)
    check_state(state, said)
    _check_answered(state)
    if "action" not in said:
        return "allow", None, given | {"answers": _user_answers(given, state)}
    if state["answer"]["decision"] != "accept":
        return "deny", state.get("comment") or f"Rejected in Slack by {state['decided_by']}.", None
    if tool == _PLAN:
        return "allow", None, given
    arguments = Approval(state, given).arguments
    is_edited = said["editable"] and not is_same(arguments, given)
    by = " and ".join(state.get("approved_by") or [state["decided_by"]])
    return "allow", f"Approved in Slack by {by}.", arguments if is_edited else None


def _check_answered(state: _Json) -> None:
    if state["status"] != "answered":
        words = {"expired": "no one answered in time", "withdrawn": _AT_THE_TERMINAL}.get(state["status"])
        raise _NoDecision(f"no decision: {words or state.get('comment') or 'the question was closed'}")


def _elicited(
    client: Client, event: _Json, options: Any
) -> tuple[Literal["accept", "decline"], _Json | None]:
    """Returns what a person answers an MCP server, and the content of the form. To close the question is to decline.

    Raises:
        _NoDecision: no one answered. A page to open is for the person at the terminal, whose account it is about.
    """
    server, message, schema = (event.get(name) for name in ("mcp_server_name", "message", "requested_schema"))
    if not all(isinstance(each, str) for each in (server, message, event.get("session_id"))):
        raise _NoDecision("cannot read the event: it must have mcp_server_name, message and session_id")
    if event.get("mode") not in {None, "form"} or not isinstance(schema, (dict, type(None))):
        raise _NoDecision("no decision: only forms are asked in Slack")
    said: _Json = {"context": _about(event, **{"MCP server": server})}
    if schema and schema.get("properties"):
        said |= {"question": message, "schema": schema}
    else:  # whether to go on
        said |= {"action": message}
    state = _decided(client, event, said, options)
    check_state(state, said)
    if state["status"] == "closed" and (state.get("decided_by") or "").startswith("user:"):
        return "decline", None
    _check_answered(state)
    if "action" in said:
        return ("accept", {}) if Approval(state) else ("decline", None)
    asked = (state.get("asked") or {}).get("schema")
    shown, sent = (json.dumps(each).count(_REDACTED) for each in (asked, schema))
    if shown > sent:  # so may be the answer's names and values
        raise _NoDecision("no decision: the bot's `redact` has changed the form")
    return "accept", state["answer"]


def _elicitation(action: Literal["accept", "decline", "cancel"], content: _Json | None = None) -> _Json:
    """Returns an answer to an MCP server in the format of Claude Code."""
    more = {} if content is None else {"content": content}
    return {"hookSpecificOutput": {"hookEventName": _ELICITATION, "action": action} | more}


def _asker(event: _Json, agent: str) -> str:
    """Returns who asks: the agent, or a subagent ("Explore, for claude-code"), which alone has an `agent_id`."""
    if not event.get("agent_id"):
        return agent
    kind = event.get("agent_type")
    return f"{kind[:200] if kind and isinstance(kind, str) else 'subagent'}{_FOR}{agent}"


def _hook_question(tool: str, given: _Json, event: _Json, agent: str) -> _Json:
    """Returns the question's fields: an approval, or the agent's questions to its user, with all of the tool's input. The
    bot refuses an input that is too long to show.
    """
    if tool == "AskUserQuestion":
        return _user_questions(given)
    if tool == _PLAN and not given.get("plan"):  # it may be in a place that only Claude Code knows
        raise _NoDecision("no decision: the request is without the plan, so people could not see it")
    words, what = _ACTIONS.get(tool, (f"Use the tool {tool}", None))
    named = given.get(what) if what else None
    return {
        "action": f"{words} {named}" if isinstance(named, str) else words,
        "arguments": given,
        "editable": agent == "claude-code" and tool != _PLAN,  # Codex takes no changed input
        "context": _about(event),
    }


def _about(event: _Json, **more: Any) -> str | None:
    """Returns where an event comes from, one line each, after `more`."""
    about = {
        "Folder": event.get("cwd"),
        "Mode": event.get("permission_mode"),
        "Subagent": event.get("agent_id"),
    }
    lines = [f"{name}: {value}" for name, value in (more | about).items() if isinstance(value, str) and value]
    return "\n".join(lines) or None


def _user_questions(given: _Json) -> _Json:
    """Turns one question of the agent to its user into choices, several into a form; the rest becomes context."""
    questions = given["questions"]
    if len({each["question"] for each in questions}) < len(questions):
        why = "two questions have the same text, so their answers could not be told apart"
        raise _NoDecision(f"no decision: {why}")
    beside = {"context": "\n".join(_beside(given)) or None}
    properties: _Json = {}
    for number, each in enumerate(questions, 1):
        asked, several = each["question"], bool(each.get("multiSelect"))
        options = [(one["label"], one.get("description")) for one in each["options"]]
        if len(questions) == 1:
            choices = [{"value": label, "label": label, "description": about} for label, about in options]
            return {"question": asked, "choices": choices, "multiple": several, "other": True} | beside
        offered = {
            "oneOf": [{"const": label, "title": label, "description": about} for label, about in options]
        }
        title = each.get("header") or f"Question {number}"
        properties[f"q{number}"] = {"title": title, "description": asked} | (
            {"type": "array", "items": offered} if several else offered
        )
        properties[f"q{number}_other"] = {"type": "string", "title": f"{title}: in your own words"}
    words = "\n".join(f"{number}. {each['question']}" for number, each in enumerate(questions, 1))
    return {"question": words, "schema": {"type": "object", "properties": properties}} | beside


def _beside(given: _Json) -> Iterator[str]:
    """Yields the other content of the agent's questions, such as previews of the options, line by line."""
    several = len(given["questions"]) > 1
    yield from _left_over(given, {"questions", "answers"})
    for number, each in enumerate(given["questions"], 1):
        where = f"Question {number}, " if several else ""
        title = {"header"} if several else set()
        yield from _left_over(each, {"question", "options", "multiSelect"} | title, where)
        for option in each["options"]:
            yield from _left_over(option, {"label", "description"}, f"{where}{option['label']}, ")


def _left_over(said: _Json, shown: set[str], where: str = "") -> Iterator[str]:
    for name, each in said.items():
        if name not in shown and each is not None:
            value = each if isinstance(each, str) else json.dumps(each, indent=2, ensure_ascii=False)
            yield f"{where}{name}:{chr(10) if chr(10) in value else ' '}{value}"


def _user_answers(given: _Json, state: _Json) -> dict[str, str]:
    """Returns the answer to each question: the chosen labels and the person's own words, joined by commas."""
    questions, answer = given["questions"], state["answer"]
    if len(questions) == 1:
        answer = {"q1": answer, "q1_other": state.get("other")}
    found = {}
    for number, each in enumerate(questions, 1):
        chosen = answer.get(f"q{number}") or []
        words = [*(chosen if isinstance(chosen, list) else [chosen]), answer.get(f"q{number}_other")]
        found[each["question"]] = ", ".join(filter(None, words)) or _NOT_ANSWERED
    return found


class _ToolCall(NamedTuple):
    """A tool call, as questions' keys identify it. `what`: session, tool and input; `use`: its `tool_use_id`, if the event
    has one; `asked`: the whole question.
    """

    what: str
    use: str
    asked: str = ""

    @classmethod
    def of(cls, event: _Json, asked: _Json | None = None) -> _ToolCall:
        use = event.get("tool_use_id")
        what = _digest(event["session_id"], event["tool_name"], event["tool_input"])
        return cls(what, _digest(use) if use else _UNNAMED, _digest(asked))

    @classmethod
    def in_key(cls, key: str | None) -> _ToolCall | None:
        """Returns the call that a question's key names; None if it is not a hook's."""
        parts = (key or "").split("-")
        return cls(*parts[1:4]) if len(parts) == 5 and parts[0] == "hook" else None

    def new_key(self) -> str:
        """Returns a new, unique key."""
        return f"hook-{self.what}-{self.use}-{self.asked}-{_letters(os.urandom(12))}"

    def may_be(self, other: _ToolCall | None) -> bool:
        """Returns whether both may be the same call, as far as their ids tell."""
        if other is None or self.what != other.what:
            return False
        return self.use == other.use or _UNNAMED in {self.use, other.use}

    def found_in(self, waiting: Sequence[_Json]) -> list[_Json]:
        """Returns the questions that ask the same about the same call; none if that is ambiguous."""
        calls = [(each, self.in_key(each.get("key"))) for each in waiting]
        same = [
            (each, call) for each, call in calls if call and self.may_be(call) and self.asked == call.asked
        ]
        named = [each for each, call in same if call.use == self.use]
        return named or ([each for each, _ in same] if len(same) == 1 else [])


class _Locks:
    """Locks among this user's hooks, which end with the process that holds them.

    These are SQLite's locks on empty files: every system has them. Where there can be none, hooks do not coordinate.
    """

    def __init__(self, poll: Callable[[], object]) -> None:
        """`poll`: called while a lock is waited for."""
        self._poll = poll
        self._folder = _lock_folder()
        self._held: dict[str, sqlite3.Connection] = {}

    def take(self, name: str, *, shared: bool = False, waits: bool = True) -> bool:
        """Returns whether we have the lock now; others can have it, too, if it is shared by all."""
        while not self._has_taken(name, "BEGIN" if shared else "BEGIN EXCLUSIVE"):
            if not waits:
                return False
            time.sleep(_POLL)
            self._poll()
        return True

    def _has_taken(self, name: str, begin: str) -> bool:
        try:
            import sqlite3
        except ImportError:  # some builds of Python do without it
            return True
        path = self._folder / name if self._folder else ":memory:"
        try:
            held = self._held[name] = sqlite3.connect(path, timeout=0, isolation_level=None)
            held.execute("PRAGMA journal_mode = MEMORY")  # no files beside it
            held.execute(begin)
            held.execute("SELECT * FROM sqlite_master").fetchall()  # after BEGIN alone nothing is locked
        except sqlite3.Error as error:
            self.drop(name)
            return getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY
        return True

    def drop(self, name: str) -> None:
        if (held := self._held.pop(name, None)) is not None:
            held.close()

    def is_last(self, key: str) -> bool:
        """Stops waiting for a question; returns whether no other hook waits. If so, no one joins until this process ends."""
        self.take("leaving")  # two that try at once would each take the other for one that waits
        self.drop(key)
        is_last = self.take(key, waits=False)
        self.drop("leaving")
        return is_last

    def forget(self, key: str) -> None:
        """Removes the lock of a question that has ended."""
        self.drop(key)
        with suppress(OSError):  # on Windows: another hook still has it
            if self._folder:
                (self._folder / key).unlink()


def _lock_folder() -> Path | None:
    """Returns the folder of this user's locks; None if others could write it."""
    from pathlib import Path

    given = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("LOCALAPPDATA")
    try:
        folder = (Path(given) if given else Path.home() / ".cache") / "clarify-hooks"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        about = folder.lstat()
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o077):
            return None
        for each in folder.glob("hook-*"):  # left by hooks that were killed
            with suppress(OSError):
                if each.stat().st_mtime < time.time() - _STALE:
                    each.unlink()
    except (OSError, RuntimeError):
        return None
    return folder


def _decided(client: Client, event: _Json, said: _Json, options: Any) -> _Json:
    """Asks what is said, or joins another hook's question about this call, and waits for the decision; returns the question's
    state.

    Raises:
        _NoDecision: no one decided in time, or the agent ended.
    """
    who = {"agent": _asker(event, options.agent), "session": _session(event["session_id"])}
    fields = said | who | {"escalate": options.escalate}
    call = _ToolCall.of(event, fields)
    asking, key, turn = None, "", f"turn-{call.what[:2]}"
    # A call that may be deferred can run again, even from a copy of its session; an answer is for one run.
    once = options.defer and event["hook_event_name"] == "PreToolUse"
    client.tick = (ending := _Ending(options.timeout, options.agent_ended)).check
    try:
        ending.begin()
        locks = _Locks(ending.check)
        locks.take(turn)  # no other hook asks about this call until we have
        if (state := _answer_to_deferred(client, event, call)) is not None:
            ending.ignore()
            return state
        ending.start_again()  # people get the full time
        while state is None:
            named, key = _joined(client, call, fields["session"], locks, turn)
            lasts = _DEFERRED if options.defer else options.timeout
            more = {"key": key, "timeout": lasts + _MARGIN, "url": options.url}
            asking = Asking(fields | more, known=named, told=lambda _: locks.drop(turn), once=once)
            asking.client.tick = ending.check
            if (state := _carried(asking)) is None:
                locks.take(turn)
        ending.ignore()
    except _Interrupted:
        ending.ignore()
        words, is_asked = ending.words, asking is not None and asking.id is not None
        if ending.is_timeout and not is_asked:
            words += f": clarify-bot at {client.url} cannot be reached"
        if ending.is_timeout and options.defer:
            if _is_deferred(event, key if is_asked else None):
                raise _NotYet(words) from None
            words += "; Claude Code cannot defer this call"
        is_last = asking is not None and locks.is_last(key)
        state = asking.withdrawn(ending.comment, _PARTING) if asking is not None and is_last else {}
        if state.get("status") != "answered":
            if "status" in state:
                locks.forget(key)
            raise _NoDecision(words) from None
    locks.forget(key)
    return state


def _carried(asking: Asking) -> _Json | None:
    """Returns the question's last state; None if people have to be asked again: the answer went to another run of the call,
    or was lost on its way here.
    """
    try:
        return asking.ended()
    except Refused as error:
        if error.code == "ALREADY_PICKED_UP":
            return None
        raise


def _joined(
    client: Client, call: _ToolCall, session: str, locks: _Locks, turn: str
) -> tuple[str | None, str]:
    """Returns the id and the key of the open question about this call, which we join; a decision made before that does not
    count. Without one, returns None and a new key, and keeps the lock `turn` until the question is asked.
    """
    for each in call.found_in(_questions(client, session, "waiting")):
        locks.take(each["key"], shared=True)
        if (_now(client, each) or {}).get("status") == "waiting":
            locks.drop(turn)
            return each["id"], each["key"]
        locks.drop(each["key"])
    key = call.new_key()
    locks.take(key, shared=True)
    return None, key


def _is_deferred(event: _Json, key: str | None = None) -> bool:
    """Notes with which question a call is deferred, if it was asked. Returns False if Claude Code cannot stop at it and resume it: it does so without a terminal,
    at a message's only call, since 2.1.89. Elsewhere it ignores "defer", and may run the tool.
    """
    try:
        with open(event["transcript_path"], encoding="utf-8") as lines:  # noqa: PTH123 - pathlib takes time to import
            said = [json.loads(line) for line in lines if '"tool_use"' in line]
        messages = {
            block["id"]: each["message"]["id"]
            for each in said
            if each["type"] == "assistant"
            for block in each["message"]["content"]
            if block["type"] == "tool_use"
        }
        is_alone = [*messages.values()].count(messages[event["tool_use_id"]]) == 1
        is_known = [int(each) for each in str(said[-1]["version"]).split(".")] >= [2, 1, 89]
        is_headless = os.environ.get("CLAUDE_CODE_ENTRYPOINT") in {"sdk-cli", "sdk-ts", "sdk-py"}
        if is_alone and is_known and is_headless and event["hook_event_name"] == "PreToolUse":
            if key is not None:
                _mark(event, _ToolCall.of(event).use).write_text(key)
            return True
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return False


def _mark(event: _Json, use: str) -> Path:
    """Returns the file with the question of a call that was deferred and that no hook has resumed yet."""
    from pathlib import Path

    return Path(f"{event.get('transcript_path')}.{use}.deferred")


def _answer_to_deferred(client: Client, event: _Json, call: _ToolCall) -> _Json | None:
    """Returns the question that this call was deferred with, if it was answered since and no one has the answer yet. No other
    question of the call counts: its answer was for an earlier run.
    """
    mark = _mark(event, call.use)
    try:
        key = mark.read_text()
    except (OSError, ValueError):
        return None
    found = None
    if _ToolCall.in_key(key) == call:
        for each in _questions(client, _session(event["session_id"]), "answered"):
            if each.get("key") == key:
                found = _now(client, each, once=True)
    with suppress(OSError):
        mark.unlink()
    return found


class _Ending:
    """Raises `_Interrupted` at a signal that ends the process, and in `check` after that, after `seconds`, and if the agent has
    ended.
    """

    def __init__(self, seconds: float, agent_ended: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._agent_ended = agent_ended
        self.is_timeout = self._is_ignored = self._is_signalled = False
        self.start_again()

    def begin(self) -> None:
        """Takes signals from now on."""
        _on_signals(self._end)

    @property
    def comment(self) -> str:
        return "no one answered in time" if self.is_timeout else _AT_THE_TERMINAL

    @property
    def words(self) -> str:
        return f"no decision within {self._seconds:.0f} s" if self.is_timeout else _AT_THE_TERMINAL

    def start_again(self) -> None:
        """Restarts the time."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        if not self._is_ignored:
            self.is_timeout = time.monotonic() > self._ends
            if self.is_timeout or self._is_signalled or self._agent_ended():
                raise _Interrupted

    def ignore(self) -> None:
        """Ignores the time, the signals and the agent's end from now on."""
        import signal

        self._is_ignored = True
        _on_signals(signal.SIG_IGN)

    def _end(self, _number: int, _frame: object) -> None:
        # Once: a second signal must not break off what the first one begins. Python loses an exception that a handler raises in
        # an import or a destructor, so `check` raises it again.
        if not (self._is_ignored or self._is_signalled):
            self._is_signalled = True
            raise _Interrupted


def _end_of_parent() -> Callable[[], bool]:
    """Returns a function that returns whether the process that started this one has ended, or the agent that reads its output:
    a shell between them lives on.
    """
    parent = os.getppid()
    if sys.platform != "win32":
        import select

        readers, gone = select.poll(), select.POLLERR | select.POLLHUP
        for output in (1, 2):
            readers.register(output, 0)
        return lambda: os.getppid() != parent or any(found & gone for _, found in readers.poll(0))
    import ctypes  # the parent's id stays the same there, even after its end

    kernel = ctypes.windll.kernel32
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(kernel.OpenProcess(0x00100000, 0, parent))  # SYNCHRONIZE
    return lambda: bool(handle) and kernel.WaitForSingleObject(handle, 0) == 0


def _withdraw_waiting(client: Client, event: _Json, options: Any) -> None:
    """Withdraws questions whose tool ran, whose MCP server got its answer, or whose session ended."""
    mine = _ToolCall.of(event) if event["hook_event_name"] in _AFTERWARDS else None
    for state in _questions(client, _session(event["session_id"]), "waiting"):
        key = state.get("key") or ""
        call = _ToolCall.in_key(key)
        is_deferred = call is not None and _mark(event, call.use).exists()
        if mine:
            is_mine = mine.may_be(call) and state["agent"] == _asker(event, options.agent)
        else:
            is_ours = state["agent"].rpartition(_FOR)[2] == options.agent and key.startswith("hook-")
            is_mine = is_ours and not is_deferred
        if is_mine:
            words = _AT_THE_TERMINAL if mine else "the session ended"
            client.call(Call("DELETE", f"/questions/{state['id']}", query={"comment": words}))


def _questions(client: Client, session: str, status: str) -> list[_Json]:
    """Returns the session's questions with this status, newest first. Waits a moment for a bot that is starting.

    Raises:
        _NoDecision: the bot is away, or refuses the request.
    """
    found: list[_Json] = []
    asked = {"session": session, "status": status}
    while True:
        reply = _patiently(client, Call("GET", "/questions", query=asked, patience=_AWAY))
        if reply.status >= 400:
            raise _NoDecision(f"no decision: {reply.refusal()}")
        page = reply.json
        if not isinstance(page, dict) or not isinstance(page.get("questions"), list):
            raise _no_bot(reply, client)
        found += page["questions"]
        if (following := page.get("next")) is None:
            return found
        asked["after"] = following


def _now(client: Client, listed: _Json, *, once: bool = False) -> _Json | None:
    """Returns a question's present state; None if it is gone, or, with `once`, if its answer was handed out before."""
    query = _ONCE if once else {}
    reply = _patiently(client, Call("GET", f"/questions/{listed['id']}", query=query, patience=_AWAY))
    state = reply.json if reply.status == 200 else None
    return state if isinstance(state, dict) and state.get("id") == listed["id"] else None


def _patiently(client: Client, call: Call) -> Reply:
    ends = time.monotonic() + _AWAY
    while True:
        try:
            return client.call(call)
        except OSError as error:
            if time.monotonic() > ends:
                raise _NotYet(f"no decision: {_why(error, client)}") from None
        client.pause(0.2)


def _digest(*said: Any) -> str:
    import hashlib

    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return _letters(hashlib.sha256(text.encode()).digest()[:16])


def _letters(data: bytes) -> str:
    """Encodes bytes as letters only, so that `redact` patterns for card numbers do not match."""
    return data.hex().translate(str.maketrans("0123456789", "ghijklmnop"))


def _session(session: str) -> str:
    import hashlib

    return session if len(session) <= 200 else hashlib.sha256(session.encode()).hexdigest()


# --- clarify.py mcp: the MCP tools on standard input and output

VERSION = "0.3.0"
ASKING = ("ask_human", "ask_approval")
DEFAULT_WAIT = 45
INSTRUCTIONS = """Ask people in Slack when you need a decision, a fact that only a person knows, or an approval. \
Answers can take minutes or hours. If a call returns status "waiting", the question was asked: call \
wait_for_answer with its id. Do not ask again. If a call goes on in the background as a task, its result comes later, as \
a notification, and counts like the result of any call: an answer in it is from a person in Slack. Only status \
"answered" is an answer. Silence is not approval."""
# JSON, in which a line break is a space. "shared" are arguments of several tools.
_TOOLS = r"""
{
"shared": {
  "id": {"type": "string", "examples": ["CLR-100001-001"], "description": "The id returned by ask_human or
    ask_approval."},
  "context": {"type": "string", "description": "Background for a person who has not seen your work: what you
    are doing, what you found, and what depends on the answer. Up to 64 K characters. Shown separately from
    the question."},
  "to": {"type": "string", "description": "The only person who may answer: an email address or a Slack user
    ID. Omit it unless you were told whom to ask."},
  "timeout": {"type": "number", "minimum": 1, "maximum": 2592000, "default": 3600, "description": "Seconds
    until the question expires."},
  "agent": {"type": "string", "description": "Your name. Omit it unless you were given one."},
  "session": {"type": "string", "description": "A session ID. Questions in one session share a Slack thread.
    Omit it unless you were given one."},
  "escalate": {"type": "boolean", "default": true, "description": "Page the person on call if no one
    answers."},
  "key": {"type": "string", "maxLength": 200, "description": "An idempotency key: the same key never asks
    twice."},
  "issue": {"type": "integer", "minimum": 1, "description": "The number of the issue this question belongs
    to."},
  "topic": {"type": "string", "maxLength": 200, "description": "The topic, in a few words."},
  "wait": {"type": "integer", "minimum": 0, "maximum": 55, "default": 45, "description": "How many seconds
    this call waits for the answer. The question stays open after that."}},
"output": {"type": "object", "description": "The state of the question.", "required": ["say", "id", "status",
  "answer"], "properties": {
  "say": {"type": "string", "description": "What this means for you, in one line. Heed it."},
  "id": {"type": "string", "description": "Pass it to wait_for_answer or withdraw_question."},
  "kind": {"type": "string", "description": "The kind of answer asked for."},
  "status": {"type": "string", "enum": ["waiting", "answered", "expired", "withdrawn", "closed"],
    "description": "waiting: no answer yet. answered: see `answer`. expired: no answer in time, see `default`.
    withdrawn: you withdrew it. closed: a person closed it without an answer, see `comment`."},
  "answer": {"description": "The answer, or null. yes_no: true or false. choice: a value, or a list of values.
    number. text. form: an object. approval: {\"decision\": \"accept\" or \"reject\", \"arguments\": …}; use
    exactly these arguments."},
  "label": {"type": ["string", "null"], "description": "The answer as people read it."},
  "other": {"type": ["string", "null"], "description": "What the person wrote instead of, or besides, a
    choice."},
  "comment": {"type": ["string", "null"], "description": "Why it was rejected or closed."},
  "decided_by": {"type": ["string", "null"], "description": "Who decided."},
  "default": {"description": "What to assume if the question expired."},
  "expires_at": {"type": ["string", "null"], "description": "When the question expires, RFC 3339."},
  "link": {"type": ["string", "null"], "description": "Link to the question in Slack."}}},
"annotations": {"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true,
  "openWorldHint": true},
"tools": [
{"name": "ask_human", "title": "Ask a person", "description": "Ask a person in Slack and wait for the answer.
  Use it when you need a decision or a fact that you could only guess: ambiguous requirements, or a choice
  with lasting consequences. Do not use it for what you can look up or try yourself. For permission to act,
  use ask_approval. Gather what the person needs to decide, then ask one question, with choices if you know
  them. Returns the answer. If no one answers within `wait` seconds, returns status `waiting` and an id: call
  wait_for_answer with it. Do not ask again in other words.",
  "inputSchema": {"type": "object", "required": ["question"], "properties": {
    "question": {"type": "string", "minLength": 1, "maxLength": 16384, "description": "The question. People do
      not see your conversation, so include every fact they need. Ask for one decision per question."},
    "choices": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object", "properties":
      {"value": {"type": "string", "description": "The value you get back."}, "label": {"type": "string",
      "description": "The button text, a few words."}, "description": {"type": "string", "description": "What
      this choice means."}}, "required": ["value"]}]}, "minItems": 1, "maxItems": 100, "description": "The
      possible answers, if you know them. People answer with one click. 2 to 5 work best."},
    "multiple": {"type": "boolean", "default": false, "description": "People can pick several choices."},
    "other": {"type": "boolean", "default": false, "description": "People can also write their own answer."},
    "kind": {"type": "string", "enum": ["yes_no", "choice", "number", "text", "form"], "description": "The
      kind of answer. Default: choice if `choices` is set, form if `schema` is set, otherwise text."},
    "schema": {"type": "object", "description": "A form, for several facts at once: a flat JSON Schema object
      of up to 40 fields. Allowed: strings (format email, uri, uuid, date, time or date-time), numbers,
      booleans, enums and arrays of enums, strings or numbers, with title, description and default. The
      answer is an object that matches the schema. The schema of a single such value works, too; then the
      answer is that value. People answer one question with choices faster."},
    "default": {"description": "The answer you will assume if no one answers. Must be a valid answer. People
      see it. Omit it if you cannot continue without an answer."}}}},
{"name": "ask_approval", "title": "Ask for approval", "description": "Ask a person in Slack to approve an
  action before you take it. Use it for actions that are destructive, costly, visible to others or hard to
  undo, and whenever you were told to. Go ahead only if the decision is `accept`, and only with the arguments
  in the answer. If it was rejected, expired or closed, do not take the action, and do not do the same by
  other means; the comment says why. If no one decides within `wait` seconds, returns status `waiting` and an
  id: call wait_for_answer. Calling ask_approval again asks again.", "annotations": {"idempotentHint": false},
  "inputSchema": {"type": "object", "required": ["action"], "properties": {
    "action": {"type": "string", "minLength": 1, "maxLength": 16384, "description": "What you are about to do.
      Be exact: what, where, to whom, how many."},
    "consequence": {"type": "string", "description": "What happens as a result, and who is affected."},
    "risk": {"type": "string", "enum": ["low", "medium", "high"], "default": "medium", "description": "How
      much damage a mistake would do."},
    "irreversible": {"type": "boolean", "default": false, "description": "Set to true if it cannot be undone.
      Then `risk` must be medium or high."},
    "arguments": {"type": "object", "description": "The exact arguments of the action, such as the command,
      the statement or the recipients. People see all of them and approve exactly these."},
    "arguments_schema": {"type": "object", "description": "The JSON Schema of the arguments, such as a tool's
      input schema. People get menus for its choices, and what they edit must fit it."},
    "editable": {"type": "boolean", "default": false, "description": "People can edit the arguments before
      they approve. You get the approved arguments back."},
    "approvals": {"type": "integer", "minimum": 1, "maximum": 5, "description": "How many different people
      must approve. Omit it unless you were told a number."},
    "requested_by": {"type": "string", "description": "The person you work for, if you know: an email address
      or a Slack user ID. Someone else may have to approve."},
    "question": {"type": "string", "description": "Anything else the approver should know."}}}},
{"name": "wait_for_answer", "title": "Wait for an answer", "description": "Keep waiting for the answer to a
  question you already asked. Returns as soon as a person decides, or with status `waiting` after `wait`
  seconds. Then call it again, as often as needed, or first do other work that does not depend on the
  answer.", "annotations": {"readOnlyHint": true},
  "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": {}, "wait": {}}}},
{"name": "withdraw_question", "title": "Withdraw a question", "description": "Withdraw a question you no
  longer need answered, so that people do not spend time on it. If someone has already answered, returns that
  answer.", "inputSchema": {"type": "object", "required": ["id"], "properties": {"id": {}}}}]}
"""
_PROTOCOL = "2026-07-28"  # between us and the bot, whatever the client's
_HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")  # begin with `initialize`
_META = "io.modelcontextprotocol/"
_SERVER = {"name": "clarify", "title": "clarify-bot", "version": VERSION}
_BOT_AWAY = 10.0  # seconds to wait for a bot that is away; clients kill calls after 60 or more
_LONGEST_LINE = 4 * 1024 * 1024  # bytes; the bot takes less
_REPEAT = " The question may have been asked. Repeat the same call: it joins an open question."


def mcp_tools() -> list[_Json]:
    """Returns the MCP tools as clients list them."""
    given = json.loads(" ".join(_TOOLS.split()))
    found: list[_Json] = given["tools"]
    for tool in found:
        asks, own = tool["name"] in ASKING, tool["inputSchema"]["properties"]
        own |= {
            name: each for name, each in given["shared"].items() if name in own or (asks and name != "id")
        }
        tool["annotations"] = given["annotations"] | tool.get("annotations", {})
        tool["outputSchema"] = given["output"]
    return found


def _mcp(argv: Sequence[str]) -> int:
    """Serves the MCP tools on standard input and output. Ends the process when the input ends."""
    parser = mcp_parser()
    try:
        server = _Server(Client(parser.parse_args(argv).url))
    except ValueError as error:
        parser.error(str(error))
    with suppress(KeyboardInterrupt):
        server.serve()
    os._exit(0)  # calls under way end with the process, which withdraws nothing


def mcp_parser() -> argparse.ArgumentParser:
    """Returns the parser of `clarify mcp`."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="clarify mcp",
        description="Serves MCP tools to ask people in Slack, on standard input and output. CLARIFY_TOKEN is the token of the "
        "agent's [[producers]] table.",
    )
    parser.add_argument("--url", help=f"the bot's address (default: CLARIFY_URL, or {DEFAULT_URL})")
    return parser


class _Stdio:
    """Reads JSON-RPC messages from standard input, and writes to standard output."""

    read: Callable[[bytes], Any]

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.buffer, sys.stdout.buffer
        sys.stdout = sys.stderr  # nothing but messages goes to the client

    def serve(self) -> None:
        """Serves until the input ends. Throws away a line that is too long for a message."""
        while line := self._in.readline(_LONGEST_LINE):
            is_whole = len(line) < _LONGEST_LINE or line.endswith(b"\n")
            while not is_whole and (rest := self._in.readline(_LONGEST_LINE)):
                is_whole, line = rest.endswith(b"\n"), b"too long"
            try:
                message = self.read(line) if line.strip() else {"result": None}
            except (ValueError, RecursionError):
                self.send({"id": self._id_in(line)} | _error(-32700, "Parse error"))
            else:
                self._take(message if isinstance(message, dict) else {})

    def _id_in(self, _line: bytes) -> int | str | None:
        """Returns the id of a request that cannot be read; None: it has none."""
        return None

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends the client a message, which no other thread's can interrupt."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, line: bytes) -> None:
        try:
            self._out.write(line)
            self._out.flush()
        except OSError:  # the client is gone
            os._exit(0)

    def _take(self, message: _Json) -> None:
        raise NotImplementedError


class _Server(_Stdio):
    """Answers what it can alone, so that it lives while the bot is away, and forwards the rest."""

    read = staticmethod(lambda line: json.loads(line, object_pairs_hook=named_once))

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.session = f"mcp-{os.urandom(6).hex()}"
        self.info: Any = None  # the client's, from `initialize`
        self.calls: dict[int | str, _Forwarded] = {}  # by their request's id
        self.tasks: dict[str, _Json] = {}  # those that are working, as last seen
        self.asked: dict[str, _Json] = {}  # what its questions asked, by their ids

    def note(self, result: _Json) -> None:
        """Notes a task that is working, from a response to a tool call or to `tasks/get`."""
        if isinstance(task := result.get("taskId"), str):
            self.tasks.pop(task, None)
            if result.get("status") == "working":
                self.tasks[task] = result | {"resultType": "complete"}

    def _take(self, message: _Json) -> None:
        """Answers a message, or starts the thread that does."""
        import threading

        key: Any = message.get("id")
        method, params = message.get("method"), message.get("params") or {}
        is_sound = message.get("jsonrpc") == "2.0" and isinstance(method, str) and isinstance(params, dict)
        is_new = type(key) in {int, str} and key not in self.calls
        if is_sound and is_new:
            call = _Forwarded(self, key, str(method), params)
            if (body := self._answer(call)) is not None:
                call.respond(body)
            else:
                self.calls[key] = call
                threading.Thread(target=call.run, daemon=True).start()
        elif is_sound and "id" not in message:
            for other, call in list(self.calls.items()) if method == "notifications/cancelled" else ():
                if other == params.get("requestId"):
                    call.cancel()
        elif not message.keys() & {"result", "error"}:  # those are responses, to nothing
            self.send({"id": key if is_new else None} | _error(-32600, "Invalid request"))

    def _answer(self, call: _Forwarded) -> _Json | None:
        """Returns the response to a request that needs no bot; None: forward it."""
        about: _Json = {"capabilities": {"tools": {"listChanged": False}}, "instructions": INSTRUCTIONS}
        version, cached = call.meta[f"{_META}protocolVersion"], {"ttlMs": 0, "cacheScope": "private"}
        body: _Json | None = None
        match call.method, call.is_modern:
            case _ if version != _PROTOCOL:
                data = {"supported": [_PROTOCOL], "requested": str(version)}
                body = _error(-32022, "Unsupported protocol version", data)
            case _ if not isinstance(call.meta.get(f"{_META}clientCapabilities"), dict):
                body = _error(-32602, f"`_meta` must have an object `{_META}clientCapabilities`")
            case "initialize", _:
                self.info, asked = call.params.get("clientInfo"), call.params.get("protocolVersion")
                about["protocolVersion"] = asked if asked in _HANDSHAKES else _HANDSHAKES[-1]
                body = {"result": about | {"serverInfo": _SERVER}}
            case "ping", False:
                body = {"result": {}}
            case "server/discover", True:
                about["capabilities"]["extensions"] = {f"{_META}tasks": {}}
                body = _result(about | cached | {"supportedVersions": [_PROTOCOL]})
            case "tools/list", _:
                body = _result({"tools": mcp_tools()} | cached)
            case ("tools/call", _) | (
                "tasks/get" | "tasks/cancel" | "tasks/update" | "subscriptions/listen",
                True,
            ):
                pass
            case method, _:
                body = _error(-32601, "Method not found", method)
        return body


class _Forwarded:
    """A request, which the bot answers in a thread of its own."""

    def __init__(self, server: _Server, key: int | str, method: str, params: _Json) -> None:
        self._server = server
        self._key = key
        self.method = method
        self.meta: _Json = dict(params["_meta"]) if isinstance(params.get("_meta"), dict) else {}
        self.is_modern = f"{_META}protocolVersion" in self.meta
        if not self.is_modern:
            self.meta |= {f"{_META}protocolVersion": _PROTOCOL, f"{_META}clientCapabilities": {}}
        self.params = params | {"_meta": self.meta}
        self._connection: socket.socket | None = None
        self._is_cancelled = False
        self._waiting: list[str] | None = None  # of a listener: the tasks that may change, once acknowledged

    def cancel(self) -> None:
        """Ends the call. Nothing is withdrawn, and the bot knows that no one takes the answer."""
        self._is_cancelled = True
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(2)

    def respond(self, body: _Json) -> None:
        """Sends the response, without what older protocols do not know."""
        if not self.is_modern and "result" in body:
            newer = {"resultType", "ttlMs", "cacheScope"}
            body = {"result": {name: each for name, each in body["result"].items() if name not in newer}}
        self._server.send({"id": self._key, **body})

    def run(self) -> None:
        """Answers the request with what the bot says."""
        try:
            body = self._carry()
            self._server.note(body.get("result", {}))
        except (Refused, OSError) as error:
            told = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            task = self._server.tasks.get(str(self.params.get("taskId")))
            if self.method == "tasks/get" and task and isinstance(error, OSError):
                # An error would end the task for the client, but the bot comes back.
                body = _result(task | {"statusMessage": f"{error} The question stays open."})
            else:
                body = _result(told) if self.method == "tools/call" else _error(-32603, str(error))
        except Exception as error:  # noqa: BLE001 - the client is told
            body = _error(-32603, f"Internal error: {error!r}")
        del self._server.calls[self._key]
        if not self._is_cancelled:
            self.respond(body)

    def _carry(self) -> _Json:
        """Returns the bot's response. Repeats a request that breaks off, which is idempotent.

        Raises:
            Refused: the bot does. OSError: it is away for too long.
        """
        is_tool = self.method == "tools/call"
        listens = self.method == "subscriptions/listen"
        name = "" if listens else self.params.get("name" if is_tool else "taskId")
        if not isinstance(name, str) or not (name.isascii() and name.isprintable()) or len(name) > 512:
            return _error(-32602, "Invalid request parameters")
        headers = {"Mcp-Method": self.method, "Mcp-Name": name, "Clarify-Call": os.urandom(16).hex()}
        arguments = self._filled_in(name) if is_tool else {}
        began = away_since = time.monotonic()
        pause = _PAUSES[0]
        while True:
            tried = time.monotonic()
            try:
                for event in self._events(headers):
                    if (body := self._take(event, time.monotonic() - began)) is not None:
                        return body
                raise ConnectionError("the response ended early")
            except OSError as error:
                why = _why(error, self._server.client)
            now = time.monotonic()
            if now - tried > _BOT_AWAY:
                away_since, pause = now, _PAUSES[0]
            if self._is_cancelled or (self._waiting is None and now + pause > away_since + _BOT_AWAY):
                raise ConnectionError(why + (_REPEAT if is_tool and name in ASKING else ""))
            time.sleep(pause)
            pause = min(pause * 2, _PAUSES[1])
            if isinstance(arguments.get("wait"), (int, float)):
                arguments["wait"] = max(0, arguments["wait"] - (time.monotonic() - tried))

    def _filled_in(self, tool: str) -> _Json:
        """Returns the call's arguments, with who asks and how long it may wait, where it does not say so."""
        arguments, wait = self.params.get("arguments") or {}, DEFAULT_WAIT
        if not isinstance(arguments, dict):
            return {}  # the bot refuses it
        if tool in ASKING:
            info = self.meta.get(f"{_META}clientInfo") or self._server.info
            name = str(info.get("name") or "").strip()[:256] if isinstance(info, dict) else ""
            ours = {"session": self._server.session} | ({"agent": name} if name else {})
            arguments = ours | {field: each for field, each in arguments.items() if each not in (None, "")}
            known = self.meta[f"{_META}clientCapabilities"].get("extensions")
            if isinstance(known, dict) and f"{_META}tasks" in known:
                wait = 0
        arguments = ({} if tool == "withdraw_question" else {"wait": wait}) | arguments
        self.params["arguments"] = arguments
        return arguments

    def _events(self, headers: _Json) -> Iterator[_Json]:
        """Yields the bot's notifications and its response.

        Raises:
            Refused: its answer is none of MCP's. OSError: it is away.
        """
        if self._waiting is not None:
            self.params["notifications"] = {"taskIds": self._waiting}
        message = {"jsonrpc": "2.0", "id": self._key, "method": self.method, "params": self.params}
        headers |= {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _PROTOCOL}
        call = Call("POST", "/mcp", message, headers=headers, patience=LONGEST_WAIT + PATIENCE)
        for reply in self._server.client.events(call, self._opened):
            if reply.is_passing:
                raise ConnectionError(str(reply.refusal()))
            match reply.json:
                case {"method": str()} | {"result": dict()} | {"error": dict()} as event:
                    yield event
                case _:
                    raise reply.refusal() if reply.status >= 400 else _no_bot(reply, self._server.client)

    def _opened(self, connection: socket.socket) -> None:
        self._connection = connection
        if self._is_cancelled:
            raise ConnectionError("cancelled")

    def _take(self, event: _Json, seconds: float) -> _Json | None:
        """Sends a notification on, and returns a response. A listener gets none while a task may change: it listens again."""
        is_repeated = self._waiting is not None
        match event:
            case {"result": _} | {"error": {"code": -32603}} if (
                self._waiting
            ):  # the bot stops, or cannot tell now
                return None
            case {"result": result}:
                self._check(result)
                return {"result": result}
            case {"error": error}:
                return {"error": error}
            case {"method": "notifications/progress", "params": dict() as progress}:
                progress["progress"] = seconds  # the bot begins again after a restart
            case {"method": _, "params": {"notifications": dict() as acknowledged}}:
                self._waiting = list(acknowledged.get("taskIds", ()))
                if is_repeated:
                    return None
            case {"method": "notifications/tasks", "params": {"taskId": task, "status": status} as told}:
                self._check(told)
                self._waiting = [each for each in self._waiting or () if status == "working" or each != task]
        if not self._is_cancelled:
            self._server.send(event)
        return None

    def _check(self, result: _Json) -> None:
        """Checks that what the bot says is about the question that the call is about.

        Raises:
            Refused: it is about another one, or other arguments were approved than were sent.
        """
        state, task = result.get("result", result).get("structuredContent"), result.get("taskId")
        state = state if isinstance(state, dict) else {}
        said = {str(each).partition(".")[0] for each in (state.get("id"), task) if each is not None}
        sent = self.params.get("arguments")
        sent = sent if isinstance(sent, dict) else {}
        asks = self.method == "tools/call" and self.params.get("name") in ASKING
        about = None if asks else self.params.get("taskId") or sent.get("id")
        if said and isinstance(about, str):
            said.add(about.partition(".")[0])
        if len(said) > 1:
            raise Refused(
                200, "OTHER_QUESTION", "The bot's response is about another question than this one."
            )
        for named in said:
            if asks:
                self._server.asked[named] = _asked_by(str(self.params["name"]), sent)
            if state and (fields := self._server.asked.get(named)) is not None:
                check_state({"asked": {"arguments": _shown(state, fields)}} | state, fields)


def _shown(state: _Json, fields: _Json) -> Any:
    """Returns the arguments that people were shown, which MCP's results do not say: if they could not edit them, those that they
    approved.
    """
    answer = state.get("answer")
    return (
        fields["arguments"] if fields["editable"] or not isinstance(answer, dict) else answer.get("arguments")
    )


def _asked_by(tool: str, sent: _Json) -> _Json:
    """Returns what a call asks, as far as its answer depends on it. Clients send some values as JSON in text."""
    kind, arguments = "approval" if tool == "ask_approval" else _kind(sent), sent.get("arguments") or {}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    is_editable = str(sent.get("editable")).strip().lower() == "true"
    return {"kind": kind, "arguments": arguments, "editable": is_editable}


def _result(result: _Json) -> _Json:
    return {"result": {"resultType": "complete", **result, "_meta": {f"{_META}serverInfo": _SERVER}}}


def _error(code: int, message: str, data: Any = None) -> _Json:
    return {"error": {"code": code, "message": message} | ({} if data is None else {"data": data})}


# --- clarify.py guard: an MCP server, whose calls people in Slack approve where the bot's rules say so

_PASSING = {
    *(
        "initialize",
        "ping",
        "server/discover",
        "subscriptions/listen",
        "logging/setLevel",
        "completion/complete",
    ),
    *(
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ),
    *("resources/subscribe", "resources/unsubscribe"),
    *(
        "tasks/list",
        "tasks/get",
        "tasks/result",
        "tasks/update",
        "tasks/cancel",
        "notifications/tasks/status",
    ),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress"),
    "notifications/roots/list_changed",
}
_CALL = "tools/call"
_OF_CALLS = {"name", "arguments", "_meta", "task", "inputResponses", "requestState"}
_UNSHOWN = {"inputResponses", "requestState"}  # of a call: no card shows them
_OF_META = {  # what a held call keeps of `_meta`: no card shows the rest
    *("progressToken", "traceparent", "tracestate"),
    *(f"{_META}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities", "logLevel")),
}
_KNOWN_FOR = 30.0  # seconds for which the bot's word on a tool counts
_HEARD = 15  # seconds between two signs that a call's client is still there
_GONE = 45.0  # seconds without the bot, after which a call is given up: it takes a client for gone after 60
_CROWDED = 2.0  # seconds until the next look, if the bot lets a call wait no longer
_MOST_PAGES = 100  # of tools
_MOST_TOOLS = 1000  # that the bot judges at once
_SOON = 1.0  # seconds without the bot
_SERVER_PATIENCE = 30.0  # seconds for the server to list its tools, and to end
_NOTES = {
    "ask": "(Calls of this tool may need the approval of a person in Slack, and then take as long as that.)",
    "deny": "(Calls of this tool may be refused.)",
}
_SECRET = {"CLARIFY_TOKEN", "CLAUDE_PLUGIN_OPTION_TOKEN"}  # variables that the server does not get
_WAIT_FOR_CALL = "wait_for_call"
_WAITING = "{0}: a person in Slack has not decided about this call yet. Call {1} with the id {0} to get its result. Do not repeat the call."
_NOT_MADE = "The call was not made."
_IN_DOUBT = (
    "In doubt: the call was sent, but its result was lost. Look whether it took effect before you repeat it."
)


class _NotMade(Exception):
    """A call is not made; the message says why."""


def guard_parser() -> argparse.ArgumentParser:
    """Returns the parser of `clarify guard`, for what stands before `--`."""
    import argparse

    parser = argparse.ArgumentParser(
        "clarify guard",
        usage="clarify guard NAME [--url URL] [--dry-run] -- COMMAND …, or: clarify guard doubts [--url URL]",
        description="Runs an MCP server. Calls that the rules of the bot's [[guard]] table hold wait for people in Slack.",
    )
    of = "of the [[guard]] table in the bot's clarify.toml; doubts: list the calls whose results were lost"
    parser.add_argument("name", metavar="NAME", help=of)
    parser.add_argument("--url", help="the bot's address (default: CLARIFY_URL)")
    dry = "call nothing: print what becomes of the calls of each tool, and by which rule"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    return parser


def _guard(argv: Sequence[str]) -> int:
    """Runs an MCP server behind a guard. Ends the process when the client or the server ends."""
    words, parser = list(argv), guard_parser()
    split = words.index("--") if "--" in words else len(words)
    options, command = parser.parse_args(words[:split]), words[split + 1 :]
    if options.name == "doubts":
        return _print_doubts(Client(options.url))
    if not command:
        parser.error("the server's command is missing: clarify guard NAME -- COMMAND …")
    try:
        relay = _Relay(Client(options.url), options.name, command)
    except (ValueError, OSError) as error:
        parser.error(str(error))

    def end(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    _on_signals(end)
    code = 0
    with suppress(KeyboardInterrupt):
        if options.dry_run:
            code = relay.explain()
        else:
            relay.serve()
    relay.end(code)
    os._exit(code)


def _print_doubts(client: Client) -> int:
    """Prints the caller's calls that are in doubt."""
    import sys

    try:
        reply = client.call(Call("GET", "/guard/doubts"))
    except OSError as error:
        print(_why(error, client), file=sys.stderr)
        return 1
    if reply.status >= 400:
        print(reply.refusal(), file=sys.stderr)
        return 1
    for each in reply.json["doubts"]:
        print(f"{each['id']}\t{each['guard']}\t{_inert(each['tool'])}\t{each['asked_at']}")
    return 0


class _Relay(_Stdio):
    """Passes messages between a client and an MCP server. What the client says is read strictly and written anew, so that the
    server reads it as we do; what the server says passes as it is, but for notes at its tools.
    """

    read = staticmethod(strict_json)

    def __init__(self, client: Client, name: str, command: Sequence[str]) -> None:
        import queue
        import subprocess
        import threading

        super().__init__()
        self.bot = client
        self.path = f"/guard/{name}"
        self.session = f"guard-{os.urandom(6).hex()}"
        self.agent: str | None = None
        self.calls: dict[int | str, _Guarded] = {}  # those that are held, or were, by their request's id
        self.parked: dict[str, _Guarded] = {}  # those whose client was told to wait, by their id at the bot
        self.wait = 0.0  # seconds until it is
        self.tools: dict[str, _Json] = {}  # as the server defines them
        self.lock = threading.Lock()  # over the lists of tools
        self._judged: dict[str, dict[str, str]] = {}  # by tool: the verdict on its calls, and the rule
        self._judged_at = -math.inf
        self._is_changed = False  # whether the server says that its tools are
        self._code: int | None = None  # with which the process ends; None: the server's
        self._meta: _Json = {}  # what newer protocols want in each request
        self._listing: set[int | str] = set()
        self.awaited: set[int | str] = set()  # the ids of requests that were passed on, and not answered yet
        self._own: dict[str, tuple[threading.Event, list[_Json]]] = {}  # our requests, and their responses
        environ = {key: value for key, value in os.environ.items() if key not in _SECRET}
        self._process = subprocess.Popen(  # noqa: S603 - it is what the user wants to run
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # for the server; None: no more
        self._reading = threading.Thread(target=self._read_server, daemon=True)
        self._reading.start()
        threading.Thread(target=self._write_server, daemon=True).start()

    def end(self, code: int) -> None:
        """Ends the server, and the process with a code. Calls that were not sent are withdrawn; the results of others are awaited
        for a moment.
        """
        import signal

        _on_signals(signal.SIG_IGN)
        self._code = code
        calls = [*self.calls.values(), *self.parked.values()]
        for call in calls:
            call.cancel()
        ends = time.monotonic() + _FAREWELL
        for call in calls:
            call.until_written(ends)
        self._lines.put(None)
        for call in calls:
            call.thread.join(max(0.0, ends - time.monotonic()))
        try:
            self._process.wait(max(0.1, ends - time.monotonic()))
        except Exception:  # noqa: BLE001 - it still runs
            self._process.terminate()
        self._reading.join(_FAREWELL)

    def write(self, line: bytes) -> None:
        with suppress(OSError):  # the client is gone, as the end of the input will show
            self._out.write(line)
            self._out.flush()

    def to_server(self, message: _Json) -> None:
        """Does not wait for the server to read it, which could delay a cancellation. Without a server, the process ends."""
        self._lines.put(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def _write_server(self) -> None:
        stdin: Any = self._process.stdin
        try:
            with stdin:
                while (line := self._lines.get()) is not None:
                    stdin.write(line)
                    stdin.flush()
        except OSError:  # it reads no more
            self._process.terminate()

    def _id_in(self, line: bytes) -> int | str | None:
        # Programs may read it differently, but a client that sent it waits for an answer.
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
            if (
                isinstance(found, dict)
                and type(key := found.get("id")) in {int, str}
                and key not in self.calls
            ):
                return key
        return None

    def _take(self, message: _Json) -> None:
        """Passes a message of the client on, or answers it."""
        key, method, params = message.get("id"), message.get("method"), message.get("params", {})
        has_id = "id" in message
        is_response = has_id and method is None and len(message.keys() & {"result", "error"}) == 1
        known = {"jsonrpc", "id"} | ({"result", "error"} if is_response else {"method", "params"})
        is_sound = message.get("jsonrpc") == "2.0" and not message.keys() - known
        is_named = type(key) in {int, str} and not str(key).startswith("clarify:")
        if not is_sound or (has_id and not is_named) or not (is_response or isinstance(method, str)):
            self.send({"id": key if is_named else None} | _error(-32600, "Invalid request"))
            return
        if is_response:
            self.forward(message)
        elif (refusal := self._refusal(str(method), key, params)) is not None:
            if has_id:
                self.send({"id": key} | refusal)
        elif method == _CALL:
            self._call(message["id"], params)
        elif method != "notifications/cancelled" or self._is_theirs(message):
            self.forward(message)

    def _is_theirs(self, message: _Json) -> bool:
        """Cancels a call, and returns whether the server has to hear of it."""
        cancelled = message.get("params", {}).get("requestId")
        return all(call.cancel(message) for key, call in list(self.calls.items()) if key == cancelled)

    def _refusal(self, method: str, key: Any, params: Any) -> _Json | None:
        """Returns the error of a request that does not pass. Notes what later ones depend on."""
        is_taken = isinstance(key, (int, str)) and (key in self.calls or key in self.awaited)
        if not isinstance(params, dict) or is_taken:
            return _error(-32600, "Invalid request")
        if method not in _PASSING | {_CALL}:
            is_alike = _spelling(method) in map(_spelling, _PASSING | {_CALL})
            if is_alike or not self._passes_unknown():
                return _error(-32601, "Method not found", method)
        if method == _CALL and (why := _trouble_in(key, params)) is not None:
            return _error(-32602, why)
        if method == "tools/list" and key is not None:
            self._listing.add(key)
        meta, info = params.get("_meta"), params.get("clientInfo")
        if isinstance(meta, dict) and f"{_META}protocolVersion" in meta:
            self._meta = {name: each for name, each in _shown_in(meta).items() if name != "progressToken"}
            info = meta.get(f"{_META}clientInfo", info)
        if isinstance(info, dict) and str(info.get("name") or "").strip():
            self.agent = str(info["name"]).strip()[:256]
        return None

    def _passes_unknown(self) -> bool:
        with suppress(_NotMade):
            # All that the client says waits for this.
            return bool(self.ask(Call("GET", self.path), away=_SOON).get("other") == "allow")
        return False

    def forward(self, message: _Json) -> None:
        if "id" in message and "method" in message:
            self.awaited.add(message["id"])
        self.to_server(message)

    def _call(self, key: int | str, params: _Json) -> None:
        import threading

        name = params["name"]
        if name == _WAIT_FOR_CALL:
            threading.Thread(target=self._wait_for, args=(key, params), daemon=True).start()
            return
        is_known = time.monotonic() - self._judged_at < _KNOWN_FOR
        if is_known and not self._is_changed and self._verdict(name) == "allow":
            self.forward({"id": key, "method": _CALL, "params": params})
        else:
            self.calls[key] = call = _Guarded(self, key, params)
            call.thread.start()

    def _wait_for(self, key: int | str, params: _Json) -> None:
        """Answers a call of the guard's own tool with the result of an earlier call, once that is there."""
        named = str((params.get("arguments") or {}).get("id"))
        if (call := self.parked.get(named)) is None:
            body = _told(f"No call with the id {named[:64]!r} waits here.", params)
        elif call.ended.wait(self.wait):
            body = call.body
        else:
            body = _told(_WAITING.format(named, _WAIT_FOR_CALL), params, is_error=False)
        self.send({"id": key} | body)

    def verdict(self, name: str) -> tuple[str, _Json]:
        """Returns what becomes of a tool's calls, and its definition: "allow", or else the bot must be asked about each call.

        Raises:
            _NotMade: the server has no such tool, or it or the bot is away.
        """
        with self.lock:
            tool = self._defined(name)
            if time.monotonic() - self._judged_at > _KNOWN_FOR:
                self._judge()
            return self._verdict(name), tool

    def is_as_shown(self, shown: _Json) -> bool:
        """Returns whether the server still defines a tool as people were shown. Raises _NotMade."""
        with self.lock:
            tool = self._defined(shown["name"])
        parts = ("description", "inputSchema", "annotations")
        return all(is_same(tool.get(each), shown.get(each)) for each in parts)

    def _defined(self, name: str) -> _Json:
        """Returns a tool's definition, and has all of them judged again if they changed. Raises _NotMade."""
        if self._is_changed or name not in self.tools:
            self.tools, self._judged_at, self._is_changed = {}, -math.inf, False
            self.tools = self._listed()
        if name not in self.tools:
            raise _NotMade(f"The server lists no tool {name!r}.")
        return self.tools[name]

    def _judge(self, away: float | None = None) -> None:
        """Asks the bot what becomes of the tools' calls. Raises _NotMade, after `away` seconds without it."""
        tools, judged = list(self.tools.values()), dict[str, dict[str, str]]()
        for start in range(0, max(1, len(tools)), _MOST_TOOLS):
            some = {"tools": tools[start : start + _MOST_TOOLS]}
            said = self.ask(Call("POST", f"{self.path}/tools", some), away=away)
            judged |= said["tools"]
            self.wait = said["wait"]
        self._judged, self._judged_at = judged, time.monotonic()

    def _verdict(self, name: str) -> str:
        return self._judged.get(name, {}).get("verdict", "ask")

    def explain(self) -> int:
        """Prints what becomes of the calls of each tool. Returns the exit code."""
        import sys

        try:
            about = {"protocolVersion": _HANDSHAKES[-1], "capabilities": {}, "clientInfo": _SERVER}
            self._request("initialize", about)
            self.to_server({"method": "notifications/initialized"})
            self.tools = self._listed()
            self._judge()
        except _NotMade as error:
            print(error, file=sys.stderr)
            return 1
        for name in self.tools:
            said = self._judged.get(name, {"verdict": "deny", "rule": "its definition cannot be read"})
            self.write(f"{said['verdict']}\t{_inert(name)}\t{said['rule']}\n".encode())
        return 0

    def _listed(self) -> dict[str, _Json]:
        """Returns the tools that the server lists. Raises _NotMade."""
        found: dict[str, _Json] = {}
        cursor: Any = None
        for _ in range(_MOST_PAGES):
            params = ({"_meta": self._meta} if self._meta else {}) | ({"cursor": cursor} if cursor else {})
            result = self._request("tools/list", params)
            found = _tools_in(result) | found
            if not (cursor := result.get("nextCursor")):
                return found
        raise _NotMade("The server lists too many tools.")

    def _request(self, method: str, params: _Json) -> _Json:
        """Returns the server's result of a request of our own. Raises _NotMade."""
        import threading

        key = f"clarify:{os.urandom(6).hex()}"
        came, said = threading.Event(), list[_Json]()
        self._own[key] = came, said
        self.to_server({"id": key, "method": method, "params": params})
        if not came.wait(_SERVER_PATIENCE) or not said or not isinstance(said[0].get("result"), dict):
            raise _NotMade(f"The server does not answer {method}.")
        result: _Json = said[0]["result"]
        return result

    def ask(self, call: Call, ends: Callable[[], object] = lambda: None, away: float | None = None) -> _Json:
        """Returns the bot's response. Repeats the request, which must be idempotent, while the bot is away. `ends` may raise, to end
        that.

        Raises:
            _NotMade: the bot refuses it, or is away for too long.
        """
        import copy

        client = copy.copy(self.bot)
        client.tick = ends
        pause, gives_up = _PAUSES[0], time.monotonic() + (_GONE if away is None else away)
        while True:
            try:
                reply = client.call(call)
                if not reply.is_passing:
                    break
                why = str(reply.refusal())
            except OSError as error:
                why = _why(error, self.bot)
            except Refused as error:  # it is too large
                raise _NotMade(str(error)) from None
            if time.monotonic() + pause > gives_up:
                raise _NotMade(why)
            client.pause(pause)
            pause = min(pause * 2, _PAUSES[1])
        if reply.status >= 400:
            raise _NotMade(str(reply.refusal()))
        if not isinstance(reply.json, dict):
            raise _NotMade(str(_no_bot(reply, self.bot)))
        return reply.json

    def _read_server(self) -> None:
        """Passes on what the server says, until it ends; then ends the process."""
        for line in self._process.stdout or ():
            try:
                content, message = _in_one_way(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict):
                self._take_from_server(content + b"\n", message)
        for call in list(self.calls.values()):
            call.cancel()
            call.finish(None)
        for call in list(self.calls.values()):
            call.thread.join(_FAREWELL)
        for came, _ in list(self._own.values()):
            came.set()
        code = self._process.wait()
        os._exit(code if self._code is None else self._code)

    def _take_from_server(self, line: bytes, message: _Json) -> None:
        """Takes a message of the server. Drops answers to what it was not asked: clients differ in how they compare ids, so one could
        take them for the answer to a call that is held.
        """
        key: Any = message.get("id")
        is_response = len(message.keys() & {"result", "error"}) == 1
        known = {"jsonrpc", "id"} | ({"result", "error"} if is_response else {"method", "params"})
        if type(key) is float and key.is_integer():
            key = int(key)  # in some languages all numbers are
        if message.keys() - known or not (is_response or isinstance(message.get("method"), str)):
            return
        if not is_response:
            self._is_changed |= message["method"] == "notifications/tools/list_changed"
            self.write(line)
        elif key is None and "error" in message:  # about what it could not read
            self.write(line)
        elif type(key) not in {int, str}:
            return
        elif (own := self._own.pop(str(key), None)) is not None:
            own[1].append(message)
            own[0].set()
        elif (call := self.calls.get(key)) is not None:
            call.finish(message)
        elif key in self.awaited:
            self.awaited.discard(key)
            is_list = key in self._listing and isinstance(message.get("result"), dict)
            self._listing.discard(key)
            if is_list:
                self._annotate(message)
            else:
                self.write(line)

    def _annotate(self, message: _Json) -> None:
        """Passes on a list of tools, with a note at those whose calls may not pass. The model gets these definitions, so they count
        from now on.
        """
        import threading

        def work() -> None:
            tools = _tools_in(message["result"])
            with self.lock, suppress(_NotMade):
                self._judged_at = -math.inf
                self.tools |= {name: dict(each) for name, each in tools.items()}
                self._judge(_BOT_AWAY)
            for name, each in tools.items():
                if note := _NOTES.get(self._verdict(name)):
                    each["description"] = f"{each.get('description') or ''}\n\n{note}".strip()
                    each.pop("outputSchema", None)  # the guard's own results do not fit it
            shown = [each for name, each in tools.items() if name != _WAIT_FOR_CALL]
            own = [] if "nextCursor" in message["result"] else [_wait_for_call()]
            self.send(message | {"result": message["result"] | {"tools": shown + own}})

        threading.Thread(
            target=work, daemon=True
        ).start()  # the server's other messages do not wait for the bot


class _Guarded:
    """A call that may be held. Its thread asks the bot, and forwards it at most once."""

    def __init__(self, relay: _Relay, key: int | str, params: _Json) -> None:
        import threading

        self._relay, self._key, self._params = relay, key, params
        self._state: Literal["held", "sending", "sent"] = "held"
        self._lock = threading.Lock()
        self._is_cancelled = threading.Event()
        self._cancelled_late: _Json | None = None
        self._is_settled = threading.Event()  # whether the call is written for the server, or never will be
        self._came = threading.Event()
        self._response: _Json | None = None
        self._path = ""  # at the bot, once the call is held there
        self._sender = os.urandom(16).hex()
        self._is_parked = False
        self.body: _Json = {}  # the response, once it `ended`
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def cancel(self, message: _Json | None = None) -> bool:
        """Cancels a call that is not sent. Returns True if the server has to hear of it."""
        with self._lock:
            if self._state == "held":
                self._is_cancelled.set()
            elif self._state == "sending":
                self._cancelled_late = message
            return self._state == "sent"

    def until_written(self, ends: float) -> None:
        """Waits for a call that the bot may have marked as sent, at the latest until `ends`."""
        with self._lock:
            is_sending = self._state == "sending"
        if is_sending:
            self._is_settled.wait(max(0.0, ends - time.monotonic()))

    def finish(self, response: _Json | None) -> None:
        """Takes the server's response; None: it has ended. A server that answers what it was not sent is not believed."""
        if response is None or self._state != "held":
            self._response = response
            self._came.set()

    def _run(self) -> None:
        try:
            self._carry()
        except _NotMade as error:
            if self._path and self._state == "held":
                with suppress(_NotMade):
                    self._relay.ask(Call("DELETE", self._path))
            self._respond(f"{str(error).removesuffix(_NOT_MADE).strip()} {_NOT_MADE}")
        except Exception as error:  # noqa: BLE001 - the client is told
            self._respond(f"Internal error: {error!r}" if self._state == "held" else _IN_DOUBT)
        finally:
            self._is_settled.set()
            if self._relay.calls.get(self._key) is self:  # not the next call with the same id
                self._relay.calls.pop(self._key)

    def _respond(self, words: str) -> None:
        self._finish(_told(words, self._params))

    def _finish(self, body: _Json) -> None:
        self.body = body
        self.ended.set()
        if not (self._is_parked or self._is_cancelled.is_set()):
            self._relay.send({"id": self._key} | body)

    def _park(self, named: str) -> None:
        """Tells the client to wait with another tool. The server gets the call under an id of the guard's own."""
        relay, waiting = (
            self._relay,
            _told(_WAITING.format(named, _WAIT_FOR_CALL), self._params, is_error=False),
        )
        relay.parked[named] = self
        relay.send({"id": self._key} | waiting)
        relay.calls.pop(self._key)
        self._is_parked = True
        self._key = f"clarify:{os.urandom(6).hex()}"
        relay.calls[self._key] = self
        if meta := self._params.get("_meta"):
            self._params["_meta"] = {name: each for name, each in meta.items() if name != "progressToken"}

    def _carry(self) -> None:
        relay, name = self._relay, self._params["name"]
        verdict, tool = relay.verdict(name)
        if verdict != "allow":
            if self._params.keys() & _UNSHOWN:
                raise _NotMade("This call answers a question of the server, which no person could be shown.")
            about = {"call": self._sender, "tool": tool, "session": relay.session}
            asked = about | {"arguments": self._params.get("arguments", {}), "agent": relay.agent}
            state = relay.ask(Call("POST", f"{relay.path}/calls", asked))
            if state["status"] != "allowed":
                self._params = _as_shown(self._params) | {"arguments": self._accepted(state)}
                if not relay.is_as_shown(tool):
                    raise _NotMade("The tool changed while the call waited.")
                self._send()
                return
        with self._lock:
            self._check()
            self._state = "sent"
        relay.awaited.add(self._key)
        relay.calls.pop(self._key, None)  # it passes as all others do
        relay.forward({"id": self._key, "method": _CALL, "params": self._params})

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise _NotMade("It was cancelled.")

    def _accepted(self, state: _Json) -> _Json:
        """Waits for people, and returns the arguments that they accepted. Raises _NotMade."""
        relay, began = self._relay, time.monotonic()
        if "id" in state:
            self._path = f"{relay.path}/calls/{state['id']}"
        while state["status"] == "held":
            self._check()
            waited = time.monotonic() - began
            wait = _HEARD if self._is_parked else math.ceil(min(_HEARD, max(0.0, relay.wait - waited)))
            look = Call("GET", self._path, query={"wait": wait}, patience=2 * _HEARD)
            asked = time.monotonic()
            state = relay.ask(look, self._check)
            left = asked + wait - time.monotonic()
            if state["status"] == "held" and left > 0:
                self._is_cancelled.wait(min(left, _CROWDED))
            if state["status"] == "held" and not self._is_parked:
                if (waited := time.monotonic() - began) >= relay.wait:
                    self._park(state["id"])
                elif (token := (self._params.get("_meta") or {}).get("progressToken")) is not None:
                    progress = {"progressToken": token, "progress": waited}
                    told = progress | {"message": "Waiting for a person in Slack."}
                    relay.send({"method": "notifications/progress", "params": told})
        if state["status"] != "accepted":
            raise _NotMade(state.get("reason") or "It was refused.")
        arguments: _Json = state["arguments"]
        return arguments

    def _send(self) -> None:
        """Marks the call as sent at the bot, which allows that once, forwards it, and says what came of it."""
        relay = self._relay
        with self._lock:
            self._check()
            self._state = "sending"
        try:
            marked = relay.ask(Call("POST", f"{self._path}/send", {"sender": self._sender}))
        except _NotMade:
            self._state = "held"
            raise
        self._params["arguments"] = marked["arguments"]
        relay.to_server({"id": self._key, "method": _CALL, "params": self._params})
        with self._lock:
            self._state = "sent"
        self._is_settled.set()
        if self._cancelled_late is not None:
            relay.forward(self._cancelled_late)
        while not self._came.wait(_HEARD):
            with suppress(_NotMade):
                relay.ask(Call("GET", self._path))
        done: _Json = {"sender": self._sender}
        if (response := self._response) is None:
            self._respond(_IN_DOUBT)
        else:
            self._finish({name: response[name] for name in ("result", "error") if name in response})
            done |= _outcome_of(response)
        with suppress(_NotMade):
            relay.ask(Call("POST", f"{self._path}/done", done))


def _in_one_way(line: bytes) -> tuple[bytes, Any]:
    """Returns a server's line so that no client reads another message than we do, and the message. Raises ValueError or
    RecursionError if it is none.
    """
    line = line.replace(b"\r", b" ").strip()  # in JSON it is space, but some clients end a message there
    try:
        return line, json.loads(line, object_pairs_hook=named_once)
    except RepeatedName:
        message = json.loads(line)
        return json.dumps(message).encode(), message


def _spelling(name: str) -> str:
    """Returns the letters of a name, in which a lenient server could take it for another one."""
    import unicodedata

    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name).casefold()))


def _inert(name: str) -> str:
    """Returns a server's name for a tool for a terminal, where it could write other lines."""
    return json.dumps(name)[1:-1]


def _tools_in(result: _Json) -> dict[str, _Json]:
    """Returns the tools that a server lists, by name: the first of each name, or people and the model could see different ones."""
    found: dict[str, _Json] = {}
    listed = result.get("tools")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            found.setdefault(each["name"], each)
    return found


def _trouble_in(key: Any, params: _Json) -> str | None:
    """Returns why a call cannot be read in one way only, or has what no card shows."""
    if key is None or params.keys() - _OF_CALLS or type(params.get("name")) is not str:
        return "Invalid parameters of a call"
    for name in ("arguments", "_meta", "task"):
        if not isinstance(params.get(name, {}), dict):
            return f"`{name}` must be an object"
    task = params.get("task", {})
    if task.keys() - {"ttl"} or not isinstance(task.get("ttl", 0), (int, float)):
        return "`task` must have a number `ttl`, and nothing else"
    return None


def _as_shown(params: _Json) -> _Json:
    """Returns the parameters of a call without what its card does not show."""
    return params | ({"_meta": _shown_in(params["_meta"])} if "_meta" in params else {})


def _shown_in(meta: _Json) -> _Json:
    """Returns what MCP and the trace context have in `_meta`."""
    return {
        name: each
        for name, each in meta.items()
        if name in _OF_META and (name.startswith(_META) or isinstance(each, (str, int)))
    }


def _told(words: str, params: _Json, *, is_error: bool = True) -> _Json:
    """Returns the body of a response with a tool's result, in the protocol of a call with these parameters."""
    is_modern = f"{_META}protocolVersion" in (params.get("_meta") or {})
    result = {"content": [{"type": "text", "text": words}], "isError": is_error}
    return {"result": result | ({"resultType": "complete"} if is_modern else {})}


def _wait_for_call() -> _Json:
    """Returns the guard's own tool."""
    about = "Waits for a call that a person has not decided about yet, and returns its result."
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    return {"name": _WAIT_FOR_CALL, "description": about, "inputSchema": schema}


def _outcome_of(response: _Json) -> _Json:
    import hashlib

    result = response.get("result", response.get("error"))
    try:
        content = canonical(result)
    except (ValueError, RecursionError):
        content = json.dumps(result, sort_keys=True)
    is_error = "error" in response or (isinstance(result, dict) and result.get("isError") is True)
    return {"result_sha256": _in_base64url(hashlib.sha256(content.encode()).digest()), "is_error": is_error}


if __name__ == "__main__":
    sys.exit(main())
