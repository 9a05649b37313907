"""Approval of an action by one or several people: which accepts count, for which version of its arguments.

* An accept counts for the arguments that the person saw. An edit makes a new version: earlier accepts lapse, and the
  editor's accept is the first for the new version. A typed accept names no version, so it counts only if the card shows
  everything and the arguments were never edited.
* Each person counts once, under all of their accounts, and only if they may still answer when the last one accepts: Slack
  is asked at each accept about everyone who accepted before (`Standing`). An accept that no longer counts has lapsed.
* One reject decides, also if its person accepted before.
* Where the route wants a reason, an accept without one does not count. A reject never needs one.
* Under four eyes, the person that the agent works for may only reject, and only people in Slack may accept.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from core.answers import words_in
from core.clarification import (
    Answer,
    Approval,
    Ask,
    Clarification,
    Decider,
    Edit,
    FourEyes,
    Question,
    Refusal,
    Round,
    Standing,
)
from core.errors import (
    AnswerRejected,
    ClarifyError,
    ConsentRefused,
    CountsOnce,
    NoRequester,
    NotSeen,
    NotToldApart,
    OwnRequest,
    ReasonWanted,
)
from core.forms import misfits
from core.schemas import Problem
from core.transitions import ApprovedMeanwhile, ArgumentsChanged, amended, answered, renewed

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
MOST_APPROVALS = 5
MOST_REFUSALS = 50  # of a round that are told apart
OTHERS = "others"
LEAST_REASON = 10  # characters of a reason, of what it says in words
Reason = Literal["never", "high", "always"]
ARGUMENTS_LIMIT = 262_144  # bytes of JSON
_DEEPEST = 20
_DIGEST = 8  # bytes: short enough for a button; it is only compared, under the lock


def version_of(current: Round) -> str:
    """Returns the version of an action's arguments, as buttons carry it. Each edit changes it."""
    content = [len(current.consent.edits or ()), _with_whole_numbers(current.arguments)]
    return hashlib.blake2b(
        json.dumps(content, sort_keys=True, ensure_ascii=True).encode(), digest_size=_DIGEST
    ).hexdigest()


def _with_whole_numbers(value: Any) -> Any:
    """Returns a JSON value with 1 for 1.0, as some clients send it back."""
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_whole_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def effective_risk(claimed: str | None, at_least: Risk | None) -> str | None:
    """Returns the higher of the agent's risk and its route's."""
    if at_least is None or claimed not in {None, *RISKS}:  # an unknown word counts as high
        return claimed
    return RISKS[max(RISKS.index(at_least), RISKS.index(claimed) if claimed in RISKS else 0)]


def bounded(
    ask: Ask,
    at_least: Risk | None,
    needed: Mapping[Risk, int],
    reason: Reason = "never",
    four_eyes: tuple[Risk, FourEyes] | None = None,
) -> Ask:
    """Raises the risk of a confirmation to its route's `at_least`, and its approvals to those `needed` for that risk.
    `reason`: of which risk an accept needs a reason; `four_eyes`: from which risk on they are demanded, and whose word says
    whom the agent works for.
    """
    asked, wanted = ask.asked, ask.asked.confirmation
    if wanted is None:
        return ask
    risk = effective_risk(wanted.risk_level, at_least)
    rank = risk_rank(risk)
    bound = max(needed[each] for each in RISKS[: rank + 1])
    people = max(bound, asked.approvals_needed or 1)
    return ask.under(
        wanted=wanted.copied(
            risk_level=risk,
            claimed_risk=(wanted.risk_level or "not said") if risk != wanted.risk_level else None,
        ),
        approvals_needed=people if people > 1 else None,
        reason_wanted=reason == "always" or (reason == "high" and RISKS[rank] == "high") or None,
        four_eyes=four_eyes[1] if four_eyes is not None and rank >= RISKS.index(four_eyes[0]) else None,
    )


def risk_rank(risk: str | None) -> int:
    """Returns the place of a risk in `RISKS`. No risk counts as medium, an unknown word as high."""
    return 1 if risk is None else RISKS.index(risk) if risk in RISKS else len(RISKS) - 1


