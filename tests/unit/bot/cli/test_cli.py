from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from bot.cli.app import app
from bot.settings.load import parse_settings
from tests.kit.processes import Process, Said, clarify, ended

TOKENS = {"SLACK_BOT_TOKEN": "xoxb-very-secret", "SLACK_APP_TOKEN": "xapp-very-secret"}


async def run(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> Said:
    """Run the real command in `cwd`, to its end; the environment is `env` alone."""
    return await ended(await clarify(*arguments, cwd=cwd, env=env or {}))


async def test_cli_version(tmp_path: Path) -> None:
    done = await run("--version", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("clarify 0.")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nonsense"], "No such command"),
        (["run", "--log-level", "loud"], "log-level"),
        (
            ["run", "--config", "missing.toml"],
            "clarify: missing.toml: no such file; `clarify init` writes one",
        ),
        (["check"], "clarify: CONFIGURATION: clarify.toml: no such file"),
    ],
)
async def test_cli_usage_and_configuration_errors_exit_2(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    done = await run(*arguments, cwd=tmp_path)
    assert done.code == 2
    assert expected in done.err
    assert "Traceback" not in done.err


READING = (
    *("list", "show 42", "stale", "mine", "agents", "ready", "export", "log", "search keys"),
    pytest.param("digest", marks=pytest.mark.needs("digest")),
)


@pytest.mark.parametrize(
    "command",
    [
        *READING,
        *("keys", "backup copy", "restore copy", "check", "move --to ./other.db"),
        *("forget CLR-42-001 --yes", "request --from a --to b --issue 1 Why?"),
    ],
)
def test_cli_refuses_an_empty_folder_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "clarify.toml: no such file; `clarify init` writes one" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [*READING, "backup copy"])
def test_cli_reads_no_database_before_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clarify.toml").write_text('[slack]\nfallback_channel = "C1"\n')
    done = CliRunner().invoke(app, command.split(), catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{tmp_path}/clarify.db is not there: no bot has used it yet." in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["clarify.toml"]


def test_cli_verify_says_where_the_keys_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["verify", "-"], input="a.b.c", catch_exceptions=False)
    assert done.exit_code == 2
    assert "no clarify.toml in this folder. Give the bot's keys with --jwks." in done.stderr


def test_cli_ends_as_it_should_with_its_output_closed(tmp_path: Path) -> None:
    words = f"{sys.executable} -m bot.cli check --json --config {tmp_path}/none.toml >&-"
    done = subprocess.run(["sh", "-c", words], stderr=PIPE, text=True, check=False)
    assert (done.returncode, "unexpected" in done.stderr) == (2, False), done.stderr


