from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from bot.errors import ConfigurationError
from bot.responders import CommandResponder, responders_of
from bot.settings.environment import os_identity, read_environment
from bot.settings.load import load_settings, load_shell_settings, parse_settings, prepare_folders
from bot.settings.model import Settings

ENVIRON = {
    "SLACK_BOT_TOKEN": "xoxb-local-bot",
    "SLACK_APP_TOKEN": "xapp-local-app",
    "SLACK_SIGNING_SECRET": "0a1b2c3d",
    "PLANNER_TOKEN": "planner-secret",
    "PAGER_URL": "pagerduty://integration-key@routing-key",
}

FULL = """
[slack]
mode = "socket"
identity = "slack_id"
fallback_channel = "C9"
[http]
listen = "127.0.0.1:8787"
[[producers]]
name = "planner"
url = "http://127.0.0.1:8080/"
token_env = "PLANNER_TOKEN"
dialect = "auto"
[[routes]]
agent = "retirement-*"
channel = "C0123456789"
answerers = ["members", "U1", "S1"]
verbosity = "normal"
on_call = "platform"
[ledger]
directory = ".agentx/state/clarifications"
workflows = ".agentx/workflows"
archive_after = "30d"
[storage]
path = "clarify.db"
[monitor]
sla = "30m"
alarm = true
[pacing]
posts_per_second = 1.0
[[on_call]]
name = "platform"
users = ["U3"]
steps = [
  {after = "0s", notify = ["thread", "dm"], every = "5m"},
  {after = "15m", notify = ["apprise:PAGER_URL"]},
]
[identities]
U0123 = "user:folake"
"""


def parse(source: str, environ: dict[str, str] | None = None, file: Path = Path("clarify.toml")) -> Settings:
    return parse_settings(
        dedent(source).lstrip("\n"), file=file, environ=ENVIRON if environ is None else environ
    )


