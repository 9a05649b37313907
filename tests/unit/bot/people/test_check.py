"""The samples that `clarify check` hands to Slack: there is one of each kind, and Slack takes it."""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FrameType
from typing import Any

import pytest

from bot.people.check import samples
from bot.views import card, forms, lists, page, verify
from tests.kit.times import judge_times
from workspace.rules import check_message, check_schema, check_view

# These have no layout of their own.
LIKE_OTHERS = {
    "plain_card",  # what cannot be laid out
    "plain_answer_modal",
    "said",
    "choice_of",  # a listing
}


@pytest.mark.parametrize(("name", "made"), [pytest.param(*each, id=each[0]) for each in samples()])
def test_slack_takes_the_sample(name: str, made: dict[str, Any]) -> None:
    is_view = "type" in made
    assert (check_view(made) if is_view else check_message(made | {"text": name})) == []
    assert check_schema("view" if is_view else "message", made) == []
    judge_times(made)


def test_there_is_a_sample_of_every_kind() -> None:
    kinds = {
        each.__code__: each.__name__
        for module in (card, forms, lists, page, verify)
        for _, each in inspect.getmembers(module, inspect.isfunction)
        if each.__annotations__.get("return") in {"Draft", "View"} and not each.__name__.startswith("_")
    }
    called: set[CodeType] = set()

    def note(frame: FrameType, _event: str, _argument: object) -> None:
        called.add(frame.f_code)

    sys.setprofile(note)
    try:
        names = [name for name, _ in samples()]
    finally:
        sys.setprofile(None)
    assert {name for code, name in kinds.items() if code not in called} - LIKE_OTHERS == set()
    assert len(set(names)) == len(names)