def test_cli_says_in_a_sentence_that_the_disk_is_full(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bot.cli", "manifest"], stdout=full, stderr=PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "clarify: cannot write the output: the disk is full.\n")


async def test_cli_run_names_all_problems_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "clarify.toml").write_text('[slack]\nmod = "socket"\n[pacing]\nposts_per_second = -1\n')
    done = await run("run", cwd=tmp_path, env={"SLACK_BOT_TOKEN": "xoxb-very-secret"})
    assert done.code == 2
    fallback = "required unless a route without agent exists: other agents' events need a channel"
    assert done.err.splitlines() == [
        f"clarify: clarify.toml:1: slack.fallback_channel: {fallback}",
        "clarify.toml:1: slack.mode: SLACK_APP_TOKEN is not set in the environment",
        'clarify.toml:2: slack.mod: unknown key; did you mean "mode"?',
        "clarify.toml:4: pacing.posts_per_second: expected more than zero",
    ]


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
def test_example_is_accepted_with_all_that_is_commented_out() -> None:
    text = (Path(__file__).parents[4] / "clarify.example.toml").read_text()
    head, _, rest = text.partition("[slack]")
    # Of the ways to say whose turn it is, a policy has one.
    source = "[slack]" + re.sub(r"\n# (?!group|pick|rotation|ical_env|pagerduty|people = \{)", "\n", rest)
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    others = {
        "PLANNER_TOKEN": "a",
        "PAGER_URL": "json://localhost",
        "HEARTBEAT_URL": "https://localhost/beat",
        "REVIEWER_TOKEN": "b",
        "GITHUB_TOKEN": "c",
        "HOOK_SECRET": "d",
        "CALLBACK_SECRET": "e",
        "CLARIFY_SIGNING_KEY": key.decode(),
        "CLARIFY_DATABASE_URL": "postgresql://localhost/clarify",
        "CLARIFY_DATABASE_DIRECT": "postgresql://localhost/clarify",
    }
    settings = parse_settings(source, file=Path("clarify.toml"), environ=TOKENS | others)
    assert [route.agent for route in settings.routes] == ["retirement-*", None]
    assert settings.on_call_named("platform").steps[1].notify == ("apprise:PAGER_URL",)
    assert settings.identities == {"U0ANN": "user:ann"}
    assert {role: each.kind for role, each in settings.responders.items()} == {
        "architect": "command",
        "reviewer": "http",
        "product-manager": "people",
    }
    assert settings.integrations["github"] is not None
    assert [hook.events for hook in settings.integrations["webhooks"]] == [("clarification-escalated",)]
    assert settings.storage.keep == timedelta(days=90)
    assert head.startswith("#")


@asynccontextmanager
async def running_workspace(cwd: Path) -> AsyncIterator[tuple[Process, str]]:
    """Run `clarify workspace`; gives the process and the address of its API."""
    process = await clarify("workspace", cwd=cwd, env={})
    try:
        assert process.stdout is not None
        page, api = [(await process.stdout.readline()).decode().split()[-1] for _ in range(2)]
        assert api == page + "api/"
        yield process, api
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_cli_workspace_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    async with running_workspace(tmp_path) as (process, api), httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{api}auth.test")).status_code == 200
        process.send_signal(number)
        assert await process.wait() == 0


async def test_cli_workspace_names_a_port_that_is_taken(tmp_path: Path) -> None:
    async with running_workspace(tmp_path) as (_, api):
        port = api.split("/")[2].partition(":")[2]
        for command in ("workspace", "demo"):
            done = await run(command, "--port", port, cwd=tmp_path)
            assert done.code == 1
            assert f"clarify: cannot use port {port}" in done.err


def test_cli_unexpected_error_is_logged_without_secrets(tmp_path: Path) -> None:
    code = (
        "import bot.cli, bot.settings.load\n"
        "def broken(*_): raise ZeroDivisionError('xoxb-very-secret')\n"
        "bot.settings.load.load_settings = broken\n"
        "bot.cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "check"],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "unexpected error" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "very-secret" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["check"], ["run"], ["list", "--json"], ["keys"], ["move", "--to", "postgresql://db-1/clarify"]],
)
@pytest.mark.parametrize("missing", ["the driver", "its library"])
def test_cli_without_the_driver_says_what_to_install(
    tmp_path: Path, arguments: list[str], missing: str
) -> None:
    storage = "" if arguments[0] == "move" else '[storage]\nurl_env = "DATABASE"\n'
    (tmp_path / "clarify.toml").write_text(f'[slack]\nfallback_channel = "C1"\n{storage}')
    environ = {"DATABASE": "postgresql://db-1/clarify", "SLACK_API_URL": "http://127.0.0.1:9/api/"}
    code = {
        "the driver": "import sys; sys.modules['psycopg'] = None",
        "its library": "import sys, ctypes.util; ctypes.util.find_library = lambda _: None\n"
        "sys.modules |= {'psycopg_c': None, 'psycopg_binary': None}",
    }[missing] + "\nimport bot.cli; bot.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env={**os.environ, **TOKENS, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("run pip install '.[postgres]' in the clone of clarify-bot.\n")
    assert "unexpected" not in done.stderr
    assert ('"message": "PostgreSQL' in done.stdout) == ("--json" in arguments)
