"""Whether somebody may answer, under which name, until when one interaction may look that up, and whether the lists of answerers name anybody who can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.people.access import (
    LOOK_UPS,
    AccessControl,
    Person,
    Reason,
    check_answerers,
    count_answerers,
    in_time,
    may_answer,
    require_answerers,
)
from bot.people.directory import Installation, People, Profile
from bot.routing import Audience
from bot.settings.model import PersonalRoute, Settings
from core.clarification import Approval, Clarification, Decider, Standing
from core.ledger import LOCK_TIMEOUT
from core.transitions import ApprovedMeanwhile
from tests.kit.builders import NOW, changed, record
from tests.unit.bot.slack.kit import settings
from workspace.seed import ADE, AGENTS, GIO, TEAM

MEMBER = Profile("U1", TEAM, "ade")
GUEST = replace(MEMBER, is_guest=True)
OUTSIDER = replace(MEMBER, team="T2")
STRANGER = replace(MEMBER, is_stranger=True)
DEACTIVATED = replace(MEMBER, is_deleted=True)
NOT_IN: Reason = "not in the channel"


def asking(approvals: int, *approved: str) -> Clarification:
    """A question that so many people must approve, and that these users approved."""
    before = tuple(
        Approval(team=TEAM, user=each, decided_by=f"user:{each}", at=NOW, digest="") for each in approved
    )
    return changed(record(approvals_needed=approvals), approvals=before)


def access_of(
    people: People, made: Settings, paged: Iterable[str] = (), on_call: Sequence[str] = ()
) -> AccessControl:
    async def told(_: str) -> Sequence[str]:
        return on_call

    return AccessControl(people=people, settings=made, paged=lambda _: frozenset(paged), on_call=told)


@pytest.mark.parametrize(
    ("person", "answerers", "in_channel", "in_group", "decision"),
    [
        (MEMBER, ["members"], True, False, None),
        (MEMBER, ["members"], False, False, NOT_IN),
        (GUEST, ["members"], True, False, "guest"),
        (OUTSIDER, ["members"], True, False, "external"),
        (STRANGER, ["members"], True, False, "external"),
        (DEACTIVATED, ["members"], True, False, "deactivated"),
        (DEACTIVATED, ["U1", "S1"], True, True, "deactivated"),
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
    access = access_of(Told(AsyncWebClient()), made)
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


async def test_look_ups_of_one_interaction_share_one_deadline() -> None:
    deadline = time.monotonic() + 0.05
    assert await in_time(deadline, soon()) == "known"
    with pytest.raises(SlackUnreachableError):
        await in_time(deadline, late())
    with pytest.raises(SlackUnreachableError):
        await asyncio.wait_for(in_time(deadline, late()), 60)
    assert await in_time(deadline, soon()) == "known"  # what is known already costs nothing


class Silent(People):
    """Never says anything, but who we are."""

    def __init__(self) -> None:
        super().__init__(AsyncWebClient())

    async def installation(self) -> Installation:
        return Installation(TEAM)

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        await asyncio.Event().wait()
        raise AssertionError

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    "question", ["refusal", "refusal_on", "sees", "as_paged", "full_member", "decider", "decided_by"]
)
async def test_no_question_about_a_person_outlasts_their_deadline(tmp_path: Path, question: str) -> None:
    made = settings(tmp_path)
    made = made.model_copy(update={"slack": made.slack.model_copy(update={"identity": "email"})})
    access = access_of(Silent(), made, {ADE})
    person, audience = Person(TEAM, ADE, time.monotonic() + 0.01), Audience("planner")
    route = made.route_for(*audience)
    asked: dict[str, Callable[[], Awaitable[object]]] = {
        "refusal": lambda: access.refusal(person, AGENTS, audience),
        "refusal_on": lambda: access.refusal_on(person, route),
        "sees": lambda: access.sees(person, audience),
        "as_paged": lambda: access.may_as_paged(person, "CLR-42-001", route),
        "full_member": lambda: access.full_member(ADE, person.deadline),
        "decider": lambda: access.decider_of(person, asking(2)),
        "decided_by": lambda: access.decided_by(person),
    }
    with pytest.raises(SlackUnreachableError, match="in time"):
        await asyncio.wait_for(asked[question](), 60)


class Known(People):
    """ADE, who has an address and an id across the organization, and others by the first letter of their id: N has no
    address, G the same organization's id as ADE, A the same address, D is deactivated, O is not in the channel, R is hidden,
    and S is not told now.
    """

    def __init__(self) -> None:
        super().__init__(AsyncWebClient())

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        match user[1]:
            case "R":
                raise SlackRefusedError("users.info: user_not_found", code="user_not_found")
            case "S":
                raise SlackUnreachableError("users.info: TimeoutError")
        email = {"N": None, "A": f"{ADE}@EXAMPLE.com"}.get(user[1], f"{user}@example.com")
        global_id = "W1" if user == ADE or user[1] == "G" else ""
        return Profile(user, TEAM, global_id=global_id, email=email, is_deleted=user[1] == "D")

    async def profile_now(self, user: str) -> Profile:
        return await self.profile(user)

    async def installation(self) -> Installation:
        return Installation(TEAM)

    async def members(self, channel: str, *, fresh: bool = False) -> frozenset[str]:
        return frozenset({"UA1", "UD1", "UG1", "UN1", "UR1", "US1", "UT1", "UT2", "UX1"})

    async def by_email(self, email: str) -> Profile:
        if email.startswith("slow@"):
            raise SlackUnreachableError("users.lookupByEmail: TimeoutError")
        if email.casefold() != f"{ADE}@example.com".casefold():
            raise SlackRefusedError("users.lookupByEmail: users_not_found", code="users_not_found")
        return await self.profile(ADE)


@pytest.mark.parametrize(
    ("user", "named", "same"),
    [
        (ADE, ADE, True),
        (ADE, "W1", True),
        ("UG1", ADE, True),
        ("UX1", ADE, False),
        ("UX1", "ux1@EXAMPLE.com", True),  # an address that Slack does not look up
        ("UX1", f"{ADE}@example.com", False),
        ("UG1", f"{ADE.lower()}@example.com", True),
        ("UN1", f"{ADE}@example.com", False),
        ("UN1", "nobody@example.com", None),
        ("UX1", "nobody@example.com", False),
        ("UX1", "slow@example.com", None),
        ("UX1", "UR1", None),
        ("US1", ADE, None),
        ("US1", "US1", True),
        ("UT1", "UT2", True),  # by [identities]
    ],
)
async def test_who_goes_by_a_name(tmp_path: Path, user: str, named: str, same: bool | None) -> None:
    made = settings(tmp_path).model_copy(update={"identities": {"UT1": "user:t", "UT2": "user:t"}})
    access = access_of(Known(), made)
    assert await access.goes_by(Person(TEAM, user), named) is same


@pytest.mark.parametrize(
    ("user", "before", "standing"),
    [
        (ADE, "UX1", "other"),
        (ADE, "UN1", "other"),
        (ADE, "UG1", "same"),
        (ADE, "UA1", "same"),
        ("UT1", "UT2", "same"),  # by [identities]
        (ADE, "UD1", "lapsed"),
        (ADE, "UR1", "lapsed"),
        (ADE, "UO1", "lapsed"),
        (ADE, "UOPAGED", "other"),
        (ADE, "UOONCALL", "other"),
        (ADE, "US1", "unknown"),
    ],
)
async def test_what_who_approved_before_is_to_who_approves_now(
    tmp_path: Path, user: str, before: str, standing: Standing
) -> None:
    more = """on_call = "platform"
