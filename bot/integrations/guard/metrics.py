"""How often each rule asked in the last seven days, and what people said: a rule that everyone waves through can be narrowed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import Any

from bot.api import Host, Metric

_SPAN = timedelta(days=7)


async def metrics(host: Host, _tables: Any) -> Sequence[Metric]:
    rows = await host.store.read(
        "select guard, rule, state, outcome, asked_at, decided_at from guard_calls where asked_at > :since",
        since=(host.clock.now() - _SPAN).timestamp(),
    )
    calls, seconds = Counter[tuple[str, ...]](), defaultdict[tuple[str, ...], list[float]](list)
    doubts = Counter[tuple[str, ...]]()
    for row in rows:
        rule = row["guard"], row["rule"]
        open_ = "undecided" if row["decided_at"] is None else "closed"
        calls[(*rule, row["outcome"] or open_)] += 1
        doubts[(row["guard"],)] += row["state"] == "doubt"
        if row["outcome"] is not None:
            seconds[rule].append(row["decided_at"] - row["asked_at"])
    outcome = (
        "undecided, accepted (unchanged), edited (and accepted), rejected, closed (expired or withdrawn)"
    )
    return [
        Metric(
            "calls",
            f"Calls held in the last 7 days, by rule and outcome: {outcome}",
            ["guard", "rule", "outcome"],
            calls,
        ),
        Metric(
            "decision_seconds",
            "Median time to accept or reject a call of the last 7 days, by rule",
            ["guard", "rule"],
            {rule: median(found) for rule, found in seconds.items()},
        ),
        Metric("doubts", "Calls of the last 7 days that are in doubt", ["guard"], doubts),
    ]
