"""Every regular expression of the code takes linear time for whatever text, as anybody may write one of 40,000 characters."""

from __future__ import annotations

import re
from functools import cache

import pytest

from bot.views.codec import LONGEST_SEARCH
from tests.kit.patterns import LARGE, Pattern, hostile, in_code, what_slows

PARTS = 8  # so that workers share them; to find them takes seconds, which collecting tests should not
LONGEST = {  # characters of what they are matched against, where that is less
    "bot/decisions/query.py _TOKEN": LONGEST_SEARCH,
    "bot/views/inert.py _CLUSTER": 65,
    "core/monitor.py _ENDS_SENTENCE": 20,
}
OF_THE_OPERATOR = {  # in a thread of their own, for a limited time: see test_redaction.py
    "bot/ask/redaction.py: pattern",
    "bot/ask/redaction.py: each",
    "bot/settings/model.py: value",
}


found = cache(in_code)


def test_patterns_are_found() -> None:
    patterns, computed = found()
    assert len(patterns) > 150
    assert set(computed) == OF_THE_OPERATOR
    assert LONGEST.keys() <= {each.name for each in patterns}


@pytest.mark.parametrize("part", [0, *(pytest.param(each, marks=pytest.mark.ci) for each in range(1, PARTS))])
def test_each_pattern_takes_linear_time(part: int) -> None:
    patterns, _ = found()
    assert [
        (each.name, each.line, slow)
        for each in patterns[part::PARTS]
        for run in each.runs()
        if (slow := what_slows(run, hostile(each.compiled), LONGEST.get(each.name, LARGE)))
    ] == []


@pytest.mark.ci
@pytest.mark.parametrize(
    ("pattern", "methods"),
    [
        (r"[ \t]*<@U1>", {"sub"}),
        (r"(a|aa)*b", {"match"}),
        (r"\[+[^\]\n]*\]", {"search"}),
        (rb"^BEGIN\n.*?^END", {"search"}),
        (r"(.+?)\s*\(.*\)", {"fullmatch"}),
    ],
)
def test_slow_patterns_are_noticed(pattern: str | bytes, methods: set[str]) -> None:
    flags = re.MULTILINE | re.DOTALL if isinstance(pattern, bytes) else re.MULTILINE
    each = Pattern("", 0, re.compile(pattern, flags), frozenset(methods))
    assert any(what_slows(run, hostile(each.compiled)) for run in each.runs())