def problems(source: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        parse(source, environ)
    return caught.value.problems


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


def test_settings_show_no_secrets() -> None:
    settings = parse(FULL)
    for secret in ENVIRON.values():
        assert secret not in repr(settings)
        assert secret not in str(settings.model_dump())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('[slack]\nfallback_chanel = "C9"', 'clarify.toml:2: slack.fallback_chanel: unknown key; did you mean "fallback_channel"?'),
        ('[slac]\nmode = "socket"', 'clarify.toml:1: slac: unknown key; did you mean "slack"?'),
        ("[storage]\nzzz = 1", "clarify.toml:2: storage.zzz: unknown key; expected one of keep, path"),
        ('[slack]\nmode = "socks"', "clarify.toml:2: slack.mode: expected 'socket' or 'http'"),
        ('[slack]\nfallback_channel = "#ops"', 'slack.fallback_channel: "#ops" is no channel id; expected C… or G…'),
        ("slack = 3", "clarify.toml:1: slack: expected a table, such as [slack]"),
        ('[http]\nlisten = "8787"', 'clarify.toml:2: http.listen: expected "host:port"'),
        ('[http]\nlisten = "localhost:70000"', 'http.listen: expected "host:port" with a port from 0 (any) to 65535'),
        ('[[producers]]\nurl = "http://127.0.0.1:1"', "clarify.toml:1: producers[0].name: required, but not there"),
        ('[[producers]]\nname = "a b"', "producers[0].name: expected 1 to 64 letters, digits"),
        ('[[producers]]\nname = "a"\nurl = "ftp://x"', "clarify.toml:3: producers[0].url: expected a base URL that starts with http://"),
        ('[[producers]]\nname = "a"\nurl = "http://:1"', "producers[0].url: expected a base URL"),
        ('[[producers]]\nname = "a"\nurl = "http://h:99999"', "producers[0].url: expected a base URL such as"),
        ('[[producers]]\nname = "a"\nurl = "http://h/?a=1"', "producers[0].url: expected a base URL without ? and #"),
        ('[[producers]]\nname = "a"\nurl = "http://u:p@h"', "producers[0].url: has a user name or password in it"),
        ('[[producers]]\nname = "a"\ndialect = "minimal"', 'clarify.toml:1: producers[0].url: required with dialect "minimal"'),
        ('[[producers]]\nname = "a"\nurl = "http://h"\ndialect = "push"', 'clarify.toml:3: producers[0].url: not used with dialect "push"'),
        ('[[producers]]\nname = "a"\ndialect = "standart"', "producers[0].dialect: expected 'auto', 'standard', 'minimal' or 'push'"),
        (
            '[[producers]]\nname = "a"\nurl = "http://example.com"\ntoken_env = "PLANNER_TOKEN"',
            "clarify.toml:3: producers[0].url: would send the token of PLANNER_TOKEN unencrypted to example.com; expected https://",
        ),
        ('[[producers]]\nname = "a"\ntoken_env = "sk-123"', "producers[0].token_env: expected the name of an environment variable"),
        ('[[producers]]\nname = "a"\ntoken_env = "MISSING"', "producers[0].token_env: asks for MISSING, which is not set in the environment"),
        ('[[producers]]\nname = "a"\n[[producers]]\nname = "a"', 'clarify.toml:4: producers[1].name: "a" is already used; names must be unique'),
        (
            '[http]\nlisten = "0.0.0.0:1"\n[slack]\nfallback_channel = "C1"\n[[producers]]\nname = "a"',
            "producers[0].token_env: required: it pushes to us, and http.listen (0.0.0.0:1) is open",
        ),
        ('[[producers]]\nname = "a"\nagents = [""]', "producers[0].agents[0]: expected a pattern"),
        ('[[producers]]\nname = "a"\nagents = "a"', "producers[0].agents: expected a list"),
        ('[[routes]]\nagent = "a"', "clarify.toml:1: routes[0].channel: required, but not there"),
        ('[[routes]]\nchannel = "C1"\nagent = ""', "clarify.toml:3: routes[0].agent: expected a pattern"),
        ('[[routes]]\nchannel = "C1"\nagent = "a[b"', 'routes[0].agent: unclosed "["'),
        ('[[routes]]\nchannel = "C1"\nanswerers = []', "clarify.toml:3: routes[0].answerers: nobody could answer"),
        ('[[routes]]\nchannel = "C1"\nanswerers = "members"', "routes[0].answerers: expected a list"),
        ('[[routes]]\nchannel = "C1"\nanswerers = ["@ann"]', 'routes[0].answerers: "@ann" is none of "members", a user id'),
        ('[[routes]]\nchannel = "C1"\nverbosity = "loud"', "routes[0].verbosity: expected 'terse', 'normal' or 'detailed'"),
        ('[[routes]]\nchannel = "C1"\non_call = "x"', 'clarify.toml:3: routes[0].on_call: no [[on_call]] is named "x"; expected one of: none is defined'),
        ('[[routes]]\nchannel = "C1"\n[[routes]]\nchannel = "C2"', "clarify.toml:3: routes[1]: a second route without agent; routes[0] is the default"),
        ('[[routes]]\nagent = "*"\nchannel = "C1"\n[[routes]]\nagent = "b"\nchannel = "C1"', "routes[1].agent: never reached: routes[0] takes all of it"),
        ('[[routes]]\nagent = "a"\nchannel = "C1"', "slack.fallback_channel: required, unless a route without agent is there"),
        ('[ledger]\nmode = "0666"', 'ledger.mode: expected a mode in quotes: "0600", or "0660"'),
        ("[ledger]\nmode = 0o660", 'ledger.mode: expected a mode in quotes: "0600", or "0660"'),
        ('[ledger]\narchive_after = "-30d"', 'ledger.archive_after: expected a duration of zero or more, such as "30m"'),
        ('[ledger]\narchive_after = "99999999999999999d"', "ledger.archive_after: expected a duration of at most ten years"),
        ("[ledger]\ndirectory = 3", "ledger.directory: expected a path, as a string"),
        ('[monitor]\nsla = "0s"', "clarify.toml:2: monitor.sla: expected more than zero"),
        ("[monitor]\nsla = 30", "monitor.sla: expected a duration"),
        ('[monitor]\nheartbeat_every = "0s"', "clarify.toml:2: monitor.heartbeat_every: expected more than zero"),
        ('[monitor]\nheartbeat_env = "https://example.com/xapp-9"', "monitor.heartbeat_env: expected the name of an environment variable"),
        ('[monitor]\nheartbeat_env = "MISSING"', "clarify.toml:2: monitor.heartbeat_env: asks for MISSING, which is not set"),
        ('[monitor]\nheartbeat_env = "PLANNER_TOKEN"', "clarify.toml:2: monitor.heartbeat_env: asks for PLANNER_TOKEN, whose value should be a URL with http://"),
        ('[monitor]\npage_errors = ["fatal"]', "clarify.toml:2: monitor.page_errors[0]: expected 'transient', 'permanent'"),
        ('[monitor]\ndeadlock_order = ["a", "b", "a"]', "monitor.deadlock_order: expected each agent once"),
        ('[monitor]\nalarm = "often"', "monitor.alarm: expected a valid boolean"),
        ("[pacing]\nposts_per_second = 0", "pacing.posts_per_second: expected more than zero"),
        ("[pacing]\nposts_per_second = inf", "pacing.posts_per_second: expected a finite number"),
        ('[[on_call]]\nname = "p"', "clarify.toml:1: on_call[0]: expected exactly one of users, group, rotation; got none"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\ngroup = "S1"', "on_call[0]: expected exactly one of users, group, rotation; got users, group"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\npick = "first_present"', "clarify.toml:4: on_call[0].pick: only used with group"),
        ('[[on_call]]\nname = "p"\ngroup = "S1"\npick = "one"', "clarify.toml:4: on_call[0].pick: expected 'all' or 'first_present'"),
        ('[[on_call]]\nname = "p"\ngroup = "S1"\ntake_timeout = "0s"', "clarify.toml:4: on_call[0].take_timeout: expected more than zero"),
        ('[[on_call]]\nname = "p"\nusers = []', "on_call[0].users: expected at least one"),
        ('[[on_call]]\nname = "p"\nusers = ["ann"]', 'on_call[0].users[0]: "ann" is no user id'),
        ('[[on_call]]\nname = "p"\ngroup = "U1"', 'on_call[0].group: "U1" is no user group id; expected S…'),
        (
            '[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["dm"]}, {after = "1m", notify = ["dm"]}]',
            "clarify.toml:4: on_call[0].steps[1].after: expected later than the step before it",
        ),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = []}]', "on_call[0].steps[0].notify: expected at least one"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["sms"]}]', 'on_call[0].steps[0].notify[0]: expected "thread", "dm"'),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "5m", notify = ["dm"], every = "0s"}]', "steps[0].every: expected more than"),
        ('[[on_call]]\nname = "p"\nusers = ["U1"]\nsteps = [{after = "1m", notify = ["apprise:NOPE"]}]', "on_call[0].steps[0].notify: asks for NOPE, which is not set"),
        (
            '[[on_call]]\nname = "p"\n[on_call.rotation]\nstart = 2026-01-05\nshift = "7d"\nusers = ["U1"]\ntimezone = "Mars/Base"',
            'clarify.toml:7: on_call[0].rotation.timezone: unknown time zone "Mars/Base"',
        ),
        ('[identities]\nann = "user:ann"', 'clarify.toml:2: identities.ann: "ann" is no user id'),
        ('[identities]\nU1 = ""', "clarify.toml:2: identities.U1: expected at least 1 character"),
        ('[[webhooks]]\nurl = "x"\nsecret_env = "PLANNER_TOKEN"', "webhooks[0].url: expected a URL that starts with http"),
        ('[[webhooks]]\nurl = "http://a/b?c=d"', "webhooks[0].secret_env: required"),
        ('[[webhooks]]\nurl = "http://a/b"\nsecret_env = "PLANNER_TOKEN"\nevents = ["asked"]', "webhooks[0].events[0]: expected"),
        (
            '[[webhooks]]\nurl = "http://a/b"\nsecret_env = "PLANNER_TOKEN"\n' * 2,
            "webhooks[1].url: the same as that of webhooks[0]",
        ),
        ("[responders.architect]\nlimit = 3", "clarify.toml:2: responders.architect.limit: unknown key; expected one of command, http, people, timeout, token_env"),
        ("[responders.architect]\ntimeout = '3s'", "clarify.toml:1: responders.architect: expected exactly one of command, http, people; got none"),
        ('[responders.architect]\npeople = "general"', 'clarify.toml:2: responders.architect.people: "general" is none of a channel'),
        ('[responders.architect]\npeople = ["C1", "C2"]', "responders.architect.people: expected one channel at most"),
        ('[responders.architect]\ncommand = ""', "responders.architect.command: expected at least one"),
        ('[responders.architect]\ncommand = "a \'b"', "responders.architect.command: cannot be split into words"),
        ('[responders.architect]\nhttp = "http://agents.example.com"\ntoken_env = "PLANNER_TOKEN"', "clarify.toml:2: responders.architect.http: would send the token of PLANNER_TOKEN unencrypted to agents.example.com"),
        ('[responders.architect]\ncommand = "x"\ntoken_env = "PLANNER_TOKEN"', "clarify.toml:3: responders.architect.token_env: only sent to an http responder"),
        ('[responders.Human]\npeople = "C1"', "expected the role that agents ask"),
        ('[responders." human "]\npeople = "C1"', "expected the role that agents ask"),
        ('[responders.architect]\npeople = "C1"\n[responders.Architect]\npeople = "C2"', 'clarify.toml:3: responders.Architect: the same role as "architect"'),
        ('[github]\nrepo = "x"\ntoken_env = "PLANNER_TOKEN"', 'clarify.toml:2: github.repo: expected "owner/name"'),
        ('[github]\nrepo = "o/r"\ntoken_env = "NOPE"', "clarify.toml:3: github.token_env: asks for NOPE, which is not set"),
        ("[slack\nmode = 3", "clarify.toml: not valid TOML"),
    ],
)  # fmt: skip
def test_settings_name_what_is_wrong(source: str, expected: str) -> None:
    assert [line for line in problems(source) if expected in line], problems(source)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"SLACK_BOT_TOKEN": ""},
            "slack.mode: asks for SLACK_BOT_TOKEN, which is not set in the environment",
        ),
        (
            {"SLACK_APP_TOKEN": " "},
            "slack.mode: asks for SLACK_APP_TOKEN, which is not set in the environment",
        ),
        (
            {"SLACK_BOT_TOKEN": "xapp-9"},
            "slack.mode: asks for SLACK_BOT_TOKEN, whose value should begin with xoxb-",
        ),
        ({"PLANNER_TOKEN": ""}, "producers[0].token_env: asks for PLANNER_TOKEN, which is not set"),
        (
            {"SLACK_API_URL": "http://example.com/api"},
            "SLACK_API_URL (environment): would send the Slack token",
        ),
        ({"SLACK_API_URL": "slack"}, "SLACK_API_URL (environment): expected a base URL"),
        (
            {"PAGER_URL": "xapp-9://nobody"},
            "on_call[0].steps[1].notify: asks for PAGER_URL, whose value should be a URL that apprise can notify",
        ),
        ({"PAGER_URL": ""}, "on_call[0].steps[1].notify: asks for PAGER_URL, which is not set"),
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
        ("http://u:hush@127.0.0.1:81", True),
        ("ftp://hush", False),
        ("https://", False),
        ("https://hush:0", False),
        ("https://hush:99999", False),
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
        assert line.startswith(
            "clarify.toml:4: monitor.heartbeat_env: asks for BEAT, whose value should be a URL"
        )
        assert "hush" not in line