def check_four_eyes(record: Clarification, decider: Decider) -> None:
    """Raises unless this person may accept the action, as far as four eyes are demanded.

    Raises:
        ConsentRefused: they are not in Slack. NoRequester: it is not known whom the agent works for.
        NotToldApart: it is not known whether that is them. OwnRequest: it is.
    """
    asked = record.asked
    if asked.four_eyes is None:
        return
    if decider.surface != "slack":
        raise ConsentRefused(record.id)
    if asked.barred is None:
        raise NoRequester(record.id)
    if decider.is_requester is None:
        raise NotToldApart(record.id)
    if decider.is_requester:
        raise OwnRequest(record.id)


def check_reason(asked: Question, reason: str | None) -> None:
    """Raises ReasonWanted if an accept with this reason does not count."""
    if asked.reason_wanted and len(words_in(reason or "")) < LEAST_REASON:
        raise ReasonWanted(LEAST_REASON)


def check_seen(record: Clarification, version: str | None, *, shown_whole: bool = True) -> None:
    """Raises unless the person saw the current arguments before accepting them.

    Args:
        record: its state under the lock.
        version: the version that the person saw; "": the first one, from a card of an earlier release; None: the accept
            was typed, so we do not know.
        shown_whole: whether the card shows the whole action.

    Raises:
        ArgumentsChanged: the person saw an earlier version.
        NotSeen: a typed accept, and the person may have seen an earlier version or only a part.
    """
    edited = bool(record.consent.edits)
    if version is None and (edited or not shown_whole):
        raise NotSeen(record.id, edited=edited)
    if version != version_of(record.current) and (edited or version):
        raise ArgumentsChanged(record)


def accepted(record: Clarification, answer: Answer, decider: Decider, at: datetime) -> Clarification:
    """Records one person's accept. The last one needed answers the record.

    Raises:
        CountsOnce: the same person accepted before.
        NotToldApart: several people must accept, or not this person, and we do not know who this is, or who accepted before.
        ApprovedMeanwhile: someone accepted since the earlier approvers were looked up.
        ConsentRefused: several people must accept, or four eyes are demanded, and this is not Slack.
        NoRequester, OwnRequest: see `check_four_eyes`.
        ReasonWanted: the route wants a reason.
        AnswerRejected: the edit of the arguments is not allowed.
        NotOpen: it can no longer be answered.
    """
    check_four_eyes(record, decider)
    check_reason(record.asked, answer.rationale)
    at = max(at, record.asked_last)
    if answer.changed:
        record = _edited(record, answer.changed, decider, at)
    if record.asked.needed > 1:
        record = _without_lapsed(record, decider, at)
    asked = record.asked
    before = record.consent.approvals or ()
    if len(before) + 1 >= asked.needed:
        return answered(record, answer, decider, at)
    mine = Approval(
        team=decider.team,
        user=decider.user,
        decided_by=decider.decided_by,
        at=at,
        digest=version_of(record.current),
        global_id=decider.global_id,
        rationale=answer.rationale,
    )
    return renewed(amended(record, approvals=(*before, mine)))


def _without_lapsed(record: Clarification, decider: Decider, at: datetime) -> Clarification:
    """Moves the accepts that no longer count to those that have lapsed. Raises unless this person is another one than all
    who remain.
    """
    if decider.surface != "slack":
        raise ConsentRefused(record.id)
    if (known := decider.approvers) is None:
        raise NotToldApart(record.id)
    before = record.consent.approvals or ()
    lapsed = tuple(each for each in before if known.get(each.user) == "lapsed")
    remain = tuple(each for each in before if each not in lapsed)
    check_first(record, decider)
    if not known.keys() >= {each.user for each in remain}:
        raise ApprovedMeanwhile(record)
    if any(known[each.user] == "unknown" for each in remain):
        raise NotToldApart(record.id, "who approved before you")
    if not lapsed:
        return record
    gone = (*(record.consent.lapsed or ()), *(each.model_copy(update={"lapsed_at": at}) for each in lapsed))
    return amended(record, approvals=remain or None, lapsed=gone)


def check_first(record: Clarification, decider: Decider) -> None:
    """Raises CountsOnce if this person accepted before, and the accept still counts."""
    known = decider.approvers or {}
    remain = [each for each in record.consent.approvals or () if known.get(each.user) != "lapsed"]
    if any(_is_same(each, decider, known) for each in remain):
        raise CountsOnce(record.id, max(1, record.asked.needed - len(remain)))


