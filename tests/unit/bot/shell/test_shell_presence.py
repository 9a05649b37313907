from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

import pytest
from filelock import FileLock

from bot.delivery import store
from bot.shell.presence import bot_runs


def test_presence_of_a_bot_is_its_lock(tmp_path: Path) -> None:
    storage = tmp_path / "clarify.db"
    assert not bot_runs(storage)
    assert not list(tmp_path.iterdir())
    with FileLock(f"{storage}.lock"):
        assert bot_runs(storage)
    assert not bot_runs(storage)


def test_presence_of_another_that_looks_is_no_bot(tmp_path: Path) -> None:
    storage = tmp_path / "clarify.db"
    with Path(f"{storage}.lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not bot_runs(storage)


async def test_presence_looked_for_does_not_keep_a_bot_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "clarify.db"
    looking: list[IO[str]] = [Path(f"{storage}.lock").open("w")]  # noqa: ASYNC230, SIM115 - closed below
    fcntl.flock(looking[0], fcntl.LOCK_SH)

    class Tried(FileLock):
        """By the second try, whoever looked has gone."""

        def _acquire(self) -> None:
            super()._acquire()
            while looking:
                looking.pop().close()

    monkeypatch.setattr(store, "FileLock", Tried)
    await (await store.Store.open(storage)).close()
    assert not looking
