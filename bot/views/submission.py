"""The answer modal's fields, and how a submitted one is read. Pure.

A submission is `view["state"]["values"]`: `{block_id: {action_id: {"type": …, "value" | "selected_option" |
"selected_options": …}}}` (docs.slack.dev, "view_submission payloads").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core import answers
from core.aaep import DECISIONS
from core.clarification import Aaep, Answer
from core.errors import AnswerRejected

CHOICES_BLOCK = "answer.choices"
YES_NO_BLOCK = "answer.yes_no"
NUMERIC_BLOCK = "answer.numeric"
FREETEXT_BLOCK = "answer.freetext"
DECISION_BLOCK = "answer.decision"
RATIONALE_BLOCK = "answer.rationale"
VALUE_ACTION = "value"
YES_VALUE, NO_VALUE = "yes", "no"
MENU_OPTIONS = 100  # Slack's menus take no more
NONE_VALUE = (
    "none"  # radio buttons cannot be cleared again: where several kinds are asked, this says "not this"
)

_NOTHING = "Fill this in to answer."
_NOTHING_OF_SEVERAL = "Fill in exactly one of these."
_TOO_MANY = "Fill in exactly one of these, and empty the others."
_NO_NUMBER = "Type a number, like 1200 or 12.5."


class SubmissionErrors(Exception):
    """What a person has to mend in the modal: block_id → what to do, as Slack's `errors` wants it."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(f"The submission needs mending in {', '.join(errors)}.")
        self.errors = dict(errors)


def fields(asked: Aaep) -> tuple[str, ...]:
    """The block_ids of the inputs that the modal for `asked` has, in their order."""
    if "confirmation" in asked.kinds:
        return DECISION_BLOCK, RATIONALE_BLOCK
    found = []
    if "multiple_choice" in asked.kinds and asked.choices:
        found.append(CHOICES_BLOCK)
    if "yes_no" in asked.kinds:
        found.append(YES_NO_BLOCK)
    if "numeric" in asked.kinds:
        found.append(NUMERIC_BLOCK)
    if "freetext" in asked.kinds or not found:
        found.append(FREETEXT_BLOCK)
    return tuple(found)


def types_choices(asked: Aaep) -> bool:
    """Whether a choice is typed, since a menu does not hold them all (and "None of these" where another kind is asked)."""
    none = len(fields(asked)) > 1 and not asked.multi_select
    return len(asked.choices) + none > MENU_OPTIONS


def read_submission(values: Mapping[str, Any], asked: Aaep) -> Answer:
    """The answer that a submitted modal gives.

    Args:
        values: the view's state values; fields that the question does not ask for are ignored.
        asked: the round's question.

    Raises:
        SubmissionErrors: nothing or more than one thing was filled in, or it cannot be read.
    """
    if "confirmation" in asked.kinds:
        return _read_decision(values, asked)
    shown = fields(asked)
    filled = {block: said for block in shown if (said := _said(values, block))}
    if not filled:
        raise SubmissionErrors(dict.fromkeys(shown, _NOTHING if len(shown) == 1 else _NOTHING_OF_SEVERAL))
    if len(filled) > 1:
        raise SubmissionErrors(dict.fromkeys(filled, _TOO_MANY))
    ((block, said),) = filled.items()
    try:
        return _read(block, said, asked)
    except AnswerRejected as error:
        raise SubmissionErrors({block: str(error)}) from error


def _read_decision(values: Mapping[str, Any], asked: Aaep) -> Answer:
    """The decision must be made; the reason may be left out."""
    decided, why = _said(values, DECISION_BLOCK), _said(values, RATIONALE_BLOCK)
    found = next((each for each in DECISIONS if decided == [each]), None)
    if found is None:
        raise SubmissionErrors({DECISION_BLOCK: _NOTHING})
    try:
        return answers.from_decision(asked, found, "".join(why))
    except AnswerRejected as error:
        raise SubmissionErrors({RATIONALE_BLOCK if why else DECISION_BLOCK: str(error)}) from error


def _read(block: str, said: list[str], asked: Aaep) -> Answer:
    if block == CHOICES_BLOCK and types_choices(asked):
        return answers.from_choice_text(asked, said[0])
    if block == CHOICES_BLOCK:
        return answers.from_choices(asked, [int(each) if each.isdecimal() else -1 for each in said])
    if block == YES_NO_BLOCK:
        return answers.from_yes_no(asked, said[0] == YES_VALUE)
    if block == FREETEXT_BLOCK:
        return answers.from_free_text(said[0])
    value = answers.number(said[0].strip())
    if value is None:
        raise AnswerRejected(_NO_NUMBER)
    return Answer(value, answers.describe(value))


def _said(values: Mapping[str, Any], block: str) -> list[str]:
    """What a field holds, as a list of strings; empty where it was left out."""
    state = values.get(block, {}).get(VALUE_ACTION) or {}
    if "selected_options" in state:
        picked = state["selected_options"] or []
    elif "selected_option" in state:
        picked = [state["selected_option"]] if state["selected_option"] else []
    else:
        text = state.get("value") or ""
        return [text] if text.strip() else []
    return [option["value"] for option in picked if option["value"] != NONE_VALUE]
