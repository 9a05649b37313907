"""Holds calls of MCP servers' tools until a person in Slack approved exactly that call: `[[guard]]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from pydantic import AfterValidator

from bot.api import CheckResult, Integration, Secrets, Tables, right, warning
from bot.integrations.guard.calls import Calls
from bot.integrations.guard.metrics import metrics
from bot.integrations.guard.settings import GuardSettings, each_once


async def _check(tables: Sequence[GuardSettings], _: Secrets) -> AsyncIterator[CheckResult]:
    for each in tables:
        asking = {rule.tool for rule in each.ask if not rule.where}
        idle = [pattern for pattern in each.allow if pattern in {*each.deny, *asking}]
        if idle:
            why = f"`allow` names what is denied or asked about: {', '.join(idle)}"
            yield warning(f"guard {each.name}", why, "remove it from one of them")
        else:
            yield right(
                f"guard {each.name}", f"for {', '.join(each.producers)}; all other calls: {each.other}"
            )


integration = Integration(
    name="guard",
    settings=Annotated[tuple[GuardSettings, ...], AfterValidator(each_once)],
    follows=Calls.of,
    routes=lambda host, tables: Calls.of(host, tables).routes(),
    tables=Tables(),
    metrics=metrics,
    check=_check,
)
