from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from bot.errors import ConfigurationError
from bot.integrations import OURS
from bot.responders import CommandResponder, responders_of
from bot.settings.load import load_settings, load_shell_settings, os_identity, prepare_folders
from tests.unit.bot.settings.parsing import ENVIRON, FULL, parse, problems


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


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"SLACK_BOT_TOKEN": ""},
            "slack.mode: SLACK_BOT_TOKEN is not set in the environment",
        ),
        (
            {"SLACK_BOT_TOKEN": "xapp-9"},
            "slack.mode: SLACK_BOT_TOKEN must begin with xoxb-",
        ),
        ({"PLANNER_TOKEN": ""}, "producers[0].token_env: PLANNER_TOKEN is not set"),
        (
            {"SLACK_API_URL": "http://example.com/api"},
            "SLACK_API_URL (environment): would send the Slack token",
        ),
        ({"SLACK_API_URL": "slack"}, "SLACK_API_URL (environment): expected a base URL"),
        (
            {"PAGER_URL": "xapp-9://nobody"},
            "on_call[0].steps[1].notify: PAGER_URL must be a URL that apprise can notify",
        ),
    ],
)
def test_settings_name_the_variable_and_who_asked(environ: dict[str, str], expected: str) -> None:
    lines = problems(FULL, ENVIRON | environ)
    assert len(lines) == 1
    assert expected in lines[0]
    assert "xapp-9" not in lines[0]


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("https://watch.example.com/ping/7?key=hush", True),
        ("ftp://hush", False),
        ("https://hush:0", False),
        ("https://[hush", False),
        ("hush", False),
    ],
)
def test_settings_take_a_heartbeat_for_the_web_only(url: str, fits: bool) -> None:
    source = '[slack]\nfallback_channel = "C1"\n[monitor]\nheartbeat_env = "BEAT"\nheartbeat_every = "30s"'
    if fits:
        settings = parse(source, ENVIRON | {"BEAT": f" {url} "})
        assert settings.heartbeat_url is not None
        assert settings.heartbeat_url.get_secret_value() == url
        assert "hush" not in repr(settings)
    else:
        (line,) = problems(source, ENVIRON | {"BEAT": url})
        assert line.startswith("clarify.toml:4: monitor.heartbeat_env: BEAT must be a URL")
        assert "hush" not in line


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
def test_settings_say_nothing_of_a_pager_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    secret = "slack://hush-hush"
    (line,) = problems(FULL, ENVIRON | {"PAGER_URL": secret})
    parse(FULL, ENVIRON | {"PAGER_URL": "json://user:hush@localhost"})
    assert "hush" not in line + caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize("secret", ["whsec_", "whsec_%%"])
def test_settings_refuse_a_secret_that_signs_nothing(secret: str) -> None:
    hook = '[[webhooks]]\nurl = "http://a/b"\nsecret_env = "HOOK"'
    said = " ".join(problems(hook, ENVIRON | {"HOOK": secret}))
    assert "webhooks[0].secret_env: HOOK must be a secret, with base64" in said
    assert "%%" not in said