def test_settings_say_nothing_of_a_pager_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(0)
    secret = "slack://hush-hush"
    (line,) = problems(FULL, ENVIRON | {"PAGER_URL": secret})
    parse(FULL, ENVIRON | {"PAGER_URL": "json://user:hush@localhost"})
    assert "hush" not in line + caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("configured", "category", "pages"),
    [
        (None, "requires_user", True),
        (None, "permanent", True),
        (None, "unknown", True),
        (None, None, True),
        (None, "authorization", True),
        (None, "never heard of", True),
        (None, "transient", False),
        (None, "network", False),
        (None, "timeout", False),
        ('["permanent"]', "permanent", True),
        ('["permanent"]', "requires_user", False),
        ('["permanent"]', "unknown", False),
        ('["permanent"]', "authorization", False),
        ('["permanent"]', None, False),
        ('["network", "internal"]', "network", True),
        ('["network", "internal"]', "internal", True),
        ('["network", "internal"]', "policy", False),
        ("[]", "permanent", False),
    ],
)
def test_settings_page_errors(configured: str | None, category: str | None, pages: bool) -> None:
    table = f"\n[monitor]\npage_errors = {configured}" if configured else ""
    settings = parse(f'[slack]\nfallback_channel = "C1"{table}')
    assert settings.monitor.pages_error(category) is pages


