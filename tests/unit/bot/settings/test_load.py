from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from bot.errors import ConfigurationError
from bot.responders import CommandResponder, responders_of
from bot.settings.load import load_settings, load_shell_settings, prepare_folders
from tests.unit.bot.settings.parsing import ENVIRON, FULL, parse


@pytest.mark.needs("apprise")
def test_settings_of_the_whole_example(tmp_path: Path) -> None:
    (tmp_path / "clarify.toml").write_text(FULL)
    settings = load_settings(tmp_path / "clarify.toml", ENVIRON)
    producer = settings.producers[0]
    assert producer.url == "http://127.0.0.1:8080"
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8787)
    assert settings.ledger.directory == tmp_path / ".agentx/state/clarifications"
    assert settings.storage.path == tmp_path / "clarify.db"
    assert settings.ledger.archive_after == timedelta(days=30)
    assert settings.monitor.sla == timedelta(minutes=30)
    assert settings.on_call_named("platform").steps[1].after == timedelta(minutes=15)
    assert settings.identities == {"U0123": "user:folake"}
    assert settings.slack_api_url == "https://slack.com/api/"
    token = settings.producer_token(producer)
    assert token is not None
    assert token.get_secret_value() == "planner-secret"
    route = settings.routes[0]
    assert route.answerers == ("members", "U1", "S1")
    assert (route.answerer_users, route.answerer_groups) == (("U1",), ("S1",))


def test_settings_of_the_smallest_file() -> None:
    settings = parse('[slack]\nfallback_channel = "C9"')
    assert settings.producers == ()
    assert settings.http.listen == "127.0.0.1:8787"
    assert settings.pacing.posts_per_second == 1.0
    assert settings.monitor.alarm
    assert settings.monitor.deadlock_order[0] == "product-manager"


@pytest.mark.needs("apprise")
def test_shell_settings_need_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "clarify.toml"
    file.write_text(FULL + "\n[responders.x]\nhttp = 'https://x.example'\ntoken_env = 'X_TOKEN'")
    settings = load_shell_settings(file, {"X_TOKEN": "s3cret"})
    assert settings.ledger.directory == tmp_path / ".agentx/state/clarifications"
    assert settings.by_variable["X_TOKEN"].get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings)


@pytest.mark.needs("apprise")
def test_shell_settings_know_every_secret_so_that_no_command_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "clarify.toml"
    file.write_text(FULL + "\n[responders.x]\ncommand = './x'")
    environ = ENVIRON | {"HOME": "/home/agent"}
    settings = load_shell_settings(file, environ)
    monkeypatch.setattr("bot.responders.read_environment", lambda: environ)
    built = responders_of(settings.responders, settings.by_variable, settings.folder)
    assert isinstance(built["x"], CommandResponder)
    assert built["x"].env == {"HOME": "/home/agent"}


def test_shell_settings_beside_a_database_without_a_file_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"clarify.toml: no such file"):
        load_shell_settings(None, {})
    (tmp_path / "clarify.db").touch()
    settings = load_shell_settings(None, {})
    assert (settings.file, settings.folder) == (None, tmp_path)
    assert settings.ledger.workflows == tmp_path / ".agentx/workflows"
    with pytest.raises(ConfigurationError, match="no such file"):
        load_shell_settings(tmp_path / "other.toml", {})


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_load_settings_of_an_unreadable_file(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "clarify.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(
        ConfigurationError, match=r"clarify\.toml: cannot be read: (not UTF-8|Is a directory)"
    ):
        load_settings(file, {})


@pytest.mark.needs("apprise")
def test_prepare_folders_creates_them(tmp_path: Path) -> None:
    settings = parse(FULL + "\n[responders.x]\npeople = 'C1'", file=tmp_path / "deep" / "clarify.toml")
    prepare_folders(settings)
    prepare_folders(settings)
    assert settings.ledger_folder is not None
    assert settings.ledger_folder.is_dir()
    assert settings.storage.path.parent.is_dir()


FOLDER = 'directory = ".agentx/state/clarifications"'


@pytest.mark.needs("apprise")
def test_ledgers_are_in_the_storage_without_a_folder(tmp_path: Path) -> None:
    settings = parse(FULL.replace(FOLDER, "directory = false"), file=tmp_path / "clarify.toml")
    prepare_folders(settings)
    assert settings.ledger_folder is None
    assert settings.state_folder == tmp_path / ".agentx/state"
    assert not settings.state_folder.exists()


@pytest.mark.needs("apprise")
@pytest.mark.parametrize("value", ["true", "0", "7", "[]"])
def test_folder_of_ledgers_is_a_path_or_false(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(FULL.replace(FOLDER, f"directory = {value}"), file=tmp_path / "clarify.toml")
    (line,) = caught.value.problems
    assert line.endswith("ledger.directory: expected a path, or false: no files")


@pytest.mark.needs("apprise")
def test_prepare_folders_names_what_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / ".agentx").write_text("a file")
    with pytest.raises(ConfigurationError) as caught:
        prepare_folders(parse(FULL, file=tmp_path / "clarify.toml"))
    assert [line.split(": ")[1] for line in caught.value.problems] == ["ledger.directory", "ledger.workflows"]
