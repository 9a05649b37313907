from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from filelock import FileLock
from pydantic import SecretStr
from typer.testing import CliRunner

from bot.ask.client import check_producers
from bot.check import _signing_key, check_all, check_machine
from bot.checks import CheckResult, right, summary, warning
from bot.cli.app import app
from bot.oncall.build import on_call_sources
from bot.oncall.feeds import check_feeds
from bot.people.check import EMAIL_SCOPE, NEEDED_SCOPES, check_layouts, check_slack, slack_client
from bot.people.directory import People
from bot.settings.load import parse_settings, prepare_folders
from bot.settings.model import HttpSettings, Settings
from bot.signing import KeyPlace, jwk_of
from tests.kit.served import served
from workspace import Workspace
from workspace.demo.producer import DemoProducer
from workspace.seed import (
    ADE,
    AGENTS,
    APP_TOKEN,
    ARCHIVED,
    BOT_TOKEN,
    FALLBACK,
    FOLAKE,
    GIO,
    GONE,
    ONCALL,
    PLATFORM,
    RANDOM,
    SIGNING_SECRET,
    USE_AS_ANSWER,
)

Configure = Callable[..., Settings]
LIKE_SLACKS = "0123456789abcdef0123456789abcdef"
PUSHING = """
[slack]
fallback_channel = "C0FALLBACK"
[[producers]]
name = "first"
token_env = "FIRST"
[[producers]]
name = "second"
token_env = "SECOND"
"""


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    async with Workspace() as started:
        yield started


@pytest.fixture
def configure(tmp_path: Path, workspace: Workspace) -> Configure:
    def build(toml: str = "", *, environ: dict[str, str] | None = None, fallback: str = FALLBACK) -> Settings:
        listen = "" if "[http]" in toml else '[http]\nlisten = "127.0.0.1:0"\n'
        settings = parse_settings(
            f'[slack]\nfallback_channel = "{fallback}"\n{listen}{toml}',
            file=tmp_path / "clarify.toml",
            environ={
                "SLACK_API_URL": workspace.api_url,
                "SLACK_BOT_TOKEN": BOT_TOKEN,
                "SLACK_APP_TOKEN": APP_TOKEN,
                "TOKEN": "sesame",
            }
            | (environ or {}),
        )
        prepare_folders(settings)
        return settings

    return build


async def wrong(settings: Settings) -> list[str]:
    found = [finding async for finding in check_all(settings)]
    assert all(finding.fix for finding in found if not finding.ok), "each wrong thing tells how to mend it"
    return [f"{finding.subject}: {finding.text}" for finding in found if not finding.ok]


def test_check_tries_redaction_against_texts_that_slow_it_down(tmp_path: Path) -> None:
    usual = ["sk-[a-z0-9]{20,}", "[A-Za-z0-9.-]{1,64}@[A-Za-z0-9.-]{1,255}[.][a-z]{2,24}"]
    slow = ["[A-Za-z0-9.-]+@[A-Za-z0-9.-]+[.][a-z]{2,}", "(x+x+)+y"]
    found = [
        each
        for each in check_machine(pushing(tmp_path, "b", f"redact = {[*usual, *slow]}"))
        if "redact" in each.subject
    ]
    assert [(each.ok, each.subject) for each in found] == [
        (False, "producers[0].redact[2]"),
        (False, "producers[0].redact[3]"),
    ]
    assert all("takes more than 1 s" in each.text for each in found)
    (fine,) = (
        each
        for each in check_machine(pushing(tmp_path, "b", f"redact = {usual}"))
        if "redact" in each.subject
    )
    assert (fine.ok, fine.subject) == (True, "producers[0].redact")


async def test_check_of_a_right_configuration(configure: Configure) -> None:
    async with DemoProducer(token="sesame") as producer:
        settings = configure(
            f"""
            [[producers]]
            name = "demo"
            url = "{producer.url}"
            token_env = "TOKEN"
            [[producers]]
            name = "pusher"
            [[routes]]
            channel = "{AGENTS}"
            answerers = ["{ONCALL}", "{PLATFORM}"]
            on_call = "platform"
            [[on_call]]
            name = "platform"
            users = ["{ONCALL}"]
            """
        )
        found = [finding async for finding in check_all(settings)]
    assert [finding for finding in found if not finding.ok] == []
    subjects = [finding.subject for finding in found if finding.subject != "ledger.directory"]
    assert subjects == [
        "configuration",
        "storage.path",
        "trust",
        "http.listen",
        "SLACK_BOT_TOKEN",
        "SLACK_BOT_TOKEN scopes",
        "Slack's clock",
        "SLACK_APP_TOKEN",
        "slack.fallback_channel",
        "routes[0].channel",
        "routes[0].answerers",
        "routes[0].answerers",
        "on_call[0].users",
        "messages and windows",
        "producer demo",
        "producer demo clock",
        "producer pusher",
    ]