@pytest.mark.parametrize("secret", ["whsec_", "whsec_%%"])
def test_settings_refuse_a_secret_that_signs_nothing(secret: str) -> None:
    hook = '[[webhooks]]\nurl = "http://a/b"\nsecret_env = "HOOK"'
    said = " ".join(problems(hook, ENVIRON | {"HOOK": secret}))
    assert "webhooks[0].secret_env: asks for HOOK, whose value should be a secret, with base64" in said
    assert "%%" not in said


def test_settings_on_call_of_a_group() -> None:
    settings = parse(
        """
        [slack]
        fallback_channel = "C1"
        [[on_call]]
        name = "p"
        group = "S1"
        pick = "first_present"
        take_timeout = "5m"
        [[on_call]]
        name = "q"
        users = ["U1"]
        """
    )
    first, second = settings.on_call
    assert (first.pick, first.take_timeout) == ("first_present", timedelta(minutes=5))
    assert (second.pick, second.take_timeout) == ("all", timedelta(minutes=15))
    assert (settings.monitor.heartbeat_every, settings.heartbeat_url) == (timedelta(minutes=1), None)


def test_settings_of_http_mode_ask_for_the_signing_secret() -> None:
    source = '[slack]\nmode = "http"\nfallback_channel = "C1"'
    lines = problems(source, {"SLACK_BOT_TOKEN": "xoxb-1"})
    assert lines == (
        "clarify.toml:2: slack.mode: asks for SLACK_SIGNING_SECRET, which is not set in the environment",
    )
    assert parse(source).secrets.signing_secret is not None


