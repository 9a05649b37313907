"""`/clarify` over thousands of open clarifications: how soon it is acknowledged, how soon answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.workspace.seed import ADE, AGENTS
from tests.bench.seeding import FIRST, Seed
from tests.bench.stage import Stage, bot, stage
from tests.bench.table import Row, median, ms, quantile

_QUIET = 1.0
_ANSWERED = 120.0
_MEANWHILE = 3  # commands typed while a digest is made
_HELP = "help"
_FORMS: dict[str, Callable[[int], str]] = {
    "/clarify": lambda _: "",
    "/clarify stale": lambda _: "stale",
    "/clarify mine": lambda _: "mine",
    "/clarify #N": lambda number: f"#{FIRST + number}",
    "/clarify agents": lambda _: "agents",
    "/clarify digest": lambda _: "digest",
}
_GOAL = 300.0


@dataclass(slots=True)
class _Taken:
    """Seconds from typing: to the acknowledgements, to the answers."""

    acks: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)


async def clarify(folder: Path, times: int, past: Seed) -> list[Row]:
    """Every form in turn, each when the one before is answered; then lists while a digest is made."""
    taken = {form: _Taken() for form in (_HELP, *_FORMS)}
    async with stage(folder / "clarify", past=past) as on, bot(on):
        await _quiet(on)
        for number in range(-1, times):
            for form, one in taken.items():
                text = _FORMS[form](max(number, 0)) if form in _FORMS else form
                ack, answer = await _typed(on, text)
                if number >= 0:
                    one.acks.append(ack)
                    one.answers.append(answer)
        meanwhile: list[float] = []
        while len(meanwhile) < times:
            meanwhile += await _typed_while_busy(on)
    baseline = f"{ms(taken[_HELP].acks)} for /clarify help"
    rows = [_row(form, past, taken[form].acks, baseline, taken[form].answers) for form in _FORMS]
    return [*rows, _row("/clarify while a digest is made", past, meanwhile, baseline)]


def _row(form: str, past: Seed, acks: Sequence[float], baseline: str, answers: Sequence[float] = ()) -> Row:
    answered = f"; answered after {median(answers):.2f} s, worst {max(answers):.2f}" if answers else ""
    return Row(
        f"{form} → ack, {past.open:,} open, p99 of {len(acks)}",
        quantile(acks, 0.99) * 1e3,
        "{:.0f} ms",
        f"median {median(acks) * 1e3:.1f} ms, worst {max(acks) * 1e3:.1f}{answered}",
        baseline,
        goal=_GOAL,
    )


async def _ack(on: Stage, text: str) -> float:
    outcome = await on.workspace.command(ADE, AGENTS, "/clarify", text)
    if not outcome.ok or outcome.seconds is None:
        raise RuntimeError(f"/clarify {text} was not acknowledged: {outcome.error}")
    return outcome.seconds


async def _typed(on: Stage, text: str) -> tuple[float, float]:
    """Seconds to the acknowledgement and to the answer."""
    seen, began = len(on.workspace.ephemerals(ADE)), time.perf_counter()
    ack = await _ack(on, text)
    await on.workspace.wait_for(lambda: len(on.workspace.ephemerals(ADE)) > seen, _ANSWERED)
    return ack, time.perf_counter() - began


async def _typed_while_busy(on: Stage) -> list[float]:
    """Lists asked for one after the other, after a digest was; returns when all are answered."""
    seen = len(on.workspace.ephemerals(ADE))
    await _ack(on, "digest")
    acks = [await _ack(on, "") for _ in range(_MEANWHILE)]
    await on.workspace.wait_for(lambda: len(on.workspace.ephemerals(ADE)) > seen + _MEANWHILE, _ANSWERED)
    return acks


async def _quiet(on: Stage) -> None:
    """Returns once the bot has done what a start makes it do."""
    count = -1
    while count != (count := len(on.workspace.calls)):  # noqa: ASYNC110 - that nothing comes has no event
        await asyncio.sleep(_QUIET)
