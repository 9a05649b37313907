"""The examples with the frameworks that they are for: `pip install -e '.[test,examples]'`, then `pytest -m examples`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.mailing import EXAMPLES
from tests.kit.world import World, scene, url_of

if not any(find_spec(name) for name in ("langgraph", "pydantic_ai", "agents")):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
async def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A bot runs; the examples can be imported as where they were copied to, and find it."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    async with scene(tmp_path) as made, made.bot() as bot:
        monkeypatch.setenv("CLARIFY_URL", url_of(bot))
        yield made
