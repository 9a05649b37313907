"""How sources are asked, what of them is kept, and whom in Slack they mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from bot.http import HttpClient, HttpStream
from bot.oncall import calendars, feeds
from bot.oncall.calendars import NoFeed, Shift
from bot.oncall.feeds import Copies, Feeds, Matching
from bot.people.directory import People
from bot.settings.model import OnCallSettings, Settings
from bot.storage.opening import open_storage
from bot.storage.store import Store
from bot.workspace import Workspace
from bot.workspace.seed import ADE, BOT_TOKEN, EVA, FOLAKE, GIO, GONE, TEAM
from bot.workspace.state import User
from tests.kit.clocks import ManualClock
from tests.kit.served import served
from tests.unit.bot.oncall.crew_parties import settings
from tests.unit.bot.oncall.test_calendars import answer, calendar, on_call
from tests.unit.bot.producers.parties import RawServer, Writer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CALENDAR = '[[on_call]]\nname = "platform"\nical_env = "FEED"\n'
SCHEDULE = """[[on_call]]
name = "platform"
pagerduty = {{schedule = "PABC123", token_env = "TOKEN", api_url = "{url}"}}
"""
ANN = "SUMMARY:Ann\nATTENDEE:mailto:ann@example.com\nDTSTART:20261120T080000Z\nDTEND:20261120T200000Z"


@dataclass
class Served:
    """An HTTP server: what it was asked, and how it answers."""

    url: str = ""
    asked: list[web.Request] = field(default_factory=list)
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    response: Callable[[], web.Response] = lambda: web.Response(body=calendar(ANN))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        return await self.respond(request) if self.respond is not None else self.response()


@pytest.fixture
async def source() -> AsyncIterator[Served]:
    made = Served()
    async with served(made.handle) as made.url:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient(None) as made:
        yield made


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    async with Workspace() as made:
        yield made


@pytest.fixture
def people(workspace: Workspace) -> People:
    return People(AsyncWebClient(token=BOT_TOKEN, base_url=workspace.api_url))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_storage(tmp_path / "clarify.db")
    yield opened
    await opened.close()


def configured(folder: Path, on_call: str, **environ: str) -> tuple[OnCallSettings, Settings]:
    found = settings(folder, on_call, **environ)
    return found.on_call[0], found


async def read(folder: Path, url: str, client: HttpClient, kept: Any = None) -> feeds.Reading:
    return await feeds.read(*configured(folder, CALENDAR, FEED=url), kept, NOW, client)


async def test_calendar_is_asked_whether_it_changed(
    tmp_path: Path, source: Served, client: HttpClient
) -> None:
    source.response = lambda: web.Response(body=calendar(ANN), headers={"ETag": '"one"'})
    reading = await read(tmp_path, source.url, client)
    assert [each.email for each in reading.shifts or ()] == ["ann@example.com"]
    assert "If-None-Match" not in source.asked[0].headers
    kept = feeds.Copy("", reading.etag, reading.digest, reading.shifts or (), NOW, NOW)
    same = await read(tmp_path, source.url, client, kept)
    assert source.asked[1].headers["If-None-Match"] == '"one"'
    assert same.shifts is None, "the same words are not parsed again"
    source.response = lambda: web.Response(status=304)
    assert (await read(tmp_path, source.url, client, kept)).shifts is None
    # What was worked out reaches a month; so it is done anew each day.
    old = feeds.Copy("", '"one"', reading.digest, (), NOW - timedelta(days=1), NOW)
    source.response = lambda: web.Response(body=calendar(ANN))
    assert (await read(tmp_path, source.url, client, old)).shifts
    assert "If-None-Match" not in source.asked[-1].headers


async def test_redirects_on_loopback_are_followed(tmp_path: Path, source: Served, client: HttpClient) -> None:
    async def redirect(request: web.Request) -> web.Response:
        if request.path == "/there":
            return web.Response(body=calendar(ANN))
        return web.Response(status=302, headers={"Location": "/there"})

    source.respond = redirect
    assert (await read(tmp_path, source.url, client)).shifts


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://calendar.example.com/basic.ics", "without https"),
        ("file:///etc/passwd", "without https"),
        ("/", "too many times"),
    ],
)
async def test_redirects_elsewhere_are_refused(
    tmp_path: Path, source: Served, client: HttpClient, location: str, why: str
) -> None:
    source.response = lambda: web.Response(status=301, headers={"Location": location})
    with pytest.raises(NoFeed, match=why):
        await read(tmp_path, source.url, client)


async def test_redirect_from_the_world_to_this_machine_is_refused(tmp_path: Path, source: Served) -> None:
    """Who can change a calendar's address must not make the bot call what listens here."""
    asked: list[str] = []

    async def nothing() -> bytes:
        return b""

    class World(HttpClient):
        """Stands in for a host that no test reaches."""

        @asynccontextmanager
        async def stream(self, method: str, url: str | URL, *_: Any, **__: Any) -> AsyncIterator[HttpStream]:
            asked.append(f"{method} {url}")
            yield HttpStream(302, {"location": source.url}, nothing)

    async with World(None) as client:
        with pytest.raises(NoFeed, match="to this machine"):
            await read(tmp_path, "webcal://calendar.example.com/secret.ics", client)
    assert asked == ["GET https://calendar.example.com/secret.ics"]


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (lambda: web.Response(status=404), "HTTP 404: the address may be out of date"),
        (lambda: web.Response(status=500), "HTTP 500$"),
        (lambda: web.Response(body=b"<html>Sign in"), "not iCalendar"),
        (lambda: web.Response(body=b" " * 200), "larger than 0 MB"),
        (lambda: web.Response(body=b"", headers={"Content-Encoding": "gzip"}), "compressed"),
        (lambda: web.Response(status=304), "HTTP 304"),
    ],
)
async def test_answers_that_are_no_calendar_are_refused(  # noqa: PLR0917
    tmp_path: Path,
    source: Served,
    client: HttpClient,
    monkeypatch: pytest.MonkeyPatch,
    response: Callable[[], web.Response],
    why: str,
) -> None:
    monkeypatch.setattr(feeds, "_MOST_BYTES", 100)
    source.response = response
    with pytest.raises(NoFeed, match=why) as refused:
        await read(tmp_path, f"{source.url}/secret.ics", client)
    assert "secret" not in str(refused.value)