ONLY_ADE = f"""
[[routes]]
agent = "b"
channel = "{AGENTS}"
[[routes]]
channel = "{AGENTS}"
answerers = ["{ADE}"]
four_eyes = true
[[producers]]
name = "a"
requested_by = "{ADE}"
[[producers]]
name = "b"
"""


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (f'[[routes]]\nchannel = "{RANDOM}"', f"routes[0].channel: the bot is not in {RANDOM} (#random)"),
        (f'[[routes]]\nchannel = "{ARCHIVED}"', f"routes[0].channel: {ARCHIVED} (#old-questions) is archived"),
        ('[[routes]]\nchannel = "C0NOWHERE"', "routes[0].channel: C0NOWHERE: Slack says channel_not_found"),
        (f'[[routes]]\nchannel = "{AGENTS}"\nanswerers = ["U0NOBODY"]', "routes[0].answerers: U0NOBODY: Slack says user_not_found"),
        (f'[[routes]]\nchannel = "{AGENTS}"\nanswerers = ["{GONE}"]', f"routes[0].answerers: {GONE} (Gone) is deactivated"),
        (
            f'[[routes]]\nchannel = "{AGENTS}"\nanswerers = ["{ADE}", "{ONCALL}"]\napprovals = {{high = 3}}',
            f"routes[0].approvals: only 2 may answer in {AGENTS}, but 3 people must approve",
        ),
        (
            f'[[routes]]\nchannel = "{AGENTS}"\nfour_eyes = true\n[[producers]]\nname = "a"',
            "routes[0].four_eyes: a may ask here without `requested_by`",
        ),
        (
            f'[[routes]]\nchannel = "{AGENTS}"\nfour_eyes = true',
            "routes[0].four_eyes: no producer that may ask here has `requested_by`",
        ),
        (
            ONLY_ADE,
            f"routes[1].four_eyes: only 0 may approve what is asked for {ADE} in {AGENTS}; 1 must",
        ),
        (
            f'[[routes]]\nchannel = "{AGENTS}"\n[[producers]]\nname = "a"\nrequested_by = "{GONE}"',
            f"producers[0].requested_by: {GONE} (Gone) is deactivated",
        ),
        (f'[[on_call]]\nname = "p"\nusers = ["{GONE}"]', f"on_call[0].users: {GONE} (Gone) is deactivated"),
        ('[[on_call]]\nname = "p"\nusers = ["U0OTHERBOT"]', "on_call[0].users: U0OTHERBOT (Other bot) is a bot"),
        ('[[on_call]]\nname = "p"\ngroup = "S0NONE"', "on_call[0].group: S0NONE: Slack says no_such_subteam"),
        (f'[[on_call]]\nname = "p"\ngroup = "{PLATFORM}"', f"on_call[0].group: user group {PLATFORM} has no members"),
        (
            f'[[on_call]]\nname = "p"\nusers = ["{ONCALL}"]\nsteps = [{{after = "0s", notify = ["channel:{RANDOM}"]}}]',
            f"on_call[0].steps: the bot is not in {RANDOM} (#random)",
        ),
    ],
)  # fmt: skip
async def test_check_names_what_is_wrong_in_slack(
    configure: Configure, workspace: Workspace, toml: str, expected: str
) -> None:
    workspace.context.state.groups[PLATFORM].users.clear()
    assert await wrong(configure(toml)) == [expected]


@pytest.mark.needs("apprise")
@pytest.mark.parametrize("missing", [True, False])
async def test_check_tells_what_pagers_are_for_and_nothing_else(configure: Configure, missing: bool) -> None:
    settings = configure(
        f"""
        [monitor]
        heartbeat_env = "BEAT"
        [[on_call]]
        name = "p"
        users = ["{ONCALL}"]
        steps = [
          {{after = "0s", notify = ["apprise:PAGER", "dm"]}},
          {{after = "1m", notify = ["apprise:PAGER", "apprise:MAIL"]}},
          {{after = "2m", notify = ["dm"], hours = "Mon 09:00-18:00, 20:00-06:00"}},
        ]
        timezone = "Europe/Berlin"
        """,
        environ={
            "PAGER": "pagerduty://hush@hush",
            "MAIL": "mailto://ann:hush@gmail.com",
            "BEAT": "https://watch.example.com/hush",
        },
    )
    if missing:  # as it would be with another release of apprise, which may not know the service any more
        settings.by_variable["PAGER"] = SecretStr("gone://hush")
    found = {f"{f.subject}: {f.text}" for f in check_machine(settings)}
    pager = "not a URL that apprise can notify" if missing else "PAGER notifies through Pager Duty"
    assert any(pager in line for line in found)
    assert "on_call[0].steps: MAIL notifies through E-Mail" in found
    hours = "on_call[0].steps[2]: dm only Mon 09:00-18:00, 20:00-06:00, on the clocks of Europe/Berlin"
    assert hours in found
    assert "monitor.heartbeat_env: BEAT holds a web address" in found
    assert "hush" not in " ".join(found)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLACK_BOT_TOKEN": "xoxb-wrong"}, "SLACK_BOT_TOKEN: Slack says invalid_auth"),
        (
            {"SLACK_API_URL": "http://127.0.0.1:9/api/"},
            "SLACK_BOT_TOKEN: Slack at 127.0.0.1:9 cannot be reached: no connection (ClientConnectorError)",
        ),
    ],
)
async def test_check_names_tokens_that_do_not_work(
    configure: Configure, environ: dict[str, str], expected: str
) -> None:
    assert await wrong(configure(environ=environ)) == [expected]


