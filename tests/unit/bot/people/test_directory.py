"""What Slack says of people, and how long it is kept."""

from __future__ import annotations

import asyncio

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SlackError
from bot.people import directory
from bot.people.directory import People
from tests.kit.until import until
from workspace import Workspace
from workspace.seed import (
    ADE,
    AGENTS,
    BOT_TOKEN,
    BOT_USER,
    FALLBACK,
    GIO,
    ONCALL,
    PLATFORM,
    RANDOM,
)
from workspace.state import Channel


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def web(ws: Workspace) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=ws.api_url, retry_handlers=[])


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def people(web: AsyncWebClient, seconds: Seconds) -> People:
    return People(web, seconds=seconds)


def count(ws: Workspace, method: str) -> int:
    return sum(call.method == method for call in ws.calls)


async def test_profile_is_kept_for_a_while(people: People, seconds: Seconds, ws: Workspace) -> None:
    first = await people.profile(ADE)
    seconds.now = 299
    assert await people.profile(ADE) is first
    assert people.known_name(ADE) == "ade"
    seconds.now = 301
    assert await people.profile(ADE) == first
    assert count(ws, "users.info") == 2


async def test_fresh_is_asked_again_but_not_at_once(people: People, seconds: Seconds, ws: Workspace) -> None:
    await people.group(PLATFORM)
    seconds.now = 9
    await people.group(PLATFORM, fresh=True)
    assert count(ws, "usergroups.users.list") == 1
    seconds.now = 11
    await people.group(PLATFORM, fresh=True)
    assert count(ws, "usergroups.users.list") == 2


async def test_person_is_asked_about_now_although_they_are_known(people: People, ws: Workspace) -> None:
    await people.profile(ADE)
    ws.change_user(ADE, deleted=True)
    assert (await people.profile_now(ADE)).is_deleted
    assert people.known_deactivated(ADE)
    ws.faults.add("users.info", "refuse:internal_error", times=5)
    with pytest.raises(SlackError):
        await people.profile_now(ADE)
    assert (await people.profile(ADE)).is_deleted  # what was known serves others


async def test_what_is_in_doubt_is_asked_again_and_serves_without_an_answer(
    people: People, ws: Workspace
) -> None:
    await people.profile(ADE)
    people.doubt()
    assert people.outdated.is_set()
    ws.faults.add("users.info", "refuse:internal_error")
    assert (await people.profile(ADE)).id == ADE
    await people.profile(ADE)
    assert count(ws, "users.info") == 3
    await people.profile(ADE)
    assert count(ws, "users.info") == 3


async def test_what_is_forgotten_is_asked_again(people: People, ws: Workspace) -> None:
    await people.members(AGENTS)
    await people.profile(ADE)
    await people.group(PLATFORM)
    people.drop("channel", AGENTS)
    people.drop("user", ADE)
    people.drop("group", PLATFORM)
    assert ADE in await people.members(AGENTS)
    assert (await people.profile(ADE)).id == ADE
    assert await people.group(PLATFORM) == {ONCALL, ADE}
    assert count(ws, "conversations.members") == count(ws, "users.info") == 2


async def test_answer_from_before_a_fact_changed_is_not_kept(
    people: People, monkeypatch: pytest.MonkeyPatch, ws: Workspace
) -> None:
    """Reading a long list takes seconds. Whoever leaves meanwhile must not be admitted."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    members = people._members

    async def slowly(channel: str) -> frozenset[str]:
        found = await members(channel)
        asked.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(people, "_members", slowly)
    earlier = asyncio.create_task(people.members(AGENTS))
    await asked.wait()
    ws.state.channels[AGENTS].members.remove(ADE)
    people.drop("channel", AGENTS)
    later = asyncio.create_task(people.members(AGENTS))
    await asyncio.sleep(0)
    go_on.set()

    assert ADE not in await later
    assert ADE in await earlier
    assert ADE not in await people.members(AGENTS)
    assert count(ws, "conversations.members") == 2


async def test_name_is_known_although_more_of_a_person_may_have_changed(
    people: People, ws: Workspace
) -> None:
    assert people.known_name(ADE) is None
    await people.profile(ADE)
    people.doubt()
    assert people.known_name(ADE) == "ade"
    ws.change_user(ADE, name="adebayo")
    await people.profile(ADE)
    assert people.known_name(ADE) == "adebayo"


async def test_disabled_user_group_is_looked_at_again_whenever_it_may_be_enabled(
    people: People, ws: Workspace
) -> None:
    people.drop("group itself", PLATFORM)
    people.doubt()
    assert await people.group(PLATFORM)
    people.doubt()
    ws.disable_group(PLATFORM)
    people.drop("group itself", PLATFORM)
    await until(lambda: people.trouble_with(PLATFORM) == "Slack says no_such_subteam")
    ws.disable_group(PLATFORM, undo=True)
    people.doubt()
    await until(lambda: people.trouble_with(PLATFORM) is None)
    assert count(ws, "usergroups.users.list") == 3


async def test_members_are_read_in_pages(
    people: People, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_PAGE", 2)
    assert await people.members(AGENTS) == set(ws.channel(AGENTS).members)
    assert count(ws, "conversations.members") > 2


async def test_many_at_once_ask_once(people: People, ws: Workspace) -> None:
    found = await asyncio.gather(*(people.profile(ADE) for _ in range(20)))
    assert {each.id for each in found} == {ADE}
    assert count(ws, "users.info") == 1


async def test_channels_of_a_person_are_kept_for_a_while_and_never_longer(
    people: People, seconds: Seconds, ws: Workspace
) -> None:
    ws.add_channel(Channel("C0MINE", "mine", [ADE, BOT_USER], is_private=True))
    ws.add_channel(Channel("C0THEIRS", "theirs", [ADE], is_private=True))
    assert await people.channels_of(ADE) == {AGENTS, FALLBACK, RANDOM, "C0MINE"}
    assert await people.channels_of(GIO) == {AGENTS, RANDOM}
    ws.leave(ADE, FALLBACK)
    seconds.now = 299
    assert FALLBACK in await people.channels_of(ADE)
    assert count(ws, "users.conversations") == 2
    people.drop("channels of", ADE)
    assert FALLBACK not in await people.channels_of(ADE)
    seconds.now = 600
    ws.faults.add("users.conversations", "5xx:503")
    with pytest.raises(SlackError):
        await people.channels_of(ADE)


async def test_channels_of_a_person_of_an_organization(people: People, ws: Workspace) -> None:
    ws.join_enterprise("E0ORG", org_wide=True)
    assert await people.channels_of(ADE) == {AGENTS, FALLBACK, RANDOM}


async def test_channels_of_a_person_are_read_in_pages(people: People, ws: Workspace) -> None:
    for n in range(1200):
        ws.add_channel(Channel(f"C0{n}", f"c{n}", [ADE]))
    assert len(await people.channels_of(ADE)) == 1203
    assert count(ws, "users.conversations") == 2


async def test_locale_is_what_slack_said_last(people: People, ws: Workspace, seconds: Seconds) -> None:
    ws.change_user(ADE, locale="de-DE")
    assert people.known_locale(ADE) == "", "never asked: nothing waits for it"
    await people.profile(ADE)
    assert people.known_locale(ADE) == "de-DE"
    people.drop("user", ADE)
    mail = ws.state.users[ADE].email
    assert (await people.by_email(mail)).locale == "", "users.lookupByEmail says none"
    assert people.known_locale(ADE) == "de-DE"
    ws.change_user(ADE, locale="pt-BR")
    assert (await people.profile(ADE)).locale == people.known_locale(ADE) == "pt-BR"