[[on_call]]
name = "platform"
users = ["UOONCALL"]
steps = [{after = "0s", notify = ["thread"]}]
[identities]
UT1 = "user:t"
UT2 = "user:T"
"""
    access = access_of(Known(), settings(tmp_path, more=more), {"UOPAGED"}, ["UOONCALL"])
    asked = asking(3, before, user)
    assert (await access.decider_of(Person(TEAM, user), asked)).approvers == {before: standing}


async def test_who_approved_meanwhile_is_looked_up_too(tmp_path: Path) -> None:
    access, told = access_of(Known(), settings(tmp_path)), []

    async def decide(decider: Decider) -> None:
        told.append(dict(decider.approvers or {}))
        if len(told) == 1:
            raise ApprovedMeanwhile(asking(2, "UX1"))

    await access.deciding(Person(TEAM, ADE), asking(2), decide)
    assert told == [{}, {"UX1": "other"}]


@pytest.mark.parametrize(
    ("user", "only", "refused"),
    [
        ("UA1", ADE, None),
        ("UG1", f"{ADE}@example.com", None),
        ("UX1", ADE, "asked of another"),
        ("UX1", "UR1", "asked of another"),
        ("UX1", "US1", SlackUnreachableError),
    ],
)
async def test_question_for_a_person_takes_an_answer_from_all_of_their_accounts(
    tmp_path: Path, user: str, only: str, refused: Reason | type[Exception] | None
) -> None:
    made = settings(tmp_path)
    route = PersonalRoute(**dict(made.routes[0]), only=only)
    asked = access_of(Known(), made).refusal_on(Person(TEAM, user), route)
    if isinstance(refused, type):
        with pytest.raises(refused):
            await asked
        return
    told = await asked
    assert (told and told.reason) == refused


class Directory(People):
    """U1 is a full member, U2 a guest, UB a bot; everybody else is hidden. What is in `away` is not told."""

    def __init__(self, members: set[str], away: Sequence[str] = ()) -> None:
        super().__init__(AsyncWebClient())
        self._in_channel, self._away = frozenset(members), away
        self.asked = 0

    async def installation(self) -> Installation:
        return Installation(TEAM)

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


def of_one_route(folder: Path, answerers: Sequence[str], channel: str = "C1") -> Settings:
    made = settings(folder)
    route = made.routes[0].model_copy(update={"answerers": tuple(answerers), "channel": channel})
    return made.model_copy(update={"routes": [route]})


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
    *,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answerers: list[str],
    channel: str,
    members: set[str],
    somebody: bool,
    problem: str | None,
) -> None:
    made, directory = of_one_route(tmp_path, answerers, channel), Directory(members)
    (found,) = [each async for each in check_answerers(made, directory, Installation(TEAM))]
    assert found.can_answer is somebody
    expected = [f"routes[0].answerers: {problem}"] if problem else []
    if somebody:
        await require_answerers(made, directory)
        assert caplog.messages == expected
        return
    with pytest.raises(ConfigurationError) as caught:
        await require_answerers(made, directory)
    assert [each.partition(";")[0] for each in caught.value.problems] == expected


@pytest.mark.parametrize("away", ["members", "profile", "group"])
async def test_what_slack_does_not_tell_now_counts_as_somebody(tmp_path: Path, away: str) -> None:
    made = of_one_route(tmp_path, ["S1" if away == "group" else "members"])
    (found,) = [each async for each in check_answerers(made, Directory({"U1"}, [away]), Installation(TEAM))]
    assert (found.can_answer, found.refused) == (True, {})


async def test_few_of_very_many_are_asked_about(tmp_path: Path) -> None:
    directory = Directory({*(f"U0{number:04}" for number in range(5000)), "U1"})
    made = of_one_route(tmp_path, ["members"])
    (found,) = [each async for each in check_answerers(made, directory, Installation(TEAM))]
    assert (found.can_answer, found.refused) == (True, {})
    assert directory.asked < 50


class Accounts(Directory):
    """U1 and U2 are full members, and accounts of one person as configured. U4 has the address of U1, U5 and U6 one id of an
    organization.
    """

    async def profile(self, user: str, *, fresh: bool = False) -> Profile:
        email = "u1@Example.com" if user == "U4" else f"{user}@example.com"
        return Profile(user, TEAM, email=email, global_id="W1" if user in {"U5", "U6"} else "")

    async def by_email(self, email: str) -> Profile:
        return await self.profile(email.partition("@")[0].upper())


@pytest.mark.parametrize(
    ("identities", "only", "count"),
    [
        ({}, "", 2),
        ({"U1": "user:ade", "U2": "user:ade"}, "", 1),
        ({}, "U2", 1),
        ({}, "u1@EXAMPLE.com", 1),
        ({}, "U3", 0),
    ],
)
async def test_people_who_may_answer_are_counted_once(
    tmp_path: Path, identities: dict[str, str], only: str, count: int
) -> None:
    made = of_one_route(tmp_path, ["members"]).model_copy(update={"identities": identities})
    route = made.routes[0]
    if only:
        route = PersonalRoute(**dict(route), only=only)
    directory = Accounts({"U1", "U2"})
    assert await count_answerers(route, made, directory, Installation(TEAM), 5) == count
    assert await count_answerers(route, made, directory, Installation(TEAM), 1) == min(count, 1)


@pytest.mark.parametrize(
    ("answerers", "count"),
    [(["U1", "U4"], 1), (["U5", "U6"], 1), (["members", "U4"], 2), (["members", "U4", "U5", "U6"], 3)],
)
async def test_accounts_of_one_person_are_counted_once(
    tmp_path: Path, answerers: list[str], count: int
) -> None:
    made = of_one_route(tmp_path, answerers)
    assert await count_answerers(made.routes[0], made, Accounts({"U1", "U2"}), Installation(TEAM), 5) == count


@pytest.mark.parametrize(
    ("identities", "besides", "count"),
    [
        ({}, "U1", 1),
        ({}, "u2@EXAMPLE.com", 1),
        ({}, "U9", 2),
        ({"U1": "user:ade", "U9": "user:ade"}, "U9", 1),
        ({"U1": "user:ade", "U2": "user:ade"}, "U1", 0),
    ],
)
async def test_whoever_an_agent_works_for_does_not_count(
    tmp_path: Path, identities: dict[str, str], besides: str, count: int
) -> None:
    made = of_one_route(tmp_path, ["members"]).model_copy(update={"identities": identities})
    directory = Accounts({"U1", "U2"})
    home = Installation(TEAM)
    assert await count_answerers(made.routes[0], made, directory, home, 5, besides=besides) == count
