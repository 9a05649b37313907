"""Replaces what matches a producer's `redact` patterns, without holding up the event loop.

There are texts on which an ordinary pattern takes hours. Each producer therefore has a thread of its own, in which the
patterns run without Python's lock, and each question a limited time: one producer's load delays nobody else.
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
_AT_ONCE = 0.005  # seconds: as long as threads hold Python's lock anyway
_T = TypeVar("_T")


_TRIED = 65_536  # characters of a text that a pattern is tried against
_ATOMS = ("a", "0", " ", "a ", "a.", "-", "/", "\n")
_LITERAL = regex.compile(r"[^\\\[\](){}.*+?^$|]+")
_MOST_LITERALS = 16
_SHOWN = 12
_LONGEST_TRIAL = 10.0  # seconds for one pattern


class TooSlow(Exception):
    """A pattern takes too long on a text. `number`: its position in `redact`."""

    def __init__(self, number: int) -> None:
        super().__init__(f"redact[{number}] takes too long")
        self.number = number


class Redaction:
    """The patterns of one producer, and their thread."""

    def __init__(self, producer: str, patterns: Sequence[str]) -> None:
        self._patterns = tuple(regex.compile(each) for each in patterns)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"redact {producer}")

    async def run(self, work: Callable[[Redactor], _T]) -> _T:
        """What `work` returns, done in this producer's thread once what was asked for before is done."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: work(Redactor(self._patterns, BUDGET))
        )


class Redactor:
    """Redacts texts for so many seconds of computing; `redacted` raises TooSlow once they are over. Belongs to the thread
    that made it.
    """

    def __init__(self, patterns: Sequence[regex.Pattern[str]], seconds: float) -> None:
        self._patterns = patterns
        self._ends = time.thread_time() + seconds

    def redacted(self, value: Any, *, numbers: bool = False) -> Any:
        """A value with all that matches replaced, in names, too; with `numbers`, a number that matches becomes a text."""
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
            try:
                text = self._replaced(pattern, text)
            except TimeoutError:
                raise TooSlow(number) from None
        return text

    def _replaced(self, pattern: regex.Pattern[str], text: str) -> str:
        if (left := self._ends - time.thread_time()) <= 0:
            raise TimeoutError
        if len(text) <= _SHORT:  # it costs more to give the lock away and get it back
            with suppress(TimeoutError):
                return pattern.sub(REDACTED, text, timeout=min(left, _AT_ONCE))
        return pattern.sub(REDACTED, text, concurrent=True, timeout=left)


def what_slows(pattern: str) -> str | None:
    """The beginning of a text on which a pattern takes longer than a question may; None: none was found.

    Tries repetitions of usual characters and of what stands in the pattern itself, with an end that does not match.
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