async def test_source_that_is_silent_is_given_up(
    tmp_path: Path, source: Served, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    source.respond = never
    monkeypatch.setattr(feeds, "_PATIENCE", 0.1)
    with pytest.raises(NoFeed, match="no answer"):
        await read(tmp_path, source.url, client)


async def test_version_that_is_no_header_is_not_kept(tmp_path: Path, client: HttpClient) -> None:
    async def serve(_request: str, writer: Writer) -> None:
        body = calendar(ANN)
        writer.write(b'HTTP/1.1 200 OK\r\nETag: "\xe9"\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        await writer.drain()

    async with RawServer(serve) as server:
        assert (await read(tmp_path, server.url, client)).etag is None


async def test_source_that_is_away(tmp_path: Path, client: HttpClient) -> None:
    with pytest.raises(NoFeed, match="cannot connect"):
        await read(tmp_path, "http://127.0.0.1:1/secret", client)


async def test_pagerduty_is_asked_page_by_page(tmp_path: Path, source: Served, client: HttpClient) -> None:
    async def oncalls(request: web.Request) -> web.Response:
        first = request.query["offset"] == "0"
        person = on_call("Ann" if first else "Ben", "2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z")
        return web.json_response(answer(person, more=first))

    source.respond = oncalls
    policy, found = configured(tmp_path, SCHEDULE.format(url=source.url), TOKEN="y_NbAkKc66ryYTWUXYEu")
    reading = await feeds.read(policy, found, None, NOW, client)
    assert [each.email for each in reading.shifts or ()] == ["ann@example.com", "ben@example.com"]
    asked = source.asked[0]
    assert asked.path == "/oncalls"
    assert asked.headers["Authorization"] == "Token token=y_NbAkKc66ryYTWUXYEu"
    assert asked.headers["Accept"] == "application/vnd.pagerduty+json;version=2"
    assert asked.query["schedule_ids[]"] == "PABC123"
    assert asked.query["include[]"] == "users"
    assert asked.query["since"] < "2026-11-20T12" < asked.query["until"]
    kept = feeds.Copy("", None, reading.digest, reading.shifts or (), NOW, NOW)
    assert (await feeds.read(policy, found, kept, NOW + timedelta(minutes=3), client)).shifts is None


async def test_pages_of_pagerduty_may_be_shorter_than_was_asked_for(
    tmp_path: Path, source: Served, client: HttpClient
) -> None:
    names = ["Ann", "Ben", "Cy"]

    async def oncalls(request: web.Request) -> web.Response:
        at = int(request.query["offset"])
        person = on_call(names[at], "2026-11-20T10:00:00Z", "2026-11-21T10:00:00Z")
        return web.json_response(answer(person, more=at < 2) | {"limit": 1})

    source.respond = oncalls
    policy, found = configured(tmp_path, SCHEDULE.format(url=source.url), TOKEN="y_NbAkKc66ryYTWUXYEu")
    reading = await feeds.read(policy, found, None, NOW, client)
    assert [each.names[0].split()[0] for each in reading.shifts or ()] == names


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (
            lambda: web.Response(status=401),
            "HTTP 401: the token in TOKEN is not allowed to read the schedule",
        ),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1"}), "HTTP 302"),
        (lambda: web.Response(body=b"no"), "not JSON"),
        (lambda: web.json_response({"error": {}}), "not an on-call schedule"),
    ],
)
async def test_other_answers_of_pagerduty_are_refused(
    tmp_path: Path,
    source: Served,
    client: HttpClient,
    response: Callable[[], web.Response],
    why: str,
) -> None:
    source.response = response
    policy, found = configured(tmp_path, SCHEDULE.format(url=source.url), TOKEN="token-that-is-secret")
    with pytest.raises(NoFeed, match=why):
        await feeds.read(policy, found, None, NOW, client)