def test_settings_tell_everything_at_once_in_the_order_of_the_file() -> None:
    lines = problems(
        """
        [slack]
        mod = "socket"
        [[producers]]
        name = "a"
        [[producers]]
        name = "a"
        [monitor]
        sla = "soon"
        """,
        {},
    )
    numbers = [int(line.split(":")[1]) for line in lines]
    assert numbers == sorted(numbers)
    words = " ".join(lines)
    for part in ("slack.mod:", "producers[1].name", "monitor.sla", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN"):
        assert part in words


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", timedelta(0)),
        ("30m", timedelta(minutes=30)),
        ("1h30m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("2w", timedelta(days=14)),
    ],
)
def test_settings_durations(text: str, expected: timedelta) -> None:
    settings = parse(f'[slack]\nfallback_channel = "C1"\n[ledger]\narchive_after = "{text}"')
    assert settings.ledger.archive_after == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "planner.localhost", "[::1]"])
def test_settings_let_tokens_go_unencrypted_to_loopback(host: str) -> None:
    source = f"""
        [slack]
        fallback_channel = "C1"
        [[producers]]
        name = "a"
        url = "http://{host}:8080/base"
        token_env = "PLANNER_TOKEN"
        """
    assert parse(source).producers[0].url == f"http://{host}:8080/base"


