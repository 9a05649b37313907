"""The product stands without its integrations: where their folders are deleted, its tests pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("bot", "core", "templates", "workspace", "clients", "tests", "docs", "deploy", "examples")
A_FEW = ("tests/unit/bot/test_feed.py", "tests/acceptance/test_keeping.py")
MORE = (
    *(f"tests/unit/bot/{each}" for each in ("cli", "oncall", "retention", "settings", "web")),
    *(f"tests/scenario/test_{each}.py" for each in ("approvals", "paging", "questions")),
)
# The pages of docs/ describe the integrations, too, the figures of bench measure them, the week pages through one; and coding agents
# are not installed in the copy.
OF_THEM = (
    "tests/docs",
    "tests/bench",
    "tests/examples",
    "tests/soak",
    "tests/acceptance/test_simulated_week.py",
    "tests/scenario/test_coding_agents.py",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The product without integrations, in a folder of its own."""
    for each in ROOT.iterdir():
        if each.name in NEEDED:
            shutil.copytree(
                each, tmp_path / each.name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
            )
        elif each.is_file():
            shutil.copy(each, tmp_path)
    for folder in (tmp_path / "bot/integrations").iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "tests/integrations")
    return tmp_path


@pytest.mark.parametrize(
    "what",
    [
        A_FEW,
        pytest.param(MORE, marks=(pytest.mark.ci, pytest.mark.timeout(900))),
        pytest.param(
            [*(f"--ignore={each}" for each in OF_THEM), "tests"],
            marks=(pytest.mark.long, pytest.mark.timeout(3600)),
        ),
    ],
    ids=["a few", "more", "all"],
)
def test_product_passes_where_its_integrations_are_deleted(copy: Path, what: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *what]
    command.append("--ignore=tests/unit/test_without_integrations.py")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        command,
        cwd=copy,
        env=environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