async def test_check_names_missing_scopes(configure: Configure, workspace: Workspace) -> None:
    tokens = workspace.context.state.tokens
    tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {"im:write", "users:read.email", "commands"}
    assert await wrong(configure()) == ["SLACK_BOT_TOKEN scopes: missing: commands, im:write"]
    tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {"channels:read"}
    # What follows from it is not told: the fallback channel cannot be looked at either.
    assert await wrong(configure()) == ["SLACK_BOT_TOKEN scopes: missing: channels:read, commands, im:write"]


@pytest.mark.parametrize("rule", ["approvals = 2", "four_eyes = true"])
async def test_check_names_the_scope_that_tells_two_accounts_of_one_person(
    configure: Configure, workspace: Workspace, rule: str
) -> None:
    tokens = workspace.context.state.tokens
    tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {"users:read.email"}
    found = await wrong(configure(f'[[routes]]\nchannel = "{AGENTS}"\n{rule}'))
    assert "SLACK_BOT_TOKEN scopes: missing: users:read.email" in found


async def test_check_counts_two_accounts_of_one_person_once(
    configure: Configure, workspace: Workspace
) -> None:
    workspace.change_user(GIO, email="Ade@Local.example")
    found = await wrong(
        configure(f'[[routes]]\nchannel = "{AGENTS}"\nanswerers = ["{ADE}", "{GIO}"]\napprovals = 2')
    )
    assert found == [f"routes[0].approvals: only 1 may answer in {AGENTS}, but 2 people must approve"]


async def test_check_notes_an_app_that_may_read_history_once_a_minute(
    configure: Configure, workspace: Workspace
) -> None:
    settings = configure(f'[[routes]]\nchannel = "{AGENTS}"')
    assert "history" not in [finding.subject async for finding in check_all(settings)]
    workspace.faults.add("conversations.history", "429:60")
    found = {finding.subject: finding async for finding in check_all(settings)}["history"]
    assert found.ok
    assert "allow this app one a minute" in found.text
    assert "again in 60 s" in found.text
    assert found.fix


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (("conversations.info", "429:0.1", 2), None),
        (("conversations.info", "429:0.1", 3), f"slack.fallback_channel: {FALLBACK}: Slack says ratelimited"),
        (("auth.test", "5xx:503", 1), "SLACK_BOT_TOKEN: Slack cannot be reached: HTTP 503"),
        (("conversations.*", "5xx:503", 100), "slack.fallback_channel: Slack cannot be reached: HTTP 503"),
    ],
)
async def test_check_waits_for_slack_and_tells_once_that_it_is_away(
    configure: Configure, workspace: Workspace, fault: tuple[str, str, int], expected: str | None
) -> None:
    workspace.faults.add(*fault)
    found = await wrong(configure(f'[[routes]]\nchannel = "{AGENTS}"'))
    assert found == ([expected] if expected else [])


async def test_check_names_a_clock_that_is_off(tmp_path: Path, configure: Configure) -> None:
    async with DemoProducer() as producer:
        late = format_datetime(datetime.now(UTC) - timedelta(seconds=95), usegmt=True)

        async def handler(request: web.Request) -> web.Response:
            response = web.json_response(
                {"type": "subscription.rejected", "reason_code": "rate_limit"}, status=400
            )
            response.headers["Date"] = late
            return response

        async with served(handler) as url:
            lines = await wrong(
                configure(
                    f'[[producers]]\nname = "a"\nurl = "{url}"\n[[producers]]\nname = "b"\nurl = "{producer.url}"'
                )
            )
    assert len(lines) == 2
    assert "rate_limit" in lines[0]
    assert lines[1].endswith("s behind ours")


async def test_check_names_a_producer_that_is_not_there(configure: Configure) -> None:
    (line,) = await wrong(configure('[[producers]]\nname = "a"\nurl = "http://127.0.0.1:9"'))
    assert line.startswith("producer a: http://127.0.0.1:9: cannot connect")