@pytest.mark.parametrize(
    ("agent_id", "channel"),
    [
        ("retirement-planner", "C1"),
        ("Retirement-planner", "C3"),
        ("retirement-planner-2", "C1"),
        ("tax-7", "C2"),
        ("tax-x", "C3"),
        ("", "C3"),
    ],
)
def test_route_for_first_match_wins(agent_id: str, channel: str) -> None:
    settings = parse(
        """
        [[routes]]
        channel = "C3"
        [[routes]]
        agent = "retirement-*"
        channel = "C1"
        [[routes]]
        agent = "tax-[0-9]"
        channel = "C2"
        [[routes]]
        agent = "retirement-planner-?"
        channel = "C4"
        """
    )
    assert settings.route_for(agent_id).channel == channel


def test_route_for_falls_back_to_the_fallback_channel() -> None:
    route = parse('[slack]\nfallback_channel = "C9"').route_for("anybody")
    assert (route.channel, route.answerers, route.on_call) == ("C9", ("members",), None)


def test_settings_rotation_starts_at_midnight_of_a_date() -> None:
    settings = parse(
        """
        [slack]
        fallback_channel = "C1"
        [[on_call]]
        name = "p"
        [on_call.rotation]
        start = 2026-01-05
        shift = "7d"
        users = ["U1", "U2"]
        timezone = "Europe/Berlin"
        [[on_call]]
        name = "q"
        rotation = {start = 2026-01-05T09:00:00Z, shift = "12h", users = ["U1"]}
        """
    )
    first, second = (on_call.rotation for on_call in settings.on_call)
    assert first is not None
    assert first.start == datetime(2026, 1, 5)  # noqa: DTZ001 - local time of the rotation
    assert second is not None
    assert second.start == datetime(2026, 1, 5, 9, tzinfo=UTC)
    assert settings.on_call[0].named_users == ("U1", "U2")


def test_settings_accept_the_tables_of_later_parts() -> None:
    settings = parse(
        """
        [slack]
        fallback_channel = "C1"
        [storage]
        keep = "90d"
        [[webhooks]]
        url = "https://hooks.example.com/x"
        secret_env = "PLANNER_TOKEN"
        [responders.architect]
        command = ["answer", "--json"]
        time_limit = "30s"
        [responders.reviewer]
        people = "C2"
        [github]
        repository = "o/r"
        token_env = "PLANNER_TOKEN"
        """
    )
    assert set(settings.responders) == {"architect", "reviewer"}
    assert settings.responders["architect"].timeout == timedelta(seconds=30)
    assert settings.github is not None
    assert settings.github.repo == "o/r"
    assert settings.secrets.by_variable["PLANNER_TOKEN"].get_secret_value() == "planner-secret"


@pytest.mark.parametrize(
    ("people", "channel", "answerers"),
    [
        ('"C2"', "C2", ("members",)),
        ('"S1"', "C1", ("S1",)),
        ('["C2", "S1", "U1"]', "C2", ("S1", "U1")),
    ],
)
def test_settings_route_of_a_role_that_people_answer_for(
    people: str, channel: str, answerers: tuple[str, ...]
) -> None:
    settings = parse(
        f"""
        [[routes]]
        channel = "C1"
        verbosity = "terse"
        answerers = ["U9"]
        [responders.Product-Manager]
        people = {people}
        [responders.architect]
        command = "architect --answer 'in full'"
        """
    )
    route = settings.route_for("engineer", "product-manager")
    assert (route.channel, route.answerers, route.verbosity) == (channel, answerers, "terse")
    assert settings.route_for("engineer", "architect").answerers == ("U9",)
    assert settings.route_for("engineer").answerers == ("U9",)
    assert settings.responders["architect"].command == ("architect", "--answer", "in full")


