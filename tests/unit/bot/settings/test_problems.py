from __future__ import annotations

import pytest

from bot.integrations import OURS
from tests.unit.bot.settings.parsing import problems


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
