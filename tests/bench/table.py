"""What was measured, and the table that it is printed in."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `value` is compared with `goal`, in the unit of `form`; without a goal it is told for the record.

    `ours` and `baseline` are the figures behind it, in words, spread included.
    """

    what: str
    value: float
    form: str
    ours: str
    baseline: str = ""
    goal: float | None = None
    better: Literal["less", "more"] = "less"

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "less" else self.value >= self.goal


def table(rows: Sequence[Row]) -> str:
    """A Markdown table."""
    lines = ["| what | measured | goal | | ours | baseline |", "| --- | ---: | ---: | --- | --- | --- |"]
    for row in rows:
        sign = "≤" if row.better == "less" else "≥"
        goal = "" if row.goal is None else f"{sign} {row.form.format(row.goal)}"
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        lines.append(
            f"| {row.what} | {row.form.format(row.value)} | {goal} | {verdict} | {row.ours} | {row.baseline} |"
        )
    return "\n".join(lines)


def ms(seconds: Sequence[float]) -> str:
    """Median and 99th percentile of durations, in milliseconds."""
    return f"{median(seconds) * 1e3:.2f} ms, p99 {quantile(seconds, 0.99) * 1e3:.2f}"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Lowest and highest."""
    return f"{form.format(min(values))}…{form.format(max(values))}"
