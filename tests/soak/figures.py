"""What was sampled of the bot's process, and whether it stayed flat: the last third against the second. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# The first third is the start: modules, pools and caches fill.
_MEMORY_SLACK, _HANDLES_SLACK, _THREADS_SLACK = 0.05, 4, 2
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """`at` in seconds since the start; `memory` resident, in bytes."""

    at: float
    memory: int
    handles: int
    threads: int


@dataclass(frozen=True, slots=True)
class Line:
    """One figure in each third of the run; `limit`: what the last third may be."""

    what: str
    thirds: tuple[float, float, float]
    limit: float

    @property
    def is_flat(self) -> bool:
        return self.thirds[2] <= self.limit


def lines(samples: Sequence[Sample]) -> list[Line]:
    """Medians of each third, which no single peak moves.

    Raises:
        ValueError: fewer than three samples.
    """
    if len(samples) < 3:
        raise ValueError("a run that short says nothing")
    memory = _thirds(samples, lambda each: each.memory / _MIB)
    handles = _thirds(samples, lambda each: each.handles)
    threads = _thirds(samples, lambda each: each.threads)
    return [
        Line("memory, MiB", memory, memory[1] * (1 + _MEMORY_SLACK)),
        Line("file handles", handles, handles[1] + _HANDLES_SLACK),
        Line("threads", threads, threads[1] + _THREADS_SLACK),
    ]


def table(found: Sequence[Line]) -> str:
    """A Markdown table."""
    rows = [
        "| what | first third | second third | last third | at most | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for line in found:
        figures = " | ".join(f"{value:.1f}" for value in (*line.thirds, line.limit))
        rows.append(f"| {line.what} | {figures} | {'flat' if line.is_flat else 'GROWS'} |")
    return "\n".join(rows)


def _thirds(samples: Sequence[Sample], figure: Callable[[Sample], float]) -> tuple[float, float, float]:
    size = len(samples) // 3
    parts = (samples[:size], samples[size : 2 * size], samples[2 * size :])
    first, second, last = (statistics.median(map(figure, part)) for part in parts)
    return first, second, last