def newcomer(
    workspace: Workspace, user: str, name: str, shown: str = "", team: str = TEAM, **more: Any
) -> None:
    workspace.context.state.users[user] = User(user, shown or name, name, team, **more)


def shift(email: str = "", *names: str) -> Shift:
    return Shift(NOW - timedelta(hours=1), NOW + timedelta(hours=1), 0, email, names)


async def found(folder: Path, people: People, wanted: Shift, more: str = "") -> tuple[str | None, str]:
    policy, _ = configured(folder, CALENDAR + more, FEED="http://127.0.0.1:1")
    (matched,), told = await Matching(policy, people).all([wanted], {})
    assert told
    return matched.user, matched.why


async def test_people_are_found_by_address_then_by_name(
    tmp_path: Path, workspace: Workspace, people: People
) -> None:
    state = workspace.context.state
    newcomer(workspace, "U0ANN", "Zoë Müller", "zoe")
    newcomer(workspace, "U0BEN", "Zoe Müller", "zoe2", email="ben@example.com")
    cases = {
        shift(state.users[ADE].email): ADE,
        shift(state.users[ADE].email.upper().lower(), "Zoë Müller"): ADE,
        shift("", "zoë  MÜLLER"): "U0ANN",
        shift("", "Zoe\u0308 Mu\u0308ller"): "U0ANN",
        shift("", "Zoe Müller"): "U0BEN",
        shift("", "ZOE2"): "U0BEN",
        shift("unknown@example.com", "Zoë Müller"): "U0ANN",
        shift("", "Nobody - Platform", "Zoë Müller"): "U0ANN",
        shift("", "Zoé Müller"): None,
        shift("", "Zoe Muller"): None,
        shift(): None,
    }
    for wanted, user in cases.items():
        assert (await found(tmp_path, people, wanted))[0] == user, wanted


async def test_a_name_that_more_people_have_or_that_proves_nothing_finds_nobody(
    tmp_path: Path, workspace: Workspace, people: People
) -> None:
    state = workspace.context.state
    newcomer(workspace, "U0ANN1", "Ann Example")
    newcomer(workspace, "U0ANN2", "Another", "ann example")
    newcomer(workspace, "U0OLD", "Cem Example", deleted=True)
    newcomer(workspace, "U0NEW", "Cem Example")
    newcomer(workspace, "U0LEFT", "Dee Example", deleted=True, email="dee@example.com")
    newcomer(workspace, "U0DEE", "Dee Example (new)", "Dee")
    newcomer(workspace, "U0OTHER", "Other Team", email="other@example.com", team="T0OTHER")
    newcomer(workspace, "U0BOT2", "A Bot", email="bot@example.com", is_bot=True)
    cases = {
        shift("", "Ann Example"): "2 people in Slack are called “Ann Example”",
        shift("", "Cem Example"): "2 people in Slack are called “Cem Example”",
        shift("dee@example.com", "Dee"): "their account in Slack is deactivated",
        shift("", "Dee Example"): "their account in Slack is deactivated",
        shift("", state.users[GONE].real_name): "their account in Slack is deactivated",
        shift("", state.users[GIO].real_name): "a guest is called",
        shift("", state.users[EVA].real_name): "someone from another company is called",
        shift(state.users[GIO].email): "a guest has that email address",
        shift(state.users[EVA].email): "someone from another company has that email address",
        shift("other@example.com"): "someone from another company has that email address",
        shift("bot@example.com"): "a bot has that email address",
        shift("", "Busy"): "no one in Slack has that email address or name",
        shift(): "it has neither an email address nor a name",
    }
    for wanted, why in cases.items():
        user, said = await found(tmp_path, people, wanted)
        assert user is None, wanted
        assert said.startswith(why), said


