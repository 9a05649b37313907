from __future__ import annotations

from pathlib import Path

import pytest

from bot.ask import subscriber


@pytest.fixture(autouse=True)
def _on_a_database(_database: None) -> None:
    """Scenarios run on either."""


@pytest.fixture(autouse=True)
def _hooks_of_each_test_are_a_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They keep their locks there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture(autouse=True)
def _replays_come_without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start waits until a producer is quiet; ours is in the same process, and does not hesitate."""
    monkeypatch.setattr(subscriber, "GAP", 0.03)