def _is_same(approval: Approval, decider: Decider, known: Mapping[str | None, Standing]) -> bool:
    """Whether an accept is by this person: by the same Slack user or global id, by the name that agents get, or as Slack said."""
    if approval.global_id is not None and approval.global_id == decider.global_id:
        return True
    same = approval.user == decider.user or approval.decided_by == decider.decided_by
    return same or known.get(approval.user) == "same"


def approved_by(current: Round) -> list[str]:
    """Returns the names of those who accepted, in that order, without a person who rejected it afterwards."""
    before = [each.decided_by for each in current.consent.approvals or ()]
    if current.given.response is None or current.given.decided_by is None:
        return before
    if current.is_consent:
        return [*before, current.given.decided_by]
    return [each for each in before if each != current.given.decided_by]


def why_refused(error: ClarifyError, decider: Decider) -> str | None:
    """Returns why this person may not decide as they tried to, as `Refusal` keeps it; None: they may, or not that way."""
    match error:
        case OwnRequest():
            return "own request"
        case NoRequester():
            return "no requester"
        case ConsentRefused() if decider.surface != "slack":
            return "not in Slack"
    return None


def with_refusal(refusals: tuple[Refusal, ...], attempt: Refusal) -> tuple[Refusal, ...]:
    """Adds an attempt: the same person, way and reason are counted, and so are all others beyond `MOST_REFUSALS`."""
    for place, each in enumerate(refusals):
        if each.subject == attempt.subject:
            seen = {
                "times": each.times + attempt.times,
                "first": min(each.first, attempt.first),
                "last": max(each.last, attempt.last),
            }
            return (*refusals[:place], each.model_copy(update=seen), *refusals[place + 1 :])
    if len(refusals) < MOST_REFUSALS or attempt.by == OTHERS:
        return (*refusals, attempt)
    gone = {"by": OTHERS, "user": None, "team": None, "surface": OTHERS, "why": OTHERS, "response": None}
    return with_refusal(refusals, attempt.model_copy(update=gone))


def trouble_with(arguments: Any) -> str | None:
    """Returns why an action cannot have these arguments, or None."""
    if _depth(arguments) > _DEEPEST:
        return f"Nested too deeply; at most {_DEEPEST} levels are allowed."
    try:
        size = len(json.dumps(arguments, allow_nan=False).encode())
    except ValueError:  # the ledger would store null, and the action would run with it
        return "Not valid JSON: NaN and infinite numbers are not allowed."
    return f"{size} bytes of JSON; at most {ARGUMENTS_LIMIT} are allowed." if size > ARGUMENTS_LIMIT else None


def _depth(value: Any, level: int = 0) -> int:
    if level > _DEEPEST or not isinstance(value, (dict, list)):
        return level
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(each, level + 1) for each in inner), default=level + 1)


def _edited(record: Clarification, changed: Any, decider: Decider, at: datetime) -> Clarification:
    """Records the next version of the arguments, without any accepts."""
    wanted = record.asked.confirmation
    if wanted is None or not wanted.editable or not changed.keys() <= record.current.arguments.keys():
        raise AnswerRejected("This action's arguments cannot be changed.")
    edit = Edit(
        changed=dict(changed),
        team=decider.team,
        user=decider.user,
        decided_by=decider.decided_by,
        at=at,
        lapsed=record.consent.approvals or (),
    )
    after = amended(record, edits=(*(record.consent.edits or ()), edit), approvals=None)
    if (trouble := trouble_with(after.current.arguments)) is not None:
        raise AnswerRejected(f"These changes to the arguments are not valid. {trouble}")
    if problems := edit_problems(record.current, edit.changed):
        raise AnswerRejected(f"These changes to the arguments are not valid. {problems[0].sentence}")
    return after


def edit_problems(current: Round, changed: Mapping[str, Any]) -> list[Problem]:
    """Returns where edited arguments do not fit the schema that the agent sent with them. What was there before does not
    count: a redacted value need not fit.
    """
    raw = current.confirmation.arguments_schema if current.confirmation else None
    if raw is None:
        return []
    before = {(each.path, each.rule) for each in misfits(raw, current.arguments)}
    found = misfits(raw, current.arguments | dict(changed))
    return [
        each for each in found if (each.path, each.rule) not in before or changed.keys() & set(each.path[:1])
    ]