async def test_everybody_is_asked_for_in_pages_and_once(
    tmp_path: Path, workspace: Workspace, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.people.directory._PAGE", 3)
    workspace.faults.add("users.list", "429:0", times=1)
    last = "U0ZZZ"
    newcomer(workspace, last, "Zoe Last")
    for _ in range(2):
        assert await found(tmp_path, people, shift("", "Zoe Last")) == (last, "")
    pages = -(-len(workspace.context.state.users) // 3)
    calls = [call for call in workspace.calls if call.method == "users.list" and call.outcome == "ok"]
    assert len(calls) == pages


async def test_people_of_the_configuration_come_first(tmp_path: Path, people: People) -> None:
    table = f'people = {{"Ann Example" = "{FOLAKE}", "ANN@example.com" = "{ADE}"}}\n'
    assert await found(tmp_path, people, shift("", "ann example"), table) == (FOLAKE, "")
    assert await found(tmp_path, people, shift("ann@example.com", "Ann Example"), table) == (ADE, "")


async def test_without_the_scope_for_addresses_names_still_find_people(
    tmp_path: Path, workspace: Workspace, people: People
) -> None:
    tokens = workspace.context.state.tokens
    tokens[BOT_TOKEN] = tokens[BOT_TOKEN] - {"users:read.email"}
    state = workspace.context.state
    wanted = shift(state.users[ADE].email, state.users[ADE].real_name)
    assert await found(tmp_path, people, wanted) == (ADE, "")


async def test_while_slack_is_away_people_are_as_last_known(
    tmp_path: Path, workspace: Workspace, people: People
) -> None:
    policy, _ = configured(tmp_path, CALENDAR, FEED="http://127.0.0.1:1")
    workspace.faults.add("users.lookupByEmail", "429:60", times=2)
    email = workspace.context.state.users[ADE].email
    wanted = shift(email)
    before = {wanted.person: Shift(NOW, NOW, email=email, user=ADE)}
    (matched,), told = await Matching(policy, people).all([wanted], before)
    assert (matched.user, told) == (ADE, False)
    (matched,), told = await Matching(policy, people).all([wanted], {})
    assert (matched.user, told) == (None, False)
    (matched,), told = await Matching(policy, people).all([wanted], {})
    assert (matched.user, told) == (ADE, True)


@asynccontextmanager
async def keeping(
    folder: Path, source: Served, people: People, store: Store, more: str = ""
) -> AsyncIterator[tuple[Callable[[], Awaitable[bool]], Copies, ManualClock, list[str]]]:
    """Ask once whenever called; what is kept; the clock; what people were told."""
    said: list[str] = []

    async def tell(key: str, words: str) -> None:
        said.append(words)

    policy, configuration = configured(folder, CALENDAR + more, FEED=f"{source.url}/secret.ics")
    clock = ManualClock(NOW)

    async def send(key: str) -> None:
        (row,) = await store.read("select * from messages where key = :key", key=key)
        said.append(f"{row['target']}: {json.loads(row['body'])['text']}")

    kept = Feeds(configuration, people, store, clock, tell=tell, send=send)
    async with HttpClient(None) as client:
        matching = Matching(policy, people)
        yield (lambda: kept.look(policy, matching, client)), Copies(configuration, store), clock, said


SECONDS = ";".join(f"{unit}={','.join(map(str, range(60)))}" for unit in ("BYMINUTE", "BYSECOND"))

HOSTILE = f"SUMMARY:Ann\nDTSTART:19700101T080000Z\nDTEND:19700101T090000Z\nRRULE:FREQ=HOURLY;{SECONDS}"


@pytest.mark.parametrize(
    ("slowest", "why"),
    [
        (60, "it does not say who is on call now (“Ann” of 1970-01-01: it takes too long to expand)"),
        (0, "expanding it takes too long or too much memory"),  # by the clock
    ],
)
async def test_work_on_a_feed_ends_and_the_copy_stays_in_use(  # noqa: PLR0917
    tmp_path: Path,
    source: Served,
    people: People,
    store: Store,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    slowest: int,
    why: str,
) -> None:
    newcomer(workspace, "U0ANN", "Ann", email="ann@example.com")
    begun: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*words: str, **options: Any) -> asyncio.subprocess.Process:
        assert "PLATFORM_ICAL" not in options["env"]
        begun.append(await start(*words, **options))
        return begun[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    monkeypatch.setenv("PLATFORM_ICAL", "https://calendar.example.com/secret")
    async with keeping(tmp_path, source, people, store) as (look, copies, _, said):
        assert await look()
        copy = await copies.of("platform")
        monkeypatch.setattr(feeds, "COMPUTING", 1)
        monkeypatch.setattr(feeds, "_SLOWEST", slowest)
        source.response = lambda: web.Response(body=calendar(HOSTILE))
        for _ in range(feeds.TRIES):
            assert not await look()
        (words,) = said
        assert f"for platform cannot be read: {why}." in words
        after = await copies.of("platform")
        assert copy is not None
        assert after is not None
        assert (after.shifts, after.read_at) == (copy.shifts, NOW)
    assert len(begun) == 1 + feeds.TRIES
    assert all(each.returncode is not None for each in begun)


async def test_event_that_takes_too_long_does_not_cost_the_others_and_many_of_them_are_refused(
    tmp_path: Path, source: Served, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "COMPUTING", 2)
    source.response = lambda: web.Response(body=calendar(HOSTILE, ANN))
    reading = await read(tmp_path, source.url, client)
    assert [each.email for each in reading.shifts or ()] == ["ann@example.com"]
    assert list(map(str, reading.left_out)) == ["“Ann” of 1970-01-01: it takes too long to expand"]
    source.response = lambda: web.Response(body=calendar(*[HOSTILE] * 9, ANN))
    with pytest.raises(NoFeed, match="takes too long or too much memory"):
        await read(tmp_path, source.url, client)


UNKNOWN_ZONE = (
    'SUMMARY:{name}\nDTSTART;TZID="Nowhere, far":{day}T080000\nDTEND;TZID="Nowhere, far":{day}T200000'
)
LATER = UNKNOWN_ZONE.format(name="Ben <x>", day="20261202")
NOW_UNKNOWN = UNKNOWN_ZONE.format(name="Ann", day="20261120")


async def test_what_cannot_be_read_is_told_once(
    tmp_path: Path, source: Served, people: People, store: Store, workspace: Workspace
) -> None:
    newcomer(workspace, "U0ANN", "Ann", email="ann@example.com")
    source.response = lambda: web.Response(body=calendar(ANN, LATER))
    async with keeping(tmp_path, source, people, store) as (look, copies, _, said):
        for _ in range(2):
            assert await look()
        (words,) = said
        assert words == (
            "The on-call calendar for platform has 1 event that can't be read in full: “Ben &lt;x&gt;” of "
            "2026-12-02: its time zone “Nowhere, far” is unknown. `clarify check` lists them."
        )
    async with keeping(tmp_path, source, people, store) as (look, copies, _, said):
        assert await look()
        assert said == [], "another bot leads now"
        assert (copy := await copies.of("platform")) is not None
        assert [each.what for each in copy.left_out] == ["“Ben <x>” of 2026-12-02"]
        more = [UNKNOWN_ZONE.format(name=f"Cem {n}", day="20261203") for n in range(8)]
        source.response = lambda: web.Response(body=calendar(ANN, LATER, *more))
        assert await look()
        (words,) = said
        assert "has 8 events that can't be read in full: “Cem 0” of" in words
        assert "; and 3 more. " in words


async def test_copy_stays_in_use_while_the_event_of_now_cannot_be_read(
    tmp_path: Path, source: Served, people: People, store: Store, workspace: Workspace
) -> None:
    """As if the source were away: for a day the person whom it named last, then the backup."""
    newcomer(workspace, "U0ANN", "Ann", email="ann@example.com")
    longer = ANN.replace("20261120T200000Z", "20261130T200000Z")
    source.response = lambda: web.Response(body=calendar(longer))
    async with keeping(tmp_path, source, people, store, f'users = ["{FOLAKE}"]\n') as (
        look,
        copies,
        clock,
        said,
    ):
        assert await look()
        broken = NOW_UNKNOWN.replace(
            'DTEND;TZID="Nowhere, far":20261120', 'DTEND;TZID="Nowhere, far":20261130'
        )
        source.response = lambda: web.Response(body=calendar(broken))
        for _ in range(feeds.TRIES + 1):
            assert not await look()
        copy = await copies.of("platform")
        assert copy is not None
        assert calendars.users_at(copy.shifts, clock.now()) == ("U0ANN",)
        (words,) = said
        assert words.startswith(
            "The on-call calendar for platform cannot be read: it does not say who is on call now (“Ann” of "
            "2026-11-20: its time zone “Nowhere, far” is unknown). The copy read at"
        )
        assert f"After that, <@{FOLAKE}> is on call as backup." in words
        await clock.advance(feeds.TOO_OLD.total_seconds() + 1)
        assert await look()
        assert "lists someone who cannot be paged (“Ann” of 2026-11-20: its time zone" in said[1]
        assert f"Meanwhile, <@{FOLAKE}> is on call as backup." in said[1]
        source.response = lambda: web.Response(body=calendar(longer))
        assert await look()
        assert said[2:] == ["The on-call calendar for platform works again: <@U0ANN> is on call now."]


async def test_event_of_now_that_cannot_be_read_is_told_as_the_reason_that_nobody_is_on_call(
    tmp_path: Path, source: Served, people: People, store: Store
) -> None:
    source.response = lambda: web.Response(body=calendar(NOW_UNKNOWN, LATER))
    async with keeping(tmp_path, source, people, store) as (look, copies, clock, said):
        for _ in range(2):
            assert await look()
        (words,) = said
        assert "lists someone who cannot be paged (“Ann” of 2026-11-20: its time zone “Nowhere, far”" in words
        assert "has 1 event that can't be read in full: “Ben &lt;x&gt;” of 2026-12-02" in words
        policy, _ = configured(tmp_path, CALENDAR, FEED=f"{source.url}/secret.ics")
        copy = await copies.of("platform")
        why = feeds.why_nobody(policy, copy, clock.now())
        assert why == "the calendar has an event for now that can't be read"
        await clock.advance(24 * 3600)
        assert feeds.why_nobody(policy, copy, clock.now()) == "the calendar lists no one right now"


async def test_people_are_told_at_once_where_no_copy_holds_meanwhile(
    tmp_path: Path, source: Served, people: People, store: Store, workspace: Workspace
) -> None:
    newcomer(workspace, "U0ANN", "Ann", email="ann@example.com")
    good, source.response = source.response, lambda: web.Response(status=500)
    async with keeping(tmp_path, source, people, store) as (look, copies, clock, said):
        assert not await look()
        assert not await look()
        (never,) = said
        policy, _ = configured(tmp_path, CALENDAR, FEED=f"{source.url}/secret.ics")
        why = feeds.why_nobody(policy, await copies.of("platform"), clock.now())
        assert why == "the calendar cannot be read"
        assert "cannot be read: it returned HTTP 500. Until it can be read, no one is on call" in never
        source.response = good
        assert await look()
        source.response = lambda: web.Response(status=500)
        await clock.advance(feeds.TOO_OLD.total_seconds() + 1)  # as after a bot that was down for so long
        assert not await look()
        assert "Until it can be read, no one is on call" in said[2]


async def test_reader_that_cannot_start_is_no_fault_of_the_feed(
    tmp_path: Path, source: Served, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calendars, "__name__", "bot.oncall.nothing")
    with pytest.raises(NoFeed, match="its reader exited with status 1"):
        await read(tmp_path, source.url, client)


async def test_what_another_address_said_does_not_count(
    tmp_path: Path, source: Served, people: People, store: Store
) -> None:
    async with keeping(tmp_path, source, people, store) as (look, copies, _, _):
        assert await look()
        assert await copies.of("platform") is not None
    _, moved = configured(tmp_path, CALENDAR, FEED=f"{source.url}/another.ics")
    assert await Copies(moved, store).of("platform") is None
    _, zoned = configured(tmp_path, CALENDAR + 'timezone = "Asia/Tokyo"\n', FEED=f"{source.url}/secret.ics")
    assert await Copies(zoned, store).of("platform") is None


async def test_copy_is_as_last_read_while_the_storage_is_away(
    tmp_path: Path, source: Served, people: People, store: Store
) -> None:
    async with keeping(tmp_path, source, people, store) as (look, copies, _, _):
        assert await look()
        before = await copies.of("platform")
        await store.run("drop table feeds")
        assert await copies.of("platform") == before
