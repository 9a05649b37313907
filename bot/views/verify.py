"""The window behind Verify: whether a decision's receipt is genuine, what it says, and how to check it without the bot.

What is shown of the decision comes from the receipt, never from the record: where the two disagree, people see what was signed.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.views import inert
from bot.views.blockkit import (
    VERIFY,
    Alert,
    Button,
    Context,
    Part,
    Section,
    View,
    Words,
    button,
    code,
    sections,
)
from bot.views.codec import VERIFY_CALLBACK, Press
from bot.views.locale import in_words
from bot.views.wording import ShownRound, capital, decided_words
from core.answers import describe
from core.clarification import Clarification
from core.receipts import Checked, Problem
from core.summary import Decided, DecidedBy, Outcome

GOOD = "*Verified.* The signature is good, and the question's record says the same as its receipt."
NOT_VERIFIED = "Not verified."
PROVES = "A receipt proves what Slack told the bot: who clicked."
_WARNING = "Don't rely on what the card says. Tell the people who run clarify-bot."
_PROBLEMS: Mapping[Problem, str] = {
    "missing": "The record has no receipt: the decision is from before receipts were made, or it was forgotten.",
    "removed": "The log has a receipt for this decision, but the record has none: someone removed it.",
    "signature": "The signature is bad: the receipt was changed after it was signed, or something else made it.",
    "key": "The receipt was signed with a key that this bot doesn't know: {kid}. Check it against a copy of the public keys "
    "from the time of the decision.",
    "another": "The receipt in this record belongs to another question or round: {jti}.",
    "record": "The signature is good, but the question's record says something else: it was changed after the decision.",
    "log": "The receipt in the record isn't the one in the log: someone replaced it.",
    "entry": "The log's entry for this decision isn't genuine: it was changed, or something else wrote it.",
}
_BELOW = "Below is what was signed."
_BELOW_LOG = "Below is what the log has."
_ENDS = {"expired": "Expired", "withdrawn": "Withdrawn by the agent"}
_DECISIONS: Mapping[str, Outcome] = {"accept": "approved", "reject": "rejected"}
_CODE = re.compile(r"[\w/-]{1,200}", re.ASCII)  # nothing in it that Slack formats within backticks
_BY_ITSELF = "To check it yourself, run:"


@dataclass(frozen=True, slots=True)
class Proof:
    """What the bot found out about a decision. `place`: the number of its entry in the log, and of the log's last entry;
    None: it is not in the log yet, if `is_place_known`.
    """

    checked: Checked
    place: tuple[int, int] | None = None
    is_place_known: bool = True

    @property
    def place_words(self) -> str:
        if self.place is not None:
            return f"Entry {self.place[0]} of {self.place[1]}"
        return "Not in the log yet" if self.is_place_known else "Unknown, as the database can't be read now"


def verify_button(shown: ShownRound) -> tuple[Button, ...]:
    """Returns the button Verify, if the round has a receipt."""
    if shown.current.receipt is None:
        return ()
    spoken = f"{VERIFY} {shown.record.id}: check who decided it, and the signature"
    return (button(Press("verify", shown.record.id, shown.number), VERIFY, spoken),)


def verify_view(record: Clarification, number: int, proof: Proof, locale: str = "") -> View:
    """Returns the window about the decision of round `number`. `locale`: its reader's."""
    return View(
        tuple(_parts(record, number, proof, locale)),
        VERIFY_CALLBACK,
        Press("verify", record.id, number).pack(),
        title=VERIFY,
    )


def _parts(record: Clarification, number: int, proof: Proof, locale: str) -> Iterator[Part]:
    checked, claims = proof.checked, proof.checked.claims
    if checked.problem is None:
        yield Alert(Words(GOOD, live=True), "success")
    else:
        why = _PROBLEMS[checked.problem].format(kid=_code(checked.kid), jti=_code(claims.get("jti")))
        yield Alert(
            Words(f"*{NOT_VERIFIED}*", live=True), "warning" if checked.problem == "missing" else "error"
        )
        yield Section(Words(why, live=True))
        below = _BELOW_LOG if checked.problem in {"log", "removed"} else _BELOW
        if checked.problem != "missing":
            yield Section(Words(f"{_WARNING} {below}" if claims else _WARNING))
    if claims:
        yield from (
            Section(Words(f"*{name}*\n{text}", live=True))
            for name, text in _rows(proof, claims, locale)
            if text
        )
    if checked.problem != "missing":
        yield from sections(_BY_ITSELF)
        yield code(receipt_command(record.id if number >= record.round else f"{record.id}/{number}"))
    yield Context((Words(PROVES),))


def receipt_command(name: str) -> str:
    """Returns the shell command that prints a receipt and verifies it: of the round `CLR-42-001/1`, or of a question's last."""
    return f"clarify log --jwt {name} | clarify verify -"


def _rows(proof: Proof, claims: Mapping[str, Any], locale: str) -> Iterator[tuple[str, str]]:
    """Yields a name and what the receipt says, as the bot's own mrkdwn."""
    at = claims.get("iat")
    when = f", {inert.date(datetime.fromtimestamp(at, UTC))}" if isinstance(at, int) else ""
    yield "Decision", f"{_outcome(claims)}{when}"
    yield "Question and round", _code(claims.get("jti"))
    yield "Approved arguments, SHA-256", _code(claims.get("arguments_sha256"))
    yield "Signed with the key", _code(proof.checked.kid)
    yield "Place in the log", in_words(proof.place_words, locale)


def _outcome(claims: Mapping[str, Any]) -> str:
    """Returns what came of the round, and who decided."""
    answer, outcome = claims.get("answer"), str(claims.get("outcome"))
    deciders = [DecidedBy(str(each.get("by")), each.get("user")) for each in claims.get("deciders") or ()]
    if outcome != "answered":
        by = f" by {inert.escaped_line(deciders[-1].name, 100)}" if deciders else ""
        return f"{_ENDS.get(outcome, 'Closed without an answer')}{by}"
    is_approval = (claims.get("asked") or {}).get("kind") == "approval"
    decision = answer.get("decision") if is_approval and isinstance(answer, dict) else None
    kind = _DECISIONS.get(str(decision), "answered")
    return capital(
        decided_words(Decided(kind, tuple(deciders if kind == "approved" else deciders[-1:]), _plain(answer)))
    )


def _plain(answer: Any) -> str:
    """Returns an answer as people read it."""
    if isinstance(answer, dict) and answer.keys() == {"sha256", "bytes"}:
        return f"{answer['bytes']} bytes, SHA-256 {answer['sha256']}"
    return describe(answer)


def _code(text: object) -> str:
    """Returns an id or a digest, in a monospaced font; empty if there is none."""
    if not isinstance(text, str) or not text:
        return ""
    return f"`{text}`" if _CODE.fullmatch(text) else inert.escaped_line(text, 200)
