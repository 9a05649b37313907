from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer

from bot.cli import completion
from bot.cli.completion import complete_id, complete_open_id, complete_role
from tests.unit.bot.cli.kit import Prompt, ledger_of, long_ago


def _context(config: object = None) -> typer.Context:
    return cast("typer.Context", SimpleNamespace(params={"config": config}))


def test_completion_of_ids(prompt: Prompt) -> None:
    prompt.write(42, long_ago(42, 1, status="resolved"))
    prompt.ask(43, "engineer", "architect", "Storage: which?")
    assert complete_open_id(_context(), "") == [("CLR-43-001", "pending, Storage which")]
    assert {name for name, _ in complete_id(_context(), "CLR-4")} == {"CLR-42-001", "CLR-43-001"}
    assert complete_id(_context(), "CLR-9") == []


def test_completion_of_roles(prompt: Prompt) -> None:
    prompt.ask(42, "engineer", "architect")
    prompt.ask(43, "Engineer", "human")
    workflows = prompt.folder / ".agentx/workflows"
    (workflows / "a.toml").write_text('[[steps]]\nagent = "qa"\ncan_clarify = ["archivist", 7]\n')
    (workflows / "b.toml").write_text("[[steps")
    names = [name.casefold() for name, _ in complete_role(_context(), "")]
    assert sorted(names) == [
        "architect",
        "archivist",
        "engineer",
        "human",
        "product-manager",
        "qa",
        "reviewer",
    ]
    assert [name for name, _ in complete_role(_context(), "ARCH")] == ["architect", "archivist"]


@pytest.mark.parametrize(
    "evil",
    [
        "\\$(touch pwned)",
        "`touch pwned`",
        'x\\";touch pwned;\\"',
        "'$(id)'",
        "\x1b[2J",
        "a\nb",
        "*",
        "-rf",
        "a;b",
    ],
)
def test_completion_offers_nothing_that_a_shell_evaluates(prompt: Prompt, evil: str) -> None:
    record = long_ago(5, 1, topic=evil, status="pending") | {"from": evil, "to": f"{evil} {evil}"}
    prompt.write(5, record)
    (prompt.folder / ".agentx/workflows/feature.toml").unlink()
    assert complete_role(_context(), "") == []
    ((name, words),) = complete_open_id(_context(), "")
    assert name == "CLR-5-001"
    assert not set(words) & set("\\$`\"';*()[]<>&|!{}\n\x1b")


@pytest.mark.parametrize("trouble", ["no folder", "bad ledgers", "no configuration", "bad configuration"])
def test_completion_never_raises(tmp_path: Path, trouble: str) -> None:
    folder = tmp_path / ".agentx/state/clarifications"
    config: object = None
    if trouble != "no folder":
        folder.mkdir(parents=True)
        (folder / "issue-1.json").write_bytes(b"\xff{")
        odd = {"id": "CLR-2-001", "topic": [], "from": {}}
        (folder / "issue-2.json").write_text(ledger_of(2, 7, {"id": 8}, odd))
        (folder / "issue-3.json").mkdir()
    if trouble == "no configuration":
        config = tmp_path / "nope.toml"
    if trouble == "bad configuration":
        (tmp_path / "clarify.toml").write_text("[")
    with chdir(tmp_path):
        assert complete_id(_context(config), "CLR-3") == []
        assert complete_role(_context(config), "") == []
        assert len(complete_id(_context(config), "")) == (trouble == "bad ledgers")


def test_completion_looks_at_the_newest_files_only(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    for issue in range(1, 6):
        prompt.write(issue, long_ago(issue, 1))
        os.utime(prompt.path(issue), (issue, issue))
    monkeypatch.setattr(completion, "_FILES", 2)
    monkeypatch.setattr(completion, "_SECONDS", 60.0)
    assert [name for name, _ in complete_id(_context(), "")] == ["CLR-5-001", "CLR-4-001"]
    monkeypatch.setattr(completion, "_BYTES", prompt.path(5).stat().st_size)
    assert [name for name, _ in complete_id(_context(), "")] == ["CLR-5-001"]
    monkeypatch.setattr(completion, "_SECONDS", -1.0)
    assert complete_id(_context(), "") == []