def test_settings_of_http_mode_ask_for_the_signing_secret() -> None:
    source = '[slack]\nmode = "http"\nfallback_channel = "C1"'
    lines = problems(source, {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert lines == ("clarify.toml:2: slack.mode: SLACK_SIGNING_SECRET is not set in the environment",)
    assert parse(source).signing_secret is not None


def test_settings_api_url_ends_with_a_slash() -> None:
    source = '[slack]\nfallback_channel = "C1"'
    url = "http://127.0.0.1:99/api"
    assert parse(source, ENVIRON | {"SLACK_API_URL": url}).slack_api_url == url + "/"


@pytest.mark.needs("apprise", "github", "ical", "pagerduty", "webhooks")
def test_settings_show_no_secrets() -> None:
    settings = parse(FULL)
    for secret in ENVIRON.values():
        assert secret not in repr(settings)
        assert secret not in str(settings.model_dump())


def test_os_identity_is_not_what_a_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os_identity()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert os_identity() == before
    assert "somebody-else" not in before


def test_os_identity_of_a_user_without_a_name_is_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert os_identity().startswith("user:os/3999999999@")


@pytest.mark.needs("ical", "pagerduty")
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('[slack]\nfallback_chanel = "C9"', 'clarify.toml:2: slack.fallback_chanel: unknown key; did you mean "fallback_channel"?'),
        ('[slac]\nmode = "socket"', 'clarify.toml:1: slac: unknown key; did you mean "slack"?'),
        ("[storage]\nzzz = 1", "clarify.toml:2: storage.zzz: unknown key; expected one of keep, listen_url_env, path, url_env"),
        ('[slack]\nmode = "socks"', "clarify.toml:2: slack.mode: expected 'socket' or 'http'"),
        ('[slack]\nfallback_channel = "#ops"', 'slack.fallback_channel: "#ops" is not a channel ID; expected C… or G…'),
        ("slack = 3", "clarify.toml:1: slack: expected a table, such as [slack]"),
        ('[http]\nlisten = "8787"', 'clarify.toml:2: http.listen: expected "host:port"'),
        ('[http]\nlisten = "localhost:70000"', 'http.listen: expected "host:port" with a port from 0 (any) to 65535'),
        ('[[producers]]\nurl = "http://127.0.0.1:1"', "clarify.toml:1: producers[0].name: required"),
        ('[[producers]]\nname = "a b"', "producers[0].name: expected 1 to 64 letters, digits"),
        ('[[producers]]\nname = "a"\nurl = "ftp://x"', "clarify.toml:3: producers[0].url: expected a base URL that starts with http://"),
        ('[[producers]]\nname = "a"\nurl = "http://h/?a=1"', "producers[0].url: expected a base URL without ? and #"),
        ('[[producers]]\nname = "a"\nurl = "http://u:p@h"', "producers[0].url: must not contain a user name or password"),
        ('[[producers]]\nname = "a"\ndialect = "minimal"', 'clarify.toml:1: producers[0].url: required with dialect "minimal"'),
        ('[[producers]]\nname = "a"\nurl = "http://h"\ndialect = "push"', 'clarify.toml:3: producers[0].url: not used with dialect "push"'),
        (
            '[[producers]]\nname = "a"\nurl = "http://example.com"\ntoken_env = "PLANNER_TOKEN"',
            "clarify.toml:3: producers[0].url: would send the token of PLANNER_TOKEN unencrypted to example.com; expected https://",
        ),
        ('[[producers]]\nname = "a"\ntoken_env = "sk-123"', "producers[0].token_env: expected the name of an environment variable"),
        ('[[producers]]\nname = "a"\ntoken_env = "MISSING"', "producers[0].token_env: MISSING is not set in the environment"),
        ('[[producers]]\nname = "a"\n[[producers]]\nname = "a"', 'clarify.toml:4: producers[1].name: "a" is already used; names must be unique'),
        (
            '[http]\nlisten = "0.0.0.0:1"\n[slack]\nfallback_channel = "C1"\n[[producers]]\nname = "a"',
            "producers[0].token_env: required: it pushes to the bot, and http.listen (0.0.0.0:1) is open",
        ),
        ('[[producers]]\nname = "a"\nagents = "a"', "producers[0].agents: expected a list"),
        ('[[routes]]\nagent = "a"', "clarify.toml:1: routes[0].channel: required"),
        ('[[routes]]\nchannel = "C1"\nagent = ""', "clarify.toml:3: routes[0].agent: expected a pattern"),
        ('[[routes]]\nchannel = "C1"\nagent = "a[b"', 'routes[0].agent: unclosed "["'),
        ('[[routes]]\nchannel = "C1"\nanswerers = []', "clarify.toml:3: routes[0].answerers: no one could answer"),
        ('[[routes]]\nchannel = "C1"\nanswerers = ["@ann"]', 'routes[0].answerers: "@ann" is not "members", a user ID'),
        ('[[routes]]\nchannel = "C1"\non_call = "x"', 'clarify.toml:3: routes[0].on_call: no [[on_call]] is named "x"; expected one of: none is defined'),
        ('[[routes]]\nchannel = "C1"\n[[routes]]\nchannel = "C2"', "clarify.toml:3: routes[1]: a second route without agent; routes[0] is the default"),
        ('[[routes]]\nagent = "*"\nchannel = "C1"\n[[routes]]\nagent = "b"\nchannel = "C1"', "routes[1].agent: never reached: routes[0] takes all of it"),
        ('[[routes]]\nagent = "a"\nchannel = "C1"', "slack.fallback_channel: required unless a route without agent exists"),
        ('[ledger]\nmode = "0666"', 'ledger.mode: expected a mode in quotes: "0600", or "0660"'),
        ('[ledger]\narchive_after = "-30d"', 'ledger.archive_after: expected a duration of zero or more, such as "30m"'),
        ('[ledger]\narchive_after = "99999999999999999d"', "ledger.archive_after: expected a duration of at most ten years"),
        ('[[on_call]]\nname = "p"\ngroup = "U1"', 'on_call[0].group: "U1" is not a user group ID; expected S…'),
        ('[monitor]\nsla = "0s"', "clarify.toml:2: monitor.sla: expected more than zero"),
        ('[monitor]\nheartbeat_env = "https://example.com/xapp-9"', "monitor.heartbeat_env: expected the name of an environment variable"),
        ('[monitor]\nheartbeat_env = "MISSING"', "clarify.toml:2: monitor.heartbeat_env: MISSING is not set"),
        ('[monitor]\nheartbeat_env = "PLANNER_TOKEN"', "clarify.toml:2: monitor.heartbeat_env: PLANNER_TOKEN must be a URL with http://"),
        ('[monitor]\npage_errors = ["fatal"]', "clarify.toml:2: monitor.page_errors[0]: expected 'transient', 'permanent'"),
        ('[monitor]\ndeadlock_order = ["a", "b", "a"]', "monitor.deadlock_order: expected each agent once"),
        ("[pacing]\nposts_per_second = 0", "pacing.posts_per_second: expected more than zero"),
        ('[[on_call]]\nname = "p"', "clarify.toml:1: on_call[0]: expected exactly one of users, group, rotation, ical_env, pagerduty; got none"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\ngroup = "S1"', "on_call[0]: expected exactly one of users, group, rotation, ical_env, pagerduty; got users, group"),
        ('[[on_call]]\nname = "p"\nical_env = "PAGER"\ngroup = "S1"', "on_call[0]: expected exactly one of users, group, rotation, ical_env, pagerduty; got group, ical_env"),
        ('[[on_call]]\nname = "p"\nical_env = "NOPE"', "clarify.toml:3: on_call[0].ical_env: NOPE is not set in the environment"),
        ('[[on_call]]\nname = "p"\nical_env = "PLANNER_TOKEN"', "clarify.toml:3: on_call[0].ical_env: PLANNER_TOKEN must be the address of an iCalendar feed"),
        ('[[on_call]]\nname = "p"\nical_env = "https://calendar.example.com/secret"', "on_call[0].ical_env: expected the name of an environment variable"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\npeople = {"Ann" = "U1"}', "clarify.toml:4: on_call[0].people: only used with ical_env or pagerduty"),
        ('[[on_call]]\nname = "p"\nical_env = "PAGER"\npeople = {"Ann" = "ann"}', 'on_call[0].people.Ann: "ann" is not a user ID'),
        ('[[on_call]]\nname = "p"\nical_env = "PAGER"\npeople = {"Ann Example" = "U1", "ann  EXAMPLE" = "U2"}', 'clarify.toml:4: on_call[0].people: "ann  EXAMPLE" is the same name as "Ann Example"'),
        ('[[on_call]]\nname = "p"\nical_env = "PAGER"\ntimezone = "Europe/Atlantis"', 'clarify.toml:4: on_call[0].timezone: unknown time zone "Europe/Atlantis"'),
        ('[[on_call]]\nname = "p"\npagerduty = {schedule = "https://x.pagerduty.com/schedules#P1", token_env = "PLANNER_TOKEN"}', "on_call[0].pagerduty.schedule: "),
        ('[[on_call]]\nname = "p"\npagerduty = {schedule = "P1", token_env = "NOPE"}', "clarify.toml:3: on_call[0].pagerduty.token_env: NOPE is not set"),
        ('[[on_call]]\nname = "p"\npagerduty = {schedule = "P1", token_env = "PLANNER_TOKEN", api_url = "http://pagerduty.example.com"}', "on_call[0].pagerduty.api_url: would send the token of PLANNER_TOKEN unencrypted"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\npick = "first_present"', "clarify.toml:4: on_call[0].pick: only used with group"),
        ('[[on_call]]\nname = "p"\ngroup = "S1"\npick = "first_present"\nannounce = true', "on_call[0].announce"),
        ('[[on_call]]\nname = "p"\nusers = ["ann"]', 'on_call[0].users[0]: "ann" is not a user ID'),
        (
            '[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["dm"]}, {after = "1m", notify = ["dm"]}]',
            "clarify.toml:4: on_call[0].steps[1].after: expected later than the step before it",
        ),
        (
            '[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["dm"], hours = "always"}]',
            'clarify.toml:4: on_call[0].steps[0].hours: expected hours such as "Mon-Fri 09:00-18:00, Sat 10:00-12:00"',
        ),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\ntimezone = "Mars/Base"', 'clarify.toml:4: on_call[0].timezone: unknown time zone "Mars/Base"'),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["sms"]}]', 'on_call[0].steps[0].notify[0]: expected "thread", "dm"'),
        (
            '[[on_call]]\nname = "p"\n[on_call.rotation]\nstart = 2026-01-05\nshift = "7d"\nusers = ["U1"]\ntimezone = "Mars/Base"',
            'clarify.toml:7: on_call[0].rotation.timezone: unknown time zone "Mars/Base"',
        ),
        ('[identities]\nann = "user:ann"', 'clarify.toml:2: identities.ann: "ann" is not a user ID'),
        ('[[webhooks]]\nurl = "x"\nsecret_env = "PLANNER_TOKEN"', "webhooks[0].url: expected a URL that starts with http"),
        ('[[webhooks]]\nurl = "http://a/b?c=d"', "webhooks[0].secret_env: required"),
        ('[[webhooks]]\nurl = "http://a/b"\nsecret_env = "PLANNER_TOKEN"\nevents = ["asked"]', "webhooks[0].events[0]: expected"),
        (
            '[[webhooks]]\nurl = "http://a/b"\nsecret_env = "PLANNER_TOKEN"\n' * 2,
            "webhooks[1].url: duplicates that of webhooks[0]",
        ),
        ('[[on_call]]\nname = "a"\nsteps = [\n {after = "0s", notify = ["dm"]},\n {after = "3m", notfy = ["dm"]},\n]', 'clarify.toml:5: on_call[0].steps[1].notfy: unknown key; did you mean "notify"?'),
        ('[[on_call]]\nname = "a"\nsteps = [\n {after = "0s", notify = ["dm"]},\n {after = "3m"},\n]', "clarify.toml:5: on_call[0].steps[1].notify: required"),
        ("[slack]\n[routes.x]\na = 1", "clarify.toml:2: routes: expected a list"),
        ("[responders.architect]\nlimit = 3", "clarify.toml:2: responders.architect.limit: unknown key; expected one of command, http, people, timeout, token_env"),
        ("[responders.architect]\ntimeout = '3s'", "clarify.toml:1: responders.architect: expected exactly one of command, http, people; got none"),
        ('[responders.architect]\npeople = "general"', 'clarify.toml:2: responders.architect.people: "general" is not a channel'),
        ('[responders.architect]\npeople = ["C1", "C2"]', "responders.architect.people: expected one channel at most"),
        ('[responders.architect]\ncommand = "a \'b"', "responders.architect.command: cannot be split into words"),
        ('[responders.architect]\nhttp = "http://agents.example.com"\ntoken_env = "PLANNER_TOKEN"', "clarify.toml:2: responders.architect.http: would send the token of PLANNER_TOKEN unencrypted to agents.example.com"),
        ('[responders.architect]\ncommand = "x"\ntoken_env = "PLANNER_TOKEN"', "clarify.toml:3: responders.architect.token_env: only sent to an http responder"),
        ('[responders.Human]\npeople = "C1"', "expected the role that agents ask"),
        ('[responders.architect]\npeople = "C1"\n[responders.Architect]\npeople = "C2"', 'clarify.toml:3: responders.Architect: the same role as "architect"'),
        ('[github]\nrepo = "x"\ntoken_env = "PLANNER_TOKEN"', 'clarify.toml:2: github.repo: expected "owner/name"'),
        ('[github]\nrepo = "o/r"\ntoken_env = "NOPE"', "clarify.toml:3: github.token_env: NOPE is not set"),
        ('[github]\nrepo = "https://github.com/o/r"\ntoken_env = "PLANNER_TOKEN"', 'github.repo: expected "owner/name"'),
        ('[github]\nrepo = "o/r"\ntoken_env = "PLANNER_TOKEN"\nmention = "ada"', 'github.mention: expected "@user"'),
        ('[github]\nrepo = "o/r"\ntoken_env = "PLANNER_TOKEN"\nmention = "@a/b/c"', 'github.mention: expected "@user"'),
        ('[github]\nrepo = "o/r"\ntoken_env = "PLANNER_TOKEN"\napi_url = "http://api.github.com"', "github.api_url: would send the token of PLANNER_TOKEN unencrypted"),
        ("[slack\nmode = 3", "clarify.toml:1:7: not valid TOML: the table's name has no closing ]"),
        ('[slack]\nmode "socket"', 'clarify.toml:2:6: not valid TOML: expected "=" after the key'),
        ("[slack]\nfallback_channel = C1", "clarify.toml:2:20: not valid TOML: expected a value: text in quotes"),
        ('[slack]\nmode = "socket', "clarify.toml:2:15: not valid TOML: the text has no closing quote"),
        ("[slack]\n[slack]", "clarify.toml:2:7: not valid TOML: this table is defined twice"),
        ('[ledger]\ndirectory = "C:\\path"', "clarify.toml:2:18: not valid TOML: write the backslash twice"),
    ],
)  # fmt: skip
def test_settings_name_what_is_wrong(source: str, expected: str) -> None:
    keys = {
        "github": "[github]",
        "webhooks": "[[webhooks]]",
        "ical": "ical_env",
        "pagerduty": "pagerduty",
        "apprise": "apprise:",
    }
    if gone := [name for name, key in keys.items() if key in source and name not in OURS]:
        pytest.skip(f"of an integration that was deleted: {gone}")
    assert [line for line in problems(source) if expected in line], problems(source)


def test_settings_never_repeat_a_secret_put_in_the_wrong_place() -> None:
    secret = "sk-live-12345"
    source = f"""
        [slack]
        fallback_channel = "C1"
        bot_token = "{secret}"
        [[producers]]
        name = "a"
        token_env = "{secret}"
        [[producers]]
        name = "b"
        url = "http://user:{secret}@example.com"
        """
    assert secret not in "".join(problems(source))
