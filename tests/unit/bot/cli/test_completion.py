"""`--help` of every command, and what the shell completes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from bot.cli import agents
from bot.cli.app import app
from tests.unit.bot.cli.kit import Prompt

COMMANDS: Any = get_command(app)


def completed(line: str) -> set[str]:
    """What a shell offers after `clarify LINE`."""
    asked = {"_CLARIFY_COMPLETE": "complete_bash", "COMP_WORDS": f"clarify {line}"}
    count = {"COMP_CWORD": str(len(line.split(" ")))}
    done = CliRunner(env=asked | count).invoke(app, [], prog_name="clarify", catch_exceptions=False)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_completion_offers_ids_and_agents(prompt: Prompt) -> None:
    prompt.asked("Which?")
    prompt.asked("Which one?", issue=43)
    prompt.fine("answer", "43", "This")
    assert completed("show ") == {"CLR-42-001"}
    assert completed("answer CLR-4") == {"CLR-42-001"}
    assert completed("answer CLR-5") == set()
    assert completed("list --from ") == {"engineer", "architect"}
    assert completed("list --to arch") == {"architect"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_p8_no_shell_evaluates_what_agents_wrote(prompt: Prompt, shell: str) -> None:
    prompt.asked("Which? \\$(touch pwned) `touch pwned` [/b] \"; touch pwned; ' <b>")
    env = {
        "_CLARIFY_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "clarify show ",
        "COMP_CWORD": "2",
    }
    env |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_WORD_TO_COMPLETE": ""}
    env["COMP_WORDS"] = "clarify show "
    done = CliRunner(env=env).invoke(app, [], prog_name="clarify", catch_exceptions=False)
    assert "CLR-42-001" in done.stdout
    offered = done.stdout.partition("CLR-42-001")[2]
    assert not set("\\$`[]<>;") & set(offered)


def test_p8_names_that_a_shell_would_read_are_not_offered(prompt: Prompt) -> None:
    prompt.ask(42, "$(touch pwned)", "architect")
    assert completed("list --from ") == {"architect"}


def test_completion_of_an_empty_folder_offers_nothing_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed("show ") == completed("list --from ") == set()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ask --ti", {"--timeout"}),
        ("ask --kind ", {"yes_no", "choice", "number", "text"}),
        ("approve --risk h", {"high"}),
        ("hook ", {"claude-code", "codex", "copilot"}),
        ("hook codex --d", {"--defer", "--dry-run"}),
        ("mcp --install ", {"claude-code", "codex"}),
    ],
)
def test_completion_offers_the_options_of_commands_that_agents_start(line: str, expected: set[str]) -> None:
    assert completed(line) == expected


@pytest.mark.parametrize("name", COMMANDS.commands)
def test_help_names_every_option_and_no_type_of_python(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in {"ask", "approve", "hook", "mcp"}:
        with suppress(SystemExit):
            agents.run([name, "--help"])
        shown = capsys.readouterr().out
    else:
        shown = CliRunner().invoke(app, [name, "--help"]).stdout
    command = COMMANDS.commands[name]
    assert not [each.name for each in command.params if getattr(each, "hidden", False)]
    assert "<" not in shown
    assert "--help" in shown


def test_help_of_hook_names_copilot_and_how_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Copilot" in CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["help", "hook"]).exit_code == 0
    with pytest.raises(SystemExit):
        agents.run(["hook", "--help"])
    shown = capsys.readouterr().out
    for option in ("--install", "--dry-run", "--project", "--tools"):
        assert option in shown
