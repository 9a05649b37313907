"""What a producer's patterns replace, and how long they may take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.ask import redaction
from bot.ask.redaction import PatternTooSlow, Redaction, what_slows

EMAIL = "[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+[.][A-Za-z]{2,}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the time that a question has: what is too slow for that is too slow for the whole as well."""
    monkeypatch.setattr(redaction, "BUDGET", 0.2)


async def redacted(value: Any, *patterns: str, numbers: bool = False) -> Any:
    return await Redaction("planner", patterns).run(
        lambda redactor: redactor.redacted(value, numbers=numbers)
    )


async def test_names_and_values_are_replaced_numbers_where_that_is_wanted() -> None:
    value = {"hunter1": ["hunter2", 4111111111111111, True, None]}
    patterns = "hunter[0-9]", "[0-9]{16}"
    assert await redacted(value, *patterns) == {"[redacted]": ["[redacted]", 4111111111111111, True, None]}
    shown = await redacted(value, *patterns, numbers=True)
    assert shown == {"[redacted]": ["[redacted]", "[redacted]", True, None]}


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("a" * 60_000 + "@", EMAIL),
        ("x" * 5000 + "zy", "(x+x+)+y"),
        ([{"x" * 30 + f"{number}zy": 1} for number in range(5000)], "(x+x+)+y"),
    ],
)
@pytest.mark.usefixtures("impatient")
async def test_all_texts_of_a_question_share_its_time(value: Any, pattern: str) -> None:
    with pytest.raises(PatternTooSlow) as caught:
        await redacted(value, "hunter[0-9]", pattern)
    assert caught.value.number == 1


@pytest.mark.usefixtures("impatient")
async def test_one_producer_does_not_wait_for_another() -> None:
    nasty, other = Redaction("nasty", [EMAIL]), Redaction("other", ["hunter[0-9]"])
    busy = [
        asyncio.ensure_future(nasty.run(lambda redactor: redactor.redacted("a" * 60_000 + "@")))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    assert await other.run(lambda redactor: redactor.redacted("hunter2")) == "[redacted]"
    assert not any(each.done() for each in busy)
    assert all(
        isinstance(each, PatternTooSlow) for each in await asyncio.gather(*busy, return_exceptions=True)
    )


@pytest.mark.parametrize(
    "pattern", ["sk-[a-z0-9]{20,}", "hunter[0-9]", r"\b(?:\d[ -]*?){13,16}\b", r"(?i)bearer\s+[\w.~+/-]+=*"]
)
def test_usual_patterns_are_fast_on_everything(pattern: str) -> None:
    assert what_slows(pattern) is None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pattern", [EMAIL, "(x+x+)+y", "(a|b|ab)*c", r"(\w+\s?)+:"])
def test_pattern_that_can_be_slowed_is_found_out(pattern: str) -> None:
    assert what_slows(pattern)
