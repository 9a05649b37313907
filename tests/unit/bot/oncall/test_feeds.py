"""What of the sources is kept, whom in Slack they mean, and what people are told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.oncall.feeds import (
    TOO_OLD,
    TRIES,
    Copies,
    Feeds,
    Matching,
    Shift,
    SourceError,
    Timetable,
    why_nobody,
)
from bot.people.directory import People
from bot.settings.model import OnCallSettings, Settings, name_key
from bot.storage.opening import open_storage
from bot.storage.store import Store
from tests.kit.clocks import ManualClock
from tests.unit.bot.oncall.crew_parties import Said, settings
from workspace import Workspace
from workspace.seed import ADE, BOT_TOKEN, EVA, FOLAKE, GIO, GONE, TEAM
from workspace.state import User

pytestmark = pytest.mark.needs("ical")


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CALENDAR = '[[on_call]]\nname = "platform"\nical_env = "FEED"\n'


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


def test_names_are_told_apart_by_accents_alone() -> None:
    same = ["Zoë  Müller", "zoë müller", "Zoe\u0308 Mu\u0308ller", "ZOË\u00a0MÜLLER"]
    assert len({name_key(name) for name in same}) == 1
    others = ["Zoe Müller", "Zoë Muller", "Zoe Muller", "Zoë Mueller", "Zoë Müller-Weiß", "Zoë Müller-Weiss"]
    assert len({name_key(name) for name in [same[0], *others]}) == 1 + len(others)


def newcomer(
    workspace: Workspace, user: str, name: str, shown: str = "", team: str = TEAM, **more: Any
) -> None:
    workspace.context.state.users[user] = User(user, shown or name, name, team, **more)


def shift(email: str = "", *names: str) -> Shift:
    return Shift(NOW - timedelta(hours=1), NOW + timedelta(hours=1), 0, email, names)


async def found(folder: Path, people: People, wanted: Shift, more: str = "") -> tuple[str | None, str]:
    policy, _ = configured(folder, CALENDAR + more, FEED="http://127.0.0.1:1")
    matched, told = await Matching(policy, people).all(Timetable((wanted,)), Timetable())
    assert told
    return matched.shifts[0].user, matched.shifts[0].why


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
    read, kept = Timetable((shift(email),)), Timetable((Shift(NOW, NOW, email=email, user=ADE),))
    for before, user, answered in ((kept, ADE, False), (Timetable(), None, False), (Timetable(), ADE, True)):
        matched, told = await Matching(policy, people).all(read, before)
        assert (matched.shifts[0].user, told) == (user, answered)


async def test_people_are_told_of_a_source_once_and_the_copy_holds_for_a_day(
    tmp_path: Path, workspace: Workspace, people: People, store: Store
) -> None:
    newcomer(workspace, "U0ANN", "Ann", email="ann@example.com")
    policy, configuration = configured(
        tmp_path, f'{CALENDAR}users = ["{FOLAKE}"]\n', FEED="http://127.0.0.1:1"
    )
    source, clock, told = Said(), ManualClock(NOW), list[str]()

    async def tell(_: str, words: str) -> None:
        told.append(words)

    async def look(times: int = 1) -> str:
        """What people are told while the source is asked, by a bot that just began to lead."""
        copies = Copies({"platform": source}, store)
        feeds = Feeds(configuration, people, copies, store, clock, tell=tell, send=tell_nobody)
        told.clear()
        for _ in range(times):
            await feeds.look(policy, Matching(policy, people))
        return " ".join(told)

    async def why() -> str:
        return why_nobody(source, await Copies({"platform": source}, store).of("platform"), clock.now())

    backup = f"<@{FOLAKE}> is on call as backup."
    source.says = SourceError("it <breaks>")
    assert await why() == "the calendar has not been read yet"
    assert (
        await look(2)
        == f"The calendar for platform cannot be read: it &lt;breaks&gt;. Until it can be read, {backup}"
    )
    assert await why() == "the calendar cannot be read"
    ann = Shift(NOW, NOW + 9 * TOO_OLD, email="ann@example.com")
    faults = tuple(f"“Ben {number}”: odd" for number in range(7))
    source.says = Timetable((ann,), faults[:1])
    assert await look(2) == (
        "The calendar for platform works again: <@U0ANN> is on call now. The calendar for platform has 1 event that can't be "
        "read in full: “Ben 0”: odd. `clarify check` lists them."
    )
    source.says = Timetable((ann,), faults)
    assert "has 6 events that can't be read in full: “Ben 1”" in (words := await look(2))
    assert "; and 1 more. " in words
    source.says = SourceError("HTTP 503")
    assert await look(TRIES - 1) == ""
    words = await look(TRIES + 2)
    assert words.count("cannot be read: HTTP 503. The copy read at") == 1
    assert f"After that, {backup}" in words
    copy = await Copies({"platform": source}, store).of("platform")
    assert copy is not None
    assert (copy.timetable.now(clock.now()), copy.timetable.faults) == (("U0ANN",), faults)
    await clock.advance(TOO_OLD.total_seconds() + 1)
    assert await look() == "", "of this they were told"
    assert await why() == "the calendar has not been readable for 1 day"
    source.says = Timetable((Shift(NOW + 5 * TOO_OLD, NOW + 9 * TOO_OLD, names=("Zoe",)),))
    assert await look(2) == f"The calendar for platform works again, but lists no one right now; {backup}"
    source.says = Timetable()
    assert await look(2) == f"The calendar for platform lists no one for the next month; {backup}"
    source.origin = "another address"
    assert await why() == "the calendar has not been read yet", "what another address said does not count"


async def tell_nobody(_: str) -> None:
    raise AssertionError
