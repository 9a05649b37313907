"""The examples with the frameworks that they are for: `pip install -e '.[test,examples]'`, then `pytest -m examples`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.mailing import EXAMPLES, ROOT
from tests.kit.node import are_installed
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


NODE = Path(__file__).with_name("node")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A TypeScript project that clarify.ts and the examples were copied to."""
    if not are_installed(NODE):
        pytest.skip("not installed: python -m tests.kit.node tests/examples/node")
    made = tmp_path / "project"
    made.mkdir()
    for each in (ROOT / "clients/clarify.ts", *EXAMPLES.glob("*.ts"), *NODE.glob("*.*s*")):
        shutil.copy(each, made)
    (made / "node_modules").symlink_to(NODE / "node_modules")
    return made
