"""Replaces what matches a producer's `redact` patterns, without blocking the event loop.

An ordinary pattern may take hours on a hostile text. So each producer has its own thread, where the patterns run without
the GIL, and each question a limited time. One producer never delays the others.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import regex

from core.questions import REDACTED

BUDGET = 1.0  # seconds of computing for one question
_SHORT = 1000  # characters
_AT_ONCE = 0.005  # seconds: as long as threads hold the GIL anyway
_T = TypeVar("_T")


_TRIED = 65_536  # characters of a text to try a pattern on
_ATOMS = ("a", "0", " ", "a ", "a.", "-", "/", "\n")
_LITERAL = regex.compile(r"[^\\\[\](){}.*+?^$|]+")
_MOST_LITERALS = 16
_SHOWN = 12
_LONGEST_TRIAL = 10.0  # seconds for one pattern


class PatternTooSlow(Exception):
    """A pattern takes too long. `number`: its position in `redact`; the one that took longest, where several ran."""

    def __init__(self, number: int) -> None:
        super().__init__(f"redact[{number}] takes too long")
        self.number = number


class Redaction:
    """One producer's patterns and their thread."""

    def __init__(self, producer: str, patterns: Sequence[str]) -> None:
        self._patterns = tuple(regex.compile(each) for each in patterns)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"redact {producer}")

    async def run(self, work: Callable[[Redactor], _T]) -> _T:
        """Runs `work` in the producer's thread, in turn, and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: work(Redactor(self._patterns, BUDGET))
        )


class Redactor:
    """Redacts texts; raises PatternTooSlow after `seconds` of computing. Use it in the thread that made it."""

    def __init__(self, patterns: Sequence[regex.Pattern[str]], seconds: float) -> None:
        self._patterns = patterns
        self._took = [0.0] * len(patterns)
        self._ends = time.thread_time() + seconds

    def redacted(self, value: Any, *, numbers: bool = False) -> Any:
        """Returns a value with all matches replaced, also in names; with `numbers`, matching numbers become text."""
        if numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
            text = json.dumps(value)
            shown = self._redacted(text)
            return value if shown == text else shown
        if isinstance(value, str):
            return self._redacted(value)
        if isinstance(value, list):
            return [self.redacted(each, numbers=numbers) for each in value]
        if isinstance(value, dict):
            return {
                self._redacted(name): self.redacted(each, numbers=numbers) for name, each in value.items()
            }
        return value

    def _redacted(self, text: str) -> str:
        for number, pattern in enumerate(self._patterns):
            began = time.thread_time()
            try:
                text = self._replaced(pattern, text, self._ends - began)
            except TimeoutError:
                self._took[number] += time.thread_time() - began
                raise PatternTooSlow(self._took.index(max(self._took))) from None
            self._took[number] += time.thread_time() - began
        return text

    def _replaced(self, pattern: regex.Pattern[str], text: str, left: float) -> str:
        if left <= 0:
            raise TimeoutError
        if len(text) <= _SHORT:  # releasing the GIL would cost more
            with suppress(TimeoutError):
                return pattern.sub(REDACTED, text, timeout=min(left, _AT_ONCE))
        return pattern.sub(REDACTED, text, concurrent=True, timeout=left)


def what_slows(pattern: str) -> str | None:
    """Returns the beginning of a text on which a pattern takes longer than `BUDGET`, or None.

    Tries repetitions of common characters and of the pattern's own literals, with an end that does not match.
    """
    compiled = regex.compile(pattern)
    literals = sorted({*_LITERAL.findall(pattern), *"".join(_LITERAL.findall(pattern))})[:_MOST_LITERALS]
    began = time.thread_time()
    for atom in dict.fromkeys((*_ATOMS, *literals)):
        body = (atom * _TRIED)[:_TRIED]
        for literal in ("", *literals):
            if time.thread_time() - began > _LONGEST_TRIAL:
                return None
            try:
                compiled.sub(REDACTED, f"{literal}{body}\n!{literal}", timeout=BUDGET)
            except TimeoutError:
                return f"{literal}{body}"[:_SHOWN]
    return None
