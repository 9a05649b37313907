from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.storage.ledger import DatabaseLedger
from bot.storage.store import Store
from core.clarification import Clarification
from tests.kit.databases import open_store
from tests.unit.bot.slack.kit import FAST
from tests.unit.bot.strategies import CHOICES, CONTEXT, QUESTION, record_of
from workspace import Workspace


@pytest.fixture(scope="session")
def largest() -> Clarification:
    """Everything as long as the schema allows, in characters that count twice."""
    return record_of(
        question="𝔔" * QUESTION,
        context="𝔎" * CONTEXT,
        default_response="𝔇" * CONTEXT,
        summary_detailed="𝔖" * QUESTION,
        accepted_response_kinds=["multiple_choice", "numeric", "yes_no", "freetext"],
        choices=[{"value": f"v{n}", "label": "𝔏" * 1024} for n in range(CHOICES)],
    )


@pytest.fixture
async def ws() -> AsyncIterator[Workspace]:
    """A local workspace that does not limit rates."""
    async with Workspace(options=FAST) as workspace:
        yield workspace


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "clarify.db")
    yield opened
    await opened.close()


@pytest.fixture
async def ledger(store: Store) -> DatabaseLedger:
    return DatabaseLedger(store)
