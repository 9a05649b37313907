"""Consent of one or several people to an action: who counts, for which version of its arguments, and when it is given.

* An accept counts for the arguments that its person saw. A change of them is a new version: earlier accepts lapse, and the
  accept of whoever changed them is the first of the new version. Typed words name no version: as an accept they count only
  where the card shows everything, and nobody has changed it.
* Several people are different by Slack's ids and by the names that agents are told. Everybody counts once.
* One reject decides, also of somebody who accepted.

Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from core.clarification import (
    Aaep,
    Answer,
    Approval,
    ArgumentsChanged,
    Ask,
    Clarification,
    Decider,
    Edit,
    answered,
    renewed,
)
from core.errors import AnswerRejected, ConsentRefused, CountsOnce, NotSeen, NotToldApart
from core.records import as_written_by_all

Risk = Literal["low", "medium", "high"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high")
MOST = 5
ARGUMENTS_LIMIT = 262_144  # bytes of JSON
_DEEPEST = 20
_DIGEST = 8  # bytes: what a button carries; it is only compared, under the lock


def version_of(asked: Aaep) -> str:
    """The version of an action's arguments, as controls carry it: another one after each change."""
    said = [len(asked.edits or ()), as_written_by_all(asked.arguments)]
    return hashlib.blake2b(
        json.dumps(said, sort_keys=True, ensure_ascii=True).encode(), digest_size=_DIGEST
    ).hexdigest()


def effective_risk(claimed: str | None, at_least: Risk | None) -> str | None:
    """The graver of what the agent said and what its route says."""
    if at_least is None or claimed not in {None, *RISKS}:  # a word that nobody knows counts as grave
        return claimed
    return RISKS[max(RISKS.index(at_least), RISKS.index(claimed) if claimed in RISKS else 0)]


def bounded(ask: Ask, at_least: Risk | None, needed: Mapping[Risk, int]) -> Ask:
    """A confirmation with the bounds of its route: a risk as high as `at_least`, as many people as `needed` for it."""
    wanted = ask.confirmation
    if wanted is None:
        return ask
    risk = effective_risk(wanted.risk_level, at_least)
    # Without a word it counts as medium, with an unknown one as high.
    rank = 1 if risk is None else RISKS.index(risk) if risk in RISKS else len(RISKS) - 1
    bound = max(needed[each] for each in RISKS[: rank + 1])
    people = max(bound, ask.approvals_needed or 1)
    return replace(
        ask,
        confirmation=replace(wanted, risk_level=risk),
        claimed_risk=(wanted.risk_level or "not said") if risk != wanted.risk_level else None,
        approvals_needed=people if people > 1 else None,
    )


def check_seen(record: Clarification, version: str | None, *, shown_whole: bool = True) -> None:
    """Raises unless whoever accepts saw the arguments as they are.

    Args:
        record: as found under the lock.
        version: what they saw; "": the first version, as cards of releases before showed; None: they typed it, so what
            they saw is not known.
        shown_whole: whether the card shows everything that is accepted.

    Raises:
        ArgumentsChanged: they saw others.
        NotSeen: they typed it, and may have seen others, or not all.
    """
    edited = bool(record.asked.edits)
    if version is None and (edited or not shown_whole):
        raise NotSeen(record.id, edited=edited)
    if version != version_of(record.asked) and (edited or version):
        raise ArgumentsChanged(record)


def accepted(record: Clarification, answer: Answer, decider: Decider, at: datetime) -> Clarification:
    """The record after one person's accept: answered if that was the last one needed.

    Raises:
        CountsOnce: the same person accepted before.
        NotToldApart: several have to accept, and it is not known well enough who this is.
        ConsentRefused: several have to accept, in Slack.
        AnswerRejected: the arguments cannot be changed like this.
        NotOpen: it takes no answer any more.
    """
    at = max(at, record.asked_last)
    if answer.changed:
        record = _edited(record, answer.changed, decider, at)
    asked = record.asked
    before = asked.approvals or ()
    if asked.needed > 1:
        if decider.surface != "slack":
            raise ConsentRefused(record.id)
        if not decider.is_known:
            raise NotToldApart(record.id)
    if any(is_same(each, decider) for each in before):
        raise CountsOnce(record.id, asked.missing)
    if len(before) + 1 >= asked.needed:
        return answered(record, answer, decider, at)
    mine = Approval(
        team=decider.team,
        user=decider.user,
        decided_by=decider.decided_by,
        at=at,
        digest=version_of(asked),
        global_id=decider.global_id,
        rationale=answer.rationale,
    )
    return renewed(record, aaep=asked.model_copy(update={"approvals": (*before, mine)}))


def is_same(approval: Approval, decider: Decider) -> bool:
    """Whether an approval is by the same person: by Slack's ids, or by the name that agents are told."""
    if approval.global_id is not None and approval.global_id == decider.global_id:
        return True
    return approval.user == decider.user or approval.decided_by == decider.decided_by


def approved_by(asked: Aaep) -> list[str]:
    """Who accepted, as agents are told: in the order of their accepts, without one who rejected it then."""
    before = [each.decided_by for each in asked.approvals or ()]
    if asked.response is None or asked.decided_by is None:
        return before
    if asked.is_consent:
        return [*before, asked.decided_by]
    return [each for each in before if each != asked.decided_by]


def trouble_with(arguments: Any) -> str | None:
    """Why an action cannot have these arguments; None: it can."""
    if _depth(arguments) > _DEEPEST:
        return f"Nested too deeply; at most {_DEEPEST} levels are allowed."
    try:
        size = len(json.dumps(arguments, allow_nan=False).encode())
    except ValueError:  # the ledger would hold null in their place, and so would the action
        return "Not valid JSON: NaN and infinite numbers are not allowed."
    return f"{size} bytes of JSON; at most {ARGUMENTS_LIMIT} are allowed." if size > ARGUMENTS_LIMIT else None


def _depth(value: Any, level: int = 0) -> int:
    if level > _DEEPEST or not isinstance(value, (dict, list)):
        return level
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(each, level + 1) for each in inner), default=level + 1)


def _edited(record: Clarification, changed: Any, decider: Decider, at: datetime) -> Clarification:
    """The next version of the arguments: nobody has accepted it yet."""
    asked = record.asked
    if asked.direct is None or not asked.direct.editable or not changed.keys() <= asked.arguments.keys():
        raise AnswerRejected("This action's arguments cannot be changed.")
    edit = Edit(
        changed=dict(changed),
        team=decider.team,
        user=decider.user,
        decided_by=decider.decided_by,
        at=at,
        lapsed=asked.approvals or (),
    )
    news = {"edits": (*(asked.edits or ()), edit), "approvals": None}
    after = asked.model_copy(update=news)
    if (trouble := trouble_with(after.arguments)) is not None:
        raise AnswerRejected(f"These changes to the arguments are not valid. {trouble}")
    return record.model_copy(update={"aaep": after})