@pytest.mark.parametrize(
    ("dialect", "token_env", "expected"),
    [
        ("auto", "", "refuses our token (HTTP 401)"),
        ("standard", 'token_env = "WRONG"', "refuses our token (HTTP 401)"),
        ("minimal", 'token_env = "TOKEN"', "answers with HTTP 404 instead of events"),
    ],
)
async def test_check_names_producers_that_refuse(
    configure: Configure, dialect: str, token_env: str, expected: str
) -> None:
    async with DemoProducer(token="sesame") as producer:
        toml = f'[[producers]]\nname = "a"\nurl = "{producer.url}"\ndialect = "{dialect}"\n{token_env}'
        (line,) = await wrong(configure(toml, environ={"WRONG": "open"}))
    assert line == f"producer a: {producer.url}: {expected}"


async def test_check_knows_the_minimal_dialect(configure: Configure) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if request.path != "/base/events" or request.query_string:
            return web.Response(status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        return response

    async with served(handler) as url:
        toml = f'[[producers]]\nname = "a"\nurl = "{url}/base"\ndialect = "auto"'
        assert await wrong(configure(toml)) == []


async def test_check_leaves_no_closed_subscription_behind(configure: Configure) -> None:
    async with DemoProducer() as producer:
        await producer.emit(
            {
                "type": "aaep:agent.awaiting.clarification",
                "session_id": "sess_1",
                "question": "?",
                "reply_token": "rpl_1",
                "timeout_seconds": 60,
            }
        )
        assert await wrong(configure(f'[[producers]]\nname = "a"\nurl = "{producer.url}"')) == []
        assert len(producer.subscriptions) == 1


async def test_check_names_a_place_where_the_database_cannot_be_created(configure: Configure) -> None:
    settings = configure('[storage]\npath = "in/here/clarify.db"')
    file = settings.storage.path.parents[1]
    settings.storage.path.parent.rmdir()
    file.rmdir()
    file.touch()
    expected = f"storage.path: {settings.storage.path} cannot be created: {file} is not a folder"
    assert await wrong(settings) == [expected]


async def test_check_names_what_is_wrong_with_the_storage(configure: Configure) -> None:
    settings = configure()
    path = settings.storage.path
    with FileLock(f"{path}.lock"):
        assert await wrong(settings) == [f"storage.path: {path} is in use by another instance"]
    path.write_bytes(b"not a database" * 100)
    assert f"storage.path: {path} cannot be opened: file is not a database" in await wrong(settings)


def test_manifest_gives_the_scopes_that_check_wants() -> None:
    manifest = (Path(__file__).parents[3] / "manifest.yml").read_text(encoding="utf-8")
    scopes = manifest.partition("    bot:\n")[2].partition("settings:")[0]
    given = {line.split("#")[0].strip(" -\n") for line in scopes.splitlines()}
    assert given == NEEDED_SCOPES | {EMAIL_SCOPE}


def test_manifest_has_what_people_use() -> None:
    lines = {
        line.split(" #")[0].strip(" -")
        for line in (Path(__file__).parents[3] / "manifest.yml").read_text(encoding="utf-8").splitlines()
    }
    assert {
        "command: /clarify",
        "should_escape: true",
        "home_tab_enabled: true",
        "app_home_opened",
        f"callback_id: {USE_AS_ANSWER}",
        "type: message",
    } <= lines


@pytest.mark.needs("ledgerfiles")
@pytest.mark.parametrize(
    ("channel", "code", "end"), [(AGENTS, 0, "passed."), (RANDOM, 1, "1 of 12 checks failed.")]
)
async def test_check_command_has_an_exit_code_and_creates_nothing(
    workspace: Workspace, tmp_path: Path, channel: str, code: int, end: str
) -> None:
    path = tmp_path / "clarify.toml"
    path.write_text(f'[slack]\nfallback_channel = "{FALLBACK}"\n[[routes]]\nchannel = "{channel}"')
    tokens = {"SLACK_API_URL": workspace.api_url, "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
    done = await asyncio.to_thread(CliRunner(env=tokens).invoke, app, ["check", "--config", str(path)])
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.rstrip().endswith(end)
    assert BOT_TOKEN not in done.stdout
    found = await asyncio.to_thread(
        CliRunner(env=tokens).invoke, app, ["check", "--config", str(path), "--json"]
    )
    told = json.loads(found.stdout)
    assert (found.exit_code, told["ok"]) == (code, code == 0)
    failed = [each["subject"] for each in told["checks"] if each["status"] == "failed"]
    assert failed == ["routes[0].channel"] * code
    assert {each.name for each in await asyncio.to_thread(lambda: [*tmp_path.iterdir()])} == {"clarify.toml"}


@pytest.mark.parametrize(
    ("bad", "warned", "expected"),
    [
        (0, 0, "All 3 checks passed."),
        (0, 1, "All 3 checks passed, 1 with a warning."),
        (1, 2, "1 of 3 checks failed, 2 with a warning."),
    ],
)
def test_check_ends_with_what_failed_and_what_warned(bad: int, warned: int, expected: str) -> None:
    results = [CheckResult(ok=False, subject="a", text="b")] * bad + [warning("a", "b")] * warned
    assert summary(results + [right("a", "b")] * (3 - len(results))) == expected


async def layouts(workspace: Workspace) -> list[CheckResult]:
    bot = slack_client(workspace.api_url, SecretStr(BOT_TOKEN))
    return [result async for result in check_layouts(bot)]


async def test_check_hands_a_sample_of_every_kind_to_slack(workspace: Workspace) -> None:
    (result,) = await layouts(workspace)
    calls = [call for call in workspace.calls if call.method == "blocks.validate"]
    assert result == right("messages and windows", f"Slack accepts a sample of each of {len(calls)} kinds")
    assert len(calls) > 20
    assert all(not channel.messages for channel in workspace.state.channels.values())


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("refuse:unknown_method", "Slack does not offer blocks.validate"),
        ("refuse:not_allowed_token_type", "blocks.validate: not_allowed_token_type"),
        ("5xx:500", "blocks.validate: HTTP 500"),
    ],
)
async def test_check_says_that_the_layouts_could_not_be_checked(
    workspace: Workspace, fault: str, why: str
) -> None:
    workspace.faults.add("blocks.validate", fault)
    assert await layouts(workspace) == [right("messages and windows", f"could not be checked: {why}")]


