"""The HTTP client of those we talk to: what came back and what failed, in words."""

from __future__ import annotations

import aiohttp
import pytest

from bot.http import clean, retry_after, words
from tests.unit.bot.producers.parties import NOW


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0), ("0.25", 0.25), ("-3", 0.0), ("nan", None), ("soon", None), ("", None),
        ("Sun, 24 May 2026 14:22:21 GMT", 10.0), ("Sun, 24 May 2020 14:22:21 GMT", 0.0), ("1e9", 86400.0),
    ],
)  # fmt: skip
def test_retry_after_reads_seconds_and_dates(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_clean_leaves_one_short_line() -> None:
    assert clean("a\x1b[31m\n\tb\u202e" + "x" * 300, 10) == "a [31m b x…"[:9] + "…"


def test_words_name_every_failure() -> None:
    assert words(aiohttp.SocketTimeoutError()) == "no answer within 10 s"
    assert words(aiohttp.ClientOSError(104, "reset")) == "the connection broke"
    assert words(ValueError("x")) == "ValueError"
