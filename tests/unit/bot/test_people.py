"""Who somebody is, whether they may answer, under which name; and what one interaction may spend on finding out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot import people as module
from bot.errors import SlackRefusedError, SlackUnreachableError
from bot.people import (
    LOOK_UPS,
    PEOPLE_UNKNOWN,
    AccessControl,
    Installation,
    People,
    Person,
    Profile,
    Reason,
    check_answerers,
    explained,
    lookup_budget,
    may_answer,
    within_budget,
    without_budget,
)
from bot.views import phrases
from bot.workspace import Workspace
from bot.workspace.seed import (
    ADE,
    AGENTS,
    BOT_TOKEN,
    EVA,
    EXTERNAL_TEAM,
    GIO,
    GONE,
    ONCALL,
    OTHER_BOT_USER,
    PLATFORM,
    TEAM,
)
from core.clarification import (
    AlreadyAnswered,
    Answer,
    Clarification,
    Closed,
    Decider,
    Superseded,
    abandoned,
    answered,
)
from core.errors import AnswerRejected, LedgerUnwritable, LockTimeout, TooLong
from core.ledger import LOCK_TIMEOUT
from tests.kit.until import until
from tests.unit.bot.slack.kit import settings
from tests.unit.bot.strategies import record_of

MEMBER = Profile("U1", TEAM, "ade")
GUEST = replace(MEMBER, is_guest=True)
OUTSIDER = replace(MEMBER, team="T2")
STRANGER = replace(MEMBER, is_stranger=True)
DEACTIVATED = replace(MEMBER, is_deleted=True)
NOT_IN: Reason = "not in the channel"


@pytest.mark.parametrize(
    ("person", "answerers", "in_channel", "in_group", "decision"),
    [
        (MEMBER, ["members"], True, False, None),
        (MEMBER, ["members"], False, False, NOT_IN),
        (GUEST, ["members"], True, False, "guest"),
        (OUTSIDER, ["members"], True, False, "external"),
        (STRANGER, ["members"], True, False, "external"),
        (DEACTIVATED, ["members"], True, False, "deactivated"),
        (MEMBER, ["U1"], False, False, None),
        (OUTSIDER, ["U1"], False, False, None),
        (MEMBER, ["U2"], True, False, "not listed"),
        (MEMBER, ["S1"], False, True, None),
        (MEMBER, ["S1"], True, False, "not listed"),
        (MEMBER, ["U2", "S1", "members"], True, False, None),
        (MEMBER, [], True, True, "not listed"),
    ],
)
def test_may_answer_by_who_and_list(
    person: Profile, answerers: list[str], in_channel: bool, in_group: bool, decision: Reason | None
) -> None:
    members = {"U1"} if in_channel else {"U9"}
    groups = {"S1": frozenset({"U1"} if in_group else {"U9"})}
    assert (
        may_answer(person, answerers, channel_members=members, groups=groups, home=Installation(TEAM))
        == decision
    )


@pytest.mark.parametrize(
    ("person", "home", "decision"),
    [
        (replace(OUTSIDER, enterprise="E1"), Installation(TEAM, "E1"), None),
        (replace(OUTSIDER, enterprise="E1", is_guest=True), Installation(TEAM, "E1"), "guest"),
        (replace(OUTSIDER, enterprise="E2"), Installation(TEAM, "E1"), "external"),
        (OUTSIDER, Installation(TEAM, "E1"), "external"),
        (replace(MEMBER, enterprise="E1"), Installation("E1", "E1"), None),
    ],
)
def test_members_of_one_organization_are_at_home_in_all_its_workspaces(
    person: Profile, home: Installation, decision: Reason | None
) -> None:
    assert may_answer(person, ["members"], channel_members={"U1"}, groups={}, home=home) == decision


class Directory(People):
    """U1 is a full member, U2 a guest, UB a bot; everybody else is hidden. What is in `away` is not told."""

    def __init__(self, members: set[str], away: Sequence[str] = ()) -> None:
        super().__init__(AsyncWebClient())
        self._in_channel, self._away = frozenset(members), away
        self.asked = 0

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        self.asked += 1
        if "profile" in self._away:
            raise SlackUnreachableError("users.info: TimeoutError")
        if user not in {"U1", "U2", "UB"}:
            raise SlackRefusedError("users.info: user_not_found", code="user_not_found")
        return Profile(user, TEAM, is_bot=user == "UB", is_guest=user == "U2")

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        if "members" in self._away:
            raise SlackUnreachableError("conversations.members: TimeoutError")
        if channel != "C1":
            raise SlackRefusedError("conversations.members: channel_not_found", code="channel_not_found")
        return self._in_channel

    async def group(self, group: str, *, fresh: bool = False) -> frozenset[str]:
        if "group" in self._away:
            raise SlackUnreachableError("usergroups.users.list: TimeoutError")
        if group not in {"S1", "S0EMPTY"}:
            raise SlackRefusedError("usergroups.users.list: no_such_subteam", code="no_such_subteam")
        return frozenset({"U1"} if group == "S1" else ())


NO_SUCH_GROUP = "the user group S7: Slack says no_such_subteam"


NOBODY = "no one can answer in C1"


@pytest.mark.parametrize(
    ("answerers", "channel", "members", "somebody", "problem"),
    [
        (["members"], "C1", {"UB", "U2"}, False, NOBODY),
        (["members"], "C1", set(), False, NOBODY),
        (["S0EMPTY"], "C1", set(), False, NOBODY),
        ([], "C1", {"U1"}, False, NOBODY),
        (["S7"], "C1", set(), False, NO_SUCH_GROUP),
        (["members", "S7"], "C1", {"U2"}, False, NO_SUCH_GROUP),
        (["members"], "C1", {"U0HIDDEN", "U1"}, True, None),
        (["S1"], "C1", set(), True, None),
        (
            ["members"],
            "C2",
            {"U1"},
            True,
            "the members of C2: Slack says channel_not_found",
        ),  # others are served
        (["S7", "S1"], "C1", set(), True, NO_SUCH_GROUP),
    ],
)
async def test_whether_somebody_could_answer_and_what_is_wrong(
    answerers: list[str], channel: str, members: set[str], somebody: bool, problem: str | None
) -> None:
    found, problems = await check_answerers(answerers, channel, Directory(members), Installation(TEAM))
    assert found is somebody
    assert [each.partition(";")[0] for each in problems] == ([problem] if problem else [])


@pytest.mark.parametrize("away", ["members", "profile", "group"])
async def test_what_slack_does_not_tell_now_counts_as_somebody(away: str) -> None:
    entry = "S1" if away == "group" else "members"
    found = await check_answerers([entry], "C1", Directory({"U1"}, [away]), Installation(TEAM))
    assert found == (True, ())


async def test_few_of_very_many_are_asked_about() -> None:
    directory = Directory({*(f"U0{number:04}" for number in range(5000)), "U1"})
    assert await check_answerers(["members"], "C1", directory, Installation(TEAM)) == (True, ())
    assert directory.asked < 50


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


@pytest.mark.parametrize(
    ("user", "team", "flags"),
    [
        (ADE, TEAM, {}),
        (GIO, TEAM, {"is_guest": True}),
        (EVA, EXTERNAL_TEAM, {"is_stranger": True}),
        (GONE, TEAM, {"is_deleted": True}),
        (OTHER_BOT_USER, TEAM, {"is_bot": True}),
    ],
)
async def test_profile_of_each_kind(people: People, user: str, team: str, flags: dict[str, bool]) -> None:
    found = await people.profile(user)

    assert (found.id, found.team) == (user, team)
    kinds = ("is_guest", "is_stranger", "is_deleted", "is_bot")
    assert {kind: True for kind in kinds if getattr(found, kind)} == flags


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


async def test_what_is_forgotten_is_asked_again(people: People, ws: Workspace) -> None:
    await people.members(AGENTS)
    await people.profile(ADE)
    await people.group(PLATFORM)
    people.forget("channel", AGENTS)
    people.forget("user", ADE)
    people.forget("group", PLATFORM)
    assert ADE in await people.members(AGENTS)
    assert (await people.profile(ADE)).id == ADE
    assert await people.group(PLATFORM) == {ONCALL, ADE}
    assert count(ws, "conversations.members") == count(ws, "users.info") == 2


async def test_name_is_known_although_more_of_a_person_may_have_changed(
    people: People, ws: Workspace
) -> None:
    assert people.known_name(ADE) is None
    await people.profile(ADE)
    people.forget_all()
    assert people.known_name(ADE) == "ade"
    ws.change_user(ADE, name="adebayo")
    await people.profile(ADE)
    assert people.known_name(ADE) == "adebayo"


async def test_disabled_user_group_is_looked_at_again_whenever_it_may_be_enabled(
    people: People, ws: Workspace
) -> None:
    people.forget("group itself", PLATFORM)
    people.forget_all()
    assert await people.group(PLATFORM)
    people.forget_all()
    ws.disable_group(PLATFORM)
    people.forget("group itself", PLATFORM)
    await until(lambda: people.trouble_with(PLATFORM) == "Slack says no_such_subteam")
    ws.disable_group(PLATFORM, undo=True)
    people.forget_all()
    await until(lambda: people.trouble_with(PLATFORM) is None)
    assert count(ws, "usergroups.users.list") == 3


async def test_members_are_read_in_pages(
    people: People, ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    assert await people.members(AGENTS) == set(ws.channel(AGENTS).members)
    assert count(ws, "conversations.members") > 2


async def test_many_at_once_ask_once(people: People, ws: Workspace) -> None:
    found = await asyncio.gather(*(people.profile(ADE) for _ in range(20)))
    assert len({each.id for each in found}) == 1
    assert count(ws, "users.info") == 1


SLACK = f"user:slack/{TEAM}/{ADE}"


@pytest.mark.parametrize(
    ("mode", "email", "table", "expected"),
    [
        ("slack_id", None, {ADE: "user:ade"}, "user:ade"),
        ("slack_id", None, {GIO: "user:folake"}, SLACK),
        ("email", "ade@example.com", {}, "user:ade@example.com"),
        ("email", None, {}, SLACK),
        ("email", "a" * 251 + "@b", {}, SLACK),
        ("email", "a" * 249 + "@b", {}, "user:" + "a" * 249 + "@b"),
    ],
)
async def test_decided_by(
    tmp_path: Path, mode: str, email: str | None, table: dict[str, str], expected: str
) -> None:
    class Told(People):
        async def profile(self, user: str, *, fresh: bool = False) -> Profile:
            return Profile(user, TEAM, email=email)

    made = settings(tmp_path)
    made = made.model_copy(
        update={"slack": made.slack.model_copy(update={"identity": mode}), "identities": table}
    )
    access = AccessControl(Told(AsyncWebClient()), made, lambda _: frozenset())
    found = await access.decided_by(Person(TEAM, ADE))
    assert found == expected
    assert len(found) <= 256


async def soon() -> str:
    return "known"


async def late() -> str:
    await asyncio.sleep(30)
    return "too late"


def test_look_ups_and_the_lock_leave_something_of_the_three_seconds() -> None:
    assert LOOK_UPS + LOCK_TIMEOUT <= 2.8


async def test_look_ups_of_one_interaction_share_one_budget() -> None:
    with lookup_budget(0.05):
        assert await within_budget(soon()) == "known"
        with pytest.raises(SlackUnreachableError):
            await within_budget(late())
        with pytest.raises(SlackUnreachableError):
            await asyncio.wait_for(within_budget(late()), 60)
        assert await within_budget(soon()) == "known"  # what is known already costs nothing


async def test_work_after_the_acknowledgement_has_no_budget() -> None:
    with lookup_budget(0.0):
        task = asyncio.create_task(without_budget(within_budget(asyncio.sleep(0.01, "known"))))
        with pytest.raises(SlackUnreachableError):
            await within_budget(asyncio.sleep(0.01))
    assert await task == "known"


NOW = datetime(2026, 5, 24, 14, 27, tzinfo=UTC)


def by_ade(record: Clarification) -> Clarification:
    return answered(record, Answer(response=True, label="Yes"), Decider("user:ade", "slack", "T1", "U1"), NOW)


@pytest.mark.parametrize(
    ("error", "words", "recorded"),
    [
        (AlreadyAnswered(by_ade(record_of())), ["<@U1>", "“Yes”", "<!date^"], True),
        (Closed(abandoned(record_of(), "expired", NOW)), ["expired"], True),
        (Superseded(record_of()), [phrases.STALE_CARD], True),
        (AnswerRejected("Reply with <yes> or no."), ["Reply with &lt;yes&gt; or no."], True),
        (LockTimeout(42, 2.0, "somebody"), ["try again", "Nothing was changed"], False),
        (LedgerUnwritable(42, "the disk is full"), ["could not be saved"], False),
        (TooLong("answer", 2001, 2000), ["2001 characters", "at most 2000"], True),
        (SlackUnreachableError("users.info: TimeoutError"), [PEOPLE_UNKNOWN], False),
    ],
)
def test_explained_tells_what_happened_and_whether_anything_was_recorded(
    error: Exception, words: list[str], recorded: bool
) -> None:
    reaction = explained(error, "CLR-42-001")

    assert all(word in reaction.text for word in words)
    assert reaction.recorded is recorded
