"""Whether the lists of answerers name somebody who could answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import ConfigurationError, SlackRefusedError, SlackUnreachableError
from bot.people.access import check_answerers, count_answerers, require_answerers
from bot.people.directory import Installation, People, Profile
from bot.settings.model import PersonalRoute, Settings
from tests.unit.bot.slack.kit import settings
from workspace.seed import TEAM


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
