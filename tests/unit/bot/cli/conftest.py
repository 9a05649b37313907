from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.kit.databases import make_tables
from tests.unit.bot.cli.kit import WORKFLOW, Prompt
from workspace import Workspace


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prompt:
    """A project's folder, and a prompt in it."""
    (tmp_path / ".agentx/workflows").mkdir(parents=True)
    (tmp_path / ".agentx/workflows/feature.toml").write_text(WORKFLOW)
    (tmp_path / ".agentx/state").mkdir()
    monkeypatch.chdir(tmp_path)
    made = Prompt(tmp_path)
    make_tables(made.storage)
    made.configure('[slack]\nfallback_channel = "C0FALLBACK"\n')
    return made


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Commands send the process's logs to their stderr: not those of the tests after them."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    async with Workspace() as running:
        yield running