FOLD = {"type": "container", "title": {"type": "plain_text", "text": "Title"}, "child_blocks": []}
EMPTY = {"type": "section", "text": {"type": "plain_text", "text": ""}}


async def test_check_names_what_slack_refuses(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the bot then sends in classic blocks is no more than a warning."""
    window = {"type": "modal", "title": {"type": "plain_text", "text": "T"}, "blocks": [EMPTY]}
    made = [("card", {"blocks": [EMPTY]}), ("digest", {"blocks": [FOLD]}), ("window", window)]
    monkeypatch.setattr("bot.people.check.samples", lambda: made)
    card, digest, view = await layouts(workspace)
    where = "must be more than 0 characters at /blocks/0/text/text"
    assert (card.ok, card.text) == (False, f"card: Slack refuses it: {where}")
    assert (view.ok, view.text) == (False, f"window: Slack refuses it: {where}")
    assert (digest.ok, digest.warns) == (True, True)
    assert digest.text == "digest: Slack refuses it: no less than 1 items allowed at /blocks/0/child_blocks"
    assert digest.fix == "update clarify-bot; until then it is sent in Slack's older blocks"


UNKNOWN = f"""\
[slack]
fallback_channel = "{FALLBACK}"

[[routes]]                      # not C0NOPE
agent = "a"
channel = "C0NOPE"
answerers = [
  "members",
  "U0NOBODY",
  "S0NONE",
]

[[routes]]
channel = "{AGENTS}"
answerers = ["U0NOBODY", "U0FOLAKE"]
on_call = "p"

[[on_call]]
name = "p"
users = ["{GONE}"]
steps = [
  {{after = "0s", notify = ["thread", "dm"]}},
  {{after = "1m", notify = ["channel:C0NOPE", "group:S0NONE"]}},
]
"""


async def test_check_tells_once_of_what_slack_does_not_know_with_id_and_lines(
    workspace: Workspace, tmp_path: Path
) -> None:
    environ = {"SLACK_API_URL": workspace.api_url, "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
    settings = parse_settings(UNKNOWN, file=tmp_path / "clarify.toml", environ=environ)
    said = [next(finding.lines) async for finding in check_slack(settings)]
    assert [line.removeprefix("✗ wrong  ") for line in said if line.startswith("✗")] == [
        "clarify.toml:6: routes[0].channel: C0NOPE: Slack says channel_not_found (also on_call[0].steps in line 23)",
        "clarify.toml:9: routes[0].answerers: U0NOBODY: Slack says user_not_found (also routes[1].answerers in line 15)",
        "clarify.toml:10: routes[0].answerers: S0NONE: Slack says no_such_subteam (also on_call[0].steps in line 23)",
        f"clarify.toml:20: on_call[0].users: {GONE} (Gone) is deactivated",
    ]
    assert "✓ ok     routes[1].answerers: U0FOLAKE (Folake) is there" in said


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("needed", [False, True])
async def test_check_tells_of_a_port_that_is_taken(configure: Configure, needed: bool, running: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        settings = configure(f'[http]\nlisten = "{listen}"')
        if not needed:
            http = HttpSettings.model_construct(set(), listen=listen)
            settings = settings.model_copy(update={"http": http})
        lock = FileLock(f"{settings.storage.path}.lock")
        if running:  # the port is its own
            lock.acquire()
        found = await wrong(settings)
        lock.release()
    if running:
        assert [line.partition(":")[0] for line in found] == ["storage.path"]
    else:
        in_use = f"http.listen: {listen}: the address is already in use; stop the other program or choose another port"
        assert found == ([in_use] if needed else [])


NO_GROUP = "routes[0].answerers: S0NONE: Slack says no_such_subteam"
NO_ONE = f"routes[0].answerers: no one can answer in {AGENTS}"


@pytest.mark.parametrize(
    ("answerers", "expected"),
    [
        ("", [NO_ONE]),
        (f'answerers = ["members", "{PLATFORM}"]', []),
        ('answerers = ["members", "S0NONE"]', [NO_GROUP, NO_ONE]),
    ],
)
async def test_check_tells_of_a_route_that_nobody_could_answer(
    configure: Configure, workspace: Workspace, answerers: str, expected: list[str]
) -> None:
    settings = configure(
        f'[[routes]]\nchannel = "{AGENTS}"\n{answerers}\n[responders.pm]\npeople = ["{AGENTS}"]'
    )
    for user in (FOLAKE, ADE, ONCALL):
        workspace.change_user(user, hidden="user_not_visible")
    found = [line.partition(";")[0] for line in await wrong(settings)]
    assert found == [*expected, f"responders.pm.people: no one can answer in {AGENTS}"]


async def test_check_of_an_org_wide_installation(configure: Configure, workspace: Workspace) -> None:
    workspace.join_enterprise("E0ORG", org_wide=True)
    settings = configure(f'[[routes]]\nchannel = "{AGENTS}"\n[[on_call]]\nname = "p"\ngroup = "{PLATFORM}"')
    found = [finding async for finding in check_all(settings)]
    assert [finding for finding in found if not finding.ok] == []
    assert "works: @clarify in Local workspace, all of its workspaces" in [finding.text for finding in found]


@pytest.mark.needs("github")
async def test_check_looks_at_what_agents_ask_each_other_by(configure: Configure, tmp_path: Path) -> None:
    async def repository(request: web.Request) -> web.Response:
        allowed = request.headers.get("Authorization") == "Bearer sesame"
        return web.json_response({}, status=200 if allowed and request.path == "/repos/o/here" else 404)

    async with served(repository) as url:
        toml = f"""
            [responders.architect]
            command = "no-such-program --quick"
            [responders.reviewer]
            command = ["{sys.executable}", "-V"]
            [responders.writer]
            command = "./ask --quick"
            [responders.tester]
            command = "ask"
            [responders.product-manager]
            people = ["{GONE}", "{AGENTS}"]
            [github]
            repo = "o/{{name}}"
            token_env = "TOKEN"
            api_url = "{url}"
            """
        settings = configure(toml.format(name="gone"))
        (settings.file.parent / "ask").write_text("#!/bin/sh\n")
        (settings.file.parent / "ask").chmod(0o755)
        (settings.ledger.workflows / "feature.toml").write_text('[[steps]]\nagent = "x"\ncan_clarify = "y"')
        assert await wrong(settings) == [
            f"responders.product-manager.people: {GONE} (Gone) is deactivated",
            (
                "ledger.workflows: feature.toml: step 1: can_clarify: expected a list of roles, "
                '["architect"]; the step is ignored.'
            ),
            "responders.architect.command: no-such-program is not an executable program",
            "responders.tester.command: ask is not an executable program",
            "github.repo: GitHub answers 404 for o/gone",
        ]
        (settings.ledger.workflows / "feature.toml").write_text('[[steps]]\nagent = "x"\ncan_clarify = ["y"]')
        fine = [finding async for finding in check_all(configure(toml.format(name="here")))]
        told = [f"{finding.subject}: {finding.text}" for finding in fine if finding.ok]
        assert "github.repo: o/here can be read with TOKEN" in told
        assert f"ledger.workflows: 1 file in {settings.ledger.workflows}" in told


def over_http(folder: Path, api_url: str, secret: str = SIGNING_SECRET) -> Settings:
    environ = {"SLACK_API_URL": api_url, "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_SIGNING_SECRET": secret}
    source = f'[slack]\nmode = "http"\nfallback_channel = "{AGENTS}"\n[http]\nlisten = "127.0.0.1:9999"\n'
    return parse_settings(source, file=folder / "clarify.toml", environ=environ)


async def test_check_of_http_mode_asks_for_no_socket_and_names_the_address(
    tmp_path: Path, workspace: Workspace
) -> None:
    found = [finding async for finding in check_slack(over_http(tmp_path, workspace.api_url))]
    assert not [call for call in workspace.calls if call.method == "apps.connections.open"]
    assert [finding.subject for finding in found if not finding.ok] == []
    said = {finding.subject: finding.text for finding in found}
    assert "127.0.0.1:9999" in said["slack.mode"]
    assert "/slack/events" in said["slack.mode"]
    assert "SLACK_SIGNING_SECRET" in said
    assert not any(SIGNING_SECRET in text for text in said.values())


@pytest.mark.parametrize(
    ("secret", "fits"), [(LIKE_SLACKS, True), ("xapp-1-another", False), (LIKE_SLACKS[:-1], False)]
)
async def test_check_knows_what_slacks_secrets_look_like(
    tmp_path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, secret: str, fits: bool
) -> None:
    configured = over_http(tmp_path, workspace.api_url, secret)
    monkeypatch.setattr("bot.people.check.SLACK_API_URL", configured.slack_api_url)
    (finding,) = [each async for each in check_slack(configured) if each.subject == "SLACK_SIGNING_SECRET"]
    assert finding.ok is fits
    assert bool(finding.fix) is not fits
    assert secret not in f"{finding.text} {finding.fix}"


def pushing(folder: Path, second: str, agents: str = "") -> Settings:
    environ = {
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_APP_TOKEN": "xapp-1",
        "FIRST": "a",
        "SECOND": second,
    }
    text = PUSHING.replace('name = "first"', f'name = "first"\n{agents}')
    settings = parse_settings(text, file=folder / "clarify.toml", environ=environ)
    prepare_folders(settings)
    return settings


ANY = "pushes to us, as does {}, and may use any agent name"
SHARED = "shares its token with {}: each could read the other's replies"


@pytest.mark.parametrize(
    ("second", "agents", "ok", "first"),
    [
        ("b", "", True, ANY.format("second")),
        ("b", 'agents = ["first-*"]', True, "pushes to us: nothing to connect to"),
        ("a", "", False, SHARED.format("second")),
    ],
)
async def test_check_tells_of_producers_that_could_speak_for_each_other(
    tmp_path: Path, second: str, agents: str, ok: bool, first: str
) -> None:
    settings = pushing(tmp_path, second, agents)
    found = [each async for each in check_producers(settings)]
    assert [(each.ok, each.text) for each in found] == [
        (ok, first),
        (ok, (ANY if ok else SHARED).format("first")),
    ]
    if ok and not agents:
        assert found[0].fix == 'set agents = ["first", …] for it: the agents it may speak for'


PLATFORM_FEED = '[[on_call]]\nname = "platform"\nical_env = "FEED"\ntimezone = "Europe/Berlin"\n'


@pytest.fixture
async def feed() -> AsyncIterator[Feed]:
    made = Feed()
    async with served(made.answer) as made.url:
        yield made


class Feed:
    """A calendar's feed: people by title or address, with the hours from now when they are on call; after a question mark, in
    an unknown time zone.
    """

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.shifts: list[tuple[str, float, float]] = []

    async def answer(self, request: web.Request) -> web.Response:
        now, events = datetime.now(UTC), []
        for number, (who, begins, ends) in enumerate(self.shifts):
            first, last = (f"{now + timedelta(hours=hours):%Y%m%dT%H%M%SZ}" for hours in (begins, ends))
            title = f"SUMMARY:{who}\n" if who else ""
            if who.startswith("?"):
                first, last = (f"TZID=Mars:{each[:-1]}" for each in (first, last))
            colon = ";" if who.startswith("?") else ":"
            events.append(
                f"BEGIN:VEVENT\nUID:{number}\n{title}DTSTART{colon}{first}\nDTEND{colon}{last}\nEND:VEVENT\n"
            )
        body = f"BEGIN:VCALENDAR\nVERSION:2.0\n{''.join(events)}END:VCALENDAR\n"
        return web.Response(status=self.status, body=body.encode())


async def of_feeds(configure: Configure, feed: Feed, more: str = "") -> list[CheckResult]:
    settings = configure(PLATFORM_FEED + more, environ={"FEED": f"{feed.url}/secret.ics"})
    people = People(slack_client(settings.slack_api_url, settings.bot_token))
    found = [each async for each in check_feeds(settings, people, on_call_sources(settings))]
    assert all(each.fix for each in found if not each.ok)
    assert "secret" not in repr(found)
    return found


@pytest.mark.needs("ical")
async def test_check_says_who_is_on_call_now_and_next(
    configure: Configure, feed: Feed, workspace: Workspace
) -> None:
    ade = workspace.context.state.users[ADE].email
    feed.shifts = [(ade, -1, 1.5), ("Noor Haddad", 1.5, 3), ("Team lunch", 1, 2)]
    workspace.change_user(ONCALL, real_name="Noor Haddad")
    result, meeting = await of_feeds(configure, feed)
    assert meeting.ok
    assert "“Team lunch”" in meeting.text
    change = (datetime.now(UTC) + timedelta(hours=1.5)).astimezone(ZoneInfo("Europe/Berlin"))
    assert result.ok
    assert result.text.startswith(f"on call now: {ADE}; from {change:%Y-%m-%d %H:}")
    assert result.text.endswith(f" (Europe/Berlin): {ONCALL}")


@pytest.mark.needs("ical")
@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ([], "the calendar lists no one for the next month"),
        ([("Ade", -9, -8)], "the calendar lists no one for the next month"),
        (
            [("", -1, 1), ("On-Call (GoAlert: Sched)", 1, 2)],
            "lists no one who can be paged: “someone without a name” (it has neither",
        ),
        ([("Busy", -1, 1)], "lists no one who can be paged: “Busy” (no one in Slack has that"),
        ([("ade", -1, 1), ("Zoe", 1, 2)], "names people who can't be paged: “Zoe”"),
        ([("ade", -1, 2), ("zoe@example.com", 1, 2)], "names people who can't be paged: “zoe@example.com”"),
        (
            [("ade", -1, 2), ("gio@guest.example", 1, 2)],
            "names people who can't be paged: “gio@guest.example” (a guest has that email address; add them to `people` to page them)",
        ),
        (
            [("eva@extern.example", -1, 2)],
            "lists no one who can be paged: “eva@extern.example” (someone from another company has that",
        ),
    ],
)
async def test_check_refuses_a_calendar_that_leaves_nobody_on_call(
    configure: Configure, feed: Feed, shifts: list[tuple[str, float, float]], expected: str
) -> None:
    feed.shifts = shifts
    bad = [each for each in await of_feeds(configure, feed) if not each.ok]
    assert len(bad) == 1
    assert expected in bad[0].text
    assert bad[0].line == "clarify.toml:7"


@pytest.mark.needs("ical")
async def test_check_counts_and_lists_what_cannot_be_read_of_a_calendar(
    configure: Configure, feed: Feed
) -> None:
    feed.shifts = [("ade", -1, 500), *[(f"?Ann {n}", 200, 210) for n in range(22)]]
    result, on_call = await of_feeds(configure, feed)
    assert (result.ok, result.warns, on_call.ok) == (True, True, True)
    assert result.text.startswith("the calendar has 22 events that can't be read in full: “?Ann 0” of 20")
    assert result.text.count("its time zone “Mars” is unknown") == 20
    assert result.text.endswith("; and 2 more")
    feed.shifts = [("?Ann", -1, 1)]
    (result,) = await of_feeds(configure, feed)
    assert not result.ok
    assert "the calendar cannot be read: it does not say who is on call now (“?Ann” of" in result.text


@pytest.mark.needs("ical")
async def test_check_tells_that_a_calendar_cannot_be_read(
    configure: Configure, feed: Feed, workspace: Workspace
) -> None:
    tokens = workspace.context.state.tokens
    tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {EMAIL_SCOPE}
    settings = configure(f'{PLATFORM_FEED}\npeople = {{"Ann" = "U0NOPE"}}', environ={"FEED": feed.url})
    bad = [f"{each.subject}: {each.text}" async for each in check_slack(settings) if not each.ok]
    assert bad == [
        f"SLACK_BOT_TOKEN scopes: missing: {EMAIL_SCOPE}",
        "on_call[0].people: U0NOPE: Slack says user_not_found",
    ]
    feed.status = 404
    (result,) = await of_feeds(configure, feed)
    assert not result.ok
    assert result.text == "the calendar cannot be read: it returned HTTP 404: the address may be out of date"
    assert result.fix == "check the value of FEED"


async def test_check_warns_of_a_key_for_each_replica(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = configure()
    monkeypatch.setattr(type(settings), "database_url", "postgresql://u@127.0.0.1:9/db")

    def said() -> CheckResult:
        return next(iter(_signing_key(settings)))

    assert (said().warns, "each replica makes one of its own" in said().text) == (True, True)
    KeyPlace(settings.file.parent / "clarify-signing.pem").read(create=True)
    assert (said().warns, str(said().fix).startswith("replicas need one key")) == (True, True)


async def test_check_says_which_key_signs_receipts(configure: Configure) -> None:
    settings = configure()

    def said() -> CheckResult:
        return next(each for each in check_machine(settings) if each.subject == "trust")

    file = settings.file.parent / "clarify-signing.pem"
    assert (said().ok, f"the first start makes the key that signs receipts, {file}") == (True, said().text)
    kid = jwk_of(KeyPlace(file).read(create=True).public_key())["kid"]
    assert (
        f"signed with the key {kid} in {file}; every program of this user can read it, and sign decisions"
        in said().text
    )
    assert (said().ok, next(iter(said().lines)).startswith("! warn ")) == (True, True)
    assert "[trust] key_env" in str(said().fix)
    file.chmod(0o644)
    assert (said().ok, said().fix) == (False, f"chmod 600 {file}")
    file.write_bytes(
        generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    assert (said().ok, said().text) == (False, f"the signing key {file} is not an Ed25519 key")
