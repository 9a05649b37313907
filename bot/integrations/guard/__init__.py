"""Holds calls of MCP servers' tools until a person in Slack approved exactly that call: `[[guard]]`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from bot.api import Integration, Tables
from bot.integrations.guard.calls import Calls
from bot.integrations.guard.figures import figures
from bot.integrations.guard.settings import GuardSettings, each_once

integration = Integration(
    name="guard",
    settings=Annotated[tuple[GuardSettings, ...], AfterValidator(each_once)],
    follows=Calls.of,
    routes=lambda host, tables: Calls.of(host, tables).routes(),
    tables=Tables(),
    figures=figures,
)
