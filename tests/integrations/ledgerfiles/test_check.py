"""What `clarify check` says of the ledger folder."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from bot.checks import CheckResult
from bot.integrations.ledgerfiles.check import check_folder
from bot.integrations.ledgerfiles.folder import FolderSettings


@pytest.fixture
def settings(tmp_path: Path) -> FolderSettings:
    found = FolderSettings(tmp_path / "ledgers", 0o600, timedelta(days=30), tmp_path / "clarify.db", None)
    found.files(expected=False).close()
    return found


def checked(settings: FolderSettings) -> list[CheckResult]:
    return list(check_folder(settings, lambda name: name))


def test_what_is_no_ledger_though_it_is_named_like_one(settings: FolderSettings) -> None:
    folder = settings.folder
    names = ("issue-99999999999999999999.json", "issue-100001.json", "issue-88.json", "issue-89.2.json")
    for name in names[:2]:
        (folder / name).write_text("{}")
    (folder / "archive").mkdir()
    os.mkfifo(folder / names[2])
    os.mkfifo(folder / "archive" / names[3])
    told = [each.text for each in checked(settings) if not each.ok]
    assert [any(f"{name} is ignored" in each for each in told) for name in names] == [True] * 4
    assert len(told) == 4


def test_who_else_writes_and_reads_the_ledgers(settings: FolderSettings) -> None:
    folder = settings.folder
    assert not any("this machine" in each.text or "group" in each.text for each in checked(settings))
    folder.chmod(0o770)
    (folder / "issue-7.json").write_text('{"clarifications": []}')
    (folder / "issue-7.json").chmod(0o644)
    told = {each.text: each.ok for each in checked(settings)}
    assert any(ok and "its group can write" in text for text, ok in told.items())
    assert any(ok and "can read 1 of the ledgers" in text for text, ok in told.items())
    folder.chmod(0o777)
    (finding,) = (each for each in checked(settings) if not each.ok)
    assert "everyone on this machine can write" in finding.text


def test_folder_that_is_not_there_although_a_bot_ran(settings: FolderSettings) -> None:
    settings.storage.touch()
    (settings.folder / ".clarify").rmdir()
    (finding,) = checked(settings)
    assert not finding.ok
    assert "is missing or was replaced. Check that its disk is mounted" in finding.text
