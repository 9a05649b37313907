"""What is not imported before it is needed, so that the bot and its commands start sooner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.databases import make_tables

UNCONFIGURED = {
    "bot.show.callbacks", "bot.integrations.github", "bot.integrations.webhooks", "apprise", "icalendar", "mcp", "psycopg", "recurring_ical_events"
}  # fmt: skip
ELSEWHERE = {"bot.check", "bot.cli.app", "workspace.demo", "workspace", "httpx", "typer"}
SERVER = {"bot.web.server", "fastapi", "prometheus_client", "starlette", "uvicorn"}
SLACK = {"bot.home", "bot.slackapi", "aiohttp", "jinja2", "slack_bolt", "slack_sdk"}
SIGNING = {"bot.signing", "cryptography", "jwt"}
LIBRARIES = {"asyncio", "http.client", "markdown_it", "pydantic", "regex", "rich", "structlog"}


def imported(program: str, folder: Path, *words: str) -> set[str]:
    """Returns what a new interpreter has imported after `program`, started with `words`."""
    command = [sys.executable, "-c", f"import sys\ntry: {program}\nfinally: print('', *sys.modules)", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return set(ended.stdout.rpartition("\n ")[2].split())


@pytest.mark.parametrize(
    ("program", "without"),
    [
        ("import bot.app", UNCONFIGURED | ELSEWHERE | SERVER - {"prometheus_client"}),
        ("import bot.app, bot.web.server", UNCONFIGURED | ELSEWHERE),
        ("import bot.cli.app", UNCONFIGURED | SERVER | SLACK | SIGNING | LIBRARIES),
        ("clarify --help", UNCONFIGURED | SERVER | SLACK | SIGNING | LIBRARIES),
        ("clarify manifest", UNCONFIGURED | SERVER | SLACK | SIGNING | {"markdown_it", "rich", "structlog"}),
        ("clarify list", UNCONFIGURED | SERVER | SLACK),
    ],
)
def test_only_what_is_needed_is_imported(program: str, without: set[str], tmp_path: Path) -> None:
    (tmp_path / "clarify.toml").write_text('[slack]\nfallback_channel = "C1"\n')
    make_tables(tmp_path / "clarify.db")
    command, *words = program.split()
    found = (
        imported("from bot.cli import main; main()", tmp_path, *words)
        if command == "clarify"
        else imported(program, tmp_path)
    )
    assert found & {"bot.app", "bot.cli.app"}
    assert without & found == set()


def test_mcp_server_imports_nothing_of_the_bot(tmp_path: Path) -> None:
    found = imported("from bot.cli import agents; agents.run(['nonsense'])", tmp_path)
    ours = {
        name
        for name in found
        if name.partition(".")[0] in {"bot", "core", "templates", "workspace", "clarify"}
    }
    assert ours == {"bot", "bot.cli", "bot.cli.agents", "clarify"}
    assert not (LIBRARIES | ELSEWHERE) & found
