"""The integration of docs/develop/integrations.md, built and installed as a stranger would; and what strangers do wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from bot import integrations
from bot.checks import CheckResult
from bot.errors import ConfigurationError
from bot.integrated import check_integrations
from bot.settings.load import parse_settings
from bot.settings.model import Settings
from tests.docs.snippets import example_files
from tests.kit.receivers import Receiver, receiving
from tests.kit.world import World, config, environment, url_of
from tests.scenario.test_questions import Asker
from workspace.seed import AGENTS, FOLAKE

TABLE = '[teams]\nwebhook_env = "TEAMS_WEBHOOK"\n'


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the example was installed from its wheel."""
    folder = tmp_path_factory.mktemp("example")
    for name, text in example_files().items():
        (folder / name).write_text(text)

    def pip(*arguments: object) -> None:
        words = [sys.executable, "-m", "pip", *map(str, arguments), "--quiet", "--no-deps", "--no-index"]
        subprocess.run(words, check=True, timeout=120)

    pip("wheel", folder, "--no-build-isolation", "--wheel-dir", folder)
    (built,) = folder.glob("*.whl")
    pip("install", built, "--target", folder / "installed")
    return folder / "installed"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> Path:
    return _installed(monkeypatch, wheel)


def _installed(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "clarify_teams", raising=False)
    integrations._theirs.cache_clear()
    monkeypatch.setattr(
        integrations, "_theirs", integrations._theirs.__wrapped__
    )  # nothing of it outlives the test
    return folder


@pytest.fixture
async def channel() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def _escalated(stage: World, http: httpx.AsyncClient) -> str:
    asked = await Asker(http).ask(question="Which database?")
    await stage.workspace.command(FOLAKE, AGENTS, "/clarify", f"escalate {asked['id']} it is urgent")
    return str(asked["id"])


@pytest.mark.usefixtures("installed")
async def test_example_tells_of_an_escalation(stage: World, channel: Receiver) -> None:
    stage.environ["TEAMS_WEBHOOK"] = channel.url
    async with (
        stage.bot(config(stage.producer.url) + TABLE) as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        clarification = await _escalated(stage, http)
        await stage.until(lambda: channel.got)
        (got,) = channel.got
        assert got.said == {"text": f"local waits for someone: Which database? ({clarification})"}
        label = 'integration="teams",outcome="sent",party="Teams"'
        assert f"clarify_integration_requests_total{{{label}}} 1.0" in (await http.get("/metrics")).text
        assert (await http.get("/readyz")).json()["degraded"] == []


@pytest.mark.usefixtures("installed")
async def test_example_is_checked(stage: World) -> None:
    stage.environ["TEAMS_WEBHOOK"] = "http://teams.example"
    (result,) = await _checked(stage)
    assert next(iter(result.lines)) == "✗ wrong  teams: TEAMS_WEBHOOK holds no https:// address"
    stage.environ["TEAMS_WEBHOOK"] = "https://teams.example"
    (result,) = await _checked(stage)
    assert result.ok


async def _checked(stage: World) -> list[CheckResult]:
    return [each async for each in check_integrations(_settings(stage)) if each.subject == "teams"]


@pytest.mark.usefixtures("installed")
def test_table_of_an_integration_is_checked_with_the_rest(stage: World) -> None:
    with pytest.raises(ConfigurationError) as refused:
        _settings(stage, '[teams]\nwebhok_env = "TEAMS_WEBHOOK"\n')
    told = str(refused.value)
    assert 'teams.webhok_env: unknown key; did you mean "webhook_env"?' in told
    assert "teams.webhook_env: required" in told
    assert "TEAMS_WEBHOOK is not set in the environment" in told


def test_table_without_its_integration_is_an_unknown_key(stage: World) -> None:
    stage.environ["TEAMS_WEBHOOK"] = "https://teams.example"
    with pytest.raises(ConfigurationError, match="teams: unknown key"):
        _settings(stage, TABLE)


def _settings(stage: World, more: str = TABLE) -> Settings:
    text = config(stage.producer.url) + more
    return parse_settings(text, file=stage.file, environ=environment(stage.workspace) | stage.environ)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, wheel: Path, tmp_path: Path, where: str) -> str:
    """The example is installed with a defect where a line begins so."""
    module = shutil.copytree(wheel, tmp_path / "broken") / "clarify_teams.py"
    text, count = re.subn(
        rf"^( *){re.escape(where)}.*",
        rf"\g<0>\n\1{'' if '=' in where else '    '}raise RuntimeError('a defect')",
        module.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    module.write_text(text)
    _installed(monkeypatch, module.parent)
    return where


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("integration =", "teams cannot be loaded (RuntimeError: a defect)"),
        ("def follows", "teams cannot be started (RuntimeError); see the log"),
        ("def wants", "teams skipped CLR-"),
        ("def owes", "teams skipped CLR-"),
        ("async def send", ""),
        ("async def check", ""),
    ],
)
async def test_defect_of_an_integration_stops_nothing_else(
    stage: World, channel: Receiver, broken: str, told: str
) -> None:
    stage.environ |= {"TEAMS_WEBHOOK": "https://teams.example", "HOOK_SECRET": "secret"}
    more = TABLE + f'[[webhooks]]\nurl = "{channel.url}"\nsecret_env = "HOOK_SECRET"\n'
    results = [each async for each in check_integrations(_settings(stage, more))]
    if broken != "integration =":  # what it raises once it has the secrets may quote them
        assert "a defect" not in str(results)
    assert [each.ok for each in results if each.subject.startswith("webhooks")] == [True]
    assert [each.ok for each in results if each.subject == "teams"] == [
        broken not in {"integration =", "async def check"}
    ]
    async with (
        stage.bot(config(stage.producer.url) + more) as bot,
        httpx.AsyncClient(base_url=url_of(bot), timeout=60) as http,
    ):
        clarification = await _escalated(stage, http)
        await stage.until(lambda: f"escalated {clarification}" in channel.events)
        ready = await http.get("/readyz")
        assert ready.status_code == 200
        assert told in str(ready.json()["degraded"])
        assert bool(ready.json()["degraded"]) is bool(told)