def test_shell_settings_need_no_secrets(tmp_path: Path) -> None:
    file = tmp_path / "clarify.toml"
    file.write_text(FULL + "\n[responders.x]\nhttp = 'https://x.example'\ntoken_env = 'X_TOKEN'")
    settings = load_shell_settings(file, {"X_TOKEN": "secret"})
    assert settings.ledger.directory == tmp_path / ".agentx/state/clarifications"
    assert settings.by_variable["X_TOKEN"].get_secret_value() == "secret"
    assert "secret" not in repr(settings)


def test_shell_settings_know_every_secret_so_that_no_command_sees_it(tmp_path: Path) -> None:
    file = tmp_path / "clarify.toml"
    file.write_text(FULL + "\n[responders.x]\ncommand = './x'")
    environ = ENVIRON | {"HOME": "/home/agent"}
    settings = load_shell_settings(file, environ)
    built = responders_of(settings.responders, settings.by_variable, settings.folder, environ)
    assert isinstance(built["x"], CommandResponder)
    assert built["x"]._env == {"HOME": "/home/agent"}


def test_shell_settings_without_a_file_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_shell_settings(None, {})
    assert (settings.file, settings.folder) == (None, tmp_path)
    assert settings.ledger.workflows == tmp_path / ".agentx/workflows"
    with pytest.raises(ConfigurationError, match="no such file"):
        load_shell_settings(tmp_path / "other.toml", {})


def test_shell_settings_tell_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "clarify.toml"
    file.write_text("[ledger]\ndirctory = 'x'")
    with pytest.raises(ConfigurationError, match=r'ledger.dirctory: unknown key; did you mean "directory"'):
        load_shell_settings(file, {})


def test_settings_api_url_ends_with_a_slash() -> None:
    source = '[slack]\nfallback_channel = "C1"'
    url = "http://127.0.0.1:99/api"
    assert parse(source, ENVIRON | {"SLACK_API_URL": url}).slack_api_url == url + "/"


def test_load_settings_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"clarify\.toml: no such file; `clarify init` writes one"):
        load_settings(tmp_path / "clarify.toml", {})


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


def test_load_settings_finds_the_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clarify.toml").write_text(FULL)
    monkeypatch.chdir(tmp_path)
    settings = load_settings(None, ENVIRON)
    assert settings.file == tmp_path / "clarify.toml"
    assert settings.storage.path == tmp_path / "clarify.db"


def test_prepare_folders_creates_them(tmp_path: Path) -> None:
    settings = parse(FULL + "\n[responders.x]\npeople = 'C1'", file=tmp_path / "deep" / "clarify.toml")
    prepare_folders(settings)
    prepare_folders(settings)
    assert settings.ledger.directory.is_dir()
    assert settings.storage.path.parent.is_dir()


def test_prepare_folders_names_what_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / ".agentx").write_text("a file")
    with pytest.raises(ConfigurationError) as caught:
        prepare_folders(parse(FULL, file=tmp_path / "clarify.toml"))
    assert [line.split(": ")[1] for line in caught.value.problems] == ["ledger.directory", "ledger.workflows"]


def test_read_environment_is_a_copy() -> None:
    assert read_environment() == dict(os.environ)


def test_os_identity_is_not_what_a_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os_identity()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert os_identity() == before
    assert "somebody-else" not in before


def test_os_identity_of_a_user_without_a_name_is_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert os_identity().startswith("user:os/3999999999@")
